// Makes calls of the functions that every server has (Client::Apply and Evaluate). What each does, and what it returns,
// is described in cell/functions/builtin_functions.h.
//
// A value is a vector of elements, integers of 1 to 8 bytes or floats, in little-endian order; a counter is a vector of
// one. An operand of one element is applied to all elements of the value, a vector element by element.
//
//   client->Apply("visits", functions::Add<int64_t>(1));
//   client->Apply("weights", functions::Add<float>(deltas));                     // any absl::Span<const float>
//   client->Evaluate("weights", functions::Filter(functions::Comparison::kGreater, 0.5f));
//   functions::ElementsOf<float>(*result)                                        // StatusOr<vector<float>>
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/types/span.h"
#include "cell/client/client.h"
#include "cell/functions/arguments.h"
#include "cell/functions/elements.h"

namespace cell::functions {

using cell::Comparison;
using cell::ElementsOf;

// The operand of these is an element, or a span of them. If T is not named, it is the element's type.
template <Element T>
using Elements = absl::Span<const std::type_identity_t<T>>;

// Adds, and wraps around.
template <Element T>
FunctionCall Add(T by) {
  return {"add", ScalarArgument(by)};
}
template <Element T>
FunctionCall Add(Elements<T> by) {
  return {"add", VectorArgument<T>(by)};
}
// Adds, or fails with OutOfRange if any element would overflow.
template <Element T>
FunctionCall AddChecked(T by) {
  return {"add-checked", ScalarArgument(by)};
}
template <Element T>
FunctionCall AddChecked(Elements<T> by) {
  return {"add-checked", VectorArgument<T>(by)};
}
template <Element T>
FunctionCall Min(T with) {
  return {"min", ScalarArgument(with)};
}
template <Element T>
FunctionCall Min(Elements<T> with) {
  return {"min", VectorArgument<T>(with)};
}
template <Element T>
FunctionCall Max(T with) {
  return {"max", ScalarArgument(with)};
}
template <Element T>
FunctionCall Max(Elements<T> with) {
  return {"max", VectorArgument<T>(with)};
}
template <Element T>
FunctionCall And(T with) {
  return {"and", ScalarArgument(with)};
}
template <Element T>
FunctionCall And(Elements<T> with) {
  return {"and", VectorArgument<T>(with)};
}
template <Element T>
FunctionCall Or(T with) {
  return {"or", ScalarArgument(with)};
}
template <Element T>
FunctionCall Or(Elements<T> with) {
  return {"or", VectorArgument<T>(with)};
}
template <Element T>
FunctionCall Xor(T with) {
  return {"xor", ScalarArgument(with)};
}
template <Element T>
FunctionCall Xor(Elements<T> with) {
  return {"xor", VectorArgument<T>(with)};
}

// Appends bytes to the value.
inline FunctionCall Append(std::string_view bytes) { return {"append", std::string(bytes)}; }
// Replaces `expected` by `desired`. The result is one byte, 1 if the value was `expected`.
inline FunctionCall CompareAndSwap(std::string_view expected, std::string_view desired) {
  return {"compare-and-swap", MakeSwapArgument(expected, desired)};
}
// Adds to a number that is stored as text. The result is the new text.
inline FunctionCall AddDecimal(int64_t by) { return {"add-decimal", std::to_string(by)}; }

// These only read, for Evaluate.
template <Element T>
FunctionCall Sum() {
  return {"sum", MakeArgument(ElementTypeOf<T>(), {})};
}
template <Element T>
FunctionCall Least() {
  return {"least", MakeArgument(ElementTypeOf<T>(), {})};
}
template <Element T>
FunctionCall Greatest() {
  return {"greatest", MakeArgument(ElementTypeOf<T>(), {})};
}
template <Element T>
FunctionCall Count(Comparison comparison, T with) {
  return {"count", PredicateArgument(comparison, with)};
}
template <Element T>
FunctionCall Filter(Comparison comparison, T with) {
  return {"filter", PredicateArgument(comparison, with)};
}

}  // namespace cell::functions
