// Decides who the other end of a Unix socket is. The kernel says which user it runs as, so nothing needs to be proven.
//
// A process of this server's user, or of root, could read and change the server's memory anyway: it is whoever it says.
// With a group, members of that group are clients, named uid-UID. Everybody else is refused.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/layout/identity.h"

namespace cell {

struct UnixPeer {
  uid_t uid;
  std::vector<gid_t> groups;  // Its group and its supplementary ones.
};

// Returns whose process connected the socket (SO_PEERCRED, SO_PEERGROUPS): who it was then.
absl::StatusOr<UnixPeer> PeerOf(int socket);

// Returns the name of this process's user, or uid-UID if it has none.
std::string UserName();

struct Admission {
  uid_t self;                  // The user of this process.
  std::optional<gid_t> group;  // Whose members may be clients, if anybody's.
};

// Returns who the peer is, or nullopt if it is refused.
std::optional<Identity> Admit(const UnixPeer& peer, const Admission& admission, const Identity& claimed);

}  // namespace cell
