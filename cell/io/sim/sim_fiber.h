// SimFiber runs blocking work one step at a time in a simulation.
//
// The work has a stack of its own. Each SimFiles call in it pauses first, so that other events happen between two steps
// of one function, for example between a log's append, its sync and its look for fences. Not thread-safe.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cell/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace cell {

class SimFiber {
 public:
  explicit SimFiber(std::function<void()> work) : work_(std::move(work)), stack_(TakeStack()) {
#if defined(__SANITIZE_THREAD__)
    tsan_ = __tsan_create_fiber(0);
#endif
    CELL_CHECK_EQ(::getcontext(&own_), 0);
    own_.uc_stack.ss_sp = stack_;
    own_.uc_stack.ss_size = kStackBytes;
    own_.uc_link = nullptr;
    const auto self = reinterpret_cast<uintptr_t>(this);
    ::makecontext(&own_, reinterpret_cast<void (*)()>(&SimFiber::Main), 2, static_cast<unsigned>(self >> 32),
                  static_cast<unsigned>(self));
  }
  // Abandons work that has not ended. Objects that its stack refers to stay.
  ~SimFiber() {
#if defined(__SANITIZE_THREAD__)
    if (ended_) __tsan_destroy_fiber(tsan_);
#endif
    (ended_ ? free_stacks_ : forgotten_)->push_back(stack_);
  }
  SimFiber(const SimFiber&) = delete;
  SimFiber& operator=(const SimFiber&) = delete;

  // Continues until the work pauses or ends.
  void Resume() {
    CELL_CHECK(!ended_);
    SimFiber* const resumer = std::exchange(current_, this);
    Switch(&resumer_, &own_, /*back=*/false);
    current_ = resumer;
  }
  bool ended() const { return ended_; }
  // Returns how many times longer than usual its current pause takes.
  int slowness() const { return slowness_; }

  // Returns the running fiber, or null if there is none.
  static SimFiber* current() { return current_; }
  // Pauses. REQUIRES: the caller is the fiber's work.
  void Pause(int slowness) {
    slowness_ = slowness;
    Switch(&own_, &resumer_, /*back=*/true);
  }

 private:
  static constexpr size_t kStackBytes = size_t{512} << 10;

  static char* TakeStack() {
    if (free_stacks_->empty()) return static_cast<char*>(std::malloc(kStackBytes));
    char* const stack = free_stacks_->back();
    free_stacks_->pop_back();
    return stack;
  }
  static void Main(unsigned high, unsigned low) {
    auto* const self = reinterpret_cast<SimFiber*>(uintptr_t{high} << 32 | low);
    self->Arrived(nullptr);
    self->work_();
    self->work_ = nullptr;
    self->ended_ = true;
    self->Switch(&self->own_, &self->resumer_, /*back=*/true);
  }

  void Switch(ucontext_t* from, ucontext_t* to, [[maybe_unused]] bool back) {
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(back && ended_ ? nullptr : &fake, back ? resumer_stack_ : stack_,
                                   back ? resumer_stack_bytes_ : kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
    if (!back) resumer_tsan_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(back ? resumer_tsan_ : tsan_, 0);
#endif
    CELL_CHECK_EQ(::swapcontext(from, to), 0);
#if defined(__SANITIZE_ADDRESS__)
    if (back) {
      Arrived(fake);
    } else {
      __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
    }
#endif
  }
  // Runs on the fiber's stack after a switch from its resumer's.
  void Arrived([[maybe_unused]] void* fake) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, &resumer_stack_, &resumer_stack_bytes_);
#endif
  }

  static inline SimFiber* current_ = nullptr;
  // Never emptied, so that objects to which the stacks of abandoned work refer are not reported as leaks.
  static inline auto* const free_stacks_ = new std::vector<char*>;
  static inline auto* const forgotten_ = new std::vector<char*>;

  std::function<void()> work_;
  char* const stack_;
  ucontext_t own_{}, resumer_{};
  bool ended_ = false;
  int slowness_ = 1;
#if defined(__SANITIZE_ADDRESS__)
  const void* resumer_stack_ = nullptr;
  size_t resumer_stack_bytes_ = 0;
#endif
#if defined(__SANITIZE_THREAD__)
  void* tsan_ = nullptr;
  void* resumer_tsan_ = nullptr;
#endif
};

}  // namespace cell
