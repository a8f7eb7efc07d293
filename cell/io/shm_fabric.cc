#include "cell/io/shm_fabric.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "cell/base/status_macros.h"
#include "cell/io/shm_memory.h"
#include "cell/io/shm_ring.h"
#include "cell/layout/wire.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr uint64_t kMagic = 0x31304d48534c4543;  // "CELSHM01"
// Spinning for as long as sleeping and being woken costs is never worse than twice the best (Karlin et al., SODA 1990);
// that was 50 us on a virtual machine.
constexpr int64_t kSpinNs = 50'000;
constexpr int64_t kSpinAloneNs = 3'000;
constexpr uint32_t kPollsBetweenSockets = 1024;
constexpr size_t kRegionsMax = kFdsMax - 3;
constexpr size_t kRequestArenaBytes = size_t{1} << 20;
// What of a reply ring may be reserved by calls in flight; the rest is for what is lost where the ring wraps.
constexpr size_t kReplyReserveBytes = ShmFabric::kReplyRingBytes - 2 * kMessageBytesMax;

struct Hello {
  uint64_t magic;
  uint32_t version;
  uint32_t reserved;
};

// Then region_count times WelcomeRegion. With it go the descriptors of the rings, the server's doorbell, the client's
// doorbell, and the regions in order.
struct WelcomePacket {
  uint64_t magic;
  uint32_t version;
  uint32_t region_count;
};
struct WelcomeRegion {
  uint64_t bytes;
  uint32_t region;
  uint32_t reserved;
};

constexpr uint64_t kListenerTag = 0;
constexpr uint64_t kDoorbellTag = 1;
constexpr uint64_t kPeerTag = uint64_t{1} << 32;
constexpr uint64_t kConnectionTag = uint64_t{2} << 32;
constexpr uint64_t kConnectionDoorbellTag = uint64_t{3} << 32;

constexpr size_t kRequestControl = 0;
constexpr size_t kReplyControl = sizeof(RingControl);
constexpr size_t kRequestRing = 4096;
constexpr size_t kReplyRing = kRequestRing + ShmFabric::kRequestRingBytes;
constexpr size_t kRingsBytes = kReplyRing + ShmFabric::kReplyRingBytes;

RingControl* ControlAt(const ShmMemory& rings, size_t offset) {
  return reinterpret_cast<RingControl*>(rings.base() + offset);
}

void Ring(int doorbell) {
  const uint64_t one = 1;
  (void)!::write(doorbell, &one, sizeof(one));  // Full: it is ringing already.
}

void Silence(int doorbell) {
  uint64_t count;
  (void)!::read(doorbell, &count, sizeof(count));
}

}  // namespace

struct ShmFabric::Region {
  uint32_t id;
  uint64_t bytes;
  ShmMemory shm;
  RegionMemory memory;
};

struct ShmFabric::Peer {
  Fd socket;
  bool welcome = false;  // The handshake is done.
  bool broken = false;
  ShmMemory rings;
  Fd doorbell;  // The client's.
  RingReader requests;
  RingWriter replies;
};

struct ShmFabric::Connection {
  struct Pending {
    Completion* completion = nullptr;  // Null: told already (expired), or free.
    int64_t deadline_ns = 0;
    size_t reserved = 0;  // Of the reply ring; 0: free.
    uint32_t generation = 0;
    bool sent = false;
  };
  struct Queued {
    std::string head;
    std::string body;
    uint64_t id;
  };

  std::string address;
  bool broken = false;
  std::string why_broken;
  Fd socket;
  Fd server_doorbell;
  Fd doorbell;
  ShmMemory rings;
  RingWriter requests;
  RingReader replies;
  struct Mapped {
    uint32_t id;
    uint64_t bytes;
    ShmMemory shm;
  };
  std::vector<Mapped> regions;  // Sorted by id.

  std::vector<Pending> pending;
  std::vector<uint32_t> free_pending;
  std::deque<Queued> backlog;
  size_t reply_reserved = 0;
  size_t in_flight = 0;

