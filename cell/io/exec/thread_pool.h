// ThreadPool: runs functions that block, so that a worker's thread never waits for a disk.
//
// Functions run on other threads, several at a time. Poll reports the finished ones on the thread that owns the pool.
// Nothing is cancelled: the owner calls Poll until the pool is idle before it destroys anything that the work refers
// to.
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
  // Runs `work` on another thread, or at another time, and then `done` inside Poll.
  virtual void Run(Work work, Work done) = 0;
  // Calls `done` of all work that has finished. Returns how many.
  virtual size_t Poll() = 0;
  virtual bool idle() const = 0;
};

// co_await RunInPool(pool, work): what `work` returns. It must live until then: a local of the coroutine, since g++
// 12 destroys temporaries of a co_await twice.
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

// A pool with threads of its own.
class OsThreadPool : public ThreadPool {
 public:
  // The threads call `wake` whenever Poll has something to report.
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
  size_t running_ = 0;  // By the owner's count.
  std::mutex mutex_;    // Held for what follows.
  std::condition_variable ready_;
  std::deque<Job> waiting_;
  std::vector<Work> done_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace cell
