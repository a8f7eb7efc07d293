// Tests a cluster whose coordinator comes and goes. A change of the region table that seems to have failed may have
// been made each time.
#include <functional>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/sim_cluster.h"

namespace cell {
namespace {

std::string Key(int i) { return fmt::format("key{:05}", i); }

// Lists regions whose owner in the table does not have them, and regions that keep their split parent.
std::string Unserved(SimCluster* cluster) {
  std::string text;
  for (const auto& [region, entry] : cluster->table().regions) {
    const auto owner = static_cast<size_t>(std::stoi(entry.owner.server.substr(7)));
    const HeldRegion* const held = cluster->worker(owner)->regions()->Find(region);
    if (held == nullptr || held->lost() || held->state() == RegionState::kFilling || entry.split_parent.has_value()) {
      text += fmt::format(" region {} of {}", region, entry.owner.server);
    }
  }
  return text;
}

TEST(CoordinatorTest, WhatIsMadeWhileItComesAndGoesIsUsedOrGone) {
  uint64_t splits = 0, cuts = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    SimOptions sim;
    sim.seed = seed;
    TestClusterOptions options;
    options.servers = 2;
    options.membership_polls_max = 5;
    SimCluster cluster({512, 16 << 10, 64 << 10}, sim, options);
    ASSERT_TRUE(cluster.CreateTable("t", 0, 1).ok());
    ClientOptions client_options;
    client_options.report = false;
    client_options.timeout_us = 5'000'000;
    auto client = cluster.NewClient(client_options);
    Table table = *client->OpenTable("t");
    Random random(seed);
    bool over = false;
    const std::function<void(size_t, bool)> cut = [&](size_t server, bool cuts_now) {
      cluster.CutCoordinator(server, cuts_now && !over);
      cuts += cuts_now;
      const auto pause_ns = static_cast<int64_t>(random.Below(cuts_now ? 1'000'000 : 200'000));
      cluster.network()->At(cluster.network()->now_ns() + pause_ns,
                            [&cut, server, cuts_now] { cut(server, !cuts_now); });
    };
    for (const size_t server : {0, 1}) cut(server, true);
    for (int i = 0; i < 400; ++i) {
      const auto put = client->Put(Key(i), "value");
      ASSERT_TRUE(put.ok()) << i << " " << put.status();
      if (i % 2 == 0) {
        ASSERT_TRUE(table.Put(Key(i), "value").ok()) << i;
      }
    }
    over = true;
    for (const size_t server : {0, 1}) {
      cluster.CutCoordinator(server, false);
      cluster.worker(server)->rebalancer()->set_enabled(false);
    }
    for (int i = 0; i < 1'000'000 && !(cluster.Quiet() && Unserved(&cluster).empty()); ++i) cluster.network()->Step();
    ASSERT_EQ(Unserved(&cluster), "");
    for (int i = 0; i < 400; ++i) {
      const auto value = client->Get(Key(i));
      ASSERT_TRUE(value.ok()) << value.status();
      ASSERT_TRUE(value->has_value()) << i;
      if (i % 2 != 0) continue;
      const auto other = table.Get(Key(i));
      ASSERT_TRUE(other.ok()) << other.status();
      ASSERT_TRUE(other->has_value()) << i;
    }
    client.reset();
    const TestReport report = cluster.Check();
    EXPECT_EQ(report.error_count, 0u) << report.errors[0];
    EXPECT_EQ(report.keys, 400u);
    EXPECT_EQ(report.hash_keys, 200u);
    for (const size_t server : {0, 1}) splits += cluster.worker(server)->splitter()->meganodes().splits;
  }
  EXPECT_GT(cuts, 1000u);
  EXPECT_GE(splits, 60u);
}

// A migrating region is not lost either, whichever side does not learn the outcome of the change, and for whatever
// reason. Only the table says who the owner is; another error (such as a full disk) does not.
TEST(CoordinatorTest, ARegionThatIsMovedIsSomebodys) {
  uint64_t moves = 0, failed = 0;
  for (uint64_t seed = 1; seed <= 90; ++seed) {
    SCOPED_TRACE(seed);
    SimOptions sim;
    sim.seed = seed;
    TestClusterOptions options;
    options.servers = 2;
    options.migrator.silence_ns = 500'000;
    options.balance.enabled = false;
    SimCluster cluster({512, 16 << 10, 64 << 10}, sim, options);
    ClientOptions client_options;
    client_options.report = false;
    client_options.timeout_us = 5'000'000;
    auto client = cluster.NewClient(client_options);
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(client->Put(Key(i), "value").ok());
    Random random(seed);
    for (int move = 0; move < 10; ++move) {
      const auto from = static_cast<size_t>(std::stoi(cluster.table().Find(1)->owner.server.substr(7)));
      const auto give = [](Worker* worker, std::string to) -> Task<bool> {
        WorkerId target{std::move(to), 0};  // g++ 12 destroys braced temporaries of a co_await twice.
        const absl::Status status = co_await worker->migrator()->Migrate(1, std::move(target));
        co_return status.ok();
      };
      cluster.worker(from)->scheduler()->Spawn(give(cluster.worker(from), fmt::format("server-{}", 1 - from)));
      const int64_t begun_ns = cluster.network()->now_ns();
      for (const size_t server : {0, 1}) {
        const int64_t cut_ns = begun_ns + static_cast<int64_t>(random.Below(200'000));
        const bool full = seed % 3 == 0;
        cluster.network()->At(cut_ns, [&cluster, server, full] {
          cluster.CutCoordinator(server, true);
          if (full) cluster.membership(server)->set_failing(absl::ResourceExhaustedError("no space left on device"));
        });
        cluster.network()->At(cut_ns + static_cast<int64_t>(random.Below(5'000'000)),
                              [&cluster, server] { cluster.CutCoordinator(server, false); });
      }
      while (cluster.network()->now_ns() < begun_ns + 6'000'000) cluster.network()->Step();
      for (int i = 0; i < 1'000'000 && !(cluster.Quiet() && Unserved(&cluster).empty()); ++i) cluster.network()->Step();
      ASSERT_EQ(Unserved(&cluster), "");
    }
    for (int i = 0; i < 50; ++i) ASSERT_TRUE((*client->Get(Key(i))).has_value()) << i;
    for (const size_t server : {0, 1}) {
      moves += cluster.worker(server)->migrator()->counters().received;
      failed += cluster.worker(server)->migrator()->counters().failed;
    }
  }
  EXPECT_GT(moves, 100u);
  EXPECT_GT(failed, 10u);
}

// The same holds for a table that is created at that time.
TEST(CoordinatorTest, ATableIsMadeOnce) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    SimOptions sim;
    sim.seed = seed;
    SimCluster cluster({512, 16 << 10, 64 << 10}, sim);
    cluster.CutCoordinator(0, true);
    cluster.network()->At(cluster.network()->now_ns() + 5'000'000, [&cluster] { cluster.CutCoordinator(0, false); });
    ASSERT_TRUE(cluster.CreateTable("t", 1024, 1).ok());
    EXPECT_EQ(Unserved(&cluster), "");
    EXPECT_EQ(cluster.table().regions.size(), 2u);
    EXPECT_EQ(cluster.table().tables.size(), 1u);
  }
}

// A change that is too large to be made is refused. It would be repeated forever if it counted as one whose outcome is
// unknown.
TEST(CoordinatorTest, AChangeForTooManyRegionsIsNotRepeated) {
  SimCluster cluster({512, 16 << 10, 64 << 10}, SimOptions{});
  cluster.shared()->regions_at_once = 0;
  EXPECT_TRUE(absl::IsOutOfRange(cluster.CreateTable("t", 1024, 1)));
  cluster.shared()->regions_at_once = SIZE_MAX;
  EXPECT_TRUE(cluster.CreateTable("t", 1024, 1).ok());
}

}  // namespace
}  // namespace cell
