// Tests that pairs with an expiry are stored, copied and found, and no more from then on.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/region/expiry_sweep.h"
#include "cell/tree/meganode_clear.h"
#include "cell/tree/meganode_join.h"
#include "cell/tree/meganode_split.h"
#include "cell/tree/test_reader.h"
#include "cell/tree/test_region.h"
#include "cell/tree/tree_check.h"

namespace cell {
namespace {

class ExpiryTest : public ::testing::Test {
 protected:
  PairSettings Settings() {
    return {kInlineMaxDefault, [this] { return now_; }};
  }
  absl::StatusOr<bool> Put(Meganode* tree, std::string_view key, std::string_view value, Expiry expiry) {
    return tree->Put(key, value, Crc64(value, Crc64(key)), {}, expiry);
  }
  static std::optional<std::string> ValueOf(const Meganode& tree, std::string_view key) {
    const Meganode::Location location = *tree.Find(key);
    Meganode::Lookup lookup{&tree, key, absl::OkStatus(), {}, Meganode::Prefetches::kPair};
    Meganode::FindBatch({&lookup, 1});
    EXPECT_EQ(lookup.location.pair.has_value(), location.pair.has_value()) << key;
    if (!location.pair.has_value()) return std::nullopt;
    return std::string(*tree.VerifiedValueOf(key, *location.pair));
  }
  static void ExpectSound(TestRegion* region, uint64_t keys, uint64_t expiring) {
    const TreeReport report = CheckTree(*region->memory());
    EXPECT_TRUE(report.ok()) << report.errors[0];
    EXPECT_EQ(report.keys, keys);
    EXPECT_EQ(report.expiring, expiring);
  }

