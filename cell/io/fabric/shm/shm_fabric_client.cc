// Implements the client half of ShmFabric: connections, and reads and calls in flight.
#include <sys/epoll.h>

#include <algorithm>

#include "cell/base/status_macros.h"
#include "cell/io/fabric/shm/shm_connection.h"

namespace cell {
namespace {

// Limits the room of a reply ring that calls in flight may reserve. The rest is for the bytes that are unused where the
// ring wraps.
constexpr size_t kReplyReserveBytes = ShmFabric::kReplyRingBytes - 2 * kMessageBytesMax;

}  // namespace

ConnectionId ShmFabric::Connect(const std::string& address, int64_t deadline_ns, Completion* completion) {
  const ConnectionId id = connections_.Add(
      [&](ConnectionId made) { return std::make_unique<Connection>(made, address, deadline_ns, completion); });
  Connection* connection = connections_.Find(id);
  NoteDeadline(deadline_ns);
  ++connecting_;
  reply_bytes_.resize(kMessageBytesMax);
  const Hello hello = HelloOf(self());
  absl::StatusOr<Fd> socket = ConnectUnix(address);
  if (!socket.ok()) {
    const bool denied = absl::IsPermissionDenied(socket.status());
    Break(connection, std::string(socket.status().message()),
          denied ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable);
    return id;
  }
  connection->socket = PeerSocket(*std::move(socket), closer_);
  if (!Watch(connection->socket.get(), kConnectionTag | id)) {
    Break(connection, "this client cannot wait for more sockets");
    return id;
  }
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(&hello), sizeof(hello));
  if (!SendPacket(connection->socket.get(), bytes, {}).ok())
    Break(connection, "the server does not accept the handshake");
  return id;
}

// Completes the handshake with the server's welcome. Returns Unavailable if it has not come yet.
absl::Status ShmFabric::FinishHandshake(Connection* connection) {
  ASSIGN_OR_RETURN(Packet welcome, connection->socket.Receive(sizeof(WelcomePacket), PeerSocket::Takes::kMemory));
  if (welcome.bytes.size() < sizeof(WelcomePacket)) {
    return absl::DataLossError("the server refused the connection: see the server's log");
  }
  const auto header = Load<WelcomePacket>(welcome.bytes.data());
  if (header.magic != kMagic || header.version != kVersion) {
    return absl::FailedPreconditionError(
        fmt::format("the server has handshake version {}, this client {}", header.version, kVersion));
  }
  if (!welcome.memory.valid()) return absl::DataLossError("the server sent a malformed handshake");
  ASSIGN_OR_RETURN(connection->rings,
                   ShmMemory::Map(std::move(welcome.memory), kRingsBytes, ShmMemory::Sharing::kReadWrite));
  connection->requests = RingWriter(ControlAt(connection->rings, kRequestControl),
                                    connection->rings.base() + kRequestRing, kRequestRingBytes);
  connection->replies = RingReader(ControlAt(connection->rings, kReplyControl), connection->rings.base() + kReplyRing,
                                   kReplyRingBytes, kMessageBytesMax);
  return absl::OkStatus();
}

void ShmFabric::ReceiveFromServer(Connection* connection) {
  if (connection->connecting()) {
    const absl::Status status = FinishHandshake(connection);
    if (status.code() == absl::StatusCode::kUnavailable) return;  // Nothing has come yet.
    if (!status.ok()) return Break(connection, std::string(status.message()));
    --connecting_;
    connection->Establish(tell_later());
    return;
  }
  for (int left = kPacketsAtOnce; left > 0 && TakePacket(connection);) --left;
}

// Takes a packet. Returns whether there may be more.
bool ShmFabric::TakePacket(Connection* connection) {
  absl::StatusOr<Packet> packet = connection->socket.Receive(sizeof(RegionPacket), PeerSocket::Takes::kMemory);
  if (!packet.ok() && packet.status().code() == absl::StatusCode::kUnavailable) return false;
  if (!packet.ok()) {
    Break(connection, std::string(packet.status().message()));
  } else if (packet->bytes.empty()) {
    Break(connection, "the server is gone");
  } else if (packet->bytes.size() != kRingBytes) {
    MapRegion(connection, *std::move(packet));
  }
  return !connection->broken();
}

