// Creates the first region of a cluster, which holds the root of its tree.
#pragma once

#include "absl/status/status.h"
#include "cell/base/task.h"
#include "cell/cluster/membership.h"
#include "cell/server/region/log_flusher.h"
#include "cell/server/region/regions.h"

namespace cell {

// Creates the root of the tree here if the cluster has none. A cluster that has regions keeps them: a durable one
// recovers them from their logs, whichever server starts first.
//
// Without durability regions end with their servers. When every server that held one has ended, all keys of the cluster
// are lost, and the first worker of the first server that restarts creates a new root.
//
// Logs which regions were lost. Returns FailedPrecondition if this server held the root, without durability, and other
// servers still hold regions. Other errors are those of the membership and the log.
Task<absl::Status> MakeFirstRegion(Membership* membership, Regions* regions, LogFlusher* logs, WorkerId self);

}  // namespace cell