  const Mapped* Find(uint32_t region) const {
    for (const Mapped& mapped : regions) {
      if (mapped.id == region) return &mapped;
    }
    return nullptr;
  }
};

ShmFabric::ShmFabric(ShmFabricOptions options) : options_(options) {
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  CELL_CHECK(epoll_.valid());
}

ShmFabric::~ShmFabric() {
  for (auto& connection : connections_) {
    if (connection != nullptr) Break(connection.get(), "this client is closing");
  }
  FinishReads();
  TellFailed();
  if (listener_.valid()) ::unlink(address_.c_str());
}

int64_t ShmFabric::NowNs() const {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

void ShmFabric::Watch(int fd, uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = tag;
  CELL_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
}

// ---- Server.

absl::StatusOr<RegionMemory*> ShmFabric::CreateRegion(uint32_t region, uint64_t bytes) {
  if (regions_.size() == kRegionsMax) {
    return absl::ResourceExhaustedError(fmt::format("one endpoint holds at most {} regions", kRegionsMax));
  }
  ASSIGN_OR_RETURN(ShmMemory shm,
                   ShmMemory::Create("cell-region", bytes, ShmMemory::Sharing::kReadOnly, options_.huge_pages));
  auto owned = std::make_unique<Region>();
  owned->id = region;
  owned->bytes = bytes;
  owned->shm = std::move(shm);
  owned->memory = RegionMemory(owned->shm.base(), bytes);
  regions_.push_back(std::move(owned));
  std::sort(regions_.begin(), regions_.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
  for (const auto& one : regions_) {
    if (one->id == region) return &one->memory;
  }
  return absl::InternalError("unreachable");
}

bool ShmFabric::huge_pages() const {
  return std::all_of(regions_.begin(), regions_.end(), [](const auto& region) { return region->shm.huge(); });
}

absl::Status ShmFabric::Listen(const std::string& address, Service* service) {
  CELL_CHECK(service_ == nullptr);
  ASSIGN_OR_RETURN(Fd listener, ListenUnix(address));
  Fd doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell.valid()) return ErrnoError(absl::StatusCode::kInternal, "eventfd");
  listener_ = std::move(listener);
  doorbell_ = std::move(doorbell);
  address_ = address;
  service_ = service;
  request_bytes_.resize(kRequestArenaBytes);
  spare_reply_.resize(kMessageBytesMax);
  Watch(listener_.get(), kListenerTag);
  Watch(doorbell_.get(), kDoorbellTag);
  return absl::OkStatus();
}

size_t ShmFabric::peers() const {
  return static_cast<size_t>(
      std::count_if(peers_.begin(), peers_.end(), [](const auto& peer) { return peer != nullptr && peer->welcome; }));
}

void ShmFabric::AcceptPeers() {
  for (;;) {
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    auto slot = std::find(peers_.begin(), peers_.end(), nullptr);
    if (slot == peers_.end()) {
      if (peers_.size() >= options_.peers_max) {
        spdlog::warn("refused a connection: {} peers are connected already", peers_.size());
        continue;
      }
      slot = peers_.insert(peers_.end(), nullptr);
    }
    *slot = std::make_unique<Peer>();
    (*slot)->socket = std::move(socket);
    Watch((*slot)->socket.get(), kPeerTag | static_cast<uint64_t>(slot - peers_.begin()));
  }
}

void ShmFabric::Welcome(ConnectionId id) {
  Peer* peer = peers_[id].get();
  const absl::StatusOr<Packet> hello = ReceivePacket(peer->socket.get(), sizeof(Hello));
  if (!hello.ok() && hello.status().code() == absl::StatusCode::kUnavailable) return;
  if (!hello.ok() || hello->bytes.size() != sizeof(Hello) || Load<Hello>(hello->bytes.data()).magic != kMagic) {
    if (hello.ok() && hello->bytes.empty()) return DropPeer(id);
    spdlog::warn("refused a connection: not a Cell client");
    return DropPeer(id);
  }
  const uint32_t version = Load<Hello>(hello->bytes.data()).version;
  std::vector<std::byte> welcome(sizeof(WelcomePacket) + regions_.size() * sizeof(WelcomeRegion));
  Store(welcome.data(), WelcomePacket{kMagic, kVersion, static_cast<uint32_t>(regions_.size())});
  if (version != kVersion) {  // Tell it ours, so that it can say so.
    spdlog::warn("refused a client of handshake version {}; this server has {}", version, kVersion);
    (void)SendPacket(peer->socket.get(), ConstBytes(welcome.data(), sizeof(WelcomePacket)), {});
    return DropPeer(id);
  }
  absl::StatusOr<ShmMemory> rings =
      ShmMemory::Create("cell-rings", kRingsBytes, ShmMemory::Sharing::kReadWrite, /*huge_pages=*/false);
  peer->doorbell = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!rings.ok() || !peer->doorbell.valid()) {
    spdlog::warn("refused a connection: {}", rings.ok() ? "no descriptors left" : rings.status().ToString());
    return DropPeer(id);
  }
  peer->rings = *std::move(rings);
  peer->requests = RingReader(ControlAt(peer->rings, kRequestControl), peer->rings.base() + kRequestRing,
                              kRequestRingBytes, kMessageBytesMax);
  peer->replies = RingWriter(ControlAt(peer->rings, kReplyControl), peer->rings.base() + kReplyRing, kReplyRingBytes);
  std::vector<int> fds = {peer->rings.fd(), doorbell_.get(), peer->doorbell.get()};
  for (size_t i = 0; i < regions_.size(); ++i) {
    Store(welcome.data() + sizeof(WelcomePacket) + i * sizeof(WelcomeRegion),
          WelcomeRegion{regions_[i]->bytes, regions_[i]->id, 0});
    fds.push_back(regions_[i]->shm.fd());
  }
  if (!SendPacket(peer->socket.get(), welcome, fds).ok()) return DropPeer(id);
  peer->welcome = true;
}

