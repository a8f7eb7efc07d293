#include "cell/tree/meganode_builder.h"

#include <gtest/gtest.h>

#include <map>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/tree/test_region.h"
#include "cell/tree/tree_check.h"

namespace cell {
namespace {

std::map<std::string, std::string> Contents(const Meganode& tree) {
  std::map<std::string, std::string> all;
  absl::StatusOr<NodeView> leaf = tree.LeafOf(tree.range().low);
  for (;;) {
    CELL_CHECK(leaf.ok());
    for (int i = 0; i < leaf->count(); ++i) {
      all[leaf->key(i)] = tree.ValueOf(leaf->pair(i));
    }
    if (leaf->right().region() != tree.region()) return all;
    leaf = tree.Node(leaf->right());
  }
}

std::string RandomKey(Random* random, size_t bytes_max, uint64_t alphabet) {
  std::string key(1 + random->Below(bytes_max), 0);
  for (char& c : key) c = static_cast<char>('a' + random->Below(alphabet));
  return key;
}

// When a region gets another owner, that one builds the tree anew, and prepares again all puts that were prepared.
// There must be room for them, and they must be able to commit, even if other pairs were put after the first prepare.
TEST(MeganodeBuilderTest, HasRoomForWhatWasPreparedBefore) {
  int kept_in_all = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const RegionShape shape{512, uint64_t{4 << 10} << random.Below(4), 16 << 20};
    const auto crc = [](const std::string& key, const std::string& value) { return Crc64(value, Crc64(key)); };
    TestRegion region(shape);
    Meganode tree(region.memory());
    std::map<std::string, std::string> stored, kept;
    for (int failures = 0; failures < 20;) {
      const std::string key = RandomKey(&random, 40, 20), value(random.Below(100), 'v');
      if (kept.contains(key)) continue;
      tree.set_writes_kept(kept.size());
      if (random.Below(8) == 0) {
        const auto put = tree.Prepare(key, value, crc(key, value), {0, /*of_key=*/true});
        failures += !put.ok();
        if (put.ok()) kept[key] = value;
      } else {
        const absl::StatusOr<bool> put = tree.Put(key, value, crc(key, value));
        failures += !put.ok();
        if (put.ok()) stored[key] = value;
      }
    }
    kept_in_all += static_cast<int>(kept.size());
    absl::Status status;
    for (const double fill : {0.85, 1.0}) {
      TestRegion next(shape);
      Meganode rebuilt(next.memory());
      MeganodeBuilder builder(&rebuilt, fill);
      status = absl::OkStatus();
      for (const auto& [key, value] : stored) status.Update(builder.Add(key, value));
      if (status.ok()) status = builder.Finish();
      std::vector<std::pair<std::string, PairStore::Prepared>> again;
      for (const auto& [key, value] : kept) {
        if (!status.ok()) break;
        rebuilt.set_writes_kept(again.size());
        const auto fresh = rebuilt.Prepare(key, value, crc(key, value), {0, /*of_key=*/true});
        if (fresh.ok()) rebuilt.Discard(*fresh);
        refused += !fresh.ok();
        auto put = rebuilt.Prepare(key, value, crc(key, value), {0, /*of_key=*/true, /*again=*/true});
        status = put.status();
        if (put.ok()) again.emplace_back(key, *std::move(put));
      }
      if (!status.ok()) continue;
      while (!again.empty()) {
        const size_t at = random.Below(again.size());
        rebuilt.Commit(again[at].second, again[at].first);
        again.erase(again.begin() + static_cast<ptrdiff_t>(at));
        rebuilt.set_writes_kept(again.size());
      }
      std::map<std::string, std::string> all = kept;
      all.insert(stored.begin(), stored.end());
      EXPECT_EQ(Contents(rebuilt), all);
      break;
    }
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_GT(kept_in_all, 300);
  EXPECT_GT(refused, 10) << "a put that is new needs more room than one that was prepared before";
}

TEST(MeganodeBuilderTest, MakesWhatWasAdded) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const uint32_t node_bytes = random.Below(2) == 0 ? 512 : 1024;
    const size_t key_bytes = 1 + random.Below(KeyBytesMax(node_bytes));
    const uint64_t alphabet = 2 + random.Below(20);
    std::map<std::string, std::string> model;
    for (uint64_t i = random.Below(4000); i > 0; --i) {
      model[RandomKey(&random, key_bytes, alphabet)] = std::string(random.Below(300), 'v');
    }
    Meganode::Range range;
    if (random.Below(2) == 0) {
      range.low = RandomKey(&random, key_bytes, alphabet);
      model.erase(model.begin(), model.lower_bound(range.low));
    }
    if (random.Below(2) == 0 && !model.empty()) {
      range.high = model.rbegin()->first + (model.rbegin()->first.size() < KeyBytesMax(node_bytes) ? "b" : "");
      range.right = RootOf(9);
      model.erase(model.lower_bound(*range.high), model.end());
    }
    TestRegion region({node_bytes, 8 << 20, 16 << 20}, 1, range);
    Meganode tree(region.memory());
    tree.set_inline_max(random.Below(3) == 0 ? 0 : random.Below(InlineBytesMax(node_bytes) + 1));
    MeganodeBuilder builder(&tree, random.Below(2) == 0 ? 0.85 : 1);
    for (const auto& [key, value] : model) ASSERT_TRUE(builder.Add(key, value).ok());
    ASSERT_TRUE(builder.Finish().ok());
    EXPECT_EQ(Contents(tree), model);
    EXPECT_EQ(tree.range().low, range.low);
    EXPECT_EQ(tree.range().high, range.high);
    const TreeReport report = CheckTree(*region.memory());
    EXPECT_TRUE(report.ok()) << report.errors[0];
    EXPECT_EQ(report.half_splits, 0u);
    EXPECT_EQ(report.keys, model.size());
    EXPECT_EQ(tree.header().keys, model.size());
    EXPECT_EQ(tree.header().last_stamp, model.size()) << "each pair has a stamp of its own";
    for (const auto& [key, value] : model) {
      ASSERT_EQ(tree.Find(key)->pair->is_inline, key.size() + value.size() <= tree.inline_max());
    }
    // The result can be written like any meganode.
    for (int i = 0; i < 200; ++i) {
      const std::string key = RandomKey(&random, key_bytes, alphabet);
      if (!tree.Covers(key)) continue;
      ASSERT_TRUE(tree.Put(key, "new", Crc64("new", Crc64(key))).ok());
      model[key] = "new";
    }
    EXPECT_EQ(Contents(tree), model);
    EXPECT_TRUE(CheckTree(*region.memory()).ok());
  }
}

