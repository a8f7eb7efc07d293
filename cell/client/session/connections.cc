#include "cell/client/session/connections.h"

#include <algorithm>

#include "cell/layout/limits.h"
#include "cell/layout/wire.h"
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

WorkerConnection* Connections::To(const WorkerId& worker_id, const std::string& address) {
  WorkerConnection*& worker = by_worker_[worker_id];
  if (worker == nullptr) {
    const uint64_t seed = seed_ + kOperationKinds * workers_.size();
    workers_.push_back(std::make_unique<WorkerConnection>(worker_id, address, selector_, seed, &estimates_));
    worker = workers_.back().get();
  }
  if (worker->address != address) {
    if (worker->up) to_close_.push_back(worker->id);
    worker->up = false;
    worker->address = address;
    worker->last_attempt_ns = INT64_MIN;
    worker->failed_attempts = 0;
  }
  return worker;
}

WorkerConnection* Connections::AnyUp() const {
  const auto up = std::find_if(workers_.begin(), workers_.end(), [](const auto& worker) { return worker->up; });
  return up == workers_.end() ? nullptr : up->get();
}

Task<absl::Status> Connections::Connect(WorkerConnection* worker, int64_t deadline_ns) {
  if (worker->up) co_return absl::OkStatus();
  if (loop_->closed()) co_return ClientLoop::Closed();
  if (!worker->connecting) {
    const int64_t pause_ns = reconnect_ns_ << std::clamp(worker->failed_attempts - 1, 0, kReconnectDoublings);
    if (worker->last_attempt_ns != INT64_MIN && loop_->NowNs() - worker->last_attempt_ns < pause_ns) {
      co_return worker->why_down;
    }
    worker->connecting = true;
    loop_->Keep(std::make_unique<Attempt>(this, worker));
  }
  while (worker->connecting) {
    if (loop_->closed()) co_return ClientLoop::Closed();
    if (loop_->NowNs() >= deadline_ns) {
      co_return absl::UnavailableError(fmt::format("no server answered at {} in time", worker->address));
    }
    co_await loop_->WaitFor(&worker->connecting, deadline_ns);
  }
  co_return worker->up ? absl::OkStatus() : worker->why_down;
}

Task<bool> Connections::TryConnect(WorkerConnection* worker) {
  const std::string address = worker->address;
  worker->last_attempt_ns = loop_->NowNs();
  ConnectAwaiter connecting(loop_->fabric(), address, worker->last_attempt_ns + kConnectTimeoutNs);
  const absl::StatusOr<ConnectionId> id = co_await connecting;
  absl::Status status = id.status();
  if (id.ok() && cluster_.has_value() && worker->address == address && !loop_->closed()) {
    status = co_await CheckCluster(*id, &address);
  }
  worker->connecting = false;
  if (loop_->closed()) co_return false;
  const bool moved = worker->address != address;  // It restarted elsewhere meanwhile.
  if (status.ok() && !moved) {
    worker->failed_attempts = 0;
    worker->id = *id;
    worker->up = true;
    worker->time.Forget();
    worker->stamp.Forget();
  } else {
    to_close_.push_back(connecting.connection);  // Close it, because it would be kept otherwise.
    worker->failed_attempts += !moved;
    worker->silent = loop_->NowNs() >= worker->last_attempt_ns + kConnectTimeoutNs;
    worker->why_down = std::move(status);
    if (moved) worker->why_down = absl::UnavailableError(fmt::format("there is no longer a server at {}", address));
  }
  loop_->Wake(&worker->connecting);
  co_return true;
}

Task<absl::Status> Connections::CheckCluster(ConnectionId id, const std::string* address) {
  const std::string request = MakeTableVersionRequest(UINT64_MAX);
  const OutgoingCall call{
      .head = request, .reply_bytes_max = kReplyBytesMin, .deadline_ns = loop_->NowNs() + kConnectTimeoutNs};
  CallAwaiter asking(loop_->fabric(), id, call);
  const absl::StatusOr<ConstBytes> bytes = co_await asking;
  if (!bytes.ok()) {
    co_return absl::UnavailableError(
        fmt::format("the server at {} does not answer: {}", *address, std::string(bytes.status().message())));
  }
  const absl::StatusOr<TableVersionReply> reply = ParseTableVersionReply(*bytes);
  if (!reply.ok() || reply->cluster == cluster_) co_return absl::OkStatus();
  co_return absl::FailedPreconditionError(fmt::format("the server at {} belongs to another cluster", *address));
}

