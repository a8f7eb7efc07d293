// Checks that no other user of this machine can change what is in a directory, or put another in its place.
//
// Another user who can do that can read and replace everything that a cluster keeps there. A symbolic link that he puts
// there would make a server write to any file of his choosing. Trusted are this process's user, and root.
//
// The decisions are pure; CheckPrivateDirectory asks the system for the facts.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace cell {

// Holds what lstat returned for one step of a path.
struct PathFacts {
  uid_t owner = 0;
  mode_t mode = 0;  // With the kind of file.
};

// Who asks.
struct PathUser {
  uid_t user = 0;
  // In a user namespace that does not map root, files of the machine's root appear as this user's. Otherwise 0.
  uid_t stands_for_root = 0;
};
PathUser ThisUser();

// Check a directory itself, a directory above it, and a symbolic link that leads to one of them. Return
// FailedPrecondition, with what to do about it.
absl::Status CheckOwnDirectory(const std::string& path, const PathFacts& facts, const PathUser& user);
absl::Status CheckDirectoryAbove(const std::string& path, const PathFacts& facts, const PathUser& user);
absl::Status CheckLink(const std::string& path, const PathFacts& facts, const PathUser& user);

// Checks the directory, all directories above it, and all links on the way. Returns NotFound if it does not exist,
// FailedPrecondition as above, and Unavailable if the system does not tell.
absl::Status CheckPrivateDirectory(const std::string& directory);

// Returns whether other users may list the directory or read files in it.
bool OthersCanRead(const std::string& directory);

// Takes all rights of other users to a directory of this user away. Returns whether it had to. Does nothing to a
// directory of another user.
bool CloseToOthers(const std::string& directory);

}  // namespace cell
