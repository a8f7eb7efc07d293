// World holds what the parts of one simulation share: the cluster and its clock, the histories of all keys, the
// journal, and the schedule of actions from outside.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "tests/sim_cluster.h"
#include "tests/simulation/grant_history.h"
#include "tests/simulation/history.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/plan.h"
#include "tests/simulation/simulation.h"

namespace cell {

// Timeout of the clients' calls.
inline constexpr int64_t kTimeoutNs = 3'000'000;
inline constexpr int64_t kAsyncBoundNs = 40'000;
// Timers of servers, some ten thousand times shorter than by default.
inline constexpr int64_t kStartPauseNs = 1'000;  // Nothing scheduled happens while a server starts.
inline constexpr int64_t kMarkAfterNs = 10'000;
inline constexpr int64_t kDescriptorPauseNs = 20'000;
inline constexpr int64_t kProbeEveryNs = 100'000;
inline constexpr int64_t kHeldMaxNs = 100'000;
inline constexpr int64_t kUploadIdleNs = 500'000;
inline constexpr int64_t kCollectEveryNs = 1'000'000;
inline constexpr int64_t kTransactionPatienceNs = 200'000;
// With fewer regions a server may have none for a split, or for the tier above.
inline constexpr int kRegionsEnough = 64;
// A slow disk takes up to this many times as long.
inline constexpr int64_t kSlowestDisk = 20;

class World {
 public:
  World(const SimulationPlan& plan, Mutant mutant, const Journal::Tell& tell)
      : plan(plan),
        table_keys(static_cast<size_t>(plan.table_share * plan.keys)),
        journal([this] { return now_ns(); }, tell),
        cluster(plan.shape, SimOf(plan), ClusterOf(plan, mutant)),
        history(static_cast<size_t>(plan.keys)),
        grants(&cluster) {
    if (plan.users == 0) return;
    cluster.network()->SetOnRead([this](const SimFabric& reader, const SimFabric& server) {
      if (grants.MayRead(reader.self(), server)) return;
      journal.Violate("{} was let read memory, but may not scan everything", cell::ToString(reader.self()));
    });
  }
  ~World() { cluster.network()->SetOnRead(nullptr); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int64_t now_ns() { return cluster.network()->now_ns(); }

  // Calls `run` at that time, between two steps of the network and so outside of all servers.
  void At(int64_t at_ns, std::function<void()> run) {
    cluster.network()->At(at_ns, [] {});  // Makes the clock stop at that time, and not pass it.
    planned_.emplace(at_ns, std::move(run));
  }
  // Runs until `ended`, that time, or a violation. Returns whether it has ended.
  bool RunUntil(int64_t until_ns, const std::function<bool()>& ended) {
    while (now_ns() < until_ns && journal.right()) {
      if (ended()) return true;
      if (!planned_.empty() && planned_.begin()->first <= now_ns()) {
        const auto planned = planned_.extract(planned_.begin());
        planned.mapped()();
        continue;
      }
      cluster.network()->Step();
    }
    return ended();
  }

  const SimulationPlan plan;
  const size_t table_keys;  // This many keys, the first ones, are in a table.
  Journal journal;          // Before the cluster, whose tasks may still tell it something when they end.
  SimCluster cluster;
  History history;
  GrantHistory grants;
  SimulationReport report;
  bool healed = false;  // The faults are over.

 private:
  static SimOptions SimOf(const SimulationPlan& plan) {
    SimOptions sim;
    sim.seed = plan.seed;
    sim.latency_ns = plan.latency_ns;
    sim.line_ns = plan.line_ns;
    sim.writer_step_ns = plan.writer_step_ns;
    sim.clients_run = true;
    sim.handed_over = true;
    return sim;
  }
  static TestClusterOptions ClusterOf(const SimulationPlan& plan, Mutant mutant) {
    TestClusterOptions options;
    options.servers = plan.servers + plan.joining;
    options.joining = plan.joining;
    // Longer than the largest read of a migration takes (127 pages).
    options.migrator.silence_ns = std::max<int64_t>(100'000, 127 * 64 * plan.line_ns * 3 / 2);
    options.migrator.zeroed_bytes = 4 << 10;
    options.split = plan.split;
    options.balance = plan.balance;
    options.balance.weigh_timeout_ns = 20'000;
    options.balance.joins_patience_ns = 200'000;
    options.join = plan.join;
    options.start_pause_ns = kStartPauseNs;
    options.membership_polls_max = plan.membership_polls_max;
    options.logs.durability = plan.durability;
    options.logs.bound_ns = kAsyncBoundNs;
    options.checkpoints.log_bytes_min = plan.checkpoint_bytes_min;
    options.logs.mark_after_ns = kMarkAfterNs;
    options.logs.descriptor_pause_ns = kDescriptorPauseNs;
    options.probe_every_ns = kProbeEveryNs;
    options.held_max_ns = kHeldMaxNs;
    options.uploads.idle_ns = kUploadIdleNs;
    options.evictions = plan.Rules();
    options.evictor.use_unit_shift = 12;
    // Time stands still while a simulated worker serves, so that this is one in each turn.
    if (plan.Has(Fault::kFlood)) options.long_requests.turn_ns = 0;
    options.sweeper = {plan.sweep_every_ns, plan.sweep_every_ns / 20};
    options.compactor.idle_pause_ns = plan.compact_every_ns;
    options.compactor.turn_pause_ns = plan.compact_every_ns / 20;
    options.compactor.bytes_per_turn = plan.compact_bytes;
    options.compactor.again_after_ns = 2 * plan.compact_every_ns;
    options.compactor.in_vain_pause_ns = 20 * plan.compact_every_ns;
    options.collector.look_every_ns = kCollectEveryNs;
    options.transactions = {kTransactionPatienceNs, kTransactionPatienceNs / 10};
    options.snapshots.still_ns = plan.snapshot_still_ns;
    options.snapshots.kept_ns_max = plan.snapshot_kept_ns;
    options.snapshot_bytes = plan.snapshot_bytes;
    options.disk_ns = plan.disk_ns;
    options.clock_gain_ppm = plan.clock_gain_ppm;
    options.disk_in_steps = plan.disk_in_steps;
    options.disk_cached = plan.disk_cached;
    options.encrypted = plan.encrypted;
    options.objects = plan.objects;
    options.learns = plan.learns;
    options.object_bytes = plan.ObjectBytes();
    options.regions_max = static_cast<size_t>(plan.regions_max);
    if (plan.region_ids > 0) options.region_ids = static_cast<uint32_t>(plan.region_ids);
    options.quiet_at_end = plan.regions_max >= kRegionsEnough && plan.region_ids == 0;
    // Servers differ, so that both kinds of pairs meet in one meganode.
    options.inline_max = {kInlineMaxDefault, 0, 64};
    std::rotate(options.inline_max.begin(), options.inline_max.begin() + static_cast<ptrdiff_t>(plan.seed % 3),
                options.inline_max.end());
    options.mutant = mutant;
    return options;
  }

  std::multimap<int64_t, std::function<void()>> planned_;
};

}  // namespace cell
