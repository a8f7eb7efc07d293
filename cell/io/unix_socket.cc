#include "cell/io/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cell/base/status_macros.h"

namespace cell {
namespace {

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        fmt::format("socket path \"{}\" is empty or longer than {} bytes: use a "
                    "directory with a shorter name",
                    path, sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<Fd> NewSocket() {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError(absl::StatusCode::kInternal, "socket");
  return fd;
}

}  // namespace

absl::StatusOr<Fd> ListenUnix(const std::string& path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  if (ConnectUnix(path).ok()) return absl::AlreadyExistsError(fmt::format("a server already listens at {}", path));
  ::unlink(path.c_str());
  ASSIGN_OR_RETURN(Fd fd, NewSocket());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return ErrnoError(absl::StatusCode::kInvalidArgument, fmt::format("cannot listen at {}", path));
  }
  return fd;
}

absl::StatusOr<Fd> ConnectUnix(const std::string& path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  ASSIGN_OR_RETURN(Fd fd, NewSocket());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return ErrnoError(absl::StatusCode::kUnavailable, fmt::format("no server answers at {}", path));
  }
  return fd;
}

absl::Status SendPacket(int socket, ConstBytes bytes, const std::vector<int>& fds) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  std::vector<char> control;
  if (!fds.empty()) {
    control.resize(CMSG_SPACE(fds.size() * sizeof(int)));
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) {
    return ErrnoError(absl::StatusCode::kUnavailable, "handshake: cannot send");
  }
  return absl::OkStatus();
}

absl::StatusOr<Packet> ReceivePacket(int socket, size_t bytes_max) {
  Packet packet;
  packet.bytes.resize(bytes_max);
  iovec part{packet.bytes.data(), packet.bytes.size()};
  std::vector<char> control(CMSG_SPACE(kFdsMax * sizeof(int)));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (received < 0) {
    if (errno == EAGAIN || errno == EINTR) return absl::UnavailableError("nothing yet");
    packet.bytes.clear();
    return packet;
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      packet.fds.emplace_back(fd);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return absl::DataLossError("handshake: packet too large");
  packet.bytes.resize(static_cast<size_t>(received));
  return packet;
}

}  // namespace cell
