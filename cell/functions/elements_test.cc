#include "cell/functions/elements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cell/base/random.h"

namespace cell {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ElementType, GoldenNumbersNamesAndSizes) {
  const std::pair<const char*, size_t> wanted[] = {{"i8", 1},  {"u8", 1},  {"i16", 2}, {"u16", 2}, {"i32", 4},
                                                   {"u32", 4}, {"i64", 8}, {"u64", 8}, {"f32", 4}, {"f64", 8}};
  for (uint8_t i = 0; i < kElementTypes; ++i) {
    const auto type = static_cast<ElementType>(i + 1);
    EXPECT_EQ(ToString(type), wanted[i].first);
    EXPECT_EQ(ElementBytes(type), wanted[i].second);
    EXPECT_EQ(ParseElementType(wanted[i].first).value(), type);
    EXPECT_EQ(VisitElementType(type, []<typename T>() { return ElementTypeOf<T>(); }), type);
  }
  for (const std::string_view bad : {"", "i", "i88", "I8", "u128", "f16", "i8 "}) {
    EXPECT_EQ(ParseElementType(bad).status().code(), kInvalid) << bad;
  }
  EXPECT_EQ(ElementTypeOf<long long>(), ElementType::kI64);
  EXPECT_EQ(ElementTypeOf<unsigned long long>(), ElementType::kU64);
}

TEST(Argument, GoldenBytes) {
  EXPECT_EQ(ScalarArgument(int8_t{-1}), "\x01\xff"s);
  EXPECT_EQ(ScalarArgument(uint16_t{0x1234}), "\x04\x34\x12"s);
  EXPECT_EQ(ScalarArgument(int32_t{-2}), "\x05\xfe\xff\xff\xff"s);
  EXPECT_EQ(ScalarArgument(uint64_t{1}), "\x08\x01\0\0\0\0\0\0\0"s);
  EXPECT_EQ(ScalarArgument(1.0f), "\x09\0\0\x80\x3f"s);
  EXPECT_EQ(ScalarArgument(1.0), "\x0a\0\0\0\0\0\0\xf0\x3f"s);
  EXPECT_EQ(VectorArgument<int16_t>({1, -1}), "\x03\x01\0\xff\xff"s);
  EXPECT_EQ(VectorArgument<int16_t>({}), "\x03"s);
  EXPECT_EQ(MakeArgument(ElementType::kU32, "abcd"),
            "\x06"
            "abcd"s);
}

