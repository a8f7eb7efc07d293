#include "cell/io/net/unix_peer.h"

#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "cell/io/net/fd.h"
#include "fmt/format.h"

namespace cell {

absl::StatusOr<UnixPeer> PeerOf(int socket) {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return ErrnoError(absl::StatusCode::kInternal, "the system does not tell who connected");
  }
  UnixPeer peer{credentials.uid, {}};
  bytes = 0;
  // The first call says how much room the groups need.
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, nullptr, &bytes) == 0 || errno == ERANGE) {
    peer.groups.resize(bytes / sizeof(gid_t));
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, peer.groups.data(), &bytes) != 0) peer.groups.clear();
    peer.groups.resize(std::min(peer.groups.size(), bytes / sizeof(gid_t)));
  }
  peer.groups.push_back(credentials.gid);
  return peer;
}

std::string UserName() {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> names{};
  if (::getpwuid_r(::geteuid(), &entry, names.data(), names.size(), &found) != 0 || found == nullptr) {
    return fmt::format("uid-{}", ::geteuid());
  }
  return found->pw_name;
}

std::optional<Identity> Admit(const UnixPeer& peer, const Admission& admission, const Identity& claimed) {
  constexpr uid_t kRoot = 0;
  if (peer.uid == admission.self || peer.uid == kRoot) return claimed;
  const bool member = admission.group.has_value() &&
                      std::find(peer.groups.begin(), peer.groups.end(), *admission.group) != peer.groups.end();
  if (!member) return std::nullopt;
  return Identity{Role::kClient, fmt::format("uid-{}", peer.uid)};
}

}  // namespace cell
