#include "cell/server/report/region_check.h"

#include "cell/base/json.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const unsigned char c : bytes) hex += fmt::format("{:02x}", c);
  return hex;
}

// Returns whether nothing of the region is freed gradually: what was split off, or what it had before it was cleared.
bool Settled(const HeldRegion& region) {
  return !region.ClaimedFor(ClaimPurpose::kSplit) && !region.ClaimedFor(ClaimPurpose::kClear);
}

ReservedExtents ReservedIn(const HeldRegion& region) {
  ReservedExtents reserved;
  for (const PendingWrite& write : region.pending) reserved.insert(write.prepared.extent);
  for (const auto& [owner, transaction] : region.transactions.all()) {
    for (const PairStore::Prepared& put : transaction->puts) reserved.insert(put.extent);
  }
  return reserved;
}

nlohmann::json HashReport(const HashTable& table, const absl::Status& status, bool whole) {
  nlohmann::json json = {
      {"region", table.region()}, {"hash", {{"first", table.range().first}, {"last", table.range().last}}},
      {"keys", table.keys()},     {"data_bytes", table.data_bytes()},
      {"whole", whole},           {"errors", nlohmann::json::array()}};
  if (!status.ok()) json["errors"].push_back(std::string(status.message()));
  return json;
}

}  // namespace

absl::StatusOr<HeldRegion*> RegionCheck::Find() const {
  HeldRegion* const region = regions_->Find(id_);
  const bool another = region != nullptr && passes_ > 0 && region->epoch() != epoch_;
  if (region == nullptr || !region->readable() || another) {
    return absl::NotFoundError(fmt::format("{} does not hold region {}", server_, id_));
  }
  if (region->state() == RegionState::kFilling) {
    return absl::FailedPreconditionError(fmt::format("region {} is being filled", id_));
  }
  if (region->ClaimedFor(ClaimPurpose::kJoin)) {
    return absl::AbortedError(fmt::format("region {} is being joined", id_));
  }
  return region;
}

void RegionCheck::Begin(const HeldRegion& region) {
  ++passes_;
  epoch_ = region.epoch();
  tree_.reset();
  hash_.reset();
  if (region.tree != nullptr) {
    tree_.emplace();
  } else {
    hash_.emplace();
  }
}

absl::StatusOr<bool> RegionCheck::Step(int64_t bytes) {
  ASSIGN_OR_RETURN(const HeldRegion* const region, Find());
  if (passes_ == 0) Begin(*region);
  return tree_.has_value() ? StepTree(*region, bytes) : StepHash(*region, bytes);
}

absl::StatusOr<bool> RegionCheck::StepTree(const HeldRegion& region, int64_t bytes) {
  if (!tree_->Step({*region.memory, bytes, Settled(region), [&region] { return ReservedIn(region); }})) return false;
  if (tree_->whole() || !tree_->report().ok() || passes_ == kPassesMax) return true;
  Begin(region);
  return false;
}

absl::StatusOr<bool> RegionCheck::StepHash(const HeldRegion& region, int64_t bytes) {
  const absl::StatusOr<bool> ended =
      hash_->Step({*region.hash, bytes, Settled(region), [&region] { return ReservedIn(region); }});
  if (ended.ok() && !*ended) return false;
  if (ended.ok() && !hash_->whole() && passes_ < kPassesMax) {
    Begin(region);
    return false;
  }
  hash_report_ = JsonText(HashReport(*region.hash, ended.status(), hash_->whole()));
  return true;
}

std::string RegionCheck::Report() const {
  if (!tree_.has_value()) return hash_report_;
  const TreeReport& report = tree_->report();
  nlohmann::json json = {{"region", report.region},           {"tier", report.range.tier},
                         {"low", Hex(report.range.low)},      {"right", report.range.right.region()},
                         {"routes", report.routes.size()},    {"keys", report.keys},
                         {"data_bytes", report.data_bytes},   {"expiring", report.expiring},
                         {"levels", report.levels},           {"nodes", report.nodes},
                         {"leaves", report.leaves},           {"half_splits", report.half_splits},
                         {"extents", report.extents},         {"whole", tree_->whole()},
                         {"error_count", report.error_count}, {"errors", report.errors}};
  if (report.range.high.has_value()) json["high"] = Hex(*report.range.high);
  return JsonText(json);
}

std::string RegionCheck::Routes(size_t first) const {
  const TreeReport& report = tree_->report();
  nlohmann::json json = nlohmann::json::array();
  size_t bytes = 0;
  for (size_t i = first; i < report.routes.size() && bytes < kMessageBytesMax / 2; ++i) {
    const auto& [key, child] = report.routes[i];
    json.push_back({Hex(key), child.region()});
    bytes += 2 * key.size() + 16;
  }
  return JsonText(json);
}

}  // namespace cell
