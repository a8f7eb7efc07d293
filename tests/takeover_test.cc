// Servers die, lose their machines, or stop and go on at any moment, while clients write and read over both paths, and
// meganodes split and move. Others take the regions over from their logs. With sync, nothing that was acknowledged is
// lost, and no read misses what was acknowledged, or seen by another read, before it began. With async, nothing is lost
// that was acknowledged longer ago than the bound.
#include <gtest/gtest.h>

#include <map>

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

// Puts only, so that a key's versions only grow. 0: absent.
struct History {
  std::vector<int> begun = std::vector<int>(kKeys), ended = begun;
  std::vector<int> seen = begun;                        // By any read that has ended.
  std::vector<bool> broken = std::vector<bool>(kKeys);  // A write of it failed: written no more.
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

// `map`: the client, or a table of it.
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

// Those by calls alone never ask for the region table by themselves.
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
    options.silence_ns = 100'000;
    options.steward.copied_per_turn = 8;
    options.steward.freed_per_turn = 4;
    options.steward.balance_every_ns = 50'000;
    options.membership_polls_max = 5;
    options.logs.durability = durability;
    options.logs.bound_ns = 40'000;
    options.logs.checkpoint_bytes_min = 8 << 10;
    return options;
  }

  // One cluster, and several faults. What was wrong.
  std::vector<std::string> Run(TestClusterOptions options, uint64_t seed, int faults) {
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
    if (table_.has_value()) CELL_CHECK(cluster.CreateTable("t", *table_, 0).ok());
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
    if (kill_at_.empty()) {  // Else from the beginning on: tables grow while they are filled.
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
          cluster.worker(i)->points()->on_reach = [&, i](std::string_view point) {
            if (point != kill_at_ || reached.has_value()) return;
            reached = i;
            cluster.Kill(i, true);
          };
        }
        for (int i = 0; i < 300 && !reached.has_value(); ++i) poll(20'000);
        for (size_t i = 0; i < kServers; ++i) cluster.worker(i)->points()->on_reach = nullptr;
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
    for (size_t i = 0; i < kServers; ++i) cluster.worker(i)->steward()->set_balance(false);
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
        // Acknowledged longer than the bound before a fault, and not after it: there must be that, or later. The
        // bound holds as long as the disk keeps up; a new segment takes it longer here. Twice the bound it never takes.
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

  // Seeds until one shows what is wrong; 0: none does.
  uint64_t FindViolation(TestClusterOptions options, uint64_t seeds, int faults) {
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
    totals_.checkpoints += cluster->worker(i)->logs()->counters().checkpoints;
    totals_.table_splits += cluster->worker(i)->tables()->counters().splits;
  }

  std::string kill_at_;            // Servers die with their machines when they reach this point; empty: at any moment.
  std::optional<uint32_t> table_;  // Writes and reads go to a Pilaf table with such buckets; 0: slots.

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

TEST_F(TakeoverTest, OfTablesWithoutAProtectionSomethingIsWrong) {
  table_ = 0;
  for (const Mutant mutant : {Mutant::kNoFence, Mutant::kSyncedTooEarly}) {
    TestClusterOptions options = Options(Durability::kSync);
    options.mutant = mutant;
    EXPECT_GT(FindViolation(options, 200, 5), 0u);
  }
}

// Each protection of the log taken away is noticed.
TEST_F(TakeoverTest, WithoutAProtectionSomethingIsWrong) {
  for (const auto& [mutant, name] :
       {std::pair(Mutant::kNoFence, "no fence"), std::pair(Mutant::kSyncedTooEarly, "acknowledged before the sync")}) {
    TestClusterOptions options = Options(Durability::kSync);
    options.mutant = mutant;
    fmt::print("{}: ", name);
    EXPECT_GT(FindViolation(options, 200, 5), 0u) << name;
  }
}

// The owner of the only region stops. Another takes the region over and acknowledges a write. What a client reads then
// that has not asked for the region table since before: by reads of the stopped owner's memory, or of the owner itself,
// which goes on just then. `in_table`: the region is that of a Pilaf table.
// `amid_refresh`: it asks for the table, and reads beside that until it has it.
std::string ReadAfterTakeover(Mutant mutant, Path path, bool in_table, uint64_t seed = 1, bool amid_refresh = false) {
  TestClusterOptions options;
  options.servers = 2;
  options.logs.durability = Durability::kSync;
  options.mutant = mutant;
  options.table_lease_ns = 2'000'000;
  options.lease_wait_ns = 2'200'000;
  options.membership_polls_max = 50;  // Who goes on sees the newest table by and by.
  SimCluster cluster({512, 32 << 10, 64 << 10}, {}, options);
  ClientOptions client;
  client.report = false;
  client.reconnect_us = 20;
  client.seed = seed;
  client.timeout_us = 50'000;
  if (in_table) CELL_CHECK(cluster.CreateTable("t", 0, 1).ok());
  const uint32_t region = in_table ? cluster.table().tables.at("t").RegionOf(0) : cluster.table().root;
  CallOptions by;
  by.path = path;
  const auto put = [in_table](Client* to, const std::string& value) {
    return in_table ? to->OpenTable("t")->Put("key", value).ok() : to->Put("key", value).ok();
  };
  auto reader = cluster.NewClient(client);
  std::optional<Table> table;
  if (in_table) table = *reader->OpenTable("t");
  const auto get = [&]() -> std::string {
    const auto value = in_table ? table->Get("key", by) : reader->Get("key", by);
    return value.ok() ? value->value_or("absent") : "error";
  };
  CELL_CHECK(put(reader.get(), "old"));
  for (uint64_t i = 0; i < seed; ++i) CELL_CHECK(get() == "old");
  const RegionTable::Entry before = *cluster.table().Find(region);
  const auto owner = static_cast<size_t>(std::stoi(before.owner.server.substr(7)));
  cluster.Stop(owner);
  const auto taken = [&] {
    for (const auto& [id, entry] : cluster.table().regions) {
      if (entry.owner == before.owner || entry.recovering) return false;
    }
    return true;
  };
  while (!taken()) cluster.network()->Step();
  CELL_CHECK(put(cluster.NewClient(client).get(), "new"));
  if (path == Path::kServer) cluster.Continue(owner);
  if (!amid_refresh) return get();
  const auto begin = [&](Path way) {
    CallOptions call;
    call.path = way;
    auto task = in_table ? table->AsyncGet("key", call) : reader->AsyncGet("key", call);
    task.Start();
    return task;
  };
  auto refreshes = begin(Path::kClient);
  std::vector<Task<absl::StatusOr<std::optional<std::string>>>> reads;
  while (!refreshes.done()) {
    reads.push_back(begin(path));
    reader->Poll(INT64_MAX);
  }
  std::string answer = "error";
  for (auto& read : reads) {
    while (!read.done()) reader->Poll(INT64_MAX);
    const auto value = read.Take();
    if (value.ok() && answer != "old") answer = value->value_or("absent");
  }
  return answer;
}

TEST(TakeoverLeases, AClientReadsNoMemoryThatIsNotTheOwnersAnyMore) {
  for (const bool in_table : {false, true}) {
    EXPECT_EQ(ReadAfterTakeover(Mutant::kNone, Path::kClient, in_table), "new");
    EXPECT_EQ(ReadAfterTakeover(Mutant::kNoLeaseWait, Path::kClient, in_table), "old");
  }
}

// Nor when the selector chooses, which looks at no lease before. Where it asks the stopped owner no answer comes.
TEST(TakeoverLeases, NorWhenTheSelectorChooses) {
  for (const bool in_table : {false, true}) {
    int read = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const std::string value = ReadAfterTakeover(Mutant::kNone, Path::kHybrid, in_table, seed);
      EXPECT_NE(value, "old") << in_table << " " << seed;
      read += value == "new";
    }
    EXPECT_GT(read, 0);
  }
}

// Nor when it asks for the table while it reads: what was read by an old table is not trusted by the lease of the new
// one.
TEST(TakeoverLeases, NorByTheLeaseOfATableThatComesMeanwhile) {
  for (const bool in_table : {false, true}) {
    int read = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const std::string value = ReadAfterTakeover(Mutant::kNone, Path::kHybrid, in_table, seed, /*amid_refresh=*/true);
      EXPECT_NE(value, "old") << in_table << " " << seed;
      read += value == "new";
    }
    EXPECT_GT(read, 0);
  }
}

