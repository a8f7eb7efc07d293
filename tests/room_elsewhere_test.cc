// Tests that a server that may hold no more regions uses the room that another server has.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "tests/sim_cluster.h"

namespace cell {
namespace {

constexpr size_t kRegionsMax = 4;
constexpr int64_t kBalanceEveryNs = 2'000'000'000;

std::string Key(int i) { return fmt::format("k{:05}", i); }

enum class Order { kAscending, kDescending, kRandom };
int KeyOf(int i, Order order) {
  return order == Order::kAscending ? i : order == Order::kDescending ? 99'999 - i : i * 17'777 % 100'000;
}

class RoomElsewhere : public ::testing::Test {
 protected:
  static TestClusterOptions Options(int servers, size_t regions_max, bool joins) {
    TestClusterOptions options;
    options.servers = servers;
    options.regions_max = regions_max;
    options.balance.every_ns = kBalanceEveryNs;  // So that no test sees what weights alone move.
    options.join.enabled = joins;
    options.join.every_ns = 100'000;
    options.quiet_at_end = false;
    return options;
  }
  explicit RoomElsewhere(int servers = 2, size_t regions_max = kRegionsMax, bool joins = true)
      : cluster_{{512, 16 << 10, 64 << 10}, {}, Options(servers, regions_max, joins)} {
    ClientOptions options;
    options.report = false;
    client_ = cluster_.NewClient(options);
  }
  // Sets how many regions server 1 may hold, by what others know.
  void Allow(uint32_t regions_max) {
    cluster_.shared()->state.servers[1].workers[0].regions_max = regions_max;
    ++cluster_.shared()->changes;
  }
  size_t RegionsOf(size_t server) { return cluster_.worker(server)->regions()->size(); }
  HeldRegion* Find(size_t server, uint32_t region) { return cluster_.worker(server)->regions()->Find(region); }
  Task<bool> PutAsync(int i, Order order) {
    ++in_flight_;
    const std::string key = Key(KeyOf(i, order)), value(100, 'v');
    const absl::StatusOr<bool> existed = co_await client_->AsyncPut(key, value);
    --in_flight_;
    if (existed.ok()) {
      stored_.insert(key);
    } else {
      refused_ = true;
      EXPECT_TRUE(absl::IsResourceExhausted(existed.status())) << existed.status();
    }
    co_return true;
  }
  // Puts keys until one is refused, `at_once` of them at the same time. Returns the number of puts that were begun.
  int Fill(Order order = Order::kAscending, int at_once = 1) {
    int i = 0;
    while (!refused_ && i < 100'000) {
      std::vector<Task<bool>> batch;
      for (int end = i + at_once; i < end; ++i) {
        batch.push_back(PutAsync(i, order));
        batch.back().Start();
      }
      while (in_flight_ > 0) client_->Poll(INT64_MAX);
    }
    EXPECT_TRUE(refused_);
    return i;
  }
  absl::Status Migrate(size_t from, uint32_t region, int to) {
    std::optional<absl::Status> moved;
    const auto migrate = [&]() -> Task<bool> {
      WorkerId target{fmt::format("server-{}", to), 0};
      moved = co_await cluster_.worker(from)->migrator()->Migrate(region, std::move(target));
      co_return true;
    };
    cluster_.worker(from)->scheduler()->Spawn(migrate());
    Await([&] { return moved.has_value(); });
    return moved.value_or(absl::DeadlineExceededError("it has not ended"));
  }
  void Await(const std::function<bool()>& ended) {
    for (int i = 0; i < 10'000 && !ended(); ++i) Pass(10'000);
    ASSERT_TRUE(ended());
  }
  void Pass(int64_t ns) { client_->Run(client_->AsyncSleepUntil(client_->NowNs() + ns)); }
  void ExpectSound(size_t keys) {
    client_.reset();
    const TestReport report = cluster_.Check();
    EXPECT_EQ(report.error_count, 0u) << report.errors[0];
    EXPECT_EQ(report.keys, keys);
  }

