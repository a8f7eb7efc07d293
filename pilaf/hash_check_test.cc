#include "pilaf/hash_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "cell/base/check.h"
#include "cell/base/random.h"
#include "fmt/format.h"
#include "pilaf/test_table.h"

namespace cell {
namespace {

// With slots, and with buckets of 512 bytes.
class HashCheckTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  HashCheckTest() {
    for (int i = 0; i < 600; ++i) CELL_CHECK(table_.Put(Key(i), std::string(i % 5 == 0 ? 400 : 20, 'v')).ok());
  }
  static std::string Key(uint64_t i) { return fmt::format("key{}", i); }

  struct Result {
    absl::Status status;
    bool whole;
    int slices;
  };
  Result Check(
      int64_t bytes, const std::function<void()>& between = [] {}, bool settled = true) {
    HashCheck check;
    for (int slices = 1;; ++slices) {
      const absl::StatusOr<bool> ended = check.Step({*table_.get(), bytes, settled});
      if (!ended.ok() || *ended) return {ended.status(), check.whole(), slices};
      CELL_CHECK_LT(slices, 1'000'000);
      between();
    }
  }

  TestTable table_{ShapeOf(GetParam() == 0 ? 1024 : 128, 1 << 20, GetParam()), GetParam()};
};

TEST_P(HashCheckTest, SlicesFindWhatACheckInOnePieceFinds) {
  const Result sound = Check(1);
  EXPECT_TRUE(sound.status.ok()) << sound.status;
  EXPECT_TRUE(sound.whole);
  EXPECT_GT(sound.slices, 100);
  ++table_.memory()->header().keys;
  EXPECT_EQ(Check(1).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Check(1).status, table_->Check());
  --table_.memory()->header().keys;
  ASSERT_TRUE(table_->Prepare("lost", std::string(500, 'v'), Crc64(std::string(500, 'v'), Crc64("lost")), {}).ok());
  EXPECT_EQ(Check(1).status.code(), absl::StatusCode::kDataLoss);  // Its extent belongs to no key.
  EXPECT_TRUE(Check(
                  1, [] {}, /*settled=*/false)
                  .status.ok());
}

TEST_P(HashCheckTest, WritesBetweenSlicesAreNotTakenForDamage) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Random random(seed);
    const auto write = [&] {
      for (uint64_t writes = random.Below(10); writes > 0; --writes) {
        const std::string key = Key(random.Below(900));
        if (random.Below(2) == 0) {
          ASSERT_TRUE(table_->Delete(key).ok());
        } else {
          (void)table_.Put(key, std::string(random.Below(400), 'v'));
        }
      }
    };
    const Result checked = Check(static_cast<int64_t>(1 + random.Below(20'000)), write);
    EXPECT_TRUE(checked.status.ok()) << "seed " << seed << ": " << checked.status;
    EXPECT_FALSE(checked.whole);
    ASSERT_TRUE(table_->Check().ok());
  }
}

TEST_P(HashCheckTest, DamageIsFoundWhileTheTableIsWritten) {
  const HashTable::Located pair = *table_->Locate(Key(100), HashKey(Key(100)));  // It is in an extent.
  const uint64_t offset = table_->ExtentOf(Key(100), pair.value).offset();
  table_.memory()->StoreWord(offset + 64, 0);
  int written = 0;
  const Result checked = Check(1, [&] { ASSERT_TRUE(table_.Put(Key(101), std::to_string(++written)).ok()); });
  EXPECT_EQ(checked.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_GT(written, 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, HashCheckTest, ::testing::Values(0, 512));

}  // namespace
}  // namespace cell
