// Tests the caches of nodes and of routes.
#include <gtest/gtest.h>

#include <memory>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/client/session/node_cache.h"
#include "cell/client/session/route_cache.h"
#include "cell/tree/meganode.h"
#include "cell/tree/test_region.h"
#include "fmt/format.h"

namespace cell {
namespace {

Pointer Meganode1(uint32_t region) { return RootOf(region); }

TEST(RouteCache, FindsTheRangeOfAKey) {
  RouteCache routes(10);
  routes.Keep("b", "d", Meganode1(1));
  routes.Keep("d", std::nullopt, Meganode1(2));
  EXPECT_TRUE(routes.Find("a").null());
  EXPECT_EQ(routes.Find("b"), Meganode1(1));
  EXPECT_EQ(routes.Find("czz"), Meganode1(1));
  EXPECT_EQ(routes.Find("d"), Meganode1(2));
  EXPECT_EQ(routes.Find("zzz"), Meganode1(2));
  routes.Drop("c");
  EXPECT_TRUE(routes.Find("b").null());
  EXPECT_EQ(routes.size(), 1u);
}

TEST(RouteCache, ANewRangeReplacesThoseThatItOverlaps) {
  RouteCache routes(10);
  routes.Keep("a", "c", Meganode1(1));
  routes.Keep("c", "e", Meganode1(2));
  routes.Keep("e", std::nullopt, Meganode1(3));
  routes.Keep("b", "d", Meganode1(4));
  EXPECT_TRUE(routes.Find("a").null());
  EXPECT_EQ(routes.Find("b"), Meganode1(4));
  EXPECT_TRUE(routes.Find("d").null());
  EXPECT_EQ(routes.Find("e"), Meganode1(3));
}

TEST(RouteCache, TheOneThatWasNotUsedForLongestGoesFirst) {
  RouteCache routes(2);
  routes.Keep("a", "b", Meganode1(1));
  routes.Keep("b", "c", Meganode1(2));
  EXPECT_EQ(routes.Find("a"), Meganode1(1));
  routes.Keep("c", "d", Meganode1(3));
  EXPECT_EQ(routes.Find("a"), Meganode1(1));
  EXPECT_TRUE(routes.Find("b").null());
  RouteCache none(0);
  none.Keep("a", "b", Meganode1(1));
  EXPECT_TRUE(none.Find("a").null());
}

class NodeCacheTest : public ::testing::Test {
 protected:
  static constexpr RegionShape kShape{512, 1 << 20, 4 << 20};

  NodeCacheTest() : tree_(region_.memory()) {
    for (int i = 0; i < 2000; ++i) {
      const std::string key = fmt::format("key{:04}", i), value = "value";
      CELL_CHECK(tree_.Put(key, value, Crc64(value, Crc64(key))).ok());
    }
  }
  // Returns the leftmost node of a level, or the root.
  NodeView Node(int level) const {
    NodeView node = tree_.Node(tree_.root());
    while (node.level() > level) node = tree_.Node(node.inner_slot(0).child());
    return node;
  }

  TestRegion region_{kShape};
  Meganode tree_;
};

TEST_F(NodeCacheTest, KeepsCopiesOfNodesThatAreHighEnough) {
  NodeCache nodes(1 << 20, kShape.node_bytes, /*level_min=*/1);
  const NodeView root = Node(9), leaf = Node(0);
  ASSERT_GT(root.level(), 0);
  nodes.Keep(root);
  nodes.Keep(leaf);
  EXPECT_FALSE(nodes.Find(leaf.self()).has_value());
  const std::optional<NodeView> found = nodes.Find(root.self());
  ASSERT_TRUE(found.has_value());
  EXPECT_NE(found->bytes(), root.bytes());
  EXPECT_EQ(found->self(), root.self());
  EXPECT_EQ(found->count(), root.count());
  nodes.Drop(root.self());
  EXPECT_FALSE(nodes.Find(root.self()).has_value());
}

TEST_F(NodeCacheTest, TheOneThatWasNotUsedForLongestGoesFirst) {
  const NodeView root = Node(9);
  ASSERT_GE(root.level(), 2);
  ASSERT_GE(root.count(), 3);
  NodeCache nodes(2 * kShape.node_bytes, kShape.node_bytes, /*level_min=*/1);
  const auto child = [&](int i) { return tree_.Node(root.inner_slot(i).child()); };
  nodes.Keep(child(0));
  nodes.Keep(child(1));
  EXPECT_TRUE(nodes.Find(child(0).self()).has_value());
  nodes.Keep(child(2));
  EXPECT_TRUE(nodes.Find(child(0).self()).has_value());
  EXPECT_FALSE(nodes.Find(child(1).self()).has_value());
}

}  // namespace
}  // namespace cell
