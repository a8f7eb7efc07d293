// SimulationPlan: all that a simulation's seed decides. Each seed draws which faults there are, how many, and how large
// everything is, so that between them seeds come where no one set of sizes would (swarm testing: Groce et al., ISSTA
// 2012).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/test_cluster.h"

namespace cell {

enum class Fault : uint8_t {
  kKill,         // A server's process dies, and is started again some time later.
  kPowerLoss,    // So does its machine: what was not synced is lost in part, the last writes torn.
  kStop,         // A server stops for a while, as by SIGSTOP; its memory can be read.
  kPartition,    // Two hosts do not reach each other.
  kOneWay,       // One does not reach the other, which reaches it.
  kSlowHost,     // A server's cores take many times as long.
  kSlowDisk,     // Its disk does.
  kDelay,        // Messages are delayed.
  kBreak,        // Two hosts' connections are lost.
  kDiskError,    // A call of the disk fails: EIO, or ENOSPC. The server is started again later.
  kExpire,       // The coordinator takes a server for dead.
  kCoordinator,  // A server cannot reach the coordinator.
  kJoin,         // A server is started that was not there before.
  kDrain,        // A server is to give all its regions away; for a while.
  kCheckpoint,   // All its regions are checkpointed.
  kClientCut,    // A client cannot reach the coordinator: its region table grows old.
};
inline constexpr size_t kFaults = 16;
std::string_view ToString(Fault fault);

struct SimulationPlan {
  uint64_t seed = 0;

  // The cluster.
  int servers = 1;
  int joining = 0;  // Beside those.
  RegionShape shape;
  Durability durability = Durability::kNone;
  StewardOptions steward;
  int membership_polls_max = 1;
  int64_t clock_gain_ppm = 0;
  int64_t latency_ns = 200, line_ns = 60, writer_step_ns = 40, disk_ns = 5'000;
  uint64_t checkpoint_bytes_min = 8 << 10;

  // Who uses it.
  int clients = 1;
  int tasks_each = 1;
  int readers = 0;  // Of the clients: so many only read, by themselves, and wait for no server.
  int keys = 100;
  int hot_keys = 10;
  double hot_share = 0;       // Of the operations.
  double table_share = 0;     // Of the keys, in a Pilaf table...
  uint32_t bucket_bytes = 0;  // ...with such buckets; 0: slots.
  int value_bytes_max = 100;
  int cache_level_min = 1;
  std::array<int, 5> weights{};  // Of put, delete, get, contains, scan.
  std::array<int, 3> paths{};    // Of server, client, hybrid.
  bool one_path_each = false;    // Each client keeps to one of them, instead.

  // What goes wrong, and for how long.
  int64_t duration_ns = 0;
  std::vector<Fault> faults;      // What there may be; none: nothing goes wrong.
  int64_t between_faults_ns = 0;  // Mean.
  int64_t fault_ns = 0;           // Mean, of those that last.

  static SimulationPlan Draw(uint64_t seed);
  // Of a table that is full to the brim.
  void FillTable(bool slots);
  // Whether faults of this plan may lose what `async` has acknowledged.
  bool MayLose() const;
  std::string ToString() const;
};

}  // namespace cell
