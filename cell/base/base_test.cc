#include <gtest/gtest.h>

#include <thread>

#include "cell/base/bytes.h"
#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/histogram.h"
#include "cell/base/random.h"
#include "cell/base/repeats.h"
#include "cell/base/task.h"
#include "cell/base/thread_checker.h"

namespace cell {
namespace {

TEST(Crc64, OfPartsIsThatOfTheWhole) {
  EXPECT_EQ(Crc64(std::string_view("pair"), Crc64(std::string_view("key and "))),
            Crc64(std::string_view("key and pair")));
}

// Checks the catalogue's check value of CRC-64/XZ, which is ECMA-182 reflected.
TEST(Crc64, MatchesThePublishedCheckValue) { EXPECT_EQ(Crc64(std::string_view("123456789")), 0x995dc9bbdf1939fau); }

TEST(ForMessage, EscapesAndShortens) {
  EXPECT_EQ(ForMessage(std::string_view("a\0z", 3)), "\"a\\x00z\"");
  EXPECT_EQ(ForMessage(std::string(200, 'x')), "\"" + std::string(48, 'x') + "\"... (200 bytes)");
}

TEST(Random, BelowStaysBelowAndReachesAll) {
  Random random(1);
  std::vector<int> seen(7);
  for (int i = 0; i < 1000; ++i) ++seen.at(random.Below(7));
  for (int count : seen) EXPECT_GT(count, 0);
}

TEST(Histogram, QuantilesAreWithinTwoPercent) {
  Histogram histogram;
  for (uint64_t value = 1; value <= 1'000'000; ++value) histogram.Record(value);
  for (double quantile : {0.01, 0.5, 0.9, 0.99, 0.999}) {
    const double want = quantile * 1e6;
    EXPECT_NEAR(static_cast<double>(histogram.Quantile(quantile)), want, want * 0.02) << quantile;
  }
  EXPECT_EQ(histogram.Quantile(1), 1'000'000u);
  EXPECT_EQ(Histogram().Quantile(0.5), 0u);
}

TEST(Histogram, HoldsTheLargestValue) {
  Histogram histogram;
  histogram.Record(~uint64_t{0});
  EXPECT_EQ(histogram.Quantile(0.5), ~uint64_t{0});
}

Task<int> Three() { co_return 3; }
Task<int> Sum() { co_return co_await Three() + co_await Three(); }

TEST(Task, AwaitsAnotherTask) {
  Task<int> sum = Sum();
  EXPECT_FALSE(sum.done());
  sum.Start();
  ASSERT_TRUE(sum.done());
  EXPECT_EQ(sum.Take(), 6);
}

TEST(Repeats, WritesAMessageOnceInAWhileAndCountsTheOthers) {
  Repeats repeats(1000);
  EXPECT_EQ(repeats.Due("full", 5), "");
  EXPECT_EQ(repeats.Due("full", 6), std::nullopt);
  EXPECT_EQ(repeats.Due("gone", 7), "");  // A different kind.
  EXPECT_EQ(repeats.Due("full", 1004), std::nullopt);
  EXPECT_EQ(repeats.Due("full", 1005), " (and 2 more times since this was last logged)");
  EXPECT_EQ(repeats.Due("full", 9000), "");
  for (int i = 0; i < 10'000; ++i) EXPECT_EQ(repeats.Due(std::to_string(i), 9001), "");  // Memory stays bounded.
}

TEST(ThreadCheckerDeathTest, AnotherThreadFails) {
  ThreadChecker checker;
  checker.Check();
  EXPECT_DEATH(std::thread([&checker] { checker.Check(); }).join(), "CHECK failed");
  {
    const ThreadScope elsewhere(ThreadScope::Which::kOther);
    EXPECT_DEATH(checker.Check(), "CHECK failed");
    const ThreadScope back(ThreadScope::Which::kOwn);
    checker.Check();
  }
  checker.Check();
  checker.HandOver();
  std::thread([&checker] { checker.Check(); }).join();
  EXPECT_DEATH(checker.Check(), "CHECK failed");
}

TEST(CheckDeathTest, AFailedComparisonPrintsBothValues) {
  const size_t held = 3;
  EXPECT_DEATH(CELL_CHECK_EQ(held, 4), "base_test.cc:[0-9]+: CHECK failed: held == 4 .3 against 4.");
  EXPECT_DEATH(CELL_CHECK_LT(held + 1, held), "held \\+ 1 < held .4 against 3.");
  EXPECT_DEATH(CELL_CHECK_EQ(std::string_view("left"), "right"), ".\"left\" against \"right\".");
  EXPECT_DEATH(CELL_CHECK_NE(static_cast<const int*>(nullptr), nullptr), "null against null");
  EXPECT_DEATH(CELL_CHECK(held == 4), "CHECK failed: held == 4\n");
}

TEST(Check, IntegersOfDifferentSignsCompareByValue) {
  CELL_CHECK_LT(-1, size_t{0});
  CELL_CHECK_GT(size_t{0}, -1);
  CELL_CHECK_NE(-1, ~size_t{0});
  CELL_CHECK_LE(1, 1u);
  CELL_CHECK_GE(1u, 1);
  int evaluated = 0;
  CELL_CHECK_EQ(++evaluated, 1);
  EXPECT_EQ(evaluated, 1);
}

}  // namespace
}  // namespace cell
