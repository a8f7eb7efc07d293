// LogCollector: removes logs of regions that are no more.
//
// Whoever drops a region, or gives up one in the making, removes its log. If its server dies before that, nobody knows of
// the log any more. So the worker that holds the tree's root looks from time to time at what the store keeps. A region
// that is not in the table, and whose id was handed out, never comes back: ids are handed out once. The table must be
// newer than the list of logs, since a region enters the table before its log is begun.
//
// One thread: the worker's.
#pragma once

#include <set>

#include "cell/base/clock.h"
#include "cell/cluster/membership.h"
#include "cell/server/region/log_flusher.h"
#include "cell/server/worker_context.h"

namespace cell {

struct LogCollectorOptions {
  // Between two looks. A log goes when two looks in a row have found it: its owner may be about to remove it.
  int64_t look_every_ns = 60'000'000'000;
};

class LogCollector {
 public:
  // All must outlive this.
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
  std::set<uint32_t> seen_;  // By the last look: nobody's.
  uint64_t removed_ = 0;
};

}  // namespace cell
