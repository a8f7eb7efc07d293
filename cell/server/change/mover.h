// Mover: gives regions to other workers and takes theirs, while clients read and write them.
//
// A region moves as it is, page by page, under the same id: no pointer in the tree changes, and the region table alone
// says where it is. The taker pulls it with one-sided reads, so that the giver's thread does little more than note what
// is written meanwhile (as virtual machines are moved: Clark et al., "Live migration", NSDI 2005).
//
//   giver                                taker
//   Offer (region, epoch)           ->   has room
//                                   <-   Begin: all written pages, which the taker reads and stages (staged_copy.h)
//                                   <-   Written, again and again: those written since, until they are few
//                                   <-   Freeze: writes wait from here on; once the log is on disk, the last pages
//                                   <-   Seal: the giver invalidates all nodes, so that nobody reads them any more
//                                        the region table is changed, from the epoch that was offered; the copy is
//                                        shown
//                                   <-   Done: the giver drops its copy; writes that waited are sent to the taker
//                                   <-   Cancel, instead of any of these: the taker does not take it, and says why
//
// The log goes on where it is, in a segment of the new epoch, which the taker opens before it serves the region: so
// both must see the same store.
//
// If the log fails before Seal, the giver ends the move, and the region stays.
//
// Whoever goes silent in between: before Seal the giver goes on as if nothing had been. After Seal only the table knows
// whose the region is; the giver asks it, and takes the region back by an epoch of its own, which the taker's change
// then cannot pass. Reads wait for one change of the table; writes besides for the last pages.
//
// One thread: the worker's.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cell/base/repeats.h"
#include "cell/base/sync_points.h"
#include "cell/cluster/membership.h"
#include "cell/server/change/peers.h"
#include "cell/server/change/staged_copy.h"
#include "cell/server/region/log_keeper.h"
#include "cell/server/request/migration_handler.h"
#include "cell/server/sched/scheduler.h"
#include "cell/server/worker_context.h"

namespace cell {

class Mover : public MigrationHandler {
 public:
  // All must outlive this.
  // `silence_ns`: after so long without a word the other side is given up.
  Mover(const WorkerContext& context, int64_t silence_ns);

  // Gives a held region, which is not claimed, to a worker. Ok once it is the other's. ResourceExhausted: the other has no
  // room. Aborted: the other did not take it; the message has its reason. Else it is still here.
  Task<absl::Status> Give(uint32_t region, WorkerId to);

  // A request of another worker's mover.
  size_t ServeMove(ConnectionId peer, ConstBytes request, MutableBytes to) override;
  void Disconnected(ConnectionId peer) override;
  // Looks for takers that went silent.
  void Step();

  struct Counters {
    uint64_t given = 0, taken = 0, failed = 0;
    uint64_t pages = 0;              // Copied, by the taker.
    uint64_t longest_frozen_ns = 0;  // How long writes waited, by the giver.
  };
  const Counters& counters() const { return counters_; }

 private:
  // Of the giver, from the offer on.
  struct Giving {
    Giving(RegionClaim claim, uint64_t epoch, WorkerId to, uint64_t region_bytes)
        : claim(std::move(claim)), epoch(epoch), to(std::move(to)), pending(region_bytes), noted(region_bytes) {}
    RegionClaim claim;
    uint64_t epoch;
    WorkerId to;
    bool begun = false;
    ConnectionId taker = 0;
    WrittenPages pending;  // The taker has not been told of them.
    WrittenPages noted;    // All that was taken out of the region's own.
    bool frozen = false;
    bool sealed = false;
    bool settling = false;
    int64_t heard_ns = 0;
    int64_t frozen_ns = 0;
    std::shared_ptr<std::string> why = std::make_shared<std::string>();  // It was refused, by the taker's word.
  };

  absl::Status ServeStep(ConnectionId peer, const Parsed<MoveRequest>& request, Giving** tell);
  // Whether all that was written is in the tree and on disk; else it soon is.
  static bool Settled(HeldRegion* region);
  size_t WriteRuns(MutableBytes to, HeldRegion* region, Giving* giving) const;
  void EndGiving(uint32_t region, bool given);
  Task<bool> Settle(uint32_t region);
  Membership::TableChange MoveHere(uint32_t region, uint64_t epoch) const;

  // The taker's side.
  struct Taking {
    uint32_t region;
    uint64_t epoch;
    WorkerId from;
    RegionMemory* memory;
    StagedCopy* copy;  // Into it.
    WrittenPages* written;
  };
  Task<bool> Take(uint32_t region, uint64_t epoch, WorkerId from);
  // Tells the giver, and this server's log, why its region is not taken.
  Task<bool> Refuse(uint32_t region, uint64_t epoch, WorkerId from, absl::Status why);
  Task<absl::Status> Copy(Taking taking);
  // One step, and a copy of all pages that it names. How many pages.
  Task<absl::StatusOr<uint64_t>> CopyWritten(const Taking& taking, MoveStep step);
  Task<absl::Status> Commit(const Taking& taking);
  // Whether the region's log is where this worker would go on with it.
  Task<absl::Status> HasLog(uint32_t region);

  const WorkerId self_;
  Fabric* const fabric_;
  Membership* const membership_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  Peers* const peers_;
  LogKeeper* const logs_;
  const SyncPoints* const sync_points_;
  const int64_t silence_ns_;
  std::map<uint32_t, Giving> givings_;
  Event giving_ended_;
  Repeats repeats_;
  Counters counters_;
};

}  // namespace cell
