// Recoverer recovers regions from their logs: a worker's own after it was restarted, and those of workers that are
// gone, which the remaining workers divide among them (ShareOut).
//
//   1. Claim: the region table names this worker as the owner, at the next epoch, recovering.
//   2. Fence: no sync of a lower epoch succeeds any more (log_store.h).
//   3. Replay: checkpoint and log are read into new memory, on a thread pool, for all regions concurrently.
//   4. Wait: until no client reads one-sided by a table from before the claim.
//   5. Serve: a segment of the new epoch is open, and the table says that the region is served.
//
// While a worker is gone and may return, memory for its regions is prepared, so that the replay does not wait for that.
//
// A worker that is slow, or wrongly taken for dead, loses its regions by the same steps: it is fenced, sees the table
// change, or loses its session. docs/protocols.md has the argument.
//
// A region whose split parent is claimed is claimed with it. If the parent's log has the cut, the region is recovered,
// too; otherwise it is removed. The change of the table that makes the parent served does that. If a region has joined
// another that is gone from the table by then, the log of that one is removed. A worker that fails to recover a region,
// for another reason than a damaged log, passes it on to another worker, which claims it again.
//
// A region of this worker whose log has failed (log_flusher.h) is recovered in the same way. Writes that async
// durability had acknowledged and not brought to disk are lost then, as in a crash. If its log cannot be read, the
// region stays in memory, where its pairs can still be read.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "cell/base/clock.h"
#include "cell/base/sync_points.h"
#include "cell/cluster/membership.h"
#include "cell/log/log_replay.h"
#include "cell/region/region_memory.h"
#include "cell/server/change/route_publisher.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/region/log_flusher.h"
#include "cell/server/report/status_report.h"
#include "cell/server/request/write_pipeline.h"
#include "cell/server/sched/scheduler.h"
#include "nlohmann/json_fwd.hpp"

namespace cell {

struct RecovererOptions {
  int64_t takeover_after_ns = 1'000'000'000;  // How long a worker must have been gone, because it may be about to
                                              // return.
  // Longer than any client's lease on the table, by the possible difference in the rate of their clocks.
  int64_t lease_wait_ns = kTableLeaseNs + kTableLeaseNs / 10;
  int64_t look_every_ns = 50'000'000;
  int64_t retry_after_ns = 10'000'000'000;  // Time after a failed recovery before the next attempt, if there is no
                                            // other worker to pass it on to.
  int64_t probe_every_ns = 1'000'000'000;   // Time between two checks whether the disk of a failed log answers again.
};

class Recoverer {
 public:
  // All arguments must outlive this. `writes` answers the logged writes of a region that is lost.
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
    context.status->Add([this](nlohmann::json* status) { AddFailuresTo(status); });
  }

  // Drops regions that have another owner by now, and looks for regions to recover.
  void Step();

  struct Counters {
    uint64_t recovered = 0, failed = 0, lost = 0;
    uint64_t retaken = 0;        // Dropped because their logs had failed, once their disk answered again.
    int64_t last_served_ns = 0;  // Time from its claim, for the region that was last recovered.
  };
  const Counters& counters() const { return counters_; }
  size_t recovering() const { return recovering_.size(); }

 private:
  struct Claimed {
    uint32_t region;
    uint64_t epoch;  // The new epoch.
    int64_t at_ns;
    std::vector<std::pair<uint32_t, uint64_t>> children;  // Regions whose split parent it is, and their new epochs.
  };
  // The result of a replay, in addition to the region's memory.
  struct Replayed {
    std::unique_ptr<LogWriter> writer;
    uint64_t next_sequence = 0;
    RegionContent content;
    std::map<uint32_t, uint32_t> cuts;
    std::map<uint32_t, uint32_t> joined;
    Outcomes outcomes;
    std::vector<std::string> prepared;  // Parts of transactions.
    uint64_t records = 0, torn_bytes = 0;
    // When the replay began, by the clock, and how long its steps took.
    int64_t begun_ns = 0, fence_ns = 0, rebuild_ns = 0, segment_ns = 0;
    LogReplay::Times times;

    int64_t took_ns() const { return fence_ns + rebuild_ns + segment_ns; }
    // Says where the time from the claim until `served_ns` went, for a message.
    std::string Timeline(int64_t claimed_ns, int64_t waited_ns, int64_t served_ns) const;
  };

  // Adds "recovery_failures" to a worker's status: regions whose recovery from their logs failed here, and why.
  void AddFailuresTo(nlohmann::json* status) const;
  // Returns whether the last recovery of the region at this epoch failed, and the next attempt is not due yet.
  bool MustWait(uint32_t region, uint64_t epoch, int64_t now_ns) const;
  void DropLost();
  void Lose(HeldRegion* region, std::string_view why);
  // Returns whether the region is served only from memory because its log has failed.
  static bool LogFailed(const HeldRegion& region);
  // Once the disk accepts writes again, drops regions whose logs have failed, and claims them at the next epoch like
  // those of a dead worker.
  void BeginRetaking(int64_t now_ns);
  Task<bool> Retake(std::vector<uint32_t> regions);
  // Reads the region's log to the end. Returns DataLoss if the region could not be recovered from it. Blocks; runs on
  // the thread pool.
  absl::Status CheckLog(uint32_t region, const RegionTable& table) const;
  // Returns whether neither the region nor a region whose split parent it is is here.
  bool IsFree(uint32_t region) const;
  // Also counts those that it will want if their owners do not return.
  std::vector<uint32_t> Wanted();
  // Prepares memory for as many regions as this worker will want.
  Task<bool> PrepareMemory();
  Task<bool> Look();
  Task<absl::Status> Claim(std::vector<uint32_t> regions);
  Task<bool> Recover(Claimed claimed);
  void EndRecovering(uint32_t region, uint64_t epoch);
  // Tries again later, or lets another worker try. If the log is damaged, neither is possible.
  Task<bool> HandleFailure(uint32_t region, uint64_t epoch, absl::Status status);
  Task<absl::Status> RecoverOne(uint32_t region, uint64_t epoch, int64_t claimed_ns);
  absl::Status Replay(uint32_t region, uint64_t epoch, const RegionTable& table, RegionMemory* memory,
                      Replayed* replayed) const;

  static constexpr size_t kClaimsMax = 128;
  static constexpr uint64_t kPreparedPerStep = uint64_t{256} << 10;

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
  bool preparing_ = false;
  size_t coming_ = 0;  // How many regions it will want.
  int64_t probe_at_ns_ = 0;
  std::map<WorkerId, int64_t> gone_since_ns_;
  size_t claims_at_once_ = kClaimsMax;       // Is halved if the membership cannot change that many regions at once.
  std::map<uint32_t, uint64_t> recovering_;  // Epochs, by region.
  struct Failed {
    uint64_t epoch;
    int64_t retry_at_ns;
    std::string why;
    bool passed_on = false;
  };
  std::map<uint32_t, Failed> failed_;
  Counters counters_;
};

}  // namespace cell
