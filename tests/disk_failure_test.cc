// Tests recovery, splits, migrations and acknowledgements with disks that fail or are slow.
#include <gtest/gtest.h>

#include <map>

#include "tests/clusters.h"

namespace cell {
namespace {

std::string Key(int i) { return fmt::format("k{:05}", i); }
std::string Value(int i, int version) {
  return fmt::format("{} {} ", i, version) + std::string(100, static_cast<char>('a' + (i * 7 + version) % 26));
}

// A recovery fails once, at any call. Another worker, or the same one later, recovers the region.
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

// A split whose log fails leaves nothing unfinished: its new region is dropped, or part of the tree.
TEST(SplitFailure, LeavesNothingThatIsHeldForNobody) {
  uint64_t failed = 0;
  for (uint64_t n = 55; n < 90; ++n) {  // From before the split to after it.
    SCOPED_TRACE(n);
    TestClusterOptions options;
    options.logs.durability = Durability::kSync;
    options.inline_max = {0};  // So that the meganode splits at the calls above.
    SimCluster cluster({512, 16 << 10, 64 << 10}, {}, options);
    ClientOptions client_options;
    client_options.report = false;
    client_options.timeout_us = 2'000;
    auto client = cluster.NewClient(client_options);
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(client->Put(Key(i), Value(i, 1)).ok());
    cluster.files()->FailAt(n, absl::UnavailableError("EIO"));
    for (int i = 200; i < 280 && client->Put(Key(i), Value(i, 1)).ok(); ++i) {
    }
    for (int i = 0; i < 100'000 && !cluster.Quiet(); ++i) cluster.network()->Step();
    ASSERT_TRUE(cluster.Quiet());
    for (const HeldRegion* region : cluster.worker()->regions()->all()) {
      EXPECT_NE(region->state(), RegionState::kFilling) << region->region();
    }
    failed += cluster.worker()->splitter()->meganodes().failed;
  }
  EXPECT_GT(failed, 5u);
}

class AsyncBound : public ::testing::Test {
 protected:
  static constexpr int64_t kBoundNs = 40'000;
  static TestClusterOptions Options() {
    TestClusterOptions options;
    options.logs.durability = Durability::kAsync;
    options.logs.bound_ns = kBoundNs;
    return options;
  }
  static ClientOptions OfClient() {
    ClientOptions options;
    options.report = false;
    return options;
  }
  SimCluster cluster_{{512, 128 << 10, 256 << 10}, {}, Options()};
  std::unique_ptr<Client> client_ = cluster_.NewClient(OfClient());
};

// After a pause the disk does not count as slow. Only a record that waits longer than the bound makes writes wait.
TEST_F(AsyncBound, APauseMakesNoWriteWait) {
  const HeldRegion* region = cluster_.worker()->regions()->all()[0];
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(client_->Put(fmt::format("{}", i), "value").ok());
    for (int step = 0; step < 20; ++step) {
      client_->Run(client_->AsyncSleepUntil(client_->NowNs() + 1'000));
      EXPECT_FALSE(region->late(*cluster_.worker()->fabric())) << i;
    }
    client_->Run(client_->AsyncSleepUntil(client_->NowNs() + 500'000));
    EXPECT_FALSE(region->log->dirty()) << i;
  }
  // A slow disk makes writes wait.
  cluster_.disk_pool()->set_mean_ns(1'000'000);
  ASSERT_TRUE(client_->Put("slow", "value").ok());
  client_->Run(client_->AsyncSleepUntil(client_->NowNs() + 100'000));
  EXPECT_TRUE(region->late(*cluster_.worker()->fabric()));
}

// However slow the disk is, no write is acknowledged while an earlier one, acknowledged a bound ago, is not on disk.
TEST_F(AsyncBound, WritesWaitForADiskThatIsBehind) {
  cluster_.disk_pool()->set_mean_ns(1'000'000);
  const HeldRegion* region = cluster_.worker()->regions()->all()[0];
  std::map<uint64_t, int64_t> acknowledged;  // Times by the records' sequences.
  int64_t longest_ns = 0, waited_ns = 0;
  for (int i = 0; i < 300; ++i) {
    const int64_t begun_ns = client_->NowNs();
    ASSERT_TRUE(client_->Put(fmt::format("{}", i), "value").ok());
    const int64_t now_ns = client_->NowNs();
    waited_ns = std::max(waited_ns, now_ns - begun_ns);
    acknowledged[region->log->appended()] = now_ns;
    const auto oldest = acknowledged.upper_bound(region->log->durable());
    if (oldest != acknowledged.end()) longest_ns = std::max(longest_ns, now_ns - oldest->second);
  }
  EXPECT_GT(waited_ns, 5 * kBoundNs);  // The disk was slow.
  EXPECT_GT(longest_ns, 0);
  EXPECT_LE(longest_ns, kBoundNs * 3 / 2);  // Includes the way of an answer to the client.
}

// A region is migrated only once its log is on disk, because its next owner continues the log there. Both machines lose
// power right after the migration.
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
  const WorkerId target{fmt::format("server-{}", 1 - owner), 0};
  cluster.disk_pool(owner)->set_mean_ns(1'000'000);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client->Put(Key(i), Value(i, 1)).ok());
  const auto give = [](Worker* worker, uint32_t id, WorkerId to) -> Task<bool> {
    co_return (co_await worker->migrator()->Migrate(id, to)).ok();
  };
  cluster.worker(owner)->scheduler()->Spawn(give(cluster.worker(owner), region, target));
  while (cluster.table().Find(region)->owner != target) cluster.network()->Step();
  cluster.Kill(owner, /*machine=*/true);
  ASSERT_TRUE(client->Put("last", "1").ok());
  client->Run(client->AsyncSleepUntil(client->NowNs() + 200'000'000));  // It is on disk.
  cluster.Kill(1 - owner, /*machine=*/true);
  cluster.Restart(1 - owner);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client->Get(Key(i))->value_or("lost"), Value(i, 1)) << i;
  EXPECT_EQ(client->Get("last")->value_or("lost"), "1");
}

// The log of a region fails while the target waits for it to be on disk. The migration ends at once, though the target
// keeps asking. The region stays, and can be written again once the disk answers.
TEST(DiskFailure, EndsAMoveThatWaitsForTheLog) {
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
  client_options.timeout_us = 1'000'000;
  auto client = cluster.NewClient(client_options);
  ASSERT_TRUE(client->Put("first", "1").ok());
  const uint32_t region = cluster.table().root;
  const auto owner = static_cast<size_t>(std::stoi(cluster.table().Find(region)->owner.server.substr(7)));
  Worker* const source = cluster.worker(owner);
  cluster.disk_pool(owner)->set_mean_ns(1'000'000);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client->Put(Key(i), Value(i, 1)).ok());
  absl::Status given;
  const auto give = [&given](Worker* worker, uint32_t id, WorkerId to) -> Task<bool> {
    given = co_await worker->migrator()->Migrate(id, to);
    co_return true;
  };
  source->scheduler()->Spawn(give(source, region, {fmt::format("server-{}", 1 - owner), 0}));
  HeldRegion* const held = source->regions()->Find(region);
  while (held->state() != RegionState::kFrozen) cluster.network()->Step();
  ASSERT_TRUE(held->log->dirty());
  cluster.files(owner)->FailAt(0, absl::ResourceExhaustedError("ENOSPC"));
  client->Run(client->AsyncSleepUntil(client->NowNs() + 20'000'000));
  EXPECT_NE(std::string(given.message()).find("ENOSPC"), std::string::npos) << given;
  EXPECT_EQ(source->migrator()->counters().sent, 0u);
  EXPECT_EQ(cluster.worker(1 - owner)->migrator()->counters().received, 0u);
  client->Run(client->AsyncSleepUntil(client->NowNs() + 1'500'000'000));
  EXPECT_EQ(source->recoverer()->counters().retaken, 1u);
  EXPECT_TRUE(client->Put("later", "1").ok());
  EXPECT_EQ(client->Get("first")->value_or("lost"), "1");
}

// While the disk fails, the region can be read, and stays where it is. Once the disk answers, the region is claimed at
// the next epoch and recovered, and can be written as before. No restart is needed.
TEST(DiskFailure, TheRegionIsClaimedAgainOnceTheDiskAnswers) {
  for (const Durability durability : {Durability::kSync, Durability::kAsync}) {
    SCOPED_TRACE(ToString(durability));
    TestClusterOptions options;
    options.logs.durability = durability;
    options.logs.bound_ns = 40'000;
    SimCluster cluster({512, 128 << 10, 256 << 10}, {}, options);
    ClientOptions client_options;
    client_options.report = false;
    client_options.timeout_us = 1'000;
    client_options.reconnect_us = 20;
    auto client = cluster.NewClient(client_options);
    const auto sleep = [&](int64_t ns) { client->Run(client->AsyncSleepUntil(client->NowNs() + ns)); };
    ASSERT_TRUE(client->Put("before", "1").ok());
    sleep(3 * options.logs.bound_ns);  // async: it is on disk.
    const uint32_t region = cluster.table().root;
    const uint64_t epoch = cluster.table().Find(region)->epoch;
    cluster.files()->FailAt(0, absl::UnavailableError("EIO"));
    for (int i = 0; i < 400 && client->Put("after", "2").ok(); ++i) {
    }
    const int64_t second_ns = 1'000'000'000;
    for (int probe = 0; probe < 3; ++probe) {
      cluster.files()->FailAt(0, absl::ResourceExhaustedError("ENOSPC"));  // Makes the next probe fail.
      const uint64_t calls = cluster.files()->calls();
      sleep(second_ns);
      EXPECT_GT(cluster.files()->calls(), calls);
      EXPECT_EQ(cluster.table().Find(region)->epoch, epoch);
      EXPECT_EQ(client->Get("before")->value_or("lost"), "1");
      EXPECT_FALSE(client->Put("later", "1").ok());
    }
    sleep(2 * second_ns);
    EXPECT_EQ(cluster.worker()->recoverer()->counters().retaken, 1u);
    EXPECT_EQ(cluster.table().Find(region)->epoch, epoch + 1);
    EXPECT_EQ(client->Get("before")->value_or("lost"), "1");
    ASSERT_TRUE(client->Put("later", "3").ok());
    client.reset();
    cluster.Kill(0, /*machine=*/true);
    cluster.Restart(0);
    client_options.timeout_us = 10'000'000;
    client = cluster.NewClient(client_options);
    EXPECT_EQ(client->Get("before")->value_or("lost"), "1");
    if (durability == Durability::kSync) {
      EXPECT_EQ(client->Get("later")->value_or("lost"), "3");
    }
  }
}

// If the tier above has no room for the route of a region, who publishes the route holds the claim on the region, and
// tries again and again. The region is claimed again nevertheless when its log has failed.
TEST(DiskFailure, ARegionThatWaitsForItsRouteIsClaimedAgain) {
  TestClusterOptions options;
  options.logs.durability = Durability::kSync;
  options.regions_max = 2;  // None is left for the root above both halves.
  SimCluster cluster({512, 16 << 10, 64 << 10}, {}, options);
  ClientOptions client_options;
  client_options.report = false;
  client_options.timeout_us = 1'000;
  client_options.reconnect_us = 20;
  auto client = cluster.NewClient(client_options);
  const auto sleep = [&](int64_t ns) { client->Run(client->AsyncSleepUntil(client->NowNs() + ns)); };
  for (int i = 0; i < 1'000 && cluster.table().regions.size() < 2; ++i) {
    ASSERT_TRUE(client->Put(Key(i), Value(i, 1)).ok());
  }
  ASSERT_EQ(cluster.table().regions.size(), 2u);
  sleep(10'000'000);
  const HeldRegion* const upper = cluster.worker()->regions()->Find(std::next(cluster.table().regions.begin())->first);
  ASSERT_TRUE(upper != nullptr && upper->claimed());
  const std::string key = upper->tree->range().low;
  cluster.files()->FailAt(0, absl::UnavailableError("EIO"));
  EXPECT_FALSE(client->Put(key, "1").ok());
  EXPECT_FALSE(upper->log->status().ok());
  sleep(5'000'000'000);
  EXPECT_EQ(cluster.worker()->recoverer()->counters().retaken, 1u);
  EXPECT_TRUE(client->Put(key, "2").ok());
  EXPECT_EQ(client->Get(key)->value_or("lost"), "2");
}

// A disk fails once, at any call. Nothing is acknowledged that is not on disk, and nothing at all once a sync has
// failed, until the region is claimed again. The region can still be read.
TEST(DiskFailure, StopsAcknowledgementsUntilTheRegionIsClaimedAgain) {
  uint64_t stopped = 0;
  for (uint64_t n = 0; n < 60; ++n) {
    for (const Durability durability : {Durability::kSync, Durability::kAsync}) {
      SCOPED_TRACE(fmt::format("call {}, {}", n, ToString(durability)));
      TestClusterOptions options;
      options.logs.durability = durability;
      options.logs.bound_ns = 40'000;
      options.checkpoints.log_bytes_min = 4 << 10;  // Checkpoints and new segments fail, too.
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
