#include "cell/tree/node_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/tree/test_region.h"

namespace cell {
namespace {

LeafSlot SlotFor(std::string_view key) {
  LeafSlot slot{};
  slot.crc = Crc64(key);
  return slot;
}

// Returns a key that shares prefixes, ends early or holds zero bytes, so that heads are equal and tails decide.
std::string HardKey(Random* random) {
  std::string key;
  const size_t bytes = 1 + random->Below(9);
  for (size_t i = 0; i < bytes; ++i) key.push_back("\0\0\1a\xff"[random->Below(5)]);
  return key;
}

TEST(NodeDraft, InsertAndRemoveAgreeWithASet) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    NodeDraft draft(1024);
    const bool fenced = seed % 2 == 0;
    draft.Begin(Pointer(1, 4096), 0, fenced ? "aa" : "", fenced ? std::optional<std::string_view>("ab") : std::nullopt,
                Pointer());
    std::set<std::string> model;
    for (int i = 0; i < 300; ++i) {
      const std::string key = (fenced ? "aa" : "") + HardKey(&random);
      const auto lower = static_cast<int>(std::distance(model.begin(), model.lower_bound(key)));
      ASSERT_EQ(draft.view().LowerBound(key), lower) << "seed " << seed;
      const std::optional<int> found = draft.view().Find(key);
      ASSERT_EQ(found.has_value(), model.contains(key)) << "seed " << seed;
      if (found.has_value()) {
        if (random.Below(2) == 0) {
          draft.Remove(*found);
          model.erase(key);
        }
      } else if (draft.Insert(lower, key, SlotFor(key))) {
        model.insert(key);
      }
    }
    ASSERT_GT(model.size(), 10u);
    int i = 0;
    for (const std::string& key : model) {
      ASSERT_EQ(draft.view().key(i), key);
      ASSERT_EQ(draft.view().leaf_slot(i).crc, Crc64(key));
      ++i;
    }
  }
}

TEST(NodeDraft, AFullNodeRefusesAndStaysAsItWas) {
  NodeDraft draft(512);
  draft.Begin(Pointer(1, 4096), 0, "", std::nullopt, Pointer());
  int i = 0;
  while (draft.Insert(i, "key" + std::to_string(100 + i), SlotFor("x"))) ++i;
  ASSERT_EQ(draft.view().count(), i);
  EXPECT_EQ(draft.view().key(i - 1), "key" + std::to_string(99 + i));
}

TEST(NodeView, ChildIsTheLastSlotNotAboveTheKey) {
  NodeDraft draft(1024);
  draft.Begin(Pointer(1, 4096), 1, "b", "z", Pointer(1, 8192));
  int i = 0;
  for (const char* key : {"b", "d", "dd", "x"}) ASSERT_TRUE(draft.Insert(i++, key, InnerSlot{}));
  const NodeView node = draft.view();
  EXPECT_EQ(node.ChildSlot("b"), 0);
  EXPECT_EQ(node.ChildSlot("c"), 0);
  EXPECT_EQ(node.ChildSlot("d"), 1);
  EXPECT_EQ(node.ChildSlot(std::string_view("d\0", 2)), 1);
  EXPECT_EQ(node.ChildSlot("dd"), 2);
  EXPECT_EQ(node.ChildSlot("y"), 3);
}

TEST(NodeView, FencesAreLowInclusiveAndHighExclusive) {
  NodeDraft draft(1024);
  draft.Begin(Pointer(1, 4096), 0, "pre1", "pre5", Pointer(1, 8192));
  const NodeView node = draft.view();
  EXPECT_EQ(node.prefix(), "pre");
  EXPECT_EQ(node.high_key(), "pre5");
  for (const char* in : {"pre1", "pre10", "pre2", "pre4zzz"}) EXPECT_TRUE(node.Covers(in)) << in;
  for (const char* below : {"", "a", "pre", "pre0", "pre0zzz"}) EXPECT_TRUE(node.BelowLow(below)) << below;
  for (const char* past : {"pre5", "pre50", "prf", "q", "z"}) EXPECT_TRUE(node.PastHigh(past)) << past;
}

class ParseTest : public ::testing::Test {
 protected:
  ParseTest() {
    NodeDraft draft(1024);
    draft.Begin(self_, 0, "k", "m", Pointer(1, 9000));
    for (int i = 0; i < 8; ++i) {
      CELL_CHECK(draft.Insert(i, "key-number-" + std::to_string(i), SlotFor("x")));
    }
    draft.Publish(region_.memory(), self_.offset());
    image_.assign(region_.memory()->at(self_.offset()), region_.memory()->at(self_.offset()) + 1024);
  }

  NodeFault Parse() { return NodeView::Parse(image_, self_, &view_); }
  void Seal() { Store(image_.data() + 8, NodeCrc(image_.data(), 1024)); }

  TestRegion region_;
  Pointer self_{1, kRegionHeaderBytes};
  std::vector<std::byte> image_;
  NodeView view_;
};

TEST_F(ParseTest, AcceptsWhatPublishWrote) {
  ASSERT_EQ(Parse(), NodeFault::kNone);
  EXPECT_EQ(view_.key(3), "key-number-3");
}

