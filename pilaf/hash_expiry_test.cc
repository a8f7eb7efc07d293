// Pairs of tables that expire, in both layouts.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "cell/base/random.h"
#include "cell/region/expiry_sweep.h"
#include "pilaf/hash_rebuild.h"
#include "pilaf/hash_split.h"
#include "pilaf/test_table.h"

namespace cell {
namespace {

using Model = std::map<std::string, std::pair<std::string, Expiry>>;

class HashExpiryTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  HashExpiryTest() { table_->set_cluster_time(Clock()); }

  std::function<int64_t()> Clock() {
    return [this] { return now_; };
  }
  // Short values are in buckets, long ones in extents.
  static std::string ValueOf(int i) { return std::string(i % 3 == 0 ? 300 : 10, static_cast<char>('a' + i % 26)); }

  void ExpectEqual(TestTable& table, const Model& model) {
    ASSERT_TRUE(table->Check().ok()) << table->Check();
    uint64_t bytes = 0, expiring = 0, seen = 0;
    for (const auto& [key, pair] : model) {
      const auto& [value, expiry] = pair;
      bytes += key.size() + value.size();
      expiring += expiry != kNeverExpires;
      EXPECT_EQ(table->Get(key)->has_value(), !table->Expired(expiry)) << key;
      const LookedUp found = LookUp(table, key);
      EXPECT_EQ(found.step, Lookup::Step::kFound) << key;
      EXPECT_EQ(std::pair(found.value, found.expiry), pair) << key;
    }
    EXPECT_EQ(table->keys(), model.size());
    EXPECT_EQ(table->data_bytes(), bytes);
    EXPECT_EQ(table->expiring(), expiring);
    const absl::Status visited = table->ForEach([&](const HashPair& pair) {
      ++seen;
      EXPECT_EQ(model.at(std::string(pair.key)), std::pair(std::string(pair.value), pair.expiry));
    });
    EXPECT_TRUE(visited.ok()) << visited;
    EXPECT_EQ(seen, model.size());
  }

  // Sweeps all, deletes what is found, and returns it.
  static std::set<std::string> Sweep(TestTable& table) {
    std::set<std::string> all;
    for (ExpirySweep sweep(table.get()); !sweep.ended();) {
      const absl::StatusOr<std::vector<std::string>> keys = sweep.Next(table.get());
      EXPECT_TRUE(keys.ok()) << keys.status();
      if (!keys.ok()) break;
      EXPECT_TRUE(std::is_sorted(keys->begin(), keys->end()));
      EXPECT_EQ(*table->DeleteAll(*keys), 0u) << "they count as not there";
      all.insert(keys->begin(), keys->end());
    }
    return all;
  }

