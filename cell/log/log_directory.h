// The file DIR/cluster names the cluster whose logs are in the directory DIR, by its UUID.
//
// Two clusters that wrote into one directory would read each other's logs: their regions have the same numbers.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace cell {

// Claims a log directory for the cluster `uuid`, and makes the directory if it is not there. A directory without logs
// is claimed by the first cluster that comes. May be called by several servers at once. Blocks.
//
// An empty `uuid` is that of a cluster which was made before clusters had one; its directory has no such file.
//
// FailedPrecondition: the logs there are another cluster's. Other errors are those of the file system.
absl::Status ClaimLogDirectory(const std::string& directory, const std::string& uuid);

// The same check, and nothing is changed. Ok if there is no such directory.
absl::Status CheckLogDirectory(const std::string& directory, const std::string& uuid);

// Removes all logs of the cluster `uuid`, the claim, and the directory if nothing else is in it. Errors as above.
absl::Status RemoveLogDirectory(const std::string& directory, const std::string& uuid);

}  // namespace cell