void ShmFabric::DropPeer(ConnectionId id) {
  if (peers_[id]->welcome) service_->Disconnected(id);
  peers_[id].reset();  // Closing the socket takes it out of epoll.
}

size_t ShmFabric::ServeCalls() {
  if (service_ == nullptr) return 0;
  calls_.clear();
  size_t arena = 0;
  const size_t count = peers_.size();
  // Begins with another peer each time, so that none is starved by those before it.
  for (size_t i = 0; i < count && calls_.size() < kCallsMax; ++i) {
    const auto id = static_cast<ConnectionId>((first_peer_ + i) % count);
    Peer* peer = peers_[id].get();
    if (peer == nullptr || !peer->welcome || peer->broken) continue;
    while (calls_.size() < kCallsMax && arena + kMessageBytesMax <= request_bytes_.size()) {
      const std::optional<RingReader::Message> message = peer->requests.Next();
      if (!message.has_value()) break;
      if (message->frame.reply_bytes_max < kReplyBytesMin || message->frame.reply_bytes_max > kMessageBytesMax) {
        peer->broken = true;
        break;
      }
      std::memcpy(request_bytes_.data() + arena, message->bytes, message->frame.bytes);
      calls_.push_back({id, message->frame.id, ConstBytes(request_bytes_.data() + arena, message->frame.bytes),
                        message->frame.reply_bytes_max});
      arena += RoundUp(message->frame.bytes, kFrameAlign);
    }
    peer->broken |= peer->requests.damaged();
    peer->requests.Release();
  }
  if (count > 0) first_peer_ = (first_peer_ + 1) % count;
  if (!calls_.empty()) service_->Serve(calls_);
  for (const IncomingCall& call : calls_) {
    Peer* peer = peers_[call.peer].get();
    if (peer != nullptr && peer->replies.unpublished() && peer->replies.Publish()) Ring(peer->doorbell.get());
  }
  for (size_t i = 0; i < count; ++i) {
    if (peers_[i] == nullptr || !peers_[i]->broken) continue;
    spdlog::warn("closed a connection: its rings hold nonsense");
    DropPeer(static_cast<ConnectionId>(i));
  }
  return calls_.size();
}

