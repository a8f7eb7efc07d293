// Codes vectors of numbers as bytes: in values, in arguments of functions, and as text for a command line. Clients and
// servers share it.
//
// A vector is its elements in little-endian order without padding, at any alignment. A counter is a vector of one.
// An argument is one byte, the ElementType, and then a vector, the operand.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cell/base/check.h"
#include "cell/layout/limits.h"

namespace cell {

// Clients send these numbers, so they must not change.
enum class ElementType : uint8_t { kI8 = 1, kU8, kI16, kU16, kI32, kU32, kI64, kU64, kF32, kF64 };
inline constexpr uint8_t kElementTypes = 10;

// Returns "i8" to "f64".
std::string_view ToString(ElementType type);

// Finds a type by its name. Returns InvalidArgument if no type has this name.
absl::StatusOr<ElementType> ParseElementType(std::string_view name);

// Numbers that can be elements. `char` is left out, because its sign depends on the platform.
template <typename T>
concept Element = std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, signed char> ||
    std::is_same_v<T, unsigned char> || std::is_same_v<T, short> || std::is_same_v<T, unsigned short> ||
    std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, long> ||
    std::is_same_v<T, unsigned long> || std::is_same_v<T, long long> || std::is_same_v<T, unsigned long long>;

template <Element T>
constexpr ElementType ElementTypeOf() {
  if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? ElementType::kF32 : ElementType::kF64;
  } else if constexpr (std::is_signed_v<T>) {
    return sizeof(T) == 1   ? ElementType::kI8
           : sizeof(T) == 2 ? ElementType::kI16
           : sizeof(T) == 4 ? ElementType::kI32
                            : ElementType::kI64;
  } else {
    return sizeof(T) == 1   ? ElementType::kU8
           : sizeof(T) == 2 ? ElementType::kU16
           : sizeof(T) == 4 ? ElementType::kU32
                            : ElementType::kU64;
  }
}

// Calls `visit.template operator()<T>()` with the C++ type of the elements, and returns what it returns.
template <typename Visit>
auto VisitElementType(ElementType type, Visit&& visit) {
  switch (type) {
    case ElementType::kI8:
      return visit.template operator()<int8_t>();
    case ElementType::kU8:
      return visit.template operator()<uint8_t>();
    case ElementType::kI16:
      return visit.template operator()<int16_t>();
    case ElementType::kU16:
      return visit.template operator()<uint16_t>();
    case ElementType::kI32:
      return visit.template operator()<int32_t>();
    case ElementType::kU32:
      return visit.template operator()<uint32_t>();
    case ElementType::kI64:
      return visit.template operator()<int64_t>();
    case ElementType::kU64:
      return visit.template operator()<uint64_t>();
    case ElementType::kF32:
      return visit.template operator()<float>();
    case ElementType::kF64:
      return visit.template operator()<double>();
  }
  CheckFailed(__FILE__, __LINE__, "the element type is known", "");
}

inline size_t ElementBytes(ElementType type) {
  return VisitElementType(type, []<typename T>() { return sizeof(T); });
}

// Reads and writes the element with index i of a vector, at any alignment.
template <Element T>
T LoadElement(const char* vector, size_t i) {
  T element;
  std::memcpy(&element, vector + i * sizeof(T), sizeof(T));
  return element;
}
template <Element T>
void StoreElement(char* vector, size_t i, T element) {
  std::memcpy(vector + i * sizeof(T), &element, sizeof(T));
}

// Returns the bytes of a vector.
template <Element T>
std::string VectorBytes(absl::Span<const T> elements) {
  return elements.empty() ? std::string()
                          : std::string(reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T));
}
template <Element T>
std::string ScalarBytes(T element) {
  return VectorBytes<T>({&element, 1});
}

// Returns the argument with this operand. An empty operand makes an argument for functions that take a type only.
std::string MakeArgument(ElementType type, std::string_view operand);

template <Element T>
std::string ScalarArgument(T element) {
  return MakeArgument(ElementTypeOf<T>(), ScalarBytes(element));
}
template <Element T>
std::string VectorArgument(absl::Span<const T> elements) {
  return MakeArgument(ElementTypeOf<T>(), VectorBytes(elements));
}

struct Operand {
  ElementType type;
  std::string_view bytes;  // A vector of at least one element. It points into the argument.
};

// Parses an argument. Returns InvalidArgument if the type is unknown, or the operand is empty, no multiple of the
// element or larger than a value.
absl::StatusOr<Operand> ParseArgument(std::string_view argument);

// Parses an argument that is a type without an operand.
absl::StatusOr<ElementType> ParseTypeArgument(std::string_view argument);

// Returns FailedPrecondition if a stored value of this size is no vector of such elements. The empty vector is one.
absl::Status CheckStoredVector(ElementType type, size_t bytes);

// Returns the elements of a value. Returns InvalidArgument if its size is no multiple of the element.
template <Element T>
absl::StatusOr<std::vector<T>> ElementsOf(std::string_view value) {
  if (value.size() % sizeof(T) != 0) {
    return absl::InvalidArgumentError(CheckStoredVector(ElementTypeOf<T>(), value.size()).message());
  }
  std::vector<T> elements(value.size() / sizeof(T));
  if (!value.empty()) std::memcpy(elements.data(), value.data(), value.size());
  return elements;
}

// Reads a vector from text such as "3,-4,5". Returns InvalidArgument if an element is no number of this type, or out of
// its range. Spaces, '+' and hexadecimal numbers are not accepted; "inf" and "nan" are, for floats.
absl::StatusOr<std::string> ParseElements(ElementType type, std::string_view comma_separated);

// Prints a vector as text that ParseElements reads. Bytes after the last whole element are only counted:
// "3,-4 (and 1 byte)".
std::string PrintElements(ElementType type, std::string_view bytes);

}  // namespace cell
