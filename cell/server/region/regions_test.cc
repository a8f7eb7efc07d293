#include "cell/server/region/regions.h"

#include <gtest/gtest.h>

#include "cell/io/fabric/shm/shm_fabric.h"

namespace cell {
namespace {

class RegionsTest : public ::testing::Test {
 protected:
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

}  // namespace
}  // namespace cell