  int64_t now_ = 1000;
};

TEST_F(ExpiryTest, APairIsThereUntilItsExpiryAndNotFromThenOn) {
  TestRegion region;
  Meganode tree(region.memory(), Settings());
  for (const std::string& value : {std::string("small"), std::string(5000, 'v')}) {
    SCOPED_TRACE(value.size());
    now_ = 1000;
    EXPECT_FALSE(*Put(&tree, "key", value, 1010));
    now_ = 1009;
    EXPECT_EQ(ValueOf(tree, "key"), value);
    EXPECT_TRUE(*Put(&tree, "key", value, 1010));
    now_ = 1010;
    EXPECT_EQ(ValueOf(tree, "key"), std::nullopt);
    EXPECT_FALSE(*Put(&tree, "key", value, 1020)) << "what has expired was not there";
    EXPECT_EQ(ValueOf(tree, "key"), value);
    now_ = 1020;
    EXPECT_FALSE(*tree.Delete("key"));
    EXPECT_EQ(tree.keys(), 0u);
    EXPECT_FALSE(*Put(&tree, "key", value, kNeverExpires));
    now_ = INT64_MAX;
    EXPECT_EQ(ValueOf(tree, "key"), value);
    EXPECT_TRUE(*tree.Delete("key"));
  }
  ExpectSound(&region, 0, 0);
}

// The clock passes both expiries while the put is carried out. It took effect before its own, when the pair was there.
TEST_F(ExpiryTest, APutFindsWhatWasThereBeforeItsOwnExpiry) {
  TestRegion region;
  Meganode tree(region.memory(), Settings());
  EXPECT_FALSE(*Put(&tree, "key", "value", 1010));
  now_ = 1020;
  EXPECT_TRUE(*Put(&tree, "key", "value", 1005));
  EXPECT_FALSE(*Put(&tree, "key", "value", 1030));  // 1005 has passed at each moment before 1030 from now on.
}

TEST_F(ExpiryTest, APutReplacesTheExpiry) {
  TestRegion region;
  Meganode tree(region.memory(), Settings());
  for (const Expiry expiry : {Expiry{2000}, kNeverExpires, Expiry{3000}, Expiry{1500}}) {
    ASSERT_TRUE(Put(&tree, "key", "value", expiry).ok());
    EXPECT_EQ(tree.Find("key")->pair->expiry, expiry);
    ExpectSound(&region, 1, expiry != kNeverExpires);
  }
  const auto prepared = tree.Prepare("key", "value", Crc64("value", Crc64("key")), {}, 5000);
  ASSERT_TRUE(prepared.ok());
  EXPECT_TRUE(tree.Commit(*prepared, "key"));
  EXPECT_EQ(tree.Find("key")->pair->expiry, 5000u);
}

// Its log took longer than it was to live.
TEST_F(ExpiryTest, APutThatIsCommittedAfterItsExpiryDeletes) {
  TestRegion region;
  Meganode tree(region.memory(), Settings());
  for (const std::string& value : {std::string("small"), std::string(5000, 'v')}) {
    ASSERT_TRUE(Put(&tree, "key", value, kNeverExpires).ok());
    const auto expiry = static_cast<Expiry>(now_ + 10);
    const auto prepared = tree.Prepare("key", value, Crc64(value, Crc64("key")), {}, expiry);
    ASSERT_TRUE(prepared.ok());
    now_ += 10;
    EXPECT_TRUE(tree.Commit(*prepared, "key"));
    ExpectSound(&region, 0, 0);
    const auto another = tree.Prepare("key", value, Crc64(value, Crc64("key")), {}, expiry);
    ASSERT_TRUE(another.ok());
    EXPECT_FALSE(tree.Commit(*another, "key"));
    ExpectSound(&region, 0, 0);
  }
}

TEST_F(ExpiryTest, WithoutAClockNothingExpires) {
  TestRegion region;
  Meganode tree(region.memory());
  ASSERT_TRUE(Put(&tree, "key", "value", 1).ok());
  EXPECT_EQ(ValueOf(tree, "key"), "value");
}

TEST_F(ExpiryTest, AnExpiryCountsAsEightBytesOfTheKey) {
  TestRegion region;
  Meganode tree(region.memory(), Settings());
  const std::string longest(tree.key_bytes_max() - 8, 'k');
  EXPECT_TRUE(Put(&tree, longest, "value", 2000).ok());
  const absl::Status status = Put(&tree, longest + "k", "value", 2000).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(Put(&tree, longest + "k", "value", kNeverExpires).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Put(&tree, "key", "value", kExpiryMax + 1).status()));
  EXPECT_TRUE(Put(&tree, "key", "value", kExpiryMax).ok());
  ExpectSound(&region, 3, 2);
}

// Pairs of all sizes, with keys as long as they can be, are put, replaced, deleted, split off and joined again.
TEST_F(ExpiryTest, NodesOfAllSizesHoldThem) {
  for (const uint32_t node_bytes : {512u, 1024u}) {
    SCOPED_TRACE(node_bytes);
    const RegionShape shape{node_bytes, 8 << 20, 16 << 20};
    TestRegion left_region(shape);
    TestRegion right_region(shape, 2, {0, "k5", std::nullopt, {}});
    Meganode left(left_region.memory(), Settings());
    left.set_inline_max(InlineBytesMax(node_bytes));
    std::map<std::string, std::pair<std::string, Expiry>> model;
    Random random(node_bytes);
    const auto change = [&](int changes) {
      for (int i = 0; i < changes; ++i) {
        std::string key = "k" + std::to_string(random.Below(1000));
        const Expiry expiry = random.Below(2) == 0 ? kNeverExpires : 2000 + random.Below(1000);
        key.resize(std::max(key.size(), left.key_bytes_max() - random.Below(40)), 'k');
        key.resize(std::min(key.size(), left.key_bytes_max() - ExpiryBytes(expiry)));
        const std::string value(random.Below(300), 'v');
        if (random.Below(4) == 0) {
          EXPECT_EQ(*left.Delete(key), model.erase(key) > 0);
        } else {
          EXPECT_EQ(*Put(&left, key, value, expiry), !model.insert_or_assign(key, std::pair(value, expiry)).second);
        }
      }
    };
    const auto expect_all = [&](const Meganode& tree, std::string_view from, std::string_view to) {
      for (const auto& [key, pair] : model) {
        if (key < from || key >= to) continue;
        const std::optional<LeafPair> found = tree.Find(key)->pair;
        ASSERT_TRUE(found.has_value()) << key;
        EXPECT_EQ(*tree.VerifiedValueOf(key, *found), pair.first);
        EXPECT_EQ(found->expiry, pair.second);
      }
    };
    const auto expiring = [&] {
      uint64_t sum = 0;
      for (const auto& [key, pair] : model) sum += pair.second != kNeverExpires;
      return sum;
    };
    change(5000);
    expect_all(left, "", "z");
    ExpectSound(&left_region, model.size(), expiring());
    const std::string border = left.LeafOf("k5")->high_key();
    TestRegion split_region(shape, 2, {0, border, std::nullopt, {}});
    Meganode right(split_region.memory(), Settings());
    {
      MeganodeSplit split(&left, &right, border);
      while (!*split.Copy(20)) change(3);
      ASSERT_TRUE(split.Finish().ok());
      while (!split.Reclaim(10)) {
      }
    }
    expect_all(left, "", border);
    expect_all(right, border, "z");
    EXPECT_EQ(left.expiring() + right.expiring(), expiring());
    ExpectSound(&split_region, right.keys(), right.expiring());
    while (left.keys() > 20) {
      ASSERT_TRUE(*left.Delete(model.begin()->first));
      model.erase(model.begin());
    }
    left.set_on_write([&model](const PairStore::Write& write) {
      EXPECT_EQ(write.expiry, model.at(std::string(write.key)).second) << "a copy is logged with its expiry";
    });
    {
      MeganodeJoin join(&left, &right);
      while (!*join.Copy(10)) {
      }
      join.Finish();
    }
    left.set_on_write(nullptr);
    expect_all(left, "", "z");
    ExpectSound(&left_region, model.size(), expiring());
    EXPECT_LE(left.first_expiry(), 3000u);
    MeganodeClear clear(&left);
    while (!clear.Free(100)) {
    }
    ExpectSound(&left_region, 0, 0);
  }
}

TEST_F(ExpiryTest, ASweepFindsWhatHasExpired) {
  TestRegion region;
  Meganode tree(region.memory(), Settings());
  EXPECT_FALSE(ExpirySweep::Pays(tree));
  std::vector<std::string> expected;
  for (uint64_t i = 0; i < 2000; ++i) {
    const std::string key = KeyOf(i);
    ASSERT_TRUE(Put(&tree, key, "value", i % 3 == 0 ? kNeverExpires : 2000 + i).ok());
    if (i % 3 != 0 && i <= 1000) expected.push_back(key);
  }
  std::sort(expected.begin(), expected.end());
  const auto sweep = [&tree](size_t leaves) {
    std::vector<std::string> found;
    ExpirySweep sweep(&tree);
    for (; leaves > 0 && !sweep.ended(); --leaves) {
      const auto keys = sweep.Next(&tree);
      EXPECT_TRUE(keys.ok());
      EXPECT_EQ(*tree.DeleteAll(*keys), 0u) << "what has expired is not counted as deleted";
      found.insert(found.end(), keys->begin(), keys->end());
    }
    if (!sweep.ended()) ExpirySweep::Repeat(&tree);
    return found;
  };
  now_ = 2000;
  EXPECT_FALSE(ExpirySweep::Pays(tree)) << "the first one expires at 2001";
  now_ = 3000;
  EXPECT_TRUE(ExpirySweep::Pays(tree));
  (void)sweep(3);
  EXPECT_TRUE(ExpirySweep::Pays(tree)) << "it has not seen all";
  // Others may have opened the region meanwhile: they know no more than that there are some.
  EXPECT_TRUE(ExpirySweep::Pays(Meganode(region.memory(), Settings())));
  (void)sweep(SIZE_MAX);
  ExpectSound(&region, 2000 - expected.size(), 1333 - expected.size());
  EXPECT_EQ(tree.first_expiry(), 3001u);
  EXPECT_FALSE(ExpirySweep::Pays(tree));
  EXPECT_TRUE(sweep(SIZE_MAX).empty());
  {
    ExpirySweep again(&tree);
    ASSERT_TRUE(Put(&tree, "between", "value", 2990).ok()) << "behind the sweep, or before it";
    while (!again.ended()) (void)again.Next(&tree);
  }
  EXPECT_TRUE(ExpirySweep::Pays(tree));
}

TEST_F(ExpiryTest, ASweepGoesOnInItsPartOfAMeganodeThatIsSplit) {
  TestRegion region;
  Meganode tree(region.memory(), Settings());
  for (uint64_t i = 0; i < 2000; ++i) ASSERT_TRUE(Put(&tree, KeyOf(i), "value", 2000).ok());
  now_ = 2000;
  ExpirySweep sweep(&tree);
  ASSERT_TRUE(sweep.Next(&tree).ok());
  const std::string border = tree.LeafOf("")->high_key();
  TestRegion split_region({1024, 4 << 20, 16 << 20}, 2, {0, border, std::nullopt, {}});
  Meganode right(split_region.memory(), Settings());
  MeganodeSplit split(&tree, &right, border);
  while (!*split.Copy(10)) {
  }
  ASSERT_TRUE(split.Finish().ok());
  EXPECT_TRUE(ExpirySweep::Pays(right));
  EXPECT_TRUE(sweep.Next(&tree)->empty());
  EXPECT_TRUE(sweep.ended());
}

}  // namespace
}  // namespace cell
