// Sends and takes packets like a peer of ShmFabric that keeps no rule, for tests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cell/base/bytes.h"
#include "cell/base/check.h"
#include "cell/io/fabric/shm/shm_connection.h"
#include "cell/io/fabric/shm/shm_fabric.h"
#include "cell/io/net/fd.h"
#include "cell/io/net/unix_socket.h"
#include "fmt/format.h"

namespace cell {

inline std::string TempPath(const std::string& name) {
  static std::atomic<int> counter = 0;
  static const unsigned process = std::random_device()();  // Tests in sandboxes share /tmp, and have the same ids.
  return fmt::format("/tmp/cell-stranger-{:08x}-{}-{}", process, counter++, name);
}

template <typename T>
ConstBytes BytesOf(const T& value) {
  return {reinterpret_cast<const std::byte*>(&value), sizeof(value)};
}

inline const Hello kHello = HelloOf({Role::kClient, "stranger"});
inline constexpr char kByte = 'x';

// Takes a packet with all its descriptors. Returns nullopt if there is none yet.
struct AnyPacket {
  std::vector<std::byte> bytes;  // Empty: the other end has closed.
  std::vector<Fd> fds;
};
inline std::optional<AnyPacket> TakeAny(const Fd& socket) {
  AnyPacket packet;
  packet.bytes.resize(65536);
  char control[CMSG_SPACE(200 * sizeof(int))];
  iovec part{packet.bytes.data(), packet.bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = ::recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && errno == EAGAIN) return std::nullopt;
  packet.bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); got >= 0 && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    for (size_t i = 0; i < (header->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      packet.fds.emplace_back(fd);
    }
  }
  return packet;
}
// Returns whether the other end has closed.
inline bool Closed(const Fd& socket) {
  const std::optional<AnyPacket> packet = TakeAny(socket);
  return packet.has_value() && packet->bytes.empty();
}

// Holds a TCP connection with bytes that one end has sent and the other does not take: closing it takes minutes.
class Lingering {
 public:
  Lingering() {
    const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int small = 4096;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    CELL_CHECK(::bind(listener.get(), at, bytes) == 0 && ::listen(listener.get(), 1) == 0);
    CELL_CHECK_EQ(::getsockname(listener.get(), at, &bytes), 0);
    end_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    CELL_CHECK_EQ(::connect(end_.get(), at, bytes), 0);
    other_ = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger wait{1, 600};
    CELL_CHECK_EQ(::setsockopt(end_.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)), 0);
    const std::string much(65536, 'x');
    while (::send(end_.get(), much.data(), much.size(), MSG_DONTWAIT) > 0) {
    }
  }
  // Sends it with `bytes` and keeps no reference, so that closing the packet closes the connection.
  void SendWith(const Fd& socket, ConstBytes bytes) {
    CELL_CHECK(SendPacket(socket.get(), bytes, {end_.get()}).ok());
    end_ = Fd();
  }

 private:
  Fd end_, other_;  // Closing other_ ends any waiting close.
};

}  // namespace cell
