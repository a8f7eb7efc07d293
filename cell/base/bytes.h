// Reads and writes bytes in memory whose layout is a protocol, and formats keys for error messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "absl/types/span.h"
#include "fmt/format.h"

namespace cell {

using ConstBytes = absl::Span<const std::byte>;
using MutableBytes = absl::Span<std::byte>;

// Reads a T at any alignment. REQUIRES: sizeof(T) bytes are readable at `from`.
template <typename T>
T Load(const std::byte* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void Store(std::byte* to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(to, &value, sizeof(T));
}

inline std::string_view AsText(ConstBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
inline ConstBytes AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

constexpr size_t RoundUp(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Formats a key or value for an error message: escaped, and cut after 48 bytes.
inline std::string ForMessage(std::string_view key) {
  constexpr size_t kShown = 48;
  // Debian's absl has a string_view of its own, hence the braces.
  const std::string escaped = absl::CHexEscape({key.data(), key.size() < kShown ? key.size() : kShown});
  return key.size() <= kShown ? fmt::format("\"{}\"", escaped)
                              : fmt::format("\"{}\"... ({} bytes)", escaped, key.size());
}

}  // namespace cell
