#include "cell/io/memory/region_pool.h"

#include <gtest/gtest.h>

namespace cell {
namespace {

constexpr uint64_t kBytes = 64 << 10;
constexpr int64_t kSecondNs = 1'000'000'000;

class SetClock : public Clock {
 public:
  int64_t NowNs() const override { return now_ns; }
  int64_t now_ns = 0;
};

class RegionPoolTest : public ::testing::Test {
 protected:
  SetClock clock_;
  RegionPool pool_{/*huge_pages=*/false, &clock_};
};

// A client may still believe what it reads where the region was.
TEST_F(RegionPoolTest, AStagedRegionIsNotMadeWhereItHasJustBeen) {
  const RegionMemory* const before = *pool_.Create(1, kBytes);
  pool_.Drop(1);
  const RegionMemory* const staged = *pool_.CreateStaged(1, kBytes);
  EXPECT_NE(staged, before);
  EXPECT_EQ(pool_.free_regions(), 1u);
  EXPECT_EQ(*pool_.CreateStaged(2, kBytes), before);  // Another region may be made there.
}

// A region that is lost and recovered by one server again and again.
TEST_F(RegionPoolTest, ARegionThatComesBackNowAndThenTakesNoNewMemory) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(pool_.CreateStaged(1, kBytes).ok());
    pool_.Publish(1);
    clock_.now_ns += 20 * kSecondNs;
    pool_.Drop(1);
    clock_.now_ns += kSecondNs;
  }
  EXPECT_LE(pool_.free_regions(), 3u);
}

}  // namespace
}  // namespace cell
