// Checks that MultiGet over several servers answers like Get, one key after the other.
#include <gtest/gtest.h>

#include "cell/base/check.h"
#include "cell/base/random.h"
#include "cell/client/client_testing.h"
#include "tests/clusters.h"

namespace cell {
namespace {

TEST(MultiGet, AnswersLikeGetsOverAllServers) {
  SimCluster cluster = SpreadingCluster();
  ClientOptions of_client;
  of_client.report = false;
  auto client = cluster.NewClient(of_client);
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(client->Put(fmt::format("key{:05}", i * 7919 % 4000), fmt::format("value {}", i)).ok());
  }
  EXPECT_GT(cluster.table().CountOf({"server-1", 0}) + cluster.table().CountOf({"server-2", 0}), 2u);
  Random random(1);
  for (const Path path : {Path::kServer, Path::kClient, Path::kHybrid}) {
    CallOptions call;
    call.path = path;
    std::vector<std::string> keys;
    keys.reserve(700);
    for (int i = 0; i < 700; ++i) keys.push_back(fmt::format("key{:05}", random.Below(4000)));
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    const auto values = client->MultiGet(views, call);
    ASSERT_TRUE(values.ok()) << values.status();
    ASSERT_EQ(values->size(), keys.size());
    for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ((*values)[i], *client->Get(keys[i])) << keys[i];
  }
  EXPECT_TRUE(client->MultiGet({})->empty());
  const std::vector<std::string_view> bad = {"key00001", "", "key00002"};
  EXPECT_EQ(client->MultiGet(bad).status().code(), absl::StatusCode::kInvalidArgument);
}

// The reads of all keys are in flight together: one round trip a level, however many keys there are.
TEST(MultiGet, ReadsAllKeysOfALevelTogether) {
  SimCluster cluster({512, 1 << 20, 64 << 10});
  ClientOptions options;
  options.report = false;
  options.cache_bytes = 0;
  auto client = cluster.NewClient(options);
  std::vector<std::string> keys;
  keys.reserve(2000);
  for (int i = 0; i < 2000; ++i) {
    keys.push_back(fmt::format("key{:05}", i));
    ASSERT_TRUE(client->Put(keys.back(), "value").ok());
  }
  const auto took_ns = [&](size_t count) {
    std::vector<std::string_view> views;
    views.reserve(count);
    for (size_t i = 0; i < count; ++i) views.push_back(keys[i * 1999 / count]);
    const int64_t begun_ns = client->NowNs();
    client->ResetMetrics();
    const auto values = client->MultiGet(views, {.path = Path::kClient});
    CELL_CHECK(values.ok() && values->size() == count && (*values)[0] == "value");
    return client->NowNs() - begun_ns;
  };
  const int64_t one_ns = took_ns(1);
  const uint64_t levels = client->metrics().read_rounds;
  ASSERT_GE(levels, 3u);
  EXPECT_LT(took_ns(100), 3 * one_ns) << "one key takes " << one_ns << " ns";
  EXPECT_EQ(client->metrics().node_reads, 100 * levels);
}

// There are more regions than fit into one message.
TEST(ServerStatus, ListsAllRegions) {
  TestClusterOptions options;
  options.regions_max = 500;
  SimCluster cluster(kSpreadingShape, {}, options);
  ClientOptions of_client;
  of_client.report = false;
  auto client = cluster.NewClient(of_client);
  for (int i = 0; i < 24'000; ++i) {
    ASSERT_TRUE(client->Put(fmt::format("key{:05}", i * 7919 % 24'000), std::string(400, 'v')).ok());
  }
  const size_t held = cluster.worker()->regions()->size();
  ASSERT_GT(held, 250u);
  const auto status = client->ServerStatus();
  ASSERT_EQ(status.size(), 1u);
  ASSERT_TRUE(status[0].ok()) << status[0].status();
  size_t regions = 0;
  for (size_t at = 0; (at = status[0]->find("\"region\":", at)) != std::string::npos; ++at) ++regions;
  EXPECT_EQ(regions, held);
}

// A member whose ZooKeeper lags: the first refreshes return the old table.
class LaggingMembership : public MemoryMembership {
 public:
  LaggingMembership(std::shared_ptr<MemoryCluster> cluster, int lag)
      : MemoryMembership(std::move(cluster)), lag_(lag) {}
  void Refresh(Done done) override {
    if (lag_-- > 0) return done(absl::OkStatus());
    MemoryMembership::Refresh(std::move(done));
  }

 private:
  int lag_;
};

TEST(StaleCaches, ARegionNewerThanTheTableIsWaitedFor) {
  TestClusterOptions one_server;  // One server only, so that the first region stays in place, and leads to the later
                                  // ones.
  SimCluster cluster(kSpreadingShape, {}, one_server);
  ClientOptions options;
  options.report = false;
  auto late = ClientTesting::Open(options, cluster.network()->NewEndpoint(),
                                  std::make_unique<LaggingMembership>(cluster.shared(), 20));
  ASSERT_TRUE(late.ok());
  auto writer = cluster.NewClient(options);
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(writer->Put(fmt::format("key{:05}", i), "value").ok());
  for (const Path path : {Path::kServer, Path::kClient}) {
    CallOptions call;
    call.path = path;
    for (int i = 0; i < 2000; i += 111) {
      const auto value = (*late)->Get(fmt::format("key{:05}", i), call);
      ASSERT_TRUE(value.ok()) << value.status();
      EXPECT_EQ(*value, "value");
    }
  }
}

// The table says that a worker holds a region, and it does not, for example after a restart. A check must report it.
TEST(Check, NamesARegionThatNobodyHolds) {
  SimCluster cluster = SpreadingCluster();
  ClientOptions options;
  options.report = false;
  auto client = cluster.NewClient(options);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(client->Put(fmt::format("key{:05}", i), "value").ok());
  while (!cluster.Quiet()) cluster.network()->Step();
  const auto good = client->Check();
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_TRUE(good->errors.empty()) << good->errors[0];
  EXPECT_EQ(good->keys, 1000u);
  uint32_t made = 0;
  bool changed = false;
  cluster.membership()->Change(
      [&made](RegionTable* table) {
        const absl::StatusOr<uint32_t> region = table->Add({"server-1", 0});
        made = region.ok() ? *region : 0;
        return region.status();
      },
      [&changed](const absl::Status&) { changed = true; });
  while (!changed) cluster.network()->Step();
  const auto bad = client->Check();
  ASSERT_TRUE(bad.ok()) << bad.status();
  ASSERT_EQ(bad->errors.size(), 1u);
  EXPECT_NE(bad->errors[0].find(fmt::format("server-1 does not hold region {}", made)), std::string::npos);
}

// The client cached everything when the tree was one meganode on one server, and was idle during all later changes.
TEST(StaleCaches, CostStepsAndNeverAWrongAnswer) {
  SimCluster cluster = SpreadingCluster();
  ClientOptions of_client;
  of_client.report = false;
  of_client.cache_level_min = 1;
  auto sleeper = cluster.NewClient(of_client);
  auto writer = cluster.NewClient(of_client);
  CallOptions by_reads;
  by_reads.path = Path::kClient;
  for (int i = 0; i < 150; ++i) ASSERT_TRUE(writer->Put(fmt::format("key{:05}", i * 20), "old").ok());
  for (int i = 0; i < 150; ++i) ASSERT_EQ(sleeper->Get(fmt::format("key{:05}", i * 20), by_reads)->value(), "old");
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 3000; ++i) {
      ASSERT_TRUE(
          writer->Put(fmt::format("key{:05}", i * 7 % 3000), fmt::format("new {} {:50}", round, i * 7 % 3000)).ok());
    }
    uint64_t splits = 0, moves = 0;
    for (size_t i = 0; i < 3; ++i) {
      splits += cluster.worker(i)->splitter()->meganodes().splits;
      moves += cluster.worker(i)->migrator()->counters().received;
    }
    EXPECT_GT(splits, 5u);
    EXPECT_GT(moves, 2u);
    for (int i = 0; i < 3000; i += 7) {
      CallOptions call;
      call.path = i % 2 == 0 ? Path::kClient : Path::kServer;
      const auto value = sleeper->Get(fmt::format("key{:05}", i), call);
      ASSERT_TRUE(value.ok()) << value.status();
      ASSERT_EQ(*value, fmt::format("new {} {:50}", round, i));
    }
  }
  EXPECT_GT(sleeper->metrics().moved_right + sleeper->metrics().restarts, 0u);
}

// A client has cached the tiers of a small tree. When the tree has grown, its cache leads far from the keys, but only
// once.
TEST(StaleCaches, LeadAstrayOnce) {
  constexpr int kSmall = 1900, kLarge = 12000, kEvery = 50;
  const auto key = [](int i) { return fmt::format("key{:05}", i); };
  for (const Path path : {Path::kServer, Path::kClient, Path::kHybrid}) {
    SCOPED_TRACE(ToString(path));
    TestClusterOptions one_server;
    one_server.regions_max = 500;
    SimCluster cluster(kSpreadingShape, {}, one_server);
    ClientOptions options;
    options.report = false;
    auto writer = cluster.NewClient(options);
    for (int i = 0; i < kSmall; ++i) ASSERT_TRUE(writer->Put(key(i), "value").ok());
    ASSERT_GT(cluster.worker()->regions()->size(), 3u);
    options.path = path;
    auto old = cluster.NewClient(options);
    CallOptions by_reads;
    by_reads.path = Path::kClient;
    for (int i = 0; i < kSmall; i += 10) ASSERT_EQ(old->Get(key(i), by_reads)->value(), "value");
    for (int i = kSmall; i < kLarge; ++i) ASSERT_TRUE(writer->Put(key(i), std::string(300, 'v')).ok());
    while (!cluster.Quiet()) cluster.network()->Step();
    (void)old->Tables();  // Now it knows the owners of all regions, and need not ask for them first.
    const size_t regions = cluster.worker()->regions()->size();
    ASSERT_GT(regions, 60u);
    const auto hops = [&key, path](Client* client) {
      client->ResetMetrics();
      for (int i = kLarge - 1; i > 0; i -= kEvery) {
        CELL_CHECK(client->Get(key(i), {.path = path})->has_value());
      }
      return client->metrics().client_path + client->metrics().server_path;
    };
    auto fresh = cluster.NewClient(options);
    old->ResetMetrics();
    ASSERT_TRUE(old->Get(key(kLarge - 1))->has_value());  // To where the cache leads, back, and to the key.
    EXPECT_LE(old->metrics().client_path + old->metrics().server_path, 6u) << regions << " regions";
    const uint64_t gets = kLarge / kEvery;
    const uint64_t first = hops(old.get()), first_of_fresh = hops(fresh.get());
    EXPECT_LE(first, first_of_fresh + 4 * gets) << regions << " regions, " << gets << " gets";
    EXPECT_LE(hops(old.get()), hops(fresh.get()) + gets / 10);
  }
}

// A cached node of routes leads to one key correctly. Its other routes are outdated, and do not replace what the client
// has learned since.
TEST(StaleCaches, ANodeFromBeforeReplacesNoRoute) {
  constexpr int kSmall = 1900, kLarge = 12000, kEvery = 50;
  const auto key = [](int i) { return fmt::format("key{:05}", i); };
  TestClusterOptions one_server;
  one_server.regions_max = 500;
  one_server.inline_max = {0};
  SimCluster cluster(kSpreadingShape, {}, one_server);
  ClientOptions options;
  options.report = false;
  options.path = Path::kServer;
  auto writer = cluster.NewClient(options);
  for (int i = 0; i < kSmall; ++i) ASSERT_TRUE(writer->Put(key(i), "value").ok());
  while (!cluster.Quiet()) cluster.network()->Step();
  options.cache_level_min = 4;  // It caches nodes of routes only.
  auto old = cluster.NewClient(options);
  const CallOptions by_reads{.path = Path::kClient}, by_calls{.path = Path::kServer};
  for (int i = 0; i < kSmall; i += 10) ASSERT_EQ(old->Get(key(i), by_reads)->value(), "value");
  std::string low;  // Low key of the last meganode, from which all later ones are split.
  for (const HeldRegion* region : cluster.worker()->regions()->all()) {
    if (region->tree->tier() == 0) low = std::max(low, region->tree->range().low);
  }
  ASSERT_GT(low, key(0));
  int first = 0;
  while (key(first) < low) ++first;
  for (int i = kSmall; i < kLarge; ++i) ASSERT_TRUE(writer->Put(key(i), std::string(300, 'v')).ok());
  while (!cluster.Quiet()) cluster.network()->Step();
  ASSERT_GT(cluster.worker()->regions()->size(), 60u);
  (void)old->Tables();
  const auto read_all = [&] {
    old->ResetMetrics();
    for (int i = kLarge - 1; i > kSmall; i -= kEvery) CELL_CHECK(old->Get(key(i), by_calls)->has_value());
    return old->metrics().route_misses;
  };
  (void)read_all();  // It learns where they are.
  ASSERT_EQ(read_all(), 0u);
  const uint64_t cached = old->metrics().cache_hits;
  ASSERT_TRUE(old->Get(key(first), by_reads)->has_value());
  ASSERT_GT(old->metrics().cache_hits, cached);  // An old node led it there.
  EXPECT_EQ(read_all(), 0u);
}

}  // namespace
}  // namespace cell
