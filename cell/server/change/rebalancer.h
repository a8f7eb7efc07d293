// Rebalancer: gives a worker's regions to workers that hold less (placement.h), and all of them away while its server
// is drained. One thread: the worker's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "cell/base/clock.h"
#include "cell/base/event.h"
#include "cell/base/random.h"
#include "cell/base/repeats.h"
#include "cell/base/task.h"
#include "cell/server/change/migrator.h"
#include "cell/server/worker_context.h"

namespace cell {

struct RebalancerOptions {
  bool enabled = true;  // Without being asked.
  int64_t every_ns = 100'000'000;
};

class Rebalancer {
 public:
  // All must outlive this.
  Rebalancer(const WorkerContext& context, Migrator* migrator, RebalancerOptions options);

  // Begins to give a region away, if one is due.
  void Step();

  // Gives regions away until weights are about equal. Adds their number to *moved.
  Task<absl::Status> Rebalance(uint64_t* moved);
  // Sets in the region table whether this server shall hold no regions. Returns FailedPrecondition if the others have
  // no room for what it holds.
  Task<absl::Status> SetDraining(bool draining);
  bool draining() const;
  // Returns why no region could be given away for kDrainPatienceNs while the server is drained, and OK otherwise.
  absl::Status DrainStuck() const;

  void set_enabled(bool enabled) { options_.enabled = enabled; }

 private:
  // A region that is to go to another worker.
  struct Transfer {
    uint32_t region;
    WorkerId to;
  };
  // Chooses what to give to whom, so that weights get more equal. Asks at most so many other workers for theirs.
  Task<std::optional<Transfer>> ChooseTransfer(size_t asked_max);
  Task<bool> Balance(Mutex::Guard balancing);
  Task<bool> Drain(Mutex::Guard balancing);
  void ReportRefused(uint32_t region, const WorkerId& to, const absl::Status& why);
  void NoteDrained(const absl::Status& status);

  const WorkerId self_;
  const Clock* const clock_;
  Membership* const membership_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  Peers* const peers_;
  Migrator* const migrator_;
  RebalancerOptions options_;
  Random random_;
  int64_t look_at_ns_ = 0;
  int64_t balance_at_ns_ = 0;
  Mutex balancing_;  // Held by whoever balances or drains.
  Repeats repeats_;
  absl::Status drain_status_;           // Of the last region that was to be given away...
  int64_t drain_failing_since_ns_ = 0;  // ...and since when it is an error.
};

}  // namespace cell
