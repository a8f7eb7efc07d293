#include "cell/io/sim/sim_fabric.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "cell/base/check.h"
#include "cell/layout/wire.h"
#include "fmt/format.h"

namespace cell {

SimFabric::SimFabric(SimNetwork* network, SimHost* host)
    : network_(network), host_(host), alive_(std::make_shared<bool>(true)) {
  host_->endpoints_.push_back(this);
}

// ---- Server.

void SimFabric::Crash() {
  if (crashed_) return;
  crashed_ = true;
  *alive_ = false;
  ready_.clear();
  queued_.clear();
  if (!address_.empty()) network_->listening_.erase(std::exchange(address_, {}));
  LosePeers();
  for (size_t i = 0; i < connections_.size(); ++i) {
    Connection& connection = connections_[i];
    if (connection.server == nullptr) continue;
    connection.pending.clear();  // Their completions are not called.
    connection.server->PeerGoes(connection.peer);
    LoseServer(static_cast<ConnectionId>(i));
  }
}

SimFabric::~SimFabric() {
  *alive_ = false;
  std::erase(host_->endpoints_, this);
  if (!address_.empty()) network_->listening_.erase(address_);
  LosePeers();
  for (size_t i = 0; i < connections_.size(); ++i) Disconnect(static_cast<ConnectionId>(i));
  for (const auto& [id, completion] : std::exchange(connecting_, {})) {
    Tell(completion, absl::UnavailableError("this endpoint is closing"));
  }
  for (const Ready& ready : std::exchange(ready_, {})) ready.completion->Done(ready.status, AsBytes(ready.reply));
}

void SimFabric::LosePeers() {
  for (Peer& peer : peers_) {
    if (SimFabric* const client = std::exchange(peer.client, nullptr)) client->LoseServer(peer.connection);
  }
}

// Handles the end of the peer's client. The service is notified later.
void SimFabric::PeerGoes(ConnectionId peer) {
  peers_[peer].client = nullptr;
  network_->At(network_->now_ns(), [this, alive = alive_, peer] {
    if (*alive && service_ != nullptr) service_->Disconnected(peer);
  });
}

std::unique_ptr<SimFabric::Region> SimFabric::NewRegion(uint64_t bytes) const {
  const uint64_t rounded = RoundUp(bytes, 4096);
  auto made =
      std::make_unique<Region>(Region{{static_cast<std::byte*>(std::aligned_alloc(4096, rounded)), std::free}, {}});
  std::memset(made->bytes.get(), 0, rounded);
  made->memory = RegionMemory(made->bytes.get(), bytes);
  made->memory.set_after_step([network = network_] { network->OnWriterStep(); });
  return made;
}

absl::StatusOr<bool> SimFabric::PrepareRegion(uint64_t bytes, uint64_t) {
  dropped_.push_back(NewRegion(bytes));
  return true;
}

absl::StatusOr<RegionMemory*> SimFabric::MakeRegion(uint32_t region, uint64_t bytes, bool staged) {
  if (absl::Status status = CheckRegion(region, bytes); !status.ok()) return status;
  if (regions_.contains(region)) return absl::AlreadyExistsError(fmt::format("region {} is already held", region));
  std::unique_ptr<Region> made;
  const auto reusable = std::find_if(dropped_.begin(), dropped_.end(), [&](const auto& dropped) {
    return dropped->memory.bytes() == bytes && !(staged && dropped->former.contains(region));
  });
  if (reusable != dropped_.end()) {
    made = std::move(*reusable);
    dropped_.erase(reusable);
  } else {
    made = NewRegion(bytes);
  }
  made->staged = staged;
  return &regions_.emplace(region, std::move(made)).first->second->memory;
}

void SimFabric::PublishRegion(uint32_t region) {
  const auto it = regions_.find(region);
  if (it != regions_.end()) it->second->staged = false;
}

void SimFabric::DropRegion(uint32_t region) {
  const auto it = regions_.find(region);
  if (it == regions_.end()) return;
  it->second->former.insert(region);
  dropped_.push_back(std::move(it->second));
  regions_.erase(it);
}

absl::Status SimFabric::Listen(const std::string& address, Service* service) {
  if (!network_->listening_.emplace(address, this).second) {
    return absl::AlreadyExistsError(fmt::format("a server already listens at {}", address));
  }
  address_ = address;
  service_ = service;
  return absl::OkStatus();
}

size_t SimFabric::peers() const {
  return static_cast<size_t>(
      std::count_if(peers_.begin(), peers_.end(), [](const Peer& p) { return p.client != nullptr; }));
}

void SimFabric::SetPaused(bool paused) {
  paused_ = paused;
  if (!paused_ && !queued_.empty()) ScheduleServe();
}

void SimFabric::ScheduleServe() {
  if (serve_scheduled_) return;
  serve_scheduled_ = true;
  network_->At(busy_until_ns_, [this, alive = alive_] {
    if (!*alive) return;
    serve_scheduled_ = false;
    if (!paused_) ServeQueued();
  });
}

void SimFabric::ServeQueued() {
  const size_t count = std::min(queued_.size(), kCallsMax);
  if (count == 0) return;
  served_.assign(std::make_move_iterator(queued_.begin()),
                 std::make_move_iterator(queued_.begin() + static_cast<ptrdiff_t>(count)));
  queued_.erase(queued_.begin(), queued_.begin() + static_cast<ptrdiff_t>(count));
  std::vector<IncomingCall> calls;
  for (Request& request : served_) {
    const int64_t ns = call_cost_ ? call_cost_(AsBytes(request.bytes)) : network_->options_.call_service_ns;
    request.cost_ns = static_cast<int64_t>(static_cast<double>(ns) * host_->slowdown());
    calls.push_back({request.peer, request.id, AsBytes(request.bytes), request.reply_bytes_max});
  }
  serving_ = true;
  service_->Serve(calls);
  serving_ = false;
  // Answers leave one after the other, in the order of their calls. Later ones wait for the time of earlier ones.
  int64_t at_ns = network_->now_ns();
  size_t next = 0;
  std::vector<Reply> replies = std::exchange(replies_, {});
  for (const Request& request : served_) {
    at_ns += request.cost_ns;
    busy_ns_ += request.cost_ns;
    if (next < replies.size() && replies[next].peer == request.peer && replies[next].id == request.id) {
      Send(std::move(replies[next++]), at_ns);
    }
  }
  for (; next < replies.size(); ++next) Send(std::move(replies[next]), at_ns);
  busy_until_ns_ = at_ns;
  if (!queued_.empty()) ScheduleServe();
}

ServiceTimes SimFabric::TimesOf(const IncomingCall& call, uint64_t read_bytes) const {
  if (!host_->model_.has_value()) return {};
  ServiceTimes times;
  times.read_ns = host_->model_->ReadNs(read_bytes);
  for (const Request& request : served_) {
    if (serving_ && request.peer == call.peer && request.id == call.id) {
      times.call_ns = static_cast<uint32_t>(request.cost_ns);
    }
  }
  return times;
}

MutableBytes SimFabric::BeginReply(const IncomingCall& call) {
  reply_.resize(call.reply_bytes_max);
  return absl::MakeSpan(reply_);
}

void SimFabric::EndReply(const IncomingCall& call, size_t bytes) {
  CELL_CHECK_LE(bytes, call.reply_bytes_max);
  Reply reply{call.peer, call.id, std::string(AsText(ConstBytes(reply_.data(), bytes)))};
  if (serving_) {
    replies_.push_back(std::move(reply));
  } else {
    Send(std::move(reply), network_->now_ns());
  }
}

void SimFabric::Send(Reply reply, int64_t at_ns) {
  if (!host_->model_.has_value()) return Deliver(std::move(reply), at_ns, network_->options_.latency_ns);
  // The reply uses the NIC only once it reaches it. Until then others may pass it.
  network_->At(at_ns, [this, alive = alive_, reply = std::move(reply)]() mutable {
    if (!*alive) return;
    const int64_t passed_ns = host_->PassNic(/*is_read=*/false, reply.bytes.size(), network_->now_ns());
    Deliver(std::move(reply), passed_ns, host_->OnTheWay(/*is_read=*/false) / 2);
  });
}

void SimFabric::Deliver(Reply reply, int64_t sent_ns, int64_t ns) {
  Peer& peer = peers_[reply.peer];
  if (peer.client == nullptr || crashed_) return;
  SimFabric* const client = peer.client;
  network_->Carry(
      host_, client->host_, sent_ns, ns, &peer.in_order_ns,
      [client, connection = peer.connection, alive = client->alive_, reply = std::move(reply)] {
        if (*alive) client->Finish(connection, reply.id, absl::OkStatus(), reply.bytes);
      },
      client);
}

// ---- Client.

ConnectionId SimFabric::Connect(const std::string& address, int64_t deadline_ns, Completion* completion) {
  const auto id = static_cast<ConnectionId>(connections_.size());
  connections_.emplace_back();
  TryConnect(id, address, host_->ToNetwork(deadline_ns), completion);
  return id;
}

void SimFabric::TryConnect(ConnectionId id, const std::string& address, int64_t deadline_ns, Completion* completion) {
  const auto it = network_->listening_.find(address);
  SimFabric* const server = it == network_->listening_.end() || crashed_ ? nullptr : it->second;
  const bool silent = server != nullptr && (server->paused_ || network_->IsCut(host_, server->host_) ||
                                            network_->IsCut(server->host_, host_));
  if (silent && network_->now_ns() < deadline_ns) {  // Try again repeatedly.
    constexpr int64_t kAgainNs = 10'000;
    connecting_[id] = completion;
    return network_->At(std::min(deadline_ns, network_->now_ns() + kAgainNs),
                        [this, alive = alive_, id, address, deadline_ns, completion] {
                          if (*alive && connecting_.erase(id) > 0) TryConnect(id, address, deadline_ns, completion);
                        });
  }
  if (server == nullptr || silent) {
    return Tell(completion, absl::UnavailableError(fmt::format("no server answers at {}", address)));
  }
  const auto peer = static_cast<ConnectionId>(server->peers_.size());
  server->peers_.push_back({this, id});
  ++server->host_->connections_;
  ++host_->connections_;
  connections_[id].server = server;
  connections_[id].peer = peer;
  Tell(completion, absl::OkStatus());
}

void SimFabric::Disconnect(ConnectionId id) {
  if (const auto it = connecting_.find(id); it != connecting_.end()) {
    Tell(it->second, absl::UnavailableError("disconnected"));
    connecting_.erase(it);
    Poll();
  }
  if (id >= connections_.size() || connections_[id].server == nullptr) return;
  SimFabric* server = connections_[id].server;
  const ConnectionId peer = connections_[id].peer;
  if (network_->writing_) {
    server->PeerGoes(peer);  // The server is in the middle of a write.
  } else {
    server->peers_[peer].client = nullptr;
    if (server->service_ != nullptr) server->service_->Disconnected(peer);
  }
  LoseServer(id);
  Poll();
}

void SimFabric::LoseServer(ConnectionId id) {
  Connection& connection = connections_[id];
  --host_->connections_;
  --connection.server->host_->connections_;
  connection.server = nullptr;
  std::erase_if(network_->transfers_, [this, id](const SimNetwork::Transfer& transfer) {
    return transfer.reader == this && transfer.connection == id;
  });
  for (const auto& [operation, pending] : std::exchange(connection.pending, {})) {
    Tell(pending.completion,
         pending.is_read ? absl::UnavailableError("connection lost") : absl::UnknownError("connection lost"));
  }
}

void SimFabric::BreakConnectionsTo(SimHost* host) {
  for (size_t i = 0; i < connections_.size(); ++i) {
    SimFabric* const server = connections_[i].server;
    if (server == nullptr || server->host_ != host) continue;
    server->PeerGoes(connections_[i].peer);
    LoseServer(static_cast<ConnectionId>(i));
  }
}

bool SimFabric::NotHandedOver(const Connection& connection, absl::Span<const ReadPart> parts) const {
  if (!network_->options_.handed_over || !connection.server->paused_) return false;
  return std::any_of(parts.begin(), parts.end(), [&connection](const ReadPart& part) {
    const auto it = connection.mapped.find(part.from.region());
    return it == connection.mapped.end() || it->second == nullptr;
  });
}

// Checks repeatedly whether the region was handed over, until the read ends otherwise.
void SimFabric::ReadWhenHandedOver(ConnectionId id, std::vector<ReadPart> parts, int64_t deadline_ns,
                                   Completion* completion) {
  constexpr int64_t kAgainNs = 5'000;
  const uint64_t operation = connections_[id].operations++;
  connections_[id].pending[operation] = {completion, true, deadline_ns};
  ExpireAt(deadline_ns);
  network_->At(network_->now_ns() + kAgainNs,
               [this, alive = alive_, id, operation, parts = std::move(parts), deadline_ns, completion] {
                 if (*alive && connections_[id].pending.erase(operation) > 0) Read(id, parts, deadline_ns, completion);
               });
}

void SimFabric::Read(ConnectionId id, absl::Span<const ReadPart> parts, int64_t deadline_ns, Completion* completion) {
  if (id >= connections_.size() || connections_[id].server == nullptr) {
    return Tell(completion, absl::UnavailableError("not connected"));
  }
  SimFabric* const server = connections_[id].server;
  if (NotHandedOver(connections_[id], parts)) {
    return ReadWhenHandedOver(id, {parts.begin(), parts.end()}, deadline_ns, completion);
  }
  SimNetwork::Transfer transfer{this, server->host_, id, 0, {}, 0, 0};
  uint64_t bytes = 0;
  for (const ReadPart& part : parts) {
    const auto region = connections_[id].server->regions_.find(part.from.region());
    RegionMemory*& memory = connections_[id].mapped[part.from.region()];
    if (memory == nullptr && region != connections_[id].server->regions_.end() && !region->second->staged) {
      memory = &region->second->memory;
    }
    const uint64_t offset = part.from.offset();
    if (memory == nullptr || offset > memory->bytes() || part.bytes > memory->bytes() - offset ||
        (offset | part.bytes) % kWordBytes != 0) {
      return Tell(completion,
                  absl::OutOfRangeError(fmt::format("read of {} bytes at {} is outside the server's regions",
                                                    part.bytes, ToString(part.from))));
    }
    bytes += part.bytes;
    if (network_->options_.line_ns == 0) {
      transfer.lines.push_back({memory->at(offset), part.to, part.bytes});
      continue;
    }
    // Read large parts in pieces of several lines: each piece is an event, and a megabyte would be 16,384 lines.
    constexpr uint64_t kLineBytes = 64, kPiecesMax = 256;
    const uint64_t piece = kLineBytes * std::max<uint64_t>(1, part.bytes / (kLineBytes * kPiecesMax));
    for (uint64_t at = 0; at < part.bytes;) {
      const uint64_t step = std::min<uint64_t>(piece - (offset + at) % kLineBytes, part.bytes - at);
      transfer.lines.push_back({memory->at(offset + at), part.to + at, step});
      at += step;
    }
  }
  if (transfer.lines.empty()) return Tell(completion, absl::OkStatus());
  const SimOptions& options = network_->options_;
  if (options.line_order == SimOptions::LineOrder::kRandom && options.line_ns > 0) {
    for (size_t i = transfer.lines.size() - 1; i > 0; --i) {
      std::swap(transfer.lines[i], transfer.lines[network_->random_.Below(i + 1)]);
    }
  }
  transfer.id = connections_[id].operations++;
  connections_[id].pending[transfer.id] = {completion, true, deadline_ns};
  ExpireAt(deadline_ns);
  if (!server->host_->model_.has_value() && !network_->IsCut(host_, server->host_)) {
    // Begin now, so that a writer's steps let it proceed however long the writer takes.
    transfer.due_ns = LeavesNs() + network_->Around(options.latency_ns) + network_->Delay();
    return network_->transfers_.push_back(std::move(transfer));
  }
  const int64_t ns = server->host_->model_.has_value() ? server->host_->OnTheWay(/*is_read=*/true) / 2 : 0;
  network_->Carry(host_, server->host_, LeavesNs(), ns, nullptr,
                  [this, alive = alive_, transfer = std::move(transfer), bytes]() mutable {
                    if (*alive) BeginTransfer(std::move(transfer), bytes);
                  });
}

// Begins a transfer when the request has reached the server's NIC.
void SimFabric::BeginTransfer(SimNetwork::Transfer transfer, uint64_t bytes) {
  if (!connections_[transfer.connection].pending.contains(transfer.id)) return;
  transfer.due_ns = transfer.from->PassNic(/*is_read=*/true, bytes, network_->now_ns());
  if (network_->options_.line_ns > 0) return network_->transfers_.push_back(std::move(transfer));
  for (const SimNetwork::Line& line : transfer.lines) CopyFromShared(line.from, line.to, line.bytes);
  network_->EndTransfer(transfer, transfer.due_ns);
}

void SimFabric::Call(ConnectionId id, ConstBytes head, ConstBytes body, size_t reply_bytes_max, int64_t deadline_ns,
                     Completion* completion) {
  CELL_CHECK_LE(head.size() + body.size(), kMessageBytesMax);
  CELL_CHECK(reply_bytes_max >= kReplyBytesMin && reply_bytes_max <= kMessageBytesMax);
  if (id >= connections_.size() || connections_[id].server == nullptr) {
    return Tell(completion, absl::UnavailableError("not connected"));
  }
  Connection& connection = connections_[id];
  const uint64_t call = connection.operations++;
  connection.pending[call] = {completion, false, deadline_ns};
  Request request{connection.peer, call, std::string(AsText(head)).append(AsText(body)), reply_bytes_max};
  SimFabric* const server = connection.server;
  const bool modelled = server->host_->model_.has_value();
  const int64_t ns = modelled ? server->host_->OnTheWay(/*is_read=*/false) / 2 : network_->options_.latency_ns;
  network_->Carry(host_, server->host_, LeavesNs(), ns, &connection.in_order_ns,
                  [server, alive = server->alive_, request = std::move(request)]() mutable {
                    if (!*alive) return;
                    server->queued_.push_back(std::move(request));
                    server->ScheduleServe();
                  });
  ExpireAt(deadline_ns);
}

// Uses one event for all deadlines, so that operations that end in time, which are nearly all, cost none. The host's
// clock decides whether an operation is late. If it has stood still since, the check is repeated later.
void SimFabric::ExpireAt(int64_t deadline_ns) {
  if (deadline_ns >= expire_ns_) return;
  expire_ns_ = deadline_ns;
  const int64_t at_ns = std::max(host_->ToNetwork(deadline_ns), network_->now_ns() + 1);
  network_->At(at_ns, this, [this, alive = alive_, deadline_ns] {
    if (*alive && expire_ns_ == deadline_ns) Expire();
  });
}

void SimFabric::Expire() {
  expire_ns_ = INT64_MAX;
  int64_t next_ns = INT64_MAX;
  const int64_t now_ns = NowNs();
  for (size_t i = 0; i < connections_.size(); ++i) {
    const auto id = static_cast<ConnectionId>(i);
    std::vector<uint64_t> late;
    for (const auto& [operation, pending] : connections_[i].pending) {
      if (pending.deadline_ns <= now_ns) {
        late.push_back(operation);
      } else {
        next_ns = std::min(next_ns, pending.deadline_ns);
      }
    }
    for (const uint64_t operation : late) {
      if (connections_[i].pending.at(operation).is_read) {  // Copy no more of it.
        std::erase_if(network_->transfers_, [&](const SimNetwork::Transfer& transfer) {
          return transfer.reader == this && transfer.connection == id && transfer.id == operation;
        });
      }
      Finish(id, operation, absl::DeadlineExceededError("no answer in time"), {});
    }
  }
  ExpireAt(next_ns);
}

void SimFabric::Finish(ConnectionId id, uint64_t operation, absl::Status status, std::string reply) {
  auto& pending = connections_[id].pending;
  const auto it = pending.find(operation);
  if (it == pending.end()) return;
  Completion* const completion = it->second.completion;
  pending.erase(it);
  Tell(completion, std::move(status), std::move(reply));
}

// ---- Both.

void SimFabric::Tell(Completion* completion, absl::Status status, std::string reply) {
  if (crashed_) return;
  ready_.push_back({completion, std::move(status), std::move(reply)});
  if (turn_) WakeAt(LeavesNs());
}

size_t SimFabric::Poll() {
  std::vector<Ready> now;
  now.swap(ready_);
  const int64_t each_ns = host_->model_.has_value() ? host_->model_->completion_ns : 0;
  for (const Ready& ready : now) {
    core_free_ns_ = LeavesNs() + each_ns;
    ready.completion->Done(ready.status, AsBytes(ready.reply));
  }
  return now.size();
}

void SimFabric::Wait(int64_t until_ns) {
  until_ns = host_->ToNetwork(until_ns);
  waited_ = true;
  if (turn_) {
    if (ready_.empty()) WakeAt(std::max(until_ns, network_->now_ns() + 1));  // Otherwise time would stand still.
    return;
  }
  while (ready_.empty() && network_->now_ns() < until_ns) {
    if (network_->NextNs() > until_ns || !network_->Step()) network_->now_ns_ = std::max(network_->now_ns_, until_ns);
  }
}

void SimFabric::Drive(std::function<void()> turn) {
  turn_ = std::move(turn);
  wake_ns_ = INT64_MAX;
  if (turn_) WakeAt(network_->now_ns());
}

void SimFabric::WakeAt(int64_t at_ns) {
  at_ns = std::max(at_ns, network_->now_ns());
  if (at_ns >= wake_ns_) return;
  wake_ns_ = at_ns;
  network_->At(at_ns, this, [this, alive = alive_, at_ns] {
    if (*alive && turn_ && wake_ns_ == at_ns) TakeTurn();
  });
}

void SimFabric::TakeTurn() {
  wake_ns_ = INT64_MAX;
  for (waited_ = false; !waited_;) turn_();
}

}  // namespace cell
