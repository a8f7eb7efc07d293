// Takes snapshots of a range of the tree, region by region (docs/transactions.md). Internal to cell/client. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/base/task.h"
#include "cell/client/session/session.h"
#include "cell/layout/snapshot.h"

namespace cell {

struct TakenSnapshot {
  // The keys that one region had of it when it was taken.
  struct Piece {
    std::string from;
    std::string end;  // Where the region ended. Empty: with the tree.
  };

  SnapshotId id = {};
  std::string from = {};  // Not empty.
  std::string to = {};    // Exclusive. Empty: the end of the tree.
  std::vector<Piece> pieces = {};
};

// Takes a snapshot of the keys from `from` on and below `to`, unless that is empty. Has the errors of
// Client::TakeSnapshot.
Task<absl::StatusOr<TakenSnapshot>> TakeSnapshot(Session* session, std::string from, std::string to, int64_t keep_us,
                                                 CallOptions options);

// Tells all regions that a snapshot is not needed any more. Returns whether all have answered within a second.
Task<bool> ForgetSnapshot(Session* session, TakenSnapshot taken);
// Does the same in the background, as long as the session is open.
void ForgetSnapshotLater(Session* session, TakenSnapshot taken);

}  // namespace cell
