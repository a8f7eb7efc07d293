// Serves requests that count or delete the pairs of a range, in slices: the leaves that one turn of the worker takes.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/layout/wire.h"
#include "cell/region/key_locks.h"
#include "cell/tree/meganode.h"

namespace cell {

// A slice has at most this many leaves, so that other requests wait for a short time only.
inline constexpr int kLeavesPerCount = 64;
inline constexpr int kLeavesPerDelete = 16;

// The keys of a range that one leaf has.
struct LeafKeys {
  std::vector<std::string> keys;    // In order.
  std::optional<std::string> next;  // Where the range goes on behind the leaf. Nullopt: it ends there.
};

// Returns the keys from `from` on and below `to`, unless that is empty, of the leaf that covers `from`. Returns
// DataLoss if the leaf was damaged in memory. REQUIRES: the meganode covers `from`.
absl::StatusOr<LeafKeys> KeysOfLeaf(const Meganode& tree, std::string_view from, std::string_view to);

// Returns InvalidArgument if a reply may need more room than this.
absl::Status CheckRangeRoom(const Meganode& tree, size_t room);

// Writes the reply to a count to `to` and returns its size. Returns InvalidArgument if there may be no room, and
// DataLoss if the first leaf was damaged in memory. A slice ends before such a leaf. REQUIRES: the meganode covers the
// range's begin.
//
// A slice ends before a leaf with a key of the range that a transaction will perhaps write (`locks`). If that is the
// first one, the reply asks the client to come again.
absl::StatusOr<size_t> ServeCount(const Meganode& tree, const KeyLocks& locks, const Parsed<RangeRequest>& request,
                                  MutableBytes to);

}  // namespace cell
