#include "cell/control/control_listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/strings/str_replace.h"
#include "cell/io/net/descriptors.h"
#include "cell/io/net/tcp_socket.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr int kPauseMs = 100;  // After the system had no descriptors left.
constexpr int kAcceptedAtOnceMax = 64;

bool IsUnix(int socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 && address.ss_family == AF_UNIX;
}

// Returns what PeerText makes of gRPC's name for this peer.
std::string TextOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& of = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &of.sin_addr, text, sizeof(text));
    return fmt::format("{}:{}", text, ::ntohs(of.sin_port));
  }
  const auto& of = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&of.sin6_addr)) {
    ::inet_ntop(AF_INET, of.sin6_addr.s6_addr + 12, text, sizeof(text));
    return fmt::format("{}:{}", text, ::ntohs(of.sin6_port));
  }
  ::inet_ntop(AF_INET6, &of.sin6_addr, text, sizeof(text));
  return fmt::format("[{}]:{}", text, ::ntohs(of.sin6_port));
}

std::string TextOfFd(int fd) { return fmt::format("fd:{}", fd); }

}  // namespace

absl::StatusOr<Fd> ListenControlSocket(const std::string& path, mode_t mode) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        fmt::format("the path of the control plane's socket, {}, is longer than {} bytes: "
                    "use a directory with a shorter name",
                    path, sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError(absl::StatusCode::kInternal, "socket");
  ::unlink(path.c_str());
  if (::fchmod(fd.get(), mode) != 0 ||  // Before binding, so that the file is never more open.
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return ErrnoError(absl::StatusCode::kInvalidArgument, fmt::format("the control plane cannot listen at {}", path));
  }
  return fd;
}

std::string PeerText(const std::string& grpc_peer) {
  for (const std::string_view scheme : {"ipv4:", "ipv6:"}) {
    if (!grpc_peer.starts_with(scheme)) continue;
    return absl::StrReplaceAll(grpc_peer.substr(scheme.size()), {{"%5B", "["}, {"%5D", "]"}});
  }
  return grpc_peer;
}

struct ControlListener::Use::Connection {
  Fd watched;
  std::optional<uid_t> uid;
  int calls = 0;  // Under way. Guarded by the listener's mutex_, as the rest.
  bool has_called = false;
  uint64_t used = 0;  // When a call began or ended, by clock_.
};

ControlListener::Use::Use(ControlListener* listener, std::shared_ptr<Connection> connection)
    : listener_(listener), connection_(std::move(connection)) {}

ControlListener::Use::~Use() {
  if (connection_ == nullptr) return;  // Moved from.
  const std::lock_guard lock(listener_->mutex_);
  --connection_->calls;
  connection_->used = ++listener_->clock_;
}

std::optional<uid_t> ControlListener::Use::uid() const { return connection_->uid; }

ControlListener::ControlListener(Fd socket, Options options)
    : socket_(std::move(socket)),
      is_unix_(IsUnix(socket_.get())),
      options_(std::move(options)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void ControlListener::Start(std::function<void(int fd)> hand_over) {
  hand_over_ = std::move(hand_over);
  thread_ = std::thread([this] { Run(); });
}

ControlListener::~ControlListener() { Stop(); }

void ControlListener::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

std::optional<ControlListener::Use> ControlListener::Begin(const std::string& grpc_peer) {
  const std::lock_guard lock(mutex_);
  const auto it = connections_.find(PeerText(grpc_peer));
  if (it == connections_.end()) return std::nullopt;
  ++it->second->calls;
  it->second->has_called = true;
  it->second->used = ++clock_;
  return Use(this, it->second);
}

size_t ControlListener::connections() const {
  const std::lock_guard lock(mutex_);
  return connections_.size();
}

void ControlListener::Run() {
  bool pause = false;
  for (;;) {
    std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}, {pause ? -1 : socket_.get(), POLLIN, 0}};
    std::vector<std::string> names;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [name, connection] : connections_) {
        polled.push_back({connection->watched.get(), POLLRDHUP, 0});
        names.push_back(name);
      }
    }
    const int ready = ::poll(polled.data(), polled.size(), pause ? kPauseMs : -1);
    pause = false;
    if (ready < 0) continue;  // EINTR
    if (polled[0].revents != 0) return;
    {
      const std::lock_guard lock(mutex_);
      for (size_t i = 0; i < names.size(); ++i) {
        if (polled[i + 2].revents == 0) continue;
        const auto it = connections_.find(names[i]);
        (void)::shutdown(it->second->watched.get(), SHUT_RDWR);  // If only the peer has ended it, gRPC is told.
        connections_.erase(it);
      }
    }
    if (polled[1].revents == 0) continue;
    for (int i = 0; i < kAcceptedAtOnceMax && !pause; ++i) {
      Fd accepted(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (accepted.valid()) {
        Add(std::move(accepted));
        continue;
      }
      if (errno == EAGAIN) break;
      pause = errno != EINTR && errno != ECONNABORTED;
    }
  }
}

bool ControlListener::EndOneWithoutCall() {
  const auto rank = [](const Connection& of) { return std::tie(of.has_called, of.used); };
  auto chosen = connections_.end();
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    if (it->second->calls > 0) continue;
    if (chosen == connections_.end() || rank(*it->second) < rank(*chosen->second)) chosen = it;
  }
  if (chosen == connections_.end()) return false;
  (void)::shutdown(chosen->second->watched.get(), SHUT_RDWR);
  connections_.erase(chosen);
  return true;
}

void ControlListener::Add(Fd accepted) {
  if (!LeavesEnough(accepted)) return;
  auto connection = std::make_shared<Connection>();
  std::string name;
  if (is_unix_) {
    ucred peer{};
    socklen_t bytes = sizeof(peer);
    if (::getsockopt(accepted.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return;
    if (!options_.admits(peer.uid)) return options_.kept_out(peer.uid);
    connection->uid = peer.uid;
    name = TextOfFd(accepted.get());
  } else {
    sockaddr_storage address{};
    socklen_t bytes = sizeof(address);
    if (::getpeername(accepted.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return;
    SetTcpOptions(accepted.get());
    name = TextOf(address);
  }
  connection->watched = Fd(::fcntl(accepted.get(), F_DUPFD_CLOEXEC, 0));
  if (!connection->watched.valid()) return;
  {
    const std::lock_guard lock(mutex_);
    connections_.erase(name);  // One that has ended, and whose name is used again.
    if (connections_.size() >= options_.connections_max && !EndOneWithoutCall()) return;
    connection->used = ++clock_;
    connections_[name] = std::move(connection);
  }
  hand_over_(accepted.Release());
}

}  // namespace cell
