#include "cell/server/change/region_join.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "cell/server/change/part_pace.h"
#include "cell/tree/meganode_join.h"
#include "pilaf/hash_join.h"

namespace cell {
namespace {

// The left region must not forget how far the right one's stamps were: outcomes that it has forgotten may still be
// asked for (docs/transactions.md).
void LogStamps(HeldRegion* left, const HeldRegion& right) {
  if (!left->has_pairs()) return;
  const uint64_t bound = std::max(left->stamp_bound(), right.store->header().last_stamp);
  left->log->Append(RecordKind::kStampBound, "", EncodeStampBound(bound));
}

class MeganodeRegionJoin : public RegionJoin {
 public:
  MeganodeRegionJoin(HeldRegion* left, HeldRegion* right, size_t copied)
      : left_(left),
        right_(right),
        region_(right->region()),
        epoch_(right->epoch()),
        range_(right->tree->range()),
        copied_(copied) {
    join_.emplace(left->tree, right->tree);
  }

  void LogBegin() const override { left_->log->Append(RecordKind::kCut, range_.low, EncodeCut(region_, epoch_)); }
  void LogEnd() const override {
    LogStamps(left_, *right_);
    left_->log->Append(RecordKind::kJoin, "", EncodeJoin(region_, epoch_, range_));
  }
  absl::StatusOr<bool> Copy(size_t steps) override { return join_->Copy(steps * copied_, left_->pending.size()); }
  void Finish() override { join_->Finish(); }
  bool Undo() override {
    join_.reset();
    return true;
  }

 private:
  HeldRegion* const left_;
  const HeldRegion* const right_;
  const uint32_t region_;
  const uint64_t epoch_;
  const MeganodeRange range_;  // Of the right meganode.
  const size_t copied_;
  std::optional<MeganodeJoin> join_;
};

class PartJoin : public RegionJoin {
 public:
  PartJoin(HeldRegion* lower, HeldRegion* upper, size_t copied)
      : lower_(lower),
        upper_(upper),
        region_(upper->region()),
        epoch_(static_cast<uint32_t>(upper->epoch())),
        range_(upper->hash->range()),
        units_(UnitsPerStep(*lower->hash, copied)),
        join_(lower->hash, upper->hash) {}

  void LogBegin() const override { Log(RecordKind::kHashCut, HashCutValue{range_.first, region_, epoch_}); }
  void LogEnd() const override {
    LogStamps(lower_, *upper_);
    Log(RecordKind::kHashJoin, HashJoinValue{region_, range_.last, epoch_});
  }
  absl::StatusOr<bool> Copy(size_t steps) override { return join_.Copy(static_cast<uint32_t>(steps) * units_); }
  void Finish() override {
    join_.Finish();
    lower_->store->RaiseLastStamp(upper_->store->header().last_stamp);
  }
  bool Undo() override { return join_.Undo(units_); }

 private:
  template <typename T>
  void Log(RecordKind kind, const T& value) const {
    lower_->log->Append(kind, "", std::string_view(reinterpret_cast<const char*>(&value), sizeof(value)));
  }

  HeldRegion* const lower_;
  const HeldRegion* const upper_;
  const uint32_t region_;
  const uint32_t epoch_;
  const HashRange range_;  // Of the upper part.
  const uint32_t units_;   // Number of slots or buckets.
  HashJoin join_;
};

}  // namespace

bool RegionJoin::Fits(const HeldRegion& left, const HeldRegion& right) {
  if (left.tree != nullptr) return MeganodeJoin::Fits(*left.tree, *right.tree);
  return HashJoin::Fits(*left.hash, *right.hash);
}

bool RegionJoin::LeavesRoom(const HeldRegion& left) {
  return left.tree == nullptr || MeganodeJoin::LeavesRoom(*left.tree, left.pending.size());
}

std::unique_ptr<RegionJoin> RegionJoin::Begin(HeldRegion* left, HeldRegion* right, size_t copied) {
  if (left->tree != nullptr) return std::make_unique<MeganodeRegionJoin>(left, right, copied);
  return std::make_unique<PartJoin>(left, right, copied);
}

}  // namespace cell