// Checks that the content of a region that was written in any order fits into a region of the same size.
TEST(MeganodeBuilderTest, FitsWhereItWas) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const RegionShape shape{512, 64 << 10, 128 << 10};
    TestRegion region(shape);
    Meganode tree(region.memory());
    const size_t inline_max = random.Below(InlineBytesMax(512) + 1);
    tree.set_inline_max(inline_max);
    const size_t key_bytes = 4 + random.Below(KeyBytesMax(512) - 4);
    const bool ascending = seed % 4 == 0;
    for (int i = 0, full = 0; full < 50; ++i) {
      const std::string key = ascending ? fmt::format("{:08}", i) : RandomKey(&random, key_bytes, 26);
      const std::string value(random.Below(seed % 3 == 0 ? 20 : 400), 'v');
      const absl::StatusOr<bool> put = tree.Put(key, value, Crc64(value, Crc64(key)));
      full += !put.ok();
      if (!ascending && random.Below(5) == 0) (void)tree.Delete(RandomKey(&random, key_bytes, 26));
    }
    EXPECT_GT(tree.fill(), 0.7);
    TestRegion packed(shape);
    Meganode copy(packed.memory());
    copy.set_inline_max(inline_max);
    MeganodeBuilder builder(&copy, 1);
    for (const auto& [key, value] : Contents(tree)) ASSERT_TRUE(builder.Add(key, value).ok());
    ASSERT_TRUE(builder.Finish().ok());
    EXPECT_EQ(Contents(copy), Contents(tree));
    EXPECT_LE(copy.header().nodes_used, tree.header().nodes_used + 2);
    EXPECT_EQ(copy.extents().bytes_used, tree.extents().bytes_used);
  }
}

