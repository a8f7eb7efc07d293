// Makes changes of the region table whose outcome must be known. Call it on the worker's thread.
#pragma once

#include "cell/base/task.h"
#include "cell/cluster/membership.h"
#include "cell/server/sched/scheduler.h"

namespace cell {

// Applies `change` to the region table, and retries until the outcome is known. If the coordinator cannot be reached or
// fails in another way (for example because its disk is full), a change may or may not have been made. `change` must
// therefore return OK for a table to which it was already applied.
//
// Returns the error of `change` itself, or Unavailable if the worker ends first, in which case the outcome is unknown.
Task<absl::Status> CommitTableChange(Membership* membership, Scheduler* scheduler, Membership::TableChange change);

}  // namespace cell
