#include "cell/tree/meganode.h"

#include <gtest/gtest.h>

#include <map>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/tree/test_region.h"
#include "cell/tree/tree_check.h"

namespace cell {
namespace {

std::string Errors(const TreeReport& report) {
  std::string text;
  for (const std::string& error : report.errors) text += error + "\n";
  return text;
}

absl::StatusOr<bool> Put(Meganode* tree, std::string_view key, std::string_view value, Pointer hint = {}) {
  return tree->Put(key, value, Crc64(value, Crc64(key)), hint);
}

std::optional<std::string> Get(const Meganode& tree, std::string_view key) {
  const absl::StatusOr<Meganode::Location> location = tree.Find(key);
  CELL_CHECK(location.ok());
  if (!location->slot.has_value()) return std::nullopt;
  const ConstBytes extent(tree.Extent(location->slot->extent), location->slot->extent_bytes);
  CELL_CHECK_EQ(Crc64(extent), location->slot->crc);
  return std::string(AsText(extent.subspan(key.size())));
}

std::vector<std::string> AllKeys(const Meganode& tree) {
  std::vector<std::string> keys;
  absl::StatusOr<NodeView> leaf = tree.LeafOf("");
  for (;;) {
    CELL_CHECK(leaf.ok());
    for (int i = 0; i < leaf->count(); ++i) keys.push_back(leaf->key(i));
    if (!leaf->has_high()) return keys;
    leaf = tree.Node(leaf->right());
  }
}

struct Shape {
  uint32_t node_bytes;
  size_t key_bytes_min;
  size_t key_bytes_max;
  int alphabet;
};

class RandomOperations : public ::testing::TestWithParam<std::tuple<Shape, uint64_t>> {};

TEST_P(RandomOperations, AgreeWithAMap) {
  const auto [shape, seed] = GetParam();
  SCOPED_TRACE("seed " + std::to_string(seed));
  TestRegion region({shape.node_bytes, 8 << 20, 16 << 20});
  Meganode tree(region.memory());
  Random random(seed);
  std::map<std::string, std::string> model;
  Pointer hint;
  for (int i = 0; i < 20'000; ++i) {
    std::string key(shape.key_bytes_min + random.Below(shape.key_bytes_max - shape.key_bytes_min + 1), '\0');
    for (char& c : key) c = static_cast<char>(random.Below(shape.alphabet) * 255 / (shape.alphabet - 1));
    switch (random.Below(4)) {
      case 0:
      case 1: {
        const std::string value(random.Below(100), static_cast<char>(i));
        const absl::StatusOr<bool> replaced = Put(&tree, key, value, hint);
        ASSERT_TRUE(replaced.ok()) << replaced.status();
        ASSERT_EQ(*replaced, model.contains(key));
        model[key] = value;
        break;
      }
      case 2: {
        const absl::StatusOr<bool> deleted = tree.Delete(key, hint);
        ASSERT_TRUE(deleted.ok());
        ASSERT_EQ(*deleted, model.erase(key) == 1);
        break;
      }
      default: {
        const std::optional<std::string> value = Get(tree, key);
        ASSERT_EQ(value.has_value(), model.contains(key));
        if (value.has_value()) {
          ASSERT_EQ(*value, model[key]);
        }
        hint = tree.Find(key)->leaf;  // For later keys it is right only by chance.
      }
    }
  }
  const TreeReport report = CheckTree(*region.memory());
  EXPECT_TRUE(report.ok()) << Errors(report);
  EXPECT_EQ(report.keys, model.size());
  EXPECT_EQ(report.half_splits, 0u);
  std::vector<std::string> want;
  want.reserve(model.size());
  for (const auto& [key, value] : model) want.push_back(key);
  EXPECT_EQ(AllKeys(tree), want);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RandomOperations,
                         ::testing::Combine(::testing::Values(Shape{1024, 1, 8, 3}, Shape{1024, 8, 64, 256},
                                                              Shape{1024, 220, KeyBytesMax(1024), 2},
                                                              Shape{512, 1, KeyBytesMax(512), 2},
                                                              Shape{4096, 1, KeyBytesMax(4096), 2}),
                                            ::testing::Values(1, 2)));

// Checks the bound in limits.h: a cut exists for the worst mix of longest and shortest keys.
TEST(Meganode, LongestKeysAlwaysSplit) {
  for (uint32_t node_bytes : {512u, 1024u, 2048u, 4096u}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      TestRegion region({node_bytes, 4 << 20, 8 << 20});
      Meganode tree(region.memory());
      Random random(seed);
      const size_t longest = KeyBytesMax(node_bytes);
      for (int i = 0; i < 500; ++i) {
        // Keys that differ only in their last byte make the longest separators.
        std::string key(random.Below(4) == 0 ? 1 + random.Below(longest) : longest, 'k');
        key.back() = static_cast<char>(random.Next());
        if (random.Below(2) == 0) key[random.Below(key.size())] = static_cast<char>(random.Next());
        ASSERT_TRUE(Put(&tree, key, "v").ok());
      }
      const TreeReport report = CheckTree(*region.memory());
      ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << Errors(report);
    }
  }
}

TEST(Meganode, KeysInOrderFillTheirLeaves) {
  TestRegion region;
  Meganode tree(region.memory());
  for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(Put(&tree, fmt::format("key{:08}", i), "v").ok());
  const TreeReport report = CheckTree(*region.memory());
  ASSERT_TRUE(report.ok()) << Errors(report);
  EXPECT_GT(report.keys / report.leaves, 25u);
}

TEST(Meganode, FullOfNodesAnswersResourceExhaustedAndKeepsAllItHas) {
  TestRegion region({1024, 64 * 1024, 1 << 20});
  Meganode tree(region.memory());
  std::vector<std::string> stored;
  absl::Status status;
  for (int i = 0; status.ok(); ++i) {
    const std::string key = fmt::format("{:016x}", Mix64(static_cast<uint64_t>(i) + 1));
    status = Put(&tree, key, key).status();
    if (status.ok()) stored.push_back(key);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(status.message()).find("--meganode-bytes"), std::string::npos) << status;
  EXPECT_GT(stored.size(), 500u);
  for (const std::string& key : stored) ASSERT_EQ(Get(tree, key), key);
  const TreeReport report = CheckTree(*region.memory());
  EXPECT_TRUE(report.ok()) << Errors(report);
  EXPECT_TRUE(*Put(&tree, stored[0], "updates still work"));
}

TEST(Meganode, FullOfExtentsAnswersResourceExhaustedAndDeletesMakeRoom) {
  TestRegion region({1024, 1 << 20, 64 * 1024});
  Meganode tree(region.memory());
  const std::string value(10'000, 'v');
  int stored = 0;
  while (Put(&tree, "key" + std::to_string(stored), value).ok()) ++stored;
  ASSERT_GE(stored, 5);
  EXPECT_EQ(Put(&tree, "key0", value).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Get(tree, "key0"), value);
  EXPECT_TRUE(*tree.Delete("key1"));
  EXPECT_TRUE(*Put(&tree, "key0", value));
  const TreeReport report = CheckTree(*region.memory());
  EXPECT_TRUE(report.ok()) << Errors(report);
}

TEST(Meganode, RefusesBadSizesAndWrongCrcs) {
  TestRegion region({1024, 1 << 20, 4 << 20});
  Meganode tree(region.memory());
  EXPECT_EQ(Put(&tree, "", "v").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Put(&tree, std::string(KeyBytesMax(1024) + 1, 'k'), "v").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Put(&tree, "k", std::string(kValueBytesMax + 1, 'v')).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(tree.Put("k", "v", 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Put(&tree, std::string(KeyBytesMax(1024), 'k'), std::string(kValueBytesMax, 'v')).ok());
  EXPECT_EQ(Get(tree, std::string(KeyBytesMax(1024), 'k'))->size(), kValueBytesMax);
  EXPECT_EQ(tree.header().keys, 1u);
}

// A hint comes from a client and may be any pointer. It must do no harm.
TEST(Meganode, WrongHintsDoNoHarm) {
  TestRegion region;
  Meganode tree(region.memory());
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(Put(&tree, fmt::format("{:05}", i), "v").ok());
  Random random(3);
  for (int i = 0; i < 2000; ++i) {
    Pointer hint = Pointer::FromRaw(random.Next());
    if (i % 3 == 0) hint = Pointer(1, kRegionHeaderBytes + 1024 * random.Below(200));
    if (i % 3 == 1) hint = Pointer(1, random.Below(region.memory()->bytes() * 2));
    ASSERT_TRUE(*Put(&tree, fmt::format("{:05}", i), "w", hint));
  }
  const TreeReport report = CheckTree(*region.memory());
  EXPECT_TRUE(report.ok()) << Errors(report);
  EXPECT_EQ(report.keys, 2000u);
}

// Abandons the n-th split at each of its steps, for many n. Nothing stored before is lost, readers find all of it, and
// later writers finish the half splits that they pass.
TEST(Meganode, AbandonedSplitsLoseNothingAndAreFinishedByTheNextWriter) {
  uint64_t half_splits_seen = 0;
  for (const auto stop : {Meganode::SplitStep::kRightWritten, Meganode::SplitStep::kLeftWritten}) {
    for (int victim = 1; victim < 60; ++victim) {
      TestRegion region({512, 1 << 20, 1 << 20});
      Meganode tree(region.memory());
      std::map<std::string, std::string> model;
      Random random(static_cast<uint64_t>(victim));
      int steps = 0;
      bool abandoned = false;
      tree.set_split_observer([&](Meganode::SplitStep step) {
        if (step != stop || ++steps != victim) return true;
        abandoned = true;
        return false;
      });
      std::string lost;
      while (!abandoned) {
        const std::string key = fmt::format("{:016x}", random.Next());
        ASSERT_TRUE(Put(&tree, key, key).ok());
        if (abandoned)
          lost = key;
        else
          model[key] = key;
      }
      for (const auto& [key, value] : model) ASSERT_EQ(Get(tree, key), value) << "victim " << victim;
      half_splits_seen += CheckTree(*region.memory()).half_splits;
      // Writers pass everywhere, without hints.
      for (const auto& [key, value] : model) ASSERT_TRUE(Put(&tree, key, value).ok());
      ASSERT_TRUE(Put(&tree, lost, lost).ok());
      const TreeReport after = CheckTree(*region.memory());
      EXPECT_EQ(after.half_splits, 0u) << "victim " << victim;
      for (const auto& [key, value] : model) ASSERT_EQ(Get(tree, key), value);
    }
  }
  EXPECT_GT(half_splits_seen, 20u);
}

TEST(Meganode, BatchedSearchesAnswerLikeSingleOnes) {
  TestRegion region;
  Meganode tree(region.memory());
  Random random(5);
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(Put(&tree, std::to_string(random.Below(20'000)), "v").ok());
  std::vector<std::string> keys;
  keys.reserve(1000);
  for (int i = 0; i < 1000; ++i) keys.push_back(std::to_string(random.Below(20'000)));
  std::vector<Meganode::Lookup> lookups(keys.size());
  using Prefetches = Meganode::Prefetches;
  const Prefetches all[] = {Prefetches::kNothing, Prefetches::kPair, Prefetches::kFree};
  for (size_t i = 0; i < keys.size(); ++i) lookups[i] = {&tree, keys[i], {}, {}, all[i % std::size(all)]};
  Meganode::FindBatch(absl::MakeSpan(lookups));
  for (size_t i = 0; i < keys.size(); ++i) {
    const Meganode::Location want = *tree.Find(keys[i]);
    ASSERT_TRUE(lookups[i].status.ok());
    ASSERT_EQ(lookups[i].location.leaf, want.leaf);
    ASSERT_EQ(lookups[i].location.slot.has_value(), want.slot.has_value());
    if (want.slot.has_value()) {
      ASSERT_EQ(lookups[i].location.slot->extent, want.slot->extent);
    }
  }
}

TEST(MeganodeFormat, RefusesSizesThatDoNotWork) {
  std::vector<std::byte> bytes(1 << 20);
  RegionMemory memory(bytes.data(), bytes.size());
  const auto code = [&](RegionShape shape, uint32_t region = 1) {
    return Meganode::Format(&memory, region, shape).code();
  };
  EXPECT_EQ(code({1000, 64'000, 4096}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({256, 64 * 1024, 4096}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({1024, 2048, 4096}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({1024, 64 * 1024, 5000}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({1024, 64 << 20, 4096}), absl::StatusCode::kInvalidArgument);  // More than the memory.
  EXPECT_EQ(code({1024, 64 * 1024, 4096}, 0), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cell
