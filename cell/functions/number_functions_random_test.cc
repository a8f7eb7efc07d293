// Compares the updates of vectors with a naive reference that computes in 128 bits, one element at a time.
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "cell/base/random.h"
#include "cell/functions/elements.h"
#include "cell/functions/test_functions.h"

namespace cell {
namespace {

template <typename T>
class RandomUpdates : public ::testing::Test {};
using IntegerTypes = ::testing::Types<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t>;
TYPED_TEST_SUITE(RandomUpdates, IntegerTypes);

// Returns nullopt if add-checked refuses.
template <typename T>
std::optional<T> Reference(std::string_view name, T stored, T operand) {
  const __int128 a = +stored, b = +operand;
  const __int128 least = +std::numeric_limits<T>::min(), values = __int128{1} << (8 * sizeof(T));
  if (name == "min") return a < b ? stored : operand;
  if (name == "max") return a < b ? operand : stored;
  if (name == "and" || name == "or" || name == "xor") {
    std::make_unsigned_t<T> bits = 0;
    for (size_t i = 0; i < 8 * sizeof(T); ++i) {
      const int ones = static_cast<int>(static_cast<std::make_unsigned_t<T>>(stored) >> i & 1) +
                       static_cast<int>(static_cast<std::make_unsigned_t<T>>(operand) >> i & 1);
      const bool set = name == "and" ? ones == 2 : name == "or" ? ones >= 1 : ones == 1;
      if (set) bits = static_cast<std::make_unsigned_t<T>>(bits + (std::make_unsigned_t<T>{1} << i));
    }
    return static_cast<T>(bits);
  }
  __int128 sum = a + b;
  if (sum < least || sum >= least + values) {
    if (name == "add-checked") return std::nullopt;
    sum += sum < least ? values : -values;
  }
  return static_cast<T>(sum);
}

TYPED_TEST(RandomUpdates, AgreeWithTheReference) {
  const uint64_t seed = 1;
  Random random(seed);
  int refused = 0, written = 0;
  for (int round = 0; round < 3000; ++round) {
    // Few elements or many; numbers that use all bits, whose sums often overflow, or fewer.
    const size_t count = 1 + random.Below(round % 2 == 0 ? 4 : 100);
    const uint64_t shift = random.Below(2) == 0 ? 0 : random.Below(8 * sizeof(TypeParam));
    const auto draw = [&] { return static_cast<TypeParam>(static_cast<TypeParam>(random.Next()) >> shift); };
    std::vector<TypeParam> value(count), operand(random.Below(2) == 0 ? 1 : count);
    for (TypeParam& element : value) element = draw();
    for (TypeParam& element : operand) element = draw();
    for (const std::string_view name : {"add", "add-checked", "min", "max", "and", "or", "xor"}) {
      std::vector<TypeParam> wanted;
      for (size_t i = 0; i < count; ++i) {
        const auto element = Reference(name, value[i], operand[operand.size() == 1 ? 0 : i]);
        if (element.has_value()) wanted.push_back(*element);
      }
      const absl::StatusOr<FunctionOutput> output =
          Call(name, VectorBytes<TypeParam>(value), VectorArgument<TypeParam>(operand));
      if (wanted.size() < count) {
        ASSERT_EQ(output.status().code(), absl::StatusCode::kOutOfRange) << "seed " << seed << ", round " << round;
        ++refused;
      } else {
        ASSERT_TRUE(output.ok()) << output.status() << " seed " << seed << ", round " << round << " " << name;
        ASSERT_EQ(ElementsOf<TypeParam>(*output->value).value(), wanted)
            << "seed " << seed << ", round " << round << " " << name;
        written += name == "add-checked" ? 1 : 0;
      }
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(written, 100);
}

}  // namespace
}  // namespace cell