MutableBytes ShmFabric::BeginReply(const IncomingCall& call) {
  Peer* peer = peers_[call.peer].get();
  std::byte* to = peer->broken ? nullptr : peer->replies.Begin(call.reply_bytes_max);
  if (to == nullptr) {  // A client keeps room for what it asks for; this one does not.
    peer->broken = true;
    to = spare_reply_.data();
  }
  return {to, call.reply_bytes_max};
}

void ShmFabric::EndReply(const IncomingCall& call, size_t bytes) {
  CELL_CHECK(bytes <= call.reply_bytes_max);
  Peer* peer = peers_[call.peer].get();
  if (!peer->broken) peer->replies.End(bytes, call.id, 0);
}

// ---- Client.

absl::StatusOr<ConnectionId> ShmFabric::Connect(const std::string& address, int64_t timeout_ns) {
  auto connection = std::make_unique<Connection>();
  connection->address = address;
  ASSIGN_OR_RETURN(connection->socket, ConnectUnix(address));
  const Hello hello{kMagic, kVersion, 0};
  RETURN_IF_ERROR(
      SendPacket(connection->socket.get(), ConstBytes(reinterpret_cast<const std::byte*>(&hello), sizeof(hello)), {}));
  pollfd readable{connection->socket.get(), POLLIN, 0};
  const int ready = ::poll(&readable, 1, static_cast<int>(std::clamp<int64_t>(timeout_ns / 1'000'000, 1, INT32_MAX)));
  if (ready == 0) return absl::UnavailableError(fmt::format("the server at {} does not answer the handshake", address));
  ASSIGN_OR_RETURN(Packet welcome, ReceivePacket(connection->socket.get(),
                                                 sizeof(WelcomePacket) + kRegionsMax * sizeof(WelcomeRegion)));
  if (welcome.bytes.size() < sizeof(WelcomePacket)) {
    return absl::UnavailableError(fmt::format("the server at {} refused the connection; see its log", address));
  }
  const auto header = Load<WelcomePacket>(welcome.bytes.data());
  if (header.magic != kMagic || header.version != kVersion) {
    return absl::FailedPreconditionError(
        fmt::format("the server at {} speaks handshake version {}, this client {}", address, header.version, kVersion));
  }
  if (header.region_count > kRegionsMax || welcome.fds.size() != 3 + header.region_count ||
      welcome.bytes.size() != sizeof(WelcomePacket) + header.region_count * sizeof(WelcomeRegion)) {
    return absl::DataLossError(fmt::format("the server at {} sent a malformed handshake", address));
  }
  ASSIGN_OR_RETURN(connection->rings,
                   ShmMemory::Map(std::move(welcome.fds[0]), kRingsBytes, ShmMemory::Sharing::kReadWrite));
  connection->server_doorbell = std::move(welcome.fds[1]);
  connection->doorbell = std::move(welcome.fds[2]);
  for (uint32_t i = 0; i < header.region_count; ++i) {
    const auto region = Load<WelcomeRegion>(welcome.bytes.data() + sizeof(WelcomePacket) + i * sizeof(WelcomeRegion));
    ASSIGN_OR_RETURN(ShmMemory shm,
                     ShmMemory::Map(std::move(welcome.fds[3 + i]), region.bytes, ShmMemory::Sharing::kReadOnly));
    connection->regions.push_back({region.region, region.bytes, std::move(shm)});
  }
  connection->requests = RingWriter(ControlAt(connection->rings, kRequestControl),
                                    connection->rings.base() + kRequestRing, kRequestRingBytes);
  connection->replies = RingReader(ControlAt(connection->rings, kReplyControl), connection->rings.base() + kReplyRing,
                                   kReplyRingBytes, kMessageBytesMax);
  reply_bytes_.resize(kMessageBytesMax);
  const auto id = static_cast<ConnectionId>(connections_.size());
  Watch(connection->socket.get(), kConnectionTag | id);
  Watch(connection->doorbell.get(), kConnectionDoorbellTag | id);
  connections_.push_back(std::move(connection));
  return id;
}

