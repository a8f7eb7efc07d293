// Tests a worker's joins of meganodes.
#include "cell/server/change/joiner.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/server/change/joiner_test.h"
#include "cell/tree/tree_check.h"

namespace cell {
namespace {

constexpr int kKeys = 100;

std::string KeyOf(int i) { return fmt::format("key{:03}", i); }

class JoinerTest : public JoinerFixture {
 protected:
  explicit JoinerTest(bool joins = false, size_t regions_max = 8) : JoinerFixture(joins, regions_max) {
    for (int i = 0; i < kKeys; ++i) {
      const std::string key = KeyOf(i);
      CELL_CHECK(root()->store->Put(key, "value", Crc64("value", Crc64(key))).ok());
    }
  }

  // Splits the first meganode. Returns its new right neighbour.
  uint32_t Split() {
    const uint32_t first = First()->region();
    EXPECT_TRUE(Run(worker_->splitter()->Split(first)).ok());
    AwaitIdle();
    return First()->tree->range().right.region();
  }
  HeldRegion* root() { return worker_->regions()->Find(membership_->state().table.root); }
  // Returns the first meganode of tier 0.
  HeldRegion* First() {
    HeldRegion* first = nullptr;
    worker_->regions()->ForEach([&](HeldRegion* held) {
      if (held->tree->tier() == 0 && held->tree->range().low.empty()) first = held;
    });
    return first;
  }
  void ExpectWhole() {
    ASSERT_FALSE(First()->tree->range().high.has_value());
    const TreeReport report = CheckTree(*First()->memory);
    EXPECT_TRUE(report.ok()) << report.errors[0];
    EXPECT_EQ(report.keys, static_cast<uint64_t>(kKeys));
    EXPECT_EQ(First()->store->keys(), static_cast<uint64_t>(kKeys));
    EXPECT_FALSE(First()->claimed());
  }
  // Returns the state in which a recovery of the first meganode's log would find it.
  size_t KeysInLog(const LogReplay::GoneAt& is_gone) { return JoinerFixture::KeysInLog(First()->region(), is_gone); }
};

TEST_F(JoinerTest, AMeganodeIsJoinedInOrder) {
  const uint32_t right = Split();
  std::vector<std::string> reached;
  worker_->sync_points()->on_reach = [&](std::string_view point) { reached.emplace_back(point); };
  ASSERT_TRUE(Run(worker_->joiner()->Join(right)).ok());
  worker_->sync_points()->on_reach = nullptr;
  EXPECT_EQ(reached, (std::vector<std::string>{"join: route removed", "join: copied", "join: logged", "join: committed",
                                               "join: joined", "join: cleaned"}));
  EXPECT_EQ(worker_->joiner()->counters().joins, 1u);
  EXPECT_EQ(Find(right), nullptr);
  EXPECT_EQ(membership_->state().table.Find(right), nullptr);
  ExpectWhole();
  EXPECT_EQ(root()->store->keys(), 1u);  // The route of the first meganode.
  EXPECT_FALSE(HasLog(right));
  EXPECT_EQ(KeysInLog([right](uint32_t region, uint32_t) { return region == right; }), static_cast<size_t>(kKeys));
}

// The change of the region table decides: a recovery that finds the right meganode there does not take what was copied.
TEST_F(JoinerTest, TheTableSaysWhetherARecoveryTakesWhatWasCopied) {
  const uint32_t right = Split();
  const size_t left_keys = First()->store->keys();
  size_t without = 0, with = 0;
  worker_->sync_points()->on_reach = [&](std::string_view point) {
    if (point != "join: logged") return;
    without = KeysInLog([](uint32_t, uint32_t) { return false; });
    with = KeysInLog([right](uint32_t region, uint32_t) { return region == right; });
  };
  ASSERT_TRUE(Run(worker_->joiner()->Join(right)).ok());
  worker_->sync_points()->on_reach = nullptr;
  EXPECT_EQ(without, left_keys);
  EXPECT_EQ(with, static_cast<size_t>(kKeys));
}

TEST_F(JoinerTest, OneThatIsRefusedLeavesBothAsTheyWere) {
  const uint32_t right = Split();
  const uint64_t left_keys = First()->store->keys();
  uint32_t child = 0;  // Of a split that the region table knows of. It refuses the join.
  worker_->sync_points()->on_reach = [&](std::string_view point) {
    if (point == "join: logged") child = *cluster_->state.table.Add({"own", 0}, right);
  };
  EXPECT_EQ(Run(worker_->joiner()->Join(right)).code(), absl::StatusCode::kAborted);
  worker_->sync_points()->on_reach = nullptr;
  EXPECT_TRUE(cluster_->state.table.Remove(child).ok());
  AwaitIdle();
  ASSERT_NE(Find(right), nullptr);
  EXPECT_EQ(Find(right)->state(), RegionState::kServing);
  EXPECT_FALSE(Find(right)->claimed());
  EXPECT_EQ(First()->store->keys(), left_keys);
  EXPECT_EQ(root()->store->keys(), 2u);  // Its route is there again.
  EXPECT_EQ(worker_->joiner()->counters().failed, 1u);
  // It can be joined later. What the first attempt has copied does not count.
  ASSERT_TRUE(*Find(right)->store->Delete(KeyOf(kKeys - 1)));
  ASSERT_TRUE(Run(worker_->joiner()->Join(right)).ok());
  EXPECT_EQ(KeysInLog([right](uint32_t region, uint32_t) { return region == right; }), static_cast<size_t>(kKeys - 1));
}

TEST_F(JoinerTest, WhatCannotBeJoinedIsSaid) {
  const uint32_t right = Split();
  const auto code = [this](uint32_t region) { return Run(worker_->joiner()->Join(region)).code(); };
  EXPECT_EQ(code(99), absl::StatusCode::kNotFound);
  EXPECT_EQ(code(First()->region()), absl::StatusCode::kFailedPrecondition);  // It is the leftmost.
  EXPECT_EQ(code(root()->region()), absl::StatusCode::kFailedPrecondition);   // So is this one, in its tier.
  {
    const RegionClaim busy(First(), ClaimPurpose::kCheckpoint);
    EXPECT_EQ(code(right), absl::StatusCode::kAborted);
  }
  ASSERT_TRUE(Run(worker_->tables()->Create("table", 0, 1)).ok());
  EXPECT_EQ(code(membership_->state().table.tables.at("table").parts.begin()->second),
            absl::StatusCode::kFailedPrecondition);
  for (int i = 0; i < 260; ++i) {
    const std::string key = fmt::format("{}x{:03}", KeyOf(kKeys - 1), i), value(100, 'v');
    ASSERT_TRUE(Find(right)->store->Put(key, value, Crc64(value, Crc64(key))).ok());
  }
  EXPECT_EQ(code(right), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Find(right)->state(), RegionState::kServing);
  EXPECT_EQ(root()->store->keys(), 2u);
}

TEST_F(JoinerTest, ARootThatLeadsToOneMeganodeGoes) {
  const uint32_t right = Split();
  const uint32_t old_root = root()->region();
  EXPECT_EQ(Run(worker_->joiner()->LowerRoot()).code(), absl::StatusCode::kFailedPrecondition);  // It leads to two.
  ASSERT_TRUE(Run(worker_->joiner()->Join(right)).ok());
  {
    const RegionClaim busy(root(), ClaimPurpose::kCheckpoint);
    EXPECT_EQ(Run(worker_->joiner()->LowerRoot()).code(), absl::StatusCode::kAborted);
  }
  ASSERT_TRUE(Run(worker_->joiner()->LowerRoot()).ok());
  EXPECT_EQ(Find(old_root), nullptr);
  EXPECT_EQ(membership_->state().table.Find(old_root), nullptr);
  EXPECT_EQ(root(), First());
  EXPECT_EQ(worker_->joiner()->counters().roots_removed, 1u);
  EXPECT_FALSE(HasLog(old_root));
  EXPECT_EQ(Run(worker_->joiner()->LowerRoot()).code(),
            absl::StatusCode::kFailedPrecondition);  // It has no tier above.
  ExpectWhole();
  Split();  // A new root is made.
  EXPECT_EQ(root()->tree->tier(), 1);
  EXPECT_EQ(root()->store->keys(), 2u);
}

// A route that comes now must lead to a new root.
TEST_F(JoinerTest, ARootThatGoesTakesNoRoutes) {
  const uint32_t right = Split();
  const uint32_t old_root = root()->region();
  ASSERT_TRUE(Run(worker_->joiner()->Join(right)).ok());
  bool frozen = false;
  uint32_t half = 0;  // Of a split that the region table knows of. It refuses the change.
  worker_->sync_points()->on_reach = [&](std::string_view point) {
    if (point != "join: root frozen") return;
    frozen = !Find(old_root)->writable();
    half = *cluster_->state.table.Add({"own", 0}, old_root);
  };
  EXPECT_EQ(Run(worker_->joiner()->LowerRoot()).code(), absl::StatusCode::kAborted);
  worker_->sync_points()->on_reach = nullptr;
  EXPECT_TRUE(cluster_->state.table.Remove(half).ok());
  EXPECT_TRUE(frozen);
  EXPECT_EQ(root()->region(), old_root);
  EXPECT_TRUE(root()->writable());
  EXPECT_FALSE(root()->claimed());
}

// A split of the root has made its right half, and the new root that leads to both is still to come.
TEST_F(JoinerTest, ARootThatWasSplitStays) {
  Split();
  for (uint32_t i = 0; i < 40; ++i) ASSERT_TRUE(root()->tree->InsertRoute(fmt::format("x{}", i), RootOf(100 + i)).ok());
  worker_->sync_points()->on_reach = [&](std::string_view point) {
    if (point == "split: cleaned") membership_->set_failure(absl::UnavailableError("a test"));
  };
  ASSERT_TRUE(Run(worker_->splitter()->Split(root()->region())).ok());
  worker_->sync_points()->on_reach = nullptr;
  ASSERT_FALSE(root()->tree->range().right.null());
  const std::string first = root()->tree->RouteOf("").high.value();
  for (std::string key = first; key < *root()->tree->range().high; key = *root()->tree->RouteOf(key).high) {
    (void)root()->tree->RemoveRoute(key);
  }
  ASSERT_EQ(root()->store->keys(), 1u);
  EXPECT_EQ(Run(worker_->joiner()->LowerRoot()).code(), absl::StatusCode::kFailedPrecondition);
  membership_->set_failure(absl::OkStatus());
  AwaitIdle();
  EXPECT_EQ(root()->tree->tier(), 2);
}

// A worker that holds as many regions as it may.
class FullWorkerTest : public JoinerTest {
 protected:
  FullWorkerTest() : JoinerTest(/*joins=*/true, /*regions_max=*/4) {}

