// CELL_CHECK(condition) ends the process if an invariant is broken, in release builds too. Never use it to validate
// input from outside.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace cell {

// Returns a value as a failed check prints it.
template <typename T>
std::string CheckedValue(const T& value) {
  if constexpr (std::is_null_pointer_v<T>) {
    return "null";
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return "\"" + std::string(std::string_view(value).substr(0, 100)) + "\"";
  } else if constexpr (std::is_pointer_v<T>) {
    return value == nullptr ? "null" : "a pointer";
  } else if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::is_arithmetic_v<T>) {
    return std::to_string(value);
  } else {
    return "a value";
  }
}

template <typename T>
inline constexpr bool kCheckedInteger = std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>;

template <typename A, typename B>
constexpr bool CheckedEqual(const A& a, const B& b) {
  if constexpr (kCheckedInteger<A> && kCheckedInteger<B>) {
    return std::cmp_equal(a, b);
  } else {
    return a == b;
  }
}
template <typename A, typename B>
constexpr bool CheckedLess(const A& a, const B& b) {
  if constexpr (kCheckedInteger<A> && kCheckedInteger<B>) {
    return std::cmp_less(a, b);
  } else {
    return a < b;
  }
}
constexpr bool CheckedNotEqual(const auto& a, const auto& b) { return !CheckedEqual(a, b); }
constexpr bool CheckedLessOrEqual(const auto& a, const auto& b) { return !CheckedLess(b, a); }
constexpr bool CheckedGreater(const auto& a, const auto& b) { return CheckedLess(b, a); }
constexpr bool CheckedGreaterOrEqual(const auto& a, const auto& b) { return !CheckedLess(a, b); }

[[noreturn, gnu::cold, gnu::noinline]] inline void CheckFailed(const char* file, int line, const char* condition,
                                                               const std::string& values) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s%s\n", file, line, condition, values.c_str());
  std::abort();
}

}  // namespace cell

#define CELL_CHECK(condition)                                  \
  do {                                                         \
    if (!(condition)) [[unlikely]]                             \
      ::cell::CheckFailed(__FILE__, __LINE__, #condition, ""); \
  } while (false)

// The comparison is made once, on values that are evaluated once. Integers of different signs compare by value.
#define CELL_CHECK_OP(a, op, compare, b)                                                                           \
  do {                                                                                                             \
    const auto& cell_a = (a);                                                                                      \
    const auto& cell_b = (b);                                                                                      \
    if (!::cell::compare(cell_a, cell_b)) [[unlikely]] {                                                           \
      ::cell::CheckFailed(__FILE__, __LINE__, #a " " #op " " #b,                                                   \
                          " (" + ::cell::CheckedValue(cell_a) + " against " + ::cell::CheckedValue(cell_b) + ")"); \
    }                                                                                                              \
  } while (false)

#define CELL_CHECK_EQ(a, b) CELL_CHECK_OP(a, ==, CheckedEqual, b)
#define CELL_CHECK_NE(a, b) CELL_CHECK_OP(a, !=, CheckedNotEqual, b)
#define CELL_CHECK_LT(a, b) CELL_CHECK_OP(a, <, CheckedLess, b)
#define CELL_CHECK_LE(a, b) CELL_CHECK_OP(a, <=, CheckedLessOrEqual, b)
#define CELL_CHECK_GT(a, b) CELL_CHECK_OP(a, >, CheckedGreater, b)
#define CELL_CHECK_GE(a, b) CELL_CHECK_OP(a, >=, CheckedGreaterOrEqual, b)
