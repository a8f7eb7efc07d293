// Implements the client half of TcpFabric: connections, and reads and calls in flight.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cell/base/shared_words.h"
#include "cell/base/status_macros.h"
#include "cell/io/fabric/tcp/tcp_connection.h"

namespace cell {

ConnectionId TcpFabric::Connect(const std::string& address, int64_t deadline_ns, Completion* completion) {
  const ConnectionId id = connections_.Add([&](ConnectionId made) {
    return std::make_unique<Connection>(made, address, deadline_ns, completion, *options_.credentials->Current(NowNs()),
                                        self());
  });
  Connection* connection = connections_.Find(id);
  NoteDeadline(deadline_ns);
  absl::StatusOr<std::vector<SocketAddress>> addresses = ResolveAddress(address);
  if (!addresses.ok()) {
    Break(connection, std::string(addresses.status().message()));
    return id;
  }
  std::reverse(addresses->begin(), addresses->end());
  for (Channel* channel : {&connection->calls_channel, &connection->reads_channel}) {
    channel->addresses = *addresses;
    if (const absl::Status status = BeginConnecting(connection, channel); !status.ok()) {
      Break(connection, std::string(status.message()));
      break;
    }
  }
  return id;
}

// Begins to connect to the next address. Returns Unavailable if there is none left.
absl::Status TcpFabric::BeginConnecting(Connection* connection, Channel* channel) {
  while (!channel->addresses.empty()) {
    absl::StatusOr<Fd> socket = ConnectTcp(channel->addresses.back());
    channel->addresses.pop_back();
    if (!socket.ok()) {
      channel->why = std::string(socket.status().message());
      continue;
    }
    channel->stream = ByteStream(*std::move(socket));
    channel->watched = EPOLLOUT;
    if (Watch(EPOLL_CTL_ADD, channel->stream.fd(), EPOLLOUT, channel->tag)) return absl::OkStatus();
  }
  return absl::UnavailableError(fmt::format("no server answers at {}: {}", connection->address(), channel->why));
}

// Returns null if the connection is gone, broken, or not connected yet.
TcpFabric::Connection* TcpFabric::Live(ConnectionId id) const {
  Connection* connection = connections_.Find(id);
  return connection != nullptr && connection->up() ? connection : nullptr;
}

absl::Status TcpFabric::Refusal(ConnectionId id) const { return ClientConnection::Refusal(connections_.Find(id)); }

void TcpFabric::Disconnect(ConnectionId id) {
  Connection* connection = connections_.Find(id);
  if (connection == nullptr) return;
  Break(connection, "disconnected");
  TellNow();
  connections_.Remove(id);
}

void TcpFabric::Break(Connection* connection, const std::string& why) {
  if (connection->broken()) return;
  if (connection->connecting()) failed_.push_back(connection->id);
  const Channel& channel = connection->calls_channel;
  connection->Break(why, channel.appended - channel.out.size(), tell_later(), [&](const auto& tell_lost) {
    for (const Connection::ReadInFlight& read : connection->reads) {
      if (read.completion != nullptr) tell_lost(read.completion);
    }
  });
  connection->reads.clear();
  connection->parts.clear();
  connection->calls_channel.stream = ByteStream();  // Closing it removes it from epoll.
  connection->reads_channel.stream = ByteStream();
}

void TcpFabric::ChannelEvent(ConnectionId id, bool reads, uint32_t events) {
  Connection* connection = connections_.Find(id);
  Channel* channel = reads ? &connection->reads_channel : &connection->calls_channel;
  if (!channel->connected && !FinishConnecting(connection, channel)) return;
  if (!channel->secure && !Secure(connection, channel)) return;
  if ((events & ~uint32_t{EPOLLOUT}) != 0) {
    if (!channel->stream.Receive(absl::MakeSpan(scratch_), &channel->in)) {
      if (!connection->connecting()) return Break(connection, "the server is gone");
      const std::string& why = channel->stream.why();
      return Break(connection, fmt::format("the server closed the connection during the handshake{}{}",
                                           why.empty() ? "" : ": ", why));
    }
    if (!channel->handshake.done()) Greet(connection, channel);
  }
  if (!connection->broken()) SendChannel(connection, channel);
}

// Handles the end of a connect. If it failed, the next address is tried.
bool TcpFabric::FinishConnecting(Connection* connection, Channel* channel) {
  int error = 0;
  socklen_t bytes = sizeof(error);
  ::getsockopt(channel->stream.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  if (error != 0) {
    channel->why = std::strerror(error);
    if (const absl::Status next = BeginConnecting(connection, channel); !next.ok()) {
      Break(connection, std::string(next.message()));
    }
    return false;
  }
  channel->connected = true;
  channel->Append(AsBytes(channel->handshake.Hello()));
  if (channel->tls != nullptr)
    channel->stream.StartTls(channel->tls->Connect(channel->tls, channel->stream.fd(), self()));
  return true;
}

// Goes on with the TLS handshake. Returns whether it is done.
bool TcpFabric::Secure(Connection* connection, Channel* channel) {
  const absl::StatusOr<bool> done = channel->stream.tls()->Handshake();
  if (!done.ok()) {
    Break(connection, std::string(done.status().message()));
    return false;
  }
  channel->secure = *done;
  if (!*done) WatchChannel(channel, channel->stream.tls()->wants_write() ? EPOLLOUT : EPOLLIN);
  return *done;
}

void TcpFabric::Greet(Connection* connection, Channel* channel) {
  while (channel->handshake.wants() > 0 && channel->in.size() >= channel->handshake.wants()) {
    const size_t bytes = channel->handshake.wants();
    std::string answer;
    const absl::Status status = channel->handshake.Take({channel->in.data(), bytes}, &answer);
    channel->in.Consume(bytes);
    if (!status.ok()) return Break(connection, std::string(status.message()));
    channel->Append(AsBytes(answer));
  }
  if (!connection->calls_channel.handshake.done() || !connection->reads_channel.handshake.done()) return;
  connection->Establish(tell_later());
}

void TcpFabric::Read(ConnectionId id, absl::Span<const ReadPart> parts, int64_t deadline_ns, Completion* completion) {
  Connection* connection = Live(id);
  if (connection == nullptr) return TellLater(completion, Refusal(id));
  for (const ReadPart& part : parts) {
    if ((part.from.offset() | part.bytes) % kWordBytes == 0) continue;
    TellLater(completion, absl::OutOfRangeError(fmt::format("a read of {} bytes at {} does not consist of whole words",
                                                            part.bytes, ToString(part.from))));
    return;
  }
  if (parts.empty()) return TellLater(completion, absl::OkStatus());
  if (connection->reads.empty()) connection->progress_ns = NowNs();
  for (const ReadPart& part : parts) {
    const ReadRequest request{connection->next_read++, part.from.raw(), part.bytes, 0};
    connection->reads_channel.Append({reinterpret_cast<const std::byte*>(&request), sizeof(request)});
    connection->parts.push_back({part.to, part.bytes});
  }
  connection->reads.push_back({completion, deadline_ns, parts.size(), kReadOk});
  NoteDeadline(deadline_ns);
}

void TcpFabric::Call(ConnectionId id, ConstBytes head, ConstBytes body, size_t reply_bytes_max, int64_t deadline_ns,
                     Completion* completion) {
  CheckCall(head, body, reply_bytes_max);
  Connection* connection = Live(id);
  if (connection == nullptr) return TellLater(completion, Refusal(id));
  Channel* channel = &connection->calls_channel;
  const size_t bytes = head.size() + body.size();
  const uint64_t end = channel->appended + sizeof(CallFrame) + bytes;
  NoteDeadline(deadline_ns);
  const uint64_t call = connection->calls().Add(completion, deadline_ns, reply_bytes_max, end);
  const CallFrame frame{static_cast<uint32_t>(bytes), static_cast<uint32_t>(reply_bytes_max), call};
  channel->Append({reinterpret_cast<const std::byte*>(&frame), sizeof(frame)});
  channel->Append(head);
  channel->Append(body);
}

size_t TcpFabric::TakeReplies(Connection* connection) {
  if (connection->connecting()) return 0;
  ByteQueue* in = &connection->calls_channel.in;
  size_t taken = 0;
  CallFrame frame;
  FrameState state;
  while ((state = NextFrame(*in, &frame)) == FrameState::kWhole) {
    Completion* completion = nullptr;
    if (!connection->calls().Take(frame.id, frame.bytes, &completion)) {
      Break(connection, CallTable::kNotMade);
      return taken;
    }
    const ConstBytes reply(in->data() + sizeof(frame), frame.bytes);
    in->Consume(sizeof(frame) + frame.bytes);  // The bytes stay valid: nothing is received until the next Poll.
    if (completion == nullptr) continue;
    ++taken;
    completion->Done(absl::OkStatus(), reply);
  }
  if (state == FrameState::kNonsense) Break(connection, "the server's replies are malformed");
  in->Shrink(kIdleQueueBytesMax);
  return taken;
}

// Takes answers to reads, which come in the order of the requests, and copies their bytes to their destinations.
size_t TcpFabric::TakeReads(Connection* connection) {
  if (connection->connecting()) return 0;
  ByteQueue* in = &connection->reads_channel.in;
  size_t taken = 0;
  while (!connection->broken()) {
    if (connection->answer_left > 0) {
      Connection::PartInFlight& part = connection->parts.front();
      const size_t bytes = std::min<size_t>(connection->answer_left, in->size());
      if (bytes == 0) break;
      if (part.to != nullptr) std::memcpy(part.to + part.bytes - connection->answer_left, in->data(), bytes);
      in->Consume(bytes);
      connection->answer_left -= static_cast<uint32_t>(bytes);
      if (connection->answer_left > 0) break;
    } else {
      if (in->size() < sizeof(ReadAnswer)) break;
      const auto answer = Load<ReadAnswer>(in->data());
      in->Consume(sizeof(answer));
      const bool refused = answer.code == kReadOutside || answer.code == kReadDenied;
      if (connection->parts.empty() || answer.id != connection->expected || (!refused && answer.code != kReadOk) ||
          answer.bytes != (refused ? 0 : connection->parts.front().bytes)) {
        Break(connection, "the server answered a read that was not requested");
        break;
      }
      ++connection->expected;
      if (refused) connection->reads.front().refused = answer.code;
      connection->answer_left = answer.bytes;
      if (answer.bytes > 0) continue;
    }
    connection->parts.pop_front();
    connection->progress_ns = NowNs();
    Connection::ReadInFlight& read = connection->reads.front();
    if (--read.parts_left > 0) continue;
    const Connection::ReadInFlight ended = read;
    connection->reads.pop_front();
    if (ended.completion == nullptr) continue;
    ++taken;
    absl::Status status;
    if (ended.refused == kReadDenied) status = connection->MayNotRead();
    if (ended.refused == kReadOutside) {
      status = absl::OutOfRangeError(fmt::format("a read is outside the regions of {}", connection->address()));
    }
    ended.completion->Done(status, {});
  }
  return taken;
}

void TcpFabric::SendChannel(Connection* connection, Channel* channel) {
  if (!channel->stream.Send(&channel->out)) return Break(connection, "the server is gone");
  channel->out.Shrink(kIdleQueueBytesMax);
  WatchChannel(channel, uint32_t{EPOLLIN} | (channel->out.empty() ? 0u : uint32_t{EPOLLOUT}));
}

void TcpFabric::WatchChannel(Channel* channel, uint32_t events) {
  if (events == channel->watched) return;
  channel->watched = events;
  (void)Watch(EPOLL_CTL_MOD, channel->stream.fd(), events, channel->tag);
}

void TcpFabric::Expire() {
  const int64_t now = NowNs();
  const bool due = TakeDeadline(now);
  for (Connection* connection : connections_) {
    if (connection->broken()) continue;
    if (connection->connecting()) {
      if (connection->connect_deadline_ns() <= now) {
        Break(connection, "the server does not answer in time");
      } else {
        NoteDeadline(connection->connect_deadline_ns());
      }
      continue;
    }
    if (!connection->reads.empty() && now - connection->progress_ns > options_.read_timeout_ns) {
      Break(connection, "the server does not answer reads");
      continue;
    }
    if (!due) continue;
    ExpireReads(connection, now);
    NoteDeadline(connection->ExpireCalls(now, tell_later()));
  }
}

// Ends reads that are past their deadline. Their answers still come, or the connection breaks.
void TcpFabric::ExpireReads(Connection* connection, int64_t now_ns) {
  auto part = connection->parts.begin();
  for (Connection::ReadInFlight& read : connection->reads) {
    const auto end = part + static_cast<ptrdiff_t>(read.parts_left);
    if (read.completion != nullptr && read.deadline_ns <= now_ns) {
      for (auto it = part; it != end; ++it) it->to = nullptr;
      TellLater(std::exchange(read.completion, nullptr), connection->LateRead());
    } else if (read.completion != nullptr) {
      NoteDeadline(read.deadline_ns);
    }
    part = end;
  }
}

}  // namespace cell
