// Reads ZooKeeper's credentials from a file, and derives those of readers.
//
// Servers have USER:PASSWORD, by which they may do everything with the cluster's znodes. Clients should only read them:
// who can write the region table can give itself grants. So there are credentials that may only read, derived from the
// servers': servers need no other file to know them, and who has them cannot tell the servers' from them.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cell {

// The file that //tools:up makes in a cluster's directory.
inline constexpr char kDigestFileName[] = "zookeeper-digest";

// Returns the credentials in a file: one line USER:PASSWORD. Returns InvalidArgument, with what to do, if the file
// cannot be read, if others can read it, or if it has anything else.
absl::StatusOr<std::string> ReadZooKeeperDigest(const std::string& path);

// Returns the credentials of readers, USER-reader:PASSWORD. REQUIRES: `digest` is USER:PASSWORD.
std::string ReaderOf(std::string_view digest);

// Returns whether credentials are those of readers, by their user.
bool IsReader(std::string_view digest);

// Returns what ZooKeeper keeps of credentials in an access control list: USER and a hash.
std::string AclIdOf(std::string_view digest);

}  // namespace cell
