// WorkerContext holds what the parts of a worker share.
#pragma once

#include <cstdint>

#include "cell/cluster/membership.h"

namespace cell {

class Clock;
class Fabric;
class LogFlusher;
class Peers;
class Regions;
class StatusReport;
class SyncPoints;
class Scheduler;

// Everything here outlives the parts that get it.
struct WorkerContext {
  WorkerId self;
  uint64_t seed = 1;  // Seed of each part's random choices.
  Fabric* fabric = nullptr;
  const Clock* clock = nullptr;  // The fabric's.
  Membership* membership = nullptr;
  Scheduler* scheduler = nullptr;
  Regions* regions = nullptr;
  LogFlusher* logs = nullptr;
  Peers* peers = nullptr;
  StatusReport* status = nullptr;
  const SyncPoints* sync_points = nullptr;
};

}  // namespace cell
