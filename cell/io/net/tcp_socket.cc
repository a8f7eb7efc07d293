#include "cell/io/net/tcp_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "cell/base/status_macros.h"

namespace cell {
namespace {

// Limits how long a peer that disappeared goes unnoticed.
constexpr int kUserTimeoutMs = 5000;
constexpr int kKeepIdleS = 2;
constexpr int kKeepIntervalS = 1;
constexpr int kKeepCount = 3;

void SetOption(int socket, int level, int name, int value) { ::setsockopt(socket, level, name, &value, sizeof(value)); }

}  // namespace

absl::StatusOr<std::pair<std::string, uint16_t>> ParseHostPort(const std::string& address) {
  const auto bad = [&] {
    return absl::InvalidArgumentError(fmt::format("{} is not HOST:PORT (IPv6: [ADDRESS]:PORT)", ForMessage(address)));
  };
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad();
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return bad();
  }
  uint16_t port = 0;
  const char* end = address.data() + address.size();
  const auto [rest, error] = std::from_chars(address.data() + colon + 1, end, port);
  if (error != std::errc() || rest != end || host.empty()) return bad();
  return std::pair(host, port);
}

absl::StatusOr<std::vector<SocketAddress>> ResolveAddress(const std::string& host_port) {
  ASSIGN_OR_RETURN(const auto parts, ParseHostPort(host_port));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(parts.first.c_str(), std::to_string(parts.second).c_str(), &hints, &found);
  if (error != 0) return absl::NotFoundError(fmt::format("host \"{}\": {}", parts.first, ::gai_strerror(error)));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress address{};
    address.bytes = static_cast<socklen_t>(std::min<size_t>(one->ai_addrlen, sizeof(address.storage)));
    std::memcpy(&address.storage, one->ai_addr, address.bytes);
    addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  return addresses;
}

absl::StatusOr<Fd> ListenTcp(const std::string& host_port) {
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, ResolveAddress(host_port));
  const SocketAddress& address = addresses.front();
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError(absl::StatusCode::kInternal, "socket");
  SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // Allows the port to be used again while connections of an earlier
                                                     // server still linger.
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0 ||
      ::listen(fd.get(), 512) != 0) {
    if (errno == EADDRINUSE) return absl::AlreadyExistsError(fmt::format("{} is already in use", host_port));
    return ErrnoError(absl::StatusCode::kInvalidArgument, fmt::format("cannot listen at {}", host_port));
  }
  return fd;
}

std::string BoundAddress(int listener, const std::string& host_port) {
  sockaddr_storage bound{};
  socklen_t bytes = sizeof(bound);
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) return host_port;
  const in_port_t port = bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                                     : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port;
  return fmt::format("{}:{}", host_port.substr(0, host_port.rfind(':')), ::ntohs(port));
}

absl::StatusOr<Fd> ConnectTcp(const SocketAddress& address) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError(absl::StatusCode::kUnavailable, "socket");
  SetTcpOptions(fd.get());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0 &&
      errno != EINPROGRESS) {
    return absl::UnavailableError(std::strerror(errno));
  }
  return fd;
}

void SetTcpOptions(int socket) {
  SetOption(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  SetOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleS);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalS);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepCount);
}

bool ReceiveSome(int socket, MutableBytes scratch, ByteQueue* to) {
  const ssize_t received = ::recv(socket, scratch.data(), scratch.size(), 0);
  if (received < 0) return errno == EAGAIN || errno == EINTR;
  to->Append(scratch.first(static_cast<size_t>(received)));
  return received > 0;
}

bool SendSome(int socket, ByteQueue* from) {
  while (!from->empty()) {
    const ssize_t sent = ::send(socket, from->data(), from->size(), MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    from->Consume(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace cell
