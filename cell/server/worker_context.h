// WorkerContext holds what the parts of a worker share.
#pragma once

#include <cstdint>

#include "cell/cluster/membership.h"

namespace cell {

class Fabric;
class LogKeeper;
class Peers;
class Regions;
class StatusReport;
class SyncPoints;
class Turns;

// Everything here outlives the parts that get it.
struct WorkerContext {
  WorkerId self;
  uint64_t seed = 1;  // Seed of each part's random choices.
  Fabric* fabric = nullptr;
  Membership* membership = nullptr;
  Turns* turns = nullptr;
  Regions* regions = nullptr;
  LogKeeper* logs = nullptr;
  Peers* peers = nullptr;
  StatusReport* status = nullptr;
  const SyncPoints* sync_points = nullptr;
};

}  // namespace cell
