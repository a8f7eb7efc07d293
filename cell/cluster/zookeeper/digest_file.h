// Reads ZooKeeper's credentials from a file.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace cell {

// The file that //tools:up makes in a cluster's directory.
inline constexpr char kDigestFileName[] = "zookeeper-digest";

// Returns the credentials in a file: one line USER:PASSWORD. Returns InvalidArgument, with what to do, if the file
// cannot be read, if others can read it, or if it has anything else.
absl::StatusOr<std::string> ReadZooKeeperDigest(const std::string& path);

}  // namespace cell
