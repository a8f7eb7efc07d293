// Event and Mutex, for coroutines of one thread that wait for each other.
//
// A coroutine that may go on is handed to its executor, and so never runs inside the call that lets it.
#pragma once

#include <coroutine>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "cell/base/check.h"

namespace cell {

// Resumes coroutines that may go on.
class Executor {
 public:
  virtual void Schedule(std::coroutine_handle<> ready) = 0;

 protected:
  ~Executor() = default;
};

// Something has changed that coroutines wait for.
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
  // Suspends until the next Notify, or the event's end. The awaiter looks again for what it waits for, since others may
  // have come first, and the event may have been the end of that.
  Awaiter Wait(Executor* executor) { return {this, executor}; }

  // Lets all go on that wait now.
  void Notify() {
    if (waiters_.empty()) [[likely]]
      return;
    for (const auto& [executor, waiter] : std::exchange(waiters_, {})) executor->Schedule(waiter);
  }

 private:
  std::vector<std::pair<Executor*, std::coroutine_handle<>>> waiters_;
};

// Held by one coroutine at a time. Those that wait get it in their order.
class Mutex {
 public:
  // Holds the mutex until it ends.
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
  // co_await Lock(executor): waits until it holds the mutex.
  Awaiter Lock(Executor* executor) { return {this, executor}; }
  // Returns nothing if it is held.
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
    const auto [executor, next] = waiters_.front();  // It holds the mutex from here on.
    waiters_.pop_front();
    executor->Schedule(next);
  }

  bool held_ = false;
  std::deque<std::pair<Executor*, std::coroutine_handle<>>> waiters_;
};

}  // namespace cell