  SimCluster cluster_;
  std::set<std::string> stored_;
  int in_flight_ = 0;
  bool refused_ = false;
  std::unique_ptr<Client> client_;
};

struct Room {
  int servers;
  size_t regions_max;
  Order order;
  int at_once = 1;
};
class RoomEverywhere : public RoomElsewhere, public ::testing::WithParamInterface<Room> {
 protected:
  RoomEverywhere() : RoomElsewhere(GetParam().servers, GetParam().regions_max) {}
};
INSTANTIATE_TEST_SUITE_P(Clusters, RoomEverywhere,
                         ::testing::Values(Room{2, 4, Order::kAscending}, Room{3, 4, Order::kAscending},
                                           Room{3, 4, Order::kDescending}, Room{3, 4, Order::kRandom},
                                           Room{3, 4, Order::kRandom, 16}, Room{4, 6, Order::kAscending, 16},
                                           // Where the root of the tree must move, too.
                                           Room{2, 2, Order::kAscending}, Room{3, 2, Order::kDescending},
                                           Room{3, 2, Order::kRandom}));

TEST_P(RoomEverywhere, NoPutIsRefusedBeforeAllServersAreFull) {
  Fill(GetParam().order, GetParam().at_once);
  for (size_t i = 0; i < cluster_.servers(); ++i) EXPECT_EQ(RegionsOf(i), GetParam().regions_max) << i;
  if (GetParam().regions_max > 2) {
    EXPECT_NE(Find(0, cluster_.table().root), nullptr);  // Routes stay where they are.
  }
  for (const std::string& key : stored_) ASSERT_EQ((*client_->Get(key)).value_or("lost"), std::string(100, 'v')) << key;
  ExpectSound(stored_.size());
}

enum class Third { kDead, kStopped, kRefuses };
class RoomBesideAThird : public RoomElsewhere, public ::testing::WithParamInterface<Third> {
 protected:
  RoomBesideAThird() : RoomElsewhere(3) {}
};
INSTANTIATE_TEST_SUITE_P(States, RoomBesideAThird, ::testing::Values(Third::kDead, Third::kStopped, Third::kRefuses));

TEST_P(RoomBesideAThird, RegionsGoToWhoTakesThem) {
  Regions* const its = cluster_.worker(2)->regions();
  for (uint32_t i = 0; i < kRegionsMax && GetParam() == Third::kRefuses; ++i) ASSERT_TRUE(its->Expect(1'000 + i).ok());
  if (GetParam() == Third::kDead) cluster_.Kill(2);  // The cluster's state still names it.
  if (GetParam() == Third::kStopped) cluster_.Stop(2);
  Fill();
  EXPECT_EQ(RegionsOf(0), kRegionsMax);
  EXPECT_EQ(RegionsOf(1), kRegionsMax);
  EXPECT_LE(cluster_.worker(0)->migrator()->counters().failed, GetParam() == Third::kRefuses ? 2u : 0u);
}

TEST_F(RoomElsewhere, NothingIsMovedWhereServersAreNotBalanced) {
  cluster_.worker(0)->rebalancer()->set_enabled(false);
  Fill();
  EXPECT_EQ(RegionsOf(0), kRegionsMax);
  EXPECT_EQ(RegionsOf(1), 0u);
}

class RoomForOneRegion : public RoomElsewhere {
 protected:
  RoomForOneRegion() : RoomElsewhere(2, kRegionsMax, /*joins=*/false) {}
};

TEST_F(RoomForOneRegion, TheSmallestGoes) {
  Allow(0);
  const int stored = Fill();
  for (int i = 0; i < stored; ++i) {
    if (Find(0, 2)->tree->Covers(Key(i))) {
      ASSERT_TRUE(client_->Delete(Key(i)).ok());
    }
  }
  Pass(kBalanceEveryNs * 11 / 10);  // Until it looks for room again.
  Allow(1);
  EXPECT_TRUE(client_->Put(Key(stored), std::string(100, 'v')).ok());
  EXPECT_NE(Find(1, 2), nullptr);
}

// The region table says that the other server has room, but that server refuses each region.
TEST_F(RoomElsewhere, AMigrationThatFailsIsNotTriedAgainAtOnce) {
  Regions* const its = cluster_.worker(1)->regions();
  for (uint32_t i = 0; i < kRegionsMax; ++i) ASSERT_TRUE(its->Expect(1'000 + i).ok());
  Fill();
  EXPECT_EQ(RegionsOf(0), kRegionsMax);
  EXPECT_LE(cluster_.worker(0)->migrator()->counters().failed, 2u);
  for (uint32_t i = 0; i < kRegionsMax; ++i) its->Unexpect(1'000 + i);
  Pass(21 * kBalanceEveryNs);
  EXPECT_TRUE(client_->Put(Key(90'000), "v").ok());
  EXPECT_GT(RegionsOf(1), 0u);
}

// A small region is not sent to its right neighbour's server while that may hold no more.
TEST_F(RoomElsewhere, ASmallRegionGoesToItsNeighbourOnceThereIsRoom) {
  Allow(1);
  int stored = 0;
  while (RegionsOf(0) < 3) {  // Two meganodes, and their root.
    ASSERT_TRUE(client_->Put(Key(stored++), std::string(100, 'v')).ok());
    Pass(100'000);
  }
  const uint32_t right = Find(0, 1)->tree->range().right.region();
  ASSERT_EQ(Migrate(0, right, 1), absl::OkStatus());
  std::vector<int> of_left;
  for (int i = 0; i < stored; ++i) {
    if (Find(0, 1)->tree->Covers(Key(i))) of_left.push_back(i);
  }
  for (size_t left = of_left.size() * 45 / 100; of_left.size() > left; of_left.pop_back()) {
    ASSERT_TRUE(client_->Delete(Key(of_left.back())).ok());
  }
  Allow(2);
  Pass(1'000'000);
  EXPECT_NE(Find(0, 1), nullptr);  // It is too large for a migration.
  Allow(1);
  for (const int i : of_left) ASSERT_TRUE(client_->Delete(Key(i)).ok());
  Pass(1'000'000'000);
  EXPECT_NE(Find(0, 1), nullptr);
  EXPECT_EQ(cluster_.worker(0)->migrator()->counters().failed, 0u);
  Allow(2);
  Await([&] { return cluster_.table().Find(right) == nullptr; });
  EXPECT_EQ(cluster_.worker(1)->joiner()->counters().joins, 1u);
}

}  // namespace
}  // namespace cell
