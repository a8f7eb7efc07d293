// Migrates regions to and from other workers, while clients read and write them.
//
// A region migrates as it is, page by page, under the same id. No pointer in the tree changes, and only the region
// table says where the region is. The target pulls it with one-sided reads, so the source's thread does little more
// than record what is written meanwhile (as in live migration of virtual machines: Clark et al., NSDI 2005).
//
//   source                               target
//   Offer (region, epoch)           ->   has room
//                                   <-   Begin: all written pages, which the target reads and stages (staged_copy.h)
//                                   <-   Written, repeatedly: those written since, until there are few
//                                   <-   Freeze: writes wait from here on; once the log is on disk, the last pages
//                                   <-   Outcomes, repeatedly: those of requests that must not take effect again
//                                   <-   Seal: the source invalidates all nodes, so that nobody reads them any more
//                                        the region table is changed, from the offered epoch; the copy becomes
//                                        visible
//                                   <-   Done: the source drops its copy; waiting writes are redirected to the target.
//                                        If the source sees the changed table first, it does so then.
//                                   <-   Cancel, instead of any of these: the target does not take it, and says why
//
// The log stays where it is and continues in a segment of the new epoch, which the target opens before it takes writes
// to the region. Both workers must therefore see the same store.
//
// The source's side is always in one phase, and changes it by rules (migration_phase.h).
//
// If the log fails before Seal, the source ends the migration, and the region stays.
//
// If the target goes silent before Seal, the source continues as if nothing had happened. After Seal only the table
// knows the owner. The source asks it, and takes the region back with an epoch of its own, after which the target's
// change fails. Reads wait for one change of the table; writes also wait for the last pages.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/clock.h"
#include "cell/base/repeats.h"
#include "cell/base/sync_points.h"
#include "cell/cluster/membership.h"
#include "cell/region/region_memory.h"
#include "cell/server/change/migration_phase.h"
#include "cell/server/change/peers.h"
#include "cell/server/change/staged_copy.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/region/log_flusher.h"
#include "cell/server/request/migration_handler.h"
#include "cell/server/sched/scheduler.h"

namespace cell {

struct MigratorOptions {
  // The other side is assumed to be gone after this long without a message. A target that has an offer and has not
  // begun may be silent ten times as long: it may have to zero its memory first, and no write waits for it.
  int64_t silence_ns = 1'000'000'000;
  uint64_t zeroed_bytes = 64 << 10;  // In one step of the worker's loop.
};

class Migrator : public MigrationHandler {
 public:
  // All arguments must outlive this.
  Migrator(const WorkerContext& context, MigratorOptions options);

  // Migrates a held region to another worker. REQUIRES: the region is not claimed. Returns OK once the other worker has
  // it, ResourceExhausted if that has no room, and Aborted if it refused, with its reason in the message. After any
  // error the region is still here.
  Task<absl::Status> Migrate(uint32_t region, WorkerId to);

  // Serves a request of another worker.
  size_t ServeMigration(const IncomingCall& call, MutableBytes to) override;
  void Disconnected(ConnectionId peer) override;
  // Checks for targets that have changed the region table, or went silent.
  void Step();

  struct Counters {
    uint64_t sent = 0, received = 0, failed = 0;
    uint64_t pages = 0;              // Pages that the target has copied.
    uint64_t longest_frozen_ns = 0;  // How long writes waited at the source.
  };
  const Counters& counters() const { return counters_; }

 private:
  // The source's state of a migration, from the offer on.
  struct Outgoing {
    Outgoing(RegionClaim claim, uint64_t epoch, WorkerId to, uint64_t region_bytes)
        : claim(std::move(claim)), epoch(epoch), to(std::move(to)), pending(region_bytes), noted(region_bytes) {}
    MigrationPhase phase() const { return phase_; }
    // REQUIRES: CanChange(phase(), to).
    void ChangePhase(MigrationPhase to) {
      CELL_CHECK(CanChange(phase_, to));
      phase_ = to;
    }
    bool begun() const { return phase_ != MigrationPhase::kOffered; }

    RegionClaim claim;
    uint64_t epoch;
    WorkerId to;
    ConnectionId target = 0;  // Set once the target has begun.
    WrittenPages pending;     // Pages that the target does not know of yet.
    WrittenPages noted;       // All pages that were taken from the region's own list.
    int64_t heard_ns = 0;
    std::optional<int64_t> frozen_ns;  // The time of Freeze, if the target has asked for it.
    std::string outcomes;              // The region's, encoded, once the target has asked for them.
    std::shared_ptr<std::string> why = std::make_shared<std::string>();  // The target's reason for refusing.

   private:
    MigrationPhase phase_ = MigrationPhase::kOffered;
  };

  absl::Status ServeStep(const IncomingCall& call, const Parsed<MigrationRequest>& request, Outgoing** tell);
  // Returns whether everything that was written is in the tree and on disk. If not, it soon will be.
  static bool Settled(HeldRegion* region);
  size_t WriteRuns(MutableBytes to, HeldRegion* region, Outgoing* outgoing) const;
  // Gives up a migration whose target has cancelled it or gone silent: ends it, or begins to settle it if it is sealed.
  void Abandon(uint32_t region);
  // Ends the migrations whose regions have other owners by the region table.
  void EndMigrated();
  // Ends a migration at the source, in phase kMigrated or kKept, and forgets it.
  void EndOutgoing(uint32_t region, MigrationPhase end);
  Task<bool> Settle(uint32_t region);
  Membership::TableChange ClaimHere(uint32_t region, uint64_t epoch) const;

  // The target's state of a migration.
  struct Incoming {
    uint32_t region;
    uint64_t epoch;
    WorkerId from;
    RegionMemory* memory;
    StagedCopy* copy;  // Writes into `memory`.
    WrittenPages* written;
    Outcomes* outcomes;
  };
  Task<bool> Pull(uint32_t region, uint64_t epoch, WorkerId from);
  // Tells the source, and this server's log, why its region is not taken.
  Task<bool> Refuse(uint32_t region, uint64_t epoch, WorkerId from, absl::Status why);
  Task<absl::Status> Copy(Incoming incoming);
  // Makes one step, and copies all pages that it names. Returns their number.
  Task<absl::StatusOr<uint64_t>> CopyWritten(const Incoming& incoming, MigrationStep step);
  // Gets the outcomes of requests that the source remembers.
  Task<absl::Status> CopyOutcomes(const Incoming& incoming);
  Task<absl::Status> Commit(const Incoming& incoming);
  // Checks that the region's log is where this worker would continue it.
  Task<absl::Status> HasLog(uint32_t region);

  const WorkerId self_;
  const Clock* const clock_;
  Membership* const membership_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  Peers* const peers_;
  LogFlusher* const logs_;
  const SyncPoints* const sync_points_;
  const MigratorOptions options_;
  std::map<uint32_t, Outgoing> outgoing_;
  uint64_t seen_revision_ = 0;  // The membership's state that EndMigrated has looked at.
  Event outgoing_ended_;
  Repeats repeats_;
  Counters counters_;
};

}  // namespace cell
