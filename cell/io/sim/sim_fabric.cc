#include "cell/io/sim/sim_fabric.h"

#include <algorithm>
#include <utility>

namespace cell {

SimFabric::SimFabric(SimNetwork* network, SimHost* host)
    : network_(network), host_(host), alive_(std::make_shared<bool>(true)) {
  host_->endpoints_.push_back(this);
}

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

void SimFabric::Tell(Completion* completion, absl::Status status, std::string reply, size_t read_parts) {
  if (crashed_) return;
  const MachineModel machine = host_->model_.value_or(MachineModel());
  const int64_t work_ns = read_parts > 0 ? machine.ReadWorkNs(read_parts) : machine.call_completion_ns;
  ready_.push_back({completion, std::move(status), std::move(reply), work_ns});
  if (turn_) WakeAt(LeavesNs());
}

size_t SimFabric::Poll() {
  std::vector<Ready> now;
  now.swap(ready_);
  for (const Ready& ready : now) {
    work_ns_ = LeavesNs();
    core_free_ns_ = work_ns_ + ready.work_ns;
    ready.completion->Done(ready.status, AsBytes(ready.reply));
    work_ns_ = core_free_ns_;
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