TEST(TakeoverLeases, AFormerOwnerServesNothing) {
  for (const bool in_table : {false, true}) {
    EXPECT_EQ(ReadAfterTakeover(Mutant::kNone, Path::kServer, in_table), "new");
    EXPECT_EQ(ReadAfterTakeover(Mutant::kNoServerLease, Path::kServer, in_table), "old");
  }
}

// A recovery that fails for once, at any call: another worker, or the same one later, recovers the region.
TEST(RecoveryFailure, IsTriedAgainAndByOthers) {
  uint64_t failed = 0;
  for (const int servers : {2, 3}) {
    for (uint64_t n = 0; n < 40; ++n) {
      SCOPED_TRACE(fmt::format("{} servers, call {}", servers, n));
      TestClusterOptions options;
      options.servers = servers;
      options.logs.durability = Durability::kSync;
      SimOptions sim;
      sim.seed = n + 1;
      SimCluster cluster({512, 16 << 10, 64 << 10}, sim, options);
      ClientOptions client_options;
      client_options.report = false;
      client_options.reconnect_us = 20;
      auto client = cluster.NewClient(client_options);
      for (int i = 0; i < 250; ++i) ASSERT_TRUE(client->Put(Key(i), Value(i, 1)).ok());
      const auto victim =
          static_cast<size_t>(std::stoi(cluster.table().regions.begin()->second.owner.server.substr(7)));
      for (size_t i = 0; i < static_cast<size_t>(servers); ++i) {
        if (i != victim) cluster.files(i)->FailAt(n, absl::UnavailableError("EIO"));
      }
      cluster.Kill(victim);
      for (int i = 0; i < 200; ++i) {
        const auto value = client->Get(Key(i));
        ASSERT_TRUE(value.ok()) << value.status();
        ASSERT_EQ(value->value_or("lost"), Value(i, 1));
      }
      for (size_t i = 0; i < static_cast<size_t>(servers); ++i) {
        if (i != victim) failed += cluster.worker(i)->recoverer()->counters().failed;
      }
    }
  }
  EXPECT_GT(failed, 10u);
}

