// SnapshotRequests takes snapshots of regions, and serves gets and scans of what they have (docs/transactions.md).
//
// What a snapshot has of a key is what was kept of it when it changed, or else what the region has now. A transaction
// that holds the key was not decided when the snapshot was taken, so its locks do not matter here.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/base/clock.h"
#include "cell/io/fabric/fabric.h"
#include "cell/layout/wire_snapshot.h"
#include "cell/region/snapshots.h"
#include "cell/server/region/regions.h"
#include "cell/server/request/permissions.h"
#include "cell/server/request/served_regions.h"
#include "cell/server/request/value_copies.h"

namespace cell {

class SnapshotRequests {
 public:
  struct Parts {
    ServedRegions* served;
    Permissions* permissions;
    ValueCopies* copies;
  };

  // All arguments must outlive this.
  SnapshotRequests(const Clock* clock, Regions* regions, const Parts& parts)
      : clock_(clock), regions_(regions), parts_(parts) {}

  // Serve a kSnapshot, a kGetSnapshot, and a kScanSnapshot. They write the reply to `to` and return its size. The last
  // two return FailedPrecondition (SnapshotTooOld) if the snapshot is not there any more, and DataLoss if what it has
  // was damaged in memory.
  absl::StatusOr<size_t> Take(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Get(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Scan(const IncomingCall& call, MutableBytes to);

  // Ends snapshots that are too old, and lets regions go on that have been still for too long.
  void Step();

 private:
  // Takes the step in a region of pairs.
  absl::StatusOr<SnapshotState> Take(const SnapshotOfUser& of, const Parsed<SnapshotRequest>& request,
                                     HeldRegion* region);
  absl::StatusOr<SnapshotState> Still(const SnapshotOfUser& of, const Parsed<SnapshotRequest>& request,
                                      HeldRegion* region);

  const Clock* const clock_;
  Regions* const regions_;
  const Parts parts_;
  int64_t step_at_ns_ = 0;
};

}  // namespace cell
