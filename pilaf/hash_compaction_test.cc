// Tests ExtentCompaction over parts of tables, in both layouts. (LookupRace in lookup_test.cc has its readers.)
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/region/extent_compaction.h"
#include "fmt/format.h"
#include "pilaf/test_table.h"

namespace cell {
namespace {

constexpr uint64_t kLarge = 20'000;

class HashCompactionTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  absl::Status Put(const std::string& key, const std::string& value) {
    absl::Status status = table_.Put(key, value).status();
    if (status.ok()) pairs_[key] = value;
    return status;
  }
  void Delete(const std::string& key) {
    ASSERT_TRUE(*table_->Delete(key));
    pairs_.erase(key);
  }
  void Scatter(uint64_t free) {
    Random random(1);
    absl::Status status;
    while (status.ok()) {
      status = Put(fmt::format("{:08}", random.Below(100'000'000)),
                   std::string(400 + random.Below(1200), static_cast<char>('a' + random.Below(26))));
    }
    ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
    while (table_->extents().bytes_total - table_->extents().bytes_used < free) {
      const auto it = pairs_.lower_bound(fmt::format("{:08}", random.Below(100'000'000)));
      if (it != pairs_.end()) Delete(std::string(it->first));
    }
    ASSERT_TRUE(ExtentCompaction::MayMakeRoom(*table_.get(), kLarge));
  }
  void Run(ExtentCompaction* pass) {
    for (int i = 0; i < 100'000 && !pass->ended(); ++i) {
      const uint64_t before = pass->moved_bytes();
      ASSERT_TRUE(pass->Step(table_.get(), 4096).ok());
      ASSERT_LT(pass->moved_bytes(), before + 4096 + 2000);
    }
    ASSERT_TRUE(pass->ended());
  }
  void ExpectSound() {
    const absl::Status status = table_->Check();
    ASSERT_TRUE(status.ok()) << status;
    for (const auto& [key, value] : pairs_) ASSERT_EQ(**table_->Get(key), value);
    ASSERT_EQ(table_->keys(), pairs_.size());
  }

  TestTable table_{ShapeOf(GetParam() == 0 ? 4096 : 256, 1 << 20, GetParam()), GetParam()};
  std::map<std::string, std::string> pairs_;
};

TEST_P(HashCompactionTest, APassMakesRoomForALargeExtent) {
  Scatter(300'000);
  ExtentCompaction pass(table_.get(), kLarge);
  Run(&pass);
  EXPECT_GT(pass.moved(), 5u);
  ExpectSound();
  EXPECT_TRUE(Put("new", std::string(kLarge - 3, 'l')).ok());
  ExpectSound();
}

TEST_P(HashCompactionTest, InTheBackgroundHalfOfTheFreeSpaceBecomesOnePiece) {
  Scatter(300'000);
  ExtentCompaction pass(table_.get(), 0);
  Run(&pass);
  EXPECT_LT(table_->extents().fragmentation(), 0.6);
  ExpectSound();
}

TEST_P(HashCompactionTest, ADamagedExtentStaysWhereItIs) {
  Scatter(300'000);
  std::map<std::string, const char*> damaged;
  size_t i = 0;
  for (const auto& [key, value] : pairs_) {
    if (++i % 3 != 0) continue;
    const std::string_view stored = **table_->Get(key);
    const uint64_t at = table_->ExtentOf(key, stored).offset() + 16;  // Of its value.
    table_.memory()->StoreWord(at, ~LoadWord(table_.memory()->at(at), std::memory_order_relaxed));
    damaged[key] = stored.data();
  }
  ExtentCompaction pass(table_.get(), 0);
  Run(&pass);
  ASSERT_GT(pass.moved(), 0u);
  for (const auto& [key, value] : pairs_) {
    const auto it = damaged.find(key);
    if (it != damaged.end()) {
      EXPECT_EQ((*table_->Get(key))->data(), it->second) << key;
    } else {
      EXPECT_EQ(**table_->Get(key), value);
    }
  }
}

TEST_P(HashCompactionTest, WritesMayComeBetweenAnyTwoSteps) {
  Scatter(300'000);
  Random random(5);
  uint64_t moved = 0;
  for (int round = 0; round < 20; ++round) {
    ExtentCompaction pass(table_.get(), random.Below(2) == 0 ? 0 : kLarge);
    for (int i = 0; i < 100'000 && !pass.ended(); ++i) {
      ASSERT_TRUE(pass.Step(table_.get(), 1 + random.Below(3000)).ok());
      const auto it = pairs_.lower_bound(fmt::format("{:08}", random.Below(100'000'000)));
      if (it == pairs_.end()) continue;
      if (random.Below(2) == 0) {
        Delete(std::string(it->first));
      } else {
        (void)Put(fmt::format("{:08}", random.Below(100'000'000)), std::string(200 + random.Below(2000), 'w'));
      }
    }
    moved += pass.moved();
    ExpectSound();
  }
  EXPECT_GT(moved, 100u);
}

INSTANTIATE_TEST_SUITE_P(Layouts, HashCompactionTest, ::testing::Values(0u, 1024u));

}  // namespace
}  // namespace cell
