// Codes the arguments of built-in functions that are more than elements: predicates, and compare-and-swap. Clients and
// servers share it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cell/functions/elements.h"

namespace cell {

// Clients send these numbers, so they must not change.
enum class Comparison : uint8_t { kEqual = 1, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };
inline constexpr uint8_t kComparisons = 6;

// A predicate holds for the elements that compare so with the operand. It is one byte, the Comparison, and then an
// argument (elements.h) with one element.
struct Predicate {
  Comparison comparison;
  Operand operand;
};

template <Element T>
std::string PredicateArgument(Comparison comparison, T operand) {
  return static_cast<char>(comparison) + ScalarArgument(operand);
}

// Returns InvalidArgument if the argument is no predicate. The operand points into the argument.
absl::StatusOr<Predicate> ParsePredicate(std::string_view argument);

// The argument of compare-and-swap is the size of `expected` as a u32, `expected`, and `desired`.
struct Swap {
  std::string_view expected;
  std::string_view desired;
};

// REQUIRES: the size of `expected` fits into 32 bits.
std::string MakeSwapArgument(std::string_view expected, std::string_view desired);

// Returns InvalidArgument if the argument is cut short, or `desired` is larger than a value. Both texts point into the
// argument.
absl::StatusOr<Swap> ParseSwapArgument(std::string_view argument);

}  // namespace cell