  const RegionShape shape_ = ShapeOf(GetParam() == 0 ? 256 : 8, 1 << 20, GetParam());
  TestTable table_{shape_, GetParam()};
  int64_t now_ = 1000;
};
INSTANTIATE_TEST_SUITE_P(Layouts, HashExpiryTest, ::testing::Values(0, 512, 2048));

// As in a meganode: what it replaces was there at the last moment at which the put can have taken effect.
TEST_P(HashExpiryTest, APutFindsWhatWasThereBeforeItsOwnExpiry) {
  TestTable table(ShapeOf(64, 1 << 16, GetParam()), GetParam());
  table->set_cluster_time(Clock());
  EXPECT_FALSE(*table.Put("key", "value", 1010));
  now_ = 1020;
  EXPECT_TRUE(*table.Put("key", "value", 1005));
  EXPECT_FALSE(*table.Put("key", "value", 1030));
}

TEST_P(HashExpiryTest, APairIsThereUntilItsExpiry) {
  for (const int i : {1, 3}) {  // With buckets, the first is in its bucket.
    const std::string key = std::to_string(i);
    EXPECT_FALSE(*table_.Put(key, ValueOf(i), 1002));
    EXPECT_TRUE(*table_.Put(key, ValueOf(i), 1001)) << "it is replaced";
    EXPECT_EQ(**table_->Get(key), ValueOf(i));
    now_ = 1001;
    EXPECT_FALSE(table_->Get(key)->has_value());
    EXPECT_FALSE(*table_.Put(key, "new")) << "what has expired is not replaced";
    EXPECT_EQ(**table_->Get(key), "new");
    EXPECT_TRUE(*table_.Put(key, ValueOf(i), 1003));
    now_ = 1003;
    std::vector<RecordKind> records;
    table_->set_on_write([&](const PairStore::Write& write) { records.push_back(write.kind); });
    EXPECT_FALSE(*table_->Delete(key)) << "what has expired is not deleted";
    EXPECT_EQ(records, std::vector<RecordKind>{RecordKind::kDelete}) << "but it goes, and the log says so";
    table_->set_on_write(nullptr);
    ExpectEqual(table_, {});
    now_ = 1000;
  }
}

TEST_P(HashExpiryTest, IsAsAModel) {
  Random random(7);
  Model model;
  for (int step = 0; step < 3000; ++step) {
    const int i = static_cast<int>(random.Below(GetParam() == 512 ? 40 : 100));
    const std::string key = std::to_string(i);
    const auto it = model.find(key);
    const bool alive = it != model.end() && !table_->Expired(it->second.second);
    now_ += static_cast<int64_t>(random.Below(3));
    const bool alive_now = alive && !table_->Expired(it->second.second);
    if (random.Below(3) == 0) {
      EXPECT_EQ(*table_->Delete(key), alive_now);
      model.erase(key);
    } else {
      const Expiry expiry = random.Below(2) == 0 ? kNeverExpires : static_cast<Expiry>(now_) + 1 + random.Below(100);
      const std::string value = ValueOf(i + static_cast<int>(random.Below(3)));
      EXPECT_EQ(*table_.Put(key, value, expiry), alive_now);
      model[key] = {value, expiry};
    }
    if (step % 100 == 0) ExpectEqual(table_, model);
  }
  EXPECT_GT(table_->expiring(), 5u);
}

TEST_P(HashExpiryTest, ASweepFindsWhatHasExpired) {
  Model model;
  std::set<std::string> expired;
  for (int i = 0; i < 60; ++i) {
    const std::string key = std::to_string(i);
    const Expiry expiry = i % 4 == 0 ? kNeverExpires : 1000 + static_cast<Expiry>(i);
    ASSERT_TRUE(table_.Put(key, ValueOf(i), expiry).ok());
    if (expiry != kNeverExpires && expiry <= 1030) {
      expired.insert(key);
    } else {
      model[key] = {ValueOf(i), expiry};
    }
  }
  EXPECT_FALSE(ExpirySweep::Pays(*table_.get())) << "nothing expires before 1001";
  now_ = 1030;
  EXPECT_TRUE(ExpirySweep::Pays(*table_.get()));
  EXPECT_EQ(Sweep(table_), expired);
  ExpectEqual(table_, model);
  EXPECT_EQ(table_->first_expiry(), 1031u);
  EXPECT_FALSE(ExpirySweep::Pays(*table_.get()));
  const std::unique_ptr<HashTable> again = HashTable::Open(table_.memory(), Clock());
  EXPECT_TRUE(ExpirySweep::Pays(*again)) << "a new owner looks once";
}

// A put may move a pair to where the sweep has been.
TEST_P(HashExpiryTest, AMovedPairIsFoundByTheNextSweep) {
  uint64_t moved_past = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    now_ = 1000;
    TestTable table(shape_, GetParam());
    table->set_cluster_time(Clock());
    Random random(seed);
    for (int i = 0; table->unit_fill() < (GetParam() == 0 ? 0.85 : 0.9); ++i) {
      ASSERT_TRUE(table.Put(fmt::format("{} {}", seed, i), "v", 2000).ok());
    }
    const uint64_t all = table->keys();
    now_ = 2000;
    ExpirySweep sweep(table.get());
    uint64_t found = 0;
    while (!sweep.ended()) {
      const std::vector<std::string> keys = *sweep.Next(table.get());
      found += keys.size();
      for (int i = 0; i < 20; ++i) {
        const std::string key = fmt::format("comes and goes {}", random.Below(20));
        if (!table.Put(key, "v").ok() || random.Below(2) == 0) (void)*table->Delete(key);
      }
    }
    // Nothing was deleted, so the sweep has missed those that were moved to where it had been.
    moved_past += found < all;
    if (found < all) {
      EXPECT_TRUE(ExpirySweep::Pays(*table.get()));
    }
  }
  if (GetParam() != 2048) {  // Large buckets have room.
    EXPECT_GT(moved_past, 3u);
  }
}

