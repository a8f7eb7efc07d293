// Tests that all pairs of a meganode can be deleted at once, and that no reader is led astray by it.
#include "cell/tree/meganode_clear.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/tree/test_reader.h"
#include "cell/tree/test_region.h"
#include "cell/tree/tree_check.h"

namespace cell {
namespace {

absl::Status Put(Meganode* tree, std::string_view key, std::string_view value) {
  return tree->Put(key, value, Crc64(value, Crc64(key))).status();
}

void ExpectSound(TestRegion* region, uint64_t keys) {
  const TreeReport report = CheckTree(*region->memory());
  EXPECT_TRUE(report.ok()) << report.errors[0];
  EXPECT_EQ(report.keys, keys);
  EXPECT_EQ(region->memory()->header().keys, keys);
}

TEST(MeganodeClear, AllGoesAndItsRoomComesBack) {
  TestRegion region({512, 2 << 20, 1 << 20}, 1, {0, "a", "m", RootOf(9)});
  Meganode tree(region.memory());
  tree.set_inline_max(64);
  const auto fill = [&](uint64_t keys) {
    for (uint64_t i = 0; i < keys; ++i)
      ASSERT_TRUE(Put(&tree, KeyOf(i * 7919 % 10'007), std::string((i + 1) * 67 % 150, 'v')).ok());
  };
  for (const uint64_t keys : {0u, 2u, 20u, 5'000u}) {
    SCOPED_TRACE(keys);
    fill(keys);
    const uint64_t stamp = tree.header().last_stamp;
    EXPECT_EQ(MeganodeClear::Pays(tree), keys >= 20);
    EXPECT_EQ(tree.header().extents.bytes_used > 0, keys > 0);
    MeganodeClear clear(&tree);
    EXPECT_EQ(clear.pairs(), keys);
    EXPECT_EQ(tree.header().keys, 0u);
    EXPECT_EQ(tree.data_bytes(), 0u);
    EXPECT_FALSE(tree.Find(KeyOf(0))->pair.has_value());
    EXPECT_EQ(tree.range().low, "a");
    EXPECT_EQ(tree.range().high, "m");
    EXPECT_EQ(tree.range().right, RootOf(9));
    fill(100);  // It is written while nodes are freed.
    while (!clear.Free(3)) {
    }
    ExpectSound(&region, 100);
    EXPECT_GT(tree.header().last_stamp, stamp);
    EXPECT_EQ(CheckTree(*region.memory()).nodes, tree.header().nodes_used);
    for (uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(*tree.Delete(KeyOf(i * 7919 % 10'007)));
    EXPECT_EQ(tree.header().nodes_used, 1u);
    EXPECT_EQ(tree.header().extents.bytes_used, 0u);
  }
}

// A node that was damaged in memory may name extents that others use by now.
TEST(MeganodeClear, ADamagedLeafFreesNoExtents) {
  TestRegion region;
  Meganode tree(region.memory());
  tree.set_inline_max(0);
  for (uint64_t i = 0; i < 1'000; ++i) ASSERT_TRUE(Put(&tree, KeyOf(i), "value").ok());
  const NodeView leaf = *tree.LeafOf(KeyOf(500));
  const uint64_t pairs = static_cast<uint64_t>(leaf.count());
  const uint64_t bytes_each = tree.header().extents.bytes_used / 1'000;
  auto* const damaged = const_cast<std::byte*>(leaf.bytes());
  damaged[300] ^= std::byte{1};
  MeganodeClear clear(&tree);
  while (!clear.Free(10)) {
  }
  EXPECT_EQ(tree.header().keys, 0u);
  EXPECT_EQ(tree.header().extents.bytes_used, pairs * bytes_each);
  EXPECT_EQ(tree.header().nodes_used, 1u);
}

// The root was damaged in memory so that its first child is the root itself.
TEST(MeganodeClear, ADamagedRootHangsNothing) {
  TestRegion region;
  Meganode tree(region.memory());
  for (uint64_t i = 0; i < 1'000; ++i) ASSERT_TRUE(Put(&tree, KeyOf(i), "value").ok());
  const uint64_t child = tree.Node(tree.root()).inner_slot(0).child().raw(), self = tree.root().raw();
  auto* const bytes = const_cast<std::byte*>(tree.Node(tree.root()).bytes());
  const uint32_t halves[] = {static_cast<uint32_t>(child), static_cast<uint32_t>(child >> 32)};
  const uint32_t wrong[] = {static_cast<uint32_t>(self), static_cast<uint32_t>(self >> 32)};
  int found = 0;
  for (size_t at = 0; at + sizeof(halves) <= 1024; at += 4) {
    if (std::memcmp(bytes + at, halves, sizeof(halves)) != 0) continue;
    std::memcpy(bytes + at, wrong, sizeof(wrong));
    ++found;
  }
  ASSERT_EQ(found, 1);
  ASSERT_EQ(tree.Node(tree.root()).inner_slot(0).child(), tree.root());
  MeganodeClear clear(&tree);
  EXPECT_TRUE(clear.Free(1'000));
  EXPECT_EQ(tree.header().keys, 0u);
  EXPECT_FALSE(tree.Find(KeyOf(1))->pair.has_value());
  EXPECT_TRUE(Put(&tree, KeyOf(1), "again").ok());
}

class ClearsUnderReaders : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, ClearsUnderReaders, ::testing::Range(uint64_t{1}, uint64_t{9}));

TEST_P(ClearsUnderReaders, EachFindsWhatWasThereMeanwhile) {
  // So few nodes that each is used again soon.
  TestRegion region({Reader::kNodeBytes, 200 * Reader::kNodeBytes, 64 << 10});
  Meganode tree(region.memory());
  Random random(GetParam());
  History history;
  const std::vector<std::unique_ptr<Reader>> readers = NewReaders({region.memory()}, &history, GetParam());
  uint64_t pace = 8;
  region.memory()->set_after_step([&] {
    for (const auto& reader : readers) {
      for (int steps = 0; steps < (pace == 1 ? 8 : 1); ++steps) {
        if (random.Below(pace) == 0) reader->Step();
      }
    }
  });
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    const auto put = [&] {
      const std::string key = KeyOf(random.Below(Reader::kKeys));
      const size_t n = history.Begin(key, true);
      ASSERT_TRUE(Put(&tree, key, std::to_string(n)).ok());
      history.End(key);
    };
    for (int i = 0; i < 600; ++i) put();
    for (uint64_t i = 0; i < Reader::kKeys; ++i) history.Begin(KeyOf(i), false);
    pace = 1;
    MeganodeClear clear(&tree);
    pace = 8;
    for (uint64_t i = 0; i < Reader::kKeys; ++i) history.End(KeyOf(i));
    while (!clear.Free(1)) put();
  }
  region.memory()->set_after_step({});
  const TreeReport report = CheckTree(*region.memory());
  EXPECT_TRUE(report.ok()) << report.errors[0];
  uint64_t found = 0;
  for (const auto& reader : readers) found += reader->found();
  EXPECT_GT(found, 5'000u);
}

}  // namespace
}  // namespace cell
