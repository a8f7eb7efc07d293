#include "cell/cluster/placement.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "cell/base/check.h"

namespace cell {
namespace {

ClusterState FourServers() {
  ClusterState state;
  for (int i = 0; i < 4; ++i) state.servers.push_back({fmt::format("s{}", i), {{"there", 10}}, ""});
  return state;
}

void Add(ClusterState* state, const std::string& server, int regions) {
  for (int i = 0; i < regions; ++i) CELL_CHECK(state->table.Add({server, 0}).ok());
}

TEST(Placement, TakesOneOfTheTwoWithMostRoom) {
  ClusterState state = FourServers();
  Add(&state, "s0", 5);
  Add(&state, "s1", 4);
  Add(&state, "s2", 1);
  Add(&state, "s3", 2);
  Random random(1);
  std::set<std::string> taken;
  for (int i = 0; i < 100; ++i) taken.insert(ChooseTarget(state, {"s0", 0}, &random)->server);
  EXPECT_EQ(taken, (std::set<std::string>{"s2", "s3"}));
}

TEST(Placement, NotTheFullAndNotThoseThatAreDrained) {
  ClusterState state = FourServers();
  Add(&state, "s1", 10);
  state.table.draining = {"s2"};
  Random random(1);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(ChooseTarget(state, {"s0", 0}, &random)->server, "s3");
  state.table.draining = {"s2", "s3"};
  EXPECT_FALSE(ChooseTarget(state, {"s0", 0}, &random).has_value());
}

TEST(Placement, NotThoseThatAreNotThere) {
  ClusterState state = FourServers();
  Add(&state, "s1", 3);
  Add(&state, "s3", 2);
  state.servers[2].workers[0].address.clear();
  Random random(1);
  std::set<std::string> taken;
  for (int i = 0; i < 50; ++i) taken.insert(ChooseTarget(state, {"s0", 0}, &random)->server);
  EXPECT_EQ(taken, (std::set<std::string>{"s1", "s3"}));
}

TEST(Placement, CountsTheRegionsAndTheRoomOfEachWorker) {
  ClusterState state = FourServers();
  state.servers[1].workers.push_back({"there", 3});
  state.servers[2].workers[0].address.clear();
  state.table.draining = {"s3"};
  Add(&state, "s0", 4);
  Add(&state, "s1", 12);  // More than it would take.
  for (int i = 0; i < 2; ++i) CELL_CHECK(state.table.Add({"s1", 1}).ok());
  std::vector<std::string> rooms;
  for (const WorkerRoom& one : RoomOfWorkers(state)) {
    rooms.push_back(fmt::format("{} {} {}", ToString(one.worker), one.regions, one.room));
  }
  EXPECT_EQ(rooms, (std::vector<std::string>{"s0.0 4 6", "s1.0 12 0", "s1.1 2 1"}));
}

// Each of these takes a pass over the region table, not one for each worker, which would take minutes here.
TEST(Placement, AThousandServersWithAHundredThousandRegions) {
  ClusterState state;
  for (int i = 0; i < 1'000; ++i) state.servers.push_back({fmt::format("s{}", i), {{"there", 101}}, ""});
  RegionMap::Entries regions;
  for (uint32_t id = 1; id <= 100'000; ++id) regions.push_back({id, {{fmt::format("s{}", id % 1'000), 0}}});
  state.table.regions = RegionMap::Of(std::move(regions));
  Random random(1);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(RoomiestTargets(state, {"s0", 0}, &random).size(), 999u);
    EXPECT_TRUE(ChooseTarget(state, {"s0", 0}, &random).has_value());
  }
  state.servers[7].workers[0].address.clear();
  std::vector<uint32_t> orphans;
  for (uint32_t id = 7; id <= 100'000; id += 1'000) orphans.push_back(id);
  std::vector<WorkerId> alive;
  for (int i = 0; i < 1'000; ++i) {
    if (i != 7) alive.push_back({fmt::format("s{}", i), 0});
  }
  size_t shared = 0;
  for (const WorkerId& self : {alive[0], alive[1], alive[100], alive[500]}) {
    shared += ShareOut(state, orphans, alive, self).size();
  }
  EXPECT_GE(shared, 1u);
  EXPECT_LE(shared, 4u);
}

