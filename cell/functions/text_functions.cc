// Updates values as bytes, and numbers that are stored as text.
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "cell/base/bytes.h"
#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/functions/arguments.h"
#include "cell/functions/builtin_functions.h"
#include "cell/functions/elements.h"
#include "cell/layout/limits.h"
#include "fmt/format.h"

namespace cell {
namespace {

static_assert(kValueBytesMax == size_t{1} << 20);  // Append's message says 1 MB.

absl::StatusOr<FunctionOutput> Append(const FunctionInput& input) {
  const std::string_view old = input.value.value_or(std::string_view());
  const size_t bytes = old.size() + input.argument.size();
  if (bytes > kValueBytesMax) {
    return absl::OutOfRangeError(
        fmt::format("the value would have {} bytes, and at most 1 MB are possible; nothing was written", bytes));
  }
  std::string value;
  value.reserve(bytes);
  value.append(old);
  value.append(input.argument);
  return FunctionOutput{std::move(value), ScalarBytes(uint64_t{bytes})};
}

absl::StatusOr<FunctionOutput> CompareAndSwap(const FunctionInput& input) {
  ASSIGN_OR_RETURN(const Swap swap, ParseSwapArgument(input.argument));
  if (input.value != swap.expected) return FunctionOutput{std::nullopt, std::string(1, '\0')};
  return FunctionOutput{std::string(swap.desired), std::string(1, '\1')};
}

// Reads a number as add-decimal writes it: an optional '-', and digits without a leading zero. Refuses "-0".
std::optional<int64_t> ParseDecimal(std::string_view text) {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.starts_with('0') && text != "0") return std::nullopt;
  int64_t number;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

absl::StatusOr<FunctionOutput> AddDecimal(const FunctionInput& input) {
  const std::optional<int64_t> operand = ParseDecimal(input.argument);
  if (!operand.has_value()) {
    return absl::InvalidArgumentError(fmt::format(
        "the argument {} is not a whole decimal number of 64 bits: give one such as -12", ForMessage(input.argument)));
  }
  const std::optional<int64_t> stored = input.value.has_value() ? ParseDecimal(*input.value) : 0;
  if (!stored.has_value()) {
    return absl::FailedPreconditionError(
        fmt::format("the value {} is not a whole decimal number of 64 bits: put one first", ForMessage(*input.value)));
  }
  int64_t sum;
  if (__builtin_add_overflow(*stored, *operand, &sum)) {
    return absl::OutOfRangeError(
        fmt::format("{} and {} have a sum of more than 64 bits: add less; nothing was written", *stored, *operand));
  }
  std::string text = fmt::format("{}", sum);
  return FunctionOutput{text, text};
}

}  // namespace

void AddTextFunctions(FunctionTable* table) {
  const Function functions[] = {
      {"append", "appends bytes to the value", true, &Append},
      {"compare-and-swap", "writes a new value if the old one is as expected", true, &CompareAndSwap},
      {"add-decimal", "adds to a number that is stored as text", true, &AddDecimal},
  };
  for (const Function& function : functions) CELL_CHECK_EQ(table->Add(function).ToString(), "OK");
}

}  // namespace cell
