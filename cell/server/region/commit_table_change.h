// CommitTableChange: changes of the region table whose outcome must be known. Call it on the worker's thread.
#pragma once

#include "cell/base/task.h"
#include "cell/cluster/membership.h"
#include "cell/server/sched/scheduler.h"

namespace cell {

// Applies `change` to the region table, and retries until the outcome is known: if the coordinator cannot be reached or
// fails in another way (its disk is full, for example), a change may or may not have been made. `change` must therefore
// return Ok for a table that it was already applied to.
//
// Returns the error of `change` itself, or Unavailable if the worker ends first: then the outcome is unknown.
Task<absl::Status> CommitTableChange(Membership* membership, Scheduler* scheduler, Membership::TableChange change);

}  // namespace cell
