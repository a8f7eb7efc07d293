// Task<T> is a lazy C++20 coroutine that runs on the thread that awaits it.
//
// A Task starts when it is awaited (or Started) and resumes its awaiter when it ends. It has one awaiter and one
// result. Not thread-safe: a Task lives on one thread. A Task that has started must not be destroyed before it ends,
// because the operation that it awaits still points into its frame.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "cell/base/check.h"

namespace cell {

template <typename T>
class [[nodiscard]] Task {
 public:
  struct promise_type;
  using Handle = std::coroutine_handle<promise_type>;

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  // Runs to the first suspension (or to the end) without awaiting the result.
  void Start() { handle_.resume(); }
  bool done() const { return handle_.done(); }
  // Returns the result. REQUIRES: done().
  T Take() { return *std::move(handle_.promise().result); }

  // Awaits the result of a task that was started before.
  struct JoinAwaiter {
    Task* task;
    bool await_ready() const noexcept { return task->done(); }
    void await_suspend(std::coroutine_handle<> awaiter) noexcept { task->handle_.promise().awaiter = awaiter; }
    T await_resume() { return task->Take(); }
  };
  JoinAwaiter Join() { return {this}; }

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiter) noexcept {
    handle_.promise().awaiter = awaiter;
    return handle_;
  }
  T await_resume() { return Take(); }

 private:
  explicit Task(Handle handle) : handle_(handle) {}

  Handle handle_;
};

template <typename T>
struct Task<T>::promise_type {
  struct ResumeAwaiter {
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(Handle ended) noexcept {
      const std::coroutine_handle<> awaiter = ended.promise().awaiter;
      return awaiter ? awaiter : std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };

  Task get_return_object() { return Task(Handle::from_promise(*this)); }
  std::suspend_always initial_suspend() const noexcept { return {}; }
  ResumeAwaiter final_suspend() const noexcept { return {}; }
  template <typename U>
  void return_value(U&& value) {
    result.emplace(std::forward<U>(value));
  }
  void unhandled_exception() { std::terminate(); }

  std::coroutine_handle<> awaiter;
  std::optional<T> result;
};

}  // namespace cell
