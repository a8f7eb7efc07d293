// Steward: looks after a worker's meganodes while the request service serves them.
//
// A meganode that fills up is split before writes can fail (the thesis, 4.2): its right part goes to a new meganode, a
// few entries a turn (MeganodeSplit), whose root then becomes known to the tier above, wherever that is; when there is
// none above, a meganode of routes is made, which is the new root.
//
// Regions of Pilaf tables are looked after in the same way; how they are split is the TableKeeper's.
//
// Regions then move to workers that hold less (Mover, placement.h), and away from servers that are drained.
//
// What takes long is a coroutine that goes on a little with each turn; the worker serves requests in between. One
// thread: the worker's.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cell/base/random.h"
#include "cell/base/repeats.h"
#include "cell/base/task.h"
#include "cell/cluster/membership.h"
#include "cell/io/fabric/fabric.h"
#include "cell/server/change/mover.h"
#include "cell/server/change/peers.h"
#include "cell/server/change/table_keeper.h"
#include "cell/server/region/region_allocator.h"
#include "cell/server/region/regions.h"
#include "cell/server/request/request_service.h"
#include "cell/server/sched/turns.h"
#include "cell/tree/meganode_split.h"

namespace cell {

struct StewardOptions {
  WorkerId self;
  double split_at = 0.75;       // Of its nodes or extents used, a meganode is split.
  size_t copied_per_turn = 64;  // Entries.
  size_t freed_per_turn = 16;   // Nodes.
  bool balance = true;          // Give regions to workers that hold less, by itself.
  int64_t balance_every_ns = 100'000'000;
  uint64_t seed = 1;
  int64_t start_pause_ns = 1'000'000;  // In Start, between two looks whether the first region is made.
};

class Steward {
 public:
  using Options = StewardOptions;

  // All must outlive this.
  Steward(Fabric* fabric, Membership* membership, Regions* regions, RequestService* service, Peers* peers, Mover* mover,
          LogKeeper* logs, RegionAllocator* allocator, TableKeeper* tables, Turns* turns, const SyncPoints* sync_points,
          Options options);

  // Before the worker listens: makes the tree's first meganode if the cluster has none (first_region.h). Blocks for as
  // long as that takes. FailedPrecondition: the tree's root was lost.
  absl::Status Start();

  // Waits until the tier above knows the region, which is part of the tree, or the steward stops. Claims it until then.
  Task<bool> MakeKnown(uint8_t tier, std::string key, RegionClaim claim);

  // Looks for what is to be done, and begins it.
  void Step();

  // What an operator asks for (control.proto).
  Task<absl::Status> AllocateNow(uint32_t count);
  Task<absl::Status> SplitNow(uint32_t region);
  Task<absl::Status> SetDraining(bool draining);
  // Whether this server shall hold no regions.
  bool draining() const { return membership_->state().table.draining.contains(options_.self.server); }
  // Why no region could be given away for kDrainPatienceNs, while the server is drained; OK: that is not so.
  absl::Status DrainStuck() const;
  // Adds to *moved.
  Task<absl::Status> RebalanceNow(uint64_t* moved);

  struct Counters {
    uint64_t splits = 0, splits_failed = 0, routes_added = 0, roots_made = 0;
    uint64_t longest_cut_ns = 0;  // Of the last step of a split, in which the worker does nothing else.
  };
  const Counters& counters() const { return counters_; }

  void set_balance(bool balance) { options_.balance = balance; }

 private:
  // False: not now, it failed a moment ago.
  bool BeginSplit(HeldRegion* region);
  // Splits a region that is claimed for it, and releases it.
  Task<absl::Status> Split(RegionClaim claim);
  Task<bool> SplitAlone(RegionClaim claim);
  Task<absl::Status> TrySplit(HeldRegion* region);
  // From `key` on, into the empty `right_claim`. Takes that over if it succeeds.
  Task<absl::Status> MoveRightPart(HeldRegion* region, RegionClaim* right_claim, std::string key);
  // From here on the right part is the new region's.
  Task<absl::Status> Cut(HeldRegion* region, HeldRegion* right, MeganodeSplit* split);
  Task<bool> Join(const HeldRegion* left, uint32_t region);
  // Says which regions were lost when this server ended before, without durability.
  void ReportLost() const;
  Task<absl::Status> TryAddRoute(uint8_t tier, const std::string& key, Pointer child);
  Task<absl::Status> MakeRoot(uint32_t old_root, uint8_t tier, const std::string& key, Pointer child);

  struct Gift {
    uint32_t region;
    WorkerId to;
  };
  // What to give to whom, so that weights get more equal, after asking some of the other workers for theirs.
  Task<std::optional<Gift>> FindGift(size_t asked_max);
  // Gives one region to a worker that holds less.
  Task<bool> Balance(Mutex::Guard balancing);
  // Gives all regions away.
  Task<bool> Drain(Mutex::Guard balancing);
  void ReportRefused(uint32_t region, const WorkerId& to, const absl::Status& why);
  void NoteDrained(const absl::Status& status);

  // A request to the worker that holds `region`, and its reply.
  Task<absl::StatusOr<std::string>> AskOwner(uint32_t region, std::string request);

  Fabric* const fabric_;
  Membership* const membership_;
  Regions* const regions_;
  RequestService* const service_;
  Peers* const peers_;
  Mover* const mover_;
  LogKeeper* const logs_;
  RegionAllocator* const allocator_;
  TableKeeper* const tables_;
  Turns* const turns_;
  const SyncPoints* const sync_points_;
  Options options_;
  Random random_;
  int64_t look_at_ns_ = 0;
  int64_t balance_at_ns_ = 0;
  bool lapsed_ = false;                        // The lease on our membership.
  Mutex balancing_;                            // One at a time balances, drains or rebalances.
  Repeats repeats_;
  absl::Status drain_status_;                  // Of the last region that was to be given away...
  int64_t drain_failing_since_ns_ = 0;         // ...and since when it is an error.
  std::vector<MeganodeSplit*> reclaiming_;  // Finished, their right parts not yet freed.
  Counters counters_;
};

}  // namespace cell
