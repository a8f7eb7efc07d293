#include "cell/server/request/use_times.h"

#include <gtest/gtest.h>

#include "fmt/format.h"

namespace cell {
namespace {

constexpr int kShift = 24;
constexpr int64_t kUnit = int64_t{1} << kShift;

std::string KeyOf(int i) { return fmt::format("key{}", i); }

TEST(UseTimes, KnowsWhenAKeyWasUsed) {
  UseTimes times(1'000, kShift, 5 * kUnit);
  EXPECT_EQ(times.IdleNs("a", 5 * kUnit), 0);
  EXPECT_EQ(times.IdleNs("a", 9 * kUnit), 4 * kUnit);  // It counts as used at the beginning.
  times.Touch("a", 10 * kUnit);
  EXPECT_EQ(times.IdleNs("a", 12 * kUnit), 2 * kUnit);
  times.Touch("a", 11 * kUnit + 3);
  EXPECT_EQ(times.IdleNs("a", 12 * kUnit), kUnit);
  EXPECT_EQ(times.IdleNs("b", 12 * kUnit), 7 * kUnit);
  EXPECT_EQ(times.IdleNs("a", 0), 0);  // The clock is steady, but nothing breaks if it is not.
}

// The keys that were used last are there, whatever else was used before.
TEST(UseTimes, ForgetsWhatWasUsedLongestAgo) {
  UseTimes times(4'096, kShift, 0);
  int at = 0;
  for (; at < 20'000; ++at) times.Touch(KeyOf(at), at * kUnit);
  int wrong = 0;
  for (int i = at - 2'000; i < at; ++i) wrong += times.IdleNs(KeyOf(i), at * kUnit) != (at - i) * kUnit;
  EXPECT_LT(wrong, 40);  // Some buckets have got more than eight of them.
  int64_t shortest = INT64_MAX;
  for (int i = 0; i < 10'000; ++i) shortest = std::min(shortest, times.IdleNs(KeyOf(i), at * kUnit));
  EXPECT_GT(shortest, 300 * kUnit);  // What it has forgotten does not look new.
}

}  // namespace
}  // namespace cell
