// HashJoin moves all that a region has into the region with the part of the hash space below it, and gives that region
// the whole range. It is the reverse of HashSplit.
//
// Nothing is written to the upper region meanwhile. The lower one takes writes to its own range:
//
//   1. The upper one's pairs are copied, a few slots or buckets at a time. The lower one's range stays as it is.
//   2. When all are there, its buckets get the range of both, a few at a time. Slots have no range.
//   3. Finish invalidates the upper region, and then gives the lower one's header the range of both. The lower region
//      takes writes to the upper one's keys from then on.
//
// A reader may look for a key of the upper range in the lower region, because what it knows of the table is old. A pair
// that it finds there before Finish is current, as the upper region is not written. A key that it does not find in
// buckets with the range of both is absent, as all pairs were copied by then. In other cases it sees that the lower
// region does not serve the key. If the join is given up, all of this must be undone before the upper region is written
// again (Undo). See README.md.
//
// Must be destroyed before its regions. Not thread-safe: only the thread that writes both regions may call it.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pilaf/hash_cleaning.h"
#include "pilaf/hash_walk.h"

namespace cell {

class HashJoin {
 public:
  // Returns whether two regions together would fill less than half of one, so that what was joined takes many writes
  // until it is split again.
  static bool Fits(const HashTable& lower, const HashTable& upper) { return lower.fill() + upper.fill() < kFillMax; }

  // REQUIRES: the range of `upper` begins where that of `lower` ends, and both have the same layout. Nothing is written
  // to `upper` until Finish, or until Undo has returned true.
  HashJoin(HashTable* lower, HashTable* upper);
  ~HashJoin();
  HashJoin(const HashJoin&) = delete;
  HashJoin& operator=(const HashJoin&) = delete;

  // Returns the range of the upper region.
  const HashRange& upper_range() const { return range_; }

  // Goes on with steps 1 and 2, for `units` more slots or buckets. Returns true when both are done. Each copied pair is
  // reported to the lower region's on_write, like a put. Returns ResourceExhausted if the lower region has become too
  // full, and DataLoss if a pair was damaged in memory: call Undo then.
  absl::StatusOr<bool> Copy(uint32_t units);
  // Finishes the join. REQUIRES: Copy returned true, and Undo was not called. Cannot fail.
  void Finish();
  // Gives the join up: removes what was copied from `units` more slots or buckets of the lower region, without
  // notifications. Returns true when nothing is left of the join. REQUIRES: not finished.
  bool Undo(uint32_t units);

  // For tests: buckets get the range of both before all is copied.
  void set_widen_early(bool widen_early) { widen_early_ = widen_early; }
  // For tests: Finish does not invalidate the upper region.
  void set_upper_stays(bool upper_stays) { upper_stays_ = upper_stays; }

 private:
  static constexpr double kFillMax = 0.5;

  HashRange Both() const { return {lower_->range().first, range_.last}; }
  absl::Status CopyPair(const HashPair& pair);

  HashTable* const lower_;
  HashTable* const upper_;
  const HashRange range_;
  std::optional<HashWalk> walk_;          // Until all is copied.
  uint32_t widened_ = 0;                  // Units that have the range of both.
  std::optional<HashCleaning> cleaning_;  // From the first call of Undo on.
  bool finished_ = false;
  bool widen_early_ = false;
  bool upper_stays_ = false;
};

}  // namespace cell
