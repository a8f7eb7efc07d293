// Updates vectors of numbers. The type of the elements and the shape of the operand are decided outside of the loops,
// so that the compiler can vectorize them.
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/functions/builtin_functions.h"
#include "cell/functions/elements.h"
#include "fmt/format.h"

namespace cell {
namespace {

// An unsigned integer of an element's size. In a loop, an operation sets bits of one if it fails.
template <size_t bytes>
struct BitsOfSize;
template <>
struct BitsOfSize<1> {
  using Type = uint8_t;
};
template <>
struct BitsOfSize<2> {
  using Type = uint16_t;
};
template <>
struct BitsOfSize<4> {
  using Type = uint32_t;
};
template <>
struct BitsOfSize<8> {
  using Type = uint64_t;
};
template <typename T>
using Bits = typename BitsOfSize<sizeof(T)>::Type;

struct Wrapping {
  static constexpr bool kForFloats = true, kCanFail = false;
  template <typename T>
  static T Apply(T stored, T operand, Bits<T>*) {
    if constexpr (std::is_floating_point_v<T>) {
      return stored + operand;
    } else {
      return static_cast<T>(static_cast<Bits<T>>(static_cast<Bits<T>>(stored) + static_cast<Bits<T>>(operand)));
    }
  }
};

struct Checked {
  static constexpr bool kForFloats = true, kCanFail = true;
  // Does not use __builtin_add_overflow, as g++ 12 does not vectorize loops with it.
  template <typename T>
  static T Apply(T stored, T operand, Bits<T>* failed) {
    const T sum = Wrapping::Apply(stored, operand, failed);
    if constexpr (std::is_floating_point_v<T>) {
      *failed |= std::abs(sum) <= std::numeric_limits<T>::max() ? 0 : 1;
    } else if constexpr (std::is_unsigned_v<T>) {
      *failed |= sum < stored ? 1 : 0;
    } else {
      // The sum overflows if both numbers have the sign that it has not.
      *failed |= ((stored ^ sum) & (operand ^ sum)) < 0 ? 1 : 0;
    }
    return sum;
  }
};

struct Least {
  static constexpr bool kForFloats = true, kCanFail = false;
  template <typename T>
  static T Apply(T stored, T operand, Bits<T>*) {
    return operand < stored || stored != stored ? operand : stored;  // Only a NaN is not equal to itself.
  }
};

struct Greatest {
  static constexpr bool kForFloats = true, kCanFail = false;
  template <typename T>
  static T Apply(T stored, T operand, Bits<T>*) {
    return operand > stored || stored != stored ? operand : stored;
  }
};

struct And {
  static constexpr bool kForFloats = false, kCanFail = false;
  template <typename T>
  static T Apply(T stored, T operand, Bits<T>*) {
    return static_cast<T>(stored & operand);
  }
};

struct Or {
  static constexpr bool kForFloats = false, kCanFail = false;
  template <typename T>
  static T Apply(T stored, T operand, Bits<T>*) {
    return static_cast<T>(stored | operand);
  }
};

struct Xor {
  static constexpr bool kForFloats = false, kCanFail = false;
  template <typename T>
  static T Apply(T stored, T operand, Bits<T>*) {
    return static_cast<T>(stored ^ operand);
  }
};

// Return whether all elements could be updated.
template <typename T, typename Operation>
bool ApplyScalar(char* vector, size_t count, T operand) {
  Bits<T> failed = 0;
  for (size_t i = 0; i < count; ++i) {
    StoreElement<T>(vector, i, Operation::template Apply<T>(LoadElement<T>(vector, i), operand, &failed));
  }
  return failed == 0;
}
template <typename T, typename Operation>
bool ApplyVector(char* __restrict vector, size_t count, const char* __restrict operand) {
  Bits<T> failed = 0;
  for (size_t i = 0; i < count; ++i) {
    StoreElement<T>(vector, i,
                    Operation::template Apply<T>(LoadElement<T>(vector, i), LoadElement<T>(operand, i), &failed));
  }
  return failed == 0;
}

absl::Status TooLarge(ElementType type) {
  return absl::OutOfRangeError(
      fmt::format("a sum is no {}: add less, or use add, which wraps around; nothing was "
                  "written",
                  ToString(type)));
}

// Returns the new value.
template <typename T, typename Operation>
absl::StatusOr<std::string> Updated(const FunctionInput& input, const Operand& operand) {
  const size_t operands = operand.bytes.size() / sizeof(T);
  if (!input.value.has_value()) {
    std::string value(operand.bytes);
    // Refuses an operand that is not finite itself: nothing finite can be added to 0 to make it.
    if (Operation::kCanFail && !ApplyScalar<T, Operation>(value.data(), operands, T{0})) return TooLarge(operand.type);
    return std::string(operand.bytes);
  }
  RETURN_IF_ERROR(CheckStoredVector(operand.type, input.value->size()));
  const size_t count = input.value->size() / sizeof(T);
  if (count == 0) {
    return absl::FailedPreconditionError(
        "the value has 0 bytes, which is a vector without elements: delete the key, or put a vector first");
  }
  if (operands != 1 && operands != count) {
    return absl::InvalidArgumentError(
        fmt::format("the operand has {} elements, and the value has {}: give one element, or as many as the value has",
                    operands, count));
  }
  std::string value(*input.value);
  const bool done = operands == 1
                        ? ApplyScalar<T, Operation>(value.data(), count, LoadElement<T>(operand.bytes.data(), 0))
                        : ApplyVector<T, Operation>(value.data(), count, operand.bytes.data());
  if (!done) return TooLarge(operand.type);
  return value;
}

template <typename Operation>
absl::StatusOr<FunctionOutput> Update(const FunctionInput& input) {
  ASSIGN_OR_RETURN(const Operand operand, ParseArgument(input.argument));
  return VisitElementType(operand.type, [&]<typename T>() -> absl::StatusOr<FunctionOutput> {
    if constexpr (std::is_floating_point_v<T> && !Operation::kForFloats) {
      return absl::InvalidArgumentError(
          fmt::format("{} has no bits to combine: use a type of integers", ToString(operand.type)));
    } else {
      ASSIGN_OR_RETURN(std::string value, (Updated<T, Operation>(input, operand)));
      std::string result = value.size() == sizeof(T) ? value : std::string();
      return FunctionOutput{std::move(value), std::move(result)};
    }
  });
}

}  // namespace

void AddNumberFunctions(FunctionTable* table) {
  const Function functions[] = {
      {"add", "adds numbers to the elements of a vector; wraps around", true, &Update<Wrapping>},
      {"add-checked", "adds numbers to the elements of a vector; fails if one overflows", true, &Update<Checked>},
      {"min", "takes the smaller one of each element and the operand", true, &Update<Least>},
      {"max", "takes the greater one of each element and the operand", true, &Update<Greatest>},
      {"and", "combines the bits of each element and the operand by AND", true, &Update<And>},
      {"or", "combines the bits of each element and the operand by OR", true, &Update<Or>},
      {"xor", "combines the bits of each element and the operand by XOR", true, &Update<Xor>},
  };
  for (const Function& function : functions) CELL_CHECK_EQ(table->Add(function).ToString(), "OK");
}

}  // namespace cell
