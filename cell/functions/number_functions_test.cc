#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cell/functions/elements.h"
#include "cell/functions/test_functions.h"

namespace cell {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr std::string_view kUpdates[] = {"add", "add-checked", "min", "max", "and", "or", "xor"};

template <Element T>
using Vector = std::vector<T>;

// Applies a function to a vector, and returns the new one.
template <Element T>
Vector<T> Apply(std::string_view name, const Vector<T>& value, const Vector<T>& operand) {
  const absl::StatusOr<FunctionOutput> output = Call(name, VectorBytes<T>(value), VectorArgument<T>(operand));
  EXPECT_TRUE(output.ok()) << name << ": " << output.status();
  if (!output.ok() || !output->value.has_value()) return {};
  EXPECT_EQ(output->result, value.size() == 1 ? *output->value : "") << name;
  return ElementsOf<T>(*output->value).value();
}

template <Element T>
absl::StatusCode CodeFor(std::string_view name, const Vector<T>& value, const Vector<T>& operand) {
  return CodeOf(name, VectorBytes<T>(value), VectorArgument<T>(operand));
}

template <typename T>
class Numbers : public ::testing::Test {};
template <typename T>
class Integers : public ::testing::Test {};
template <typename T>
class Floats : public ::testing::Test {};
using IntegerTypes = ::testing::Types<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t>;
using FloatTypes = ::testing::Types<float, double>;
using NumberTypes =
    ::testing::Types<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t, float, double>;
TYPED_TEST_SUITE(Numbers, NumberTypes);
TYPED_TEST_SUITE(Integers, IntegerTypes);
TYPED_TEST_SUITE(Floats, FloatTypes);

TYPED_TEST(Numbers, OneOperandIsAppliedToEachElement) {
  using V = Vector<TypeParam>;
  EXPECT_EQ(Apply("add", V{1, 2, 3}, V{4}), (V{5, 6, 7}));
  EXPECT_EQ(Apply("add-checked", V{1, 2, 3}, V{4}), (V{5, 6, 7}));
  EXPECT_EQ(Apply("min", V{1, 2, 3}, V{2}), (V{1, 2, 2}));
  EXPECT_EQ(Apply("max", V{1, 2, 3}, V{2}), (V{2, 2, 3}));
}

TYPED_TEST(Numbers, AsManyOperandsAreAppliedElementByElement) {
  using V = Vector<TypeParam>;
  EXPECT_EQ(Apply("add", V{1, 2, 3}, V{10, 20, 30}), (V{11, 22, 33}));
  EXPECT_EQ(Apply("add-checked", V{1, 2, 3}, V{10, 20, 30}), (V{11, 22, 33}));
  EXPECT_EQ(Apply("min", V{1, 5, 3}, V{2, 4, 3}), (V{1, 4, 3}));
  EXPECT_EQ(Apply("max", V{1, 5, 3}, V{2, 4, 3}), (V{2, 5, 3}));
}

TYPED_TEST(Numbers, AKeyThatIsNotStoredGetsTheOperand) {
  for (const std::string_view name : kUpdates) {
    if (std::is_floating_point_v<TypeParam> && (name == "and" || name == "or" || name == "xor")) continue;
    const FunctionOutput one = Call(name, std::nullopt, ScalarArgument<TypeParam>(7)).value();
    EXPECT_EQ(one.value, ScalarBytes<TypeParam>(7)) << name;
    EXPECT_EQ(one.result, ScalarBytes<TypeParam>(7)) << name;
    const FunctionOutput three = Call(name, std::nullopt, VectorArgument<TypeParam>({7, 8, 9})).value();
    EXPECT_EQ(three.value, VectorBytes<TypeParam>({7, 8, 9})) << name;
    EXPECT_EQ(three.result, "") << name;
  }
}

TYPED_TEST(Numbers, AnUnchangedValueIsWritten) {
  EXPECT_EQ(Call("add", ScalarBytes<TypeParam>(7), ScalarArgument<TypeParam>(0)).value().value,
            ScalarBytes<TypeParam>(7));
  EXPECT_EQ(Call("min", ScalarBytes<TypeParam>(7), ScalarArgument<TypeParam>(8)).value().value,
            ScalarBytes<TypeParam>(7));
}

TYPED_TEST(Numbers, OtherCountsAreRefused) {
  using V = Vector<TypeParam>;
  for (const std::string_view name : {"add", "add-checked", "min", "max"}) {
    EXPECT_EQ(CodeFor(name, V{1, 2, 3}, V{1, 2}), kInvalid) << name;
    EXPECT_EQ(CodeFor(name, V{1, 2, 3}, V{1, 2, 3, 4}), kInvalid) << name;
    EXPECT_EQ(CodeFor(name, V{1}, V{1, 2}), kInvalid) << name;
    EXPECT_EQ(CodeFor(name, V{1, 2, 3}, V{}), kInvalid) << name;
    EXPECT_EQ(CodeOf(name, std::nullopt, VectorArgument<TypeParam>({})), kInvalid) << name;
  }
}

TYPED_TEST(Numbers, StoredBytesThatAreNoVectorAreRefused) {
  const std::string operand = ScalarArgument<TypeParam>(1);
  for (const std::string_view name : {"add", "add-checked", "min", "max"}) {
    EXPECT_EQ(CodeOf(name, "", operand), absl::StatusCode::kFailedPrecondition) << name;
    if (sizeof(TypeParam) == 1) continue;
    for (const size_t bytes : {size_t{1}, sizeof(TypeParam) - 1, sizeof(TypeParam) + 1}) {
      const absl::Status status = Call(name, std::string(bytes, 'x'), operand).status();
      ASSERT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name << bytes;
      EXPECT_THAT(std::string(status.message()), HasSubstr("the value has " + std::to_string(bytes) + " bytes"));
    }
  }
}

TYPED_TEST(Numbers, AVectorOf1MbIsUpdated) {
  const size_t count = kValueBytesMax / sizeof(TypeParam);
  Vector<TypeParam> value(count), operand(count), sums(count), more(count);
  for (size_t i = 0; i < count; ++i) {
    value[i] = static_cast<TypeParam>(i % 50);
    operand[i] = static_cast<TypeParam>(i % 13);
    sums[i] = static_cast<TypeParam>(i % 50 + i % 13);
    more[i] = static_cast<TypeParam>(i % 50 + 3);
  }
  EXPECT_TRUE(Apply("add", value, operand) == sums);
  EXPECT_TRUE(Apply("add-checked", value, operand) == sums);
  EXPECT_TRUE(Apply("add", value, {3}) == more);
  EXPECT_TRUE(Apply("add-checked", value, {3}) == more);
  EXPECT_EQ(Call("add", std::nullopt, VectorArgument<TypeParam>(operand)).value().value,
            VectorBytes<TypeParam>(operand));
  // One element that overflows is found wherever it is.
  value.back() = std::numeric_limits<TypeParam>::max();
  operand.back() = std::numeric_limits<TypeParam>::max();
  EXPECT_EQ(CodeFor("add-checked", value, operand), absl::StatusCode::kOutOfRange);
  const std::string too_many = VectorArgument<TypeParam>(operand) + ScalarBytes<TypeParam>(1);
  EXPECT_EQ(CodeOf("add", VectorBytes<TypeParam>(value), too_many), kInvalid);
  EXPECT_EQ(CodeOf("add", std::nullopt, too_many), kInvalid);
}

TYPED_TEST(Integers, AddWrapsAroundAtBothEnds) {
  using V = Vector<TypeParam>;
  constexpr TypeParam least = std::numeric_limits<TypeParam>::min(), greatest = std::numeric_limits<TypeParam>::max();
  const auto minus_one = static_cast<TypeParam>(-1);
  EXPECT_EQ(Apply("add", V{greatest}, V{1}), V{least});
  EXPECT_EQ(Apply("add", V{least}, V{minus_one}), V{greatest});
  EXPECT_EQ(Apply("add", V{greatest, 1}, V{1}), (V{least, 2}));
  EXPECT_EQ(Apply("add", V{1, greatest}, V{2, 1}), (V{3, least}));
}

TYPED_TEST(Integers, AddCheckedRefusesAnOverflowAtBothEnds) {
  using V = Vector<TypeParam>;
  constexpr absl::StatusCode kOutOfRange = absl::StatusCode::kOutOfRange;
  constexpr TypeParam least = std::numeric_limits<TypeParam>::min(), greatest = std::numeric_limits<TypeParam>::max();
  EXPECT_EQ(CodeFor("add-checked", V{greatest}, V{1}), kOutOfRange);
  EXPECT_EQ(CodeFor("add-checked", V{1}, V{greatest}), kOutOfRange);
  EXPECT_EQ(CodeFor("add-checked", V{greatest}, V{greatest}), kOutOfRange);
  EXPECT_EQ(CodeFor("add-checked", V{greatest, 1, 1}, V{1}), kOutOfRange);
  EXPECT_EQ(CodeFor("add-checked", V{1, 1, greatest}, V{1}), kOutOfRange);
  EXPECT_EQ(CodeFor("add-checked", V{1, greatest, 1}, V{2, 1, 2}), kOutOfRange);
  EXPECT_EQ(Apply("add-checked", V{static_cast<TypeParam>(greatest - 1)}, V{1}), V{greatest});
  EXPECT_EQ(Apply("add-checked", V{greatest}, V{0}), V{greatest});
  EXPECT_EQ(Call("add-checked", std::nullopt, ScalarArgument(greatest)).value().value, ScalarBytes(greatest));
  EXPECT_EQ(Call("add-checked", std::nullopt, ScalarArgument(least)).value().value, ScalarBytes(least));
  if constexpr (std::is_signed_v<TypeParam>) {
    EXPECT_EQ(CodeFor("add-checked", V{least}, V{-1}), kOutOfRange);
    EXPECT_EQ(CodeFor("add-checked", V{-1}, V{least}), kOutOfRange);
    EXPECT_EQ(CodeFor("add-checked", V{least}, V{least}), kOutOfRange);
    EXPECT_EQ(CodeFor("add-checked", V{0, least}, V{1, -1}), kOutOfRange);
    EXPECT_EQ(Apply("add-checked", V{least + 1}, V{-1}), V{least});
    EXPECT_EQ(Apply("add-checked", V{least}, V{greatest}), V{-1});
    EXPECT_EQ(Apply("add-checked", V{1, -1}, V{-1}), (V{0, -2}));
  }
}

TYPED_TEST(Integers, MinAndMaxKnowTheSign) {
  using V = Vector<TypeParam>;
  constexpr TypeParam least = std::numeric_limits<TypeParam>::min(), greatest = std::numeric_limits<TypeParam>::max();
  EXPECT_EQ(Apply("min", V{least, greatest, 5}, V{greatest, least, 5}), (V{least, least, 5}));
  EXPECT_EQ(Apply("max", V{least, greatest, 5}, V{greatest, least, 5}), (V{greatest, greatest, 5}));
  EXPECT_EQ(Apply("max", V{least, 3}, V{2}), (V{2 > least ? TypeParam{2} : least, 3}));
}

TYPED_TEST(Integers, BitsAreCombined) {
  using V = Vector<TypeParam>;
  EXPECT_EQ(Apply("and", V{12, 10, 1}, V{10}), (V{8, 10, 0}));
  EXPECT_EQ(Apply("or", V{12, 10, 1}, V{10}), (V{14, 10, 11}));
  EXPECT_EQ(Apply("xor", V{12, 10, 1}, V{10}), (V{6, 0, 11}));
  EXPECT_EQ(Apply("and", V{12, 10, 1}, V{4, 8, 1}), (V{4, 8, 1}));
  EXPECT_EQ(Apply("or", V{12, 10, 1}, V{1, 4, 2}), (V{13, 14, 3}));
  EXPECT_EQ(Apply("xor", V{12, 10, 1}, V{4, 8, 1}), (V{8, 2, 0}));
  const auto ones = static_cast<TypeParam>(-1);
  EXPECT_EQ(Apply("xor", V{ones}, V{1}), V{static_cast<TypeParam>(ones - 1)});
}

TYPED_TEST(Floats, HaveNoBitsToCombine) {
  for (const std::string_view name : {"and", "or", "xor"}) {
    EXPECT_EQ(CodeOf(name, ScalarBytes<TypeParam>(1), ScalarArgument<TypeParam>(1)), kInvalid) << name;
    EXPECT_EQ(CodeOf(name, std::nullopt, ScalarArgument<TypeParam>(1)), kInvalid) << name;
  }
}

TYPED_TEST(Floats, AddCheckedRefusesWhatIsNotFinite) {
  using V = Vector<TypeParam>;
  constexpr TypeParam greatest = std::numeric_limits<TypeParam>::max();
  constexpr TypeParam infinity = std::numeric_limits<TypeParam>::infinity();
  constexpr TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  EXPECT_EQ(Apply("add", V{greatest, -greatest}, V{greatest, -greatest}), (V{infinity, -infinity}));
  EXPECT_TRUE(std::isnan(Apply("add", V{infinity}, V{-infinity}).at(0)));
  EXPECT_EQ(Apply("add-checked", V{greatest}, V{-greatest}), V{0});
  EXPECT_EQ(Apply("add-checked", V{greatest}, V{1}), V{greatest});
  for (const auto& [value, operand] : std::vector<std::pair<V, V>>{{V{greatest}, V{greatest}},
                                                                   {V{-greatest}, V{-greatest}},
                                                                   {V{infinity}, V{1}},
                                                                   {V{1}, V{-infinity}},
                                                                   {V{nan}, V{1}},
                                                                   {V{1, nan, 1}, V{1}},
                                                                   {V{1, 1, 1}, V{1, 1, nan}},
                                                                   {V{infinity}, V{-infinity}}}) {
    EXPECT_EQ(CodeFor("add-checked", value, operand), absl::StatusCode::kOutOfRange)
        << testing::PrintToString(value) << testing::PrintToString(operand);
  }
  EXPECT_EQ(CodeOf("add-checked", std::nullopt, ScalarArgument(nan)), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(CodeOf("add-checked", std::nullopt, VectorArgument<TypeParam>({1, infinity})),
            absl::StatusCode::kOutOfRange);
  // The bits of -0 are kept.
  EXPECT_EQ(Call("add-checked", std::nullopt, ScalarArgument<TypeParam>(-0.0)).value().value,
            ScalarBytes<TypeParam>(-0.0));
}

TYPED_TEST(Floats, MinAndMaxTakeTheNumberThatIsNoNan) {
  using V = Vector<TypeParam>;
  constexpr TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (const std::string_view name : {"min", "max"}) {
    EXPECT_EQ(Apply(name, V{nan, 3, nan}, V{2, nan, -2}), (V{2, 3, -2})) << name;
    EXPECT_EQ(Apply(name, V{nan}, V{2}), V{2}) << name;
    EXPECT_EQ(Apply(name, V{2, 3}, V{nan}), (V{2, 3})) << name;
    EXPECT_TRUE(std::isnan(Apply(name, V{nan}, V{nan}).at(0))) << name;
    // 0 and -0 are equal, so the stored one stays.
    EXPECT_TRUE(std::signbit(Apply(name, V{-0.0}, V{0}).at(0))) << name;
    EXPECT_FALSE(std::signbit(Apply(name, V{0}, V{-0.0}).at(0))) << name;
  }
  EXPECT_EQ(Apply("min", V{-1.5, 2.5}, V{-2.5, 3.5}), (V{-2.5, 2.5}));
  EXPECT_EQ(Apply("max", V{-1.5, 2.5}, V{-2.5, 3.5}), (V{-1.5, 3.5}));
}

TEST(Updates, RefuseHostileArguments) {
  for (const std::string_view name : kUpdates) {
    for (const std::string& bad : {""s, "\0"s, "\x05"s, "\x05\1\2\3"s, "\x0b\1\2\3\4"s, "\xff"s, "\0\1\2\3\4"s}) {
      EXPECT_EQ(CodeOf(name, std::string(4, '\0'), bad), kInvalid) << name << testing::PrintToString(bad);
      EXPECT_EQ(CodeOf(name, std::nullopt, bad), kInvalid) << name << testing::PrintToString(bad);
    }
  }
}

}  // namespace
}  // namespace cell