void Connections::CloseBroken() {
  for (const ConnectionId id : std::exchange(to_close_, {})) loop_->fabric()->Disconnect(id);
}

void Connections::ForgetRegion(const WorkerConnection& worker, uint32_t region) {
  if (!loop_->closed()) loop_->fabric()->ForgetRegion(worker.id, region);
}

bool Connections::AnyIsQuiet(int64_t ns) const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& worker) { return IsQuiet(*worker, ns); });
}

void Connections::CloseGone(const ClusterState& cluster, int64_t ns) {
  for (const auto& worker : workers_) {
    if (!IsQuiet(*worker, ns) || cluster.FindWorker(worker->worker_id) != nullptr) continue;
    const std::string why = fmt::format("{} has left the cluster", ToString(worker->worker_id));
    Note(worker.get(), absl::UnavailableError(why));
  }
}

void Connections::Note(WorkerConnection* worker, const absl::Status& status) {
  const bool lost = status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kUnknown;
  if (!lost || !worker->up) return;
  worker->up = false;
  worker->why_down = status;
  worker->last_attempt_ns = loop_->NowNs();
  to_close_.push_back(worker->id);
}

absl::Status Connections::ReadOp::await_resume() {
  connections_->Answered(worker_);
  if (connections_->loop_->closed()) return ClientLoop::Closed();
  absl::Status status = ReadAwaiter::await_resume();
  connections_->Note(worker_, status);
  connections_->NoteRead(status);
  connections_->MeterWork(selector_, CpuMeter::Work::kRead);
  if (is_round_ && status.ok()) selector_->ObserveRead(connections_->loop_->now_ns() - asked_ns_);
  return status;
}

Connections::CallOp::CallOp(Connections* connections, WorkerConnection* worker, const OutgoingCall& call,
                            Feedback feedback)
    : CallAwaiter(connections->loop_->fabric(), worker->id, call),
      connections_(connections),
      worker_(worker),
      feedback_(feedback),
      asked_ns_(connections->loop_->now_ns()) {
  connections_->Asked(worker_);
  if (feedback_.learns() && feedback_.learn == Feedback::kCost) feedback_.selector->BeginCall(asked_ns_);
}

absl::StatusOr<ConstBytes> Connections::CallOp::await_resume() {
  const ClientLoop& loop = *connections_->loop_;
  const bool cost = feedback_.learns() && feedback_.learn == Feedback::kCost;
  connections_->Answered(worker_);
  if (cost) feedback_.selector->EndCall(loop.now_ns());
  if (loop.closed()) return ClientLoop::Closed();
  connections_->Note(worker_, reply.status());
  connections_->MeterWork(feedback_.learns() ? feedback_.selector : nullptr, CpuMeter::Work::kCall);
  if (feedback_.learns() && reply.ok() && (cost || !IsRoute(*reply))) {
    const int64_t took_ns = loop.now_ns() - asked_ns_;
    const ServiceTimes times = TimesOf(*reply);
    feedback_.learn == Feedback::kRest ? feedback_.selector->ObserveRest(took_ns, times)
                                       : feedback_.selector->ObserveServer(took_ns, times);
  }
  return CallAwaiter::await_resume();
}

Task<uint16_t> Connections::TakeNumber(WorkerConnection* worker, int64_t deadline_ns) {
  while (worker->free_numbers.empty()) {
    if (loop_->closed() || loop_->NowNs() >= deadline_ns) co_return uint16_t{0};
    co_await loop_->WaitFor(&worker->free_numbers, deadline_ns);
  }
  const uint16_t number = worker->free_numbers.back();
  worker->free_numbers.pop_back();
  co_return number;
}

void Connections::GiveNumber(WorkerConnection* worker, uint16_t number) {
  worker->free_numbers.push_back(number);
  loop_->Wake(&worker->free_numbers);
}

}  // namespace cell
