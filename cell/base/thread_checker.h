// ThreadChecker: ends the process when what belongs to one thread is touched by another.
//
// A simulation runs everything in one thread, where no tool for data races could see such a mistake. It therefore runs
// what a real cluster runs elsewhere (the work of a thread pool, the changes of a membership) as kOther.
#pragma once

#include "cell/base/check.h"

namespace cell {

// While one of them is in scope, its thread passes for another one, or for itself again. They nest.
class ThreadScope {
 public:
  enum class Which { kOwn, kOther };

  explicit ThreadScope(Which which) : before_(pretended_) { pretended_ = which == Which::kOwn ? nullptr : this; }
  ~ThreadScope() { pretended_ = before_; }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

  // Returns whether the calling thread passes for itself.
  static bool own() { return pretended_ == nullptr; }
  // Returns what the calling thread is told apart by.
  static const void* current() { return pretended_ != nullptr ? pretended_ : &own_; }

 private:
  static inline thread_local const void* pretended_ = nullptr;  // Null: it is itself.
  static inline thread_local char own_ = 0;

  const void* const before_;
};

class ThreadChecker {
 public:
  // Takes the first thread that calls it for the owner. A CHECK fails in any other.
  void Check() const {
    const void* const current = ThreadScope::current();
    if (owner_ == nullptr) owner_ = current;
    CELL_CHECK_EQ(owner_, current);
  }
  // Lets the next thread that calls Check be the owner. The present one must have ended its work.
  void HandOver() { owner_ = nullptr; }

 private:
  mutable const void* owner_ = nullptr;
};

}  // namespace cell