  void DeleteAllOf(uint32_t region) {
    for (int i = 0; i < kKeys; ++i) {
      if (!Find(region)->tree->Covers(KeyOf(i))) continue;
      EXPECT_TRUE(Find(region)->store->Delete(KeyOf(i)).ok());
    }
  }
};

// While a region is being split, no leaves are merged. An empty region that kept them could not be joined.
TEST_F(FullWorkerTest, LeavesThatBecameSmallDuringASplitAreMerged) {
  Meganode* const tree = First()->tree;
  {
    const Meganode::BordersKept borders(tree);
    DeleteAllOf(First()->region());
  }
  ASSERT_GT(tree->header().nodes_used, 1u);
  ASSERT_TRUE(tree->unmerged());
  ASSERT_FALSE(worker_->joiner()->MakeRoom());  // Looks at the regions now.
  for (int i = 0; i < 10'000 && tree->unmerged(); ++i) Turn();
  EXPECT_EQ(tree->header().nodes_used, 1u);
}

// A run of merges that a claim interrupts does not count as one that has seen all leaves.
TEST_F(FullWorkerTest, MergesThatWereInterruptedComeAgain) {
  HeldRegion* const first = First();
  Meganode* const tree = first->tree;
  for (int i = kKeys; i < 4 * kKeys; ++i) ASSERT_TRUE(tree->Put(KeyOf(i), "", Crc64("", Crc64(KeyOf(i)))).ok());
  {
    const Meganode::BordersKept borders(tree);
    for (int i = 0; i < 4 * kKeys; ++i) ASSERT_TRUE(tree->Delete(KeyOf(i)).ok());
  }
  const uint64_t before = tree->header().nodes_used;
  ASSERT_GT(before, 20u);
  ASSERT_FALSE(worker_->joiner()->MakeRoom());
  while (tree->header().nodes_used == before) Turn();
  {
    const RegionClaim claim(first, ClaimPurpose::kCheckpoint);
    AwaitIdle();
    ASSERT_GT(tree->header().nodes_used, 1u);
    EXPECT_TRUE(tree->unmerged());
  }
  ASSERT_FALSE(worker_->joiner()->MakeRoom());
  AwaitIdle();
  EXPECT_EQ(tree->header().nodes_used, 1u);
}

TEST_F(FullWorkerTest, ASplitThatFindsNoRoomBeginsAJoin) {
  const uint32_t last = Split(), middle = Split();
  ASSERT_EQ(worker_->regions()->size(), 4u);
  // Nothing can be joined yet.
  EXPECT_EQ(Run(worker_->splitter()->Split(last)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(Find(last)->awaits_region);
  EXPECT_NE(Find(last)->split_error, "");
  EXPECT_FALSE(worker_->splitter()->MakeRoom(Find(last)));
  DeleteAllOf(First()->region());
  DeleteAllOf(middle);
  EXPECT_EQ(Run(worker_->splitter()->Split(last)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Find(last)->awaits_region);
  EXPECT_TRUE(worker_->splitter()->MakeRoom(Find(last)));  // So writes wait for the split.
  for (int i = 0; i < 1'000'000 && Find(middle) != nullptr; ++i) Turn();
  EXPECT_EQ(Find(middle), nullptr);
}

// A split that failed for want of a region is tried again after a pause, or as soon as a region is free.
TEST_F(FullWorkerTest, ASplitIsTriedAgainAsSoonAsARegionIsFree) {
  const uint32_t last = Split(), middle = Split();
  EXPECT_EQ(Run(worker_->splitter()->Split(last)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(worker_->splitter()->MakeRoom(Find(last)));
  DeleteAllOf(First()->region());
  DeleteAllOf(middle);
  const int64_t begun_ns = network_.now_ns();
  ASSERT_TRUE(worker_->joiner()->MakeRoom());
  for (int i = 0; i < 1'000'000 && Find(middle) != nullptr; ++i) Turn();
  ASSERT_EQ(Find(middle), nullptr);
  ASSERT_LT(network_.now_ns() - begun_ns, 500'000'000);
  EXPECT_TRUE(worker_->splitter()->MakeRoom(Find(last)));
  for (int i = 0; i < 1'000'000 && !Find(last)->split_error.empty(); ++i) Turn();
  EXPECT_EQ(Find(last)->split_error, "");
}

// The worker may hold two regions. A split uses both, and no region is left for a root above them.
class BlockedRouteTest : public JoinerTest {
 protected:
  BlockedRouteTest() : JoinerTest(/*joins=*/false, /*regions_max=*/2) {}

  // Splits the first meganode, and waits until the right half's route is blocked.
  HeldRegion* SplitInto(uint32_t* right) {
    EXPECT_TRUE(Run(worker_->splitter()->Split(First()->region())).ok());
    *right = First()->tree->range().right.region();
    AwaitBlocked(*right);
    return Find(*right);
  }
  void AwaitBlocked(uint32_t region) {
    for (int i = 0; i < 100'000 && Find(region) != nullptr && !Find(region)->claim_yields(); ++i) Turn();
    ASSERT_TRUE(Find(region) != nullptr && Find(region)->claim_yields());
  }
};

TEST_F(BlockedRouteTest, ARegionWithoutARouteIsJoined) {
  uint32_t right = 0;
  SplitInto(&right);
  ASSERT_TRUE(Run(worker_->joiner()->Join(right)).ok());
  AwaitIdle();
  EXPECT_EQ(worker_->regions()->size(), 1u);
  EXPECT_EQ(membership_->state().table.Find(right), nullptr);
  ExpectWhole();
}

TEST_F(BlockedRouteTest, ItsRouteIsStillWantedAfterAJoinThatFailed) {
  uint32_t right = 0;
  HeldRegion* const region = SplitInto(&right);
  const std::string value(400, 'v');
  for (int i = 0; i < 100; ++i) {  // More than both together may have.
    const std::string key = fmt::format("z{}", i);
    ASSERT_TRUE(region->store->Put(key, value, Crc64(value, Crc64(key))).ok());
  }
  EXPECT_EQ(Run(worker_->joiner()->Join(right)).code(), absl::StatusCode::kResourceExhausted);
  AwaitBlocked(right);
}

// The worker's copy of the region table is old: another worker has made a tier above since then.
TEST_F(BlockedRouteTest, NoJoinTrustsAnOldRegionTable) {
  uint32_t right = 0;
  SplitInto(&right);
  const auto set_root = [this](uint32_t root) {
    const std::lock_guard lock(cluster_->mutex);
    ++cluster_->state.table.version;
    return std::exchange(cluster_->state.table.root, root);
  };
  const uint32_t old_root = set_root(99);
  EXPECT_EQ(Run(worker_->joiner()->Join(right)).code(), absl::StatusCode::kNotFound);  // The root, that is.
  ASSERT_NE(Find(right), nullptr);
  EXPECT_EQ(First()->tree->range().right.region(), right);
  set_root(old_root);
  AwaitBlocked(right);
  ASSERT_TRUE(Run(worker_->joiner()->Join(right)).ok());
  ExpectWhole();
}

// The session is lost when all was copied. The regions may have other owners at any time after that.
TEST_F(JoinerTest, OneWhoseRegionsAreLostIsNotMade) {
  const uint32_t right = Split();
  worker_->sync_points()->on_reach = [&](std::string_view point) {
    if (point == "join: copied") membership_->Rejoin();
  };
  EXPECT_EQ(Run(worker_->joiner()->Join(right)).code(), absl::StatusCode::kAborted);
  worker_->sync_points()->on_reach = nullptr;
  EXPECT_NE(membership_->state().table.Find(right), nullptr);
  EXPECT_EQ(worker_->joiner()->counters().joins, 0u);
}

}  // namespace
}  // namespace cell
