#include "cell/tree/meganode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
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
  if (!location->pair.has_value()) return std::nullopt;
  const LeafPair& pair = *location->pair;
  if (!pair.is_inline) {
    CELL_CHECK_EQ(Crc64(ConstBytes(tree.Extent(pair.outside.extent), pair.pair_bytes())), pair.outside.crc);
  }
  return std::string(tree.ValueOf(pair));
}

uint64_t StampOf(const Meganode& tree, std::string_view key) { return tree.Find(key)->pair->stamp; }

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
  TestRegion region({shape.node_bytes, 32 << 20, 16 << 20});
  Meganode tree(region.memory());
  Random random(seed);
  std::map<std::string, std::string> model;
  std::map<std::string, uint64_t> stamps;  // The last one that each key had, also of those that were deleted.
  Pointer hint;
  const size_t inline_bytes_max = InlineBytesMax(shape.node_bytes);
  for (int i = 0; i < 20'000; ++i) {
    if (i % 50 == 0) {
      const size_t settings[] = {0, 64, 128, inline_bytes_max, random.Below(inline_bytes_max + 1)};
      tree.set_inline_max(std::min(settings[random.Below(std::size(settings))], inline_bytes_max));
    }
    std::string key(shape.key_bytes_min + random.Below(shape.key_bytes_max - shape.key_bytes_min + 1), '\0');
    for (char& c : key) c = static_cast<char>(random.Below(shape.alphabet) * 255 / (shape.alphabet - 1));
    switch (random.Below(4)) {
      case 0:
      case 1: {
        std::string value(random.Below(random.Below(4) == 0 ? 2 * inline_bytes_max : 100), static_cast<char>(i));
        if (random.Below(4) == 0 && model.contains(key)) value = model[key];
        const absl::StatusOr<bool> replaced = Put(&tree, key, value, hint);
        ASSERT_TRUE(replaced.ok()) << replaced.status();
        ASSERT_EQ(*replaced, model.contains(key));
        ASSERT_EQ(tree.Find(key)->pair->is_inline, key.size() + value.size() <= tree.inline_max());
        ASSERT_GT(StampOf(tree, key), stamps[key]);
        stamps[key] = StampOf(tree, key);
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
          ASSERT_EQ(StampOf(tree, key), stamps[key]);
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
  for (const auto& [key, value] : model) {
    ASSERT_EQ(Get(tree, key), value);
    ASSERT_EQ(StampOf(tree, key), stamps[key]);
  }
  EXPECT_EQ(report.inline_pairs + report.extents, report.keys);
  if (shape.key_bytes_max < 100) {
    EXPECT_GT(report.inline_pairs, 0u);
  }
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
        // Outside pairs, and the largest inline ones, with values that grow and shrink in their leaves.
        tree.set_inline_max(random.Below(3) == 0 ? 0 : InlineBytesMax(node_bytes));
        const size_t rest = InlineBytesMax(node_bytes) - std::min(InlineBytesMax(node_bytes), key.size());
        const std::string value(random.Below(2) == 0 ? rest : random.Below(rest + 2), 'v');
        if (random.Below(3) == 0) key.resize(1 + random.Below(6));
        ASSERT_TRUE(Put(&tree, key, value).ok());
        ASSERT_EQ(Get(tree, key), value);
      }
      const TreeReport report = CheckTree(*region.memory());
      ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << Errors(report);
      EXPECT_GT(report.inline_pairs, 0u);
      EXPECT_GT(report.extents, 0u);
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

TEST(Meganode, APairGoesBackAndForthOverTheLimit) {
  TestRegion region({512, 1 << 20, 1 << 20});
  Meganode tree(region.memory());
  tree.set_inline_max(64);
  const auto key = [](int i) { return fmt::format("key{:05}", i); };  // 8 bytes, so that values of 56 are inline.
  std::map<std::string, std::string> model;
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 200; ++i) {
      const size_t bytes = (round + i) % 4 == 0 ? 57 : (round + i) % 4 == 1 ? 0 : (round + i) % 4 == 2 ? 56 : 300;
      const std::string value(bytes, static_cast<char>('a' + round % 26));
      ASSERT_EQ(*Put(&tree, key(i), value), round > 0);
      ASSERT_EQ(tree.Find(key(i))->pair->is_inline, bytes <= 56);
      model[key(i)] = value;
    }
    const TreeReport report = CheckTree(*region.memory());
    ASSERT_TRUE(report.ok()) << Errors(report);
    ASSERT_EQ(report.inline_pairs, 100u);
    ASSERT_EQ(report.extents, 100u) << "extents of pairs that have moved inline are freed";
    for (const auto& [k, value] : model) ASSERT_EQ(Get(tree, k), value);
  }
  for (const auto& [k, value] : model) ASSERT_TRUE(*tree.Delete(k));
  EXPECT_EQ(tree.data_bytes(), 0u);
  EXPECT_EQ(tree.extents().blocks, 0u);
}

