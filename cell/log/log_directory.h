// The file DIR/cluster names, by its UUID, the cluster whose logs are in the directory DIR.
//
// Two clusters that wrote into one directory would read each other's logs, because their regions have the same numbers.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace cell {

// Claims a log directory for the cluster `uuid`, and makes the directory if it does not exist. A directory without logs
// is claimed by the first cluster that comes. Several servers may call it at the same time. Blocks.
//
// An empty `uuid` means a cluster that was made before clusters had one; its directory has no such file.
//
// Returns FailedPrecondition if the logs there belong to another cluster. Other errors are those of the file system.
absl::Status ClaimLogDirectory(const std::string& directory, const std::string& uuid);

// Makes the same check without changing anything. Returns OK if there is no such directory.
absl::Status CheckLogDirectory(const std::string& directory, const std::string& uuid);

// Removes all logs of the cluster `uuid`, the claim, and the directory if nothing else is in it. Returns the same
// errors.
absl::Status RemoveLogDirectory(const std::string& directory, const std::string& uuid);

}  // namespace cell