TEST_P(HashExpiryTest, ACommitAfterTheExpiryDeletesTheKey) {
  for (const int i : {1, 3}) {
    const std::string key = std::to_string(i), value = ValueOf(i);
    for (const bool of_key : {false, true}) {
      now_ = 1000;
      ASSERT_TRUE(table_.Put(key, "old").ok());
      const absl::StatusOr<PairStore::Prepared> prepared =
          table_->Prepare(key, value, Crc64(value, Crc64(key)), {1, of_key}, 1005);
      ASSERT_TRUE(prepared.ok()) << prepared.status();
      now_ = 1005;
      EXPECT_TRUE(table_->Commit(*prepared, key)) << "the old one was there";
      ExpectEqual(table_, {});
      now_ = 1000;
      const absl::StatusOr<PairStore::Prepared> in_time =
          table_->Prepare(key, value, Crc64(value, Crc64(key)), {1, true}, 1005);
      ASSERT_TRUE(in_time.ok()) << in_time.status();
      EXPECT_FALSE(table_->Commit(*in_time, key));
      ExpectEqual(table_, {{key, {value, 1005}}});
      now_ = 1005;
      EXPECT_FALSE(*table_->CommitDelete(key));
    }
  }
}

TEST_P(HashExpiryTest, CopiesKeepTheExpiry) {
  Model lower_model, upper_model;
  constexpr uint32_t kHalf = uint32_t{1} << 31;
  TestTable upper(shape_, GetParam(), 2, {kHalf, UINT32_MAX});
  upper->set_cluster_time(Clock());
  const auto put = [&](int i, Expiry expiry) {
    const std::string key = std::to_string(i);
    ASSERT_TRUE(table_.Put(key, ValueOf(i), expiry).ok());
    (HashKey(key).position < kHalf ? lower_model : upper_model)[key] = {ValueOf(i), expiry};
  };
  for (int i = 0; i < 60; ++i) put(i, i % 2 == 0 ? kNeverExpires : 2000 + static_cast<Expiry>(i));
  HashSplit split(table_.get(), upper.get());
  for (int i = 0; !*split.Copy(1); ++i) put(i % 60, 3000);
  ASSERT_TRUE(split.Finish().ok());
  // Pairs that are not cleaned yet belong to the upper region. Its own sweeps find them.
  now_ = 9000;  // All have expired.
  size_t found = 0;
  for (ExpirySweep sweep(table_.get()); !sweep.ended();) {
    const std::vector<std::string> keys = *sweep.Next(table_.get());
    for (const std::string& key : keys) EXPECT_LT(HashKey(key).position, kHalf) << key;
    found += keys.size();
  }
  EXPECT_GT(found, 5u);
  now_ = 1000;
  while (!split.Clean(1)) {
  }
  EXPECT_TRUE(split.Clean(1)) << "who frees all at once, and who goes on afterwards";
  ExpectEqual(table_, lower_model);
  ExpectEqual(upper, upper_model);

  std::unique_ptr<TestTable> built;
  const auto empty = [&]() -> absl::StatusOr<HashTable*> {
    built = std::make_unique<TestTable>(shape_, GetParam());
    return built->get();
  };
  const absl::Status status = Rebuild(empty, [&](const PutPair& again) {
    absl::Status one;
    const absl::Status all = upper->ForEach([&](const HashPair& pair) { one.Update(again(pair)); });
    return one.ok() ? all : one;
  });
  ASSERT_TRUE(status.ok()) << status;
  ExpectEqual(*built, upper_model);
}

// A reader must not take a pair with an expiry that it never had, and a copy would make it right.
TEST_P(HashExpiryTest, ADamagedExpiryIsNoticed) {
  for (const int i : {1, 3}) {
    const std::string key = std::to_string(i);
    ASSERT_TRUE(table_.Put(key, ValueOf(i), 5000).ok());
    const std::byte* const value = AsBytes(**table_->Get(key)).data();
    std::byte& damaged = table_.memory()->base()[value - table_.memory()->base() + ValueOf(i).size()];
    EXPECT_EQ(Load<Expiry>(&damaged), 5000u);
    damaged ^= std::byte{1};
    EXPECT_EQ(LookUp(table_, key).step, Lookup::Step::kGaveUp);
    EXPECT_EQ(table_->Check().code(), absl::StatusCode::kDataLoss);
    now_ = 6000;
    ExpirySweep sweep(table_.get());
    absl::Status status;
    while (status.ok() && !sweep.ended()) status = sweep.Next(table_.get()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << "nothing is deleted by a wrong expiry";
    damaged ^= std::byte{1};
    EXPECT_TRUE(table_->Check().ok()) << table_->Check();
    now_ = 1000;
  }
}

}  // namespace
}  // namespace cell
