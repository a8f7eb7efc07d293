// TableRefresher keeps what a worker knows of the region table from growing old if its membership does not follow the
// cluster by itself (Membership::watches). So a change of grants or rules that another server has made counts here,
// too.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>

#include "cell/base/clock.h"
#include "cell/cluster/membership.h"
#include "cell/server/context/worker_context.h"

namespace cell {

class TableRefresher {
 public:
  // `every_ns`: kNever, or the pause between two looks.
  static constexpr int64_t kNever = INT64_MAX;
  TableRefresher(const WorkerContext& context, int64_t every_ns)
      : clock_(context.clock),
        membership_(context.membership),
        every_ns_(every_ns),
        at_ns_(every_ns == kNever ? kNever : INT64_MIN) {}

  // Begins to read the region table if it is time to.
  void Step() {
    if (NextNs() == kNever || clock_->NowNs() < at_ns_) return;
    at_ns_ = clock_->NowNs() + every_ns_;
    reading_ = true;
    membership_->Refresh([this](const absl::Status&) { reading_ = false; });
  }
  // Returns when Step has something to do.
  int64_t NextNs() const { return reading_ || membership_->watches() ? kNever : at_ns_; }

 private:
  const Clock* const clock_;
  Membership* const membership_;
  const int64_t every_ns_;
  int64_t at_ns_;
  bool reading_ = false;
};

}  // namespace cell