void ShmFabric::MapRegion(Connection* connection, Packet packet) {
  if (packet.bytes.size() != sizeof(RegionPacket)) return Break(connection, "the server sent a malformed packet");
  const auto answer = Load<RegionPacket>(packet.bytes.data());
  const auto region = static_cast<uint32_t>(answer.region);
  if (answer.magic != kMagic || answer.region > UINT32_MAX || !connection->regions.asked(region)) {
    return Break(connection, "the server sent a region that was not requested");
  }
  std::optional<Connection::Mapped> mapped;
  const bool denied = !packet.memory.valid() && answer.bytes == kMayNotRead;
  if (packet.memory.valid()) {
    absl::StatusOr<ShmMemory> shm =
        ShmMemory::Map(std::move(packet.memory), answer.bytes, ShmMemory::Sharing::kReadOnly);
    if (!shm.ok()) return Break(connection, std::string(shm.status().message()));
    mapped = {answer.bytes, *std::move(shm)};
  }
  using WaitingRead = Connection::Regions::WaitingRead;
  const auto refuse = [&](const WaitingRead& read) {
    TellLater(read.completion, denied ? connection->MayNotRead() : connection->NotHeld(region));
  };
  const auto start = [&](const WaitingRead& read) {
    // A read that was started before may have broken the connection, by asking for another region.
    if (connection->broken()) return TellLater(read.completion, connection->lost());
    StartRead(connection->id, read.parts, read.deadline_ns, read.completion);
  };
  (void)connection->regions.Answer(region, std::move(mapped), refuse, start);  // It was asked for.
}

void ShmFabric::AskForRegion(Connection* connection, uint32_t region) {
  const AskRegion ask{kMagic, region};
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(&ask), sizeof(ask));
  if (!SendPacket(connection->socket.get(), bytes, {}).ok()) Break(connection, "the server accepts no requests");
}

void ShmFabric::ForgetRegion(ConnectionId id, uint32_t region) {
  Connection* connection = Live(id);
  if (connection != nullptr) connection->regions.Forget(region);
}

// Returns null if the connection is gone, broken, or not connected yet.
ShmFabric::Connection* ShmFabric::Live(ConnectionId id) const {
  Connection* connection = connections_.Find(id);
  return connection != nullptr && connection->up() ? connection : nullptr;
}

absl::Status ShmFabric::Refusal(ConnectionId id) const { return ClientConnection::Refusal(connections_.Find(id)); }

void ShmFabric::Disconnect(ConnectionId id) {
  Connection* connection = connections_.Find(id);
  if (connection == nullptr) return;
  Break(connection, "disconnected");
  FinishReads();
  TellNow();
  connections_.Remove(id);
}

void ShmFabric::Break(Connection* connection, const std::string& why, absl::StatusCode connect_code) {
  if (connection->broken()) return;
  connection->backlog.clear();
  if (connection->connecting()) {
    --connecting_;
    failed_.push_back(connection->id);
  }
  // Reads that wait for no region are ended by FinishReads.
  connection->Break(
      why, connection->calls_sent, tell_later(), [&](const auto& tell_lost) { connection->regions.Fail(tell_lost); },
      connect_code);
  if (connection->socket.valid()) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->socket.get(), nullptr);
}

void ShmFabric::Read(ConnectionId id, absl::Span<const ReadPart> parts, int64_t deadline_ns, Completion* completion) {
  if (Live(id) == nullptr) return TellLater(completion, Refusal(id));
  StartRead(id, parts, deadline_ns, completion);
}

void ShmFabric::StartRead(ConnectionId id, absl::Span<const ReadPart> parts, int64_t deadline_ns,
                          Completion* completion) {
  Connection* connection = connections_.Find(id);
  using Readiness = Connection::Regions::Readiness;
  const auto [readiness, blocking] = connection->regions.Check(parts);
  if (readiness == Readiness::kOutside) return TellLater(completion, connection->Outside(*blocking));
  if (readiness == Readiness::kUnknown) {
    connection->regions.Wait(parts, deadline_ns, completion);
    NoteDeadline(deadline_ns);
    if (connection->regions.Ask(blocking->from.region())) AskForRegion(connection, blocking->from.region());
    return;
  }
  for (const ReadPart& part : parts) {
    Prefetch(connection->regions.Find(part.from.region())->shm.base() + part.from.offset(), part.bytes);
    parts_.push_back(part);
  }
  reads_.push_back({id, static_cast<uint32_t>(parts.size()), completion});
}

size_t ShmFabric::FinishReads() {
  if (reads_.empty()) return 0;
  finishing_.swap(reads_);  // Reads that completions request wait for the next Poll.
  finishing_parts_.swap(parts_);
  const ReadPart* part = finishing_parts_.data();
  for (const PendingRead& read : finishing_) {
    const Connection* connection = Live(read.connection);
    absl::Status status = connection != nullptr ? absl::OkStatus() : absl::UnavailableError("connection lost");
    for (uint32_t i = 0; i < read.parts; ++i, ++part) {
      if (!status.ok()) continue;
      const Connection::Mapped* region = connection->regions.Find(part->from.region());
      // The region may have been requested again meanwhile, and not be there.
      if (region == nullptr || !Connection::Regions::Holds(*region, *part)) {
        status = absl::OutOfRangeError(fmt::format("region {} no longer exists", part->from.region()));
        continue;
      }
      CopyFromShared(region->shm.base() + part->from.offset(), part->to, part->bytes);
    }
    read.completion->Done(status, {});
  }
  const size_t finished = finishing_.size();
  finishing_.clear();
  finishing_parts_.clear();
  return finished;
}