TEST_F(ParseTest, EveryFlippedBitIsNoticed) {
  for (size_t bit = 0; bit < 1024 * 8; ++bit) {
    image_[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(Parse(), NodeFault::kNone) << "bit " << bit;
    image_[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST_F(ParseTest, OddOrUnequalVersionsAreTorn) {
  Store(image_.data(), uint64_t{5});
  EXPECT_EQ(Parse(), NodeFault::kTorn);
  Store(image_.data() + 1016, uint64_t{5});
  EXPECT_EQ(Parse(), NodeFault::kTorn);
}

TEST_F(ParseTest, AnotherNodeIsForeign) {
  EXPECT_EQ(NodeView::Parse(image_, Pointer(1, 12345), &view_), NodeFault::kForeign);
}

// A valid CRC does not make a node: a broken or hostile server can seal anything.
TEST_F(ParseTest, SealedNonsenseIsMalformed) {
  const std::vector<std::byte> good = image_;
  const auto with = [&](auto change) {
    image_ = good;
    change(reinterpret_cast<NodeHeader*>(image_.data()));
    Seal();
    return Parse();
  };
  EXPECT_EQ(with([](NodeHeader*) {}), NodeFault::kNone);
  EXPECT_EQ(with([](NodeHeader* h) { h->count = 500; }), NodeFault::kMalformed);
  EXPECT_EQ(with([](NodeHeader* h) { h->prefix_bytes = 900; }), NodeFault::kMalformed);
  EXPECT_EQ(with([](NodeHeader* h) { h->low_key_bytes = 2000; }), NodeFault::kMalformed);
  EXPECT_EQ(with([](NodeHeader* h) { h->high_key_bytes = 65535; }), NodeFault::kMalformed);
  EXPECT_EQ(with([](NodeHeader* h) { h->heap_begin = 10; }), NodeFault::kMalformed);
  EXPECT_EQ(with([](NodeHeader* h) { h->level = 200; }), NodeFault::kMalformed);
  EXPECT_EQ(with([](NodeHeader* h) { h->flags = 0x80; }), NodeFault::kMalformed);
  EXPECT_EQ(with([](NodeHeader* h) { h->reserved[1] = 1; }), NodeFault::kMalformed);
  EXPECT_EQ(with([](NodeHeader* h) {
              Store(reinterpret_cast<std::byte*>(h) + sizeof(NodeHeader) + 4 * 8, SlotKey{600, 900});
            }),
            NodeFault::kMalformed);
}

TEST_F(ParseTest, RefusesSizesThatAreNoNode) {
  image_.resize(1000);
  EXPECT_EQ(Parse(), NodeFault::kMalformed);
  image_.clear();
  EXPECT_EQ(Parse(), NodeFault::kMalformed);
}

// A region that was copied here but never arrived whole leaves arbitrary words. A node that is published over them is
// whole.
TEST(NodeDraft, APublishedNodeIsWholeWhateverWasThere) {
  TestRegion region({512, 1 << 20, 4096}, 3);
  const Pointer self(3, kRegionHeaderBytes);
  for (const uint64_t head : {uint64_t{0}, uint64_t{3}, uint64_t{8}, kVersionGone}) {
    for (const uint64_t tail : {uint64_t{0}, uint64_t{3}, uint64_t{8}, uint64_t{9}}) {
      region.memory()->StoreWord(self.offset(), head);
      region.memory()->StoreWord(self.offset() + 512 - kTailVersionBytes, tail);
      NodeDraft draft(512);
      draft.Begin(self, 0, "a", "b", Pointer(3, 0x3000));
      draft.Publish(region.memory(), self.offset());
      NodeView view;
      EXPECT_EQ(NodeView::Parse(ConstBytes(region.memory()->at(self.offset()), 512), self, &view), NodeFault::kNone)
          << head << " " << tail;
    }
  }
}

// Checks golden bytes that a reader of another release must find. A change here requires a new layout version.
TEST(NodeLayout, GoldenBytes) {
  TestRegion region({512, 1 << 20, 4096}, 3);
  NodeDraft draft(512);
  const Pointer self(3, kRegionHeaderBytes);
  draft.Begin(self, 0, "ab1", "ab9", Pointer(3, 0x3000));
  LeafSlot slot{};
  slot.extent = Pointer(3, 0x5008);
  slot.extent_bytes = 0x20;
  slot.crc = 0x1122334455667788;
  ASSERT_TRUE(draft.Insert(0, "ab3longer", slot));
  draft.Publish(region.memory(), self.offset());
  const std::byte* node = region.memory()->at(self.offset());
  std::string hex;
  for (int i = 0; i < 512; ++i) hex += fmt::format("{:02x}", static_cast<unsigned>(node[i]));
  EXPECT_EQ(hex.substr(0, 16), "0400000000000000");           // head version: Format wrote the root as 2
  EXPECT_EQ(hex.substr(32, 16), "0010000000030000");          // self
  EXPECT_EQ(hex.substr(48, 16), "0030000000030000");          // right
  EXPECT_EQ(hex.substr(64, 24), "00020100020003000300f101");  // level flags count prefix low high heap
  EXPECT_EQ(hex.substr(96, 8), "6e6f6c33");                   // head "3lon" as a number
  EXPECT_EQ(hex.substr(104, 48), "0700f1012000000008500000000300008877665544332211");
  EXPECT_EQ(hex.substr(2 * 497, 2 * 7), "67657239616231");  // tail "ger", high "9", low "ab1"
  EXPECT_EQ(hex.substr(2 * 504), "0400000000000000");
  EXPECT_EQ(Load<uint64_t>(node + 8), NodeCrc(node, 512));
}

}  // namespace
}  // namespace cell
