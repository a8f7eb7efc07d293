// Declares the flags for ZooKeeper's credentials, for the server and the tools. A password belongs into a file or the
// environment: every user of the machine can read a command line.
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

namespace cell {

// Declares --zookeeper-digest-file, and --zookeeper-digest, which warns on standard error unless its value is from the
// environment. `digest` gets the credentials. Parsing fails if both are given, or if the file is not as it should be.
void AddZooKeeperDigest(CLI::App* app, std::string* digest);

// Returns InvalidArgument if the credentials are those that only read, which are for clients.
absl::Status CheckMayChange(const std::string& digest);

}  // namespace cell
