// Keys of a table that transactions hold: readers of memory must ask the owner, wherever the key is or may come to be.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "cell/base/random.h"
#include "pilaf/hash_split.h"
#include "pilaf/test_table.h"

namespace cell {
namespace {

constexpr uint32_t kHalf = UINT32_MAX / 2 + 1;
constexpr uint32_t kLayouts[] = {0, 512};  // Bucket sizes; 0: slots.

class HashHeldTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  static RegionShape Shape() { return ShapeOf(GetParam() == 0 ? 512 : 32, 256 << 10, GetParam()); }
  // Short values are in buckets, long ones in extents.
  std::string RandomValue() { return std::string(random_.Below(3) == 0 ? 200 : 8, 'a' + number_++ % 26); }

  static absl::StatusOr<PairStore::Prepared> Prepare(TestTable& table, const std::string& key,
                                                     const std::string& value) {
    return table->Prepare(key, value, Crc64(value, Crc64(key)), {0, /*of_key=*/true});
  }

  Random random_{7};
  int number_ = 0;
  TestTable table_{Shape(), GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Layouts, HashHeldTest, ::testing::ValuesIn(kLayouts));

TEST_P(HashHeldTest, ReadersOfAKeyThatIsHeldMustAskUntilItIsReleased) {
  ASSERT_TRUE(table_.Put("there", "value").ok());
  for (const std::string key : {"there", "absent"}) {
    const Lookup::Step before = key == "there" ? Lookup::Step::kFound : Lookup::Step::kAbsent;
    EXPECT_EQ(LookUp(table_, key).step, before);
    table_->ShowHeld(key, true);
    EXPECT_EQ(LookUp(table_, key).step, Lookup::Step::kHeld);
    EXPECT_TRUE(table_->Check().ok()) << table_->Check();
    table_->ShowHeld(key, false);
    EXPECT_EQ(LookUp(table_, key).step, before);
  }
}

TEST_P(HashHeldTest, AKeyIsHiddenUntilTheLastOneThatMayBeInItsPlaceIsReleased) {
  // Keys that share a slot, or a bucket.
  const HashTable::Units units = table_->UnitsOf(HashKey("a"));
  std::string other;
  for (int i = 0; other.empty(); ++i) {
    const std::string key = fmt::format("key {}", i);
    if (table_->UnitsOf(HashKey(key))[0] == units[0]) other = key;
  }
  table_->ShowHeld("a", true);
  table_->ShowHeld(other, true);
  table_->ShowHeld(other, false);
  EXPECT_EQ(LookUp(table_, "a").step, Lookup::Step::kHeld);
  EXPECT_EQ(LookUp(table_, other).step, Lookup::Step::kHeld);
  table_->ShowHeld("a", false);
  EXPECT_EQ(LookUp(table_, other).step, Lookup::Step::kAbsent);
}

// Whatever is put, moved, deleted and committed beside them, held keys stay hidden, and what is prepared keeps its
// room.
TEST_P(HashHeldTest, HeldKeysStayHiddenWhileOthersAreWritten) {
  std::map<std::string, std::string> model;
  struct HeldKey {
    std::string value;
    std::optional<PairStore::Prepared> put;  // nullopt: it will be deleted.
  };
  std::map<std::string, HeldKey> held;
  uint64_t committed = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string key = fmt::format("key {}", random_.Below(GetParam() == 0 ? 700 : 600));
    if (!held.empty() && random_.Below(8) == 0)
      key = std::next(held.begin(), static_cast<ptrdiff_t>(random_.Below(held.size())))->first;
    const std::string value = RandomValue();
    const auto its = held.find(key);
    if (its != held.end()) {
      if (random_.Below(2) != 0) continue;
      EXPECT_EQ(LookUp(table_, key).step, Lookup::Step::kHeld);
      if (its->second.put.has_value() && random_.Below(3) != 0) {
        ASSERT_EQ(table_->Commit(*its->second.put, key), model.contains(key));
        model[key] = its->second.value;
        ++committed;
      } else if (its->second.put.has_value()) {
        table_->Discard(*its->second.put);
      } else if (random_.Below(2) == 0) {
        ASSERT_EQ(*table_->CommitDelete(key), model.erase(key) > 0);
      }
      table_->ShowHeld(key, false);
      held.erase(its);
    } else if (held.size() < 20 && random_.Below(4) == 0) {
      HeldKey one{value, std::nullopt};
      if (random_.Below(3) != 0) {
        absl::StatusOr<PairStore::Prepared> put = Prepare(table_, key, value);
        if (!put.ok()) continue;
        one.put = *std::move(put);
      }
      table_->ShowHeld(key, true);
      held.emplace(key, std::move(one));
    } else if (random_.Below(8) == 0) {
      ASSERT_EQ(*table_->Delete(key), model.erase(key) > 0);
    } else if (table_.Put(key, value).ok()) {
      model[key] = value;
    }
    if (i % 500 != 0) continue;
    absl::flat_hash_set<uint64_t> reserved;
    for (const auto& [name, one] : held) {
      EXPECT_EQ(LookUp(table_, name).step, Lookup::Step::kHeld) << name;
      if (one.put.has_value() && one.put->extent != 0) reserved.insert(one.put->extent);
    }
    ASSERT_TRUE(table_->Check(reserved).ok()) << table_->Check(reserved);
    for (const auto& [name, stored] : model) {
      const LookedUp found = LookUp(table_, name);
      if (found.step == Lookup::Step::kHeld) continue;
      EXPECT_EQ(found.step, Lookup::Step::kFound) << name;
      EXPECT_EQ(found.value, stored) << name;
    }
  }
  EXPECT_GT(committed, 300u);
  EXPECT_GT(table_->counters().kicked, 50u);
}

// After a split, readers that know the table of before still look into the lower part.
TEST_P(HashHeldTest, AHeldKeyOfAPartThatWasSplitOffIsNotFoundInTheLowerOne) {
  std::set<std::string> upper_keys;
  for (int i = 0; i < 100; ++i) {
    const std::string key = fmt::format("key {}", i);
    ASSERT_TRUE(table_.Put(key, "value").ok());
    if (HashKey(key).position >= kHalf) upper_keys.insert(key);
  }
  TestTable upper(Shape(), GetParam(), 2, {kHalf, UINT32_MAX});
  HashSplit split(table_.get(), upper.get());
  while (!*split.Copy(8)) {
  }
  ASSERT_TRUE(split.Finish().ok());
  for (const std::string& key : upper_keys) {
    upper->ShowHeld(key, true);
    EXPECT_EQ(LookUp(table_, key).step, Lookup::Step::kElsewhere) << key;
    EXPECT_EQ(LookUp(upper, key).step, Lookup::Step::kHeld) << key;
    upper->ShowHeld(key, false);
    EXPECT_EQ(LookUp(upper, key).step, Lookup::Step::kFound) << key;
  }
  while (!split.Clean(8)) {
  }
}

TEST_P(HashHeldTest, WhatIsInvalidStaysInvalid) {
  ASSERT_TRUE(table_.Put("a", "value").ok());
  table_->Invalidate();
  table_->ShowHeld("a", true);
  EXPECT_EQ(LookUp(table_, "a").step, Lookup::Step::kElsewhere);
  table_->ShowHeld("a", false);
  table_->Restore();
  EXPECT_EQ(LookUp(table_, "a").value, "value");
}

}  // namespace
}  // namespace cell
