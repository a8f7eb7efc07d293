// Splitter splits a worker's regions before they are full, while the worker serves them (thesis, 4.2).
//
// The order of a split's steps makes it safe to die at any of them:
//
//   the new region enters the region table, with its split parent        nobody waits
//   pairs are copied, some at a time                                      nobody waits
//   with logs: the new region's log is on disk, then the cut's record     writes to the region wait
//   the cut
//   the region table records it                                           in a table's upper part, writes and reads of
//                                                                         missing keys wait for it
//   a meganode's route is published to the tier above                     nobody waits: its left neighbour leads to it
//   what was copied is freed, a bit at a time                             nobody waits
//
// For tables the thesis (3.4) creates a new one of twice the size instead, and makes all clients connect again.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cell/base/clock.h"
#include "cell/base/repeats.h"
#include "cell/base/task.h"
#include "cell/server/change/region_split.h"
#include "cell/server/change/route_publisher.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/region/region_allocator.h"
#include "cell/server/request/held_writes.h"
#include "cell/server/request/room_maker.h"

namespace cell {

struct SplitterOptions {
  double split_at = 0.75;  // A region is split when this much of its nodes, slots or extents is used.
  RegionSplit::Pace pace;
};

class Splitter : public RoomMaker {
 public:
  // All arguments must outlive this. A split runs faster if `held` has writes to its region.
  Splitter(const WorkerContext& context, RegionAllocator* allocator, RoutePublisher* routes, const HeldWrites* held,
           SplitterOptions options);

  // Begins to split each region that is full enough.
  void Step();

  // Splits a region about in the middle. Returns NotFound if it is not held here, Aborted if it is being split or
  // migrated, and FailedPrecondition if it cannot be split.
  Task<absl::Status> Split(uint32_t region);
  // Splits off what `upper` covers, which is an upper part of what `region` covers. REQUIRES: the caller has claimed
  // the region, and keeps it claimed until this ends.
  Task<absl::Status> SplitOff(HeldRegion* region, RegionContent upper);

  // Sets what is called when there is no room for one more region. It returns whether there will be.
  void set_on_no_room(std::function<bool()> on_no_room) { on_no_room_ = std::move(on_no_room); }

  bool MakeRoom(HeldRegion* region) override { return region->claimed() || Begin(region) || region->awaits_region; }

  struct Counters {
    uint64_t splits = 0, failed = 0;
    uint64_t longest_copy_ns = 0;
    uint64_t longest_frozen_ns = 0;  // While the region's writes waited for the logs.
    uint64_t longest_cut_ns = 0;     // While the worker did nothing else.
    uint64_t longest_untold_ns = 0;  // From the cut until the region table recorded it.
  };
  const Counters& meganodes() const { return meganodes_; }
  const Counters& parts() const { return parts_; }  // Counts the splits of hash table parts.

 private:
  // Begins a split. Returns false if none can begin now, because one has just failed or the worker ends.
  bool Begin(HeldRegion* region);
  Task<bool> SplitAlone(RegionClaim claim);
  Task<absl::Status> SplitClaimed(RegionClaim claim);
  // Moves the upper part to the empty region that `upper` claims. Takes over that claim if a route is published.
  Task<absl::Status> CopyAndCut(HeldRegion* lower, RegionClaim* upper);
  Task<absl::Status> Cut(HeldRegion* lower, HeldRegion* upper, RegionSplit* split);
  // Runs until the region table has recorded the cut, or the lower region is lost or gone.
  Task<bool> TellTable(const HeldRegion* lower, const RegionSplit* split);
  Counters& CountersOf(const HeldRegion& region) { return region.tree != nullptr ? meganodes_ : parts_; }
  // Reaches a sync point: "split: STEP", or "table split: STEP".
  void Reach(const HeldRegion& region, std::string_view step) const;

  const Clock* const clock_;
  Membership* const membership_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  LogFlusher* const logs_;
  const SyncPoints* const sync_points_;
  RegionAllocator* const allocator_;
  RoutePublisher* const routes_;
  const HeldWrites* const held_;
  const SplitterOptions options_;
  std::function<bool()> on_no_room_ = [] { return false; };
  int64_t look_at_ns_ = 0;
  Repeats repeats_;
  Counters meganodes_;
  Counters parts_;
};

}  // namespace cell
