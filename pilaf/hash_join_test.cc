// Joins two regions of a table while the lower one is written.
#include "pilaf/hash_join.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "cell/base/random.h"
#include "pilaf/test_table.h"

namespace cell {
namespace {

constexpr uint32_t kHalf = UINT32_MAX / 2 + 1;
constexpr uint32_t kLayouts[] = {0, 512};  // Bucket sizes; 0: slots.

using Model = std::map<std::string, std::string>;

bool IsUpper(const std::string& key) { return HashKey(key).position >= kHalf; }

class HashJoinTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  static RegionShape Shape() { return ShapeOf(GetParam() == 0 ? 512 : 32, 256 << 10, GetParam()); }

  TestTable& RegionOf(const std::string& key) { return !joined_ && IsUpper(key) ? upper_ : lower_; }
  std::string RandomKey() { return fmt::format("key {}", random_.Below(2'000)); }
  // Pairs of two sizes: in buckets they are inline, or in extents.
  std::string RandomValue() {
    return std::string(random_.Below(4) == 0 ? 100 : random_.Below(16), 'a' + number_++ % 26);
  }

  // Returns false if there is no room.
  bool Put(const std::string& key) {
    const std::string value = RandomValue();
    if (!RegionOf(key).Put(key, value).ok()) return false;
    model_[key] = value;
    return true;
  }
  void Delete(const std::string& key) { ASSERT_EQ(*RegionOf(key)->Delete(key), model_.erase(key) > 0); }
  void FillTo(double fill) {
    while (lower_->fill() + upper_->fill() < fill) Put(RandomKey());
  }
  // Makes some writes to the lower region.
  void WriteLower() {
    for (uint64_t i = random_.Below(4); i > 0; --i) {
      const std::string key = RandomKey();
      if (IsUpper(key)) continue;
      if (lower_->fill() > 0.25) {
        Delete(key);
      } else {
        Put(key);
      }
    }
  }
  void ExpectAsModel() {
    for (TestTable* table : {&lower_, &upper_}) {
      if (joined_ && table == &upper_) continue;
      const absl::Status status = (*table)->Check();
      EXPECT_TRUE(status.ok()) << status;
    }
    EXPECT_EQ(lower_->keys() + (joined_ ? 0 : upper_->keys()), model_.size());
    for (const auto& [key, value] : model_) {
      const auto found = RegionOf(key)->Get(key);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(*found, value) << key;
    }
  }

  Random random_{1};
  int number_ = 0;
  bool joined_ = false;
  Model model_;
  TestTable lower_{Shape(), GetParam(), 1, {0, kHalf - 1}};
  TestTable upper_{Shape(), GetParam(), 2, {kHalf, UINT32_MAX}};
};
INSTANTIATE_TEST_SUITE_P(Layouts, HashJoinTest, ::testing::ValuesIn(kLayouts));

TEST_P(HashJoinTest, TheLowerRegionHasAllPairsAfterwards) {
  FillTo(0.3);
  std::map<std::string, std::string> logged;
  lower_->set_on_write([&logged](const PairStore::Write& write) { logged[std::string(write.key)] = write.value; });
  {
    HashJoin join(lower_.get(), upper_.get());
    for (bool copied = false; !copied;) {
      const absl::StatusOr<bool> all = join.Copy(8);
      ASSERT_TRUE(all.ok()) << all.status();
      copied = *all;
      WriteLower();
      const std::string key = RandomKey();  // The lower region does not serve the upper one's keys yet.
      ASSERT_EQ(lower_.Put(key, "").ok() && IsUpper(key), false);
      if (!IsUpper(key)) model_[key] = "";
    }
    join.Finish();
    joined_ = true;
  }
  EXPECT_EQ(lower_->range(), HashRange{});
  EXPECT_NE(upper_->hash_header().invalidated, 0u);
  for (const auto& [key, value] : model_) {
    if (IsUpper(key)) {
      EXPECT_EQ(logged[key], value);
    }
  }
  ExpectAsModel();
  for (int i = 0; i < 200; ++i) Put(RandomKey());
  ExpectAsModel();
}

TEST_P(HashJoinTest, OneThatIsUndoneLeavesBothAsTheyWere) {
  FillTo(0.35);
  for (int steps = 0; steps < 40; ++steps) {
    HashJoin join(lower_.get(), upper_.get());
    bool all = false;
    for (int step = 0; step < steps && !all; ++step) {
      const absl::StatusOr<bool> copied = join.Copy(lower_->geometry().units / 16);
      ASSERT_TRUE(copied.ok()) << copied.status();
      all = *copied;
      WriteLower();
    }
    uint64_t logged = 0;
    lower_->set_on_write([&logged](const PairStore::Write&) { ++logged; });
    while (!join.Undo(lower_->geometry().units / 8)) {
    }
    EXPECT_EQ(logged, 0u);
    lower_->set_on_write(nullptr);
    ExpectAsModel();
    if (::testing::Test::HasFailure()) return;
  }
}

// Pairs that wait to be removed are moved to where they were removed already.
TEST_P(HashJoinTest, NothingIsLeftHoweverPairsAreMovedMeanwhile) {
  uint64_t kicked = 0;
  for (int round = 0; round < 20; ++round) {
    FillTo(0.45);
    HashJoin join(lower_.get(), upper_.get());
    for (absl::StatusOr<bool> copied = false; copied.ok() && !*copied;) copied = join.Copy(64);
    const uint64_t before = lower_->counters().kicked;
    for (bool undone = false; !undone; undone = join.Undo(1)) {
      for (int i = 0; i < 100; ++i) {
        const std::string key = fmt::format("more {}", random_.Below(100'000));
        if (!IsUpper(key) && lower_->unit_fill() < 0.88) Put(key);
      }
    }
    kicked += lower_->counters().kicked - before;
    ExpectAsModel();
    if (::testing::Test::HasFailure()) return;
    for (const auto& [key, value] : Model(model_)) Delete(key);
  }
  EXPECT_GT(kicked, 100u);
}

TEST_P(HashJoinTest, ALowerRegionThatBecomesTooFullRefuses) {
  FillTo(0.3);
  HashJoin join(lower_.get(), upper_.get());
  ASSERT_FALSE(*join.Copy(1));
  while (lower_->fill() < 0.5) {
    const std::string key = RandomKey();
    if (!IsUpper(key)) Put(key);
  }
  EXPECT_EQ(join.Copy(1).status().code(), absl::StatusCode::kResourceExhausted);
  while (!join.Undo(7)) {
  }
  ExpectAsModel();
}

TEST_P(HashJoinTest, ADamagedPairIsNotTakenOver) {
  FillTo(0.3);
  for (uint32_t i = 0; i < upper_->geometry().units; ++i) {
    const uint64_t word = upper_->geometry().OffsetOf(i) + 8;
    const auto value = Load<uint64_t>(upper_.memory()->at(word));
    if (value != 0) upper_.memory()->StoreWord(word, value ^ 1);
  }
  HashJoin join(lower_.get(), upper_.get());
  EXPECT_EQ(join.Copy(1'000).status().code(), absl::StatusCode::kDataLoss);
  while (!join.Undo(7)) {
  }
  EXPECT_TRUE(lower_->Check().ok());
}

// Its worker has lost the lower region meanwhile. No bucket may be whole there.
TEST_P(HashJoinTest, AnInvalidatedRegionIsNotWrittenAgain) {
  FillTo(0.3);
  HashJoin join(lower_.get(), upper_.get());
  for (absl::StatusOr<bool> copied = false; copied.ok() && !*copied;) copied = join.Copy(7);
  lower_->Invalidate();
  const std::string before(reinterpret_cast<const char*>(lower_.memory()->base()), Shape().region_bytes());
  EXPECT_TRUE(join.Undo(1'000));
  EXPECT_EQ(before, std::string(reinterpret_cast<const char*>(lower_.memory()->base()), Shape().region_bytes()));
}

TEST_P(HashJoinTest, OnlySmallOnesFit) {
  EXPECT_TRUE(HashJoin::Fits(*lower_.get(), *upper_.get()));
  FillTo(0.45);
  EXPECT_TRUE(HashJoin::Fits(*lower_.get(), *upper_.get()));
  FillTo(0.5);
  EXPECT_FALSE(HashJoin::Fits(*lower_.get(), *upper_.get()));
}

TEST_P(HashJoinTest, DeletionsAreCountedUntilASplit) {
  ASSERT_TRUE(Put("a") && Put("b"));
  Delete("a");
  Delete("a");
  EXPECT_EQ(RegionOf("a")->deleted(), 1u);
}

}  // namespace
}  // namespace cell
