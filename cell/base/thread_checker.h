// ThreadChecker ends the process when a thread touches an object that belongs to another thread.
//
// A simulation runs everything in one thread, where no race detector could see such a mistake. It therefore runs the
// work that a real cluster runs on other threads (of a thread pool, or of a membership's changes) as kOther.
#pragma once

#include "cell/base/check.h"

namespace cell {

// Makes the calling thread pass for another thread, or for itself again, while in scope. Scopes nest.
class ThreadScope {
 public:
  enum class Which { kOwn, kOther };

  explicit ThreadScope(Which which) : before_(pretended_) { pretended_ = which == Which::kOwn ? nullptr : this; }
  ~ThreadScope() { pretended_ = before_; }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

  // Returns whether the calling thread passes for itself.
  static bool own() { return pretended_ == nullptr; }
  // Returns an identifier of the calling thread.
  static const void* current() { return pretended_ != nullptr ? pretended_ : &own_; }

 private:
  static inline thread_local const void* pretended_ = nullptr;  // Null: the thread passes for itself.
  static inline thread_local char own_ = 0;

  const void* const before_;
};

class ThreadChecker {
 public:
  // Makes the first thread that calls it the owner. CHECK-fails in any other thread.
  void Check() const {
    const void* const current = ThreadScope::current();
    if (owner_ == current) return;
    CELL_CHECK(owner_ == nullptr);  // Otherwise another thread is the owner.
    owner_ = current;
  }
  // Makes the next thread that calls Check the owner. REQUIRES: the current owner has finished its work.
  void HandOver() { owner_ = nullptr; }

 private:
  mutable const void* owner_ = nullptr;
};

}  // namespace cell
