#include "cell/tree/meganode_split.h"

#include <gtest/gtest.h>

#include <map>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/tree/test_region.h"
#include "cell/tree/tree_check.h"

namespace cell {
namespace {

constexpr RegionShape kShape = {512, 512 << 10, 1 << 20};

uint64_t CrcOf(std::string_view key, std::string_view value) { return Crc64(value, Crc64(key)); }

// Searches several meganodes over images of their nodes, as a client does.
class Forest {
 public:
  explicit Forest(std::vector<TestRegion*> regions) : regions_(std::move(regions)) {}

  std::optional<std::string> Get(std::string_view key, uint64_t* stamp = nullptr) const {
    Pointer root = RootOf(1);
    for (int hops = 0; hops < 100; ++hops) {
      Walk walk(key, root);
      Walk::Step step = Walk::Step::kRead;
      NodeView view;
      while (step == Walk::Step::kRead) {
        const NodeFault fault = NodeView::Parse(Image(walk.wants()), walk.wants(), &view);
        step = fault == NodeFault::kNone ? walk.Visit(view) : walk.Failed(fault);
      }
      if (step == Walk::Step::kElsewhere) {
        root = walk.wants();
        continue;
      }
      CELL_CHECK_EQ(step, Walk::Step::kArrived);
      const std::optional<int> slot = view.Find(key);
      if (!slot.has_value()) return std::nullopt;
      const LeafPair pair = view.pair(*slot);
      if (stamp != nullptr) *stamp = pair.stamp;
      if (pair.is_inline) return std::string(pair.value);
      const Pointer at = pair.outside.extent;
      const auto extent = AsText(ConstBytes(Memory(at)->at(at.offset()), pair.pair_bytes()));
      CELL_CHECK_EQ(Crc64(extent), pair.outside.crc);
      return std::string(extent.substr(key.size()));
    }
    CELL_CHECK(false);
  }

 private:
  RegionMemory* Memory(Pointer pointer) const { return regions_.at(pointer.region() - 1)->memory(); }
  ConstBytes Image(Pointer node) const { return {Memory(node)->at(node.offset()), Memory(node)->header().node_bytes}; }
  std::vector<TestRegion*> regions_;
};

class MeganodeSplitTest : public ::testing::Test {
 protected:
  void Put(int i, std::string value) {
    const std::string key = fmt::format("{:06}", i);
    Meganode* tree = right_ != nullptr && right_open_ && right_->Covers(key) ? right_.get() : &left_;
    const absl::StatusOr<bool> existed = tree->Put(key, value, CrcOf(key, value));
    ASSERT_TRUE(existed.ok()) << existed.status();
    EXPECT_EQ(*existed, model_.contains(key));
    model_[key] = std::move(value);
    const uint64_t stamp = tree->Find(key)->pair->stamp;
    ASSERT_GT(stamp, stamps_[key]) << key;
    stamps_[key] = stamp;
  }
  void Delete(int i) {
    const std::string key = fmt::format("{:06}", i);
    Meganode* tree = right_ != nullptr && right_open_ && right_->Covers(key) ? right_.get() : &left_;
    EXPECT_EQ(*tree->Delete(key), model_.erase(key) != 0);
  }
  void Begin() {
    const std::optional<std::string> key = MeganodeSplit::ChooseKey(left_);
    ASSERT_TRUE(key.has_value());
    Meganode::Range range = left_.range();
    range.low = *key;
    split_.reset();
    right_.reset();
    right_region_ = std::make_unique<TestRegion>(kShape, 2, range);
    right_ = std::make_unique<Meganode>(right_region_->memory());
    right_->set_inline_max(right_inline_max_);
    split_ = std::make_unique<MeganodeSplit>(&left_, right_.get(), *key);
  }
  absl::Status CopyAll() {
    absl::StatusOr<bool> copied = false;
    while (copied.ok() && !*copied) copied = split_->Copy(50);
    return copied.status();
  }
  // Flips a bit in the left meganode's memory, behind its back.
  void Flip(std::string_view bytes) {
    RegionMemory* const memory = left_region_.memory();
    memory->base()[reinterpret_cast<const std::byte*>(bytes.data()) - memory->base()] ^= std::byte{1};
  }
  void ExpectModel() {
    const Forest forest(right_region_ == nullptr ? std::vector<TestRegion*>{&left_region_}
                                                 : std::vector<TestRegion*>{&left_region_, right_region_.get()});
    for (int i = 0; i < 5000; ++i) {
      const std::string key = fmt::format("{:06}", i);
      const auto it = model_.find(key);
      uint64_t stamp = 0;
      ASSERT_EQ(forest.Get(key, &stamp), it == model_.end() ? std::nullopt : std::optional<std::string>(it->second))
          << key;
      if (it != model_.end()) {
        ASSERT_EQ(stamp, stamps_[key]) << key;
      }
    }
  }
  void ExpectSound(uint64_t half_splits_max = 0) {
    const TreeReport left = CheckTree(*left_region_.memory());
    const TreeReport right = CheckTree(*right_region_->memory());
    ASSERT_TRUE(left.ok()) << left.errors[0];
    ASSERT_TRUE(right.ok()) << right.errors[0];
    EXPECT_LE(left.half_splits, half_splits_max);
    EXPECT_EQ(left.nodes, left.nodes_used);
    EXPECT_EQ(right.nodes, right.nodes_used);
    const ClusterReport both = CheckNeighbours({left, right});
    ASSERT_TRUE(both.errors.empty()) << both.errors[0];
    EXPECT_EQ(both.keys, model_.size());
  }

