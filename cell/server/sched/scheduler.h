// Scheduler runs a worker's coroutines beside its requests. Each Step resumes every coroutine that is ready, once.
// Not thread-safe: used only on one thread.
//
// A coroutine runs only inside Step, from its first line on. So Spawn may be called in the middle of a loop or of a
// reply: nothing that the new coroutine does happens before the caller has returned to Step's caller.
#pragma once

#include <coroutine>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/clock.h"
#include "cell/base/event.h"
#include "cell/base/task.h"

namespace cell {

class Scheduler : public Executor {
 public:
  // `clock` must outlive this.
  explicit Scheduler(const Clock* clock) : clock_(clock) {}
  // REQUIRES: idle().
  ~Scheduler() { CELL_CHECK(idle()); }

  // Starts the task in the next Step.
  void Spawn(Task<bool> task) { spawned_.push_back(std::move(task)); }

  struct YieldAwaiter {
    Scheduler* scheduler;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) { scheduler->ready_.push_back(awaiting); }
    void await_resume() const noexcept {}
  };
  struct SleepAwaiter {
    Scheduler* scheduler;
    int64_t until_ns;
    bool await_ready() const noexcept { return until_ns == INT64_MIN; }
    void await_suspend(std::coroutine_handle<> awaiting) { scheduler->sleepers_.emplace(until_ns, awaiting); }
    void await_resume() const noexcept {}
  };
  // Waits for the next Step.
  YieldAwaiter Yield() { return {this}; }
  // Waits for `ns` nanoseconds, or until Stop is called. Returns at once after Stop.
  SleepAwaiter Sleep(int64_t ns) { return {this, stopping_ ? INT64_MIN : clock_->NowNs() + ns}; }

  // Resumes `ready` in the next Step.
  void Schedule(std::coroutine_handle<> ready) override { ready_.push_back(ready); }

  // Returns true after Stop: tasks are to end as soon as they can.
  bool stopping() const { return stopping_; }
  // Wakes all that sleep, and the waiters of each event given to InterruptOnStop.
  void Stop() {
    stopping_ = true;
    for (Event* event : interrupted_) event->Notify();
  }
  // Makes Stop notify `event`, which must outlive this.
  void InterruptOnStop(Event* event) { interrupted_.push_back(event); }
  bool idle() const { return tasks_.empty() && spawned_.empty(); }

  // Starts and resumes what is due. Returns the number of tasks that it started or resumed.
  size_t Step() {
    std::vector<std::coroutine_handle<>> now;
    now.swap(ready_);
    for (const std::coroutine_handle<> waiter : now) waiter.resume();
    size_t done = now.size() + StartSpawned();
    const int64_t now_ns = clock_->NowNs();
    now.clear();
    while (!sleepers_.empty() && (stopping_ || sleepers_.begin()->first <= now_ns)) {
      now.push_back(sleepers_.begin()->second);
      sleepers_.erase(sleepers_.begin());
    }
    for (const std::coroutine_handle<> sleeper : now) sleeper.resume();
    done += now.size();
    tasks_.remove_if([](const Task<bool>& task) { return task.done(); });
    return done;
  }
  // Returns when Step next has something to do by itself; INT64_MAX if never.
  int64_t NextNs() const {
    if (!ready_.empty() || !spawned_.empty()) return 0;
    return sleepers_.empty() ? INT64_MAX : sleepers_.begin()->first;
  }

 private:
  size_t StartSpawned() {
    std::list<Task<bool>> spawned;  // Tasks that these spawn start in the next Step.
    spawned.swap(spawned_);
    const size_t started = spawned.size();
    for (auto it = spawned.begin(); it != spawned.end();) {
      Task<bool>& task = *it;
      tasks_.splice(tasks_.end(), spawned, it++);
      task.Start();
    }
    return started;
  }

  const Clock* const clock_;
  bool stopping_ = false;
  std::vector<Event*> interrupted_;
  std::list<Task<bool>> tasks_;
  std::list<Task<bool>> spawned_;  // Not yet started.
  std::vector<std::coroutine_handle<>> ready_;
  std::multimap<int64_t, std::coroutine_handle<>> sleepers_;
};

}  // namespace cell
