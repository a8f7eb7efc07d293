// Has the client side of a SimFabric: its connections, and the reads and calls that it makes.
#include <algorithm>
#include <utility>

#include "cell/io/sim/sim_fabric.h"
#include "fmt/format.h"

namespace cell {

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
  server->peers_.push_back({this, id, self()});
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

// A refusal comes from the server. Who tries again at once would stop the time otherwise.
void SimFabric::RefuseRead(ConnectionId id, int64_t deadline_ns, Completion* completion) {
  const uint64_t operation = connections_[id].operations++;
  connections_[id].pending[operation] = {completion, true, deadline_ns};
  ExpireAt(deadline_ns);
  network_->Carry(
      connections_[id].server->host_, host_, LeavesNs(), 2 * network_->options_.latency_ns, nullptr,
      [this, alive = alive_, id, operation] {
        if (!*alive) return;
        Finish(id, operation, absl::PermissionDeniedError("the server lets this client read no memory"), {});
      },
      this);
}

void SimFabric::Read(ConnectionId id, absl::Span<const ReadPart> parts, int64_t deadline_ns, Completion* completion) {
  if (id >= connections_.size() || connections_[id].server == nullptr) {
    return Tell(completion, absl::UnavailableError("not connected"));
  }
  SimFabric* const server = connections_[id].server;
  if (NotHandedOver(connections_[id], parts)) {
    return ReadWhenHandedOver(id, {parts.begin(), parts.end()}, deadline_ns, completion);
  }
  if (!server->readers_.Has(server->peers_[connections_[id].peer].identity)) {
    return RefuseRead(id, deadline_ns, completion);
  }
  if (network_->on_read_) network_->on_read_(*this, *server);
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
  connections_[id].pending[transfer.id] = {completion, true, deadline_ns, parts.size()};
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
  CheckCall(head, body, reply_bytes_max);
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
  const Pending ended = it->second;
  pending.erase(it);
  Tell(ended.completion, std::move(status), std::move(reply), ended.parts);
}

}  // namespace cell
