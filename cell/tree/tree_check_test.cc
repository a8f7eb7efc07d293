#include "cell/tree/tree_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/tree/test_region.h"

namespace cell {
namespace {

// Checks that each kind of damage is reported. The tree is rebuilt for each test.
class DamageTest : public ::testing::Test {
 protected:
  DamageTest() {
    for (int i = 0; i < 3000; ++i) {
      const std::string key = fmt::format("{:05}", i * 7919 % 3000);
      tree_.set_inline_max(i % 2 == 0 ? 0 : kInlineMaxDefault);
      CELL_CHECK(tree_.Put(key, "value", Crc64(std::string_view("value"), Crc64(key))).ok());
    }
    CELL_CHECK(CheckTree(*region_.memory()).ok());
  }

  // Publishes a changed copy of the leaf of `key` with a right CRC.
  void Change(std::string_view key, const std::function<void(NodeDraft*)>& change) {
    const NodeView leaf = *tree_.LeafOf(key);
    NodeDraft draft(1024);
    draft.CopyOf(leaf);
    change(&draft);
    draft.Publish(region_.memory(), leaf.self().offset());
  }

  // Returns the slot of the leaf's first pair of a kind.
  static int FirstIn(const NodeView& leaf, bool is_inline) {
    for (int i = 0;; ++i) {
      if (leaf.pair(i).is_inline == is_inline) return i;
    }
  }
  // Returns where the extent of an outside pair in the leaf of `key` is.
  Pointer ExtentBeside(std::string_view key) {
    const NodeView leaf = *tree_.LeafOf(key);
    return leaf.pair(FirstIn(leaf, /*is_inline=*/false)).outside.extent;
  }

  // Checks the region in slices of `bytes` bytes, and calls `between` after each.
  TreeCheck Check(
      int64_t bytes, const std::function<void()>& between = [] {}, bool settled = true) {
    TreeCheck check;
    for (int slices = 1; !check.Step({*region_.memory(), bytes, settled}); ++slices) {
      CELL_CHECK_LT(slices, 1'000'000);
      between();
    }
    return check;
  }
  static bool Says(const TreeReport& report, std::string_view part) {
    return std::any_of(report.errors.begin(), report.errors.end(),
                       [part](const std::string& error) { return error.find(part) != std::string::npos; });
  }
  // In one piece and in slices.
  void ExpectError(std::string_view part) {
    for (const int64_t bytes : {INT64_MAX, int64_t{1}}) {
      const TreeReport report = Check(bytes).report();
      EXPECT_FALSE(report.ok());
      EXPECT_TRUE(Says(report, part)) << "no error says \"" << part
                                      << "\"; first: " << (report.errors.empty() ? "" : report.errors[0]);
    }
  }
  // Writes somewhere else than near "01000".
  void WriteElsewhere(Random* random) {
    const std::string key = fmt::format("{:05}{}", 2000 + random->Below(1000), random->Below(3));
    const std::string value(random->Below(200), 'v');
    if (random->Below(3) == 0) {
      CELL_CHECK(tree_.Delete(key).ok());
    } else {
      CELL_CHECK(tree_.Put(key, value, Crc64(value, Crc64(key))).ok());
    }
  }

  NodeHeader& HeaderOf(NodeDraft* draft) {
    return *reinterpret_cast<NodeHeader*>(const_cast<std::byte*>(draft->view().bytes()));
  }

