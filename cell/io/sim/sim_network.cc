#include "cell/io/sim/sim_network.h"

#include <algorithm>

#include "cell/base/thread_checker.h"
#include "cell/io/sim/sim_fabric.h"

namespace cell {

int64_t SimHost::ToNetwork(int64_t local_ns) const {
  if (local_ns > kForeverNs) return local_ns;
  constexpr int64_t kMillion = 1'000'000;
  const auto since = static_cast<__int128>(local_ns - offset_ns_);
  int64_t network_ns = std::max<int64_t>(0, static_cast<int64_t>(since * kMillion / (kMillion + gain_ppm_)) - 2);
  while (ToLocal(network_ns) < local_ns) ++network_ns;
  return network_ns;
}

int64_t SimHost::PassNic(bool is_read, uint64_t bytes, int64_t at_ns) {
  if (!model_.has_value()) return at_ns;
  const double slow = model_->Slowdown(connections_);
  const auto pass = [slow](int64_t* free_ns, int64_t from_ns, double takes_ns) {
    return *free_ns = std::max(*free_ns, from_ns) + static_cast<int64_t>(takes_ns * slow);
  };
  // The stages that both kinds share come first, so that a queue of one kind does not delay the other.
  at_ns = pass(&port_free_ns_, at_ns, static_cast<double>(model_->operation_ns));
  at_ns = pass(&wire_free_ns_, at_ns, model_->byte_ns * static_cast<double>(bytes));
  return is_read ? pass(&reads_free_ns_, at_ns, static_cast<double>(model_->read_ns))
                 : pass(&calls_free_ns_, at_ns, static_cast<double>(model_->call_ns));
}

int64_t SimHost::OnTheWay(bool is_read) const {
  const int64_t passes_ns = model_->operation_ns + (is_read ? model_->read_ns : model_->call_ns);
  return std::max<int64_t>(0, (is_read ? model_->read_latency_ns : model_->call_latency_ns) - passes_ns);
}

SimHost* SimNetwork::NewHost(const std::optional<MachineModel>& model) {
  hosts_.push_back(std::make_unique<SimHost>());
  hosts_.back()->model_ = model;
  return hosts_.back().get();
}

std::unique_ptr<SimFabric> SimNetwork::NewEndpoint(SimHost* host) {
  if (host == nullptr) host = NewHost();
  return std::unique_ptr<SimFabric>(new SimFabric(this, host));
}

void SimNetwork::At(int64_t at_ns, const SimFabric* whose, std::function<void()> run) {
  const bool of_client = options_.clients_run && whose != nullptr && whose->service_ == nullptr;
  (of_client ? client_events_ : events_).push({std::max(at_ns, now_ns_), scheduled_++, std::move(run)});
}

int64_t SimNetwork::NextNs() const {
  int64_t next_ns = events_.empty() ? INT64_MAX : events_.top().at_ns;
  if (!client_events_.empty()) next_ns = std::min(next_ns, client_events_.top().at_ns);
  for (const Transfer& transfer : transfers_) next_ns = std::min(next_ns, transfer.due_ns);
  return next_ns;
}

size_t SimNetwork::FirstTransfer() const {
  const auto first = std::min_element(transfers_.begin(), transfers_.end(),
                                      [](const Transfer& a, const Transfer& b) { return a.due_ns < b.due_ns; });
  return static_cast<size_t>(first - transfers_.begin());
}

bool SimNetwork::Step() {
  const size_t first = FirstTransfer();
  const int64_t line_due_ns = first < transfers_.size() ? transfers_[first].due_ns : INT64_MAX;
  const bool client_next = !client_events_.empty() && (events_.empty() || events_.top() > client_events_.top());
  Events* const events = client_next ? &client_events_ : &events_;
  if (events->empty() && transfers_.empty()) return false;
  const int64_t at_ns = events->empty() ? INT64_MAX : events->top().at_ns;
  now_ns_ = std::max(now_ns_, std::min(line_due_ns, at_ns));
  if (line_due_ns < at_ns) {
    CopyLine(first);
  } else {
    RunFirst(events);
  }
  return true;
}

void SimNetwork::RunFirst(Events* events) {
  // The event is popped at once, so the invalid order after the move has no effect.
  const Event event = std::move(const_cast<Event&>(events->top()));
  events->pop();
  event.run();
}

// ---- Faults between hosts.

void SimNetwork::Carry(SimHost* from, SimHost* to, int64_t sent_ns, int64_t ns, int64_t* in_order,
                       std::function<void()> run, const SimFabric* whose) {
  int64_t at_ns = sent_ns + ns + Delay();
  if (in_order != nullptr) at_ns = *in_order = std::max(at_ns, *in_order);
  if (cuts_.empty() && delayed_share_ == 0) return At(at_ns, whose, std::move(run));
  At(at_ns, whose, [this, from, to, run = std::move(run)]() mutable { Arrive(from, to, std::move(run)); });
}

void SimNetwork::Arrive(SimHost* from, SimHost* to, std::function<void()> run) {
  const auto cut = cuts_.find({from, to});
  if (cut == cuts_.end()) return run();
  cut->second.waiting.push_back(std::move(run));
}

void SimNetwork::SetCut(SimHost* from, SimHost* to, bool cut) {
  const auto it = cuts_.find({from, to});
  if (cut == (it != cuts_.end())) return;
  if (cut) {
    const uint64_t number = ++cuts_made_;
    cuts_[{from, to}] = {number, {}};
    At(now_ns_ + options_.break_after_ns, [this, from, to, number] {
      const auto now = cuts_.find({from, to});
      if (now != cuts_.end() && now->second.number == number) Break(from, to);
    });
    return;
  }
  std::vector<std::function<void()>> waiting = std::move(it->second.waiting);
  cuts_.erase(it);
  for (auto& run : waiting) At(now_ns_ + options_.latency_ns, std::move(run));
}

void SimNetwork::Break(SimHost* one, SimHost* other) {
  // The waiting messages belong to connections that are gone now.
  for (const auto& way : {std::pair(one, other), std::pair(other, one)}) {
    const auto cut = cuts_.find(way);
    if (cut != cuts_.end()) cut->second.waiting.clear();
  }
  for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
    for (SimFabric* endpoint : from->endpoints_) endpoint->BreakConnectionsTo(to);
  }
}

