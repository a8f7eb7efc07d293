#include "cell/io/memory/region_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>

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

// A reader may still be there, and zeros would tell it that slots of a table were never used. Ones look like nothing:
// nodes are invalidated, and no CRC is right.
TEST_F(RegionPoolTest, WithZeroFreedADroppedRegionIsOverwrittenByWhatIsNotValid) {
  for (const bool zero_freed : {false, true}) {
    RegionPool pool(/*huge_pages=*/false, &clock_);
    pool.set_zero_freed(zero_freed);
    RegionMemory* const memory = *pool.Create(1, kBytes);
    const std::array<std::byte, 8> pair = {std::byte{'p'}};
    for (uint64_t at = 0; at < kBytes; at += 1024) memory->Store(at, pair.data(), pair.size());
    const RegionPool::Found found = *pool.Find(1);
    pool.Drop(1);
    EXPECT_EQ(pool.free_regions(), 1u);
    const std::string_view left(reinterpret_cast<const char*>(found.shm->base()), kBytes);
    EXPECT_EQ(left.find('p') == std::string_view::npos, zero_freed);
    EXPECT_EQ(left.find('\0') == std::string_view::npos, zero_freed);
  }
}

}  // namespace
}  // namespace cell
