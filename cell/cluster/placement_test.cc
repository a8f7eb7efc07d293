#include "cell/cluster/placement.h"

#include <gtest/gtest.h>

#include <set>

namespace cell {
namespace {

ClusterState FourServers() {
  ClusterState state;
  for (int i = 0; i < 4; ++i) state.servers.push_back({fmt::format("s{}", i), {{"", 10}}, ""});
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
  for (int i = 0; i < 100; ++i) taken.insert(ChooseTaker(state, {"s0", 0}, true, &random)->server);
  EXPECT_EQ(taken, (std::set<std::string>{"s2", "s3"}));
}

TEST(Placement, NobodyWhenThatWouldNotBalance) {
  ClusterState state = FourServers();
  for (const char* server : {"s0", "s1", "s2", "s3"}) Add(&state, server, 2);
  Add(&state, "s0", 1);
  Random random(1);
  EXPECT_FALSE(ChooseTaker(state, {"s0", 0}, true, &random).has_value());
  EXPECT_TRUE(ChooseTaker(state, {"s0", 0}, false, &random).has_value());
}

TEST(Placement, NotTheFullAndNotThoseThatAreDrained) {
  ClusterState state = FourServers();
  Add(&state, "s1", 10);
  state.table.draining = {"s2"};
  Random random(1);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(ChooseTaker(state, {"s0", 0}, false, &random)->server, "s3");
  state.table.draining = {"s2", "s3"};
  EXPECT_FALSE(ChooseTaker(state, {"s0", 0}, false, &random).has_value());
}

// Every region that is made where there are most goes where there is room: how even that gets.
TEST(Placement, SpreadsEvenly) {
  ClusterState state = FourServers();
  for (auto& server : state.servers) server.workers[0].regions_max = 1000;
  Random random(1);
  for (int i = 0; i < 400; ++i) {
    const std::string giver = fmt::format("s{}", random.Below(4));
    const std::optional<WorkerId> taker = ChooseTaker(state, {giver, 0}, true, &random);
    Add(&state, taker.has_value() ? taker->server : giver, 1);
  }
  for (const auto& server : state.servers) {
    const size_t count = state.table.CountOf({server.name, 0});
    EXPECT_GE(count, 97u);
    EXPECT_LE(count, 103u);
  }
}

}  // namespace
}  // namespace cell
