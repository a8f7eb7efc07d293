// WakeFunction lets the threads of a membership wake the thread that owns it, for as long as the owner wants.
//
// Thread-safe.
#pragma once

#include <functional>
#include <mutex>
#include <utility>

namespace cell {

class WakeFunction {
 public:
  // Sets the function that Call calls. It must not block. Null: Call does nothing. When this returns, the former
  // function is not being called and will not be called any more, so what it refers to may be destroyed.
  void Set(std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  void Call() {
    const std::lock_guard lock(mutex_);  // Held during the call, so that Set waits for its end.
    if (wake_) wake_();
  }

 private:
  std::mutex mutex_;
  std::function<void()> wake_;  // Guarded by mutex_.
};

}  // namespace cell
