#include "cell/server/change/region_split.h"

#include <string_view>
#include <utility>

#include "cell/server/change/part_pace.h"
#include "cell/tree/meganode_split.h"
#include "fmt/format.h"
#include "pilaf/hash_split.h"

namespace cell {
namespace {

class MeganodeRegionSplit : public RegionSplit {
 public:
  MeganodeRegionSplit(HeldRegion* lower, HeldRegion* upper, const Pace& pace)
      : lower_(lower), upper_(upper), pace_(pace), split_(lower->tree, upper->tree, upper->tree->range().low) {}

  absl::StatusOr<bool> Copy(size_t steps) override { return split_.Copy(steps * pace_.copied); }
  const absl::Status& mirrored() const override { return split_.mirrored(); }
  void TakeStamps() override { split_.TakeStamps(); }
  void LogCut() const override {
    lower_->log->Append(RecordKind::kCut, split_.key(), EncodeCut(upper_->region(), upper_->epoch()));
  }
  absl::Status Cut() override { return split_.Finish(); }
  // From then on the new region does not depend on its split parent any more.
  Membership::TableChange TableChange() const override {
    return [upper = upper_->region()](RegionTable* table) {
      table->Joined(upper);
      return absl::OkStatus();
    };
  }
  std::optional<Route> route() const override {
    return Route{static_cast<uint8_t>(lower_->tree->tier() + 1), split_.key()};
  }
  bool Clean() override { return split_.Reclaim(pace_.freed); }
  std::string UpperPart() const override { return fmt::format("the keys from {} on", ForMessage(split_.key())); }

 private:
  HeldRegion* const lower_;
  HeldRegion* const upper_;
  const Pace pace_;
  MeganodeSplit split_;
};

class PartSplit : public RegionSplit {
 public:
  PartSplit(HeldRegion* lower, HeldRegion* upper, const Pace& pace)
      : lower_(lower),
        upper_(upper),
        units_(UnitsPerStep(*lower->hash, pace.copied)),
        split_(lower->hash, upper->hash) {}

  absl::StatusOr<bool> Copy(size_t steps) override { return split_.Copy(static_cast<uint32_t>(steps) * units_); }
  const absl::Status& mirrored() const override { return split_.mirrored(); }
  void TakeStamps() override { upper_->store->RaiseLastStamp(lower_->store->header().last_stamp); }
  void LogCut() const override {
    const HashCutValue cut{first(), upper_->region(), static_cast<uint32_t>(upper_->epoch())};
    lower_->log->Append(RecordKind::kHashCut, "", std::string_view(reinterpret_cast<const char*>(&cut), sizeof(cut)));
  }
  absl::Status Cut() override { return split_.Finish(); }
  Membership::TableChange TableChange() const override {
    return [lower = lower_->region(), upper = upper_->region(), first = first()](RegionTable* table) {
      return table->SplitPart(lower, first, upper);
    };
  }
  std::optional<Route> route() const override { return std::nullopt; }
  bool Clean() override { return split_.Clean(units_); }
  std::string UpperPart() const override { return fmt::format("the keys from hash {:#010x} on", first()); }

 private:
  uint32_t first() const { return upper_->hash->range().first; }

  HeldRegion* const lower_;
  HeldRegion* const upper_;
  const uint32_t units_;  // Number of slots or buckets.
  HashSplit split_;
};

}  // namespace

absl::StatusOr<RegionContent> RegionSplit::ChooseUpperPart(const HeldRegion& region) {
  RegionContent upper = region.content();
  if (region.tree != nullptr) {
    std::optional<std::string> key = MeganodeSplit::ChooseKey(*region.tree);
    if (!key.has_value()) {
      return absl::FailedPreconditionError(fmt::format(
          "region {} has only one leaf: it can be split once more keys have given it a second one", region.region()));
    }
    upper.range.low = *std::move(key);
    return upper;
  }
  HashRange& range = *upper.hash_range;
  if (range.first == range.last) return absl::FailedPreconditionError("its part of the hash space is a single hash");
  range.first = HashSplit::ChoosePosition(range);
  return upper;
}

std::unique_ptr<RegionSplit> RegionSplit::Begin(HeldRegion* lower, HeldRegion* upper, const Pace& pace) {
  if (lower->tree != nullptr) return std::make_unique<MeganodeRegionSplit>(lower, upper, pace);
  return std::make_unique<PartSplit>(lower, upper, pace);
}

}  // namespace cell
