// Tests that a meganode takes the entries of its right neighbour, and that no reader is led astray by it.
#include "cell/tree/meganode_join.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/tree/meganode_split.h"
#include "cell/tree/test_reader.h"
#include "cell/tree/test_region.h"
#include "cell/tree/tree_check.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr uint32_t kNodeBytes = Reader::kNodeBytes;
constexpr RegionShape kShape = {kNodeBytes, 1'000 * kNodeBytes, 256 << 10};
constexpr uint64_t kBorder = 500;  // Keys from here on are in the right meganode.

absl::Status Put(Meganode* tree, std::string_view key, std::string_view value) {
  return tree->Put(key, value, Crc64(value, Crc64(key))).status();
}

MeganodeRange LeftRange(uint8_t tier = 0) { return {tier, "", KeyOf(kBorder), RootOf(2)}; }
MeganodeRange RightRange(uint8_t tier = 0) { return {tier, KeyOf(kBorder), KeyOf(10 * kBorder), RootOf(3)}; }

void ExpectSound(TestRegion* region, uint64_t keys) {
  const TreeReport report = CheckTree(*region->memory());
  EXPECT_TRUE(report.ok()) << report.errors[0];
  EXPECT_EQ(report.keys, keys);
  EXPECT_EQ(report.half_splits, 0u);
  EXPECT_EQ(report.nodes, region->memory()->header().nodes_used);
}

// Has two neighbours, each with some keys, and what they hold together. One value in eight is outside.
class Neighbours {
 public:
  Neighbours(uint64_t left_keys, uint64_t right_keys, RegionShape shape = kShape)
      : left_region_(shape, 1, LeftRange()),
        right_region_(shape, 2, RightRange()),
        left_(left_region_.memory()),
        right_(right_region_.memory()) {
    for (uint64_t i = 0; i < left_keys; ++i) PutAt(&left_, Spread(i, left_keys, 0));
    for (uint64_t i = 0; i < right_keys; ++i) PutAt(&right_, Spread(i, right_keys, kBorder));
  }

  void PutAt(Meganode* tree, uint64_t i) {
    const std::string value = fmt::format("{:0{}}", ++values_, i % 8 == 0 ? 300 : 1 + i % 40);
    ASSERT_TRUE(Put(tree, KeyOf(i), value).ok()) << i;
    model_[KeyOf(i)] = value;
  }
  void DeleteAt(Meganode* tree, uint64_t i) { EXPECT_EQ(*tree->Delete(KeyOf(i)), model_.erase(KeyOf(i)) != 0) << i; }
  // Checks that the left meganode holds what both did, and ends where the right one did.
  void ExpectJoined() {
    right_.Invalidate();
    ExpectSound(&left_region_, model_.size());
    EXPECT_EQ(left_.range().high, RightRange().high);
    EXPECT_EQ(left_.range().right, RightRange().right);
    EXPECT_EQ(left_.keys(), model_.size());
    uint64_t bytes = 0;
    for (const auto& [key, value] : model_) {
      bytes += key.size() + value.size();
      const absl::StatusOr<Meganode::Location> found = left_.Find(key);
      ASSERT_TRUE(found.ok() && found->pair.has_value()) << key;
      EXPECT_EQ(left_.ValueOf(*found->pair), value);
    }
    EXPECT_EQ(left_.data_bytes(), bytes);
    EXPECT_FALSE(left_.Find(KeyOf(10 * kBorder)).ok());
  }
  // Says what the left region uses, which a join that was called off must leave as it was.
  auto Usage() const {
    const RegionHeader& h = left_.header();
    return std::tuple(h.nodes_used, h.extents.bytes_used, h.keys, h.data_bytes, left_.range().right.raw());
  }
  // Returns how many valid nodes of the left region are for keys of the right one.
  uint64_t NodesPastBorder() {
    uint64_t nodes = 0;
    for (uint64_t i = 0; i < left_.header().nodes_end; ++i) {
      const Pointer node(1, left_.header().nodes_offset + i * kNodeBytes);
      NodeView view;
      if (NodeView::Parse({left_region_.memory()->at(node.offset()), kNodeBytes}, node, &view) == NodeFault::kNone) {
        nodes += view.low_key() >= KeyOf(kBorder);
      }
    }
    return nodes;
  }

  TestRegion left_region_;
  TestRegion right_region_;
  Meganode left_;
  Meganode right_;
  std::map<std::string, std::string> model_;

 private:
  static uint64_t Spread(uint64_t i, uint64_t count, uint64_t from) {
    // In an order of its own, so that leaves split in their middle.
    return from + (i * 7919 % count) * (kBorder / std::max<uint64_t>(count, 1)) % kBorder;
  }
  uint64_t values_ = 0;
};

absl::Status CopyAll(MeganodeJoin* join, size_t step = 10) {
  absl::StatusOr<bool> copied = false;
  while (copied.ok() && !*copied) copied = join->Copy(step);
  return copied.status();
}

// Writes that are prepared for the left meganode may need nodes, and cannot fail.
TEST(MeganodeJoin, LeavesTheNodesThatPreparedWritesMayNeed) {
  Neighbours n(100, 500);
  ASSERT_TRUE(MeganodeJoin::LeavesRoom(n.left_, 0));
  const uint64_t left = n.left_.header().node_count - n.left_.header().nodes_used;
  size_t ahead = 0;
  while (MeganodeJoin::LeavesRoom(n.left_, ahead + 1)) ++ahead;
  EXPECT_GT(ahead, left / 20);
  const auto before = n.Usage();
  {
    MeganodeJoin join(&n.left_, &n.right_);
    absl::StatusOr<bool> copied = false;
    while (copied.ok() && !*copied) copied = join.Copy(10, ahead);
    EXPECT_TRUE(absl::IsResourceExhausted(copied.status()));
  }
  EXPECT_EQ(n.Usage(), before);
  {
    MeganodeJoin join(&n.left_, &n.right_);
    ASSERT_TRUE(CopyAll(&join).ok());
    join.Finish();
  }
  n.ExpectJoined();
}

// While a join has set nodes aside, some of them have never been written: all their bytes are 0. That looks like an
// empty leaf for all keys. A client may name any node as the leaf of its key, also one that it has read before the
// region was recovered here.
TEST(MeganodeJoin, ANodeThatWasNeverWrittenIsNoLeafForAWrite) {
  Neighbours n(100, 100);
  const uint64_t written = n.left_.header().nodes_end;
  {
    MeganodeJoin join(&n.left_, &n.right_);
    ASSERT_TRUE(CopyAll(&join).ok());
    ASSERT_GT(n.left_.header().nodes_end, written);
    int of_zeros = 0;
    for (uint64_t i = 0; i < n.left_.header().nodes_end; ++i) {
      const Pointer hint(1, n.left_.header().nodes_offset + i * kNodeBytes);
      of_zeros += n.left_.Node(hint).self().null();
      const std::string value = fmt::format("with hint {}", i);
      ASSERT_TRUE(n.left_.Put(KeyOf(1), value, Crc64(value, Crc64(KeyOf(1))), hint).ok());
      EXPECT_EQ(n.left_.ValueOf(*n.left_.Find(KeyOf(1))->pair), value);
      EXPECT_TRUE(*n.left_.Delete(KeyOf(1), hint));
      EXPECT_FALSE(n.left_.Find(KeyOf(1))->pair.has_value());
    }
    EXPECT_GT(of_zeros, 0);
    EXPECT_EQ(n.left_.header().magic, kRegionMagic);
    join.Finish();
  }
  n.model_.erase(KeyOf(1));
  n.ExpectJoined();
}

class JoinOfSizes : public ::testing::TestWithParam<std::tuple<uint64_t, uint64_t>> {};
INSTANTIATE_TEST_SUITE_P(LeftAndRight, JoinOfSizes,
                         ::testing::Combine(::testing::Values(0, 1, 5, 100, 500),
                                            ::testing::Values(0, 1, 5, 100, 500)));

TEST_P(JoinOfSizes, TheLeftOneHoldsAll) {
  const auto [left_keys, right_keys] = GetParam();
  Neighbours n(left_keys, right_keys);
  {
    MeganodeJoin join(&n.left_, &n.right_);
    ASSERT_TRUE(CopyAll(&join).ok());
    join.Finish();
    EXPECT_TRUE(n.left_.unmerged());  // It may have copied small leaves.
  }
  n.ExpectJoined();
  // It takes writes on both sides of the border, and gives all of its nodes back.
  for (uint64_t i = 0; i < 10 * kBorder; i += 9) n.PutAt(&n.left_, i);
  ExpectSound(&n.left_region_, n.model_.size());
  while (!n.model_.empty()) {
    const std::string key = n.model_.begin()->first;
    ASSERT_TRUE(*n.left_.Delete(key));
    n.model_.erase(key);
  }
  ExpectSound(&n.left_region_, 0);
  EXPECT_LE(n.left_.header().nodes_used, 4u);
  EXPECT_EQ(n.left_.header().extents.bytes_used, 0u);
}

TEST(MeganodeJoin, TheLeftOneTakesWritesMeanwhile) {
  Neighbours n(100, 400);
  Random random(1);
  {
    MeganodeJoin join(&n.left_, &n.right_);
    absl::StatusOr<bool> copied = false;
    while (copied.ok() && !*copied) {
      copied = join.Copy(1);
      for (int i = 0; i < 20; ++i) {
        const uint64_t at = random.Below(kBorder);
        random.Below(3) == 0 ? n.DeleteAt(&n.left_, at) : n.PutAt(&n.left_, at);
      }
    }
    ASSERT_TRUE(copied.ok()) << copied.status();
    for (uint64_t i = 0; i < kBorder; ++i) n.DeleteAt(&n.left_, i);
    join.Finish();
  }
  n.ExpectJoined();
}

TEST(MeganodeJoin, PairsKeepTheirStamps) {
  Neighbours n(50, 50);
  std::map<std::string, uint64_t> stamps;
  for (uint64_t i = kBorder; i < 2 * kBorder; ++i) {
    const auto pair = n.right_.Find(KeyOf(i))->pair;
    if (pair.has_value()) stamps[KeyOf(i)] = pair->stamp;
  }
  for (int i = 0; i < 1'000; ++i) n.right_.NextStamp();
  const uint64_t last = n.right_.NextStamp();
  MeganodeJoin join(&n.left_, &n.right_);
  ASSERT_TRUE(CopyAll(&join).ok());
  join.Finish();
  ASSERT_EQ(stamps.size(), 50u);
  for (const auto& [key, stamp] : stamps) EXPECT_EQ(n.left_.Find(key)->pair->stamp, stamp);
  EXPECT_GT(n.left_.NextStamp(), last);
}

TEST(MeganodeJoin, WhatIsCopiedIsReported) {
  Neighbours n(50, 50);
  std::map<std::string, std::string> reported;
  n.left_.set_on_write([&](const PairStore::Write& write) {
    EXPECT_EQ(write.kind, RecordKind::kPut);
    reported[std::string(write.key)] = write.value;
  });
  MeganodeJoin join(&n.left_, &n.right_);
  ASSERT_TRUE(CopyAll(&join).ok());
  std::map<std::string, std::string> right(n.model_.lower_bound(KeyOf(kBorder)), n.model_.end());
  EXPECT_EQ(reported, right);
}

TEST(MeganodeJoin, OneThatIsCalledOffLeavesNothingBehind) {
  for (size_t steps = 0;; ++steps) {
    Neighbours n(100, 200);
    const auto before = n.Usage();
    bool copied = false;
    {
      MeganodeJoin join(&n.left_, &n.right_);
      for (size_t i = 0; i < steps; ++i) copied = *join.Copy(1);
      EXPECT_EQ(n.NodesPastBorder() > 0, steps > 0);
    }
    EXPECT_EQ(n.Usage(), before) << steps;
    EXPECT_EQ(n.NodesPastBorder(), 0u) << steps;
    uint64_t left = 0;
    for (const auto& [key, value] : n.model_) left += key < KeyOf(kBorder);
    ExpectSound(&n.left_region_, left);
    if (copied) break;
  }
}

TEST(MeganodeJoin, OneThatIsCalledOffCanBeTriedAgain) {
  Neighbours n(100, 200);
  for (int turn = 0; turn < 100; ++turn) {
    MeganodeJoin join(&n.left_, &n.right_);
    ASSERT_TRUE(CopyAll(&join).ok()) << turn;
  }
  {
    MeganodeJoin join(&n.left_, &n.right_);
    ASSERT_TRUE(CopyAll(&join).ok());
    join.Finish();
  }
  n.ExpectJoined();
}

TEST(MeganodeJoin, WhatDoesNotFitChangesNothing) {
  // Too few nodes, and too few extents.
  for (const RegionShape shape :
       {RegionShape{kNodeBytes, 64 * kNodeBytes, 256 << 10}, RegionShape{kNodeBytes, 1'000 * kNodeBytes, 24 << 10}}) {
    Neighbours n(120, 120, shape);
    const auto before = n.Usage();
    {
      MeganodeJoin join(&n.left_, &n.right_);
      EXPECT_EQ(CopyAll(&join).code(), absl::StatusCode::kResourceExhausted);
    }
    EXPECT_EQ(n.Usage(), before);
    EXPECT_EQ(n.NodesPastBorder(), 0u);
  }
}

TEST(MeganodeJoin, ExtentsOfALeafThatDoesNotFitAreFreed) {
  Neighbours n(0, 0, {kNodeBytes, 1'000 * kNodeBytes, 16 << 10});
  n.left_.set_inline_max(0);
  n.right_.set_inline_max(0);
  for (uint64_t i = 0; i < 150; ++i) n.PutAt(&n.left_, 2 * i + 1);
  for (uint64_t i = 0; i < 250; ++i) n.PutAt(&n.right_, kBorder + 2 * i + 1);
  const auto before = n.Usage();
  {
    MeganodeJoin join(&n.left_, &n.right_);
    EXPECT_EQ(CopyAll(&join).code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(n.Usage(), before);
}

TEST(MeganodeJoin, AnEmptyOneFitsBesideOneThatIsFull) {
  constexpr RegionShape kSmall{kNodeBytes, 100 * kNodeBytes, 256 << 10};
  Neighbours n(0, 0, kSmall);
  uint64_t i = 0;
  for (; i < kBorder && n.left_.fill() < 0.8; ++i) n.PutAt(&n.left_, i);
  ASSERT_TRUE(MeganodeJoin::Fits(n.left_, n.right_));
  const uint64_t nodes = n.left_.header().nodes_used;
  {
    MeganodeJoin join(&n.left_, &n.right_);
    ASSERT_TRUE(CopyAll(&join).ok());
    join.Finish();
  }
  n.ExpectJoined();
  EXPECT_LE(n.left_.header().nodes_used, nodes + 3);
  Neighbours other(0, 1, kSmall);
  for (i = 0; i < kBorder && other.left_.fill() < 0.8; ++i) other.PutAt(&other.left_, i);
  EXPECT_FALSE(MeganodeJoin::Fits(other.left_, other.right_));
}

TEST(MeganodeJoin, FitsIfBothFillLessThanHalfOfOne) {
  Neighbours n(0, 0, {kNodeBytes, 100 * kNodeBytes, 256 << 10});
  EXPECT_TRUE(MeganodeJoin::Fits(n.left_, n.right_));
  const auto nodes = [&] { return n.left_.header().nodes_used + n.right_.header().nodes_used; };
  for (uint64_t i = 0; nodes() < 25; ++i) n.PutAt(&n.left_, i);
  for (uint64_t i = kBorder; nodes() < 50; ++i) {
    EXPECT_TRUE(MeganodeJoin::Fits(n.left_, n.right_));
    n.PutAt(&n.right_, i);
  }
  EXPECT_FALSE(MeganodeJoin::Fits(n.left_, n.right_));
}

TEST(MeganodeJoin, APairThatWasDamagedInMemoryIsNotCopied) {
  Neighbours n(50, 200);
  const auto before = n.Usage();
  const auto leaf = n.right_.LeafOf(KeyOf(2 * kBorder - 1));
  // The stamp, which only the leaf's CRC covers.
  const auto slot = static_cast<size_t>(leaf->slot(0) - n.right_region_.memory()->base());
  n.right_region_.memory()->base()[slot + offsetof(LeafSlot, stamp)] ^= std::byte{1};
  {
    MeganodeJoin join(&n.left_, &n.right_);
    EXPECT_EQ(CopyAll(&join).code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(n.Usage(), before);
}

TEST(MeganodeJoin, WhatWasJoinedCanBeSplitAndJoinedAgain) {
  Neighbours n(400, 0);
  auto right = std::make_unique<Meganode>(n.right_region_.memory());
  for (int turn = 0; turn < 100; ++turn) {
    {
      MeganodeJoin join(&n.left_, right.get());
      ASSERT_TRUE(CopyAll(&join).ok());
      join.Finish();
    }
    n.ExpectJoined();
    const std::string key = *MeganodeSplit::ChooseKey(n.left_);
    MeganodeRange range = n.left_.range();
    range.low = key;
    ASSERT_TRUE(Meganode::Format(n.right_region_.memory(), 2, kShape, range).ok());
    right = std::make_unique<Meganode>(n.right_region_.memory());
    MeganodeSplit split(&n.left_, right.get(), key);
    absl::StatusOr<bool> copied = false;
    while (copied.ok() && !*copied) copied = split.Copy(50);
    ASSERT_TRUE(copied.ok() && split.Finish().ok());
    while (!split.Reclaim(10)) {
    }
    const TreeReport left = CheckTree(*n.left_region_.memory());
    ASSERT_TRUE(left.ok()) << left.errors[0];
    EXPECT_EQ(left.nodes, left.nodes_used) << turn;
    EXPECT_LT(left.nodes, 100u) << turn;
  }
}

TEST(MeganodeJoin, TheLastLeafIsFoundThoughItsParentDoesNotKnowIt) {
  Neighbours n(100, 100);
  n.left_.set_split_observer([](Meganode::SplitStep step) { return step != Meganode::SplitStep::kLeftWritten; });
  for (uint64_t i = 1; CheckTree(*n.left_region_.memory()).half_splits == 0; ++i) n.PutAt(&n.left_, kBorder - i);
  n.left_.set_split_observer(nullptr);
  {
    MeganodeJoin join(&n.left_, &n.right_);
    ASSERT_TRUE(CopyAll(&join).ok());
    join.Finish();
  }
  const TreeReport report = CheckTree(*n.left_region_.memory());
  EXPECT_TRUE(report.ok()) << report.errors[0];
  EXPECT_EQ(report.half_splits, 1u);
  n.PutAt(&n.left_, kBorder - 1);  // What passes it finishes the split.
  n.ExpectJoined();
}

// The keys of the left one share a prefix that those of the right one do not have.
TEST(MeganodeJoin, NodesThatAreExtendedMayLoseSlots) {
  const auto key = [](uint64_t i) { return std::string(80, 'p') + fmt::format("{:04}", i); };
  uint64_t half_splits = 0;
  for (const uint64_t right_keys : {1, 200}) {
    TestRegion left_region({kNodeBytes, 2'000 * kNodeBytes, 256 << 10}, 1, {0, key(0), key(1'000), RootOf(2)});
    TestRegion right_region(kShape, 2, {0, key(1'000), "z", RootOf(3)});
    Meganode left(left_region.memory());
    Meganode right(right_region.memory());
    for (uint64_t i = 1'000; i > 0; --i) ASSERT_TRUE(Put(&left, key(i - 1), "some value").ok());
    for (uint64_t i = 0; i < right_keys; ++i) ASSERT_TRUE(Put(&right, key(1'000 + i), "value").ok());
    {
      MeganodeJoin join(&left, &right);
      ASSERT_TRUE(CopyAll(&join).ok());
      join.Finish();
    }
    const TreeReport report = CheckTree(*left_region.memory());
    EXPECT_TRUE(report.ok()) << report.errors[0];
    half_splits += report.half_splits;
    for (uint64_t i = 0; i < 1'000 + right_keys; ++i) {
      const absl::StatusOr<Meganode::Location> found = left.Find(key(i));
      ASSERT_TRUE(found.ok() && found->pair.has_value()) << i;
    }
  }
  EXPECT_GT(half_splits, 0u);
}

TEST(MeganodeJoin, RoutesAreJoined) {
  for (const auto& [left_routes, right_routes] : {std::pair(1, 1), std::pair(100, 1), std::pair(1, 100)}) {
    TestRegion left_region(kShape, 1, LeftRange(1));
    TestRegion right_region(kShape, 2, RightRange(1));
    Meganode left(left_region.memory());
    Meganode right(right_region.memory());
    ASSERT_TRUE(left.InsertRoute("", RootOf(10)).ok());
    ASSERT_TRUE(right.InsertRoute(KeyOf(kBorder), RootOf(1000)).ok());
    for (int i = 1; i < left_routes; ++i) ASSERT_TRUE(left.InsertRoute(KeyOf(i), RootOf(10 + i)).ok());
    for (int i = 1; i < right_routes; ++i) ASSERT_TRUE(right.InsertRoute(KeyOf(kBorder + i), RootOf(1000 + i)).ok());
    {
      MeganodeJoin called_off(&left, &right);
      ASSERT_TRUE(CopyAll(&called_off).ok());
    }
    ExpectSound(&left_region, left_routes);
    {
      MeganodeJoin join(&left, &right);
      ASSERT_TRUE(CopyAll(&join).ok());
      join.Finish();
    }
    ExpectSound(&left_region, left_routes + right_routes);
    for (int i = 0; i < right_routes; ++i) {
      EXPECT_EQ(left.RouteOf(KeyOf(kBorder + i)).next, RootOf(1000 + i));
    }
  }
}

class JoinsUnderReaders : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, JoinsUnderReaders, ::testing::Range(uint64_t{1}, uint64_t{17}));

// Region 1 takes its neighbour in and is split again, over and over. Some joins are called off.
TEST_P(JoinsUnderReaders, EachFindsWhatWasThereMeanwhile) {
  constexpr uint32_t kRegions = 14;
  std::vector<std::unique_ptr<TestRegion>> regions;
  std::vector<const RegionMemory*> memories;
  for (uint32_t region = 1; region <= kRegions; ++region) {
    regions.push_back(std::make_unique<TestRegion>(kShape, region));
    memories.push_back(regions.back()->memory());
  }
  const auto format = [&](uint32_t region, const MeganodeRange& range) {
    RegionMemory* const memory = regions[region - 1]->memory();
    CELL_CHECK(Meganode::Format(memory, region, kShape, range).ok());
    return std::make_unique<Meganode>(memory);
  };
  const auto left = format(1, {0, "", KeyOf(kBorder), RootOf(2)});
  auto right = format(2, {0, KeyOf(kBorder), std::nullopt, Pointer()});
  Random random(GetParam());
  History history;
  const std::vector<std::unique_ptr<Reader>> readers = NewReaders(memories, &history, GetParam());
  const auto step = [&] {
    for (const auto& reader : readers) {
      if (random.Below(16) == 0) reader->Step();
    }
  };
  for (const auto& region : regions) region->memory()->set_after_step(step);

  const auto write = [&](bool right_too) {
    const std::string key = KeyOf(random.Below(Reader::kKeys));
    Meganode* const tree = left->Covers(key) ? left.get() : right.get();
    if (tree == right.get() && !right_too) return;
    const bool stores = random.Below(10) < 6;
    const size_t n = history.Begin(key, stores);
    if (stores) {
      ASSERT_TRUE(Put(tree, key, std::to_string(n)).ok());
    } else {
      ASSERT_TRUE(tree->Delete(key).ok());
    }
    history.End(key);
  };
  const auto copy = [&](auto* of, bool right_too) {
    absl::StatusOr<bool> copied = false;
    while (copied.ok() && !*copied) {
      copied = of->Copy(1 + random.Below(40));
      for (uint64_t i = random.Below(20); i > 0; --i) write(right_too);
    }
    EXPECT_TRUE(copied.ok()) << copied.status();
  };
  int joins = 0;
  for (uint32_t next = 3; next <= kRegions && !HasFailure();) {
    for (int i = 0; i < 800; ++i) write(true);
    {
      MeganodeJoin join(left.get(), right.get());
      copy(&join, false);
      if (random.Below(3) == 0) continue;
      join.Finish();
      right->Invalidate();
    }
    ++joins;
    for (int i = 0; i < 400; ++i) write(false);
    const std::optional<std::string> key = MeganodeSplit::ChooseKey(*left);
    ASSERT_TRUE(key.has_value());
    right = format(next++, {0, *key, std::nullopt, Pointer()});
    MeganodeSplit split(left.get(), right.get(), *key);
    copy(&split, true);
    ASSERT_TRUE(split.Finish().ok());
    while (!split.Reclaim(10)) {
    }
  }
  for (const auto& region : regions) region->memory()->set_after_step({});
  const TreeReport report = CheckTree(*regions[0]->memory());
  EXPECT_TRUE(report.ok()) << report.errors[0];
  uint64_t found = 0;
  for (const auto& reader : readers) found += reader->found();
  EXPECT_GT(found, 5'000u);
  EXPECT_EQ(joins, 12);
}

}  // namespace
}  // namespace cell
