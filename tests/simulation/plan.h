// SimulationPlan describes as data everything that one simulation does. A seed draws a plan. A plan can be written as
// text, changed, read back and run (plan_text.h), and a failing one can be made smaller (shrink.h).
//
// Each fault and each client has a seed of its own, so that removing one leaves the draws of the others unchanged. Each
// seed draws which faults there are, how many, and how large everything is. Together the seeds therefore reach cases
// that no single set of sizes would reach (swarm testing: Groce et al., ISSTA 2012).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cell/base/random.h"
#include "cell/cluster/grants.h"
#include "tests/test_cluster.h"

namespace cell {

enum class Fault : uint8_t {
  kKill,           // A server's process dies, and is restarted some time later.
  kPowerLoss,      // Its machine dies, too: unsynced data is lost in part, the last writes are torn.
  kStop,           // A server stops for a while, as with SIGSTOP; its memory can be read.
  kPartition,      // Two hosts do not reach each other.
  kOneWay,         // One host does not reach another, which reaches it.
  kSlowHost,       // A server's cores take many times as long.
  kSlowDisk,       // Its disk takes many times as long.
  kDelay,          // Messages are delayed.
  kBreak,          // The connections of two hosts are lost.
  kDiskError,      // A call of the disk fails: EIO, or ENOSPC. The server is restarted later.
  kExpire,         // The coordinator takes a server for dead.
  kCoordinator,    // A server cannot reach the coordinator.
  kJoin,           // A server is started that was not there before.
  kDrain,          // A server is drained for a while.
  kCheckpoint,     // All its regions are checkpointed.
  kClientCut,      // A client cannot reach the coordinator: its region table becomes outdated.
  kDiskFull,       // A server's disk is full, and then has room again.
  kSlowDirectory,  // Listing and syncing its directories takes many times as long.
  kDescriptors,    // A server's process cannot open anything more, and then it can again.
  kMembership,     // A server's requests to the coordinator end with an error other than Unavailable.
  kLeaderless,     // The part of the coordinator that a server uses loses its leader.
  kFreeze,         // The virtual machine of a server stands still, and its clock with it.
  kRollback,       // A server is upgraded to a release that writes another format of logs, and rolled back.
  kCheck,          // All regions of a server are checked, as `cellctl check` does. No region may have an error.
  kFlood,          // A stranger floods a server with requests that cost much, and is killed.
  kGrant,          // An operator gives a user rights, and takes them some time later.
  kRevoke,         // An operator takes rights from a user, and gives them back some time later.
  kLostAnswers,    // The pool of objects does not answer some of a server's calls: it makes them, now or later, or not.
  kSilence,        // The pool of objects is silent for a server, or for all.
};
inline constexpr size_t kFaults = 29;
std::string_view ToString(Fault fault);

// One fault at one moment.
struct FaultPlan {
  int64_t at_ns = 0;  // From the simulation's begin.
  Fault fault = Fault::kKill;
  int64_t lasts_ns = 0;
  uint64_t seed = 0;  // Decides whom it affects, and how severely.
};

// One client.
struct ClientPlan {
  uint64_t seed = 0;
  int tasks = 1;            // Operations in flight.
  bool reads_only = false;  // One-sided reads, so that it waits for no server.
  int64_t comes_ns = 0;     // From the simulation's begin.
  int64_t goes_ns = INT64_MAX;
  int64_t idle_at_ns = INT64_MAX;  // Its program does not call the library from then on...
  int64_t idle_ns = 0;             // ...for this long. What it knows of the cluster becomes old.
  bool dies = false;               // Like a process that is killed, with operations in flight.
  bool closes = false;             // It is destroyed with operations in flight. If neither: it finishes its operations.
  int user = 0;                    // The number of a user, who may do what grants allow; 0: it is an operator.
  uint64_t operations_max = UINT64_MAX;  // Per task.
};

// Kinds of draws. Each can be disabled without an effect on the draws of the others.
struct Draws {
  bool large_values = true;
  bool short_timeouts = true;
  bool scan_modes = true;
  bool mixes = true;   // Delete-heavy, queues, hot keys.
  bool tides = true;   // The keys become many and few in turns.
  bool joins = true;   // Meganodes and parts of the table are joined.
  bool ranges = true;  // Counts and deletions of ranges.
  bool expiries = true;
  bool evictions = true;
  bool scattered = true;  // Few regions whose free space is scattered, and values of all sizes.
  bool regions_max = true;
  bool region_ids = true;  // Few, so that they are used again.
  bool clients_go = true;
  bool suspicion = true;  // Live servers are repeatedly taken for dead.
  bool disk_steps = true;
  bool disk_cached = true;
  bool idle = true;        // Clients do nothing for a while.
  bool encrypted = false;  // Logs are encrypted in all seeds, except those with rollbacks.
  std::array<bool, 9> faults = {true, true, true, true, true, true, true, true, true};  // From kDiskFull on.
  bool deadlines = true;      // Every call ends soon after its deadline.
  bool disks_heal = true;     // A failed disk is found to answer again without a restart.
  bool files_account = true;  // At the end there is no file that nobody needs.
  bool grants = true;         // Some clients are plain users, and grants are enforced.
  bool objects = true;        // Logs are in a pool of objects.
  bool learns = true;         // Clients learn from workers how the region table has changed.
  bool conditions = true;     // Some writes have conditions, and some gets return stamps.
  bool functions = true;      // Some conditional puts, and some gets, are functions of the servers.
  bool transactions = false;  // Some operations are transactions, in the place of scans and others.
  bool tables = false;        // Transactions read and write a table as well, if there are transactions.
  bool snapshots = false;     // Some operations take a snapshot and read it for a while.

