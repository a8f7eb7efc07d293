// Closer closes descriptors whose close may block, on threads of its own.
//
// The last close of a lingering TCP socket waits for its peer, and that of a file for its file system. Their
// opener decides both. At most kThreadsMax closes wait at the same time; other descriptors stay open until one of them
// ends.
//
// Thread-safe. The threads outlive a Closer that is destroyed, and keep nobody waiting.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "cell/io/net/fd.h"

namespace cell {

class Closer {
 public:
  static constexpr size_t kThreadsMax = 32;

  void Close(Fd fd);

 private:
  struct State {
    std::mutex mutex;
    std::deque<Fd> waiting;  // Guarded by mutex.
    size_t threads = 0;      // Guarded by mutex.
  };

  static void Run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace cell
