// Provides Unix sockets for ShmFabric: packets that may carry a descriptor, between ends that do not trust each other.
//
// A packet may carry descriptors whose last close blocks for as long as the sender likes (closer.h). The kernel closes
// them on the thread that takes the packet or closes the socket that holds it, whether or not there was room to receive
// them. Hence:
//   1. A packet is looked at (MSG_PEEK) before it is taken. One with unexpected descriptors is never taken.
//   2. A socket that holds such a packet, or may hold one, is closed by a Closer. Nothing here waits for the other end,
//      whatever the flags of a descriptor are.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/io/net/closer.h"
#include "cell/io/net/fd.h"

namespace cell {

// Returns a listening SOCK_SEQPACKET socket. Its file has `mode`, as far as the umask allows, from its first moment on.
// Replaces a socket file on which nobody listens. Returns AlreadyExists if somebody does.
absl::StatusOr<Fd> ListenUnix(const std::string& path, mode_t mode = 0777);
// Connects to it. Returns PermissionDenied if this user may not, and Unavailable if nobody listens there.
absl::StatusOr<Fd> ConnectUnix(const std::string& path);

// Sends one packet with descriptors. Returns Unavailable if the other end is gone, or has not taken earlier packets.
absl::Status SendPacket(int socket, ConstBytes bytes, const std::vector<int>& fds);

struct Packet {
  std::vector<std::byte> bytes;  // Empty: the peer has closed.
  Fd memory;                     // A memfd that came with it.
};

// One end of a connection.
class PeerSocket {
 public:
  enum class Takes { kBytes, kMemory };  // kMemory: a packet may carry one memfd.

  PeerSocket() = default;
  PeerSocket(Fd fd, std::shared_ptr<Closer> closer) : fd_(std::move(fd)), closer_(std::move(closer)) {}
  PeerSocket(PeerSocket&&) = default;
  PeerSocket& operator=(PeerSocket&& other) noexcept;
  ~PeerSocket();

  int get() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }

  // Takes the next packet. Returns Unavailable if there is none yet. Returns DataLoss if it is larger than bytes_max or
  // carries unexpected descriptors. It then stays in the socket, and the connection must not be used any more.
  absl::StatusOr<Packet> Receive(size_t bytes_max, Takes takes);

  // Sends a packet of one byte to wake the other end. If there is no room for it, other packets are waiting there.
  void Ring();

 private:
  Fd fd_;
  std::shared_ptr<Closer> closer_;
};

}  // namespace cell