// Checks that the content of a full meganode can be rebuilt with as many nodes, in whatever order the keys came.
TEST(MeganodeBuilderTest, WhatIsFullFitsAgain) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const RegionShape shape{512, (16 + random.Below(50)) * 512, 1 << 20};
    TestRegion region(shape);
    Meganode tree(region.memory());
    absl::Status status;
    const bool in_order = random.Below(2) == 0;
    for (uint64_t i = 0; status.ok(); ++i) {
      const std::string key = in_order ? fmt::format("k{:06}", i) : RandomKey(&random, 8, 20);
      status = tree.Put(key, "value", Crc64("value", Crc64(key))).status();
    }
    ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    const std::map<std::string, std::string> all = Contents(tree);
    TestRegion again(shape);
    Meganode built(again.memory());
    MeganodeBuilder builder(&built, 1);
    for (const auto& [key, value] : all) ASSERT_TRUE(builder.Add(key, value).ok());
    ASSERT_TRUE(builder.Finish().ok());
    EXPECT_EQ(Contents(built), all);
  }
}

TEST(MeganodeBuilderTest, Routes) {
  Meganode::Range range;
  range.tier = 1;
  TestRegion region({512, 64 << 10, 4096}, 1, range);
  Meganode tree(region.memory());
  MeganodeBuilder builder(&tree, 1);
  for (uint32_t i = 0; i < 200; ++i) {
    const Pointer child = RootOf(i + 2);
    const std::string_view value(reinterpret_cast<const char*>(&child), sizeof(child));
    ASSERT_TRUE(builder.Add(i == 0 ? "" : fmt::format("{:04}", i), value).ok());
  }
  ASSERT_TRUE(builder.Finish().ok());
  for (uint32_t i = 0; i < 200; ++i) EXPECT_EQ(tree.RouteOf(fmt::format("{:04}x", i)).next, RootOf(i + 2));
  EXPECT_TRUE(CheckTree(*region.memory()).ok());
}

TEST(MeganodeBuilderTest, RefusesWhatIsWrong) {
  Meganode::Range range;
  range.low = "b";
  range.high = "x";
  TestRegion region({512, 8 << 10, 8192}, 1, range);
  Meganode tree(region.memory());
  MeganodeBuilder builder(&tree, 1);
  EXPECT_EQ(builder.Add("a", "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(builder.Add("c", "").ok());
  EXPECT_EQ(builder.Add("c", "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(builder.Add("x", "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(builder.Add(std::string(99, 'd'), "").code(), absl::StatusCode::kInvalidArgument);
  absl::Status status;
  for (int i = 0; status.ok() && i < 1000; ++i) status = builder.Add(fmt::format("k{:05}", i), std::string(100, 'v'));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(MeganodeBuilderTest, TheFirstRouteIsTheRangesBeginning) {
  Meganode::Range range;
  range.tier = 1;
  range.low = "b";
  const Pointer child = RootOf(2);
  const std::string_view value(reinterpret_cast<const char*>(&child), sizeof(child));
  const RegionShape shape{512, 8 << 10, 8192};
  {
    TestRegion region(shape, 1, range);
    Meganode tree(region.memory());
    MeganodeBuilder builder(&tree, 1);
    EXPECT_EQ(builder.Add("c", value).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(builder.Add("b", value).ok());
    EXPECT_TRUE(builder.Add("c", value).ok());
    EXPECT_TRUE(builder.Finish().ok());
    EXPECT_TRUE(CheckTree(*region.memory()).ok());
  }
  TestRegion region(shape, 1, range);
  Meganode tree(region.memory());
  EXPECT_EQ(MeganodeBuilder(&tree, 1).Finish().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cell
