#include "cell/io/net/closer.h"

#include <system_error>
#include <thread>

namespace cell {

void Closer::Close(Fd fd) {
  const std::lock_guard lock(state_->mutex);
  state_->waiting.push_back(std::move(fd));
  if (state_->threads >= kThreadsMax) return;
  ++state_->threads;
  try {
    std::thread(&Closer::Run, state_).detach();
  } catch (const std::system_error&) {  // The system has no thread now. The descriptor waits for the thread of a later
                                        // Close.
    --state_->threads;
  }
}

void Closer::Run(const std::shared_ptr<State>& state) {
  for (;;) {
    Fd next;
    {
      const std::lock_guard lock(state->mutex);
      if (state->waiting.empty()) {
        --state->threads;
        return;
      }
      next = std::move(state->waiting.front());
      state->waiting.pop_front();
    }
  }
}

}  // namespace cell
