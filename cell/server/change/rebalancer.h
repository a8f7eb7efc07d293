// Rebalancer migrates a worker's regions to workers that hold less (placement.h), one of them when a split finds no
// room here and another worker has some, and all of them while its server is drained. Not thread-safe: used only on the
// worker's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
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
  int64_t weigh_timeout_ns = 200'000'000;  // For the answer how much a worker holds. Writes may wait for it.
  // If no worker has room, and a region has gone from the region table less than this long ago, regions are being
  // joined, and whoever needs room waits.
  int64_t joins_patience_ns = 1'000'000'000;
};

class Rebalancer {
 public:
  // All arguments must outlive this.
  Rebalancer(const WorkerContext& context, Migrator* migrator, RebalancerOptions options);

  // Begins to migrate a region if one is due.
  void Step();

  // Begins to migrate the region that holds least to a worker that may hold one more, because one was to be made and
  // there is no room here. Returns whether to wait: a region is being migrated, or regions are being joined somewhere.
  // Returns false if no worker has room, or has had a moment ago.
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
  struct Target {
    WorkerId worker;
    uint64_t bytes_used;
  };
  // Asks workers in this order for their weights, until `answers_max` have answered. Returns the lightest of these.
  // Those that do not answer are not asked again for a while.
  Task<std::optional<Target>> Lightest(std::vector<WorkerId> targets, size_t answers_max);
  // Chooses a region and a target so that weights become more equal. Asks at most `asked_max` other workers for theirs.
  Task<std::optional<Transfer>> ChooseTransfer(size_t asked_max);
  Task<bool> Balance(Mutex::Guard balancing);
  Task<bool> Drain(Mutex::Guard balancing);
  // Migrates a region away. After a failure, begins no other for a while.
  Task<bool> MigrateAway(Transfer transfer, Mutex::Guard balancing);
  Task<bool> MakeRoomAlone(Mutex::Guard balancing);
  // Compares the region table with what it was the last time.
  void NoteGoneRegions();
  // Returns the regions that are not being changed. Those of routes hold little and are on every search's path: they
  // move only if no other can.
  std::vector<const HeldRegion*> Movable(bool with_routes) const;
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
  uint64_t seen_version_ = 0;                        // Of the table...
  std::vector<std::pair<uint32_t, uint64_t>> seen_;  // ...its regions, and their first epochs.
  int64_t gone_at_ns_ = INT64_MIN / 2;               // When one of them was last found to have gone.
  int64_t room_soon_until_ns_ = INT64_MIN;
  int64_t no_room_until_ns_ = INT64_MIN;         // No worker had room.
  std::map<WorkerId, int64_t> pauses_until_ns_;  // Workers that have not answered, or have refused a region.
  Mutex balancing_;                              // Held while balancing or draining.
  Repeats repeats_;
  absl::Status drain_status_;           // Result of the last migration of a drain...
  int64_t drain_failing_since_ns_ = 0;  // ...and since when it has been an error.
};

}  // namespace cell
