#include "cell/client/tree/leaves_ahead.h"

#include <gtest/gtest.h>

#include <memory>

#include "cell/base/check.h"
#include "cell/tree/node_draft.h"

namespace cell {
namespace {

constexpr uint32_t kNodeBytes = 1024;
constexpr size_t kKeyBytesMax = 8;

Pointer At(uint64_t number) { return Pointer(1, number * kNodeBytes); }

// A parent of leaves 0 to 25. Leaf i begins with the i-th letter, and the first one with "".
class LeavesAheadTest : public ::testing::Test {
 protected:
  static constexpr int kLeaves = 26;

  LeavesAheadTest() : ahead_(pool_.get(), kNodeBytes), parent_(kNodeBytes) {
    parent_.Begin(At(100), 1, "", std::nullopt, {});
    for (int i = 0; i < kLeaves; ++i) {
      InnerSlot slot{};
      slot.child_low = static_cast<uint32_t>(At(static_cast<uint64_t>(i)).raw());
      slot.child_high = static_cast<uint32_t>(At(static_cast<uint64_t>(i)).raw() >> 32);
      CELL_CHECK(parent_.Insert(i, i == 0 ? "" : std::string(1, static_cast<char>('a' + i)), slot));
    }
  }

  // Returns the numbers of the leaves that are planned behind the one at `number`.
  std::vector<int> Behind(int number, const ScanPosition& position, size_t count) {
    ahead_.Clear();
    ahead_.PlanBehind(At(static_cast<uint64_t>(number)), parent_.view(), position, count);
    std::vector<ReadPart> parts;
    const size_t added = ahead_.AddReads(&parts);
    EXPECT_EQ(added, parts.size());
    std::vector<int> numbers;
    numbers.reserve(parts.size());
    for (const ReadPart& part : parts) numbers.push_back(static_cast<int>(part.from.offset() / kNodeBytes));
    return numbers;
  }

  struct Release {
    void operator()(NodePool* pool) const { pool->Release(); }
  };
  const std::unique_ptr<NodePool, Release> pool_{new NodePool};
  LeavesAhead ahead_;
  NodeDraft parent_;
};

using Numbers = std::vector<int>;

TEST_F(LeavesAheadTest, PlansWhatTheParentNamesBothWays) {
  EXPECT_EQ(Behind(3, ScanPosition(false, "d", std::nullopt, kKeyBytesMax), 3), (Numbers{4, 5, 6}));
  EXPECT_EQ(Behind(3, ScanPosition(true, "dd", std::nullopt, kKeyBytesMax), 2), (Numbers{2, 1}));
  EXPECT_EQ(Behind(24, ScanPosition(false, "y", std::nullopt, kKeyBytesMax), 9), (Numbers{25})) << "the parent ends";
  EXPECT_EQ(Behind(1, ScanPosition(true, "b", std::nullopt, kKeyBytesMax), 9), (Numbers{0}));
  EXPECT_EQ(Behind(0, ScanPosition(false, "a", std::nullopt, kKeyBytesMax), 100).size(), LeavesAhead::kLeavesMax);
}

TEST_F(LeavesAheadTest, PlansNothingBeyondTheRange) {
  EXPECT_EQ(Behind(3, ScanPosition(false, "d", "f", kKeyBytesMax), 9), (Numbers{4})) << "its end is exclusive";
  EXPECT_EQ(Behind(3, ScanPosition(false, "d", "f1", kKeyBytesMax), 9), (Numbers{4, 5}));
  EXPECT_EQ(Behind(3, ScanPosition(true, "d", "c", kKeyBytesMax), 9), (Numbers{2})) << "its end is inclusive";
  EXPECT_EQ(Behind(3, ScanPosition(true, "d", "bz", kKeyBytesMax), 9), (Numbers{2, 1}));
}

TEST_F(LeavesAheadTest, PlansNothingByAParentThatDoesNotKnowTheLeaf) {
  const ScanPosition position(false, "d", std::nullopt, kKeyBytesMax);
  EXPECT_EQ(Behind(4, position, 3), Numbers{});
  ahead_.Clear();
  ahead_.PlanBehind(At(3), NodeView(), position, 3);
  EXPECT_TRUE(ahead_.next().null());
  parent_.Begin(At(100), 1, "m", std::nullopt, {});
  EXPECT_EQ(Behind(3, position, 3), Numbers{}) << "it does not cover the position";
}

TEST_F(LeavesAheadTest, GivesEachImageOnceInOrder) {
  NodeBuffer buffer(pool_.get());
  ahead_.Plan(At(7));
  std::vector<ReadPart> parts;
  ASSERT_EQ(ahead_.AddReads(&parts), 1u);
  ahead_.PlanBehind(At(3), parent_.view(), ScanPosition(false, "d", std::nullopt, kKeyBytesMax), 1);
  ASSERT_EQ(ahead_.AddReads(&parts), 1u) << "the first was asked for already";
  ASSERT_EQ(parts.size(), 2u);
  for (const ReadPart& part : parts) part.to[0] = std::byte(part.from.offset() / kNodeBytes);
  for (const uint64_t number : {7, 4}) {
    ASSERT_EQ(ahead_.next(), At(number));
    ahead_.Take(&buffer);
    EXPECT_EQ(buffer.data()[0], std::byte(number));
  }
  EXPECT_TRUE(ahead_.next().null());
}

}  // namespace
}  // namespace cell
