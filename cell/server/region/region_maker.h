// RegionMaker: new regions of a worker, which the region table knows before they are part of anything. One thread: the
// worker's.
#pragma once

#include "cell/cluster/membership.h"
#include "cell/server/region/log_keeper.h"
#include "cell/server/region/regions.h"
#include "cell/server/sched/turns.h"

namespace cell {

class RegionMaker {
 public:
  // All must outlive this.
  RegionMaker(Membership* membership, Regions* regions, LogKeeper* logs, Turns* turns, WorkerId self)
      : membership_(membership), regions_(regions), logs_(logs), turns_(turns), self_(std::move(self)) {}

  // An empty region, of which the table says that it is made for `made_for`; with its log, if there are logs. It is
  // busy, and not joined.
  Task<absl::StatusOr<HeldRegion*>> Make(RegionContent content, uint32_t made_for);
  // A region that never was part of anything, and is not known to anybody but the table. Waits until it is out of that.
  // remove_log: it has a log, which goes with it.
  Task<bool> Abandon(uint32_t region, bool remove_log = true);
  // Its log goes, too.
  Task<bool> RemoveLog(uint32_t region);

 private:
  // Into the table; its id.
  Task<absl::StatusOr<uint32_t>> Add(uint32_t made_for);
  bool IsNew(const RegionTable& table, uint32_t region) const;

  Membership* const membership_;
  Regions* const regions_;
  LogKeeper* const logs_;
  Turns* const turns_;
  const WorkerId self_;
  bool adding_ = false;
};

}  // namespace cell
