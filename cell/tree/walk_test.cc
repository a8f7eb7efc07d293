#include "cell/tree/walk.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "cell/base/check.h"
#include "cell/tree/node_draft.h"

namespace cell {
namespace {

// Builds a tree by hand: node number to its content. A number stands for the node at that offset times 1024.
class WalkTest : public ::testing::Test {
 protected:
  static Pointer At(uint64_t number) { return Pointer(1, number * 1024); }

  NodeDraft& Make(uint64_t number, uint8_t level, std::string_view low, std::optional<std::string_view> high,
                  uint64_t right, const std::vector<std::pair<std::string, uint64_t>>& children = {}) {
    NodeDraft& draft = nodes_.insert_or_assign(number, NodeDraft(1024)).first->second;
    draft.Begin(At(number), level, low, high, right == 0 ? Pointer() : At(right));
    int i = 0;
    for (const auto& [key, child] : children) {
      InnerSlot slot{};
      slot.child_low = static_cast<uint32_t>(At(child).raw());
      slot.child_high = static_cast<uint32_t>(At(child).raw() >> 32);
      CELL_CHECK(draft.Insert(i++, key, slot));
    }
    return draft;
  }

  // Returns the numbers of the visited nodes. The walk ended at the last one.
  std::vector<uint64_t> Visited(std::string_view key, Walk::Step* last, int visits_max = 100) {
    Walk walk(key, At(1));
    std::vector<uint64_t> visited;
    *last = Walk::Step::kRead;
    while (*last == Walk::Step::kRead && static_cast<int>(visited.size()) < visits_max) {
      const uint64_t number = walk.wants().offset() / 1024;
      visited.push_back(number);
      if (on_visit_) on_visit_(number);
      *last = nodes_.contains(number) ? walk.Visit(nodes_.at(number).view()) : walk.Failed(NodeFault::kForeign);
    }
    return visited;
  }

  std::map<uint64_t, NodeDraft> nodes_;
  std::function<void(uint64_t)> on_visit_;
};

using Numbers = std::vector<uint64_t>;

TEST_F(WalkTest, DescendsToTheLeafThatCoversTheKey) {
  Make(1, 1, "", std::nullopt, 0, {{"", 2}, {"m", 3}});
  Make(2, 0, "", "m", 3);
  Make(3, 0, "m", std::nullopt, 0);
  Walk::Step last;
  EXPECT_EQ(Visited("a", &last), (Numbers{1, 2}));
  EXPECT_EQ(last, Walk::Step::kArrived);
  EXPECT_EQ(Visited("m", &last), (Numbers{1, 3}));
}

TEST_F(WalkTest, MovesRightWhenTheKeyIsPastHighKey) {
  Make(1, 1, "", std::nullopt, 0, {{"", 2}});
  Make(2, 0, "", "m", 3);
  Make(3, 0, "m", std::nullopt, 0);
  Walk::Step last;
  EXPECT_EQ(Visited("z", &last), (Numbers{1, 2, 3}));
  EXPECT_EQ(last, Walk::Step::kArrived);
}

TEST_F(WalkTest, GoesBackToTheParentWhenANodeWasReused) {
  Make(1, 2, "", std::nullopt, 0, {{"", 4}});
  Make(4, 1, "", std::nullopt, 0, {{"", 2}, {"m", 3}});
  Make(2, 0, "", "m", 3);
  Make(3, 0, "p", std::nullopt, 0);  // Reused: "n" is below its low key.
  on_visit_ = [this](uint64_t number) {
    if (number == 3) Make(4, 1, "", std::nullopt, 0, {{"", 2}, {"m", 5}});
    if (number == 5) Make(5, 0, "m", "p", 3);
  };
  Walk::Step last;
  EXPECT_EQ(Visited("n", &last), (Numbers{1, 4, 3, 4, 5}));
  EXPECT_EQ(last, Walk::Step::kArrived);
}

TEST_F(WalkTest, LeavesANodeOfAWrongLevel) {
  Make(1, 1, "", std::nullopt, 0, {{"", 2}});
  Make(2, 1, "", std::nullopt, 0, {{"", 1}});
  Walk::Step last;
  Visited("a", &last, 5000);
  EXPECT_EQ(last, Walk::Step::kGaveUp);
}

TEST_F(WalkTest, GivesUpOnARingOfRightLinks) {
  Make(1, 1, "", std::nullopt, 0, {{"", 2}});
  Make(2, 0, "", "m", 3);
  Make(3, 0, "", "m", 2);
  Walk::Step last;
  const Numbers visited = Visited("z", &last, 5000);
  EXPECT_EQ(last, Walk::Step::kGaveUp);
  EXPECT_LE(visited.size(), static_cast<size_t>(Walk::kVisitsMax) + 1);
}

TEST_F(WalkTest, ATornNodeIsReadAgainAndThenItsParent) {
  Make(1, 1, "", std::nullopt, 0, {{"", 2}});
  Walk walk("a", At(1));
  ASSERT_EQ(walk.Visit(nodes_.at(1).view()), Walk::Step::kRead);
  for (int i = 1; i < Walk::kTornReadsBeforeSetback; ++i) {
    ASSERT_EQ(walk.Failed(NodeFault::kTorn), Walk::Step::kRead);
    ASSERT_EQ(walk.wants(), At(2));
  }
  EXPECT_TRUE(walk.may_use_cache());
  ASSERT_EQ(walk.Failed(NodeFault::kTorn), Walk::Step::kRead);
  EXPECT_EQ(walk.wants(), At(1));
  EXPECT_FALSE(walk.may_use_cache());
}

}  // namespace
}  // namespace cell
