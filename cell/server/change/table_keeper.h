// TableKeeper: looks after a worker's parts of Pilaf tables: makes tables, splits parts that fill up, and drops what
// belongs to tables that are gone.
//
// A table is made of one part, which has the whole hash space. The parts that were asked for are split off it one by
// one, all of one size, and given to the workers in turns. From then on parts are split as meganodes are (Steward), and
// move in the same way.
//
//   the pairs of the upper half are copied, some a turn; writes go to both     nobody waits
//   the new region's log is on disk; then a record of the cut is               writes of the part wait, with logs
//   the header is cut; the region table is told                                the upper half's writes, and reads of
//   keys
//                                                                              that are not there, wait for the table
//   the old region is cleaned of what was copied, some a turn                  nobody waits
//
// The thesis (3.4) makes a table of twice the size and has all connections begin anew.
//
// One thread: the worker's.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "cell/base/random.h"
#include "cell/base/sync_points.h"
#include "cell/server/change/mover.h"
#include "cell/server/region/region_allocator.h"
#include "cell/server/request/request_service.h"
#include "pilaf/hash_split.h"

namespace cell {

class TableKeeper {
 public:
  struct Options {
    WorkerId self;
    uint32_t copied_per_turn = 256;  // Slots, or buckets that take as much.
    uint64_t seed = 1;
  };

  // All must outlive this.
  TableKeeper(Fabric* fabric, Membership* membership, Regions* regions, RequestService* service, Mover* mover,
              Peers* peers, LogKeeper* logs, RegionAllocator* allocator, Turns* turns, const SyncPoints* sync_points,
              Options options);

  // A new table, of `parts` parts over all workers; 0: as many as there are workers, or as have room. It can be used
  // from its first part on, and is complete with any number of them. InvalidArgument, AlreadyExists. ResourceExhausted:
  // the workers have no room for the parts, and there is no table; or fewer of them took one than the region table gave
  // reason to expect. Then there is a table of fewer parts, as the message says.
  Task<absl::Status> Create(std::string name, uint32_t bucket_bytes, uint32_t parts);
  // With all that is in it; ends when no worker that answers serves any of it. NotFound.
  Task<absl::Status> Drop(std::string name);

  // Splits a part, which is claimed, in the middle, or at a place that is not its first one.
  Task<absl::Status> Split(HeldRegion* region);
  Task<absl::Status> Split(HeldRegion* region, uint32_t place);
  // Cleans what splits have left, all of it.
  void CleanAll();
  // Drops regions of tables that are gone.
  void Step();

  struct Counters {
    uint64_t splits = 0;
    uint64_t longest_copy_ns = 0;    // Of a split.
    uint64_t longest_frozen_ns = 0;  // While the part's writes waited for the log.
    uint64_t longest_untold_ns = 0;  // From the cut until the region table had the new part.
  };
  const Counters& counters() const { return counters_; }

 private:
  Task<absl::Status> MoveUpperPart(HeldRegion* region, HeldRegion* upper);
  Task<absl::Status> Cut(HeldRegion* region, HeldRegion* upper, HashSplit* split);
  Task<bool> Join(HeldRegion* region, HeldRegion* upper);
  // Until the worker does not serve the region any more, or does not answer.
  Task<bool> AwaitDropped(WorkerId owner, uint32_t region);
  Task<bool> Refresh();
  // Whether the workers have room for a table's parts, by the region table. ResourceExhausted.
  absl::Status CheckRoom(uint32_t parts);
  // Makes a table's parts from its first one, `rest`, which is claimed all the while. ResourceExhausted: there are fewer.
  Task<absl::Status> Spread(std::string name, HeldRegion* rest, uint32_t parts);
  struct Taker {
    WorkerId worker;
    size_t given = 0;
  };
  struct TakersInTurn {
    std::deque<Taker> in_turn;  // The first is the next.
    std::string refused;      // Why the last one that refused did so; empty if none did.
  };
  // Gives a part of the table to the first of `takers`, and puts that one to their end; one that refuses it is taken
  // off. False: each has been given `share` parts, or there is no part to give.
  Task<bool> GivePart(const std::string* name, size_t share, TakersInTurn* takers);
  // Returns a part of the table that this worker holds and nobody has claimed. Returns null if there is none.
  HeldRegion* PartToGive(const std::string& name) const;
  uint32_t UnitsPerTurn(const HashTable& table) const;

  Fabric* const fabric_;
  Membership* const membership_;
  Regions* const regions_;
  RequestService* const service_;
  Mover* const mover_;
  Peers* const peers_;
  LogKeeper* const logs_;
  RegionAllocator* const allocator_;
  Turns* const turns_;
  const SyncPoints* const sync_points_;
  const Options options_;
  Random random_;
  std::vector<HashSplit*> cleaning_;
  int64_t look_at_ns_ = 0;
  bool refreshing_ = false;
  int64_t refresh_at_ns_ = 0;
  Counters counters_;
};

}  // namespace cell
