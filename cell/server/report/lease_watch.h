// LeaseWatch: reports when a worker's lease on its membership has lapsed, and when it was renewed. One thread: the
// worker's.
#pragma once

#include <cstdint>

#include "cell/server/worker_context.h"

namespace cell {

class LeaseWatch {
 public:
  explicit LeaseWatch(const WorkerContext& context);

  // Logs a change since the last look.
  void Step();

 private:
  const WorkerId self_;
  const Clock* const clock_;
  const Membership* const membership_;
  bool lapsed_ = false;
  int64_t look_at_ns_ = 0;
};

}  // namespace cell
