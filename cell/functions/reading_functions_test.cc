#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "cell/base/random.h"
#include "cell/functions/arguments.h"
#include "cell/functions/test_functions.h"

namespace cell {
namespace {

using namespace std::string_literals;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kFailed = absl::StatusCode::kFailedPrecondition;
constexpr Comparison kAll[] = {Comparison::kEqual,     Comparison::kNotEqual, Comparison::kLess,
                               Comparison::kLessEqual, Comparison::kGreater,  Comparison::kGreaterEqual};

template <Element T>
using Vector = std::vector<T>;

template <Element T>
std::string TypeArgument() {
  return MakeArgument(ElementTypeOf<T>(), "");
}

// Calls a function that reads, and returns its result as elements of type R.
template <Element R, Element T>
std::vector<R> Read(std::string_view name, const Vector<T>& value, std::string_view argument) {
  const absl::StatusOr<FunctionOutput> output = Call(name, VectorBytes<T>(value), argument);
  EXPECT_TRUE(output.ok()) << name << ": " << output.status();
  if (!output.ok()) return {};
  EXPECT_EQ(output->value, std::nullopt);
  return ElementsOf<R>(output->result).value();
}

template <typename T>
class Reading : public ::testing::Test {
 protected:
  // The type of a sum.
  using Total = std::conditional_t<std::is_floating_point_v<T>, double,
                                   std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
};
using NumberTypes =
    ::testing::Types<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t, float, double>;
TYPED_TEST_SUITE(Reading, NumberTypes);

TYPED_TEST(Reading, SumsUp) {
  using V = Vector<TypeParam>;
  using Total = typename TestFixture::Total;
  const std::string argument = TypeArgument<TypeParam>();
  EXPECT_EQ((Read<Total>("sum", V{1, 2, 100, 100, 100}, argument)), Vector<Total>{303});
  EXPECT_EQ((Read<Total>("sum", V{}, argument)), Vector<Total>{0});
  EXPECT_EQ(Call("sum", std::nullopt, argument).value().result, std::string(8, '\0'));
  if constexpr (std::is_signed_v<TypeParam>) {
    EXPECT_EQ((Read<Total>("sum", V{-100, -100, 1}, argument)), Vector<Total>{-199});
  }
  const size_t count = kValueBytesMax / sizeof(TypeParam);
  EXPECT_EQ((Read<Total>("sum", V(count, 3), argument)), Vector<Total>{static_cast<Total>(3 * count)});
}

TYPED_TEST(Reading, FindsTheLeastAndTheGreatest) {
  using V = Vector<TypeParam>;
  constexpr TypeParam lowest = std::numeric_limits<TypeParam>::lowest(), max = std::numeric_limits<TypeParam>::max();
  const std::string argument = TypeArgument<TypeParam>();
  for (const V& value : {V{5, lowest, max, 7}, V{lowest, 5, 7, max}, V{max, 7, 5, lowest}}) {
    EXPECT_EQ((Read<TypeParam>("least", value, argument)), V{lowest});
    EXPECT_EQ((Read<TypeParam>("greatest", value, argument)), V{max});
  }
  EXPECT_EQ((Read<TypeParam>("least", V{3}, argument)), V{3});
  EXPECT_EQ((Read<TypeParam>("greatest", V{3}, argument)), V{3});
  V large(kValueBytesMax / sizeof(TypeParam), 5);
  large.back() = 4;
  EXPECT_EQ((Read<TypeParam>("least", large, argument)), V{4});
  for (const std::string_view name : {"least", "greatest"}) {
    EXPECT_EQ(CodeOf(name, "", argument), kFailed);
    const absl::Status absent = Call(name, std::nullopt, argument).status();
    EXPECT_EQ(absent.code(), kFailed);
    EXPECT_NE(absent.message().find("not stored"), absl::string_view::npos);
  }
}

TYPED_TEST(Reading, CountsAndFilters) {
  using V = Vector<TypeParam>;
  const V value = {1, 7, 5, 9, 5, 2};
  const V wanted[] = {{5, 5}, {1, 7, 9, 2}, {1, 2}, {1, 5, 5, 2}, {7, 9}, {7, 5, 9, 5}};
  for (const Comparison comparison : kAll) {
    const V& kept = wanted[static_cast<size_t>(comparison) - 1];
    const std::string argument = PredicateArgument<TypeParam>(comparison, 5);
    EXPECT_EQ((Read<TypeParam>("filter", value, argument)), kept) << static_cast<int>(comparison);
    EXPECT_EQ((Read<uint64_t>("count", value, argument)), Vector<uint64_t>{kept.size()});
    EXPECT_EQ((Read<TypeParam>("filter", V{}, argument)), V{});
    EXPECT_EQ(Call("filter", std::nullopt, argument).value().result, "");
    EXPECT_EQ(Call("count", std::nullopt, argument).value().result, ScalarBytes(uint64_t{0}));
    EXPECT_EQ((Read<uint64_t>("count", V{}, argument)), Vector<uint64_t>{0});
  }
}

TYPED_TEST(Reading, FiltersAVectorOf1Mb) {
  const size_t count = kValueBytesMax / sizeof(TypeParam);
  Vector<TypeParam> value(count), kept;
  for (size_t i = 0; i < count; ++i) {
    value[i] = static_cast<TypeParam>(i % 100);
    if (i % 100 >= 50) kept.push_back(value[i]);
  }
  const std::string some = PredicateArgument<TypeParam>(Comparison::kGreaterEqual, 50);
  EXPECT_TRUE((Read<TypeParam>("filter", value, some)) == kept);
  EXPECT_EQ((Read<uint64_t>("count", value, some)), Vector<uint64_t>{kept.size()});
  const std::string all = PredicateArgument<TypeParam>(Comparison::kLess, 100);
  EXPECT_TRUE((Read<TypeParam>("filter", value, all)) == value);
  EXPECT_EQ((Read<uint64_t>("count", value, all)), Vector<uint64_t>{count});
}

TYPED_TEST(Reading, RefusesBytesThatAreNoVector) {
  if (sizeof(TypeParam) == 1) return;
  const std::string value(sizeof(TypeParam) + 1, 'x'), type = TypeArgument<TypeParam>();
  for (const std::string_view name : {"sum", "least", "greatest"}) EXPECT_EQ(CodeOf(name, value, type), kFailed);
  const std::string predicate = PredicateArgument<TypeParam>(Comparison::kEqual, 5);
  for (const std::string_view name : {"count", "filter"}) EXPECT_EQ(CodeOf(name, value, predicate), kFailed);
}

TYPED_TEST(Reading, RandomVectorsAgreeWithTheReference) {
  const uint64_t seed = 3;
  Random random(seed);
  for (int round = 0; round < 300; ++round) {
    Vector<TypeParam> value(1 + random.Below(200));
    for (TypeParam& element : value) element = static_cast<TypeParam>(random.Below(30));
    const auto operand = static_cast<TypeParam>(random.Below(30));
    for (const Comparison comparison : kAll) {
      Vector<TypeParam> kept;
      for (const TypeParam element : value) {
        const bool keep = comparison == Comparison::kEqual       ? element == operand
                          : comparison == Comparison::kNotEqual  ? !(element == operand)
                          : comparison == Comparison::kLess      ? element < operand
                          : comparison == Comparison::kLessEqual ? !(operand < element)
                          : comparison == Comparison::kGreater   ? operand < element
                                                                 : !(element < operand);
        if (keep) kept.push_back(element);
      }
      const std::string argument = PredicateArgument(comparison, operand);
      ASSERT_EQ((Read<TypeParam>("filter", value, argument)), kept) << "seed " << seed << ", round " << round;
      ASSERT_EQ((Read<uint64_t>("count", value, argument)), Vector<uint64_t>{kept.size()});
    }
  }
}

TEST(Sum, WrapsAround) {
  const int64_t least = std::numeric_limits<int64_t>::min(), greatest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ((Read<int64_t>("sum", Vector<int64_t>{greatest, 1}, "\x07")), Vector<int64_t>{least});
  EXPECT_EQ((Read<int64_t>("sum", Vector<int64_t>{least, -1}, "\x07")), Vector<int64_t>{greatest});
  EXPECT_EQ((Read<uint64_t>("sum", Vector<uint64_t>{UINT64_MAX, 3}, "\x08")), Vector<uint64_t>{2});
  // Floats are summed up as f64.
  const float max = std::numeric_limits<float>::max();
  EXPECT_EQ((Read<double>("sum", Vector<float>{max, max}, "\x09")), Vector<double>{2.0 * max});
}

TEST(Nan, ComesLastAndIsUnequalToEveryNumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Vector<double>& value : {Vector<double>{nan, 3, 2}, {3, nan, 2}, {3, 2, nan}}) {
    EXPECT_EQ((Read<double>("least", value, "\x0a")), Vector<double>{2});
    EXPECT_EQ((Read<double>("greatest", value, "\x0a")), Vector<double>{3});
    for (const Comparison comparison : kAll) {
      const uint64_t of_nan = comparison == Comparison::kNotEqual ? 1 : 0;
      const uint64_t of_numbers[] = {0, 2, 2, 2, 0, 0};
      EXPECT_EQ((Read<uint64_t>("count", value, PredicateArgument(comparison, 5.0))),
                Vector<uint64_t>{of_numbers[static_cast<size_t>(comparison) - 1] + of_nan});
    }
  }
  const std::string result = Call("least", VectorBytes<double>({nan, nan}), "\x0a").value().result;
  EXPECT_NE(ElementsOf<double>(result).value().at(0), ElementsOf<double>(result).value().at(0));
}

TEST(ReadingFunctions, RefuseHostileArguments) {
  for (const std::string_view name : {"sum", "least", "greatest"}) {
    for (const std::string& bad : {""s, "\0"s, "\x0b"s, "\xff"s, "\x01\x01"s}) {
      EXPECT_EQ(CodeOf(name, "abcd", bad), kInvalid) << name << testing::PrintToString(bad);
      EXPECT_EQ(CodeOf(name, std::nullopt, bad), kInvalid) << name << testing::PrintToString(bad);
    }
  }
  for (const std::string_view name : {"count", "filter"}) {
    for (const std::string& bad : {""s, "\x01"s, "\x01\x01"s, "\0\x01\x05"s, "\x07\x01\x05"s, "\x01\x0b\x05"s,
                                   "\x01\x01\x05\x05"s, "\x01\x05\1\2\3"s}) {
      EXPECT_EQ(CodeOf(name, "abcd", bad), kInvalid) << name << testing::PrintToString(bad);
      EXPECT_EQ(CodeOf(name, std::nullopt, bad), kInvalid) << name << testing::PrintToString(bad);
    }
  }
}

}  // namespace
}  // namespace cell
