// Event and Mutex let coroutines of one thread wait for each other.
//
// A coroutine that may continue is handed to its executor. It never runs inside the call that releases it.
#pragma once

#include <coroutine>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "cell/base/check.h"

namespace cell {

// Resumes coroutines that are ready to continue.
class Executor {
 public:
  virtual void Schedule(std::coroutine_handle<> ready) = 0;

 protected:
  ~Executor() = default;
};

// Wakes coroutines that wait for a change.
class Event {
 public:
  Event() = default;
  ~Event() { Notify(); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  struct Awaiter {
    Event* event;
    Executor* executor;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) { event->waiters_.emplace_back(executor, awaiting); }
    void await_resume() const noexcept {}
  };
  // Suspends until the next Notify, or until the event is destroyed. After it resumes, the awaiter must check its
  // condition again: other coroutines may have run first, and the event may be gone.
  Awaiter Wait(Executor* executor) { return {this, executor}; }

  // Releases all coroutines that are waiting now.
  void Notify() {
    if (waiters_.empty()) [[likely]]
      return;
    for (const auto& [executor, waiter] : std::exchange(waiters_, {})) executor->Schedule(waiter);
  }

 private:
  std::vector<std::pair<Executor*, std::coroutine_handle<>>> waiters_;
};

// Provides mutual exclusion between coroutines. Waiters get the mutex in the order in which they asked.
class Mutex {
 public:
  // Holds the mutex until it is destroyed.
  class Guard {
   public:
    Guard(Guard&& from) noexcept : mutex_(std::exchange(from.mutex_, nullptr)) {}
    Guard& operator=(Guard&&) = delete;
    ~Guard() {
      if (mutex_ != nullptr) mutex_->Unlock();
    }

   private:
    friend class Mutex;
    explicit Guard(Mutex* mutex) : mutex_(mutex) {}
    Mutex* mutex_;
  };

  Mutex() = default;
  ~Mutex() { CELL_CHECK(waiters_.empty()); }
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  struct Awaiter {
    Mutex* mutex;
    Executor* executor;
    bool await_ready() const noexcept { return !std::exchange(mutex->held_, true); }
    void await_suspend(std::coroutine_handle<> awaiting) { mutex->waiters_.emplace_back(executor, awaiting); }
    Guard await_resume() const noexcept { return Guard(mutex); }
  };
  // Waits for the mutex and returns a Guard. Use as co_await Lock(executor).
  Awaiter Lock(Executor* executor) { return {this, executor}; }
  // Returns nullopt if the mutex is held.
  std::optional<Guard> TryLock() {
    if (std::exchange(held_, true)) return std::nullopt;
    return Guard(this);
  }

 private:
  void Unlock() {
    if (waiters_.empty()) {
      held_ = false;
      return;
    }
    const auto [executor, next] = waiters_.front();  // The mutex stays held: it passes to this waiter.
    waiters_.pop_front();
    executor->Schedule(next);
  }

  bool held_ = false;
  std::deque<std::pair<Executor*, std::coroutine_handle<>>> waiters_;
};

}  // namespace cell
