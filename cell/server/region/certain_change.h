// ChangeForCertain: changes of the region table whose outcome must be known. One thread: the worker's.
#pragma once

#include "cell/base/task.h"
#include "cell/cluster/membership.h"
#include "cell/server/sched/turns.h"

namespace cell {

// Makes a change of the table. When the coordinator cannot be reached, or fails in any other way (its disk is full, say),
// the change may have been made or not; then it is made again until there is an answer, so it must be Ok with a table
// where it was made before. Returns the change's own error, or Unavailable: the worker ends, and it is not known.
Task<absl::Status> ChangeForCertain(Membership* membership, Turns* turns, Membership::TableChange change);

}  // namespace cell
