// SimulationPlan: everything that one simulation does, as data. A seed draws a plan; a plan can be written as text,
// changed, read back and run (plan_text.h), and a failing one can be made smaller (shrink.h).
//
// Each fault and each client has a seed of its own, so that taking one away leaves the draws of the others as they were.
// Each seed draws which faults there are, how many, and how large everything is, so that between them seeds come where
// no one set of sizes would (swarm testing: Groce et al., ISSTA 2012).
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
  kDiskFull,       // Nothing more fits on a server's disk, and then there is room again.
  kSlowDirectory,  // Listing and syncing its directories takes many times as long.
  kDescriptors,    // A server's process cannot open anything more; and then it can again.
  kMembership,     // What a server asks of the coordinator ends with an error that is not Unavailable.
  kLeaderless,     // The part of the coordinator that a server talks to loses its leader.
  kFreeze,         // The virtual machine that a server is in stands still, and its clock with it.
  kRollback,       // A server is upgraded, to a release that writes another format of logs, and rolled back.
};
inline constexpr size_t kFaults = 23;
std::string_view ToString(Fault fault);

// One fault, at one moment.
struct FaultPlan {
  int64_t at_ns = 0;  // From the simulation's begin.
  Fault fault = Fault::kKill;
  int64_t lasts_ns = 0;
  uint64_t seed = 0;  // Decides whom it strikes, and how hard.
};

// One client.
struct ClientPlan {
  uint64_t seed = 0;
  int tasks = 1;                       // Operations in flight.
  bool reads_only = false;             // One-sided, so that it waits for no server.
  int64_t comes_ns = 0;                // From the simulation's begin.
  int64_t goes_ns = INT64_MAX;
  bool dies = false;    // As a process that is killed, with operations in flight.
  bool closes = false;  // It is destroyed with operations in flight. Neither: it ends what it has begun.
  uint64_t operations_max = UINT64_MAX;  // Of each task.
};

// Kinds of draws, each of which can be left out. The others draw the same without it.
struct Draws {
  bool large_values = true;
  bool short_timeouts = true;
  bool scan_modes = true;
  bool mixes = true;  // Delete-heavy, queues, hot keys.
  bool regions_max = true;
  bool clients_go = true;
  bool suspicion = true;  // Servers that live are taken for dead, again and again.
  bool disk_steps = true;
  bool disk_cached = true;
  std::array<bool, 7> faults = {true, true, true, true, true, true, true};  // From kDiskFull on.
  bool deadlines = true;      // Every call ends soon after its deadline.
  bool disks_heal = true;     // A disk that has failed is found to answer again without a restart.
  bool files_account = true;  // At the end no file is left that nobody needs.

  // Scheduler on what is named; false: there is no such kind.
  bool Set(std::string_view name, bool on);
};

struct SimulationPlan {
  uint64_t seed = 0;

  // The cluster.
  int servers = 1;
  int joining = 0;  // Beside those.
  RegionShape shape;
  Durability durability = Durability::kNone;
  SplitterOptions split;
  RebalancerOptions balance;
  int membership_polls_max = 1;
  int64_t clock_gain_ppm = 0;
  int64_t latency_ns = 200, line_ns = 60, writer_step_ns = 40, disk_ns = 5'000;
  uint64_t checkpoint_bytes_min = 8 << 10;
  bool disk_in_steps = false;  // Time passes between two calls of a file system.
  bool disk_cached = false;    // Other hosts see what a host writes when it is synced, not before.
  int regions_max = 64;        // Of each server.

  // Who uses it, and for what.
  std::vector<ClientPlan> clients;
  int keys = 100;
  int hot_keys = 10;
  double hot_share = 0;       // Of the operations.
  double table_share = 0;     // Of the keys, in a Pilaf table...
  uint32_t bucket_bytes = 0;  // ...with such buckets; 0: slots.
  int value_bytes_max = 100;
  double large_share = 0;     // Of the values; they have...
  int large_bytes_max = 0;    // ...more than what comes with a reply, and at most so many bytes.
  int cache_level_min = 1;
  std::array<int, 5> weights{};  // Of put, delete, get, contains, scan.
  std::array<int, 3> paths{};    // Of server, client, hybrid.
  bool one_path_each = false;    // Each client keeps to one of them, instead.
  double queue_share = 0;        // Of the operations: keys are put one after the other, and the first is taken.
  double short_share = 0;        // Of the calls: their timeout is so short that many miss it.
  bool scan_limits = false;      // Some scans have a limit, some want keys only.
  int64_t late_ns_max = INT64_MAX;  // No call ends later than that after its deadline.
  int scan_tries = 1;            // A scan goes on after so many errors less one.

  bool restarts_after_disk = true;  // A server whose disk failed is started again; else it must find out by itself.
  bool files_account = true;     // At the end no file is left that nobody needs.

  // What goes wrong.
  int64_t duration_ns = 0;
  std::vector<FaultPlan> faults;  // In the order of their times.

  static SimulationPlan Draw(uint64_t seed, const Draws& draws = {});
  // Whether there is a fault of this kind.
  bool Has(Fault fault) const;
  // Whether faults of this plan may lose what `async` has acknowledged.
  bool MayLose() const;
  // In one line.
  std::string Summary() const;
};

}  // namespace cell
