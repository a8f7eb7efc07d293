// Unix sockets as ShmFabric's handshake needs them: owned descriptors, and descriptors handed over.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/io/fd.h"

namespace cell {

// A listening SOCK_SEQPACKET socket. A socket file that nobody listens on is replaced; AlreadyExists if one does.
absl::StatusOr<Fd> ListenUnix(const std::string& path);
absl::StatusOr<Fd> ConnectUnix(const std::string& path);

// One packet with descriptors (at most kFdsMax).
inline constexpr size_t kFdsMax = 200;
absl::Status SendPacket(int socket, ConstBytes bytes, const std::vector<int>& fds);

struct Packet {
  std::vector<std::byte> bytes;  // Empty: the peer has closed.
  std::vector<Fd> fds;
};
// Unavailable when there is none yet (the socket does not block); DataLoss if it was larger than bytes_max.
absl::StatusOr<Packet> ReceivePacket(int socket, size_t bytes_max);

}  // namespace cell
