#include "cell/client/session/node_cache.h"

#include <gtest/gtest.h>

#include "cell/tree/node_draft.h"

namespace cell {
namespace {

using Kept = NodeCache::Kept;

constexpr uint32_t kNodeBytes = 1024;

Pointer At(uint64_t number) { return Pointer(1, number * kNodeBytes); }

NodeDraft NodeAt(uint64_t number, int level) {
  NodeDraft node(kNodeBytes);
  node.Begin(At(number), level, "", std::nullopt, {});
  return node;
}

TEST(NodeCacheTest, SaysWhetherANodeIsMoreThanThereWas) {
  NodeCache cache(/*bytes=*/size_t{2} * kNodeBytes, kNodeBytes, /*level_min=*/1);
  EXPECT_EQ(cache.Keep(NodeAt(1, 1).view()), Kept::kMore);
  EXPECT_EQ(cache.Keep(NodeAt(1, 1).view()), Kept::kAgain);
  EXPECT_EQ(cache.Keep(NodeAt(2, 2).view()), Kept::kMore);
  EXPECT_EQ(cache.Keep(NodeAt(3, 1).view()), Kept::kForAnother);
  EXPECT_EQ(cache.size(), 2);
}

TEST(NodeCacheTest, TheNodeThatWasUnusedForLongestGoes) {
  NodeCache cache(size_t{2} * kNodeBytes, kNodeBytes, 1);
  cache.Keep(NodeAt(1, 1).view());
  cache.Keep(NodeAt(2, 1).view());
  EXPECT_TRUE(cache.Find(At(1)).has_value());
  cache.Keep(NodeAt(3, 1).view());
  EXPECT_TRUE(cache.Find(At(1)).has_value());
  EXPECT_FALSE(cache.Find(At(2)).has_value());
  EXPECT_TRUE(cache.Find(At(3)).has_value());
}

TEST(NodeCacheTest, TheNewestImageOfANodeIsKept) {
  NodeCache cache(size_t{2} * kNodeBytes, kNodeBytes, 1);
  cache.Keep(NodeAt(1, 1).view());
  cache.Keep(NodeAt(1, 2).view());
  ASSERT_TRUE(cache.Find(At(1)).has_value());
  EXPECT_EQ(cache.Find(At(1))->level(), 2);
}

TEST(NodeCacheTest, NodesBelowTheLeastLevelAreNotKept) {
  NodeCache cache(size_t{2} * kNodeBytes, kNodeBytes, 1);
  EXPECT_EQ(cache.Keep(NodeAt(1, 0).view()), Kept::kNot);
  EXPECT_FALSE(cache.Find(At(1)).has_value());
}

TEST(NodeCacheTest, ACacheWithoutRoomForANodeKeepsNone) {
  NodeCache cache(kNodeBytes - 1, kNodeBytes, 1);
  EXPECT_EQ(cache.Keep(NodeAt(1, 1).view()), Kept::kNot);
  EXPECT_EQ(cache.size(), 0);
}

}  // namespace
}  // namespace cell
