// Defines the messages by which clients take snapshots and read them (docs/transactions.md). What wire.h says of
// messages holds for these, too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/layout/pointer.h"
#include "cell/layout/snapshot.h"
#include "cell/layout/wire.h"

namespace cell {

enum class SnapshotStep : uint8_t {
  kLook = 1,    // Only says where the region ends.
  kStill = 2,   // Take no writes, and keep what changes when nothing is under way any more.
  kGoOn = 3,    // Take writes again. The snapshot is taken, if no write came in between.
  kForget = 4,  // The snapshot is not needed any more.
};

// Sent to the owner of each region of a snapshot. `from` and `to` follow: the snapshot has the keys of the region from
// `from` (inclusive), which leads to the region, to `to` (exclusive; empty: the end of the tree).
struct SnapshotRequest {
  MessageHeader header;
  Pointer root;
  SnapshotId id;
  uint32_t kept_ms;  // Still: how long the snapshot is kept, at most kSnapshotKeptNsMax.
  uint16_t from_bytes;
  uint16_t to_bytes;
  SnapshotStep step;
  uint8_t reserved[7];
};
static_assert(sizeof(SnapshotRequest) == 48 && std::has_unique_object_representations_v<SnapshotRequest>);
std::string MakeSnapshotRequest(Pointer root, SnapshotStep step, const SnapshotId& id, std::string_view from,
                                std::string_view to, uint32_t kept_ms = 0);
absl::StatusOr<Parsed<SnapshotRequest>> ParseSnapshotRequest(ConstBytes message);

enum class SnapshotState : uint8_t {
  kWaits = 1,  // Writes are under way: ask again.
  kStill = 2,  // Nothing is under way, and no write begins.
  kTaken = 3,  // It was still until now, and goes on.
  kGone = 4,   // There is no such snapshot: it was forgotten, or the region went on by itself.
};
// The key follows from which on the region has no keys. None: it has all to the end of the tree.
struct SnapshotReply {
  ReplyHeader header;
  SnapshotState state;
  uint8_t reserved[5];
  uint16_t end_bytes;
};
static_assert(sizeof(SnapshotReply) == 24 && std::has_unique_object_representations_v<SnapshotReply>);
absl::StatusOr<Parsed<SnapshotReply>> ParseSnapshotReply(ConstBytes message);
// Writes a reply and returns its size. REQUIRES: there is room for it and the key.
size_t WriteSnapshotReply(MutableBytes to, SnapshotState state, std::string_view end);

// The reply is a GetReply, of which the extent is null: a value that is too large for it is copied, if `copy` of the
// request is not 0. The key follows.
struct GetSnapshotRequest {
  KeyRequest get;
  SnapshotId id;
};
static_assert(sizeof(GetSnapshotRequest) == 48 && std::has_unique_object_representations_v<GetSnapshotRequest>);
std::string MakeGetSnapshotRequest(Pointer root, const SnapshotId& id, std::string_view key, uint16_t copy);
absl::StatusOr<Parsed<GetSnapshotRequest>> ParseGetSnapshotRequest(ConstBytes message);

// The reply is a ScanReply. Values that are too large for it have a null extent, and are to be got one by one. `from`
// and `to` follow.
struct ScanSnapshotRequest {
  ScanRequest scan;
  SnapshotId id;
};
static_assert(sizeof(ScanSnapshotRequest) == 48 && std::has_unique_object_representations_v<ScanSnapshotRequest>);
std::string MakeScanSnapshotRequest(Pointer root, const SnapshotId& id, std::string_view from,
                                    const std::optional<std::string>& to, const ScanTerms& terms);
struct ParsedScanSnapshot {
  SnapshotId id;
  Parsed<ScanRequest> scan;
};
absl::StatusOr<ParsedScanSnapshot> ParseScanSnapshotRequest(ConstBytes message);

}  // namespace cell
