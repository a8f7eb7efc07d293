// TableKeeper creates and drops Pilaf tables, and drops the regions that a worker still holds of tables that are gone.
//
// A table begins with one part, which has the whole hash space. The requested parts are split off one by one, all of
// the same size, and migrated to the workers in turn. Later, parts are split (Splitter) and migrated (Rebalancer) like
// meganodes.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "cell/base/clock.h"
#include "cell/base/random.h"
#include "cell/base/sync_points.h"
#include "cell/server/change/migrator.h"
#include "cell/server/change/splitter.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/region/log_flusher.h"
#include "cell/server/region/region_allocator.h"

namespace cell {

class TableKeeper {
 public:
  // All arguments must outlive this.
  TableKeeper(const WorkerContext& context, RegionAllocator* allocator, Splitter* splitter, Migrator* migrator);

  // Creates a table of `parts` parts over all workers; 0: one part per worker, or as many as there is room for. The
  // table can be used from its first part on, and is complete with any number of them. Returns InvalidArgument if an
  // argument is not valid, and AlreadyExists if there is such a table. Returns ResourceExhausted if the workers have no
  // room for the parts, in which case there is no table; or if fewer of them took a part than the region table
  // promised, in which case there is a table of fewer parts, as the message says.
  Task<absl::Status> Create(std::string name, uint32_t bucket_bytes, uint32_t parts);
  // Drops a table with all its content. Ends when no worker that answers serves any of it. Returns NotFound if there is
  // none.
  Task<absl::Status> Drop(std::string name);

  // Drops regions of tables that are gone.
  void Step();

 private:
  // Waits until the worker does not serve the region any more, or does not answer.
  Task<bool> AwaitDropped(WorkerId owner, uint32_t region);
  Task<bool> Refresh();
  // Returns ResourceExhausted if, according to the region table, the workers have no room for a table's parts.
  absl::Status CheckRoom(uint32_t parts);
  // Makes a table's parts from its first one, `rest`. Returns ResourceExhausted if there are fewer in the end.
  // REQUIRES: `rest` is claimed throughout.
  Task<absl::Status> Spread(std::string name, HeldRegion* rest, uint32_t parts);
  struct Target {
    WorkerId worker;
    size_t migrated = 0;  // Parts that it has taken.
  };
  struct TargetsInTurn {
    std::deque<Target> in_turn;  // The first is the next.
    std::string refused;         // Why the last one that refused did so; empty if none did.
  };
  // Migrates a part of the table to the first of `targets`, and moves that one to the end. Removes one that refuses.
  // Returns false if each has taken `share` parts, or if there is no part to migrate.
  Task<bool> MigratePart(const std::string* name, size_t share, TargetsInTurn* targets);
  // Returns an unclaimed part of the table that this worker holds, or null if there is none.
  HeldRegion* PartToMigrate(const std::string& name) const;

  const WorkerId self_;
  const Clock* const clock_;
  Membership* const membership_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  Peers* const peers_;
  LogFlusher* const logs_;
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
