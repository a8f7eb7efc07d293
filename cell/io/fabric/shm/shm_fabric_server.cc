// Implements the server half of ShmFabric: regions, accepted connections, served calls.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/io/fabric/shm/shm_connection.h"
#include "cell/io/net/descriptors.h"
#include "cell/io/net/unix_peer.h"

namespace cell {
namespace {

constexpr size_t kRequestArenaBytes = size_t{1} << 20;
constexpr int64_t kListenerRestNs = 100'000'000;

}  // namespace

absl::Status ShmFabric::Listen(const std::string& address, Service* service) {
  CELL_CHECK_EQ(service_, nullptr);
  ASSIGN_OR_RETURN(Fd listener, ListenUnix(address, 0600));
  // The mode is set once the file has its group, and whatever the umask is.
  if (options_.group.has_value() &&
      (::chown(address.c_str(), static_cast<uid_t>(-1), *options_.group) != 0 || ::chmod(address.c_str(), 0660) != 0)) {
    return ErrnoError(absl::StatusCode::kInvalidArgument,
                      fmt::format("cannot give {} to group {}", address, *options_.group));
  }
  if (!Watch(listener.get(), kListenerTag)) return ErrnoError(absl::StatusCode::kInternal, "epoll");
  listener_ = std::move(listener);
  address_ = address;
  service_ = service;
  request_bytes_.resize(kRequestArenaBytes);
  spare_reply_.resize(kMessageBytesMax);
  return absl::OkStatus();
}

size_t ShmFabric::peers() const {
  return static_cast<size_t>(
      std::count_if(peers_.begin(), peers_.end(), [](const auto& peer) { return peer != nullptr && peer->welcome; }));
}

void ShmFabric::AcceptPeers() {
  for (int left = kAcceptsAtOnce; left > 0; --left) {
    if (!AcceptPeer()) return;
    RestListener(options_.accept_rest_ns);
  }
}

// Returns false if no connection waits, or none can be accepted.
bool ShmFabric::AcceptPeer() {
  Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return false;
    const int error = errno;
    if (IsOutOfDescriptors(error) && DropOldestSilent()) return true;
    warnings_.Warn(NowNs(), "cannot accept connections at the moment: {}", std::strerror(error));
    RestListener(kListenerRestNs);
    return false;
  }
  if (greeting_ >= GreetingMax()) DropOldestSilent();
  while (!LeavesEnough(fd) && DropOldestSilent()) LowestNumber(&fd);
  const bool enough = LeavesEnough(fd);
  PeerSocket socket(std::move(fd), closer_);
  if (!enough) {
    warnings_.Warn(
        NowNs(),
        "refusing connections: the remaining file descriptors of {} are reserved for regions and logs (ulimit -n)",
        DescriptorLimit());
    return true;
  }
  auto slot = std::find(peers_.begin(), peers_.end(), nullptr);
  if (slot == peers_.end() && peers_.size() < options_.peers_max) slot = peers_.insert(peers_.end(), nullptr);
  if (slot == peers_.end() && DropOldestSilent()) slot = std::find(peers_.begin(), peers_.end(), nullptr);
  if (slot == peers_.end()) {
    warnings_.Warn(NowNs(), "refused a connection: {} peers are already connected", peers_.size());
    return true;
  }
  *slot = std::make_unique<Peer>();
  (*slot)->socket = std::move(socket);
  (*slot)->accepted_ns = NowNs();
  ++greeting_;
  const auto id = static_cast<ConnectionId>(slot - peers_.begin());
  if (!Watch((*slot)->socket.get(), kPeerTag | id)) {
    DropPeer(id);
  } else {
    Welcome(id);  // A peer that has greeted already must not count as silent, however many connections come after it.
  }
  return true;
}

// Accepts nothing for a while. New connections stay in the listener's queue, which would wake us again at once if it
// were still watched.
void ShmFabric::RestListener(int64_t for_ns) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
  listen_again_ns_ = NowNs() + for_ns;
}

void ShmFabric::DropSilentPeers() {
  if (greeting_ == 0 && listen_again_ns_ == 0) return;
  const int64_t now = NowNs();
  for (size_t i = 0; i < peers_.size() && greeting_ > 0; ++i) {
    const Peer* peer = peers_[i].get();
    if (peer == nullptr || peer->welcome || now - peer->accepted_ns < options_.handshake_ns) continue;
    warnings_.Warn(now, "closed a connection: the peer sent no handshake in time");
    DropPeer(static_cast<ConnectionId>(i));
  }
  if (listen_again_ns_ != 0 && now >= listen_again_ns_) {
    listen_again_ns_ = Watch(listener_.get(), kListenerTag) ? 0 : now + kListenerRestNs;
  }
}