  // Enables the named kind. Returns false if there is no such kind.
  bool Set(std::string_view name, bool on);
};

struct SimulationPlan {
  uint64_t seed = 0;

  // The cluster.
  int servers = 1;
  int joining = 0;  // In addition to those.
  RegionShape shape;
  Durability durability = Durability::kNone;
  SplitterOptions split;
  RebalancerOptions balance;
  JoinerOptions join;
  int membership_polls_max = 1;
  int64_t clock_gain_ppm = 0;
  int64_t latency_ns = 200, line_ns = 60, writer_step_ns = 40, disk_ns = 5'000;
  uint64_t checkpoint_bytes_min = 8 << 10;
  bool disk_in_steps = false;  // Time passes between two calls of a file system.
  bool disk_cached = false;    // Other hosts see what a host writes only when it is synced.
  bool encrypted = false;      // Logs are encrypted.
  bool objects = false;        // Logs are in a pool of objects that all servers use, and not in files.
  bool learns = false;         // Clients learn from workers how the region table has changed.
  int regions_max = 64;        // Per server.
  int region_ids = 0;          // The highest region id; 0: Pointer::kRegionMax.

  // The clients, and what they do.
  std::vector<ClientPlan> clients;
  int keys = 100;
  int hot_keys = 10;
  double hot_share = 0;       // Fraction of the operations.
  double table_share = 0;     // Fraction of the keys that are in a Pilaf table...
  uint32_t bucket_bytes = 0;  // ...with buckets of this size; 0: slots.
  int value_bytes_max = 100;
  double large_share = 0;   // Fraction of the values that are larger...
  int large_bytes_max = 0;  // ...than those that come with a reply, and have at most this many bytes.
  int cache_level_min = 1;
  std::array<int, 5> weights{};        // Weights of put, delete, get, contains, scan.
  std::array<int, 3> paths{};          // Weights of server, client, hybrid.
  bool one_path_each = false;          // Each client uses only one of them instead.
  double range_share = 0;              // Fraction of the operations that count or delete a range.
  double queue_share = 0;              // Fraction of the operations that put keys in order, and take the first one.
  double condition_share = 0;          // Fraction of the puts and deletes that have a condition.
  double function_share = 0;           // Fraction of the puts if a value is there, and of the gets, that are functions.
  double transaction_share = 0;        // Fraction of the operations that are transactions.
  bool transactions_in_table = false;  // They read and write keys of the table, too.
  double snapshot_share = 0;           // Fraction of the operations that take snapshots.
  // How long servers are still for a snapshot, how long they keep it, and how many bytes of all snapshots.
  int64_t snapshot_still_ns = SnapshotLimits{}.still_ns;
  int64_t snapshot_kept_ns = SnapshotLimits{}.kept_ns_max;
  uint64_t snapshot_bytes = SnapshotMemory::kBytesMaxDefault;
  double expiry_share = 0;          // Fraction of the puts whose pairs expire...
  int64_t expiry_ns_max = 0;        // ...after at most this time.
  int64_t sweep_every_ns = 50'000;  // How often servers look for pairs that have expired.
  // How often servers look for regions whose free space is scattered, and how many bytes they move in a turn.
  int64_t compact_every_ns = 50'000;
  uint64_t compact_bytes = 1024;
  Eviction evict = Eviction::kNone;  // Of the pairs in the tree but those with the prefix kPinned.
  int64_t tide_ns = 0;               // If not 0: puts and deletes exchange their weights each time this has passed.
  double short_share = 0;            // Fraction of the calls with a timeout so short that many miss it.
  bool scan_limits = false;          // Some scans have a limit, some request only keys.
  int64_t late_ns_max = INT64_MAX;   // No call ends later than this after its deadline.
  int scan_tries = 1;                // A scan continues after this many errors less one.

  // With users, grants are enforced from the begin.
  int users = 0;             // Users are numbered from 1 on.
  uint64_t grants_seed = 0;  // Decides what they have been granted at the begin.

  bool restarts_after_disk = true;  // A server whose disk failed is restarted. Otherwise it must recover by itself.
  bool files_account = true;        // At the end there is no file that nobody needs.

  // The faults.
  int64_t duration_ns = 0;
  std::vector<FaultPlan> faults;  // In the order of their times.

  static SimulationPlan Draw(uint64_t seed, const Draws& draws = {});
  // Returns whether there is a fault of this kind.
  bool Has(Fault fault) const;
  // Returns how large the objects of a pool may be.
  uint64_t ObjectBytes() const;
  // Returns whether faults of this plan may lose what `async` has acknowledged.
  bool MayLose() const;
  // Keys with this prefix are not evicted.
  static constexpr std::string_view kPinned = "k000";
  EvictionRules Rules() const;
  // A client's user. It has the name NameOf(0), *, if it stands for every client.
  static std::string NameOf(int user);
  struct Grant {
    std::string user;
    GrantScope scope;
    Rights rights;
  };
  // Draws a grant that may be given: for the table only if there is one.
  Grant AnyGrant(Random* random) const;
  // Returns the grants at the begin.
  std::vector<Grant> FirstGrants() const;
  // Returns whether a pair may be evicted.
  bool Evicts(std::string_view key, bool in_table, bool expires) const;
  // Returns the plan in one line.
  std::string Summary() const;
};

}  // namespace cell