  TestRegion region_;
  Meganode tree_{region_.memory()};
};

TEST_F(DamageTest, AFlippedBitInANode) {
  const uint64_t offset = tree_.LeafOf("01000")->self().offset() + 504;
  region_.memory()->StoreWord(offset, LoadWord(region_.memory()->at(offset)) ^ 16);
  ExpectError("versions or CRC");
}

TEST_F(DamageTest, AFlippedBitInAnExtent) {
  const uint64_t offset = ExtentBeside("01000").offset();
  region_.memory()->StoreWord(offset, LoadWord(region_.memory()->at(offset)) ^ (uint64_t{1} << 60));
  ExpectError("wrong CRC");
}

TEST_F(DamageTest, ANodeInAnothersPlace) {
  const Pointer other = tree_.LeafOf("02000")->self();
  Change("01000", [&](NodeDraft* draft) { HeaderOf(draft).self = other; });
  // The node now claims to be `other`, but was written back where it was read.
  ExpectError("carries another node's pointer");
}

TEST_F(DamageTest, AnInvalidatedNode) {
  region_.memory()->StoreWord(tree_.LeafOf("01000")->self().offset(), kVersionGone);
  ExpectError("was invalidated");
}

TEST_F(DamageTest, ASkippedNeighbour) {
  const Pointer over = tree_.Node(tree_.LeafOf("01000")->right()).right();
  Change("01000", [&](NodeDraft* draft) { HeaderOf(draft).right = over; });
  ExpectError("left neighbour's high key");
}

TEST_F(DamageTest, ALostKey) {
  Change("01000", [&](NodeDraft* draft) { draft->Remove(FirstIn(draft->view(), /*is_inline=*/false)); });
  ExpectError("no leaf points to it");
  ExpectError("says 3000 keys");
}

TEST_F(DamageTest, ASharedExtent) {
  const Pointer other = ExtentBeside("02000");
  Change("01000", [&](NodeDraft* draft) { draft->Repoint(FirstIn(draft->view(), /*is_inline=*/false), other); });
  ExpectError("is shared");
  ExpectError("holds another key");
}

TEST_F(DamageTest, AnExtentOutOfBounds) {
  Change("01000", [&](NodeDraft* draft) {
    draft->Repoint(FirstIn(draft->view(), /*is_inline=*/false), Pointer(1, region_.memory()->bytes()));
  });
  ExpectError("out of bounds");
}

TEST_F(DamageTest, AFreedExtentThatIsPointedAt) {
  ExtentAllocator(region_.memory()).Free(ExtentBeside("01000").offset());
  ExpectError("not in use");
}

TEST_F(DamageTest, KeysOutOfOrder) {
  Change("01000", [&](NodeDraft* draft) {
    const LeafPair pair = draft->view().pair(0);
    const std::string key = draft->view().key(0), value(pair.value);
    draft->Remove(0);
    CELL_CHECK(draft->Insert(draft->view().count(), key,
                             pair.is_inline ? LeafPair::Inline(value, pair.check, pair.stamp)
                                            : LeafPair::Outside(pair.outside, pair.value_bytes, pair.stamp)));
  });
  ExpectError("not greater than the previous key");
}

TEST_F(DamageTest, AnInlineValueOfAnotherSize) {
  Change("01000", [&](NodeDraft* draft) {
    const NodeView leaf = draft->view();
    const int i = FirstIn(leaf, /*is_inline=*/true);
    CELL_CHECK(draft->Replace(i, LeafPair::Inline("longer value", 0, leaf.pair(i).stamp)));
  });
  ExpectError("bytes of data");
}

TEST_F(DamageTest, AnInlineValueWithABitThatFlipped) {
  Change("01000", [&](NodeDraft* draft) {
    const NodeView leaf = draft->view();
    const int i = FirstIn(leaf, /*is_inline=*/true);
    std::string value(leaf.pair(i).value);
    value[1] ^= 1;
    CELL_CHECK(draft->Replace(i, LeafPair::Inline(value, leaf.pair(i).check, leaf.pair(i).stamp)));
  });
  ExpectError("has a wrong check");
}

TEST_F(DamageTest, AStampThatWasNotGiven) {
  for (const uint64_t stamp : {uint64_t{0}, region_.memory()->header().last_stamp + 1}) {
    Change("01000", [&](NodeDraft* draft) { CELL_CHECK(draft->Replace(0, LeafPair::Inline("value", 0, stamp))); });
    ExpectError("was not given here");
  }
}

TEST_F(DamageTest, AnotherLayoutVersion) {
  region_.memory()->header().layout_version = 1;
  ExpectError("region 1 has layout version 1, and this release knows version 5 only");
  ExpectError("cellctl backup");
}

TEST_F(DamageTest, ARegionHeaderThatLies) {
  region_.memory()->header().nodes_used = ~uint64_t{0};
  ExpectError("its sizes are inconsistent");
  region_.memory()->header().magic = 0;
  ExpectError("not a region");
}

TEST_F(DamageTest, ASliceEndsSoon) {
  int slices = 0;
  const TreeCheck check = Check(8 << 10, [&slices] { ++slices; });
  EXPECT_TRUE(check.report().ok());
  EXPECT_TRUE(check.whole());
  EXPECT_EQ(check.report().keys, 3000u);
  EXPECT_EQ(check.report().nodes, CheckTree(*region_.memory()).nodes);
  EXPECT_GT(slices, 50);
}

TEST_F(DamageTest, WritesBetweenSlicesAreNotTakenForDamage) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Random random(seed);
    const auto write = [&] {
      for (uint64_t writes = random.Below(20); writes > 0; --writes) {
        tree_.set_inline_max(random.Below(2) == 0 ? 0 : kInlineMaxDefault);
        const std::string key = fmt::format("{:05}", random.Below(4000));
        const std::string value(random.Below(300), 'v');
        if (seed % 3 == 0 || random.Below(3) == 0) {
          ASSERT_TRUE(tree_.Delete(key).ok());  // Leaves are merged, and the root is lowered.
        } else {
          (void)tree_.Put(key, value, Crc64(value, Crc64(key)));
        }
      }
    };
    const TreeCheck check = Check(static_cast<int64_t>(1 + random.Below(20'000)), write);
    EXPECT_TRUE(check.report().ok()) << "seed " << seed << ": " << check.report().errors[0];
    EXPECT_FALSE(check.whole());
    ASSERT_TRUE(CheckTree(*region_.memory()).ok());
  }
}

TEST_F(DamageTest, DamageIsFoundWhileTheRegionIsWritten) {
  Random random(1);
  const auto write = [&] { WriteElsewhere(&random); };
  // A pair, a node, a link, and an extent that was freed too early.
  const uint64_t extent = ExtentBeside("01000").offset();
  region_.memory()->StoreWord(extent, LoadWord(region_.memory()->at(extent)) ^ 1);
  EXPECT_TRUE(Says(Check(1, write).report(), "wrong CRC"));
  region_.memory()->StoreWord(extent, LoadWord(region_.memory()->at(extent)) ^ 1);
  EXPECT_TRUE(Check(1, write).report().ok());

  const uint64_t node = tree_.LeafOf("01000")->self().offset() + 504;
  region_.memory()->StoreWord(node, LoadWord(region_.memory()->at(node)) ^ 16);
  EXPECT_TRUE(Says(Check(1, write).report(), "versions or CRC"));
  region_.memory()->StoreWord(node, LoadWord(region_.memory()->at(node)) ^ 16);
  EXPECT_TRUE(Check(1, write).report().ok());

  const Pointer over = tree_.Node(tree_.LeafOf("01000")->right()).right();
  const Pointer right = tree_.LeafOf("01000")->right();
  Change("01000", [&](NodeDraft* draft) { HeaderOf(draft).right = over; });
  EXPECT_TRUE(Says(Check(INT64_MAX, write).report(), "left neighbour's high key"));
  Change("01000", [&](NodeDraft* draft) { HeaderOf(draft).right = right; });
  EXPECT_TRUE(Check(1, write).report().ok());

  ExtentAllocator(region_.memory()).Free(extent);
  EXPECT_TRUE(Says(Check(1, write).report(), "not in use"));
}

// An extent that is being freed gradually is in use, but no leaf points to it.
TEST_F(DamageTest, ARegionOfWhichSomethingIsBeingFreedIsNotComparedAsAWhole) {
  ASSERT_TRUE(ExtentAllocator(region_.memory()).Allocate(100).has_value());
  ExpectError("no leaf points to it");
  const TreeCheck check = Check(
      INT64_MAX, [] {}, /*settled=*/false);
  EXPECT_TRUE(check.report().ok());
  EXPECT_FALSE(check.whole());
}

}  // namespace
}  // namespace cell
