#include "cell/cmd/number_flags.h"

#include <charconv>
#include <optional>
#include <string>
#include <system_error>

#include "fmt/format.h"

namespace cell {
namespace {

// Returns nullopt if the text is anything but digits, for a signed number behind a sign, or if the number is too large.
template <typename Number = uint64_t>
std::optional<Number> ParseWholeNumber(const std::string& text) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return number;
}

// Returns nullopt if the text is not digits and perhaps a unit of CLI::AsSizeValue, or if the size is too large.
std::optional<uint64_t> ParseSize(std::string text) {
  if (text.find_first_of("0123456789") != 0) return std::nullopt;
  try {
    if (!CLI::AsSizeValue(false)(text).empty()) return std::nullopt;
  } catch (const CLI::ValidationError&) {
    return std::nullopt;
  }
  return ParseWholeNumber(text);
}

// Returns whether CLI11 would take a number for an octal one.
bool LooksOctal(const std::string& text) { return text.size() > 1 && text[0] == '0'; }

// Returns the text for a message, in which an empty one has to be visible.
std::string Shown(const std::string& text) { return text.empty() ? "\"\"" : text; }

}  // namespace

CLI::Validator Count() {
  return CLI::Validator(
      [](std::string& text) {
        if (!ParseWholeNumber(text).has_value()) {
          return fmt::format("{} is not a whole number of at least 0", Shown(text));
        }
        return LooksOctal(text) ? fmt::format("{} has a zero in front", text) : std::string();
      },
      "COUNT");
}

CLI::Validator SignedNumber() {
  return CLI::Validator(
      [](std::string& text) {
        const std::optional<int64_t> number = ParseWholeNumber<int64_t>(text);
        if (!number.has_value()) return fmt::format("{} is not a whole decimal number of 64 bits", Shown(text));
        text = fmt::format("{}", *number);  // Without zeros in front, which would make it octal.
        return std::string();
      },
      "NUMBER");
}

CLI::Validator WholeNumber(uint64_t low, uint64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        const std::optional<uint64_t> number = ParseWholeNumber(text);
        if (!number.has_value() || *number < low || *number > high) {
          return fmt::format("{} is not a whole number from {} to {}", Shown(text), low, high);
        }
        return LooksOctal(text) ? fmt::format("{} has a zero in front", text) : std::string();
      },
      fmt::format("FROM {} TO {}", low, high));
}

CLI::Validator SizeInBytes(uint64_t low, uint64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        const std::optional<uint64_t> bytes = ParseSize(text);
        if (!bytes.has_value() || *bytes < low || *bytes > high) {
          return fmt::format("{} is not a size such as 256M, from {} to {} bytes", Shown(text), low, high);
        }
        text = fmt::format("{}", *bytes);
        return std::string();
      },
      "SIZE");
}

CLI::Validator Between(double low, double high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        double number = 0;
        const bool inside = CLI::detail::lexical_cast(text, number) && number >= low && number <= high;
        return inside ? std::string() : fmt::format("{} is not a number from {:g} to {:g}", Shown(text), low, high);
      },
      fmt::format("FROM {:g} TO {:g}", low, high));
}

}  // namespace cell
