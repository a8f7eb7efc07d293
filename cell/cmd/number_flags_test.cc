#include "cell/cmd/number_flags.h"

#include "gtest/gtest.h"

namespace cell {
namespace {

TEST(NumberFlags, ANumberWithASignIsDecimal) {
  for (const auto& [text, number] : std::vector<std::pair<std::string, std::string>>{
           {"7", "7"}, {"-7", "-7"}, {"010", "10"}, {"-0012", "-12"}, {"9223372036854775807", "9223372036854775807"}}) {
    std::string given = text;
    EXPECT_EQ(SignedNumber()(given), "") << text;
    EXPECT_EQ(given, number);
  }
  for (const std::string text :
       {"", "-", "+1", "0x10", "1.5", "1e3", " 1", "9223372036854775808", "99999999999999999999"}) {
    std::string given = text;
    EXPECT_NE(SignedNumber()(given), "") << text;
  }
}

TEST(NumberFlags, AWholeNumberOutsideOfItsRangeIsRepeatedAsItWasTyped) {
  const CLI::Validator number = WholeNumber(0, 218);
  for (const char* text : {"0", "218"}) EXPECT_EQ(number(text), "") << text;
  EXPECT_EQ(number("010"), "010 has a zero in front") << "CLI11 would read 8.";
  for (const std::string text :
       {"-1", "219", "100000000000000000000", "18446744073709551616", "1.5", "1e2", " 1", "x"}) {
    EXPECT_EQ(number(text), text + " is not a whole number from 0 to 218");
  }
  EXPECT_EQ(number(""), "\"\" is not a whole number from 0 to 218");
}

TEST(NumberFlags, ACountFitsInto64Bits) {
  const CLI::Validator count = Count();
  for (const char* text : {"0", "18446744073709551615"}) EXPECT_EQ(count(text), "") << text;
  EXPECT_EQ(count("010"), "010 has a zero in front");
  EXPECT_EQ(count("-1"), "-1 is not a whole number of at least 0");
  EXPECT_EQ(count(""), "\"\" is not a whole number of at least 0");
  EXPECT_EQ(count("18446744073709551616"), "18446744073709551616 is not a whole number of at least 0");
}

TEST(NumberFlags, ASizeHasAUnitAndIsWithinItsBounds) {
  for (const auto& [text, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"0", "0"}, {"4096", "4096"}, {"64K", "65536"}, {"1 mb", "1048576"}, {"1GiB", "1073741824"}}) {
    std::string given = text;
    EXPECT_EQ(SizeInBytes(0, uint64_t{1} << 30)(given), "") << text;
    EXPECT_EQ(given, bytes);
  }
  for (const std::string text :
       {"-1", "+1", " 1", "M", "1X", "1.5M", "1025K", "16777216T", "18446744073709551616", "0"}) {
    EXPECT_EQ(SizeInBytes(1, 1 << 20)(text), text + " is not a size such as 256M, from 1 to 1048576 bytes");
  }
  EXPECT_EQ(SizeInBytes(0, 1)(""), "\"\" is not a size such as 256M, from 0 to 1 bytes");
}

TEST(NumberFlags, ANumberThatIsNoneIsInNoRange) {
  const CLI::Validator between = Between(0.5, 2);
  for (const char* text : {"0.5", "1", "2e0"}) EXPECT_EQ(between(text), "") << text;
  for (const char* text : {"nan", "-nan", "0.4", "3", "inf", "", "x"}) EXPECT_NE(between(text), "") << text;
}

}  // namespace
}  // namespace cell
