// SnapshotId names a snapshot: the state of a range of keys at one moment (docs/transactions.md).
#pragma once

#include <compare>
#include <cstdint>

namespace cell {

struct SnapshotId {
  uint64_t client = 0;  // Session::client_id() of who takes it. Not 0.
  uint64_t number = 0;  // The client never uses it again.
  auto operator<=>(const SnapshotId&) const = default;
};
static_assert(sizeof(SnapshotId) == 16);

// How long a snapshot is kept at most.
inline constexpr int64_t kSnapshotKeptNsMax = 3'600'000'000'000;

}  // namespace cell