// Disconnects the oldest peer that has not greeted, so that silent peers keep nobody out. Returns false if there is
// none.
bool ShmFabric::DropOldestSilent() {
  if (greeting_ == 0) return false;
  size_t oldest = peers_.size();
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i] == nullptr || peers_[i]->welcome) continue;
    if (oldest == peers_.size() || peers_[i]->accepted_ns < peers_[oldest]->accepted_ns) oldest = i;
  }
  warnings_.Warn(NowNs(), "closed a connection that had sent no handshake, to make room for others");
  DropPeer(static_cast<ConnectionId>(oldest));
  return true;
}

// Takes a peer's packets: a greeting, requests for regions, rings, or the end of the socket.
void ShmFabric::TakePackets(ConnectionId id) {
  for (int left = kPacketsAtOnce; left > 0 && peers_[id] != nullptr; --left) {
    if (!peers_[id]->welcome) return Welcome(id);
    const absl::StatusOr<Packet> packet = peers_[id]->socket.Receive(sizeof(AskRegion), PeerSocket::Takes::kBytes);
    if (!packet.ok() && packet.status().code() == absl::StatusCode::kUnavailable) return;
    if (packet.ok() && packet->bytes.size() == kRingBytes) continue;
    if (!packet.ok() || packet->bytes.size() != sizeof(AskRegion) ||
        !HandOverRegion(id, Load<AskRegion>(packet->bytes.data()))) {
      return DropPeer(id);
    }
  }
}

void ShmFabric::Welcome(ConnectionId id) {
  Peer* peer = peers_[id].get();
  const absl::StatusOr<Packet> hello = peer->socket.Receive(sizeof(Hello), PeerSocket::Takes::kBytes);
  if (!hello.ok() && hello.status().code() == absl::StatusCode::kUnavailable) return;
  Hello greeting{};
  const size_t bytes = hello.ok() ? hello->bytes.size() : 0;
  if (bytes > 0) std::memcpy(&greeting, hello->bytes.data(), bytes);
  if (bytes < kHelloBytesMin || greeting.magic != kMagic) {
    if (!hello.ok() || bytes > 0) warnings_.Warn(NowNs(), "refused a connection: not a Cell client");
    return DropPeer(id);
  }
  const uint32_t version = greeting.version;
  const WelcomePacket packet{kMagic, kVersion, 0};
  const ConstBytes welcome(reinterpret_cast<const std::byte*>(&packet), sizeof(packet));
  if (version != kVersion) {  // Send our version, so that the client can report it.
    warnings_.Warn(NowNs(), "refused a client with handshake version {}; this server has {}", version, kVersion);
    (void)SendPacket(peer->socket.get(), welcome, {});
    return DropPeer(id);
  }
  const std::optional<Identity> claimed = ClaimOf(greeting);
  if (bytes != sizeof(Hello) || !claimed.has_value()) {
    warnings_.Warn(NowNs(), "refused a connection: the client does not say who it is");
    return DropPeer(id);
  }
  const absl::StatusOr<UnixPeer> user = PeerOf(peer->socket.get());
  const std::optional<Identity> admitted =
      user.ok() ? Admit(*user, {::geteuid(), options_.group}, *claimed) : std::nullopt;
  if (!admitted.has_value()) {
    warnings_.Warn(NowNs(), "refused a connection of {}",
                   user.ok() ? fmt::format("user {}", user->uid) : "a user that the system does not tell");
    return DropPeer(id);
  }
  peer->identity = *admitted;
  peer->counted = users_.Add(peer->identity);
  if (!peer->counted) {
    warnings_.Warn(NowNs(), "refused a connection: {} has {} already, and others need some, too",
                   ToString(peer->identity), users_.max());
    return DropPeer(id);
  }
  absl::StatusOr<ShmMemory> rings =
      ShmMemory::Create("cell-rings", kRingsBytes, ShmMemory::Sharing::kReadWrite, /*huge_pages=*/false);
  if (!rings.ok()) {
    warnings_.Warn(NowNs(), "refused a connection: {}", std::string(rings.status().message()));
    return DropPeer(id);
  }
  peer->rings = *std::move(rings);
  peer->requests = RingReader(ControlAt(peer->rings, kRequestControl), peer->rings.base() + kRequestRing,
                              kRequestRingBytes, kMessageBytesMax);
  peer->replies = RingWriter(ControlAt(peer->rings, kReplyControl), peer->rings.base() + kReplyRing, kReplyRingBytes);
  if (!SendPacket(peer->socket.get(), welcome, {peer->rings.fd()}).ok()) return DropPeer(id);
  peer->welcome = true;
  --greeting_;
}

