// Provides what clusters for tests have in common.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/mutant.h"
#include "cell/client/client.h"
#include "cell/cluster/memory_membership.h"
#include "cell/server/worker.h"
#include "cell/tree/tree_check.h"

namespace cell {

struct TestClusterOptions {
  int servers = 1;
  size_t regions_max = 64;  // Per server.
  // Server i has inline_max[i % size], so that meganodes that move hold pairs that were stored in different ways.
  std::vector<size_t> inline_max = {kInlineMaxDefault};
  MigratorOptions migrator;
  EvictionRules evictions;
  uint32_t region_ids = Pointer::kRegionMax;  // The highest region id.
  Evictor::Options evictor;
  SplitterOptions split;
  RebalancerOptions balance;
  JoinerOptions join;
  int64_t start_pause_ns = Worker::Options{}.start_pause_ns;
  int membership_polls_max = 1;
  LogFlusherOptions logs;
  CheckpointerOptions checkpoints;
  TransactionResolverOptions transactions;
  SnapshotLimits snapshots;  // Of simulated clusters.
  size_t snapshot_bytes = Worker::Options{}.snapshot_bytes;
  LogCollectorOptions collector;
  int64_t refresh_every_ns = TableRefresher::kNever;
  int64_t held_max_ns = RequestService::Options{}.held_max_ns;
  Uploads::Limits uploads;
  LongRequests::Limits long_requests;
  ExpirySweeper::Options sweeper;
  Compactor::Options compactor;
  // For simulated clusters with logs: sessions, takeovers, and the duration of a sync.
  int64_t session_ns = 300'000;
  int64_t takeover_after_ns = 20'000;
  int64_t probe_every_ns = RecovererOptions{}.probe_every_ns;
  int64_t table_lease_ns = 200'000;
  int64_t lease_wait_ns = 220'000;
  int64_t disk_ns = 5'000;
  bool quiet_at_end = true;          // Nothing continues forever.
  bool disk_cached = false;          // Others see what a host writes once it is synced (SimDisk).
  bool encrypted = false;            // Logs of simulated clusters are encrypted.
  bool objects = false;              // Logs of simulated clusters are in a pool of objects instead of files...
  bool learns = true;                // Clients learn from workers how the region table has changed.
  uint64_t object_bytes = 16 << 10;  // ...which have at most this many bytes.
  bool disk_in_steps = false;        // Time passes between two calls of a file system (SimThreadPool).
  int joining = 0;                   // The last servers, which are not there before they are started.
  int64_t clock_gain_ppm = 0;        // The maximum error of a host's clock.
  // For simulated clusters: server i's cluster time is ahead by clock_offset_ns[i % size].
  std::vector<int64_t> clock_offset_ns = {0};
  Mutant mutant = Mutant::kNone;
};

struct TestReport : TreeReport {
  uint64_t hash_keys = 0;   // Keys in all tables.
  uint64_t unfinished = 0;  // Nodes that are reached only from their left neighbour.
};

class TestCluster {
 public:
  virtual ~TestCluster() = default;
  virtual std::unique_ptr<Client> NewClient(ClientOptions options) = 0;
  // Returns what is wrong in any region or between regions, and the total number of keys. REQUIRES: all clients are
  // gone.
  virtual TestReport Check() = 0;

 protected:
  static ClusterState Describe(const RegionShape& shape, const std::string& address,
                               const TestClusterOptions& options) {
    ClusterState state;
    state.shape = shape;
    state.durability = options.logs.durability;
    state.table.evictions = options.evictions;
    state.table.ids.max = options.region_ids;
    state.table_lease_ns = options.table_lease_ns;
    for (int i = 0; i < options.servers; ++i) {
      state.servers.push_back({fmt::format("server-{}", i),
                               {{fmt::format("{}{}", address, i), static_cast<uint32_t>(options.regions_max)}},
                               ""});
    }
    return state;
  }
  static Worker::Options WorkerOptions(const TestClusterOptions& options, int server) {
    Worker::Options made;
    made.service.name = fmt::format("server-{}", server);
    made.service.held_max_ns = options.held_max_ns;
    made.service.uploads = options.uploads;
    made.service.long_requests = options.long_requests;
    made.service.sweeper = options.sweeper;
    made.service.evictor = options.evictor;
    made.service.compactor = options.compactor;
    made.self = {made.service.name, 0};
    made.seed += static_cast<uint64_t>(server);
    made.split = options.split;
    made.balance = options.balance;
    made.join = options.join;
    made.start_pause_ns = options.start_pause_ns;
    made.regions_max = options.regions_max;
    made.pairs.inline_max = options.inline_max[static_cast<size_t>(server) % options.inline_max.size()];
    made.migrator = options.migrator;
    made.transactions = options.transactions;
    made.snapshot_bytes = options.snapshot_bytes;
    made.logs = options.logs;
    made.checkpoints = options.checkpoints;
    made.collector = options.collector;
    made.refresh_every_ns = options.refresh_every_ns;
    made.recoverer = {options.takeover_after_ns, options.mutant == Mutant::kNoLeaseWait ? 0 : options.lease_wait_ns,
                      5'000, 1'000'000, options.probe_every_ns};
    return made;
  }
  static TestReport CheckAll(const std::vector<Worker*>& workers) {
    TestReport all;
    std::vector<TreeReport> reports;
    for (Worker* worker : workers) {
      for (HeldRegion* region : worker->regions()->all()) {
        if (region->state() == RegionState::kFilling || !region->readable()) continue;
        if (region->hash != nullptr) {
          const absl::Status status = region->hash->Check();
          if (!status.ok()) all.errors.push_back(std::string(status.message()));
          all.error_count += !status.ok();
          all.hash_keys += region->hash->keys();
          continue;
        }
        reports.push_back(CheckTree(*region->memory));
        all.error_count += reports.back().error_count;
        all.unfinished += reports.back().half_splits;
        all.inline_pairs += reports.back().inline_pairs;
        for (const std::string& error : reports.back().errors) {
          all.errors.push_back(fmt::format("region {}: {}", region->region(), error));
        }
      }
    }
    const ClusterReport cluster = CheckNeighbours(reports);
    all.keys = cluster.keys;
    all.half_splits = cluster.missing_routes;
    all.error_count += cluster.errors.size();
    all.errors.insert(all.errors.end(), cluster.errors.begin(), cluster.errors.end());
    return all;
  }
};

inline std::unique_ptr<Client> Opened(absl::StatusOr<std::unique_ptr<Client>> client) {
  if (!client.ok()) std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
  CELL_CHECK(client.ok());
  return *std::move(client);
}

}  // namespace cell
