// Tests what GrantHistory takes for allowed while servers learn of changes at different times.
#include "tests/simulation/grant_history.h"

#include <gtest/gtest.h>

#include <string>

#include "cell/base/check.h"
#include "tests/sim_cluster.h"

namespace cell {
namespace {

using Verdict = GrantHistory::Verdict;

class GrantHistoryTest : public ::testing::Test {
 protected:
  static TestClusterOptions TwoServers() {
    TestClusterOptions options;
    options.servers = 2;
    return options;
  }
  void Change(const Membership::TableChange& change) { CELL_CHECK(cluster_.ChangeTable(change).ok()); }
  void Give(const std::string& user, const std::string& rights, bool give = true) {
    Change([&](RegionTable* table) { return table->ChangeGrant(user, {}, *Rights::Parse(rights), give); });
  }
  void Enforce(bool enforce) {
    Change([enforce](RegionTable* table) {
      table->grants.Enforce(enforce);
      return absl::OkStatus();
    });
  }
  // Lets all servers that can see the table do so.
  void Settle() {
    const int64_t until_ns = cluster_.network()->now_ns() + 100'000;
    while (cluster_.network()->now_ns() < until_ns) cluster_.network()->Step();
  }
  Verdict MayRead(uint64_t since) const {
    return history_.Of("u", since, [](const UserRights& rights) { return rights.OfKey(Right::kRead, "key"); });
  }

  SimCluster cluster_{{512, 32 << 10, 64 << 10}, {}, TwoServers()};
  GrantHistory history_{&cluster_};
};

TEST_F(GrantHistoryTest, SaysWhetherAUserWasAllowedAllTheTime) {
  EXPECT_EQ(MayRead(history_.oldest()), Verdict::kAlways) << "grants are not enforced";
  Enforce(true);
  Settle();
  const uint64_t before = history_.oldest();
  EXPECT_EQ(MayRead(before), Verdict::kNever);
  Give("u", "read");
  EXPECT_EQ(MayRead(before), Verdict::kSometimes);
  Settle();
  const uint64_t given = history_.oldest();
  EXPECT_GT(given, before);
  EXPECT_EQ(MayRead(given), Verdict::kAlways);
  EXPECT_EQ(MayRead(before), Verdict::kSometimes);
  Give("u", "read", /*give=*/false);
  Settle();
  EXPECT_EQ(MayRead(history_.oldest()), Verdict::kNever);
  EXPECT_EQ(MayRead(given), Verdict::kSometimes);
  Enforce(false);
  Settle();
  EXPECT_EQ(MayRead(history_.oldest()), Verdict::kAlways);
}

TEST_F(GrantHistoryTest, WaitsForTheServerThatKnowsLeast) {
  Enforce(true);
  Settle();
  const uint64_t before = history_.oldest();
  cluster_.CutCoordinator(1, true);
  Give("u", "scan");
  Settle();
  EXPECT_EQ(history_.oldest(), before);
  EXPECT_EQ(MayRead(history_.oldest()), Verdict::kSometimes);
  const Identity user{Role::kClient, "u"};
  EXPECT_TRUE(history_.MayRead(user, *cluster_.server(0)));
  EXPECT_TRUE(history_.MayRead(user, *cluster_.server(1))) << "it may learn of the grant in this turn";
  Give("u", "scan", /*give=*/false);
  Settle();
  EXPECT_FALSE(history_.MayRead(user, *cluster_.server(0)));
  EXPECT_TRUE(history_.MayRead({Role::kServer, "u"}, *cluster_.server(0)));
  cluster_.Kill(1);
  EXPECT_GT(history_.oldest(), before) << "who is dead serves nothing";
  EXPECT_EQ(MayRead(history_.oldest()), Verdict::kNever);
}

}  // namespace
}  // namespace cell