ShmFabric::Connection* ShmFabric::Live(ConnectionId id) const {
  if (id >= connections_.size() || connections_[id] == nullptr || connections_[id]->broken) return nullptr;
  return connections_[id].get();
}

void ShmFabric::Disconnect(ConnectionId id) {
  if (id >= connections_.size() || connections_[id] == nullptr) return;
  Break(connections_[id].get(), "disconnected");
  FinishReads();
  TellFailed();
  connections_[id].reset();
}

void ShmFabric::Break(Connection* connection, const std::string& why) {
  if (connection->broken) return;
  connection->broken = true;
  connection->why_broken = fmt::format("connection to {}: {}", connection->address, why);
  connection->backlog.clear();
  for (Connection::Pending& pending : connection->pending) {
    if (pending.completion == nullptr) continue;
    failed_.push_back(
        {std::exchange(pending.completion, nullptr),
         pending.sent ? absl::UnknownError(connection->why_broken) : absl::UnavailableError(connection->why_broken)});
  }
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->socket.get(), nullptr);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->doorbell.get(), nullptr);
}

std::vector<uint32_t> ShmFabric::regions(ConnectionId id) const {
  std::vector<uint32_t> ids;
  if (const Connection* connection = Live(id)) {
    for (const auto& region : connection->regions) ids.push_back(region.id);
  }
  return ids;
}

void ShmFabric::Read(ConnectionId id, absl::Span<const ReadPart> parts, Completion* completion) {
  const Connection* connection = Live(id);
  if (connection == nullptr) {
    const bool known = id < connections_.size() && connections_[id] != nullptr;
    failed_.push_back({completion, absl::UnavailableError(known ? connections_[id]->why_broken : "not connected")});
    return;
  }
  for (const ReadPart& part : parts) {
    const Connection::Mapped* region = connection->Find(part.from.region());
    const uint64_t offset = part.from.offset();
    if (region == nullptr || offset > region->bytes || part.bytes > region->bytes - offset ||
        (offset | part.bytes) % kWordBytes != 0) {
      failed_.push_back(
          {completion, absl::OutOfRangeError(fmt::format("read of {} bytes at {} is outside the regions of {}",
                                                         part.bytes, ToString(part.from), connection->address))});
      return;
    }
  }
  for (const ReadPart& part : parts) {
    Prefetch(connection->Find(part.from.region())->shm.base() + part.from.offset(), part.bytes);
    parts_.push_back(part);
  }
  reads_.push_back({id, static_cast<uint32_t>(parts.size()), completion});
}

size_t ShmFabric::FinishReads() {
  if (reads_.empty()) return 0;
  finishing_.swap(reads_);  // What completions ask for next waits for the next Poll.
  finishing_parts_.swap(parts_);
  const ReadPart* part = finishing_parts_.data();
  for (const PendingRead& read : finishing_) {
    const Connection* connection = Live(read.connection);
    for (uint32_t i = 0; i < read.parts; ++i, ++part) {
      if (connection == nullptr) continue;
      CopyFromShared(connection->Find(part->from.region())->shm.base() + part->from.offset(), part->to, part->bytes);
    }
    read.completion->Done(connection != nullptr ? absl::OkStatus() : absl::UnavailableError("connection lost"), {});
  }
  const size_t finished = finishing_.size();
  finishing_.clear();
  finishing_parts_.clear();
  return finished;
}

