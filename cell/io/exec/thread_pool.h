// ThreadPool is a pool for blocking work, so that a worker's thread never waits for a disk.
//
// Work is a function that runs on another thread, concurrently with other work. Its completion runs in Poll, on the
// thread that owns this. Nothing is cancelled: before the owner destroys objects that work refers to, it must call Poll
// until the pool is idle.
#pragma once

#include <condition_variable>
#include <coroutine>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cell/base/check.h"

namespace cell {

class ThreadPool {
 public:
  using Work = std::function<void()>;

  virtual ~ThreadPool() = default;
  // Runs `work` in another thread, or at another time, and then `done` in Poll.
  virtual void Run(Work work, Work done) = 0;
  // Runs the completions of finished work and returns their number.
  virtual size_t Poll() = 0;
  virtual bool idle() const = 0;
};

// Runs a blocking function on the pool and returns its result: co_await RunInPool(pool, work). `work` must live
// until then. It should be a local variable of the coroutine, because g++ 12 destroys temporaries of a co_await twice.
struct RunInPool {
  using Work = std::function<absl::Status()>;

  ThreadPool* pool;
  const Work* work;
  absl::Status status;

  RunInPool(ThreadPool* pool, const Work& work) : pool(pool), work(&work) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> awaiting) {
    pool->Run([this] { status = (*work)(); }, [awaiting] { awaiting.resume(); });
  }
  absl::Status await_resume() { return std::move(status); }
};

// Runs work on threads of its own.
class OsThreadPool : public ThreadPool {
 public:
  // These threads call `wake` whenever Poll has a completion to run.
  OsThreadPool(size_t threads, Work wake) : wake_(std::move(wake)) {
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Serve(); });
  }
  ~OsThreadPool() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void Run(Work work, Work done) override {
    ++running_;
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back({std::move(work), std::move(done)});
    }
    ready_.notify_one();
  }
  size_t Poll() override {
    if (running_ == 0) return 0;
    std::vector<Work> now;
    {
      const std::lock_guard lock(mutex_);
      now.swap(done_);
    }
    running_ -= now.size();
    for (const Work& done : now) done();
    return now.size();
  }
  bool idle() const override { return running_ == 0; }

 private:
  struct Job {
    Work work, done;
  };

  void Serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ready_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      Job job = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      job.work();
      lock.lock();
      done_.push_back(std::move(job.done));
      wake_();
    }
  }

  const Work wake_;
  size_t running_ = 0;  // Counted by the owner's thread.
  std::mutex mutex_;    // Guards the members below.
  std::condition_variable ready_;
  std::deque<Job> waiting_;
  std::vector<Work> done_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace cell
