#include "cell/tree/leaf_sample.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "cell/base/crc64.h"
#include "cell/tree/test_region.h"
#include "fmt/format.h"

namespace cell {
namespace {

class LeafSampleTest : public ::testing::Test {
 protected:
  LeafSampleTest() {
    for (int i = 0; i < kKeys; ++i) Put(fmt::format("b{:05}", i));
    for (const char* key : {"a", "c1", "c2", "d"}) Put(key);
  }
  void Put(const std::string& key) { ASSERT_TRUE(tree_.Put(key, "value", Crc64("value", Crc64(key))).ok()); }

  static constexpr int kKeys = 5'000;
  TestRegion region_{{512, 512 << 10, 64 << 10}};
  Meganode tree_{region_.memory()};
  Random random_{1};
};

TEST_F(LeafSampleTest, ComesToEachLeafOfTheRange) {
  std::set<std::string> all, seen;
  for (std::string at; all.insert(at).second;) {
    const auto leaf = tree_.LeafOf(at);
    ASSERT_TRUE(leaf.ok());
    if (leaf->has_high()) at = leaf->high_key();
  }
  for (int i = 0; i < 20'000; ++i) {
    const auto leaf = SampleLeaf(tree_, "", std::nullopt, &random_);
    ASSERT_TRUE(leaf.ok() && leaf->has_value());
    seen.insert(std::string((*leaf)->low_key()));
  }
  EXPECT_EQ(seen, all);
}

TEST_F(LeafSampleTest, StaysInTheRange) {
  std::set<std::string> seen;
  for (int i = 0; i < 2'000; ++i) {
    const auto leaf = SampleLeaf(tree_, "b00100", "b00200", &random_);
    ASSERT_TRUE(leaf.ok() && leaf->has_value());
    EXPECT_LT((*leaf)->low_key(), "b00200");
    EXPECT_FALSE((*leaf)->PastHigh("b00100"));
    seen.insert(std::string((*leaf)->low_key()));
  }
  EXPECT_GT(seen.size(), 5u);
}

// A prefix with few pairs among many, at the border of a leaf or not.
TEST_F(LeafSampleTest, FindsTheOnlyLeafOfASmallRange) {
  const std::string second((*tree_.LeafOf("b00100")).high_key());
  for (const auto& [low, high] : {std::pair<std::string, std::string>{"c", "d"}, {second, second + "0"}, {"", "b"}}) {
    for (int i = 0; i < 20; ++i) {
      const auto leaf = SampleLeaf(tree_, low, high, &random_);
      ASSERT_TRUE(leaf.ok() && leaf->has_value());
      EXPECT_TRUE((*leaf)->Covers(low)) << low << " is not in the leaf from " << (*leaf)->low_key();
    }
  }
}

TEST_F(LeafSampleTest, ARangeElsewhereHasNoLeaf) {
  TestRegion region({512, 64 << 10, 64 << 10}, 2, {0, "m", "p", RootOf(3)});
  const Meganode tree(region.memory());
  for (const auto& [low, high] : {std::pair<std::string, std::string>{"a", "m"}, {"p", "q"}}) {
    const auto leaf = SampleLeaf(tree, low, high, &random_);
    ASSERT_TRUE(leaf.ok());
    EXPECT_FALSE(leaf->has_value());
  }
  EXPECT_TRUE((*SampleLeaf(tree, "a", "n", &random_)).has_value());
  EXPECT_TRUE((*SampleLeaf(tree, "o", std::nullopt, &random_)).has_value());
}

TEST_F(LeafSampleTest, DamageIsReported) {
  const uint64_t leaf = static_cast<uint64_t>((*tree_.LeafOf("b00100")).bytes() - region_.memory()->base());
  region_.memory()->StoreWord(leaf + 200, 7);
  EXPECT_TRUE(absl::IsDataLoss(SampleLeaf(tree_, "b00100", "b001000", &random_).status()));
  // A damaged inner node may lead anywhere, but nothing that is no leaf is taken for one.
  for (uint64_t word = 16; word < 500; word += 8) region_.memory()->StoreWord(tree_.root().offset() + word, ~word);
  for (int i = 0; i < 100; ++i) {
    const auto sampled = SampleLeaf(tree_, "", std::nullopt, &random_);
    EXPECT_TRUE(!sampled.ok() || !sampled->has_value() || (*sampled)->level() == 0);
  }
}

}  // namespace
}  // namespace cell
