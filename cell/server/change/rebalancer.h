// Rebalancer migrates a worker's regions to workers that hold less (placement.h), one of them when a split finds no
// room here and another worker has some, and all of them while its server is drained. Not thread-safe: used only on the
// worker's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "cell/base/clock.h"
#include "cell/base/event.h"
#include "cell/base/random.h"
#include "cell/base/repeats.h"
#include "cell/base/task.h"
#include "cell/server/change/migrator.h"
#include "cell/server/context/worker_context.h"

namespace cell {

struct RebalancerOptions {
  bool enabled = true;  // Rebalance automatically.
  int64_t every_ns = 100'000'000;
};

class Rebalancer {
 public:
  // All arguments must outlive this.
  Rebalancer(const WorkerContext& context, Migrator* migrator, RebalancerOptions options);

  // Begins to migrate a region if one is due.
  void Step();

  // Begins to migrate the region that holds least to a worker that may hold one more, because a split has found no room
  // here. Returns whether a region is being migrated, so that there will be room.
  bool MakeRoom();

  // Migrates regions until weights are about equal. Adds their number to *moved.
  Task<absl::Status> Rebalance(uint64_t* moved);
  // Sets in the region table whether this server should hold no regions. Returns FailedPrecondition if the other
  // servers have no room for its regions.
  Task<absl::Status> SetDraining(bool draining);
  bool draining() const;
  // Returns why no region could be migrated for kDrainPatienceNs while the server is drained, or OK.
  absl::Status DrainStuck() const;

  void set_enabled(bool enabled) { options_.enabled = enabled; }

 private:
  // A migration that is to be made.
  struct Transfer {
    uint32_t region;
    WorkerId to;
  };
  // Chooses a region and a target so that weights become more equal. Asks at most `asked_max` other workers for theirs.
  Task<std::optional<Transfer>> ChooseTransfer(size_t asked_max);
  Task<bool> Balance(Mutex::Guard balancing);
  Task<bool> Drain(Mutex::Guard balancing);
  // Migrates a region away. After a failure, begins no other for a while.
  Task<bool> MigrateAway(Transfer transfer, Mutex::Guard balancing);
  // Returns the regions that may be migrated to make weights equal, or to make room.
  std::vector<const HeldRegion*> Movable() const;
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
  int64_t failed_until_ns_ = INT64_MIN;  // A migration has just failed.
  Mutex balancing_;                      // Held while balancing or draining.
  Repeats repeats_;
  absl::Status drain_status_;           // Result of the last migration of a drain...
  int64_t drain_failing_since_ns_ = 0;  // ...and since when it has been an error.
};

}  // namespace cell
