// ShmFabric's client half: connections made, reads and calls in flight.
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>

#include "cell/base/status_macros.h"
#include "cell/io/shm_connection.h"

namespace cell {
namespace {

// What of a reply ring may be reserved by calls in flight; the rest is for what is lost where the ring wraps.
constexpr size_t kReplyReserveBytes = ShmFabric::kReplyRingBytes - 2 * kMessageBytesMax;

}  // namespace

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

}  // namespace cell
