#include "cell/tree/scan_position.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "cell/base/random.h"
#include "cell/tree/node_draft.h"

namespace cell {
namespace {

// Returns all strings of at most `bytes` bytes over a few bytes, which include the lowest and the highest.
std::set<std::string> ShortStrings(size_t bytes) {
  std::set<std::string> all = {""};
  for (size_t i = 0; i < bytes; ++i) {
    std::set<std::string> longer = all;
    for (const std::string& one : all) {
      for (const char c : {'\0', '\1', 'a', 'b', '\xfe', '\xff'}) longer.insert(one + c);
    }
    all = std::move(longer);
  }
  return all;
}

TEST(GreatestBelow, NothingFitsBetween) {
  const std::set<std::string> all = ShortStrings(3);
  for (const std::string& key : all) {
    const std::string below = GreatestBelow(key, 3);
    ASSERT_LE(below.size(), 3u);
    if (key.empty()) continue;
    EXPECT_LT(below, key);
    for (const std::string& other : all) EXPECT_TRUE(other <= below || other >= key) << ForMessage(other);
  }
}

// Compares scans of random ranges over a row of leaves with random keys, both ways, with those of a set.
TEST(ScanPosition, GoesOverLeavesBothWays) {
  constexpr size_t kKeyBytesMax = 3;
  const std::set<std::string> strings = ShortStrings(kKeyBytesMax);
  const std::vector<std::string> universe(std::next(strings.begin()), strings.end());
  Random random(1);
  const auto any = [&] { return universe[random.Below(universe.size())]; };
  for (int round = 0; round < 200; ++round) {
    std::set<std::string> keys, fences;
    for (uint64_t i = random.Below(25); i > 0; --i) keys.insert(any());
    for (uint64_t i = random.Below(8); i > 0; --i) fences.insert(any());
    std::vector<NodeDraft> leaves;  // Some are empty.
    std::string low;
    for (auto fence = fences.begin();; ++fence) {
      const bool last = fence == fences.end();
      NodeDraft& leaf = leaves.emplace_back(1024);
      leaf.Begin(Pointer(1, 1024), 0, low, last ? std::nullopt : std::optional<std::string_view>(*fence), {});
      int slot = 0;
      for (auto key = keys.lower_bound(low); key != keys.end() && (last || *key < *fence); ++key) {
        ASSERT_TRUE(leaf.Insert(slot++, *key, LeafPair{}));
      }
      if (last) break;
      low = *fence;
    }
    const auto leaf_of = [&](const std::string& key) {
      for (const NodeDraft& leaf : leaves) {
        if (leaf.view().Covers(key)) return leaf.view();
      }
      ADD_FAILURE() << "no leaf covers " << ForMessage(key);
      return leaves[0].view();
    };
    for (int scan = 0; scan < 20; ++scan) {
      const std::string from = random.Below(4) == 0 ? "" : any();
      std::optional<std::string> to;
      if (random.Below(4) != 0) to = any();
      std::vector<std::string> want;
      for (const std::string& key : keys) {
        if (key >= from && (!to.has_value() || key < *to)) want.push_back(key);
      }
      for (const bool down : {false, true}) {
        if (down) std::reverse(want.begin(), want.end());
        std::vector<std::string> got;
        ScanPosition position = ScanPosition::Of(from, to, down, kKeyBytesMax);
        bool ended = position.ended();
        for (size_t visits = 0; !ended; ++visits) {
          ASSERT_LE(visits, leaves.size());
          const NodeView leaf = leaf_of(position.at());
          for (int slot = position.First(leaf); ScanPosition::In(leaf, slot); slot += position.step()) {
            ended = position.Past(leaf.key(slot));
            if (ended) break;
            got.push_back(leaf.key(slot));
          }
          ended |= position.EndsWith(leaf);
          if (!ended) position.Pass(leaf);
        }
        EXPECT_EQ(got, want) << "from " << ForMessage(from) << " to " << ForMessage(to.value_or("end")) << " down "
                             << down;
      }
    }
  }
}

}  // namespace
}  // namespace cell
