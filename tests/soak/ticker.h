// Ticker measures how long this process was ever kept from running: stopped, or without a core. It uses a thread of its
// own, so that a client that hangs is not mistaken for one that could not run.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

namespace cell {

// Returns the time of a clock that goes on steadily.
inline int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Ticker {
 public:
  Ticker() : thread_([this] { Run(); }) {}
  ~Ticker() {
    stop_ = true;
    thread_.join();
  }
  // Includes the time since the thread last ran, because this may be called before it runs again.
  int64_t kept_ns() const {
    const std::lock_guard lock(mutex_);
    return kept_ns_ + std::max<int64_t>(0, NowNs() - last_ns_ - kTickNs);
  }

 private:
  static constexpr int64_t kTickNs = 5'000'000;

  void Run() {
    while (!stop_) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(kTickNs));
      const std::lock_guard lock(mutex_);
      const int64_t now_ns = NowNs();
      kept_ns_ += std::max<int64_t>(0, now_ns - last_ns_ - kTickNs);
      last_ns_ = now_ns;
    }
  }

  std::atomic<bool> stop_ = false;
  mutable std::mutex mutex_;
  int64_t last_ns_ = NowNs();
  int64_t kept_ns_ = 0;
  std::thread thread_;
};

}  // namespace cell