TEST(Meganode, WithoutInlinePairsItIsTheThesisLayout) {
  TestRegion region;
  Meganode tree(region.memory());
  tree.set_inline_max(0);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(Put(&tree, std::to_string(i), i % 2 == 0 ? "" : "v").ok());
  const TreeReport report = CheckTree(*region.memory());
  EXPECT_EQ(report.inline_pairs, 0u);
  EXPECT_EQ(report.extents, 1000u);
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
  EXPECT_TRUE(*Put(&tree, stored[0], "updates work"));
  // A pair that grows may split its leaf, and is refused as a new one is. Nothing has changed then.
  const std::string longer(100, 'x');
  uint64_t refused = 0;
  for (const std::string& key : stored) {
    const std::string before = *Get(tree, key);
    const uint64_t stamp = StampOf(tree, key);
    const absl::Status grown = Put(&tree, key, longer).status();
    if (grown.ok()) continue;
    ASSERT_EQ(grown.code(), absl::StatusCode::kResourceExhausted);
    ASSERT_EQ(Get(tree, key), before);
    ASSERT_EQ(StampOf(tree, key), stamp);
    ++refused;
  }
  EXPECT_GT(refused, stored.size() / 2);
  EXPECT_TRUE(CheckTree(*region.memory()).ok());
}

