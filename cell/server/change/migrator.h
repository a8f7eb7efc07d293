// Migrator: moves regions between workers while clients read and write them.
//
// A region moves as it is, page by page, under the same id: no pointer in the tree changes, and the region table alone
// says where it is. The target pulls it with one-sided reads, so that the source's thread does little more than record
// which pages are written meanwhile (pre-copy, as virtual machines are migrated: Clark et al., "Live migration of
// virtual machines", NSDI 2005).
//
//   source                               target
//   Offer (region, epoch)           ->   has room
//                                   <-   Begin: returns all written pages, which the target reads and stages
//                                        (staged_copy.h)
//                                   <-   Written, repeated: returns those written since, until they are few
//                                   <-   Freeze: writes wait from here on; once the log is on disk, the last pages
//                                   <-   Seal: the source invalidates all nodes, so that nobody reads them any more
//                                        the target changes the region table, from the epoch that was offered, and
//                                        publishes the copy
//                                   <-   Done: the source drops its copy and redirects the writes that waited
//                                   <-   Cancel, instead of any of these: the target refuses the region and says why
//
// The log stays where it is and continues in a segment of the new epoch, which the target opens before it serves the
// region. So both workers must see the same log store.
//
// If the log fails before Seal, the source ends the migration and keeps the region.
//
// If one side goes silent before Seal, the source goes on as if nothing had happened. After Seal only the region table
// says who owns the region: the source asks it, and takes the region back by an epoch of its own, which the target's
// change then cannot pass. Reads wait for one change of the table; writes wait for the last pages, too.
//
// Not thread-safe: the worker's thread alone.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cell/base/clock.h"
#include "cell/base/repeats.h"
#include "cell/base/sync_points.h"
#include "cell/cluster/membership.h"
#include "cell/server/change/peers.h"
#include "cell/server/change/staged_copy.h"
#include "cell/server/region/log_flusher.h"
#include "cell/server/request/migration_handler.h"
#include "cell/server/sched/scheduler.h"
#include "cell/server/worker_context.h"

namespace cell {

class Migrator : public MigrationHandler {
 public:
  // All must outlive this.
  // `silence_ns`: after so long without a word the other side is given up.
  Migrator(const WorkerContext& context, int64_t silence_ns);

  // Gives a held region, which is not claimed, to a worker. Ok once it is the other's. ResourceExhausted: the other has
  // no room. Aborted: the other did not take it; the message has its reason. Else it is still here.
  Task<absl::Status> Migrate(uint32_t region, WorkerId to);

  // A request of another worker's migrator.
  size_t ServeMigration(ConnectionId peer, ConstBytes request, MutableBytes to) override;
  void Disconnected(ConnectionId peer) override;
  // Looks for targets that went silent.
  void Step();

  struct Counters {
    uint64_t sent = 0, received = 0, failed = 0;
    uint64_t pages = 0;              // Copied, by the target.
    uint64_t longest_frozen_ns = 0;  // How long writes waited, by the source.
  };
  const Counters& counters() const { return counters_; }

 private:
  // Of the source, from the offer on.
  struct Outgoing {
    Outgoing(RegionClaim claim, uint64_t epoch, WorkerId to, uint64_t region_bytes)
        : claim(std::move(claim)), epoch(epoch), to(std::move(to)), pending(region_bytes), noted(region_bytes) {}
    RegionClaim claim;
    uint64_t epoch;
    WorkerId to;
    bool begun = false;
    ConnectionId target = 0;
    WrittenPages pending;  // The target has not been told of them.
    WrittenPages noted;    // All that was taken out of the region's own.
    bool frozen = false;
    bool sealed = false;
    bool settling = false;
    int64_t heard_ns = 0;
    int64_t frozen_ns = 0;
    std::shared_ptr<std::string> why = std::make_shared<std::string>();  // It was refused, by the target's word.
  };

  absl::Status ServeStep(ConnectionId peer, const Parsed<MigrationRequest>& request, Outgoing** tell);
  // Whether all that was written is in the tree and on disk; else it soon is.
  static bool Settled(HeldRegion* region);
  size_t WriteRuns(MutableBytes to, HeldRegion* region, Outgoing* outgoing) const;
  void EndOutgoing(uint32_t region, bool given);
  Task<bool> Settle(uint32_t region);
  Membership::TableChange ClaimHere(uint32_t region, uint64_t epoch) const;

  // The target's side.
  struct Incoming {
    uint32_t region;
    uint64_t epoch;
    WorkerId from;
    RegionMemory* memory;
    StagedCopy* copy;  // Into it.
    WrittenPages* written;
  };
  Task<bool> Pull(uint32_t region, uint64_t epoch, WorkerId from);
  // Tells the source, and this server's log, why its region is not taken.
  Task<bool> Refuse(uint32_t region, uint64_t epoch, WorkerId from, absl::Status why);
  Task<absl::Status> Copy(Incoming incoming);
  // One step, and a copy of all pages that it names. How many pages.
  Task<absl::StatusOr<uint64_t>> CopyWritten(const Incoming& incoming, MigrationStep step);
  Task<absl::Status> Commit(const Incoming& incoming);
  // Whether the region's log is where this worker would go on with it.
  Task<absl::Status> HasLog(uint32_t region);

  const WorkerId self_;
  const Clock* const clock_;
  Membership* const membership_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  Peers* const peers_;
  LogFlusher* const logs_;
  const SyncPoints* const sync_points_;
  const int64_t silence_ns_;
  std::map<uint32_t, Outgoing> outgoing_;
  Event outgoing_ended_;
  Repeats repeats_;
  Counters counters_;
};

}  // namespace cell
