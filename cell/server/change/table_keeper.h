// TableKeeper: makes and drops Pilaf tables, and drops what a worker still holds of tables that are gone.
//
// A table is made of one part, which has the whole hash space. The parts that were asked for are split off it one by
// one, all of one size, and given to the workers in turns. From then on parts are split (Splitter) and moved
// (Rebalancer) as meganodes are.
//
// One thread: the worker's.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "cell/base/clock.h"
#include "cell/base/random.h"
#include "cell/base/sync_points.h"
#include "cell/server/change/migrator.h"
#include "cell/server/change/splitter.h"
#include "cell/server/region/region_allocator.h"
#include "cell/server/worker_context.h"

namespace cell {

class TableKeeper {
 public:
  // All must outlive this.
  TableKeeper(const WorkerContext& context, RegionAllocator* allocator, Splitter* splitter, Migrator* migrator);

  // A new table, of `parts` parts over all workers; 0: as many as there are workers, or as have room. It can be used
  // from its first part on, and is complete with any number of them. InvalidArgument, AlreadyExists. ResourceExhausted:
  // the workers have no room for the parts, and there is no table; or fewer of them took one than the region table gave
  // reason to expect. Then there is a table of fewer parts, as the message says.
  Task<absl::Status> Create(std::string name, uint32_t bucket_bytes, uint32_t parts);
  // With all that is in it; ends when no worker that answers serves any of it. NotFound.
  Task<absl::Status> Drop(std::string name);

  // Drops regions of tables that are gone.
  void Step();

 private:
  // Until the worker does not serve the region any more, or does not answer.
  Task<bool> AwaitDropped(WorkerId owner, uint32_t region);
  Task<bool> Refresh();
  // Whether the workers have room for a table's parts, by the region table. ResourceExhausted.
  absl::Status CheckRoom(uint32_t parts);
  // Makes a table's parts from its first one, `rest`, which is claimed all the while. ResourceExhausted: there are fewer.
  Task<absl::Status> Spread(std::string name, HeldRegion* rest, uint32_t parts);
  struct Target {
    WorkerId worker;
    size_t given = 0;
  };
  struct TargetsInTurn {
    std::deque<Target> in_turn;  // The first is the next.
    std::string refused;      // Why the last one that refused did so; empty if none did.
  };
  // Gives a part of the table to the first of `targets`, and puts that one to their end; one that refuses it is taken
  // off. False: each has been given `share` parts, or there is no part to give.
  Task<bool> GivePart(const std::string* name, size_t share, TargetsInTurn* targets);
  // Returns a part of the table that this worker holds and nobody has claimed. Returns null if there is none.
  HeldRegion* PartToGive(const std::string& name) const;

  const WorkerId self_;
  const Clock* const clock_;
  Membership* const membership_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  Peers* const peers_;
  const SyncPoints* const sync_points_;
  RegionAllocator* const allocator_;
  Splitter* const splitter_;
  Migrator* const migrator_;
  Random random_;
  int64_t look_at_ns_ = 0;
  bool refreshing_ = false;
  int64_t refresh_at_ns_ = 0;
};

}  // namespace cell
