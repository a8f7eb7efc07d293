// Tests that nodes which deletes leave small are merged, and that no reader is led astray by it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/tree/meganode.h"
#include "cell/tree/test_reader.h"
#include "cell/tree/test_region.h"
#include "cell/tree/tree_check.h"
#include "fmt/format.h"

namespace cell {
namespace {

std::string Errors(const TreeReport& report) {
  std::string all;
  for (const auto& error : report.errors) all += error + "\n";
  return all;
}

absl::Status Put(Meganode* tree, std::string_view key, std::string_view value) {
  return tree->Put(key, value, Crc64(value, Crc64(key))).status();
}

void ExpectSound(TestRegion* region, uint64_t keys) {
  const TreeReport report = CheckTree(*region->memory());
  EXPECT_TRUE(report.ok()) << Errors(report);
  EXPECT_EQ(report.keys, keys);
  EXPECT_EQ(report.half_splits, 0u);
  EXPECT_EQ(report.nodes, region->memory()->header().nodes_used);
}

TEST(MeganodeMerge, WhatWasDeletedGivesItsNodesBack) {
  TestRegion region;
  Meganode tree(region.memory());
  Random random(1);
  std::vector<uint64_t> numbers(20'000);
  for (uint64_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
  for (size_t i = numbers.size(); i > 1; --i) std::swap(numbers[i - 1], numbers[random.Below(i)]);
  for (const uint64_t i : numbers) ASSERT_TRUE(Put(&tree, KeyOf(i), std::string(i % 200, 'v')).ok());
  const uint64_t full = tree.header().nodes_used;
  ASSERT_GT(full, 1'000u);
  for (size_t i = numbers.size(); i > 1; --i) std::swap(numbers[i - 1], numbers[random.Below(i)]);
  while (numbers.size() > 200) {
    ASSERT_TRUE(*tree.Delete(KeyOf(numbers.back())));
    numbers.pop_back();
  }
  ExpectSound(&region, numbers.size());
  EXPECT_LT(tree.header().nodes_used, full / 20);
  while (!numbers.empty()) {
    ASSERT_TRUE(*tree.Delete(KeyOf(numbers.back())));
    numbers.pop_back();
  }
  ExpectSound(&region, 0);
  EXPECT_EQ(tree.header().nodes_used, 1u);
}

// While a region is being split nothing is merged, and no delete comes to these leaves again.
TEST(MeganodeMerge, WhatWasDeletedDuringASplitIsMergedAfterIt) {
  TestRegion region;
  Meganode tree(region.memory());
  for (uint64_t i = 0; i < 5'000; ++i) ASSERT_TRUE(Put(&tree, KeyOf(i), "value").ok());
  EXPECT_FALSE(tree.unmerged());
  const uint64_t full = tree.header().nodes_used;
  {
    const Meganode::BordersKept borders(&tree);
    for (uint64_t i = 0; i < 5'000; ++i) {
      if (i % 100 == 0) continue;
      ASSERT_TRUE(*tree.Delete(KeyOf(i)));
    }
    EXPECT_EQ(tree.header().nodes_used, full);
    EXPECT_TRUE(tree.unmerged());
    EXPECT_EQ(tree.MergeFrom("", 10), std::nullopt);
    EXPECT_EQ(tree.header().nodes_used, full);
    EXPECT_TRUE(tree.unmerged());
  }
  int slices = 0;
  for (std::optional<std::string> at = ""; at.has_value(); ++slices) at = tree.MergeFrom(*at, 10);
  EXPECT_GT(slices, 2);
  EXPECT_FALSE(tree.unmerged());
  ExpectSound(&region, 50);
  EXPECT_LT(tree.header().nodes_used, full / 20);
}

// A queue: keys arrive at its end and leave at its beginning.
TEST(MeganodeMerge, AQueueRunsForEverInLittleRoom) {
  constexpr uint64_t kAlive = 100;
  TestRegion region({512, 64 * 512, 64 << 10});
  Meganode tree(region.memory());
  for (uint64_t i = 0; i < 200'000; ++i) {
    ASSERT_TRUE(Put(&tree, KeyOf(i), "value").ok()) << i;
    if (i >= kAlive) {
      ASSERT_TRUE(*tree.Delete(KeyOf(i - kAlive)));
    }
  }
  ExpectSound(&region, kAlive);
  EXPECT_LE(tree.header().nodes_used, 16u);
}

// A stack at the border of two leaves must not merge and split in turns.
TEST(MeganodeMerge, OneKeyThatComesAndGoesAtTheEndChangesNoOtherNode) {
  TestRegion region;
  Meganode tree(region.memory());
  uint64_t i = 0;
  for (; tree.header().nodes_used < 3 || i < 100; ++i) ASSERT_TRUE(Put(&tree, KeyOf(i), "value").ok());
  const uint64_t used = tree.header().nodes_used;
  while (tree.header().nodes_used == used) ASSERT_TRUE(Put(&tree, KeyOf(i++), "value").ok());
  const uint64_t with_one_more = tree.header().nodes_used;
  for (int turn = 0; turn < 100; ++turn) {
    ASSERT_TRUE(*tree.Delete(KeyOf(i - 1)));
    EXPECT_EQ(tree.header().nodes_used, with_one_more);
    ASSERT_TRUE(Put(&tree, KeyOf(i - 1), "value").ok());
    EXPECT_EQ(tree.header().nodes_used, with_one_more);
  }
}

TEST(MeganodeMerge, ValuesThatShrinkGiveTheirNodesBack) {
  TestRegion region;
  Meganode tree(region.memory());
  for (uint64_t i = 0; i < 5'000; ++i) ASSERT_TRUE(Put(&tree, KeyOf(i), std::string(100, 'v')).ok());
  const uint64_t full = tree.header().nodes_used;
  for (uint64_t i = 0; i < 5'000; ++i) ASSERT_TRUE(Put(&tree, KeyOf(i), "").ok());
  ExpectSound(&region, 5'000);
  EXPECT_LT(tree.header().nodes_used, full * 2 / 3);
  EXPECT_GT(tree.merges(), full / 4);
}

// A migration that is called off makes a region's nodes valid again.
TEST(MeganodeMerge, ANodeThatWasMergedAwayStaysInvalidWhenARegionIsRestored) {
  TestRegion region({512, 96 * 512, 64 << 10});
  RegionMemory* const memory = region.memory();
  Meganode tree(memory);
  for (uint64_t i = 0; i < 300; ++i) ASSERT_TRUE(Put(&tree, KeyOf(i), "value").ok());
  for (uint64_t i = 0; i < 290; ++i) ASSERT_TRUE(*tree.Delete(KeyOf(i)));
  ASSERT_GT(tree.merges(), 10u);
  uint64_t valid = 0;
  const auto count_valid = [&] {
    valid = 0;
    for (uint64_t i = 0; i < memory->header().nodes_end; ++i) {
      const Pointer node(1, memory->header().nodes_offset + i * 512);
      NodeView view;
      valid += NodeView::Parse({memory->at(node.offset()), 512}, node, &view) == NodeFault::kNone;
    }
    EXPECT_LE(valid, memory->header().nodes_used);
  };
  tree.Invalidate();
  memory->set_after_step(count_valid);
  EXPECT_FALSE(tree.unmerged());
  tree.Restore();
  EXPECT_TRUE(tree.unmerged());  // Its former owner may have left small leaves.
  memory->set_after_step({});
  EXPECT_EQ(valid, memory->header().nodes_used);
  EXPECT_EQ(memory->header().nodes_used, CheckTree(*memory).nodes);
}

class MergesUnderReaders : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, MergesUnderReaders, ::testing::Range(uint64_t{1}, uint64_t{9}));

TEST_P(MergesUnderReaders, EachFindsWhatWasThereMeanwhile) {
  // So few nodes that each is used again at once.
  TestRegion region({Reader::kNodeBytes, 120 * Reader::kNodeBytes, 64 << 10});
  Meganode tree(region.memory());
  Random random(GetParam());
  History history;
  const std::vector<std::unique_ptr<Reader>> readers = NewReaders({region.memory()}, &history, GetParam());
  uint64_t pace = 1;
  region.memory()->set_after_step([&] {
    for (const auto& reader : readers) {
      if (random.Below(8 * pace) == 0) reader->Step();
    }
  });
  uint64_t most = 0, merges = 0, nodes = 1;
  for (int i = 0; i < 40'000 && !HasFailure(); ++i) {
    if (i % 500 == 0) pace = 1 + random.Below(8);
    // It grows and shrinks in turns.
    const bool stores = random.Below(10) < ((i / 2'500) % 2 == 0 ? 8u : 1u);
    const std::string key = KeyOf(random.Below(Reader::kKeys));
    const size_t n = history.Begin(key, stores);
    if (stores) {
      ASSERT_TRUE(Put(&tree, key, std::to_string(n)).ok());
    } else {
      ASSERT_TRUE(tree.Delete(key).ok());
    }
    history.End(key);
    merges += tree.header().nodes_used < nodes;
    nodes = tree.header().nodes_used;
    most = std::max(most, nodes);
  }
  region.memory()->set_after_step({});
  const TreeReport report = CheckTree(*region.memory());
  EXPECT_TRUE(report.ok()) << Errors(report);
  uint64_t found = 0;
  for (const auto& reader : readers) found += reader->found();
  EXPECT_GT(found, 5'000u);
  EXPECT_GT(merges, 100u);
  EXPECT_GT(most, 30u);
  EXPECT_LT(nodes, most / 2);
}

// Returns what a search that begins now finds of a key: its stamp, 0 if it is not there, nullopt if it finds no leaf.
std::optional<uint64_t> SearchNow(const RegionMemory& memory, std::string_view key) {
  Walk walk(key, RootOf(memory.header().region));
  for (Walk::Step step = Walk::Step::kRead; step == Walk::Step::kRead && walk.visits() < 50;) {
    const uint32_t node_bytes = memory.header().node_bytes;
    NodeView view;
    const NodeFault fault = NodeView::Parse({memory.at(walk.wants().offset()), node_bytes}, walk.wants(), &view);
    step = fault == NodeFault::kNone ? walk.Visit(view) : walk.Failed(fault);
    if (step != Walk::Step::kArrived) continue;
    const std::optional<int> slot = view.Find(key);
    return slot.has_value() ? view.pair(*slot).stamp : 0;
  }
  return std::nullopt;
}

// A reader may come to any leaf by a pointer that it has had for long. So between any two stores each valid leaf says
// the same of a key as a search does.
TEST_P(MergesUnderReaders, NoValidLeafContradictsTheTree) {
  TestRegion region({512, 96 * 512, 64 << 10});
  RegionMemory* const memory = region.memory();
  Meganode tree(memory);
  Random random(GetParam());
  std::string key;
  uint64_t compared = 0;
  memory->set_after_step([&] {
    const std::optional<uint64_t> stamp = SearchNow(*memory, key);
    if (!stamp.has_value()) return;
    for (uint64_t i = 0; i < memory->header().nodes_end; ++i) {
      const Pointer node(1, memory->header().nodes_offset + i * 512);
      NodeView view;
      if (NodeView::Parse({memory->at(node.offset()), 512}, node, &view) != NodeFault::kNone) continue;
      if (!view.holds_pairs() || !view.Covers(key)) continue;
      const std::optional<int> slot = view.Find(key);
      ASSERT_EQ(slot.has_value() ? view.pair(*slot).stamp : 0, *stamp) << key;
      ++compared;
    }
  });
  for (int i = 0; i < 6'000 && !HasFailure(); ++i) {
    key = KeyOf(random.Below(600));
    if (random.Below(10) < ((i / 1'000) % 2 == 0 ? 8u : 1u)) {
      ASSERT_TRUE(Put(&tree, key, "value").ok());
    } else {
      ASSERT_TRUE(tree.Delete(key).ok());
    }
  }
  memory->set_after_step({});
  EXPECT_GT(compared, 4'000u);
}

}  // namespace
}  // namespace cell
