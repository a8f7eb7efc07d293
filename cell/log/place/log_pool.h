// The object `cluster` names, by its UUID, the cluster whose logs are in a pool, and their format (log_place.h).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "cell/io/object/object_store.h"

namespace cell {

// Claims a pool for the cluster `uuid`. A pool without logs is claimed by the first cluster that comes; other objects
// in it do not matter. Returns FailedPrecondition if the logs there belong to another cluster, or have a format that
// this release does not know. `pool` is for messages.
absl::Status ClaimLogPool(ObjectStore* objects, const std::string& pool, const std::string& uuid);

// Makes the same check without changing anything.
absl::Status CheckLogPool(ObjectStore* objects, const std::string& pool, const std::string& uuid);

// Removes the claim. REQUIRES: CheckLogPool, and that there are no logs any more.
absl::Status ReleaseLogPool(ObjectStore* objects);

}  // namespace cell