// Returns false if the peer's request is not valid, or if it does not take the answer.
bool ShmFabric::HandOverRegion(ConnectionId id, const AskRegion& ask) {
  if (ask.magic != kMagic) return false;
  RegionPacket answer{kMagic, ask.region, 0};
  std::vector<int> fds;
  if (!pool()->MayRead(peers_[id]->identity)) {
    answer.bytes = kMayNotRead;
  } else if (const auto region = pool()->Find(static_cast<uint32_t>(ask.region));
             region.has_value() && ask.region <= UINT32_MAX) {
    answer.bytes = region->bytes;
    fds.push_back(region->shm->fd());
    peers_[id]->has_region = true;
  }
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(&answer), sizeof(answer));
  if (SendPacket(peers_[id]->socket.get(), bytes, fds).ok()) return true;
  warnings_.Warn(NowNs(), "closed a connection: the client requests regions but does not receive them");
  return false;
}

void ShmFabric::SetReaders(Readers readers) {
  PollingFabric::SetReaders(std::move(readers));
  for (size_t i = 0; i < peers_.size(); ++i) {
    const Peer* const peer = peers_[i].get();
    if (peer != nullptr && peer->welcome && peer->has_region && !pool()->MayRead(peer->identity)) {
      DropPeer(static_cast<ConnectionId>(i));
    }
  }
}

void ShmFabric::DropPeer(ConnectionId id) {
  if (peers_[id]->welcome) {
    service_->Disconnected(id);
  } else {
    --greeting_;
  }
  if (peers_[id]->counted) users_.Remove(peers_[id]->identity);
  peers_[id].reset();  // Closing the socket removes it from epoll.
}

size_t ShmFabric::ServeCalls() {
  if (service_ == nullptr) return 0;
  calls_.clear();
  size_t arena = 0;
  const size_t count = peers_.size();
  // Begin with another peer each time, so that none starves behind those before it.
  for (size_t i = 0; i < count && calls_.size() < kCallsMax; ++i) {
    const auto id = static_cast<ConnectionId>((first_peer_ + i) % count);
    Peer* peer = peers_[id].get();
    if (peer == nullptr || !peer->welcome || peer->broken) continue;
    while (calls_.size() < kCallsMax && arena + kMessageBytesMax <= request_bytes_.size()) {
      const std::optional<RingReader::Message> message = peer->requests.Next();
      if (!message.has_value()) break;
      if (!IsReplyRoom(message->frame.reply_bytes_max)) {
        peer->broken = true;
        break;
      }
      std::memcpy(request_bytes_.data() + arena, message->bytes, message->frame.bytes);
      calls_.push_back({id, &peer->identity, message->frame.id,
                        ConstBytes(request_bytes_.data() + arena, message->frame.bytes),
                        message->frame.reply_bytes_max});
      arena += RoundUp(message->frame.bytes, kFrameAlign);
    }
    peer->broken |= peer->requests.damaged();
    peer->requests.Release();
  }
  if (count > 0) first_peer_ = (first_peer_ + 1) % count;
  serving_ = true;
  if (!calls_.empty()) service_->Serve(calls_);
  serving_ = false;
  for (const IncomingCall& call : calls_) {
    Peer* peer = peers_[call.peer].get();
    if (peer != nullptr && peer->replies.unpublished() && peer->replies.Publish()) peer->socket.Ring();
  }
  for (size_t i = 0; i < count; ++i) {
    if (peers_[i] == nullptr || !peers_[i]->broken) continue;
    warnings_.Warn(NowNs(), "closed a connection: its rings are corrupted");
    DropPeer(static_cast<ConnectionId>(i));
  }
  return calls_.size();
}

MutableBytes ShmFabric::BeginReply(const IncomingCall& call) {
  Peer* peer = peers_[call.peer].get();
  std::byte* to = peer->broken ? nullptr : peer->replies.Begin(call.reply_bytes_max);
  if (to == nullptr) {  // Clients keep room for what they request; this one does not.
    peer->broken = true;
    to = spare_reply_.data();
  }
  return {to, call.reply_bytes_max};
}

void ShmFabric::EndReply(const IncomingCall& call, size_t bytes) {
  CELL_CHECK_LE(bytes, call.reply_bytes_max);
  Peer* peer = peers_[call.peer].get();
  if (peer->broken) return;
  peer->replies.End(bytes, call.id, 0);
  if (!serving_ && peer->replies.Publish()) peer->socket.Ring();  // Otherwise ServeCalls does it, once for all.
}

}  // namespace cell
