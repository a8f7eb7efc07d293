#include "cell/io/sim_fabric.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "cell/layout/wire.h"
#include "fmt/format.h"

namespace cell {

// ---- The network.

std::unique_ptr<SimFabric> SimNetwork::NewEndpoint() { return std::unique_ptr<SimFabric>(new SimFabric(this)); }

void SimNetwork::At(int64_t at_ns, std::function<void()> run) {
  events_.push({std::max(at_ns, now_ns_), scheduled_++, std::move(run)});
}

int64_t SimNetwork::NextNs() const {
  int64_t next_ns = events_.empty() ? INT64_MAX : events_.top().at_ns;
  for (const Transfer& transfer : transfers_) next_ns = std::min(next_ns, transfer.due_ns);
  return next_ns;
}

bool SimNetwork::Step() {
  int64_t line_due_ns = INT64_MAX;
  size_t first = 0;
  for (size_t i = 0; i < transfers_.size(); ++i) {
    if (transfers_[i].due_ns < line_due_ns) {
      line_due_ns = transfers_[i].due_ns;
      first = i;
    }
  }
  if (events_.empty() && transfers_.empty()) return false;
  if (events_.empty() || line_due_ns < events_.top().at_ns) {
    now_ns_ = std::max(now_ns_, line_due_ns);
    CopyLine(first);
    return true;
  }
  const Event event = events_.top();
  events_.pop();
  now_ns_ = std::max(now_ns_, event.at_ns);
  event.run();
  return true;
}

void SimNetwork::OnWriterStep() {
  now_ns_ += Around(options_.writer_step_ns);
  CopyDueLines();
}

void SimNetwork::CopyDueLines() {
  for (size_t i = 0; i < transfers_.size();) {
    if (transfers_[i].due_ns > now_ns_) {
      ++i;
      continue;
    }
    const size_t before = transfers_.size();
    CopyLine(i);
    if (transfers_.size() == before) continue;  // Else another one has taken its place.
  }
}

void SimNetwork::CopyLine(size_t i) {
  Transfer& transfer = transfers_[i];
  const Line& line = transfer.lines[transfer.next++];
  CopyFromShared(line.from, line.to, line.bytes);
  transfer.due_ns += Around(options_.line_ns);
  if (transfer.next < transfer.lines.size()) return;
  SimFabric* reader = transfer.reader;
  At(transfer.due_ns + options_.latency_ns, [reader, alive = reader->alive_, completion = transfer.completion] {
    if (*alive) reader->Tell(completion, absl::OkStatus());
  });
  std::swap(transfers_[i], transfers_.back());
  transfers_.pop_back();
}

// ---- Server.

// Lines of our memory can be copied no more: their reads fail. And so do, or are forgotten, our own.
void SimFabric::FailTransfers(bool tell_own) {
  for (size_t i = 0; i < network_->transfers_.size();) {
    SimNetwork::Transfer& transfer = network_->transfers_[i];
    const std::byte* from = transfer.lines[transfer.next].from;
    const auto in = [from](const RegionMemory& memory) {
      return from >= memory.base() && from < memory.base() + memory.bytes();
    };
    const bool ours =
        std::any_of(regions_.begin(), regions_.end(), [&](const auto& region) { return in(region.second->memory); }) ||
        std::any_of(dropped_.begin(), dropped_.end(), [&](const auto& region) { return in(region->memory); });
    if (!ours && transfer.reader != this) {
      ++i;
      continue;
    }
    if (transfer.reader != this) {
      transfer.reader->Tell(transfer.completion, absl::UnavailableError("the server is gone"));
    } else if (tell_own) {
      transfer.completion->Done(absl::UnavailableError("this endpoint is closing"), {});
    }
    std::swap(transfer, network_->transfers_.back());
    network_->transfers_.pop_back();
  }
}

void SimFabric::Crash() {
  crashed_ = true;
  *alive_ = false;
  ready_.clear();
  queued_.clear();
  if (!address_.empty()) network_->listening_.erase(std::exchange(address_, {}));
  FailTransfers(/*tell_own=*/false);
  for (Peer& peer : peers_) {
    if (peer.client != nullptr) std::exchange(peer.client, nullptr)->LoseServer(peer.connection);
  }
  for (Connection& connection : connections_) {
    SimFabric* const server = std::exchange(connection.server, nullptr);
    if (server == nullptr) continue;
    server->peers_[connection.peer].client = nullptr;
    network_->At(network_->now_ns(), [server, alive = server->alive_, peer = connection.peer] {
      if (*alive && server->service_ != nullptr) server->service_->Disconnected(peer);
    });
  }
}

SimFabric::~SimFabric() {
  *alive_ = false;
  if (!address_.empty()) network_->listening_.erase(address_);
  FailTransfers(/*tell_own=*/true);
  for (const Peer& peer : peers_) {
    if (peer.client != nullptr) peer.client->LoseServer(peer.connection);
  }
  for (size_t i = 0; i < connections_.size(); ++i) Disconnect(static_cast<ConnectionId>(i));
  for (const Ready& ready : std::exchange(ready_, {})) ready.completion->Done(ready.status, AsBytes(ready.reply));
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

absl::StatusOr<RegionMemory*> SimFabric::CreateRegion(uint32_t region, uint64_t bytes) {
  if (regions_.contains(region)) return absl::AlreadyExistsError(fmt::format("region {}", region));
  std::unique_ptr<Region> made;
  const auto reusable = std::find_if(dropped_.begin(), dropped_.end(),
                                     [bytes](const auto& dropped) { return dropped->memory.bytes() == bytes; });
  if (reusable != dropped_.end()) {
    made = std::move(*reusable);
    dropped_.erase(reusable);
  } else {
    made = NewRegion(bytes);
  }
  return &regions_.emplace(region, std::move(made)).first->second->memory;
}

void SimFabric::DropRegion(uint32_t region) {
  const auto it = regions_.find(region);
  if (it == regions_.end()) return;
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
  const std::vector<Request> requests(std::make_move_iterator(queued_.begin()),
                                      std::make_move_iterator(queued_.begin() + static_cast<ptrdiff_t>(count)));
  queued_.erase(queued_.begin(), queued_.begin() + static_cast<ptrdiff_t>(count));
  std::vector<IncomingCall> calls;
  for (const Request& request : requests) {
    calls.push_back({request.peer, request.id, AsBytes(request.bytes), request.reply_bytes_max});
  }
  serving_ = true;
  service_->Serve(calls);
  serving_ = false;
  int64_t at_ns = network_->now_ns();
  for (Reply& reply : std::exchange(replies_, {})) {
    at_ns += network_->options_.call_service_ns;
    Send(std::move(reply), at_ns);
  }
  busy_until_ns_ = at_ns;
  if (!queued_.empty()) ScheduleServe();
}

MutableBytes SimFabric::BeginReply(const IncomingCall& call) {
  reply_.resize(call.reply_bytes_max);
  return absl::MakeSpan(reply_);
}

void SimFabric::EndReply(const IncomingCall& call, size_t bytes) {
  CELL_CHECK(bytes <= call.reply_bytes_max);
  Reply reply{call.peer, call.id, std::string(AsText(ConstBytes(reply_.data(), bytes)))};
  if (serving_) {
    replies_.push_back(std::move(reply));
  } else {
    Send(std::move(reply), network_->now_ns());
  }
}

void SimFabric::Send(Reply reply, int64_t at_ns) {
  const Peer peer = peers_[reply.peer];
  if (peer.client == nullptr || crashed_) return;
  network_->At(at_ns + network_->options_.latency_ns, [peer, alive = peer.client->alive_, reply = std::move(reply)] {
    if (*alive) peer.client->Finish(peer.connection, reply.id, absl::OkStatus(), reply.bytes);
  });
}

// ---- Client.

ConnectionId SimFabric::Connect(const std::string& address, int64_t, Completion* completion) {
  const auto it = network_->listening_.find(address);
  const auto connection = static_cast<ConnectionId>(connections_.size());
  if (it == network_->listening_.end() || crashed_) {
    connections_.push_back({nullptr, 0, 0, {}, {}});
    Tell(completion, absl::UnavailableError(fmt::format("no server answers at {}", address)));
    return connection;
  }
  SimFabric* server = it->second;
  const auto peer = static_cast<ConnectionId>(server->peers_.size());
  server->peers_.push_back({this, connection});
  connections_.push_back({server, peer, 0, {}, {}});
  Tell(completion, absl::OkStatus());
  return connection;
}

void SimFabric::Disconnect(ConnectionId id) {
  if (id >= connections_.size() || connections_[id].server == nullptr) return;
  SimFabric* server = connections_[id].server;
  const ConnectionId peer = connections_[id].peer;
  server->peers_[peer].client = nullptr;
  if (server->service_ != nullptr) server->service_->Disconnected(peer);
  LoseServer(id);
  Poll();
}

void SimFabric::LoseServer(ConnectionId id) {
  connections_[id].server = nullptr;
  for (const auto& [call, completion] : std::exchange(connections_[id].pending, {})) {
    Tell(completion, absl::UnknownError("connection lost"));
  }
}

void SimFabric::Read(ConnectionId id, absl::Span<const ReadPart> parts, Completion* completion) {
  if (id >= connections_.size() || connections_[id].server == nullptr) {
    return Tell(completion, absl::UnavailableError("not connected"));
  }
  SimNetwork::Transfer transfer{this, completion, {}, 0, 0};
  for (const ReadPart& part : parts) {
    const auto region = connections_[id].server->regions_.find(part.from.region());
    RegionMemory*& memory = connections_[id].mapped[part.from.region()];
    if (memory == nullptr && region != connections_[id].server->regions_.end()) memory = &region->second->memory;
    const uint64_t offset = part.from.offset();
    if (memory == nullptr || offset > memory->bytes() || part.bytes > memory->bytes() - offset ||
        (offset | part.bytes) % kWordBytes != 0) {
      return Tell(completion,
                  absl::OutOfRangeError(fmt::format("read of {} bytes at {} is outside the server's regions",
                                                    part.bytes, ToString(part.from))));
    }
    constexpr uint64_t kLineBytes = 64;
    for (uint64_t at = 0; at < part.bytes;) {
      const uint64_t bytes = std::min<uint64_t>(kLineBytes - (offset + at) % kLineBytes, part.bytes - at);
      transfer.lines.push_back({memory->at(offset + at), part.to + at, bytes});
      at += bytes;
    }
  }
  if (transfer.lines.empty()) return Tell(completion, absl::OkStatus());
  if (network_->options_.line_order == SimOptions::LineOrder::kRandom) {
    for (size_t i = transfer.lines.size() - 1; i > 0; --i) {
      std::swap(transfer.lines[i], transfer.lines[network_->random_.Below(i + 1)]);
    }
  }
  transfer.due_ns = network_->now_ns() + network_->Around(network_->options_.latency_ns);
  network_->transfers_.push_back(std::move(transfer));
}

void SimFabric::Call(ConnectionId id, ConstBytes head, ConstBytes body, size_t reply_bytes_max, int64_t deadline_ns,
                     Completion* completion) {
  CELL_CHECK(head.size() + body.size() <= kMessageBytesMax);
  CELL_CHECK(reply_bytes_max >= kReplyBytesMin && reply_bytes_max <= kMessageBytesMax);
  if (id >= connections_.size() || connections_[id].server == nullptr) {
    return Tell(completion, absl::UnavailableError("not connected"));
  }
  Connection& connection = connections_[id];
  const uint64_t call = connection.calls++;
  connection.pending[call] = completion;
  Request request{connection.peer, call, std::string(AsText(head)).append(AsText(body)), reply_bytes_max};
  SimFabric* server = connection.server;
  network_->At(network_->now_ns() + network_->options_.latency_ns,
               [server, alive = server->alive_, request = std::move(request)] {
                 if (!*alive) return;
                 server->queued_.push_back(request);
                 server->ScheduleServe();
               });
  network_->At(deadline_ns, [this, alive = alive_, id, call] {
    if (*alive) Finish(id, call, absl::DeadlineExceededError("no answer in time"), {});
  });
}

void SimFabric::Finish(ConnectionId id, uint64_t call, absl::Status status, std::string reply) {
  auto& pending = connections_[id].pending;
  const auto it = pending.find(call);
  if (it == pending.end()) return;
  Tell(it->second, std::move(status), std::move(reply));
  pending.erase(it);
}

// ---- Both.

size_t SimFabric::Poll() {
  std::vector<Ready> now;
  now.swap(ready_);
  for (const Ready& ready : now) ready.completion->Done(ready.status, AsBytes(ready.reply));
  return now.size();
}

void SimFabric::Wait(int64_t until_ns) {
  while (ready_.empty() && network_->now_ns() < until_ns) {
    if (network_->NextNs() > until_ns || !network_->Step()) network_->now_ns_ = std::max(network_->now_ns_, until_ns);
  }
}

}  // namespace cell
