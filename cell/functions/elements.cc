#include "cell/functions/elements.h"

#include <array>
#include <charconv>
#include <iterator>
#include <limits>
#include <system_error>

#include "absl/strings/escaping.h"
#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr std::array<std::string_view, kElementTypes> kNames = {"i8",  "u8",  "i16", "u16", "i32",
                                                                "u32", "i64", "u64", "f32", "f64"};

absl::StatusOr<ElementType> TypeOfByte(std::string_view argument) {
  if (argument.empty()) {
    return absl::InvalidArgumentError("the argument is empty: begin it with one byte for the type of the elements");
  }
  const auto number = static_cast<uint8_t>(argument[0]);
  if (number < 1 || number > kElementTypes) {
    return absl::InvalidArgumentError(fmt::format(
        "the argument names element type {}, which is unknown: use 1 (i8) to {} (f64)", number, kElementTypes));
  }
  return static_cast<ElementType>(number);
}

// Says which numbers a type has, for the message about one that it has not.
template <Element T>
std::string Range() {
  if constexpr (std::is_floating_point_v<T>) {
    return "numbers such as 1.5 or -2e10";
  } else {
    return fmt::format("numbers from {} to {}", std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  }
}

template <Element T>
absl::StatusOr<std::string> ParseVector(std::string_view text) {
  std::string vector;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    T element;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), element);
    if (error != std::errc() || end != item.data() + item.size()) {
      const std::string_view begin = item.substr(0, 48);
      return absl::InvalidArgumentError(
          fmt::format("{} is no {}: give {}, with commas between them",
                      item.empty() ? "an empty element" : absl::CHexEscape({begin.data(), begin.size()}),
                      ToString(ElementTypeOf<T>()), Range<T>()));
    }
    vector += ScalarBytes(element);
    if (comma == std::string_view::npos) return vector;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string_view ToString(ElementType type) { return kNames.at(static_cast<size_t>(type) - 1); }

absl::StatusOr<ElementType> ParseElementType(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<ElementType>(i + 1);
  }
  return absl::InvalidArgumentError(
      fmt::format("{} is no element type: use i8, u8, i16, u16, i32, u32, i64, u64, f32 "
                  "or f64",
                  ForMessage(name)));
}

std::string MakeArgument(ElementType type, std::string_view operand) {
  std::string argument;
  argument.reserve(1 + operand.size());
  argument.push_back(static_cast<char>(type));
  argument.append(operand);
  return argument;
}

absl::StatusOr<Operand> ParseArgument(std::string_view argument) {
  ASSIGN_OR_RETURN(const ElementType type, TypeOfByte(argument));
  const std::string_view bytes = argument.substr(1);
  if (bytes.empty() || bytes.size() % ElementBytes(type) != 0) {
    return absl::InvalidArgumentError(
        fmt::format("the operand has {} bytes: give one or more elements of {} ({} bytes "
                    "each)",
                    bytes.size(), ToString(type), ElementBytes(type)));
  }
  if (bytes.size() > kValueBytesMax) {
    return absl::InvalidArgumentError(fmt::format(
        "the operand has {} bytes: give at most {}, the size of the largest value", bytes.size(), kValueBytesMax));
  }
  return Operand{type, bytes};
}

absl::StatusOr<ElementType> ParseTypeArgument(std::string_view argument) {
  ASSIGN_OR_RETURN(const ElementType type, TypeOfByte(argument));
  if (argument.size() > 1) {
    return absl::InvalidArgumentError(
        fmt::format("the argument has {} bytes: give one, the type of the elements", argument.size()));
  }
  return type;
}

absl::Status CheckStoredVector(ElementType type, size_t bytes) {
  if (bytes % ElementBytes(type) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("the value has {} bytes, which is no vector of {} ({} bytes each): use the type that it has", bytes,
                  ToString(type), ElementBytes(type)));
}

absl::StatusOr<std::string> ParseElements(ElementType type, std::string_view comma_separated) {
  return VisitElementType(type, [&]<typename T>() { return ParseVector<T>(comma_separated); });
}

std::string PrintElements(ElementType type, std::string_view bytes) {
  return VisitElementType(type, [&]<typename T>() {
    std::string text;
    const size_t count = bytes.size() / sizeof(T);
    for (size_t i = 0; i < count; ++i) {
      fmt::format_to(std::back_inserter(text), "{}{}", i == 0 ? "" : ",", LoadElement<T>(bytes.data(), i));
    }
    if (const size_t rest = bytes.size() % sizeof(T); rest != 0) {
      fmt::format_to(std::back_inserter(text), "{}(and {} byte{})", count == 0 ? "" : " ", rest, rest == 1 ? "" : "s");
    }
    return text;
  });
}

}  // namespace cell
