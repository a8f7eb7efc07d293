// Recoverer: brings regions back from their logs: a worker's own after it was restarted, and those of workers that are
// gone, which the workers that are left share out among them (ShareOut).
//
//   1. claim      the region table names this worker as the owner, at the next epoch, recovering
//   2. fence      no sync of a lower epoch succeeds any more (log_store.h)
//   3. replay     checkpoint and log, into new memory; in the replay pool, all regions at the same time
//   4. wait       until no client reads one-sided by a table from before the claim
//   5. serve      a segment of the new epoch is open, and the table says that the region is served
//
// Whoever is slow or thought dead wrongly loses its regions by the same steps: it finds itself fenced, or sees the
// table change, or its session was lost. docs/protocols.md has the argument. A region that is being split from a
// claimed one is claimed with it. If the log of the left has the cut it is recovered, too, else it goes: the change of
// the table by which the left is served says so. A worker that fails to recover a region for another reason than a
// damaged log passes it on to another, which claims it anew.
//
// A region of this worker's own whose log has failed (log_flusher.h) is brought back the same way. What async
// durability had acknowledged and not brought to disk then is lost, as by a crash.
//
// One thread: the worker's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cell/base/clock.h"
#include "cell/base/sync_points.h"
#include "cell/cluster/membership.h"
#include "cell/log/log_replay.h"
#include "cell/server/change/route_publisher.h"
#include "cell/server/region/log_flusher.h"
#include "cell/server/request/write_pipeline.h"
#include "cell/server/sched/scheduler.h"
#include "cell/server/worker_context.h"

namespace cell {

struct RecovererOptions {
  int64_t takeover_after_ns = 1'000'000'000;  // That a worker has been gone: it may be on its way back.
  // Longer than any client's lease on the table, by what their clocks may differ in rate.
  int64_t lease_wait_ns = kTableLeaseNs + kTableLeaseNs / 10;
  int64_t look_every_ns = 50'000'000;
  int64_t retry_after_ns = 10'000'000'000;  // That a recovery has failed, if there is no other worker to pass it on to.
  int64_t probe_every_ns = 1'000'000'000;   // Whether the disk of a log that has failed answers again.
};

class Recoverer {
 public:
  // All must outlive this.
  // `writes`: answers the logged writes of a region that is lost.
  Recoverer(const WorkerContext& context, WritePipeline* writes, RoutePublisher* routes, RecovererOptions options)
      : self_(context.self),
        clock_(context.clock),
        membership_(context.membership),
        scheduler_(context.scheduler),
        regions_(context.regions),
        logs_(context.logs),
        sync_points_(context.sync_points),
        writes_(writes),
        routes_(routes),
        options_(options),
        random_(context.seed),
        session_(membership_->session()) {
    scheduler_->InterruptOnStop(regions_->departed());
  }

  // Drops what is another's by now, and looks for what is to be recovered.
  void Step();

  struct Counters {
    uint64_t recovered = 0, failed = 0, lost = 0;
    uint64_t retaken = 0;        // Given up since their logs had failed and their disk answered again.
    uint64_t log_bytes = 0, records = 0;  // Replayed.
    uint64_t longest_replay_ns = 0;
    int64_t last_served_ns = 0;  // After its claim, of the region that was recovered last.
  };
  const Counters& counters() const { return counters_; }
  size_t recovering() const { return recovering_.size(); }

 private:
  struct Claimed {
    uint32_t region;
    uint64_t epoch;  // The new one.
    int64_t at_ns;
    std::vector<std::pair<uint32_t, uint64_t>> children;  // Being split from it, and their new epochs.
  };
  // What a replay made, besides the region's memory.
  struct Replayed {
    std::unique_ptr<LogWriter> writer;
    uint64_t next_sequence = 0;
    RegionContent content;
    std::map<uint32_t, uint32_t> cuts;
    uint64_t records = 0, log_bytes = 0, torn_bytes = 0, took_ns = 0;
  };

  void DropLost();
  void Lose(HeldRegion* region, std::string_view why);
  // Whether the region is served from memory alone.
  static bool LogFailed(const HeldRegion& region);
  // Regions whose logs have failed are given up, and claimed at the next epoch like a dead worker's, once the disk takes
  // something again.
  void BeginRetaking(int64_t now_ns);
  Task<bool> Retake(std::vector<uint32_t> regions);
  // Whether nothing of a region is here, nor of those that are being split from it.
  bool IsFree(uint32_t region) const;
  std::vector<uint32_t> Wanted();
  Task<bool> Look();
  Task<absl::Status> Claim(std::vector<uint32_t> regions);
  Task<bool> Recover(Claimed claimed);
  void EndRecovering(uint32_t region, uint64_t epoch);
  // Tries again later, or lets another worker try, unless the log is damaged: then nobody can.
  Task<bool> HandleFailure(uint32_t region, uint64_t epoch, absl::Status status);
  Task<absl::Status> RecoverOne(uint32_t region, uint64_t epoch, int64_t claimed_ns);
  absl::Status Replay(uint32_t region, uint64_t epoch, RegionMemory* memory, Replayed* replayed) const;
  // Of a region that is in the table no more.
  Task<bool> RemoveLog(uint32_t region);

  const WorkerId self_;
  const Clock* const clock_;
  Membership* const membership_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  LogFlusher* const logs_;
  const SyncPoints* const sync_points_;
  WritePipeline* const writes_;
  RoutePublisher* const routes_;
  const RecovererOptions options_;
  Random random_;
  uint64_t session_;
  uint64_t seen_revision_ = 0;
  int64_t look_at_ns_ = 0;
  int64_t refresh_at_ns_ = 0;
  bool looking_ = false;
  bool retaking_ = false;
  int64_t probe_at_ns_ = 0;
  std::map<WorkerId, int64_t> gone_since_ns_;
  std::map<uint32_t, uint64_t> recovering_;  // Epochs, by region.
  struct Failed {
    uint64_t epoch;
    int64_t retry_at_ns;
  };
  std::map<uint32_t, Failed> failed_;
  Counters counters_;
};

}  // namespace cell
