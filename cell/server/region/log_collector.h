// LogCollector removes the logs of regions that do not exist any more.
//
// A worker that drops a region, or abandons a new one, removes its log. If its server dies before that, nobody knows of
// the log any more. The worker that holds the tree's root therefore checks regularly for which regions the store has
// logs. A region that is not in the table, and whose id was used, never comes back, and a later region with its id has
// higher epochs. The table must be newer than the list of logs, because a region enters the table before its log is
// begun.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <map>

#include "cell/base/clock.h"
#include "cell/cluster/membership.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/region/log_flusher.h"

namespace cell {

struct LogCollectorOptions {
  // Time between two checks. A log is removed when two successive checks have found it, because its owner may be about
  // to remove it.
  int64_t look_every_ns = 60'000'000'000;
};

class LogCollector {
 public:
  // All arguments must outlive this.
  LogCollector(const WorkerContext& context, LogCollectorOptions options)
      : clock_(context.clock),
        membership_(context.membership),
        scheduler_(context.scheduler),
        regions_(context.regions),
        logs_(context.logs),
        options_(options) {}

  void Step();
  uint64_t removed() const { return removed_; }

 private:
  Task<bool> Look();

  const Clock* const clock_;
  Membership* const membership_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  LogFlusher* const logs_;
  const LogCollectorOptions options_;
  bool looking_ = false;
  int64_t look_at_ns_ = 0;
  std::map<uint32_t, uint32_t> seen_;  // Logs without a region, as of the last check, and their last epochs.
  uint64_t removed_ = 0;
};

}  // namespace cell
