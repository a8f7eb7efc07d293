// Runs the coroutines of a worker in addition to its requests. Each continues for a bit in each Step. Not thread-safe:
// used only on the worker's thread.
//
// A coroutine runs only in Step, even its first line. The caller of Begin may therefore be in the middle of a loop or
// of a reply: nothing that the coroutine does happens before that has ended.
#pragma once

#include <coroutine>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "cell/base/event.h"
#include "cell/base/task.h"
#include "cell/io/fabric/fabric.h"

namespace cell {

class Turns : public Executor {
 public:
  explicit Turns(Fabric* fabric) : fabric_(fabric) {}
  ~Turns() { CELL_CHECK(idle()); }

  // Starts the task in the next Step.
  void Begin(Task<bool> task) { begun_.push_back(std::move(task)); }

  struct TurnAwaiter {
    Turns* turns;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) { turns->waiters_.push_back(awaiting); }
    void await_resume() const noexcept {}
  };
  struct SleepAwaiter {
    Turns* turns;
    int64_t until_ns;
    bool await_ready() const noexcept { return until_ns == INT64_MIN; }
    void await_suspend(std::coroutine_handle<> awaiting) { turns->sleepers_.emplace(until_ns, awaiting); }
    void await_resume() const noexcept {}
  };
  TurnAwaiter Next() { return {this}; }
  // Sleeps for `ns`, or not at all when everything must stop.
  SleepAwaiter Sleep(int64_t ns) { return {this, stopping_ ? INT64_MIN : fabric_->NowNs() + ns}; }

  // Resumes a coroutine in the next Step.
  void Schedule(std::coroutine_handle<> ready) override { waiters_.push_back(ready); }

  // Returns whether tasks must end as soon as possible.
  bool stopping() const { return stopping_; }
  void Stop() {
    stopping_ = true;
    for (Event* event : interrupted_) event->Notify();
  }
  // Makes Stop resume those that wait for the event, which must outlive this.
  void InterruptOnStop(Event* event) { interrupted_.push_back(event); }
  bool idle() const { return tasks_.empty() && begun_.empty(); }

  // Runs what is ready. Returns the number of tasks that started or continued.
  size_t Step() {
    std::vector<std::coroutine_handle<>> now;
    now.swap(waiters_);
    for (const std::coroutine_handle<> waiter : now) waiter.resume();
    size_t done = now.size() + StartBegun();
    const int64_t now_ns = fabric_->NowNs();
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
  // Returns when Step has something to do, or INT64_MAX if there is nothing.
  int64_t NextNs() const {
    if (!waiters_.empty() || !begun_.empty()) return 0;
    return sleepers_.empty() ? INT64_MAX : sleepers_.begin()->first;
  }

 private:
  size_t StartBegun() {
    std::list<Task<bool>> begun;  // Tasks that these begin start in the next Step.
    begun.swap(begun_);
    const size_t started = begun.size();
    for (auto it = begun.begin(); it != begun.end();) {
      Task<bool>& task = *it;
      tasks_.splice(tasks_.end(), begun, it++);
      task.Start();
    }
    return started;
  }

  Fabric* const fabric_;
  bool stopping_ = false;
  std::vector<Event*> interrupted_;
  std::list<Task<bool>> tasks_;
  std::list<Task<bool>> begun_;  // Not yet started.
  std::vector<std::coroutine_handle<>> waiters_;
  std::multimap<int64_t, std::coroutine_handle<>> sleepers_;
};

}  // namespace cell