void ShmFabric::Call(ConnectionId id, ConstBytes head, ConstBytes body, size_t reply_bytes_max, int64_t deadline_ns,
                     Completion* completion) {
  CheckCall(head, body, reply_bytes_max);
  Connection* connection = Live(id);
  if (connection == nullptr) return TellLater(completion, Refusal(id));
  NoteDeadline(deadline_ns);
  const uint64_t call = connection->calls().Add(completion, deadline_ns, reply_bytes_max, ++connection->calls_made);
  if (connection->backlog.empty() && Send(connection, head, body, call)) return;
  connection->backlog.push_back({std::string(AsText(head)), std::string(AsText(body)), call});
}

// Puts a call into the ring. Returns false if there is no room for it, or none for its reply.
bool ShmFabric::Send(Connection* connection, ConstBytes head, ConstBytes body, uint64_t id) {
  const CallTable::Call& call = *connection->calls().Find(id);
  const size_t reserved = FrameBytes(call.reply_bytes_max);
  if (connection->reply_reserved + reserved > kReplyReserveBytes) return false;
  const size_t bytes = head.size() + body.size();
  std::byte* to = connection->requests.Begin(bytes);
  if (to == nullptr) return false;
  std::memcpy(to, head.data(), head.size());
  if (!body.empty()) std::memcpy(to + head.size(), body.data(), body.size());
  connection->requests.End(bytes, id, static_cast<uint32_t>(call.reply_bytes_max));
  connection->reply_reserved += reserved;
  connection->calls_sent = call.position;
  return true;
}

void ShmFabric::FlushCalls() {
  for (Connection* connection : connections_) {
    if (!connection->up()) continue;
    while (!connection->backlog.empty()) {
      const Connection::Queued& next = connection->backlog.front();
      Completion* expired = nullptr;
      if (connection->calls().Find(next.id)->completion == nullptr) {  // It expired before it was sent.
        (void)connection->calls().Take(next.id, 0, &expired);
      } else if (!Send(connection, AsBytes(next.head), AsBytes(next.body), next.id)) {
        break;
      }
      connection->backlog.pop_front();
    }
    if (connection->requests.unpublished() && connection->requests.Publish()) connection->socket.Ring();
  }
}

size_t ShmFabric::TakeReplies() {
  size_t taken = 0;
  for (Connection* connection : connections_) {
    if (!connection->up() || connection->calls().in_flight() == 0) continue;
    for (int budget = 256; budget > 0; --budget) {
      const std::optional<RingReader::Message> message = connection->replies.Next();
      if (!message.has_value()) break;
      const CallTable::Call* const call = connection->calls().Find(message->frame.id);
      const size_t reserved = call == nullptr ? 0 : FrameBytes(call->reply_bytes_max);
      Completion* completion = nullptr;
      if (call == nullptr || call->position > connection->calls_sent ||
          !connection->calls().Take(message->frame.id, message->frame.bytes, &completion)) {
        Break(connection, CallTable::kNotMade);
        break;
      }
      connection->reply_reserved -= reserved;
      std::memcpy(reply_bytes_.data(), message->bytes, message->frame.bytes);
      if (completion != nullptr) {
        ++taken;
        completion->Done(absl::OkStatus(), ConstBytes(reply_bytes_.data(), message->frame.bytes));
        // Send requests that were made meanwhile as soon as there is a batch of work for a server. If they were kept
        // until no reply is left, a faster server would wait for us, and then we for it.
        if (taken % kCallsMax == 0) {
          connection->replies.Release();  // Release before new requests reserve the room.
          FlushCalls();
        }
      }
    }
    if (connection->replies.damaged()) Break(connection, "its reply ring is corrupted");
    connection->replies.Release();
  }
  return taken;
}

void ShmFabric::Expire() {
  const int64_t now = NowNs();
  if (!TakeDeadline(now)) return;
  for (Connection* connection : connections_) {
    if (connection->broken()) continue;
    if (connection->connecting()) {
      if (connection->connect_deadline_ns() <= now) {
        Break(connection, "the server does not answer the handshake");
      } else {
        NoteDeadline(connection->connect_deadline_ns());
      }
      continue;
    }
    NoteDeadline(connection->regions.Expire(
        now, [&](Completion* completion) { TellLater(completion, connection->LateRead()); }));
    NoteDeadline(connection->ExpireCalls(now, tell_later()));
  }
}

}  // namespace cell
