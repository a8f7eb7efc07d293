#include "cell/functions/arguments.h"

#include <limits>

#include "absl/status/status.h"
#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/layout/limits.h"
#include "fmt/format.h"

namespace cell {

absl::StatusOr<Predicate> ParsePredicate(std::string_view argument) {
  if (argument.empty()) {
    return absl::InvalidArgumentError(
        "the argument is empty: give a comparison, the type of the elements, and one element");
  }
  const auto number = static_cast<uint8_t>(argument[0]);
  if (number < 1 || number > kComparisons) {
    return absl::InvalidArgumentError(
        fmt::format("the argument names comparison {}, which is unknown: use 1 to {}", number, kComparisons));
  }
  ASSIGN_OR_RETURN(const Operand operand, ParseArgument(argument.substr(1)));
  if (const size_t one = ElementBytes(operand.type); operand.bytes.size() != one) {
    return absl::InvalidArgumentError(
        fmt::format("the argument has {} elements: give one to compare with", operand.bytes.size() / one));
  }
  return Predicate{static_cast<Comparison>(number), operand};
}

std::string MakeSwapArgument(std::string_view expected, std::string_view desired) {
  CELL_CHECK_LE(expected.size(), std::numeric_limits<uint32_t>::max());
  std::string argument = ScalarBytes(static_cast<uint32_t>(expected.size()));
  argument.reserve(argument.size() + expected.size() + desired.size());
  argument.append(expected);
  argument.append(desired);
  return argument;
}

absl::StatusOr<Swap> ParseSwapArgument(std::string_view argument) {
  if (argument.size() < sizeof(uint32_t)) {
    return absl::InvalidArgumentError(fmt::format(
        "the argument has {} bytes: begin it with the size of the expected value, 4 bytes", argument.size()));
  }
  const size_t expected_bytes = LoadElement<uint32_t>(argument.data(), 0);
  argument.remove_prefix(sizeof(uint32_t));
  if (expected_bytes > argument.size()) {
    return absl::InvalidArgumentError(
        fmt::format("the argument promises an expected value of {} bytes, and has {}: send all of it", expected_bytes,
                    argument.size()));
  }
  const Swap swap{argument.substr(0, expected_bytes), argument.substr(expected_bytes)};
  if (swap.desired.size() > kValueBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("the desired value has {} bytes, and at most {} are possible; nothing was written",
                    swap.desired.size(), kValueBytesMax));
  }
  return swap;
}

}  // namespace cell