TEST(Argument, IsParsed) {
  const std::string argument = VectorArgument<uint32_t>({1, 2, 3});
  const absl::StatusOr<Operand> operand = ParseArgument(argument);
  ASSERT_TRUE(operand.ok()) << operand.status();
  EXPECT_EQ(operand->type, ElementType::kU32);
  EXPECT_EQ(operand->bytes.data(), argument.data() + 1);
  EXPECT_EQ(ElementsOf<uint32_t>(operand->bytes).value(), (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(ParseTypeArgument("\x07").value(), ElementType::kI64);
}

TEST(Argument, RefusesHostileBytes) {
  for (const std::string& bad : {""s, "\0"s, "\0\1\2\3"s, "\x0b\1"s, "\xff\1"s, "\x01"s, "\x03\1"s, "\x05\1\2\3"s,
                                 "\x05\1\2\3\4\5"s, "\x0a\1\2\3\4"s}) {
    EXPECT_EQ(ParseArgument(bad).status().code(), kInvalid) << testing::PrintToString(bad);
  }
  for (const std::string& bad : {""s, "\0"s, "\x0b"s, "\xff"s, "\x01\1"s}) {
    EXPECT_EQ(ParseTypeArgument(bad).status().code(), kInvalid) << testing::PrintToString(bad);
  }
  EXPECT_TRUE(ParseArgument(MakeArgument(ElementType::kU8, std::string(kValueBytesMax, 'x'))).ok());
  EXPECT_EQ(ParseArgument(MakeArgument(ElementType::kU8, std::string(kValueBytesMax + 1, 'x'))).status().code(),
            kInvalid);
}

TEST(Elements, AreReadAtAnyAlignment) {
  const std::string bytes = "x" + VectorBytes<double>({1.5, -2.5});
  EXPECT_EQ(ElementsOf<double>(std::string_view(bytes).substr(1)).value(), (std::vector<double>{1.5, -2.5}));
  EXPECT_EQ(ElementsOf<double>(bytes).status().code(), kInvalid);
  EXPECT_TRUE(ElementsOf<double>("").value().empty());
}

// Parses the text, prints it, and returns that, or the error's message.
std::string Again(ElementType type, std::string_view text) {
  const absl::StatusOr<std::string> bytes = ParseElements(type, text);
  if (bytes.ok()) return PrintElements(type, *bytes);
  EXPECT_EQ(bytes.status().code(), kInvalid);
  return "error: " + std::string(bytes.status().message());
}

TEST(ElementText, KeepsTheLimitsOfEachType) {
  for (uint8_t i = 1; i <= kElementTypes; ++i) {
    const auto type = static_cast<ElementType>(i);
    VisitElementType(type, [&]<typename T>() {
      const std::vector<T> limits = {std::numeric_limits<T>::lowest(), std::numeric_limits<T>::max(), T{0}, T{1}};
      const std::string bytes = VectorBytes<T>(limits);
      const absl::StatusOr<std::string> again = ParseElements(type, PrintElements(type, bytes));
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(*again, bytes) << ToString(type);
    });
  }
  for (const auto& [type, text] : std::vector<std::pair<ElementType, std::string_view>>{
           {ElementType::kI8, "128"},
           {ElementType::kI8, "-129"},
           {ElementType::kU8, "256"},
           {ElementType::kU8, "-1"},
           {ElementType::kI16, "32768"},
           {ElementType::kI16, "-32769"},
           {ElementType::kU16, "65536"},
           {ElementType::kI32, "2147483648"},
           {ElementType::kI32, "-2147483649"},
           {ElementType::kU32, "4294967296"},
           {ElementType::kI64, "9223372036854775808"},
           {ElementType::kI64, "-9223372036854775809"},
           {ElementType::kU64, "18446744073709551616"},
           {ElementType::kU64, "-1"},
           {ElementType::kF32, "1e39"},
           {ElementType::kF64, "1e309"},
       }) {
    EXPECT_THAT(Again(type, text), HasSubstr("error: " + std::string(text) + " is no " + std::string(ToString(type))));
  }
}

TEST(ElementText, IsReadAndPrinted) {
  EXPECT_EQ(ParseElements(ElementType::kI8, "3,-4,5").value(), "\x03\xfc\x05"s);
  EXPECT_EQ(PrintElements(ElementType::kI8, "\x03\xfc\x05"s), "3,-4,5");
  EXPECT_EQ(Again(ElementType::kU8, "65"), "65");  // A number, not 'A'.
  EXPECT_EQ(Again(ElementType::kF32, "1.5,-0.1,1e20"), "1.5,-0.1,1e+20");
  EXPECT_EQ(Again(ElementType::kF64, "0.1,inf,-inf,nan"), "0.1,inf,-inf,nan");
  EXPECT_EQ(PrintElements(ElementType::kI8, ""), "");
  EXPECT_EQ(PrintElements(ElementType::kI16, "\1\0\2"s), "1 (and 1 byte)");
  EXPECT_EQ(PrintElements(ElementType::kI32, "\1\0\2"s), "(and 3 bytes)");
  EXPECT_EQ(Again(ElementType::kU8, "300"),
            "error: 300 is no u8: give numbers from 0 to 255, with commas between them");
  for (const std::string_view bad : {"", ",", "1,", ",1", "1,,2", " 1", "1 ", "+1", "0x1", "1.0", "1e2", "a", "1\n2"}) {
    EXPECT_THAT(Again(ElementType::kI32, bad), HasSubstr("error: ")) << bad;
  }
  for (const std::string_view bad : {"", "1.5x", " 1.5", "+1.5", "0x1p3", "e5"}) {
    EXPECT_THAT(Again(ElementType::kF64, bad), HasSubstr("error: ")) << bad;
  }
  const std::string raw = Again(ElementType::kI32, "\x01\xff");
  EXPECT_THAT(raw, HasSubstr("\\x01\\xff is no i32"));
}

TEST(ElementText, RandomFloatsKeepTheirBits) {
  const uint64_t seed = 20;
  Random random(seed);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t bits = random.Next();
    double number;
    std::memcpy(&number, &bits, sizeof(number));
    if (std::isnan(number)) continue;
    const std::string bytes = ScalarBytes(number);
    ASSERT_EQ(ParseElements(ElementType::kF64, PrintElements(ElementType::kF64, bytes)).value(), bytes)
        << "seed " << seed << ", " << bits;
  }
}

}  // namespace
}  // namespace cell
