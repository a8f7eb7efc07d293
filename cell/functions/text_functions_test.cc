#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "cell/base/random.h"
#include "cell/functions/arguments.h"
#include "cell/functions/test_functions.h"
#include "fmt/format.h"

namespace cell {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

TEST(Append, AppendsAndReturnsTheNewSize) {
  const FunctionOutput output = Call("append", "ab\0"s, "cd").value();
  EXPECT_EQ(output.value, "ab\0cd"s);
  EXPECT_EQ(output.result, ScalarBytes(uint64_t{5}));
  EXPECT_EQ(Call("append", "ab", "").value().value, "ab");
  EXPECT_EQ(Call("append", std::nullopt, "cd").value().value, "cd");
  EXPECT_EQ(Call("append", std::nullopt, "").value().value, "");
  EXPECT_EQ(Call("append", "", "").value().result, ScalarBytes(uint64_t{0}));
}

TEST(Append, FillsAValueUpTo1MbAndNotBeyond) {
  const std::string full(kValueBytesMax, 'x');
  const FunctionOutput output = Call("append", full.substr(1), "y").value();
  EXPECT_EQ(output.value, full.substr(1) + "y");
  EXPECT_EQ(output.result, ScalarBytes(uint64_t{kValueBytesMax}));
  EXPECT_EQ(Call("append", full, "").value().value, full);
  EXPECT_EQ(Call("append", std::nullopt, full).value().value, full);
  for (const auto& [value, argument] : std::vector<std::pair<std::optional<std::string>, std::string>>{
           {full, "y"}, {"y", full}, {full.substr(1), "yz"}, {std::nullopt, full + "y"}}) {
    const absl::Status status = Call("append", value, argument).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_EQ(status.message(),
              "the value would have 1048577 bytes, and at most 1 MB are possible; nothing was "
              "written");
  }
}

TEST(CompareAndSwap, WritesOnlyIfTheValueIsExpected) {
  const FunctionOutput swapped = Call("compare-and-swap", "old", MakeSwapArgument("old", "new")).value();
  EXPECT_EQ(swapped.value, "new");
  EXPECT_EQ(swapped.result, "\1"s);
  EXPECT_EQ(Call("compare-and-swap", "", MakeSwapArgument("", "new")).value().value, "new");
  EXPECT_EQ(Call("compare-and-swap", "old", MakeSwapArgument("old", "")).value().value, "");
  for (const std::optional<std::string_view> value : std::vector<std::optional<std::string_view>>{
           std::nullopt, "", "ol", "oldd", "olD", "new", std::string_view("old\0", 4)}) {
    const FunctionOutput kept = Call("compare-and-swap", value, MakeSwapArgument("old", "new")).value();
    EXPECT_EQ(kept.value, std::nullopt) << value.value_or("not stored");
    EXPECT_EQ(kept.result, "\0"s);
  }
  // A key that is not stored is not the same as an empty value.
  EXPECT_EQ(Call("compare-and-swap", std::nullopt, MakeSwapArgument("", "new")).value().result, "\0"s);
}

TEST(CompareAndSwap, SwapsTheLargestValues) {
  const std::string old(kValueBytesMax, 'x'), desired(kValueBytesMax, 'y');
  EXPECT_EQ(Call("compare-and-swap", old, MakeSwapArgument(old, desired)).value().value, desired);
  EXPECT_EQ(CodeOf("compare-and-swap", old, MakeSwapArgument(old, desired + "y")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Call("compare-and-swap", old, MakeSwapArgument(old + "x", desired)).value().value, std::nullopt);
}

TEST(CompareAndSwap, RefusesHostileArguments) {
  for (const std::string& bad : {""s, "\0\0\0"s, "\4\0\0\0old"s, "\xff\xff\xff\xffold"s}) {
    EXPECT_EQ(CodeOf("compare-and-swap", "old", bad), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(CodeOf("compare-and-swap", std::nullopt, bad), absl::StatusCode::kInvalidArgument);
  }
}

constexpr std::string_view kLeast = "-9223372036854775808", kGreatest = "9223372036854775807";

TEST(AddDecimal, Adds) {
  const auto sum = [](std::optional<std::string_view> value, std::string_view argument) {
    const FunctionOutput output = Call("add-decimal", value, argument).value();
    EXPECT_EQ(output.value, output.result);
    return output.result;
  };
  EXPECT_EQ(sum("10", "5"), "15");
  EXPECT_EQ(sum("10", "-15"), "-5");
  EXPECT_EQ(sum("-10", "10"), "0");
  EXPECT_EQ(sum(std::nullopt, "7"), "7");
  EXPECT_EQ(sum(std::nullopt, "0"), "0");
  EXPECT_EQ(sum(kLeast, kGreatest), "-1");
  EXPECT_EQ(sum(std::nullopt, kLeast), kLeast);
  EXPECT_EQ(sum("9223372036854775806", "1"), kGreatest);
}

TEST(AddDecimal, DoesNotOverflow) {
  for (const auto& [value, argument] : std::vector<std::pair<std::string_view, std::string_view>>{
           {kGreatest, "1"}, {kLeast, "-1"}, {kGreatest, kGreatest}, {kLeast, kLeast}, {"1", kGreatest}}) {
    EXPECT_EQ(CodeOf("add-decimal", value, argument), absl::StatusCode::kOutOfRange) << value << " " << argument;
  }
}

TEST(AddDecimal, AcceptsOnlyWhatItWrites) {
  for (const std::string& bad : {""s,
                                 "-"s,
                                 "-0"s,
                                 "00"s,
                                 "01"s,
                                 "-01"s,
                                 "+1"s,
                                 " 1"s,
                                 "1 "s,
                                 "1\n"s,
                                 "1\0"s,
                                 "\0"s,
                                 "0x1"s,
                                 "1.0"s,
                                 "1e3"s,
                                 "--1"s,
                                 "a"s,
                                 "\xff"s,
                                 "9223372036854775808"s,
                                 "-9223372036854775809"s,
                                 std::string(1 << 20, '1')}) {
    EXPECT_EQ(CodeOf("add-decimal", bad, "1"), absl::StatusCode::kFailedPrecondition) << bad.substr(0, 30);
    EXPECT_EQ(CodeOf("add-decimal", "1", bad), absl::StatusCode::kInvalidArgument) << bad.substr(0, 30);
    EXPECT_EQ(CodeOf("add-decimal", std::nullopt, bad), absl::StatusCode::kInvalidArgument) << bad.substr(0, 30);
  }
  const std::string message(Call("add-decimal", "\xff\n", "1").status().message());
  EXPECT_THAT(message, HasSubstr("\"\\xff\\n\""));
}

TEST(AddDecimal, RandomNumbersAgreeWith128Bits) {
  const uint64_t seed = 5;
  Random random(seed);
  int overflows = 0;
  for (int i = 0; i < 20'000; ++i) {
    // Half of the pairs are numbers of 64 bits, many of whose sums overflow.
    const uint64_t shifts = i % 2 == 0 ? 1 : 64;
    const auto a = static_cast<int64_t>(random.Next()) >> random.Below(shifts);
    const auto b = static_cast<int64_t>(random.Next()) >> random.Below(shifts);
    const __int128 sum = static_cast<__int128>(a) + b;
    const bool fits = sum >= std::numeric_limits<int64_t>::min() && sum <= std::numeric_limits<int64_t>::max();
    const absl::StatusOr<FunctionOutput> output = Call("add-decimal", fmt::format("{}", a), fmt::format("{}", b));
    ASSERT_EQ(output.status().code(), fits ? absl::StatusCode::kOk : absl::StatusCode::kOutOfRange)
        << "seed " << seed << ": " << a << " " << b;
    if (fits) {
      ASSERT_EQ(output->value, fmt::format("{}", static_cast<int64_t>(sum))) << a << " " << b;
    }
    overflows += fits ? 0 : 1;
  }
  EXPECT_GT(overflows, 1000);
}

}  // namespace
}  // namespace cell
