// ClientLoop runs a client's coroutines. It owns the fabric and its time, and what coroutines wait for besides: times,
// events, and tasks that outlive the operation that began them. Internal to cell/client. Not thread-safe.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "absl/status/status.h"
#include "cell/base/forks.h"
#include "cell/client/session/cpu_meter.h"
#include "cell/io/fabric/fabric.h"

namespace cell {

// A task that may outlive the operation that started it. The loop destroys it after it has ended.
class DetachedTask {
 public:
  virtual ~DetachedTask() = default;
  virtual bool ended() const = 0;
};

class ClientLoop {
 public:
  explicit ClientLoop(std::unique_ptr<Fabric> fabric);

  // Not to be used once the loop is closed.
  Fabric* fabric() const { return fabric_.get(); }
  // Returns the fabric's time. Once the loop is closed, returns the time when it was closed.
  int64_t NowNs() const { return closed() ? now_ns_ : fabric_->NowNs(); }
  // Returns the time that the work of this thread has reached.
  int64_t WorkNs() const { return closed() ? now_ns_ : fabric_->NowNs() + fabric_->AheadNs(); }
  // Returns the time of the last Step, Wait or Touch. It costs nothing, and is exact enough for the latencies of
  // results of the last poll.
  int64_t now_ns() const { return now_ns_; }
  void Touch() { now_ns_ = NowNs(); }
  CpuMeter* cpu() { return &cpu_; }

  // Destroys the fabric, which ends everything in flight, and resumes all waiting coroutines. Not to be called where
  // the loop is inherited.
  void Close();
  // Returns true if this process was forked from the one that made the loop. That one goes on with its connections, and
  // what they share with the kernel and with servers must not be touched here, not even to close them.
  bool inherited() const { return forks_ != Forks(); }
  bool closed() const { return fabric_ == nullptr || inherited(); }
  static absl::Status Closed() {
    return absl::CancelledError("the client was closed, or opened by the process from which this one was forked");
  }

  struct SleepAwaiter {
    ClientLoop* loop;
    int64_t at_ns;
    bool await_ready() const { return loop->closed() || loop->NowNs() >= at_ns; }
    void await_suspend(std::coroutine_handle<> awaiting) { loop->timers_.push({at_ns, awaiting}); }
    void await_resume() const {}
  };
  SleepAwaiter SleepUntil(int64_t at_ns) { return {this, at_ns}; }

  // Waits until Wake(event), the deadline, or Close. An event is the address of the data that it is about, which the
  // caller checks again afterwards. It is not an Event (cell/base/event.h): the loop knows all waiters, because it ends
  // those whose deadline has come and, when it is closed, all of them.
  struct EventAwaiter {
    ClientLoop* loop;
    const void* event;
    int64_t deadline_ns;
    std::coroutine_handle<> handle = {};
    bool await_ready() const { return loop->closed(); }
    void await_suspend(std::coroutine_handle<> awaiting) {
      handle = awaiting;
      loop->waiting_.push_back(this);
    }
    void await_resume() const {}
  };
  EventAwaiter WaitFor(const void* event, int64_t deadline_ns) { return {this, event, deadline_ns}; }
  // Resumes all coroutines that wait for `event`, in the order in which they began to wait.
  void Wake(const void* event);

  // Takes ownership of `task` until it has ended.
  void Keep(std::unique_ptr<DetachedTask> task) { detached_.push_back(std::move(task)); }
  // Destroys the tasks that have ended.
  void DestroyEnded();

  // Resumes coroutines that wait for a time that has come. Returns their number.
  size_t Step();
  // Polls the fabric. Returns what it has found.
  size_t PollFabric();
  // Waits on the fabric until something comes, or until a time for which a coroutine waits, but not beyond `until_ns`.
  void Wait(int64_t until_ns);
  // The same in two steps, as Fabric::BeginWait and EndWait. EndWait does nothing if no wait has begun.
  int64_t BeginWait(int64_t until_ns);
  void EndWait();

 private:
  struct Timer {
    int64_t at_ns;
    std::coroutine_handle<> handle;
    bool operator>(const Timer& other) const { return at_ns > other.at_ns; }
  };

  // Returns the first time for which a coroutine waits, or `until_ns` if that is earlier.
  int64_t NextNs(int64_t until_ns) const;
  // Resumes the waiting coroutines that `is` selects. Returns their number.
  template <typename Is>
  size_t WakeIf(const Is& is);

  const int forks_ = Forks();
  std::unique_ptr<Fabric> fabric_;
  int64_t now_ns_;
  bool waiting_outside_ = false;  // Between BeginWait and EndWait.
  CpuMeter cpu_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::vector<EventAwaiter*> waiting_;  // Ordered by when they began to wait.
  std::vector<std::unique_ptr<DetachedTask>> detached_;
};

}  // namespace cell
