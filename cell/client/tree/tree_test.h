// Provides a session with a server that holds a small tree, for tests of operations on it and of scans.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/client/route/key_router_test.h"
#include "cell/tree/meganode.h"
#include "cell/tree/node_draft.h"
#include "fmt/format.h"

namespace cell {

class TreeTest : public KeyRouterTest {
 protected:
  static constexpr int kKeys = 100;

  static std::string KeyOf(int i) { return fmt::format("key{:03}", i); }
  static std::string ValueOf(const std::string& key) { return "value of " + key; }

  static ClientOptions Cacheless() {
    ClientOptions options = Options();
    options.cache_bytes = 0;
    return options;
  }

  // The tree is the meganode in region kRoot of server a. Without a cache, so that reads can be counted.
  // `inline_every`: every n-th pair is inline. 0: all pairs are outside, and each takes a read of its own.
  explicit TreeTest(const ClientOptions& options = Cacheless(), int inline_every = 0)
      : KeyRouterTest(State(), options), inline_every_(inline_every) {
    for (int i = 0; i < kKeys; ++i) {
      tree_.set_inline_max(IsInline(i) ? InlineBytesMax(kShape.node_bytes) : 0);
      Put(&tree_, KeyOf(i));
    }
    tree_.set_inline_max(0);
    CELL_CHECK(levels() == 2);
  }
  bool IsInline(int i) const { return inline_every_ > 0 && i % inline_every_ == 0; }

  RegionMemory* NewRegion(uint32_t region, const MeganodeRange& range) {
    RegionMemory* const memory = a_->CreateRegion(region, kShape.region_bytes()).value();
    CELL_CHECK(Meganode::Format(memory, region, kShape, range).ok());
    return memory;
  }
  static void Put(Meganode* tree, const std::string& key) {
    const std::string value = ValueOf(key);
    CELL_CHECK(tree->Put(key, value, Crc64(value, Crc64(key))).ok());
  }

  int levels() const { return tree_.Node(tree_.root()).level() + 1; }
  int leaves() const { return tree_.Node(tree_.root()).count(); }
  NodeView LeafOf(const std::string& key) const { return tree_.Node(tree_.Find(key).value().leaf); }
  // Changes the extent of a key, as if another pair had been written there. The leaf stays as it is. A second call
  // undoes the first one.
  void Flip(const std::string& key) {
    const uint64_t offset = tree_.Find(key).value().pair.value().outside.extent.offset();
    uint64_t word;
    std::memcpy(&word, memory_->at(offset), sizeof(word));
    memory_->StoreWord(offset, ~word);
  }
  // Flips a bit of an inline value, as if its memory had been damaged. The leaf is written again, so its CRC is right.
  void DamageInline(const std::string& key) {
    const NodeView leaf = LeafOf(key);
    const int slot = leaf.Find(key).value();
    const LeafPair pair = leaf.pair(slot);
    std::string damaged(pair.value);
    damaged[3] ^= 1;
    NodeDraft draft(kShape.node_bytes);
    draft.CopyOf(leaf);
    CELL_CHECK(draft.Replace(slot, LeafPair::Inline(damaged, pair.check, pair.stamp)));
    draft.Publish(memory_, leaf.self().offset());
  }

  const int inline_every_;
  RegionMemory* const memory_ = NewRegion(kRoot, {});
  Meganode tree_{memory_};
};

}  // namespace cell
