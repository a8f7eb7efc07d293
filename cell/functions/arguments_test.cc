#include "cell/functions/arguments.h"

#include <gtest/gtest.h>

#include "cell/layout/limits.h"

namespace cell {
namespace {

using namespace std::string_literals;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

TEST(PredicateArgument, GoldenBytes) {
  EXPECT_EQ(PredicateArgument(Comparison::kEqual, int8_t{5}), "\x01\x01\x05"s);
  EXPECT_EQ(PredicateArgument(Comparison::kNotEqual, int8_t{5}), "\x02\x01\x05"s);
  EXPECT_EQ(PredicateArgument(Comparison::kLess, int8_t{5}), "\x03\x01\x05"s);
  EXPECT_EQ(PredicateArgument(Comparison::kLessEqual, int8_t{5}), "\x04\x01\x05"s);
  EXPECT_EQ(PredicateArgument(Comparison::kGreater, uint16_t{5}), "\x05\x04\x05\0"s);
  EXPECT_EQ(PredicateArgument(Comparison::kGreaterEqual, 1.0f), "\x06\x09\0\0\x80\x3f"s);
}

TEST(PredicateArgument, IsParsed) {
  const absl::StatusOr<Predicate> predicate = ParsePredicate("\x06\x04\x34\x12");
  ASSERT_TRUE(predicate.ok()) << predicate.status();
  EXPECT_EQ(predicate->comparison, Comparison::kGreaterEqual);
  EXPECT_EQ(predicate->operand.type, ElementType::kU16);
  EXPECT_EQ(predicate->operand.bytes, "\x34\x12");
}

TEST(PredicateArgument, RefusesHostileBytes) {
  for (const std::string& bad : {""s, "\x01"s, "\x01\x01"s, "\0\x01\x05"s, "\x07\x01\x05"s, "\xff\x01\x05"s,
                                 "\x01\x0b\x05"s, "\x01\0\x05"s, "\x01\x01\x05\x05"s, "\x01\x05\1\2\3"s}) {
    EXPECT_EQ(ParsePredicate(bad).status().code(), kInvalid) << testing::PrintToString(bad);
  }
}

TEST(SwapArgument, GoldenBytes) {
  EXPECT_EQ(MakeSwapArgument("old", "newer"), "\x03\0\0\0oldnewer"s);
  EXPECT_EQ(MakeSwapArgument("", ""), "\0\0\0\0"s);
}

TEST(SwapArgument, IsParsed) {
  for (const auto& [expected, desired] : std::vector<std::pair<std::string, std::string>>{
           {"old", "newer"}, {"", "new"}, {"old", ""}, {"", ""}, {std::string(300, 'x'), "y"}}) {
    const std::string argument = MakeSwapArgument(expected, desired);
    const absl::StatusOr<Swap> swap = ParseSwapArgument(argument);
    ASSERT_TRUE(swap.ok()) << swap.status();
    EXPECT_EQ(swap->expected, expected);
    EXPECT_EQ(swap->desired, desired);
  }
}

TEST(SwapArgument, RefusesHostileBytes) {
  for (const std::string& bad : {""s, "\0\0\0"s, "\1\0\0\0"s, "\4\0\0\0abc"s, "\xff\xff\xff\xff"s,
                                 "\xff\xff\xff\xff"
                                 "abc"s,
                                 "\0\0\0\x80x"s}) {
    EXPECT_EQ(ParseSwapArgument(bad).status().code(), kInvalid) << testing::PrintToString(bad);
  }
  EXPECT_TRUE(ParseSwapArgument(MakeSwapArgument("x", std::string(kValueBytesMax, 'x'))).ok());
  EXPECT_EQ(ParseSwapArgument(MakeSwapArgument("x", std::string(kValueBytesMax + 1, 'x'))).status().code(), kInvalid);
}

}  // namespace
}  // namespace cell
