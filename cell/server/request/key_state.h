// KeyState is what a key has when a write of it is tried. It decides whether a conditional write's condition holds, and
// is what a function is applied to.
//
// With `sync`, writes that are logged and not applied yet come before the one that is tried, so the last of them counts
// and not the store. Nothing of it may be told before that is on disk.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "cell/layout/wire.h"
#include "cell/server/region/held_region.h"

namespace cell {

struct KeyState {
  bool exists = false;
  uint64_t stamp = 0;  // 0: the pair has none, or there is no pair.
  Expiry expiry = kNeverExpires;
  std::string_view value;       // Valid until the region's next change.
  uint64_t after_sequence = 0;  // It is so once the log is on disk up to this record. 0: it is so already.
};

// Returns what the region's store has of the key. Returns DataLoss if the pair was damaged in memory.
absl::StatusOr<KeyState> StoredState(std::string_view key, const HeldRegion& region);
// Returns the state of a key of this region for a write that is tried now, with the same errors.
absl::StatusOr<KeyState> StateOf(std::string_view key, const HeldRegion& region);

// Returns whether the condition holds. Returns InvalidArgument if it asks for a stamp, and the pair has none.
absl::StatusOr<bool> Holds(const WriteCondition& condition, const KeyState& state);

}  // namespace cell
