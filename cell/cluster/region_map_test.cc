#include "cell/cluster/region_map.h"

#include <map>

#include "cell/base/random.h"
#include "gtest/gtest.h"

namespace cell {
namespace {

RegionEntry EntryOf(uint64_t epoch) { return {.owner = {"a", 1}, .epoch = epoch}; }

std::map<uint32_t, RegionEntry> Regions(const RegionMap& map) { return {map.begin(), map.end()}; }

// Checks what holds of all maps: shards are in order, none is empty or too large, and no two neighbours are small.
void ExpectSound(const RegionMap& map) {
  RegionMap made;
  ASSERT_TRUE(RegionMap::Make(map.shards(), &made).ok());
  EXPECT_EQ(made.size(), map.size());
  for (size_t i = 1; i < map.shards().size(); ++i) {
    EXPECT_GT(map.shards()[i - 1].entries->size() + map.shards()[i].entries->size(), RegionMap::kShardMax / 2);
  }
}

TEST(RegionMap, HasWhatAMapHas) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    RegionMap map;
    std::map<uint32_t, RegionEntry> expected;
    const uint64_t ids = 1 + random.Below(3000);
    for (int i = 0; i < 6000; ++i) {
      const auto region = static_cast<uint32_t>(random.Below(ids));
      const bool shrink = i / 2000 % 2 == 1;
      if (random.Below(10) < (shrink ? 9 : 3)) {
        map.Erase(region);
        expected.erase(region);
      } else {
        RegionEntry entry = EntryOf(random.Next());
        if (random.Below(50) == 0) entry.split_parent = static_cast<uint32_t>(random.Below(10));
        map.Set(region, entry);
        expected[region] = entry;
      }
      ASSERT_EQ(map.Find(region) != nullptr, expected.contains(region));
      ASSERT_EQ(map.size(), expected.size());
    }
    ASSERT_EQ(Regions(map), expected) << seed;
    ExpectSound(map);
    for (uint32_t parent = 0; parent < 10; ++parent) {
      std::vector<uint32_t> children;
      for (const auto& [region, entry] : expected) {
        if (entry.split_parent == parent) children.push_back(region);
      }
      EXPECT_EQ(map.SplitChildrenOf(parent), children);
    }
    while (!map.empty()) map.Erase(map.begin()->first);
    EXPECT_TRUE(map.shards().empty());
  }
}

TEST(RegionMap, IdsThatComeInOrderFillTheShards) {
  RegionMap map;
  for (uint32_t region = 1; region <= 10'000; ++region) map.Set(region, EntryOf(1));
  EXPECT_EQ(map.shards().size(), 10'000 / RegionMap::kShardMax + 1);
  ExpectSound(map);
}

TEST(RegionMap, AChangeReplacesOneShardAndNoOtherCopySeesIt) {
  RegionMap map;
  for (uint32_t region = 1; region <= 10'000; ++region) map.Set(region, EntryOf(1));
  map.Stored(7);
  const RegionMap before = map;
  map.Change(5000, [](RegionEntry* entry) { entry->epoch = 2; });
  EXPECT_EQ(before.at(5000).epoch, 1u);
  EXPECT_EQ(map.at(5000).epoch, 2u);
  EXPECT_NE(before, map);
  int replaced = 0;
  for (size_t i = 0; i < map.shards().size(); ++i) {
    const bool same = map.shards()[i].entries == before.shards()[i].entries;
    EXPECT_EQ(map.shards()[i].version, same ? 7u : 0u);
    replaced += !same;
  }
  EXPECT_EQ(replaced, 1);
}

TEST(RegionMap, TheFirstShardIsStoredAnewWhenAnotherOneBecomesIt) {
  RegionMap map;
  for (uint32_t region = 1; region <= 2 * RegionMap::kShardMax; ++region) map.Set(region, EntryOf(1));
  map.Stored(7);
  ASSERT_EQ(map.shards().size(), 2u);
  // The right one stays too large to be joined with.
  for (uint32_t region = 1; region <= RegionMap::kShardMax; ++region) map.Erase(region);
  ASSERT_EQ(map.shards().size(), 1u);
  EXPECT_EQ(map.shards()[0].first, 0u);
  EXPECT_EQ(map.shards()[0].version, 0u);
  ExpectSound(map);
}

TEST(RegionMap, IsNotMadeOfShardsThatAreNotInOrder) {
  const auto shard = [](uint32_t first, const std::vector<uint32_t>& regions) {
    RegionMap::Entries entries;
    for (const uint32_t region : regions) entries.emplace_back(region, EntryOf(1));
    return RegionMap::Shard{.first = first, .entries = std::make_shared<const RegionMap::Entries>(entries)};
  };
  const auto makes = [](std::vector<RegionMap::Shard> shards) {
    RegionMap map;
    return RegionMap::Make(std::move(shards), &map).ok();
  };
  EXPECT_TRUE(makes({}));
  EXPECT_TRUE(makes({shard(0, {1, 2}), shard(3, {3, 9})}));
  EXPECT_FALSE(makes({shard(1, {1, 2})}));
  EXPECT_FALSE(makes({shard(0, {1, 2}), shard(0, {3})}));
  EXPECT_FALSE(makes({shard(0, {1, 2}), shard(2, {3})}));
  EXPECT_FALSE(makes({shard(0, {1, 2}), shard(4, {3})}));
  EXPECT_FALSE(makes({shard(0, {2, 1})}));
  EXPECT_FALSE(makes({shard(0, {1, 1})}));
  EXPECT_FALSE(makes({shard(0, {})}));
  EXPECT_FALSE(makes({shard(0, {1}), shard(2, {})}));
  EXPECT_FALSE(makes({RegionMap::Shard{.entries = nullptr}}));
  EXPECT_FALSE(makes({shard(0, std::vector<uint32_t>(RegionMap::kShardMax + 1))}));
}

}  // namespace
}  // namespace cell