// A split whose log fails leaves nothing half made behind: what was made for it is dropped, or part of the tree.
TEST(SplitFailure, LeavesNothingThatIsHeldForNobody) {
  uint64_t failed = 0;
  for (uint64_t n = 145; n < 180; ++n) {  // From before the split to after it.
    SCOPED_TRACE(n);
    TestClusterOptions options;
    options.logs.durability = Durability::kSync;
    SimCluster cluster({512, 16 << 10, 64 << 10}, {}, options);
    ClientOptions client_options;
    client_options.report = false;
    client_options.timeout_us = 2'000;
    auto client = cluster.NewClient(client_options);
    for (int i = 0; i < 250; ++i) ASSERT_TRUE(client->Put(Key(i), Value(i, 1)).ok());
    cluster.files()->FailAt(n, absl::UnavailableError("EIO"));
    for (int i = 250; i < 330 && client->Put(Key(i), Value(i, 1)).ok(); ++i) {
    }
    for (int i = 0; i < 100'000 && !cluster.Quiet(); ++i) cluster.network()->Step();
    ASSERT_TRUE(cluster.Quiet());
    for (const HeldRegion* region : cluster.worker()->regions()->all()) EXPECT_TRUE(region->joined) << region->region();
    failed += cluster.worker()->steward()->counters().splits_failed;
  }
  EXPECT_GT(failed, 5u);
}

// After a pause the disk is not behind: only what waits for longer than the bound makes writes wait.
TEST(AsyncBound, APauseMakesNoWriteWait) {
  TestClusterOptions options;
  options.logs.durability = Durability::kAsync;
  options.logs.bound_ns = 40'000;
  SimCluster cluster({512, 128 << 10, 256 << 10}, {}, options);
  ClientOptions client_options;
  client_options.report = false;
  auto client = cluster.NewClient(client_options);
  const HeldRegion* region = cluster.worker()->regions()->all()[0];
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(client->Put(fmt::format("{}", i), "value").ok());
    for (int step = 0; step < 20; ++step) {
      client->Run(client->AsyncSleepUntil(client->NowNs() + 1'000));
      EXPECT_FALSE(region->late) << i;
    }
    client->Run(client->AsyncSleepUntil(client->NowNs() + 500'000));
    EXPECT_FALSE(region->log->dirty()) << i;
  }
  // And a disk that is behind does.
  cluster.background()->set_mean_ns(1'000'000);
  ASSERT_TRUE(client->Put("slow", "value").ok());
  client->Run(client->AsyncSleepUntil(client->NowNs() + 100'000));
  EXPECT_TRUE(region->late);
}

// However slow the disk: no write is acknowledged while one that was acknowledged a bound before is not on disk.
TEST(AsyncBound, WritesWaitForADiskThatIsBehind) {
  TestClusterOptions options;
  options.logs.durability = Durability::kAsync;
  options.logs.bound_ns = 40'000;
  SimCluster cluster({512, 128 << 10, 256 << 10}, {}, options);
  ClientOptions client_options;
  client_options.report = false;
  auto client = cluster.NewClient(client_options);
  cluster.background()->set_mean_ns(1'000'000);
  const HeldRegion* region = cluster.worker()->regions()->all()[0];
  std::map<uint64_t, int64_t> acknowledged;  // By their records' sequences: when.
  int64_t longest_ns = 0, waited_ns = 0;
  for (int i = 0; i < 300; ++i) {
    const int64_t begun_ns = client->NowNs();
    ASSERT_TRUE(client->Put(fmt::format("{}", i), "value").ok());
    const int64_t now_ns = client->NowNs();
    waited_ns = std::max(waited_ns, now_ns - begun_ns);
    acknowledged[region->log->appended()] = now_ns;
    const auto oldest = acknowledged.upper_bound(region->log->durable());
    if (oldest != acknowledged.end()) longest_ns = std::max(longest_ns, now_ns - oldest->second);
  }
  EXPECT_GT(waited_ns, 5 * options.logs.bound_ns);  // The disk was behind.
  EXPECT_GT(longest_ns, 0);
  EXPECT_LE(longest_ns, options.logs.bound_ns * 3 / 2);  // With an answer's way to the client.
}

// A region is given only once its log is on disk: its next owner's log goes on where that ends. Both machines lose
// power right after the move.
TEST(AsyncMove, TheLogIsOnDiskBeforeTheRegionIsGiven) {
  TestClusterOptions options;
  options.servers = 2;
  options.logs.durability = Durability::kAsync;
  options.logs.bound_ns = 100'000'000;  // No write waits.
  options.table_lease_ns = 2'000'000;
  options.lease_wait_ns = 2'200'000;
  SimCluster cluster({512, 32 << 10, 64 << 10}, {}, options);
  ClientOptions client_options;
  client_options.report = false;
  client_options.reconnect_us = 20;
  auto client = cluster.NewClient(client_options);
  ASSERT_TRUE(client->Put("first", "1").ok());
  const uint32_t region = cluster.table().root;
  const auto owner = static_cast<size_t>(std::stoi(cluster.table().Find(region)->owner.server.substr(7)));
  const WorkerId taker{fmt::format("server-{}", 1 - owner), 0};
  cluster.background(owner)->set_mean_ns(1'000'000);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client->Put(Key(i), Value(i, 1)).ok());
  const auto give = [](Worker* worker, uint32_t id, WorkerId to) -> Task<bool> {
    co_return (co_await worker->mover()->Give(id, to)).ok();
  };
  cluster.worker(owner)->turns()->Begin(give(cluster.worker(owner), region, taker));
  while (cluster.table().Find(region)->owner != taker) cluster.network()->Step();
  cluster.Kill(owner, /*machine=*/true);
  ASSERT_TRUE(client->Put("last", "1").ok());
  client->Run(client->AsyncSleepUntil(client->NowNs() + 200'000'000));  // It is on disk.
  cluster.Kill(1 - owner, /*machine=*/true);
  cluster.Restart(1 - owner);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client->Get(Key(i))->value_or("lost"), Value(i, 1)) << i;
  EXPECT_EQ(client->Get("last")->value_or("lost"), "1");
}

// A disk that fails once, at any call: nothing that was not on disk is acknowledged, and nothing at all once a sync has
// failed, until the server is started again; what it holds can be read.
TEST(DiskFailure, StopsAcknowledgementsForGood) {
  uint64_t stopped = 0;
  for (uint64_t n = 0; n < 60; ++n) {
    for (const Durability durability : {Durability::kSync, Durability::kAsync}) {
      SCOPED_TRACE(fmt::format("call {}, {}", n, ToString(durability)));
      TestClusterOptions options;
      options.logs.durability = durability;
      options.logs.bound_ns = 40'000;
      options.logs.checkpoint_bytes_min = 4 << 10;  // Checkpoints and new segments fail, too.
      SimOptions sim;
      sim.seed = n + 1;
      SimCluster cluster({512, 128 << 10, 256 << 10}, sim, options);
      ClientOptions client_options;
      client_options.report = false;
      client_options.timeout_us = 1'000;
      client_options.reconnect_us = 20;
      auto client = cluster.NewClient(client_options);
      ASSERT_TRUE(client->Put("before", "1").ok());
      client->Run(client->AsyncSleepUntil(client->NowNs() + 3 * options.logs.bound_ns));  // async: it is on disk.
      cluster.files()->FailAt(n, n % 2 == 0 ? absl::UnavailableError("EIO") : absl::ResourceExhaustedError("ENOSPC"));
      int acknowledged = 0;
      absl::Status failed;
      for (int i = 0; i < 400 && failed.ok(); ++i) {
        failed = client->Put(fmt::format("{:03}", i), std::string(100, 'v')).status();
        acknowledged += failed.ok();
      }
      if (!failed.ok()) {
        ++stopped;
        EXPECT_TRUE(IsMaybeApplied(failed) || absl::IsUnavailable(failed)) << failed;
        const absl::Status later = client->Put("later", "1").status();
        EXPECT_EQ(later.code(), absl::StatusCode::kUnavailable) << later;
        EXPECT_NE(std::string(later.message()).find("log"), std::string::npos) << later;
        EXPECT_FALSE(client->Delete("before").ok());
      }
      EXPECT_EQ(client->Get("before")->value(), "1");
      client.reset();
      cluster.Kill(0, /*machine=*/true);
      cluster.Restart(0);
      while (cluster.worker()->recoverer()->counters().recovered == 0) cluster.network()->Step();
      while (cluster.table().Find(cluster.table().root)->recovering) cluster.network()->Step();
      client_options.timeout_us = 100'000;
      client = cluster.NewClient(client_options);
      if (durability == Durability::kSync) {
        for (int i = 0; i < acknowledged; ++i) {
          EXPECT_EQ(client->Get(fmt::format("{:03}", i))->value_or("lost"), std::string(100, 'v')) << i;
        }
      }
      EXPECT_EQ(client->Get("before")->value_or("lost"), "1");
      EXPECT_TRUE(client->Put("later", "1").ok());
    }
  }
  EXPECT_GT(stopped, 40u);
}

}  // namespace
}  // namespace cell
