// ExpirySweeper deletes the pairs of a worker's regions that have expired, in the background, some leaves, slots or
// buckets a turn.
//
// Nobody sees such pairs; this gives their room back, and keeps the leaves of scans full. The deletes are logged like
// those of clients. Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>
#include <optional>

#include "cell/base/task.h"
#include "cell/region/expiry_sweep.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/request/served_regions.h"
#include "cell/server/request/write_pipeline.h"

namespace cell {

class ExpirySweeper {
 public:
  // A sweep takes about 2 % of the worker's time: a leaf takes one or two microseconds.
  struct Options {
    int64_t idle_pause_ns = 100'000'000;  // Pause between two looks for pairs that have expired.
    int64_t turn_pause_ns = 1'000'000;    // Pause after each kPlacesPerTurn leaves.
  };
  static constexpr int kPlacesPerTurn = 16;

  // All arguments must outlive this.
  ExpirySweeper(const WorkerContext& context, ServedRegions* served, WritePipeline* writes, const Options& options);

  // Looks for pairs that have expired if it is time, and begins to delete them.
  void Step();

 private:
  // Returns a region that has pairs to be deleted; 0 if none has.
  uint32_t NextRegion() const;
  Task<bool> Sweep(uint32_t region);
  // Sweeps the next places of the region. Returns false if the sweep does not go on.
  bool SweepPlaces(uint32_t region, ExpirySweep* sweep);

  const Clock* const clock_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  ServedRegions* const served_;
  WritePipeline* const writes_;
  const Options options_;
  int64_t look_at_ns_ = INT64_MIN;
  bool busy_ = false;
};

}  // namespace cell
