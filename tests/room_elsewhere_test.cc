// Tests that a server that may hold no more regions uses the room that another server has.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

#include "fmt/format.h"
#include "tests/sim_cluster.h"

namespace cell {
namespace {

constexpr size_t kRegionsMax = 4;
constexpr int64_t kBalanceEveryNs = 2'000'000'000;

std::string Key(int i) { return fmt::format("k{:05}", i); }

class RoomElsewhere : public ::testing::Test {
 protected:
  static TestClusterOptions Options() {
    TestClusterOptions options;
    options.servers = 2;
    options.regions_max = kRegionsMax;
    options.balance.every_ns = kBalanceEveryNs;  // So that no test sees what weights alone move.
    options.join.every_ns = 100'000;
    options.quiet_at_end = false;
    return options;
  }
  RoomElsewhere() {
    ClientOptions options;
    options.report = false;
    client_ = cluster_.NewClient(options);
  }
  size_t RegionsOf(size_t server) { return cluster_.worker(server)->regions()->size(); }
  HeldRegion* Find(size_t server, uint32_t region) { return cluster_.worker(server)->regions()->Find(region); }
  // Puts ascending keys until one is refused. Returns their number.
  int Fill() {
    for (int i = 0; i < 100'000; ++i) {
      const absl::StatusOr<bool> existed = client_->Put(Key(i), std::string(100, 'v'));
      if (existed.ok()) continue;
      EXPECT_TRUE(absl::IsResourceExhausted(existed.status())) << existed.status();
      return i;
    }
    return -1;
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

  SimCluster cluster_{{512, 16 << 10, 64 << 10}, {}, Options()};
  std::unique_ptr<Client> client_;
};

TEST_F(RoomElsewhere, NoPutIsRefusedWhileAnotherServerHasRoom) {
  const int stored = Fill();
  EXPECT_EQ(RegionsOf(0), kRegionsMax);
  EXPECT_EQ(RegionsOf(1), kRegionsMax);
  for (int i = 0; i < stored; ++i) ASSERT_EQ((*client_->Get(Key(i))).value_or("lost"), std::string(100, 'v')) << i;
  ExpectSound(static_cast<size_t>(stored));
}

TEST_F(RoomElsewhere, NothingIsMovedWhereServersAreNotBalanced) {
  cluster_.worker(0)->rebalancer()->set_enabled(false);
  Fill();
  EXPECT_EQ(RegionsOf(0), kRegionsMax);
  EXPECT_EQ(RegionsOf(1), 0u);
}

// By the region table the other server has room, but it refuses.
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
  const auto allow = [&](uint32_t regions_max) {
    cluster_.shared()->state.servers[1].workers[0].regions_max = regions_max;
    ++cluster_.shared()->changes;
  };
  allow(1);
  int stored = 0;
  while (RegionsOf(0) < 3) {  // Two meganodes, and their root.
    ASSERT_TRUE(client_->Put(Key(stored++), std::string(100, 'v')).ok());
    Pass(100'000);
  }
  const uint32_t right = Find(0, 1)->tree->range().right.region();
  ASSERT_EQ(Migrate(0, right, 1), absl::OkStatus());
  for (int i = 0; i < stored; ++i) {
    if (Find(0, 1)->tree->Covers(Key(i))) {
      ASSERT_TRUE(client_->Delete(Key(i)).ok());
    }
  }
  Pass(1'000'000'000);
  EXPECT_NE(Find(0, 1), nullptr);
  EXPECT_EQ(cluster_.worker(0)->migrator()->counters().failed, 0u);
  allow(2);
  Await([&] { return cluster_.table().Find(right) == nullptr; });
  EXPECT_EQ(cluster_.worker(1)->joiner()->counters().joins, 1u);
}

}  // namespace
}  // namespace cell
