// Checkpointer writes all that a region holds to a checkpoint while clients read and write it, and trims its log. If
// something was damaged in memory, there is no checkpoint: a recovery from the log brings back what was stored.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <memory>
#include <string>

#include "cell/server/context/worker_context.h"
#include "cell/server/region/log_flusher.h"
#include "cell/server/region/regions.h"
#include "cell/server/sched/scheduler.h"

namespace cell {

struct CheckpointerOptions {
  // A checkpoint begins when a region's log since the last one is twice as long as the region's data, and at least this
  // long. So checkpoints write at most half of what the log does.
  uint64_t log_bytes_min = uint64_t{64} << 20;
};

class Checkpointer {
 public:
  Checkpointer(const WorkerContext& context, CheckpointerOptions options)
      : scheduler_(context.scheduler), regions_(context.regions), logs_(context.logs), options_(options) {
    scheduler_->InterruptOnStop(regions_->unclaimed());
  }

  // Writes a checkpoint of a region that this worker holds. Returns FailedPrecondition if the region is not here, has
  // no log, or is claimed for a split or a migration, DataLoss if it was damaged in memory, and Cancelled if the worker
  // ends or loses the region. After an error the log, and the checkpoint before, stay as they are.
  Task<absl::Status> Checkpoint(uint32_t region);

  // Writes a checkpoint of each region, one after the other. Waits for a region that is claimed.
  struct Made {
    uint64_t regions = 0, bytes = 0;
  };
  Task<absl::Status> CheckpointAll(Made* made);

  // Begins a checkpoint that is due.
  void Step();

  struct Counters {
    uint64_t checkpoints = 0, checkpoint_bytes = 0;
    uint64_t damaged = 0;  // Checkpoints that were given up because something was damaged in memory.
  };
  const Counters& counters() const { return counters_; }

 private:
  Task<bool> AutoCheckpoint(RegionClaim claim);
  Task<absl::Status> TryCheckpoint(HeldRegion* held);
  Task<absl::Status> WriteCheckpoint(HeldRegion* held, std::shared_ptr<RegionLog> log, uint64_t sequence,
                                     std::unique_ptr<LogWriter> writer);
  // A checkpoint that is being written.
  struct Draft;
  Task<absl::Status> Write(Draft* draft);
  Task<absl::Status> AddMeganode(Draft* draft);
  Task<absl::Status> AddTable(Draft* draft);

  Scheduler* const scheduler_;
  Regions* const regions_;
  LogFlusher* const logs_;
  const CheckpointerOptions options_;
  Counters counters_;
};

}  // namespace cell