void ShmFabric::Call(ConnectionId id, ConstBytes head, ConstBytes body, size_t reply_bytes_max, int64_t deadline_ns,
                     Completion* completion) {
  CELL_CHECK(head.size() + body.size() <= kMessageBytesMax);
  CELL_CHECK(reply_bytes_max >= kReplyBytesMin && reply_bytes_max <= kMessageBytesMax);
  Connection* connection = Live(id);
  if (connection == nullptr) {
    const bool known = id < connections_.size() && connections_[id] != nullptr;
    failed_.push_back({completion, absl::UnavailableError(known ? connections_[id]->why_broken : "not connected")});
    return;
  }
  if (connection->free_pending.empty()) {
    connection->free_pending.push_back(static_cast<uint32_t>(connection->pending.size()));
    connection->pending.emplace_back();
  }
  const uint32_t index = connection->free_pending.back();
  connection->free_pending.pop_back();
  Connection::Pending& pending = connection->pending[index];
  pending.completion = completion;
  pending.deadline_ns = deadline_ns;
  pending.reserved = FrameBytes(reply_bytes_max);
  pending.sent = false;
  ++connection->in_flight;
  const uint64_t call = uint64_t{++pending.generation} << 32 | index;
  if (connection->backlog.empty() && connection->reply_reserved + pending.reserved <= kReplyReserveBytes) {
    Send(connection, head, body, call);
    if (pending.sent) return;
  }
  connection->backlog.push_back({std::string(AsText(head)), std::string(AsText(body)), call});
}

// Puts the call into the ring if there is room, and then marks it as sent.
void ShmFabric::Send(Connection* connection, ConstBytes head, ConstBytes body, uint64_t id) {
  Connection::Pending& pending = connection->pending[static_cast<uint32_t>(id)];
  const size_t bytes = head.size() + body.size();
  std::byte* to = connection->requests.Begin(bytes);
  if (to == nullptr) return;
  std::memcpy(to, head.data(), head.size());
  if (!body.empty()) std::memcpy(to + head.size(), body.data(), body.size());
  connection->requests.End(bytes, id, static_cast<uint32_t>(pending.reserved - sizeof(RingFrame)));
  connection->reply_reserved += pending.reserved;
  pending.sent = true;
}

void ShmFabric::FlushCalls() {
  for (const auto& connection : connections_) {
    if (connection == nullptr || connection->broken) continue;
    while (!connection->backlog.empty()) {
      const Connection::Queued& next = connection->backlog.front();
      Connection::Pending& pending = connection->pending[static_cast<uint32_t>(next.id)];
      if (pending.completion != nullptr) {
        if (connection->reply_reserved + pending.reserved > kReplyReserveBytes) break;
        Send(connection.get(), AsBytes(next.head), AsBytes(next.body), next.id);
        if (!pending.sent) break;
      } else {  // Expired before it was sent.
        connection->free_pending.push_back(static_cast<uint32_t>(next.id));
        --connection->in_flight;
      }
      connection->backlog.pop_front();
    }
    if (connection->requests.unpublished() && connection->requests.Publish()) Ring(connection->server_doorbell.get());
  }
}

size_t ShmFabric::TakeReplies() {
  size_t taken = 0;
  for (size_t i = 0; i < connections_.size(); ++i) {
    Connection* connection = connections_[i].get();
    if (connection == nullptr || connection->broken || connection->in_flight == 0) continue;
    for (int budget = 256; budget > 0; --budget) {
      const std::optional<RingReader::Message> message = connection->replies.Next();
      if (!message.has_value()) break;
      const auto index = static_cast<uint32_t>(message->frame.id);
      const auto generation = static_cast<uint32_t>(message->frame.id >> 32);
      if (index >= connection->pending.size() || connection->pending[index].generation != generation ||
          !connection->pending[index].sent || FrameBytes(message->frame.bytes) > connection->pending[index].reserved) {
        Break(connection, "the server answered a call that was not made");
        break;
      }
      Connection::Pending& pending = connection->pending[index];
      Completion* completion = std::exchange(pending.completion, nullptr);
      pending.sent = false;
      connection->reply_reserved -= pending.reserved;
      --connection->in_flight;
      connection->free_pending.push_back(index);
      std::memcpy(reply_bytes_.data(), message->bytes, message->frame.bytes);
      if (completion != nullptr) {
        ++taken;
        completion->Done(absl::OkStatus(), ConstBytes(reply_bytes_.data(), message->frame.bytes));
      }
    }
    if (connection->replies.damaged()) Break(connection, "its reply ring holds nonsense");
    connection->replies.Release();
  }
  return taken;
}