  TestRegion left_region_{kShape};
  Meganode left_{left_region_.memory()};
  std::unique_ptr<TestRegion> right_region_;
  std::unique_ptr<Meganode> right_;
  bool right_open_ = false;
  std::map<std::string, std::string> model_;
  std::map<std::string, uint64_t> stamps_;  // The last one of each key, wherever it was.
  size_t right_inline_max_ = 64;
  std::unique_ptr<MeganodeSplit> split_;
};

TEST_F(MeganodeSplitTest, HalfGoesToTheNewMeganode) {
  for (int i = 0; i < 3000; ++i) Put(i * 1009 % 3000, fmt::format("value {}", i));
  const uint64_t before = left_.header().nodes_used;
  Begin();
  while (!*split_->Copy(100)) ExpectModel();
  ASSERT_TRUE(split_->Finish().ok());
  ExpectModel();
  while (!split_->Reclaim(7)) {
  }
  ExpectSound();
  EXPECT_NEAR(static_cast<double>(left_.header().keys), 1500, 300);
  EXPECT_LT(left_.header().nodes_used, before * 2 / 3);
  ExpectModel();
  // Freed space is used again, and a key of the other meganode is refused.
  right_open_ = true;
  for (int i = 0; i < 3000; ++i) Put(i, fmt::format("again {}", i));
  ExpectModel();
  ExpectSound();
  EXPECT_EQ(left_.Put("002999", "", CrcOf("002999", "")).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(right_->Put("000000", "", CrcOf("000000", "")).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(left_.RouteOf("002999").next, right_->root());
  EXPECT_EQ(right_->RouteOf("000000").kind, Meganode::Route::Kind::kRestart);
}

// Runs with regions of its own for each seed.
class MeganodeSplitSeeds : public MeganodeSplitTest, public ::testing::WithParamInterface<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, MeganodeSplitSeeds, ::testing::Range(uint64_t{1}, uint64_t{21}));

TEST_P(MeganodeSplitSeeds, WritesWhileItCopiesAreInBoth) {
  Random random(GetParam());
  const auto write = [&] {
    const int i = static_cast<int>(random.Below(5000));
    if (random.Below(3) == 0) {
      Delete(i);
    } else {
      left_.set_inline_max(random.Below(2) == 0 ? 40 : 0);
      Put(i, std::string(random.Below(80), static_cast<char>('a' + random.Below(26))));
    }
  };
  for (int i = 0; i < 4000; ++i) write();
  Begin();
  for (bool copied = false; !copied;) {
    for (int i = 0; i < 5; ++i) write();
    const absl::StatusOr<bool> more = split_->Copy(20);
    ASSERT_TRUE(more.ok()) << more.status();
    copied = *more;
  }
  for (int i = 0; i < 200; ++i) write();
  ExpectModel();
  ASSERT_TRUE(split_->Finish().ok());
  right_open_ = true;
  ExpectModel();
  for (bool done = false; !done;) {
    for (int i = 0; i < 5; ++i) write();
    done = split_->Reclaim(3);
  }
  ExpectModel();
  ExpectSound();
}

// Leaves that became small while they were copied are copied small.
TEST_F(MeganodeSplitTest, TheNewMeganodeHasLeavesToMerge) {
  for (int i = 0; i < 3000; ++i) Put(i, "value");
  Begin();
  for (int i = 2000; i < 2990; ++i) Delete(i);
  while (!*split_->Copy(100)) {
  }
  ASSERT_TRUE(split_->Finish().ok());
  while (!split_->Reclaim(100)) {
  }
  EXPECT_TRUE(left_.unmerged());
  ASSERT_TRUE(right_->unmerged());
  const uint64_t before = right_->header().nodes_used;
  for (std::optional<std::string> at = right_->range().low; at.has_value();) at = right_->MergeFrom(*at, 10);
  EXPECT_LT(right_->header().nodes_used, before);
  ExpectSound();
}

// The right meganode is too small. The left one stays as it was.
TEST_F(MeganodeSplitTest, AbandonedWhenTheNewOneIsFull) {
  left_.set_inline_max(64);
  for (int i = 0; i < 3000; ++i) Put(i, std::string(100, 'v'));
  const std::string key = *MeganodeSplit::ChooseKey(left_);
  Meganode::Range range = left_.range();
  range.low = key;
  TestRegion small({512, 16 << 10, 8 << 10}, 2, range);
  Meganode to(small.memory());
  {
    MeganodeSplit split(&left_, &to, key);
    absl::StatusOr<bool> copied = false;
    while (copied.ok() && !*copied) copied = split.Copy(50);
    EXPECT_EQ(copied.status().code(), absl::StatusCode::kResourceExhausted);
  }
  Put(2999, "still here");
  ExpectModel();
  EXPECT_TRUE(CheckTree(*left_region_.memory()).ok());
}

// The copy would be logged with a CRC that is right.
TEST_F(MeganodeSplitTest, ADamagedPairIsNotCopied) {
  for (const size_t inline_max : {64, 0}) {
    SCOPED_TRACE(inline_max);
    left_.set_inline_max(inline_max);
    for (int i = 0; i < 3000; ++i) Put(i, "value");
    const LeafPair pair = *left_.Find("002999")->pair;
    Flip(left_.ValueOf(pair));
    Begin();
    EXPECT_EQ(CopyAll().code(), absl::StatusCode::kDataLoss) << "the leaf's CRC or the extent's";
    // Another write to the leaf gives it a right CRC, and the pair keeps its check.
    Put(2998, "other");
    Begin();
    const absl::Status status = CopyAll();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("region 1: the pair of key \"002999\""), std::string::npos) << status;
    Put(2999, "value");
    Begin();
    EXPECT_TRUE(CopyAll().ok());
    split_.reset();
  }
}

// A pair that is lost from its leaf, or a wrong end of the leaf, would not be noticed by the checks of pairs.
TEST_F(MeganodeSplitTest, ADamagedLeafIsNotCopied) {
  for (int i = 0; i < 3000; ++i) Put(i, "value");
  const NodeView leaf = *left_.LeafOf("002999");
  Flip(AsText({leaf.bytes() + offsetof(NodeHeader, count), 1}));
  Begin();
  const absl::Status status = CopyAll();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("region 1: node 1:"), std::string::npos) << status;
}

TEST_F(MeganodeSplitTest, ASearchOnItsWayIsSentBack) {
  for (int i = 0; i < 3000; ++i) Put(i, "v");
  Begin();
  while (!*split_->Copy(1000)) {
  }
  // The walk is below the root when the right part is invalidated, and holds an older image of the root.
  const std::string key = "002900";
  const std::string root(AsText(ConstBytes(left_region_.memory()->at(left_.root().offset()), 512)));
  alignas(8) std::array<std::byte, 512> image;
  std::memcpy(image.data(), root.data(), root.size());
  Walk walk(key, left_.root());
  NodeView view;
  ASSERT_EQ(NodeView::Parse(ConstBytes(image.data(), 512), left_.root(), &view), NodeFault::kNone);
  ASSERT_EQ(walk.Visit(view), Walk::Step::kRead);
  const Pointer wanted = walk.wants();
  ASSERT_TRUE(split_->Finish().ok());
  const auto parse = [&](Pointer node) {
    return NodeView::Parse(ConstBytes(left_region_.memory()->at(node.offset()), 512), node, &view);
  };
  ASSERT_EQ(parse(wanted), NodeFault::kGone);
  ASSERT_EQ(walk.Failed(NodeFault::kGone), Walk::Step::kRead);
  ASSERT_EQ(walk.wants(), left_.root());
  ASSERT_EQ(parse(walk.wants()), NodeFault::kNone);
  ASSERT_EQ(walk.Visit(view), Walk::Step::kElsewhere);
  EXPECT_EQ(walk.wants(), right_->root());
  EXPECT_TRUE(walk.moved_right());
}

TEST(MeganodeOfRoutes, LeadsToItsChildrenAndSplits) {
  TestRegion left_region(kShape, 1, {1, "", std::nullopt, {}});
  Meganode left(left_region.memory());
  for (int i = 0; i < 2000; ++i) {
    const int child = i * 7 % 2000;
    const std::string low = child == 0 ? "" : fmt::format("{:06}", child);
    const absl::StatusOr<bool> there = left.InsertRoute(low, RootOf(static_cast<uint32_t>(100 + child)));
    ASSERT_TRUE(there.ok() && !*there);
  }
  EXPECT_TRUE(*left.InsertRoute("000005", RootOf(99)));
  // A key that no node can hold is refused, and changes nothing.
  EXPECT_EQ(left.InsertRoute(std::string(left.key_bytes_max() + 1, '0'), RootOf(99)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(left.InsertRoute(std::string(60'000, '0'), RootOf(99)).status().code(), absl::StatusCode::kInvalidArgument);
  // So is a route that leads back here, or that does not lead to a root.
  EXPECT_EQ(left.InsertRoute("000006", RootOf(left.region())).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(left.InsertRoute("000006", Pointer(99, 8)).status().code(), absl::StatusCode::kInvalidArgument);
  Meganode::Route route = left.RouteOf("000005x");
  EXPECT_EQ(route.kind, Meganode::Route::Kind::kChild);
  EXPECT_EQ(route.next, RootOf(105));
  EXPECT_EQ(route.low, "000005");
  EXPECT_EQ(route.high, "000006");
  EXPECT_EQ(left.Put("k", "v", CrcOf("k", "v")).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(left.Find("k").status().code(), absl::StatusCode::kOutOfRange);

  Meganode::Range range = left.range();
  range.low = *MeganodeSplit::ChooseKey(left);
  TestRegion right_region(kShape, 2, range);
  Meganode right(right_region.memory());
  MeganodeSplit split(&left, &right, range.low);
  while (!*split.Copy(10)) {
  }
  ASSERT_TRUE(split.Finish().ok());
  ASSERT_TRUE(split.Reclaim(10'000));
  const TreeReport a = CheckTree(*left_region.memory());
  const TreeReport b = CheckTree(*right_region.memory());
  ASSERT_TRUE(a.ok()) << a.errors[0];
  ASSERT_TRUE(b.ok()) << b.errors[0];
  EXPECT_EQ(a.keys + b.keys, 2000u);
  EXPECT_NEAR(static_cast<double>(a.keys), 1000, 250);
  for (int i = 0; i < 2000; ++i) {
    const std::string key = fmt::format("{:06}", i);
    const Meganode& tree = key < range.low ? left : right;
    EXPECT_EQ(tree.RouteOf(key).next, RootOf(static_cast<uint32_t>(100 + i)));
  }
  EXPECT_EQ(left.RouteOf("001999").next, right.root());
}

}  // namespace
}  // namespace cell
