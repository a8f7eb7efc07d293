#include "cell/server/region/regions.h"

#include <gtest/gtest.h>

#include <coroutine>
#include <memory>
#include <string>

#include "cell/base/event.h"
#include "cell/io/fabric/shm/shm_fabric.h"

namespace cell {
namespace {

// Counts the coroutines that an event releases.
struct Released : Executor {
  void Schedule(std::coroutine_handle<>) override { ++count; }
  void WaitFor(Event* event) { event->Wait(this).await_suspend(std::noop_coroutine()); }

  int count = 0;
};

class RegionsTest : public ::testing::Test {
 protected:
  // Returns the first word of the memory's n-th node.
  static uint64_t FirstWord(const RegionMemory& memory, uint64_t n) {
    return LoadWord(memory.at(kRegionHeaderBytes + n * 1024));
  }

  Released released_;  // Before the regions, whose events release what still waits when they end.
  ShmFabric fabric_{{.huge_pages = false}};
  Regions regions_{&fabric_, {1024, 1 << 20, 1 << 20}, 2};
};

// A fabric that gets the same id twice could return another region's memory.
TEST_F(RegionsTest, ARegionThatIsHereOrOnItsWayDoesNotComeOnceMore) {
  ASSERT_TRUE(regions_.Create(1, {}).ok());
  EXPECT_EQ(regions_.Create(1, {}).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(regions_.Expect(1).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(regions_.ReceiveStaged(1).status().code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(regions_.Expect(2).ok());
  EXPECT_EQ(regions_.size(), 2u);
  EXPECT_EQ(regions_.Expect(2).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(regions_.Create(2, {}).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(regions_.ReceiveStaged(2).status().code(), absl::StatusCode::kAlreadyExists);
  const absl::StatusOr<RegionMemory*> memory = regions_.Receive(2);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(regions_.Expect(2).code(), absl::StatusCode::kAlreadyExists);
  regions_.NotArrived(2, *memory, WrittenPages(regions_.shape().region_bytes()));
  EXPECT_EQ(regions_.size(), 1u);
  EXPECT_TRUE(regions_.Expect(2).ok());
}

// Outcomes are forgotten by stamps, and nothing may be put for long.
TEST_F(RegionsTest, OutcomesAreForgottenInTimeAlthoughNothingIsPut) {
  absl::StatusOr<HeldRegion*> made = regions_.Create(1, {});
  ASSERT_TRUE(made.ok()) << made.status();
  HeldRegion* const region = *made;
  int64_t now = 50;
  region->store->set_cluster_time([&now] { return now; });
  constexpr uint64_t kMax = 512, kUntil = 100;
  region->outcomes = Outcomes(kMax);
  for (uint64_t client = 1; client <= kMax; ++client) {
    region->outcomes.Remember({{client, 1, kUntil, 0}, 10, 7, static_cast<uint32_t>(client)});
  }
  const RequestId id{kMax + 1, 1, 1'000'000'000, 0};
  EXPECT_EQ(region->MakeRoomForOutcome(id, 0).code(), absl::StatusCode::kUnavailable);
  now = 200'000'000;
  // No stamp above the bound is given, and so none is taken for the time.
  region->tree->set_stamp_bound(99);
  EXPECT_EQ(region->MakeRoomForOutcome(id, 0).code(), absl::StatusCode::kUnavailable);
  region->tree->set_stamp_bound(kLastStampMax);
  EXPECT_TRUE(region->MakeRoomForOutcome(id, 0).ok());
  EXPECT_EQ(region->outcomes.size(), 0u);
}

// A region whose range does not fit into its header's node cannot be formatted. Its id and its memory are free again.
TEST_F(RegionsTest, ARegionThatCannotBeFormattedLeavesNothingBehind) {
  RegionContent content;
  content.range.low = std::string(2000, 'k');
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(regions_.Create(1, content).ok());
    EXPECT_EQ(regions_.size(), 0u);
  }
  EXPECT_TRUE(regions_.Create(1, {}).ok());
}

// The limit is checked before any memory is taken.
TEST_F(RegionsTest, MoreThanItMayHoldIsRefusedAtOnce) {
  EXPECT_TRUE(regions_.CheckRoom(2).ok());
  EXPECT_EQ(regions_.CheckRoom(3).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(regions_.CheckRoom(UINT32_MAX).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(regions_.Create(1, {}).ok());
  EXPECT_TRUE(regions_.CheckRoom(1).ok());
  EXPECT_EQ(regions_.CheckRoom(2).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(RegionsTest, WhatIsExpectedHasItsRoomKept) {
  ASSERT_TRUE(regions_.Expect(1).ok());
  ASSERT_TRUE(regions_.Expect(2).ok());
  EXPECT_EQ(regions_.Expect(3).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(regions_.Create(3, {}).status().code(), absl::StatusCode::kResourceExhausted);
  regions_.Unexpect(2);
  EXPECT_TRUE(regions_.Create(3, {}).ok());
}

// When the region comes again in the same memory, a reader that knew it before must not take an old node for valid.
TEST_F(RegionsTest, ARegionThatIsDroppedLeavesNoValidNodes) {
  ASSERT_TRUE(regions_.Create(1, {}).ok());
  EXPECT_NE(FirstWord(*regions_.Find(1)->memory, 0), kVersionGone);
  regions_.Drop(1);
  ASSERT_EQ(regions_.free(), 1u);
  ASSERT_TRUE(regions_.Expect(1).ok());
  const absl::StatusOr<RegionMemory*> again = regions_.Receive(1);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(regions_.free(), 0u);
  EXPECT_EQ(FirstWord(**again, 0), kVersionGone);
}

// The same holds for a copy that was interrupted. Pages that it has not reached keep their zeros.
TEST_F(RegionsTest, ARegionThatDidNotArriveLeavesNoValidNodes) {
  constexpr uint64_t kCopied = 8, kNotCopied = 16;  // On different pages.
  ASSERT_TRUE(regions_.Expect(1).ok());
  RegionMemory* const memory = *regions_.Receive(1);
  WrittenPages written(regions_.shape().region_bytes());
  memory->set_written(&written);
  memory->StoreWord(kRegionHeaderBytes + kCopied * 1024, 2);
  regions_.NotArrived(1, memory, written);
  ASSERT_EQ(regions_.free(), 1u);
  ASSERT_TRUE(regions_.Expect(1).ok());
  const absl::StatusOr<RegionMemory*> again = regions_.Receive(1);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(FirstWord(**again, kCopied), kVersionGone);
  EXPECT_EQ(FirstWord(**again, kNotCopied), 0u);
  EXPECT_EQ((*again)->header().magic, kRegionMagic);  // Otherwise it would count as zeros.
}

// Peers that knew the region may still map its old memory, and would see it being rebuilt.
TEST_F(RegionsTest, ARegionThatComesFromALogDoesNotUseItsOldMemory) {
  ASSERT_TRUE(regions_.Create(1, {}).ok());
  regions_.Drop(1);
  ASSERT_EQ(regions_.free(), 1u);
  ASSERT_TRUE(regions_.ReceiveStaged(1).ok());
  EXPECT_EQ(regions_.free(), 1u);
}

TEST_F(RegionsTest, ARegionForWhichThereIsNoMemoryIsNotExpected) {
  ASSERT_TRUE(fabric_.CreateRegion(1, 1 << 20).ok());  // So the fabric refuses it.
  EXPECT_FALSE(regions_.ReceiveStaged(1).ok());
  EXPECT_FALSE(regions_.Arriving(1));
  EXPECT_EQ(regions_.size(), 0u);
}

TEST_F(RegionsTest, PreparedMemoryCountsAgainstTheLimit) {
  while (!*regions_.Prepare(1 << 20)) {
  }
  EXPECT_EQ(regions_.free(), 1u);
  EXPECT_TRUE(regions_.CheckRoom(1).ok());
  EXPECT_EQ(regions_.CheckRoom(2).code(), absl::StatusCode::kResourceExhausted);
}

// Regions that are here, or on their way, have their room already.
TEST_F(RegionsTest, OnlyRegionsThatAreMissingNeedRoomBesideOthers) {
  const WorkerId self{"server", 0};
  Regions regions(&fabric_, regions_.shape(), 3);
  RegionTable table;
  table.regions = {{1, {self, 1}}, {2, {self, 1}}, {3, {{"other", 0}, 1}}};
  ASSERT_TRUE(regions.Create(1, {}).ok());
  ASSERT_TRUE(regions.Expect(2).ok());
  EXPECT_TRUE(regions.CheckRoomBeside(table, self).ok());
  table.regions.Set(4, {self, 1});
  EXPECT_EQ(regions.CheckRoomBeside(table, self).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(RegionsTest, WhoWaitsForADepartureIsTold) {
  ASSERT_TRUE(regions_.Create(1, {}).ok());
  ASSERT_TRUE(regions_.Expect(2).ok());
  released_.WaitFor(regions_.departed());
  regions_.Drop(1);
  EXPECT_EQ(released_.count, 1);
  released_.WaitFor(regions_.departed());
  regions_.Unexpect(2);
  EXPECT_EQ(released_.count, 2);
}

TEST_F(RegionsTest, WhoWaitsForARegionIsToldOfItsStateAndOfItsLog) {
  HeldRegion* const region = *regions_.Create(1, {});
  released_.WaitFor(&region->changed);
  region->ChangeState(RegionState::kFrozen);
  EXPECT_EQ(released_.count, 1);
  released_.WaitFor(&region->changed);
  region->SetLog(std::make_shared<RegionLog>(1, 1, 1, nullptr), false);
  EXPECT_EQ(released_.count, 2);
  released_.WaitFor(&region->changed);
  region->FailLog(absl::DataLossError("the disk failed"));
  EXPECT_EQ(released_.count, 3);
}

// A claim that is assigned another one gives up its own.
TEST_F(RegionsTest, AClaimThatTakesAnotherRegionReleasesItsOwn) {
  HeldRegion* const first = *regions_.Create(1, {});
  HeldRegion* const second = *regions_.Create(2, {});
  RegionClaim claim(first, ClaimPurpose::kSplit);
  claim = RegionClaim(second, ClaimPurpose::kMigrate);
  EXPECT_FALSE(first->claimed());
  EXPECT_TRUE(second->ClaimedFor(ClaimPurpose::kMigrate));
}

}  // namespace
}  // namespace cell