// ---- Reads.

void SimNetwork::OnWriterStep() {
  const int64_t until_ns = now_ns_ + Around(options_.writer_step_ns);
  if (!options_.clients_run) {
    now_ns_ = until_ns;
    return CopyDueLines();
  }
  writing_ = true;
  for (;;) {
    const size_t first = FirstTransfer();
    const int64_t line_due_ns = first < transfers_.size() ? transfers_[first].due_ns : INT64_MAX;
    const int64_t at_ns = client_events_.empty() ? INT64_MAX : client_events_.top().at_ns;
    if (std::min(line_due_ns, at_ns) > until_ns) break;
    now_ns_ = std::max(now_ns_, std::min(line_due_ns, at_ns));
    if (line_due_ns < at_ns) {
      CopyLine(first);
    } else {
      const ThreadScope own(ThreadScope::Which::kOwn);  // The writer may be running as another thread.
      RunFirst(&client_events_);
    }
  }
  writing_ = false;
  now_ns_ = until_ns;
}

void SimNetwork::CopyDueLines() {
  for (size_t i = 0; i < transfers_.size();) {
    if (transfers_[i].due_ns > now_ns_) {
      ++i;
      continue;
    }
    const size_t before = transfers_.size();
    CopyLine(i);
    if (transfers_.size() == before) continue;  // Otherwise another transfer has moved to this index.
  }
}

void SimNetwork::CopyLine(size_t i) {
  Transfer& transfer = transfers_[i];
  const Line& line = transfer.lines[transfer.next++];
  CopyFromShared(line.from, line.to, line.bytes);
  transfer.due_ns += Around(options_.line_ns);
  if (transfer.next < transfer.lines.size()) return;
  EndTransfer(transfer, transfer.due_ns);
  std::swap(transfers_[i], transfers_.back());
  transfers_.pop_back();
}

void SimNetwork::EndTransfer(const Transfer& transfer, int64_t at_ns) {
  SimFabric* const reader = transfer.reader;
  const bool modelled = transfer.from->model_.has_value();
  const int64_t back_ns = modelled ? transfer.from->OnTheWay(/*is_read=*/true) / 2 : options_.latency_ns;
  Carry(
      transfer.from, reader->host_, at_ns, back_ns, nullptr,
      [reader, alive = reader->alive_, connection = transfer.connection, id = transfer.id] {
        if (*alive) reader->Finish(connection, id, absl::OkStatus(), {});
      },
      reader);
}

}  // namespace cell