// Prepare reserves what Commit needs, whatever is applied in between. Random writes are prepared while others wait, in
// regions that are full or nearly so, with pairs that grow, shrink and change their place.
TEST(Meganode, WhatWasPreparedIsCommitted) {
  uint64_t committed = 0, refused = 0, replaced_when_full = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    TestRegion region({512, (20 + random.Below(40)) * 512, 64 << 10});
    Meganode tree(region.memory());
    struct Waiting {
      std::string key;
      std::optional<std::string> value;  // nullopt: a delete.
      PairStore::Prepared prepared;
    };
    std::vector<Waiting> waiting;
    std::map<std::string, std::string> model;
    for (int i = 0; i < 6000; ++i) {
      if (waiting.size() < 12 && random.Below(2) == 0) {
        tree.set_inline_max(random.Below(4) == 0 ? 0 : InlineBytesMax(512));
        Waiting write{fmt::format("{:04}", random.Below(600)), std::nullopt, {}};
        if (random.Below(12) != 0) {
          write.value = std::string(random.Below(random.Below(3) == 0 ? 120 : 30), static_cast<char>(i));
          const uint64_t crc = Crc64(*write.value, Crc64(write.key));
          const bool of_key =
              std::any_of(waiting.begin(), waiting.end(), [&](const Waiting& one) { return one.key == write.key; });
          auto prepared = tree.Prepare(write.key, *write.value, crc, {waiting.size(), true});
          if (!prepared.ok() && !of_key) {
            prepared = tree.Prepare(write.key, *write.value, crc, {waiting.size(), false});
            replaced_when_full += prepared.ok();
          }
          if (!prepared.ok()) {
            ASSERT_EQ(prepared.status().code(), absl::StatusCode::kResourceExhausted);
            ++refused;
            continue;
          }
          write.prepared = *prepared;
        }
        waiting.push_back(std::move(write));
      } else if (!waiting.empty()) {
        const Waiting write = std::move(waiting.front());
        waiting.erase(waiting.begin());
        if (random.Below(20) == 0 && write.value.has_value()) {
          tree.Discard(write.prepared);
        } else if (write.value.has_value()) {
          ASSERT_EQ(tree.Commit(write.prepared, write.key), model.contains(write.key));
          model[write.key] = *write.value;
          ++committed;
        } else {
          ASSERT_EQ(*tree.CommitDelete(write.key), model.erase(write.key) == 1);
        }
      }
    }
    for (const Waiting& write : waiting) {
      if (write.value.has_value()) tree.Discard(write.prepared);
    }
    for (const auto& [key, value] : model) ASSERT_EQ(Get(tree, key), value);
    const TreeReport report = CheckTree(*region.memory());
    ASSERT_TRUE(report.ok()) << Errors(report);
    ASSERT_EQ(report.keys, model.size());
  }
  EXPECT_GT(committed, 10'000u);
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(replaced_when_full, 500u);
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

// An operator would otherwise make room for a region that has it.
TEST(Meganode, WithADamagedAllocatorAPutIsDataLossAndNotRefusedForWantOfRoom) {
  TestRegion region({1024, 1 << 20, 1 << 20});
  Meganode tree(region.memory());
  tree.set_inline_max(0);
  ASSERT_TRUE(Put(&tree, "key", "value").ok());
  const uint64_t extent = tree.Find("key")->pair->outside.extent.offset();
  region.memory()->StoreWord(extent - sizeof(uint64_t), 3);
  ASSERT_TRUE(*tree.Delete("key"));  // It looks at the word.
  const absl::Status status = Put(&tree, "other", "value").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(status.message(), ::testing::HasSubstr("region 1"));
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

// Inserts keys in order with `insert`, and abandons the second split of a node: the first one raises the root, and
// leaves no half split. Returns the last key, which is in the right half.
std::string AbandonASplit(Meganode* tree, const std::function<absl::StatusOr<bool>(const std::string&)>& insert) {
  int splits = 0;
  tree->set_split_observer(
      [&](Meganode::SplitStep step) { return step != Meganode::SplitStep::kLeftWritten || ++splits < 2; });
  std::string key;
  int keys = 0;
  while (splits < 2) {
    key = fmt::format("{:05}", keys++);
    CELL_CHECK(insert(key).ok());
  }
  tree->set_split_observer(nullptr);
  return key;
}

TEST(Meganode, ADeleteFinishesAHalfSplitThatItPasses) {
  TestRegion region({512, 1 << 20, 1 << 20});
  Meganode tree(region.memory());
  const std::string last = AbandonASplit(&tree, [&](const std::string& key) { return Put(&tree, key, "value"); });
  ASSERT_EQ(CheckTree(*region.memory()).half_splits, 1u);
  EXPECT_FALSE(*tree.Delete(last + "0"));
  EXPECT_EQ(CheckTree(*region.memory()).half_splits, 0u);
  EXPECT_EQ(Get(tree, last), "value");
}

TEST(MeganodeOfRoutes, ARouteFinishesAHalfSplitThatItPasses) {
  TestRegion region({512, 1 << 20, 1 << 20}, 1, {1, "", std::nullopt, {}});
  Meganode tree(region.memory());
  ASSERT_TRUE(tree.InsertRoute("", RootOf(2)).ok());
  const std::string last =
      AbandonASplit(&tree, [&](const std::string& key) { return tree.InsertRoute(key, RootOf(3)); });
  ASSERT_EQ(CheckTree(*region.memory()).half_splits, 1u);
  EXPECT_TRUE(*tree.InsertRoute(last, RootOf(3)));
  EXPECT_EQ(CheckTree(*region.memory()).half_splits, 0u);
  EXPECT_EQ(tree.RouteOf(last).next, RootOf(3));
}

TEST(Meganode, BatchedSearchesAnswerLikeSingleOnes) {
  TestRegion region;
  Meganode tree(region.memory());
  Random random(5);
  for (int i = 0; i < 5000; ++i) {
    tree.set_inline_max(i % 2 == 0 ? 0 : kInlineMaxDefault);
    ASSERT_TRUE(Put(&tree, std::to_string(random.Below(20'000)), "v").ok());
  }
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
    ASSERT_EQ(lookups[i].location.pair.has_value(), want.pair.has_value());
    if (want.pair.has_value()) {
      ASSERT_EQ(lookups[i].location.pair->stamp, want.pair->stamp);
      ASSERT_EQ(lookups[i].location.pair->is_inline, want.pair->is_inline);
      ASSERT_EQ(tree.ValueOf(*lookups[i].location.pair), tree.ValueOf(*want.pair));
    }
  }
}

TEST(Meganode, InlinePairsHaveALimit) {
  EXPECT_TRUE(CheckInlineMax(0, 1024).ok());
  EXPECT_TRUE(CheckInlineMax(218, 1024).ok());
  const absl::Status status = CheckInlineMax(219, 1024);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("up to 218 bytes"), std::string::npos) << status;
  TestRegion region({512, 1 << 20, 1 << 20});
  EXPECT_EQ(Meganode(region.memory(), {.inline_max = 10'000}).inline_max(), InlineBytesMax(512));
}

// The error of a migration that meets another release says what to do.
TEST(MeganodeFormat, ARegionOfAnotherLayoutIsRefusedByName) {
  const RegionShape shape{1024, 64 << 10, 64 << 10};
  TestRegion region(shape);
  RegionHeader header = region.memory()->header();
  EXPECT_TRUE(Meganode::CheckHeader(header, 1, shape).ok());
  header.layout_version = 1;
  const absl::Status refused = Meganode::CheckHeader(header, 1, shape);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("region 1 has layout version 1"));
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("cellctl backup"));
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

// Returns how many of the keys a reader finds in a leaf, or nullopt if the leaf is being written.
std::optional<size_t> FoundIn(const Meganode& tree, Pointer leaf, const std::vector<std::string>& keys) {
  const absl::StatusOr<NodeView> view = tree.VerifiedNode(leaf);
  if (!view.ok()) return std::nullopt;
  return std::count_if(keys.begin(), keys.end(),
                       [&](const std::string& key) { return view->Covers(key) && view->Find(key).has_value(); });
}

// Whatever a reader finds between two stores of the writer, it is all keys that go together, or none.
TEST(Meganode, KeysOfOneLeafAreDeletedTogether) {
  for (const size_t value_bytes : {10, 300}) {  // Inline, and outside.
    TestRegion region;
    Meganode tree(region.memory());
    const std::string value(value_bytes, 'v');
    for (int i = 0; i < 1'000; ++i) ASSERT_TRUE(Put(&tree, "key" + std::to_string(1'000 + i), value).ok());
    const NodeView leaf = *tree.LeafOf("key1500");
    const Pointer self = leaf.self();
    std::vector<std::string> keys;
    for (int i = 2; i < leaf.count(); ++i) keys.push_back(leaf.key(i));
    ASSERT_GT(keys.size(), 5u);
    const uint64_t used = tree.extents().bytes_used;
    uint64_t all = 0, none = 0;
    region.memory()->set_after_step([&] {
      const std::optional<size_t> found = FoundIn(tree, self, keys);
      if (!found.has_value()) return;
      EXPECT_TRUE(*found == 0 || *found == keys.size()) << *found;
      ++(*found == 0 ? none : all);
    });
    std::vector<std::string> asked = keys;  // Keys that are not stored do not count.
    asked.push_back(keys.back() + "x");
    std::vector<std::string> logged;
    int changed = 0;
    tree.set_on_write([&](const PairStore::Write& write) {
      EXPECT_EQ(write.kind, RecordKind::kDelete);
      logged.emplace_back(write.key);
    });
    tree.set_on_change([&](std::string_view) { ++changed; });
    const absl::StatusOr<uint64_t> deleted = tree.DeleteAll(asked);
    region.memory()->set_after_step({});
    ASSERT_TRUE(deleted.ok()) << deleted.status();
    EXPECT_EQ(*deleted, keys.size());
    EXPECT_EQ(logged, keys);
    EXPECT_EQ(changed, static_cast<int>(keys.size()));
    EXPECT_GT(none, 0u);
    if (value_bytes > 200) {
      EXPECT_LE(tree.extents().bytes_used, used - keys.size() * value_bytes);
    }
    const TreeReport report = CheckTree(*region.memory());
    EXPECT_TRUE(report.ok()) << Errors(report);
    EXPECT_EQ(report.keys, 1'000 - keys.size());
  }
}

// Each leaf is written once, whatever it holds of the keys, and what is left small is merged.
TEST(Meganode, DeletesKeysOfManyLeavesAndMergesThem) {
  TestRegion region;
  Meganode tree(region.memory());
  std::vector<std::string> keys;
  for (int i = 0; i < 5'000; ++i) {
    keys.push_back("key" + std::to_string(10'000 + i));
    ASSERT_TRUE(Put(&tree, keys.back(), "value").ok());
  }
  const uint64_t full = tree.header().nodes_used;
  const std::vector<std::string> middle(keys.begin() + 100, keys.end() - 100);
  EXPECT_EQ(*tree.CommitDeleteAll(middle), middle.size());
  EXPECT_EQ(*tree.CommitDeleteAll(middle), 0u);
  const TreeReport report = CheckTree(*region.memory());
  EXPECT_TRUE(report.ok()) << Errors(report);
  EXPECT_EQ(report.keys, 200u);
  EXPECT_LT(tree.header().nodes_used, full / 8);
  EXPECT_EQ(*tree.DeleteAll({}), 0u);
  EXPECT_EQ(tree.DeleteAll({std::string()}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(tree.Find(keys[0])->pair.has_value() && tree.Find(keys.back())->pair.has_value());
}

}  // namespace
}  // namespace cell
