#include "cell/gateway/users.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/types/span.h"
#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "cell/io/net/keyring.h"
#include "fmt/format.h"

namespace cell::gateway {
namespace {

constexpr size_t kUsersMax = 100;  // Each is a client of the cluster on each thread.

absl::StatusOr<UserFile> ReadUser(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::InvalidArgumentError(fmt::format("cannot read {}", path.string()));
  const absl::StatusOr<Keyring> keys = Keyring::Parse(text.str());
  if (!keys.ok()) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", path.string(), std::string(keys.status().message())));
  }
  const Secret& secret = keys->secrets().front();
  if (!secret.owner.has_value()) {
    return absl::InvalidArgumentError(fmt::format(
        "{} has the secret of the cluster, not that of a user: make one by `cellctl secret for client/NAME`",
        path.string()));
  }
  std::string password;
  for (const std::byte byte : secret.key) password += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return UserFile{path.filename().string(), path.string(), std::move(password)};
}

}  // namespace

absl::StatusOr<std::vector<UserFile>> ReadUsers(const std::string& directory) {
  std::vector<UserFile> users;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (!at->is_regular_file(error)) continue;
    if (users.size() == kUsersMax) {
      return absl::InvalidArgumentError(fmt::format("{} has more than {} users", directory, kUsersMax));
    }
    ASSIGN_OR_RETURN(UserFile user, ReadUser(at->path()));
    users.push_back(std::move(user));
  }
  if (error) return absl::InvalidArgumentError(fmt::format("cannot read {}: {}", directory, error.message()));
  if (users.empty()) return absl::InvalidArgumentError(fmt::format("{} has no secret files of users", directory));
  std::sort(users.begin(), users.end(), [](const UserFile& a, const UserFile& b) { return a.name < b.name; });
  return users;
}

const User* FindUser(const std::vector<User>& users, std::string_view name, std::string_view password) {
  const User* found = nullptr;
  for (const User& user : users) {
    const bool same = user.password.size() == password.size() &&
                      ::CRYPTO_memcmp(user.password.data(), password.data(), password.size()) == 0;
    if (same && user.name == name) found = &user;
  }
  return found;
}

}  // namespace cell::gateway