size_t ShmFabric::TellFailed() {
  size_t told = 0;
  while (!failed_.empty()) {
    std::vector<Failed> now;
    now.swap(failed_);
    for (const Failed& failed : now) failed.completion->Done(failed.status, {});
    told += now.size();
    if (told > 10'000) break;  // Callers that try again at once must not keep us here.
  }
  return told;
}

void ShmFabric::ExpireCalls() {
  const int64_t now = NowNs();
  for (const auto& connection : connections_) {
    if (connection == nullptr || connection->broken || connection->in_flight == 0) continue;
    for (Connection::Pending& pending : connection->pending) {
      if (pending.completion == nullptr || pending.deadline_ns > now) continue;
      failed_.push_back({std::exchange(pending.completion, nullptr),
                         absl::DeadlineExceededError(fmt::format("no answer from {} in time", connection->address))});
    }
  }
}

// ---- Both.

size_t ShmFabric::Poll() {
  if (++polls_ % kPollsBetweenSockets == 0) {
    PollSockets(0);
    ExpireCalls();
  }
  size_t done = ServeCalls();
  if (!connections_.empty() || !failed_.empty()) {
    done += FinishReads();
    done += TakeReplies();
    done += TellFailed();
    FlushCalls();
  }
  return done;
}

bool ShmFabric::HasWork() const {
  if (!reads_.empty() || !failed_.empty()) return true;
  for (const auto& peer : peers_) {
    if (peer != nullptr && peer->welcome && peer->requests.HasMore()) return true;
  }
  for (const auto& connection : connections_) {
    if (connection != nullptr && !connection->broken && connection->replies.HasMore()) return true;
  }
  return false;
}

void ShmFabric::Wait(int64_t until_ns) {
  FlushCalls();
  if (options_.polling == ShmFabricOptions::Polling::kBusy) {
    if (!HasWork() && NowNs() >= until_ns) ExpireCalls();
    return;
  }
  const int64_t start = NowNs();
  for (int64_t now = start; now - start < kSpinNs && now < until_ns; now = NowNs()) {
    for (int i = 0; i < 16; ++i) {
      if (HasWork()) return;
      __builtin_ia32_pause();
    }
    if (now - start > kSpinAloneNs) ::sched_yield();  // Whoever we wait for may need this core.
  }

  bool work = !reads_.empty() || !failed_.empty();
  for (const auto& peer : peers_) {
    if (peer != nullptr && peer->welcome) work |= peer->requests.Sleep();
  }
  for (const auto& connection : connections_) {
    if (connection != nullptr && !connection->broken) work |= connection->replies.Sleep();
  }
  const int64_t left_ns = until_ns - NowNs();
  if (!work && left_ns > 0) {
    PollSockets(static_cast<int>(std::min<int64_t>((left_ns + 999'999) / 1'000'000, 60'000)));
  }
  for (const auto& peer : peers_) {
    if (peer != nullptr && peer->welcome) peer->requests.Wake();
  }
  for (const auto& connection : connections_) {
    if (connection != nullptr && !connection->broken) connection->replies.Wake();
  }
  ExpireCalls();
}

void ShmFabric::PollSockets(int timeout_ms) {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = events[i].data.u64;
    const auto index = static_cast<ConnectionId>(tag);
    if (tag == kListenerTag) {
      AcceptPeers();
    } else if (tag == kDoorbellTag) {
      Silence(doorbell_.get());
    } else if ((tag & ~uint64_t{0xffffffff}) == kPeerTag) {
      if (peers_[index] == nullptr) continue;
      if (!peers_[index]->welcome) {
        Welcome(index);
      } else {  // A client sends nothing more by the socket: it has closed, or ended.
        DropPeer(index);
      }
    } else if (Connection* connection = Live(index); connection != nullptr) {
      if ((tag & ~uint64_t{0xffffffff}) == kConnectionDoorbellTag) {
        Silence(connection->doorbell.get());
      } else {
        Break(connection, "the server is gone");
      }
    }
  }
}

}  // namespace cell
