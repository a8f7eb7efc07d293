#include "cell/io/net/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

constexpr int kPacketsDroppedMax = 1024;  // More than a socket holds.

// Takes the packet that was looked at.
void TakePacket(int socket) { (void)::recv(socket, nullptr, 0, MSG_DONTWAIT); }

// Takes all packets of a socket to which nothing can be sent any more. Returns false if one of them carries
// descriptors, which stay in place, or if there may be one.
bool DropPackets(int socket) {
  // Makes the kernel add the sender to each packet, so that an empty packet differs from the end.
  const int on = 1;
  if (::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) return false;
  for (int i = 0; i < kPacketsDroppedMax; ++i) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
    msghdr message{};
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT) < 0) {
      if (errno == ECONNRESET || errno == EINTR) continue;  // Reported once.
      return errno == EAGAIN || errno == ENOTCONN;
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) return false;
    if (message.msg_controllen == 0) return true;
    TakePacket(socket);
  }
  return false;
}

absl::StatusOr<Fd> NewSocket() {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError(absl::StatusCode::kInternal, "socket");
  return fd;
}

}  // namespace

absl::StatusOr<Fd> ListenUnix(const std::string& path, mode_t mode) {
  ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  if (ConnectUnix(path).ok()) return absl::AlreadyExistsError(fmt::format("a server already listens at {}", path));
  ::unlink(path.c_str());
  ASSIGN_OR_RETURN(Fd fd, NewSocket());
  if (::fchmod(fd.get(), mode) != 0 ||  // Set the mode before binding: the file is never more open than this.
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return ErrnoError(absl::StatusCode::kInvalidArgument, fmt::format("cannot listen at {}", path));
  }
  return fd;
}

absl::StatusOr<Fd> ConnectUnix(const std::string& path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  ASSIGN_OR_RETURN(Fd fd, NewSocket());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EACCES) {
      return absl::PermissionDeniedError(
          fmt::format("permission denied: {} belongs to {}; run this program as that user, or let clients reach the "
                      "server by tcp (its flag --listen)",
                      path, OwnerOf(path)));
    }
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
  if (::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) {
    return ErrnoError(absl::StatusCode::kUnavailable, "cannot send");
  }
  return absl::OkStatus();
}

PeerSocket& PeerSocket::operator=(PeerSocket&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(closer_, other.closer_);
  return *this;
}

PeerSocket::~PeerSocket() {
  if (!fd_.valid()) return;
  (void)::shutdown(fd_.get(), SHUT_RDWR);  // Nothing more can arrive.
  if (!DropPackets(fd_.get())) closer_->Close(std::move(fd_));
}

absl::StatusOr<Packet> PeerSocket::Receive(size_t bytes_max, Takes takes) {
  Packet packet;
  packet.bytes.resize(bytes_max);
  iovec part{packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (takes == Takes::kMemory) {
    message.msg_control = control;
    message.msg_controllen = CMSG_LEN(sizeof(int));  // CMSG_SPACE has room for two.
  }
  const ssize_t received = ::recvmsg(fd_.get(), &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return absl::UnavailableError("no packet has arrived yet");
  if (received < 0) return Packet();
  if (const cmsghdr* header = takes == Takes::kMemory ? CMSG_FIRSTHDR(&message) : nullptr;
      header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int fd;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    packet.memory = Fd(fd);
  }
  if (packet.memory.valid() && ::fcntl(packet.memory.get(), F_GET_SEALS) < 0) {
    closer_->Close(std::move(packet.memory));
    return absl::DataLossError("the peer sent a descriptor that is not memory");
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) return absl::DataLossError("the peer sent unexpected descriptors");
  if ((message.msg_flags & MSG_TRUNC) != 0) return absl::DataLossError("the peer sent a packet that is too large");
  TakePacket(fd_.get());
  packet.bytes.resize(static_cast<size_t>(received));
  return packet;
}

void PeerSocket::Ring() {
  const char byte = 0;
  (void)::send(fd_.get(), &byte, sizeof(byte), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace cell
