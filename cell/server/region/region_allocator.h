// RegionAllocator creates a worker's new regions. A new region is in the region table before it is part of the tree or
// of a Pilaf table, so that a crash leaves no unknown region behind. Call it on the worker's thread.
#pragma once

#include "cell/base/event.h"
#include "cell/cluster/membership.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/region/log_flusher.h"
#include "cell/server/region/regions.h"
#include "cell/server/sched/scheduler.h"

namespace cell {

class RegionAllocator {
 public:
  // All arguments must outlive this.
  explicit RegionAllocator(const WorkerContext& context)
      : self_(context.self),
        membership_(context.membership),
        scheduler_(context.scheduler),
        regions_(context.regions),
        logs_(context.logs) {}

  // Prepares memory for `regions` more regions, a bit at a time. Returns ResourceExhausted if the worker may not hold
  // that many, or if there is no memory, and Cancelled if the worker ends.
  Task<absl::Status> PrepareMemory(uint32_t regions);
  // Creates an empty region, with `split_parent` as its split parent in the region table, and its log if regions have
  // logs. The region is kFilling, and claimed for that. Returns ResourceExhausted if the worker holds or recovers as
  // many regions as it may, Aborted if `split_parent` has another owner by now, and Cancelled if the worker ends.
  Task<absl::StatusOr<RegionClaim>> Allocate(RegionContent content, uint32_t split_parent);
  // A region that was just created, and its first epoch.
  struct NewRegion {
    uint32_t id = 0;
    uint64_t epoch = 0;

    static NewRegion Of(const HeldRegion& region) { return {region.region(), region.epoch()}; }
  };
  // Discards a region that never became part of anything: removes it from the table, drops it, and removes its log if
  // `remove_log`. Returns false if it stays in the table because another worker owns it or this worker ends.
  Task<bool> Discard(NewRegion region, bool remove_log = true);

 private:
  // Adds a region to the table.
  Task<absl::StatusOr<NewRegion>> Add(uint32_t split_parent);
  bool IsNew(const RegionTable& table, NewRegion region) const;

  const WorkerId self_;
  Membership* const membership_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  LogFlusher* const logs_;
  Mutex adding_;  // One at a time. Otherwise an id that is not known to be taken could be used by two.
};

}  // namespace cell
