#include "cell/client/session/client_loop.h"

#include <algorithm>
#include <utility>

namespace cell {

ClientLoop::ClientLoop(std::unique_ptr<Fabric> fabric) : fabric_(std::move(fabric)), now_ns_(fabric_->NowNs()) {}

template <typename Is>
size_t ClientLoop::WakeIf(const Is& is) {
  std::vector<std::coroutine_handle<>> woken;  // They may wait again.
  std::erase_if(waiting_, [&](const EventAwaiter* waiting) {
    if (!is(*waiting)) return false;
    woken.push_back(waiting->handle);
    return true;
  });
  for (const std::coroutine_handle<> handle : woken) handle.resume();
  return woken.size();
}

void ClientLoop::Wake(const void* event) {
  WakeIf([event](const EventAwaiter& waiting) { return waiting.event == event; });
}

void ClientLoop::Close() {
  if (closed()) return;
  Touch();
  fabric_.reset();  // Ends everything in flight, whose callers find the loop closed.
  WakeIf([](const EventAwaiter&) { return true; });
  while (!timers_.empty()) {
    const Timer timer = timers_.top();
    timers_.pop();
    timer.handle.resume();
  }
  detached_.clear();
}

void ClientLoop::DestroyEnded() {
  if (!detached_.empty()) std::erase_if(detached_, [](const auto& task) { return task->ended(); });
}

size_t ClientLoop::Step() {
  size_t done = 0;
  while (!timers_.empty() && timers_.top().at_ns <= now_ns_) {
    const Timer timer = timers_.top();
    timers_.pop();
    timer.handle.resume();
    ++done;
  }
  if (!waiting_.empty()) done += WakeIf([this](const EventAwaiter& waiting) { return waiting.deadline_ns <= now_ns_; });
  return done;
}

size_t ClientLoop::PollFabric() {
  cpu_.BeginTurn(now_ns_ + fabric_->AheadNs());
  const size_t done = fabric_->Poll();
  if (done > 0) cpu_.Worked();
  if (cpu_.sampled()) cpu_.End(WorkNs());
  return done;
}

int64_t ClientLoop::NextNs(int64_t until_ns) const {
  if (!timers_.empty()) until_ns = std::min(until_ns, timers_.top().at_ns);
  for (const EventAwaiter* waiting : waiting_) until_ns = std::min(until_ns, waiting->deadline_ns);
  return until_ns;
}

void ClientLoop::Wait(int64_t until_ns) {
  fabric_->Wait(NextNs(until_ns));
  Touch();
}

int64_t ClientLoop::BeginWait(int64_t until_ns) {
  waiting_outside_ = true;
  return fabric_->BeginWait(NextNs(until_ns));
}

void ClientLoop::EndWait() {
  if (!std::exchange(waiting_outside_, false)) return;
  fabric_->EndWait();
  Touch();
}

}  // namespace cell
