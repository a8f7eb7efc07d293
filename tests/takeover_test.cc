// Servers die, lose their machines, or stop and continue at any moment, while clients write and read on both paths, and
// meganodes split and migrate. Others take the regions over from their logs. With sync, nothing that was acknowledged
// is lost, and no read misses what was acknowledged, or seen by another read, before it began. With async, nothing is
// lost that was acknowledged longer ago than the bound.
#include <gtest/gtest.h>

#include <map>

#include "cell/base/check.h"
#include "cell/base/random.h"
#include "tests/clusters.h"

namespace cell {
namespace {

constexpr int kServers = 3;
constexpr int kKeys = 1200;
constexpr int kWriters = 4;
constexpr int kReaders = 4;

std::string Key(int i) { return fmt::format("k{:05}", i); }
std::string Value(int i, int version) {
  return fmt::format("{} {} ", i, version) + std::string(100, static_cast<char>('a' + (i * 7 + version) % 26));
}
int VersionOf(int i, const std::optional<std::string>& value) {
  if (!value.has_value()) return 0;
  const int version = std::stoi(value->substr(value->find(' ') + 1));
  EXPECT_EQ(*value, Value(i, version));
  return version;
}

// There are only puts, so that a key's versions only grow. 0: absent.
struct History {
  std::vector<int> begun = std::vector<int>(kKeys), ended = begun;
  std::vector<int> seen = begun;                        // Seen by any read that has ended.
  std::vector<bool> broken = std::vector<bool>(kKeys);  // A write of the key failed: it is not written any more.
  std::vector<std::map<int64_t, int>> acknowledged = std::vector<std::map<int64_t, int>>(kKeys);
  bool strict = true;  // Reads are checked.
  std::vector<std::string> violations;
  bool stop = false;
  int left = kWriters + kReaders;
  uint64_t writes = 0, failed = 0, reads = 0;
};

CallOptions OnPath(Random* random) {
  CallOptions options;
  options.path = random->Below(2) == 0 ? Path::kServer : Path::kClient;
  return options;
}

// `map` is the client or one of its tables.
template <typename Map>
Task<bool> Writer(Client* client, Map* map, History* history, int index, uint64_t seed) {
  Random random(seed);
  while (!history->stop) {
    const int i = static_cast<int>(random.Below(kKeys / kWriters)) * kWriters + index;
    const auto at = static_cast<size_t>(i);
    if (history->broken[at]) {
      co_await client->AsyncSleepUntil(client->NowNs() + 1'000);
      continue;
    }
    const std::string key = Key(i);
    const int version = ++history->begun[at];
    const absl::StatusOr<bool> existed = co_await map->AsyncPut(key, Value(i, version), OnPath(&random));
    if (existed.ok()) {
      history->ended[at] = version;
      history->acknowledged[at][client->NowNs()] = version;
      ++history->writes;
    } else {
      history->broken[at] = true;
      ++history->failed;
    }
  }
  --history->left;
  co_return true;
}

// Readers that only make calls never ask for the region table by themselves.
template <typename Map>
Task<bool> Reader(Client* client, Map* map, History* history, bool by_calls, uint64_t seed) {
  Random random(seed);
  while (!history->stop) {
    const int i = static_cast<int>(random.Below(kKeys));
    const auto at = static_cast<size_t>(i);
    const std::string key = Key(i);
    const int least = std::max(history->ended[at], history->seen[at]);
    const int64_t begun_ns = client->NowNs();
    CallOptions path = OnPath(&random);
    if (by_calls) path.path = Path::kServer;
    const absl::StatusOr<std::optional<std::string>> value = co_await map->AsyncGet(key, path);
    if (!value.ok()) {
      if (value.status().code() != absl::StatusCode::kUnavailable &&
          value.status().code() != absl::StatusCode::kDeadlineExceeded) {
        history->violations.push_back(value.status().ToString());
      }
      continue;
    }
    const int version = VersionOf(i, *value);
    if (history->strict && (version < least || version > history->begun[at])) {
      history->violations.push_back(fmt::format("{} from {} to {} by path {}: version {}, ended {}, seen {}, begun {}",
                                                key, begun_ns, client->NowNs(), static_cast<int>(*path.path), version,
                                                history->ended[at], history->seen[at], history->begun[at]));
    }
    history->seen[at] = std::max(history->seen[at], version);
    ++history->reads;
  }
  --history->left;
  co_return true;
}

struct Totals {
  uint64_t takeovers = 0, recovered = 0, lost = 0, writes = 0, failed = 0, reads = 0, lost_writes = 0, checkpoints = 0,
           children = 0, table_splits = 0, killed_at = 0;
};

class TakeoverTest : public ::testing::Test {
 protected:
  enum class Fault { kKill, kMachine, kStop, kRestart };

  static TestClusterOptions Options(Durability durability) {
    TestClusterOptions options;
    options.servers = kServers;
    options.migrator.silence_ns = 100'000;
    options.split.pace.copied = 8;
    options.split.pace.freed = 4;
    options.balance.every_ns = 50'000;
    options.membership_polls_max = 5;
    options.logs.durability = durability;
    options.logs.bound_ns = 40'000;
    options.checkpoints.log_bytes_min = 8 << 10;
    return options;
  }

  // Runs one cluster with several faults. Returns what was wrong.
  std::vector<std::string> Run(const TestClusterOptions& options, uint64_t seed, int faults) {
    const bool sync = options.logs.durability == Durability::kSync;
    SimOptions sim;
    sim.seed = seed;
    sim.latency_ns = 200;
    SimCluster cluster({512, 32 << 10, 64 << 10}, sim, options);
    Random random(seed);
    History history;
    history.strict = sync;
    std::vector<std::unique_ptr<Client>> clients;
    std::vector<std::unique_ptr<Table>> tables;
    std::vector<Task<bool>> tasks;
    if (table_.has_value()) CELL_CHECK(cluster.CreateTable("t", *table_, parts_).ok());
    for (int i = 0; i < kWriters + kReaders; ++i) {
      ClientOptions client;
      client.cache_level_min = 1;
      client.timeout_us = 3'000;
      client.reconnect_us = 20;
      client.report = false;
      clients.push_back(cluster.NewClient(client));
      const uint64_t own = seed * 100 + static_cast<uint64_t>(i);
      Client* const one = clients.back().get();
      if (table_.has_value()) {
        tables.push_back(std::make_unique<Table>(*one->OpenTable("t")));
        Table* const table = tables.back().get();
        tasks.push_back(i < kWriters ? Writer(one, table, &history, i, own)
                                     : Reader(one, table, &history, i % 2 == 0, own));
      } else {
        tasks.push_back(i < kWriters ? Writer(one, one, &history, i, own)
                                     : Reader(one, one, &history, i % 2 == 0, own));
      }
    }
    for (Task<bool>& task : tasks) task.Start();
    const auto poll = [&](int64_t ns) {
      const int64_t until = cluster.network()->now_ns() + ns;
      while (cluster.network()->now_ns() < until && history.left > 0) {
        for (size_t i = 0; i < clients.size(); ++i) {
          if (!tasks[i].done()) clients[i]->Poll(cluster.network()->now_ns() + 50);
        }
      }
      while (cluster.network()->now_ns() < until) cluster.network()->Step();
    };
    const auto all_served = [&] {
      for (const auto& [region, entry] : cluster.table().regions) {
        const auto owner = static_cast<size_t>(std::stoi(entry.owner.server.substr(7)));
        if (cluster.Dead(owner) || entry.recovering) return false;
      }
      return true;
    };
    const auto all_hold = [&] {
      for (int s = 0; s < kServers; ++s) {
        if (cluster.table().CountOf({fmt::format("server-{}", s), 0}) == 0) return false;
      }
      return true;
    };
    if (kill_at_.empty()) {  // Otherwise begin at once, because tables grow while they are filled.
      for (int i = 0; i < 100 && !all_hold(); ++i) poll(50'000);
      poll(static_cast<int64_t>(random.Below(200'000)));
    }
    std::map<int64_t, int> faults_at;
    for (int fault = 0; fault < faults; ++fault) {
      size_t victim = random.Below(kServers);
      const auto kind = kill_at_.empty() ? static_cast<Fault>(random.Below(4)) : Fault::kMachine;
      if (!kill_at_.empty()) {
        std::optional<size_t> reached;
        for (size_t i = 0; i < kServers; ++i) {
          cluster.worker(i)->sync_points()->on_reach = [&, i](std::string_view point) {
            if (point != kill_at_ || reached.has_value()) return;
            reached = i;
            cluster.Kill(i, true);
          };
        }
        for (int i = 0; i < 300 && !reached.has_value(); ++i) poll(20'000);
        for (size_t i = 0; i < kServers; ++i) cluster.worker(i)->sync_points()->on_reach = nullptr;
        if (!reached.has_value()) break;
        victim = *reached;
        ++totals_.killed_at;
      }
      const std::string name = fmt::format("server-{}", victim);
      uint64_t had = 0;
      for (const auto& [region, entry] : cluster.table().regions) had += entry.owner.server == name;
      faults_at[cluster.network()->now_ns() + 5'000] = fault;  // Answers on their way still arrive.
      Collect(&cluster, victim);
      switch (kind) {
        case Fault::kKill:
        case Fault::kMachine:
        case Fault::kRestart:
          if (!cluster.Dead(victim)) cluster.Kill(victim, kind == Fault::kMachine);
          if (kind == Fault::kRestart) {
            poll(static_cast<int64_t>(random.Below(600'000)));
            cluster.Restart(victim);
          }
          break;
        case Fault::kStop:
          cluster.Stop(victim);
          poll(static_cast<int64_t>(random.Below(1'500'000)));
          cluster.Continue(victim);
          break;
      }
      for (int i = 0; i < 100 && !all_served(); ++i) poll(50'000);
      if (!all_served()) {
        history.violations.push_back(fmt::format(
            "regions without a server after fault {} of kind {} on {}: {}", fault, static_cast<int>(kind), name, [&] {
              std::string t;
              for (const auto& [r, e] : cluster.table().regions)
                t += fmt::format(" {}@{}:{}{}", r, e.owner.server, e.epoch, e.recovering ? "R" : "");
              return t;
            }()));
      }
      if (cluster.Dead(victim)) cluster.Restart(victim);
      totals_.takeovers += had > 0;
      poll(static_cast<int64_t>(random.Below(300'000)));
      if (!history.violations.empty()) break;
    }
    history.stop = true;
    while (history.left > 0) poll(10'000);
    tasks.clear();
    for (size_t i = 0; i < kServers; ++i) cluster.worker(i)->rebalancer()->set_enabled(false);
    const auto quiet = [&] {
      for (size_t i = 0; i < kServers; ++i) {
        if (cluster.worker(i)->recoverer()->recovering() > 0) return false;
      }
      return true;
    };
    for (int i = 0; i < 1'000'000 && !(quiet() && all_served()); ++i) cluster.network()->Step();
    Client* const reader = clients[0].get();
    for (int i = 0; i < kKeys && history.violations.empty(); ++i) {
      const auto at = static_cast<size_t>(i);
      CallOptions path;
      path.path = i % 2 == 0 ? Path::kServer : Path::kClient;
      path.timeout_us = 50'000;
      const auto value = table_.has_value() ? tables[0]->Get(Key(i), path) : reader->Get(Key(i), path);
      if (!value.ok()) {
        history.violations.push_back(fmt::format("{}: {}", Key(i), value.status().ToString()));
        continue;
      }
      const int version = VersionOf(i, *value);
      int must = history.ended[at];
      if (!sync) {
        // A write acknowledged longer than the bound before a fault, and not after it, must be there, or a later one.
        // The bound holds as long as the disk keeps up; a new segment takes longer here, but never twice the bound.
        must = 0;
        for (const auto& [ns, acknowledged] : history.acknowledged[at]) {
          const auto fault = faults_at.lower_bound(ns);
          const int64_t safe_ns = fault == faults_at.end() ? INT64_MAX : fault->first - 2 * options.logs.bound_ns;
          if (ns < safe_ns) must = acknowledged;
        }
        totals_.lost_writes += version < history.ended[at];
      }
      if (version < must || version > history.begun[at]) {
        history.violations.push_back(
            fmt::format("{}: version {}, there must be {}; {} was begun; acknowledged {}, faults {}", Key(i), version,
                        must, history.begun[at], ::testing::PrintToString(history.acknowledged[at]),
                        ::testing::PrintToString(faults_at)));
      }
    }
    clients.clear();
    for (size_t i = 0; i < kServers; ++i) Collect(&cluster, i);
    if (history.violations.empty()) {
      const TreeReport report = cluster.Check();
      history.violations = report.errors;
    }
    totals_.writes += history.writes;
    totals_.failed += history.failed;
    totals_.reads += history.reads;
    return history.violations;
  }

  // Runs seeds until one shows a violation. Returns it, or 0 if there is none.
  uint64_t FindViolation(const TestClusterOptions& options, uint64_t seeds, int faults) {
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      const std::vector<std::string> violations = Run(options, seed, faults);
      if (violations.empty()) continue;
      fmt::print("seed {}: {}\n", seed, violations[0]);
      return seed;
    }
    return 0;
  }

  void Collect(SimCluster* cluster, size_t i) {
    totals_.recovered += cluster->worker(i)->recoverer()->counters().recovered;
    totals_.lost += cluster->worker(i)->recoverer()->counters().lost;
    totals_.checkpoints += cluster->worker(i)->checkpointer()->counters().checkpoints;
    totals_.table_splits += cluster->worker(i)->splitter()->parts().splits;
  }

  std::string kill_at_;            // Servers die with their machines when they reach this point; empty: at any moment.
  std::optional<uint32_t> table_;  // Writes and reads use a Pilaf table with buckets of this size; 0: slots.
  uint32_t parts_ = 0;             // With which that is created; 0: one for each worker.

  Totals totals_;
};

TEST_F(TakeoverTest, NothingAcknowledgedIsLostAndNoReadIsStale) {
  EXPECT_EQ(FindViolation(Options(Durability::kSync), 280, 5), 0u);
  EXPECT_GE(totals_.takeovers, 1'000u);
  EXPECT_GT(totals_.recovered, 2'000u);
  EXPECT_GT(totals_.lost, 100u);
  EXPECT_GT(totals_.checkpoints, 400u);
  fmt::print(
      "{} takeovers, {} regions recovered, {} lost by slow owners, {} checkpoints, {} writes ({} failed), {} reads\n",
      totals_.takeovers, totals_.recovered, totals_.lost, totals_.checkpoints, totals_.writes, totals_.failed,
      totals_.reads);
}

TEST_F(TakeoverTest, AsyncLosesNothingOlderThanItsBound) {
  EXPECT_EQ(FindViolation(Options(Durability::kAsync), 60, 4), 0u);
  EXPECT_GT(totals_.lost_writes, 0u);
  fmt::print("{} takeovers, {} regions recovered, {} writes ({} failed), {} keys lost their last write\n",
             totals_.takeovers, totals_.recovered, totals_.writes, totals_.failed, totals_.lost_writes);
}

TEST_F(TakeoverTest, OfTables) {
  for (const uint32_t bucket_bytes : {0u, 1024u}) {
    table_ = bucket_bytes;
    EXPECT_EQ(FindViolation(Options(Durability::kSync), 80, 5), 0u);
    EXPECT_EQ(FindViolation(Options(Durability::kAsync), 30, 4), 0u);
  }
  EXPECT_GT(totals_.recovered, 1'000u);
  EXPECT_GT(totals_.lost_writes, 0u);
  EXPECT_GT(totals_.checkpoints, 50u);
  EXPECT_GT(totals_.table_splits, 500u);
  fmt::print("{} takeovers, {} regions recovered, {} checkpoints, {} writes ({} failed), {} reads, {} splits\n",
             totals_.takeovers, totals_.recovered, totals_.checkpoints, totals_.writes, totals_.failed, totals_.reads,
             totals_.table_splits);
}

TEST_F(TakeoverTest, OfTablesAtEachPointOfASplit) {
  for (const char* point : {"table split: region made", "table split: copied", "table split: cut logged",
                            "table split: cut", "table split: joined", "table split: cleaned"}) {
    SCOPED_TRACE(point);
    kill_at_ = point;
    const uint64_t before = totals_.killed_at;
    for (const uint32_t bucket_bytes : {0u, 1024u}) {
      table_ = bucket_bytes;
      EXPECT_EQ(FindViolation(Options(Durability::kSync), 6, 2), 0u);
    }
    EXPECT_GT(totals_.killed_at, before + 5);
  }
}

// Parts are split early, and then joined at once.
TEST_F(TakeoverTest, OfTablesAtEachPointOfAJoin) {
  parts_ = 1;
  TestClusterOptions options = Options(Durability::kSync);
  options.split.split_at = 0.2;
  options.join.every_ns = 20'000;
  options.join.migrate_again_after_ns = 200'000;
  options.join.deleted_per_left = -1;
  options.join.copied = 8;
  for (const char* point : {"table join: copied", "table join: logged", "table join: committed", "table join: joined",
                            "table join: cleaned"}) {
    SCOPED_TRACE(point);
    kill_at_ = point;
    const uint64_t before = totals_.killed_at;
    for (const uint32_t bucket_bytes : {0u, 1024u}) {
      table_ = bucket_bytes;
      EXPECT_EQ(FindViolation(options, 6, 3), 0u);
    }
    EXPECT_GT(totals_.killed_at, before + 5);
  }
}

TEST_F(TakeoverTest, OfTablesWithoutAProtectionSomethingIsWrong) {
  table_ = 0;
  for (const Mutant mutant : {Mutant::kNoFence, Mutant::kSyncedTooEarly}) {
    TestClusterOptions options = Options(Durability::kSync);
    options.mutant = mutant;
    EXPECT_GT(FindViolation(options, 200, 5), 0u);
  }
}

// Removes each protection of the log, and checks that the test notices.
TEST_F(TakeoverTest, WithoutAProtectionSomethingIsWrong) {
  for (const auto& [mutant, name] :
       {std::pair(Mutant::kNoFence, "no fence"), std::pair(Mutant::kSyncedTooEarly, "acknowledged before the sync")}) {
    TestClusterOptions options = Options(Durability::kSync);
    options.mutant = mutant;
    fmt::print("{}: ", name);
    EXPECT_GT(FindViolation(options, 200, 5), 0u) << name;
  }
}

}  // namespace
}  // namespace cell
