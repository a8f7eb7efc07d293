// Reads and finds the users of the gateway.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/client/client.h"

namespace cell::gateway {

// A user as a directory of secret files has it.
struct UserFile {
  std::string name;      // The file's name.
  std::string path;      // The secret file (cell/io/net/keyring.h).
  std::string password;  // The 64 hex digits of the secret's key.
};

// Reads all files of a directory, sorted by name. Returns InvalidArgument with the file that is not as it should be, or
// if it has no files.
absl::StatusOr<std::vector<UserFile>> ReadUsers(const std::string& directory);

// A user on one thread of the gateway.
struct User {
  std::string name, password;
  Client* client;
};

// Returns the user with this name and password, or null. Takes the same time for every wrong password of a length.
const User* FindUser(const std::vector<User>& users, std::string_view name, std::string_view password);

}  // namespace cell::gateway