// Every remaining worker computes the same result on its own.
TEST(Placement, SharesOutWhatIsLeftBehind) {
  ClusterState state = FourServers();
  Add(&state, "s3", 6);
  Add(&state, "s1", 1);
  const std::vector<uint32_t> orphans = {1, 2, 3, 4, 5, 6};
  const std::vector<WorkerId> alive = {{"s0", 0}, {"s1", 0}, {"s2", 0}};
  const auto share = [&](const std::string& server) { return ShareOut(state, orphans, alive, {server, 0}).size(); };
  EXPECT_EQ(share("s0") + share("s1") + share("s2"), 6u);
  EXPECT_EQ(share("s1"), 1u);  // It holds one already.
  state.table.draining = {"s0"};
  EXPECT_EQ(share("s0"), 0u);
  state.table.draining = {"s0", "s1", "s2"};  // Better than no owner.
  EXPECT_GT(share("s0"), 0u);
  EXPECT_EQ(share("s0") + share("s1") + share("s2"), 6u);
  // A worker believes that it is alive, but is not a member any more.
  state.table.draining.clear();
  state.servers[0].workers[0].address.clear();
  EXPECT_EQ(share("s0"), 0u);
  EXPECT_EQ(share("s1") + share("s2"), 6u);
}

TEST(Placement, MigratesWhatBringsTwoClosest) {
  const std::vector<uint64_t> weights = {30, 50, 10};
  EXPECT_EQ(BestTransfer(90, 10, weights), 0u);   // 60 and 40.
  EXPECT_EQ(BestTransfer(190, 80, weights), 1u);  // 140 and 130.
  EXPECT_EQ(BestTransfer(90, 75, weights), 2u);   // 80 and 85.
  EXPECT_FALSE(BestTransfer(90, 80, weights).has_value());
  EXPECT_FALSE(BestTransfer(90, 100, weights).has_value());
  EXPECT_FALSE(BestTransfer(90, 0, {}).has_value());
  EXPECT_FALSE(
      BestTransfer(30, 0, std::vector<uint64_t>{30}).has_value());  // The other would have the same weight then.
}

// All regions start on one worker, with weights between a third and three quarters. Pairs of workers balance theirs.
// Checks how even the result is: one of the goals for a cluster's load is at most 15 % off the mean.
TEST(Placement, EvensOut) {
  constexpr int kServers = 4;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    std::vector<std::vector<uint64_t>> held(kServers);
    for (int i = 0; i < 32; ++i) held[0].push_back(33 + random.Below(43));
    const auto weight = [&](int server) {
      return std::accumulate(held[server].begin(), held[server].end(), uint64_t{0});
    };
    int moves = 0;
    for (int i = 0; i < 1000; ++i) {
      const int source = static_cast<int>(random.Below(kServers));
      int target = static_cast<int>(random.Below(kServers));
      const int second = static_cast<int>(random.Below(kServers));
      if (weight(second) < weight(target)) target = second;
      const std::optional<size_t> transfer = BestTransfer(weight(source), weight(target), held[source]);
      if (!transfer.has_value()) continue;
      held[target].push_back(held[source][*transfer]);
      held[source].erase(held[source].begin() + static_cast<ptrdiff_t>(*transfer));
      ++moves;
    }
    const uint64_t mean = (weight(0) + weight(1) + weight(2) + weight(3)) / kServers;
    for (int server = 0; server < kServers; ++server) {
      EXPECT_GE(weight(server), mean * 90 / 100) << "seed " << seed;
      EXPECT_LE(weight(server), mean * 110 / 100) << "seed " << seed;
    }
    EXPECT_LE(moves, 60) << "seed " << seed;
  }
}

}  // namespace
}  // namespace cell
