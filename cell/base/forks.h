// Forks tells a process from those that it has forked. What has threads, or shares sockets and descriptors with the
// kernel, is not to be used or ended by a child: its parent goes on with it.
#pragma once

#include <pthread.h>

#include <atomic>

namespace cell {

inline std::atomic<int> g_forks = 0;

// Returns another number in a process that was forked since the first call than in its parent. Takes a few nanoseconds.
// Any thread may call it.
inline int Forks() {
  static const int counted =
      ::pthread_atfork(nullptr, nullptr, [] { g_forks.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(counted);
  return g_forks.load(std::memory_order_relaxed);
}

}  // namespace cell
