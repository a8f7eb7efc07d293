// Kills or stops a server at every named point of splits, migrations and joins, while clients write. No key is lost
// that was not on the dead server, and none is there twice. Every region of the survivors is sound, and losses are
// reported.
#include <gtest/gtest.h>

#include <map>

#include "cell/base/random.h"
#include "tests/clusters.h"

namespace cell {
namespace {

constexpr int kServers = 3;
constexpr int kKeys = 6000;
constexpr int kWriters = 4;

constexpr const char* kPoints[] = {
    "split: region made",
    "split: copied",
    "split: cut",
    "split: joined",
    "split: cleaned",
    "split: route added",
    "migration: source: before the offer",
    "migration: source: begun",
    "migration: source: copying",
    "migration: source: frozen",
    "migration: source: sealed",
    "migration: source: done",
    "migration: target: first copy",
    "migration: target: last copy",
    "migration: target: before the table",
    "migration: target: after the table",
    "migration: target: serves",
    "join: route removed",
    "join: copied",
    "join: logged",
    "join: committed",
    "join: joined",
    "join: cleaned",
};

std::string Key(int i) { return fmt::format("k{:05}", i); }
std::string Value(int i, int version) {
  return fmt::format("{} {} ", i, version) + std::string(120, static_cast<char>('a' + (i * 7 + version) % 26));
}

struct History {
  std::vector<int> begun = std::vector<int>(kKeys), ended = begun;
  std::vector<bool> broken = std::vector<bool>(kKeys);  // A write of the key failed: it is not written any more.
  bool stop = false;
  bool ebb = false;  // Keys are only deleted.
  int writers_left = kWriters;
  uint64_t failed = 0;
};

Task<bool> Writer(Client* client, History* history, int index, uint64_t seed) {
  Random random(seed);
  while (!history->stop) {
    const int i = static_cast<int>(random.Below(kKeys / kWriters)) * kWriters + index;
    const auto at = static_cast<size_t>(i);
    if (history->broken[at]) continue;
    const std::string key = Key(i);
    const int version = ++history->begun[at];
    CallOptions options;
    options.path = random.Below(2) == 0 ? Path::kServer : Path::kClient;
    absl::StatusOr<bool> existed = false;
    if (version % 4 == 3 || history->ebb) {
      history->begun[at] += version % 2;  // Odd versions are puts and even ones deletes. This is a delete.
      existed = co_await client->AsyncDelete(key, options);
    } else {
      if (version % 2 == 0) ++history->begun[at];
      existed = co_await client->AsyncPut(key, Value(i, history->begun[at]), options);
    }
    if (existed.ok()) {
      history->ended[at] = history->begun[at];
    } else {
      EXPECT_TRUE(IsMaybeApplied(existed.status()) || existed.status().code() == absl::StatusCode::kUnavailable)
          << existed.status();
      history->broken[at] = true;
      if (++history->failed % 50 == 0) co_await client->AsyncSleepUntil(client->NowNs() + 1'000);
    }
  }
  --history->writers_left;
  co_return true;
}

bool MayBe(int version, int ended, int begun) {
  if (version != 0) return version >= ended && version <= begun;
  if (ended == 0) return true;
  for (int v = ended; v <= begun; ++v) {
    if (v % 2 == 0) return true;
  }
  return false;
}

class CrashTest : public ::testing::Test {
 protected:
  enum class Fault { kKill, kStop };

  // Returns the region of tier 0 whose range has `key`, by the survivors' trees and the table. Returns 0 if the region
  // is lost.
  static uint32_t RegionOf(SimCluster* cluster, const std::string& key, bool* lost) {
    uint32_t region = cluster->table().root;
    for (int hops = 0; hops < 100; ++hops) {
      const RegionTable::Entry* entry = cluster->table().Find(region);
      if (entry == nullptr) break;
      const auto server = static_cast<size_t>(std::stoi(entry->owner.server.substr(7)));
      if (cluster->Dead(server)) {
        *lost = true;
        return region;
      }
      const HeldRegion* held = cluster->worker(server)->regions()->Find(region);
      if (held == nullptr) break;
      const Meganode::Route route = held->tree->RouteOf(key);
      *lost = false;
      if (route.kind == Meganode::Route::Kind::kHere) return region;
      region = route.next.region();
    }
    ADD_FAILURE() << "the search ends at no leaf for " << key;
    return 0;
  }

  // Returns true if the point was reached and everything was checked.
  bool Run(const std::string& point, Fault fault, uint64_t seed) {
    SCOPED_TRACE(fmt::format("{} at \"{}\", seed {}", fault == Fault::kKill ? "killed" : "stopped", point, seed));
    SimOptions sim;
    sim.seed = seed;
    sim.latency_ns = 200;
    TestClusterOptions options;
    options.servers = kServers;
    options.migrator.silence_ns = 300'000;
    options.split.pace.copied = 8;
    options.split.pace.freed = 4;
    options.balance.every_ns = 50'000;
    options.membership_polls_max = 5;
    options.join.every_ns = 20'000;
    options.join.migrate_again_after_ns = 200'000;
    options.join.copied = 8;
    SimCluster cluster({512, 32 << 10, 64 << 10}, sim, options);
    Random random(seed);
    History history;
    std::vector<std::unique_ptr<Client>> clients;
    std::vector<Task<bool>> tasks;
    for (int i = 0; i < kWriters; ++i) {
      ClientOptions client;
      client.cache_level_min = 1;
      client.timeout_us = 5'000;
      client.report = false;
      clients.push_back(cluster.NewClient(client));
      tasks.push_back(Writer(clients.back().get(), &history, i, seed * 100 + static_cast<uint64_t>(i)));
    }
    for (Task<bool>& task : tasks) task.Start();
    const auto poll = [&](int64_t ns) {
      const int64_t until = cluster.network()->now_ns() + ns;
      while (cluster.network()->now_ns() < until) {
        for (size_t i = 0; i < clients.size(); ++i) {
          if (!tasks[i].done()) clients[i]->Poll(cluster.network()->now_ns() + 50);
        }
        if (history.writers_left == 0) cluster.network()->Step();
      }
    };
    // Run until the tree has a root of routes and the other servers hold regions.
    std::optional<size_t> keeper;
    for (int i = 0; i < 400 && !keeper.has_value(); ++i) {
      poll(5'000);
      const RegionTable& table = cluster.table();
      bool all_hold = true;
      for (int s = 0; s < kServers; ++s) all_hold &= table.CountOf({fmt::format("server-{}", s), 0}) > 0;
      const auto root = static_cast<size_t>(std::stoi(table.Find(table.root)->owner.server.substr(7)));
      const HeldRegion* held = cluster.worker(root)->regions()->Find(table.root);
      if (all_hold && held != nullptr && held->tree->tier() == 1) keeper = root;
    }
    if (!keeper.has_value()) return false;
    const size_t victim = (*keeper + 1 + random.Below(kServers - 1)) % kServers;
    bool reached = false;
    int countdown = static_cast<int>(random.Below(3));
    cluster.worker(victim)->sync_points()->on_reach = [&](std::string_view at) {
      if (at != point || reached || countdown-- > 0) return;
      // The fault must not hit the root, without which nothing can be reached.
      const HeldRegion* root = cluster.worker(victim)->regions()->Find(cluster.table().root);
      if (root != nullptr ||
          cluster.table().Find(cluster.table().root)->owner.server == fmt::format("server-{}", victim)) {
        return;
      }
      reached = true;
      if (fault == Fault::kKill) {
        cluster.Kill(victim);
      } else {
        cluster.Stop(victim);
      }
    };
    history.ebb = point.starts_with("join");
    for (int i = 0; i < (history.ebb ? 400 : 100) && !reached; ++i) poll(20'000);
    history.ebb = false;
    if (!reached) {
      history.stop = true;
      while (history.writers_left > 0) poll(10'000);
      cluster.worker(victim)->sync_points()->on_reach = nullptr;
      tasks.clear();
      clients.clear();
      return false;
    }
    poll(1'000'000);  // Longer than the silence.
    if (fault == Fault::kStop) {
      cluster.Continue(victim);
      poll(1'000'000);
    }
    history.stop = true;
    while (history.writers_left > 0) poll(10'000);
    tasks.clear();
    for (size_t i = 0; i < kServers; ++i) cluster.worker(i)->rebalancer()->set_enabled(false);
    for (int i = 0; i < 1'000'000 && !cluster.Quiet(); ++i) cluster.network()->Step();
    EXPECT_TRUE(cluster.Quiet());

    Client* const reader = clients[0].get();
    uint64_t lost_keys = 0;
    for (int i = 0; i < kKeys && !HasFailure(); ++i) {
      const auto at = static_cast<size_t>(i);
      bool lost = false;
      const uint32_t region = RegionOf(&cluster, Key(i), &lost);
      CallOptions path;
      path.path = i % 2 == 0 ? Path::kServer : Path::kClient;
      const auto value = reader->Get(Key(i), path);
      if (lost) {
        ++lost_keys;
        EXPECT_EQ(fault, Fault::kKill);
        EXPECT_EQ(value.status().code(), absl::StatusCode::kUnavailable)
            << value.status() << " for " << Key(i) << " path " << i % 2 << " region " << region << " victim " << victim
            << " keeper " << *keeper << " root " << cluster.table().root << " failed before " << lost_keys;
        EXPECT_NE(value.status().ToString().find(fmt::format("region {} on server-{}", region, victim)),
                  std::string::npos)
            << value.status();
        continue;
      }
      EXPECT_TRUE(value.ok()) << Key(i) << " of region " << region << ": " << value.status();
      if (!value.ok()) continue;
      int version = 0;
      if (value->has_value()) {
        version = std::stoi((*value)->substr((*value)->find(' ') + 1));
        EXPECT_EQ(**value, Value(i, version));
      }
      EXPECT_TRUE(MayBe(version, history.ended[at], history.begun[at]))
          << Key(i) << " has version " << version << ", but only these are possible: " << history.ended[at] << " to "
          << history.begun[at];
    }
    clients.clear();
    CheckSurvivors(&cluster, fault == Fault::kStop);
    ExpectReachable(&cluster);
    lost_keys_ += lost_keys;
    cluster.worker(victim)->sync_points()->on_reach = nullptr;
    return true;
  }

  void CheckSurvivors(SimCluster* cluster, bool all) {
    std::map<std::string, TreeReport> by_low;
    std::vector<TreeReport> reports;
    for (size_t i = 0; i < kServers; ++i) {
      if (cluster->Dead(i)) continue;
      for (const HeldRegion* region : cluster->worker(i)->regions()->all()) {
        if (region->state() == RegionState::kFilling) continue;
        EXPECT_EQ(region->state(), RegionState::kServing) << "region " << region->region();
        EXPECT_FALSE(region->claimed() && cluster->Quiet()) << "region " << region->region();
        const RegionTable::Entry* entry = cluster->table().Find(region->region());
        EXPECT_TRUE(entry != nullptr && entry->owner.server == fmt::format("server-{}", i))
            << "region " << region->region() << " is held by server-" << i << ", but belongs to another server";
        const TreeReport report = CheckTree(*region->memory);
        EXPECT_TRUE(report.ok()) << "region " << report.region << ": " << report.errors[0];
        reports.push_back(report);
        if (report.range.tier != 0) continue;
        const auto [it, fresh] = by_low.emplace(report.range.low, report);
        EXPECT_TRUE(fresh) << "regions " << report.region << " and " << it->second.region << " begin at the same key";
      }
    }
    for (auto it = by_low.begin(); it != by_low.end() && std::next(it) != by_low.end(); ++it) {
      EXPECT_TRUE(it->second.range.high.has_value() && *it->second.range.high <= std::next(it)->first)
          << "regions " << it->second.region << " and " << std::next(it)->second.region << " overlap";
    }
    if (!all) return;
    const ClusterReport report = CheckNeighbours(reports);
    EXPECT_TRUE(report.errors.empty()) << report.errors[0];
  }

  // Checks that everything that the survivors hold is reachable from the root of the tree, without the dead server.
  static void ExpectReachable(SimCluster* cluster) {
    for (size_t i = 0; i < kServers; ++i) {
      if (cluster->Dead(i)) continue;
      for (const HeldRegion* region : cluster->worker(i)->regions()->all()) {
        if (region->state() == RegionState::kFilling || region->tree->tier() != 0) continue;
        bool lost = false;
        EXPECT_EQ(RegionOf(cluster, region->tree->range().low, &lost), region->region());
        EXPECT_FALSE(lost) << "region " << region->region() << " on server-" << i << " cannot be found";
      }
    }
  }

  void RunAll(Fault fault) {
    for (const char* point : kPoints) {
      int reached = 0;
      for (uint64_t seed = 1; seed <= 40 && reached < 4 && !HasFailure(); ++seed) reached += Run(point, fault, seed);
      EXPECT_GE(reached, 4) << point;
    }
  }

  uint64_t lost_keys_ = 0;
};

TEST_F(CrashTest, KilledAtEachPoint) {
  RunAll(Fault::kKill);
  EXPECT_GT(lost_keys_, 1000u);  // Otherwise nothing was killed.
}

// While the route of a new meganode is not known, only its left neighbour leads to it. It must stay with that one.
TEST_F(CrashTest, ANewMeganodeStaysUntilItsRouteIsKnown) {
  SimCluster cluster = SpreadingCluster();
  ClientOptions options;
  options.report = false;
  auto client = cluster.NewClient(options);
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(client->Put(Key(i * 1543 % 2000), Value(i, 1)).ok());
  const RegionTable::Entry* root = cluster.table().Find(cluster.table().root);
  const auto keeper = static_cast<size_t>(std::stoi(root->owner.server.substr(7)));
  for (size_t i = 0; i < kServers; ++i) cluster.worker(i)->rebalancer()->set_enabled(false);
  while (!cluster.Quiet()) cluster.network()->Step();
  const auto held = [&cluster](size_t server) { return cluster.worker(server)->regions()->size(); };
  size_t victim = (keeper + 1) % kServers;  // The one of the two others that has more.
  if (held(3 - keeper - victim) > held(victim)) victim = 3 - keeper - victim;
  cluster.Stop(keeper);  // No route can be added.
  std::vector<uint32_t> before;
  for (const HeldRegion* region : cluster.worker(victim)->regions()->all()) before.push_back(region->region());
  ASSERT_GT(before.size(), 2u);
  const auto split = [](Worker* worker, uint32_t region) -> Task<bool> {
    co_return (co_await worker->splitter()->Split(region)).ok();
  };
  for (const uint32_t region : before)
    cluster.worker(victim)->scheduler()->Spawn(split(cluster.worker(victim), region));
  client->Run(client->AsyncSleepUntil(client->NowNs() + 3'000'000));
  const WorkerId third{fmt::format("server-{}", 3 - keeper - victim), 0};
  std::vector<absl::Status> given;
  const auto give = [&given, third](Worker* worker, uint32_t region) -> Task<bool> {
    given.push_back(co_await worker->migrator()->Migrate(region, third));
    co_return true;
  };
  for (const HeldRegion* region : cluster.worker(victim)->regions()->all()) {
    const uint32_t id = region->region();
    if (std::find(before.begin(), before.end(), id) == before.end()) {
      cluster.worker(victim)->scheduler()->Spawn(give(cluster.worker(victim), id));
    }
  }
  client->Run(client->AsyncSleepUntil(client->NowNs() + 10'000'000));
  ASSERT_GE(given.size(), before.size());
  for (const absl::Status& status : given) EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  cluster.Kill(victim);
  cluster.Continue(keeper);
  client->Run(client->AsyncSleepUntil(client->NowNs() + 3'000'000));
  ExpectReachable(&cluster);
}

TEST_F(CrashTest, StoppedAtEachPointAndContinued) {
  RunAll(Fault::kStop);
  EXPECT_EQ(lost_keys_, 0u);
}

}  // namespace
}  // namespace cell
