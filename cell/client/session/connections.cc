#include "cell/client/session/connections.h"

#include <algorithm>

#include "fmt/format.h"

namespace cell {
namespace {

constexpr int64_t kConnectTimeoutNs = 1'000'000'000;
constexpr int kReconnectDoublings = 3;

}  // namespace

Connections::Connections(ClientLoop* loop, ClientMetrics* metrics, const ClientOptions& options)
    : loop_(loop),
      metrics_(metrics),
      reconnect_ns_(options.reconnect_us * 1000),
      seed_(options.seed),
      selector_(ParseSelector(options.selector).value()) {}  // Client::Open has checked it.

ServerConnection* Connections::To(const WorkerId& worker, const std::string& address) {
  ServerConnection*& server = by_worker_[worker];
  if (server == nullptr) {
    const uint64_t seed = seed_ + 3 * servers_.size();
    servers_.push_back(std::make_unique<ServerConnection>(worker, address, selector_, seed, &estimates_));
    server = servers_.back().get();
  }
  if (server->address != address) {
    if (server->up) to_close_.push_back(server->id);
    server->up = false;
    server->address = address;
    server->last_attempt_ns = INT64_MIN;
    server->failed_attempts = 0;
  }
  return server;
}

ServerConnection* Connections::AnyUp() const {
  const auto up = std::find_if(servers_.begin(), servers_.end(), [](const auto& server) { return server->up; });
  return up == servers_.end() ? nullptr : up->get();
}

Task<absl::Status> Connections::Connect(ServerConnection* server, int64_t deadline_ns) {
  if (server->up) co_return absl::OkStatus();
  if (loop_->closed()) co_return ClientLoop::Closed();
  if (!server->connecting) {
    const int64_t pause_ns = reconnect_ns_ << std::clamp(server->failed_attempts - 1, 0, kReconnectDoublings);
    if (server->last_attempt_ns != INT64_MIN && loop_->NowNs() - server->last_attempt_ns < pause_ns) {
      co_return server->why_down;
    }
    server->connecting = true;
    loop_->Keep(std::make_unique<Attempt>(this, server));
  }
  while (server->connecting) {
    if (loop_->closed()) co_return ClientLoop::Closed();
    if (loop_->NowNs() >= deadline_ns) {
      co_return absl::UnavailableError(fmt::format("no server answered at {} in time", server->address));
    }
    co_await loop_->WaitFor(&server->connecting, deadline_ns);
  }
  co_return server->up ? absl::OkStatus() : server->why_down;
}

Task<bool> Connections::TryConnect(ServerConnection* server) {
  const std::string address = server->address;
  server->last_attempt_ns = loop_->NowNs();
  ConnectAwaiter connecting(loop_->fabric(), address, server->last_attempt_ns + kConnectTimeoutNs);
  const absl::StatusOr<ConnectionId> id = co_await connecting;
  server->connecting = false;
  if (loop_->closed()) co_return false;
  const bool moved = server->address != address;  // It restarted elsewhere meanwhile.
  if (id.ok() && !moved) {
    server->failed_attempts = 0;
    server->id = *id;
    server->up = true;
  } else {
    to_close_.push_back(connecting.connection);  // Close it, because it would be kept otherwise.
    server->failed_attempts += !moved;
    server->silent = loop_->NowNs() >= server->last_attempt_ns + kConnectTimeoutNs;
    server->why_down = id.status();
    if (moved) server->why_down = absl::UnavailableError(fmt::format("there is no longer a server at {}", address));
  }
  loop_->Wake(&server->connecting);
  co_return true;
}

void Connections::CloseBroken() {
  for (const ConnectionId id : std::exchange(to_close_, {})) loop_->fabric()->Disconnect(id);
}

void Connections::ForgetRegion(const ServerConnection& server, uint32_t region) {
  if (!loop_->closed()) loop_->fabric()->ForgetRegion(server.id, region);
}

void Connections::Note(ServerConnection* server, const absl::Status& status) {
  const bool lost = status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kUnknown;
  if (!lost || !server->up) return;
  server->up = false;
  server->why_down = status;
  server->last_attempt_ns = loop_->NowNs();
  to_close_.push_back(server->id);
}

absl::Status Connections::ReadOp::await_resume() {
  if (connections_->loop_->closed()) return ClientLoop::Closed();
  absl::Status status = ReadAwaiter::await_resume();
  connections_->Note(server_, status);
  if (search_ != nullptr && status.ok()) search_->selector_->ObserveRead(connections_->loop_->now_ns() - asked_ns_);
  return status;
}

Connections::CallOp::CallOp(Connections* connections, ServerConnection* server, const OutgoingCall& call,
                            Feedback feedback)
    : CallAwaiter(connections->loop_->fabric(), server->id, call),
      connections_(connections),
      server_(server),
      feedback_(feedback),
      asked_ns_(connections->loop_->now_ns()) {
  if (feedback_.learns() && feedback_.learn == Feedback::kCost) feedback_.selector->BeginCall(asked_ns_);
}

absl::StatusOr<ConstBytes> Connections::CallOp::await_resume() {
  const ClientLoop& loop = *connections_->loop_;
  const bool cost = feedback_.learns() && feedback_.learn == Feedback::kCost;
  if (cost) feedback_.selector->EndCall(loop.now_ns());
  if (loop.closed()) return ClientLoop::Closed();
  connections_->Note(server_, reply.status());
  if (feedback_.learns() && reply.ok() && (cost || !IsRoute(*reply))) {
    feedback_.selector->ObserveServer(loop.now_ns() - asked_ns_, TimesOf(*reply));
  }
  return CallAwaiter::await_resume();
}

Task<uint16_t> Connections::TakeNumber(ServerConnection* server, int64_t deadline_ns) {
  while (server->free_numbers.empty()) {
    if (loop_->closed() || loop_->NowNs() >= deadline_ns) co_return uint16_t{0};
    co_await loop_->WaitFor(&server->free_numbers, deadline_ns);
  }
  const uint16_t number = server->free_numbers.back();
  server->free_numbers.pop_back();
  co_return number;
}

void Connections::GiveNumber(ServerConnection* server, uint16_t number) {
  server->free_numbers.push_back(number);
  loop_->Wake(&server->free_numbers);
}

}  // namespace cell
