// RegionIds chooses the ids of new regions. Pure: no I/O. Part of the region table.
//
// Pointers have 24 bits for an id, so ids are used again: after the last one comes the first that is free. Two rules
// tell a region from an earlier one with its id:
//
// - Its epochs are above all epochs of the earlier one.
// - An id rests: others come first, nearly rest() at least. So what names a region without its epoch, such as a request
//   or what a client knows of the region table, is not about an earlier one unless it is older than that.
//
// The epoch of new regions rises once in rest() ids, so that no cluster uses up all epochs (kEpochEnd).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/layout/pointer.h"

namespace cell {

struct RegionIds {
  static constexpr uint64_t kEpochEnd = UINT32_MAX;  // Epochs in logs have 32 bits.

  uint32_t next = 1;                   // The id that is tried next.
  bool around = false;                 // Ids are being used again.
  uint64_t epoch = 1;                  // The first epoch of new regions.
  uint64_t removed_epoch = 0;          // The highest epoch of a region that was removed.
  std::vector<uint32_t> resting;       // Ids that became free shortly before their turn, in order. Passed over once.
  uint32_t max = Pointer::kRegionMax;  // The highest id. Tests set a lower one.

  // Returns how many ids come before one is used again. Those that are in use or passed over count, too.
  uint32_t rest() const { return std::max(max / 16, 1u); }
  // Returns whether a region has had this id.
  bool Given(uint32_t region) const { return region < next || around; }
  // Returns a free id. Returns ResourceExhausted if all ids are in use, or if `epoch` has come to kEpochEnd.
  absl::StatusOr<uint32_t> Take(const std::function<bool(uint32_t)>& in_use);
  // Notes that a region was removed, and its last epoch.
  void GiveBack(uint32_t region, uint64_t last_epoch);

  bool operator==(const RegionIds&) const = default;

 private:
  void Advance();
};

}  // namespace cell
