#include "cell/tree/node_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/tree/test_region.h"

namespace cell {
namespace {

// The expected content of a pair in a draft. `value` has the value of an inline pair, or the bytes of a PairExtent.
struct Stored {
  bool is_inline;
  std::string value;
  uint32_t value_bytes;
  uint64_t stamp;
  uint16_t check = 0;
  Expiry expiry = kNeverExpires;

  bool operator==(const Stored&) const = default;
};

LeafPair PairOf(const Stored& stored) {
  LeafPair pair = stored.is_inline ? LeafPair::Inline(stored.value, stored.check, stored.stamp)
                                   : LeafPair::Outside(Load<PairExtent>(AsBytes(stored.value).data()),
                                                       stored.value_bytes, stored.stamp);
  pair.expiry = stored.expiry;
  return pair;
}

Stored StoredOf(const LeafPair& pair) {
  std::string value(pair.value);
  if (!pair.is_inline) value.assign(reinterpret_cast<const char*>(&pair.outside), sizeof(pair.outside));
  return {pair.is_inline, value, pair.value_bytes, pair.stamp, pair.check, pair.expiry};
}

Stored RandomPair(Random* random, size_t inline_max) {
  const uint64_t stamp = random->Next();
  const Expiry expiry = random->Below(3) == 0 ? random->Next() : kNeverExpires;
  if (random->Below(3) == 0) {
    const PairExtent extent{Pointer(1, random->Below(1 << 20) * 8), random->Next()};
    return {false,
            std::string(reinterpret_cast<const char*>(&extent), sizeof(extent)),
            static_cast<uint32_t>(random->Below(kValueBytesMax + 1)),
            stamp,
            0,
            expiry};
  }
  std::string value(random->Below(inline_max + 1), '\0');
  for (char& c : value) c = static_cast<char>(random->Next());
  const auto bytes = static_cast<uint32_t>(value.size());
  return {true, std::move(value), bytes, stamp, static_cast<uint16_t>(random->Next()), expiry};
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
    std::map<std::string, Stored> model;
    const size_t inline_max = random.Below(60);
    for (int i = 0; i < 300; ++i) {
      const std::string key = (fenced ? "aa" : "") + HardKey(&random);
      const auto lower = static_cast<int>(std::distance(model.begin(), model.lower_bound(key)));
      ASSERT_EQ(draft.view().LowerBound(key), lower) << "seed " << seed;
      const std::optional<int> found = draft.view().Find(key);
      ASSERT_EQ(found.has_value(), model.contains(key)) << "seed " << seed;
      const Stored stored = RandomPair(&random, inline_max);
      if (found.has_value() && random.Below(2) == 0) {
        draft.Remove(*found);
        model.erase(key);
      } else if (found.has_value()) {
        if (draft.Replace(*found, PairOf(stored))) model[key] = stored;
      } else if (draft.Insert(lower, key, PairOf(stored))) {
        model[key] = stored;
      }
      ASSERT_EQ(draft.view().count(), static_cast<int>(model.size()));
      int slot = 0;
      for (const auto& [in_model, its] : model) {
        ASSERT_EQ(draft.view().key(slot), in_model) << "seed " << seed;
        const LeafPair pair = draft.view().pair(slot++);
        ASSERT_EQ(StoredOf(pair), its) << "seed " << seed;
        ASSERT_EQ(pair.pair_bytes(), in_model.size() + its.value_bytes);
      }
      ASSERT_TRUE(draft.view().WellFormed()) << "seed " << seed;
    }
    ASSERT_GT(model.size(), 3u);
  }
}

TEST(NodeDraft, ReplaceFindsTheRoomThatThereIs) {
  NodeDraft draft(512);
  draft.Begin(Pointer(1, 4096), 0, "", std::nullopt, Pointer());
  ASSERT_TRUE(draft.Insert(0, "first key", LeafPair::Inline("a", 11, 1)));
  ASSERT_TRUE(draft.Insert(1, "second key", LeafPair::Inline("b", 12, 2)));
  // Both tails, and the other value, stay.
  const size_t room = 512 - sizeof(NodeHeader) - kTailVersionBytes - 2 * (kKeyHeadBytes + sizeof(LeafSlot)) -
                      (strlen("first key") - kKeyHeadBytes) - (strlen("second key") - kKeyHeadBytes) - 1;
  EXPECT_FALSE(draft.Replace(0, LeafPair::Inline(std::string(room + 1, 'x'), 13, 3)));
  EXPECT_EQ(draft.view().pair(0).value, "a");
  EXPECT_EQ(draft.view().pair(0).stamp, 1u);
  ASSERT_TRUE(draft.Replace(0, LeafPair::Inline(std::string(room, 'y'), 14, 4)));
  EXPECT_EQ(draft.view().pair(0).value, std::string(room, 'y'));
  EXPECT_EQ(draft.view().key(0), "first key");
  EXPECT_EQ(draft.view().pair(1).value, "b");
  EXPECT_FALSE(draft.Insert(2, "third key", LeafPair::Inline("", 15, 5)));
  ASSERT_TRUE(draft.Replace(0, LeafPair::Outside({Pointer(1, 64), 7}, room, 6)));
  EXPECT_EQ(draft.view().pair(0).outside, (PairExtent{Pointer(1, 64), 7}));
  EXPECT_EQ(draft.view().pair(0).value_bytes, room);
  EXPECT_TRUE(draft.Insert(2, "third key", LeafPair::Inline("", 18, 8)));
  draft.Repoint(0, Pointer(1, 128));
  EXPECT_EQ(draft.view().pair(0).outside, (PairExtent{Pointer(1, 128), 7}));
  EXPECT_EQ(draft.view().pair(0).stamp, 6u);
}

TEST(NodeDraft, AFullNodeRefusesAndStaysAsItWas) {
  NodeDraft draft(512);
  draft.Begin(Pointer(1, 4096), 0, "", std::nullopt, Pointer());
  int i = 0;
  while (draft.Insert(i, "key" + std::to_string(100 + i), LeafPair::Inline("x", 11, 1))) ++i;
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

// Keys are compared by their heads, and by their tails where the heads are equal.
TEST(NodeView, KeysThatDoNotGrowAreOutOfOrder) {
  const auto in_order = [](const std::vector<std::string>& keys) {
    NodeDraft draft(512);
    draft.Begin(Pointer(1, 4096), 0, "", std::nullopt, {});
    for (size_t i = 0; i < keys.size(); ++i) {
      CELL_CHECK(draft.Insert(static_cast<int>(i), keys[i], LeafPair::Inline("v", 0, 1)));
    }
    return draft.view().InOrder();
  };
  EXPECT_TRUE(in_order({}));
  EXPECT_TRUE(in_order({"a"}));
  EXPECT_TRUE(in_order({"a", std::string("a\0", 2), "ab", "abcd", "abcd0", "abcd1", "b"}));
  EXPECT_FALSE(in_order({"b", "a"}));
  EXPECT_FALSE(in_order({"a", "c", "b"}));
  EXPECT_FALSE(in_order({"ab", "ab"}));
  EXPECT_FALSE(in_order({std::string("a\0", 2), "a"}));
  EXPECT_FALSE(in_order({"abcd0", "abcd"}));
  EXPECT_FALSE(in_order({"abcd1", "abcd0"}));
  EXPECT_FALSE(in_order({"abcd0", "abcd0"}));
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
      const std::string key = "key-number-" + std::to_string(i);
      CELL_CHECK(draft.Insert(i, key, LeafPair::Inline("value", 17, 7)));
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
  // Without slots, which would not fit these headers either.
  EXPECT_EQ(with([](NodeHeader* h) { h->count = 0; }), NodeFault::kNone);
  EXPECT_EQ(with([](NodeHeader* h) { h->count = 0, h->level = 200; }), NodeFault::kMalformed);
  EXPECT_EQ(with([](NodeHeader* h) { h->count = 0, h->tier = 200; }), NodeFault::kMalformed);
  EXPECT_EQ(with([](NodeHeader* h) { h->count = 0, h->heap_begin = 1014; }), NodeFault::kNone) << "at the fences";
  EXPECT_EQ(with([](NodeHeader* h) { h->count = 0, h->heap_begin = 1015; }), NodeFault::kMalformed);
  EXPECT_EQ(with([](NodeHeader* h) { h->flags = 0; }), NodeFault::kMalformed) << "it has a high key";
  EXPECT_EQ(with([](NodeHeader* h) { h->prefix_bytes = 1, h->low_key_bytes = 0; }), NodeFault::kMalformed);
  EXPECT_EQ(with([](NodeHeader* h) { h->prefix_bytes = 1, h->high_key_bytes = 0; }), NodeFault::kMalformed);
  // Slot 0, whose entry is the last in the heap: of a tail of 8 bytes and a value of 5.
  const LeafSlot slot = Load<LeafSlot>(good.data() + sizeof(NodeHeader) + 4 * 8);
  ASSERT_EQ(slot.key.tail_offset, 1024 - 8 - 2 - 8 - 5);  // Behind it are the fences "m" and "k".
  const auto with_slot = [&](SlotKey key, uint32_t value) {
    return with([&](NodeHeader* h) {
      Store(reinterpret_cast<std::byte*>(h) + sizeof(NodeHeader) + 4 * 8, LeafSlot{key, value, slot.stamp});
    });
  };
  const uint16_t offset = slot.key.tail_offset;
  EXPECT_EQ(with_slot(slot.key, 5), NodeFault::kNone);
  EXPECT_EQ(with_slot({600, 900}, 5), NodeFault::kMalformed);
  EXPECT_EQ(with_slot(slot.key, 6), NodeFault::kMalformed) << "the value reaches into the fences";
  EXPECT_EQ(with_slot({13, offset}, 5), NodeFault::kMalformed) << "the tail does";
  EXPECT_EQ(with_slot(slot.key, 5 | 0xabcd << kValueCheckShift), NodeFault::kNone) << "with a check";
  EXPECT_EQ(with_slot(slot.key, 1000), NodeFault::kMalformed);
  EXPECT_EQ(with_slot(slot.key, kValueOutside - 1), NodeFault::kMalformed) << "the largest value there is";
  EXPECT_EQ(with_slot({12, 0}, 5), NodeFault::kMalformed) << "the entry is in the header";
  EXPECT_EQ(with_slot({4, 0}, 0), NodeFault::kNone) << "an empty entry";
  EXPECT_EQ(with_slot({4, offset}, 0), NodeFault::kMalformed) << "an empty entry that is somewhere";
  EXPECT_EQ(with_slot({4, offset}, 13), NodeFault::kNone) << "all of the entry is a value";
  EXPECT_EQ(with_slot(slot.key, kValueOutside | 5), NodeFault::kMalformed) << "no room for a PairExtent";
  const auto before = static_cast<uint16_t>(offset - 11);  // Overlaps other entries, as only nonsense does.
  EXPECT_EQ(with_slot({12, before}, kValueOutside | kValueBytesMax), NodeFault::kNone);
  EXPECT_EQ(with_slot({12, before}, kValueOutside | (kValueBytesMax + 1)), NodeFault::kMalformed);
  EXPECT_EQ(with_slot({12, static_cast<uint16_t>(before + 1)}, kValueOutside | 5), NodeFault::kMalformed);
}

// No byte of an accepted image outside of it is ever read (run with --config=asan), whatever was changed.
TEST(NodeView, MutatedImagesAreRefusedOrReadInside) {
  Random random(8);
  uint64_t accepted = 0, refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    NodeDraft draft(512);
    const bool pairs = random.Below(4) != 0;
    draft.Begin(Pointer(1, 4096), pairs ? 0 : 1, "aa", "ab", Pointer(1, 8192));
    for (int i = 0; i < 8; ++i) {
      const std::string key = fmt::format("aa{}{}", i, std::string(random.Below(12), 'k'));
      const Stored stored = RandomPair(&random, 30);
      CELL_CHECK(pairs ? draft.Insert(i, key, PairOf(stored)) : draft.Insert(i, key, SlotOf(Pointer(1, 4096))));
    }
    // Exactly as long as a node, so that the address sanitizer sees overruns.
    const std::unique_ptr<std::byte[]> image(new std::byte[512]);
    std::memcpy(image.get(), draft.view().bytes(), 512);
    for (uint64_t changes = random.Below(3); changes > 0; --changes) {
      const size_t at = kNodeBodyOffset + 16 + random.Below(sizeof(NodeHeader) - 32 + 8 * 20);
      image[at] = static_cast<std::byte>(random.Below(2) == 0 ? random.Next() : static_cast<uint64_t>(image[at]) + 1);
    }
    Store(image.get() + 8, NodeCrc(image.get(), 512));
    NodeView view;
    if (NodeView::Parse(ConstBytes(image.get(), 512), Pointer(1, 4096), &view) != NodeFault::kNone) {
      ++refused;
      continue;
    }
    ++accepted;
    std::string all;
    for (int i = 0; i < view.count(); ++i) {
      all += view.key(i);
      if (!view.holds_pairs()) continue;
      const LeafPair pair = view.pair(i);
      ASSERT_LE(pair.value_bytes, kValueBytesMax);
      all += StoredOf(pair).value;
    }
    ASSERT_LE(all.size(), 40u * 512);
  }
  EXPECT_GT(accepted, 3000u);
  EXPECT_GT(refused, 1000u);
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
  const PairExtent extent{Pointer(3, 0x5008), 0x1122334455667788};
  ASSERT_TRUE(draft.Insert(0, "ab3longer", LeafPair::Inline("value", 0x99aabbccddeef00d, 0x0102030405060708)));
  LeafPair other = LeafPair::Outside(extent, 0x20, 0x0102030405060709);
  other.expiry = 0x1817161514131211;
  ASSERT_TRUE(draft.Insert(1, "ab5other", other));
  draft.Publish(region.memory(), self.offset());
  const std::byte* node = region.memory()->at(self.offset());
  std::string hex;
  for (int i = 0; i < 512; ++i) hex += fmt::format("{:02x}", static_cast<unsigned>(node[i]));
  EXPECT_EQ(hex.substr(0, 16), "0400000000000000");                    // head version: Format wrote the root as 2
  EXPECT_EQ(hex.substr(32, 16), "0010000000030000");                   // self
  EXPECT_EQ(hex.substr(48, 16), "0030000000030000");                   // right
  EXPECT_EQ(hex.substr(64, 24), "00020200020003000300d201");           // level flags count prefix low high heap
  EXPECT_EQ(hex.substr(96, 16), "6e6f6c3368746f35");                   // heads "3lon" and "5oth" as numbers
  EXPECT_EQ(hex.substr(112, 32), "0700ec010540033c0807060504030201");  // an inline value of 5 bytes with check f00d
  EXPECT_EQ(hex.substr(144, 32), "0600d201200000c00907060504030201");  // an outside value of 0x20 bytes that expires
  EXPECT_EQ(hex.substr(2 * 466, 2 * 10), "65721112131415161718");      // tail "er", expiry
  EXPECT_EQ(hex.substr(2 * 476, 2 * 16), "08500000000300008877665544332211");  // extent, CRC
  EXPECT_EQ(hex.substr(2 * 492, 2 * 8), "67657276616c7565");                   // tail "ger", "value"
  EXPECT_EQ(hex.substr(2 * 500, 2 * 4), "39616231");                           // high "9", low "ab1"
  EXPECT_EQ(hex.substr(2 * 504), "0400000000000000");
  EXPECT_EQ(Load<uint64_t>(node + 8), NodeCrc(node, 512));
}

}  // namespace
}  // namespace cell
