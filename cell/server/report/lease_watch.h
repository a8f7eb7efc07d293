// LeaseWatch logs when a worker's lease on its membership has lapsed, and when it was renewed. Not thread-safe: used
// only on the worker's thread.
#pragma once

#include <cstdint>

#include "cell/server/context/worker_context.h"

namespace cell {

class LeaseWatch {
 public:
  explicit LeaseWatch(const WorkerContext& context);

  // Logs a change since the last call.
  void Step();

 private:
  const WorkerId self_;
  const Clock* const clock_;
  const Membership* const membership_;
  bool lapsed_ = false;
  int64_t look_at_ns_ = 0;
};

}  // namespace cell
