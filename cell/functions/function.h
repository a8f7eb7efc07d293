// Defines a function: what a server applies to the value of one key, atomically, when a client asks for it (KV-Direct,
// SOSP 2017, section 3 and table 1: update of a scalar or vector, reduce, filter).
//
// A function runs on its worker's thread, between other requests to the region. So a function
//
//   1. must not block or wait, and must be quick even for a value of 1 MB,
//   2. must be pure: the output depends on the input alone, not on a clock, random numbers or earlier calls,
//   3. must distrust its input: value and argument are bytes that any client may have sent.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cell/layout/limits.h"

namespace cell {

struct FunctionInput {
  std::optional<std::string_view> value;  // nullopt: the key is not stored.
  std::string_view argument;
};

struct FunctionOutput {
  std::optional<std::string> value;  // The key's new value. nullopt: nothing is written.
  std::string result;                // Goes to the caller.
};

struct Function {
  std::string_view name;  // See ValidFunctionName. The characters of name and help must live as long as the process.
  std::string_view help;  // One line, for people.
  bool writes;            // False: the function never returns a new value.
  absl::StatusOr<FunctionOutput> (*run)(const FunctionInput&);  // An error writes nothing.
};

inline constexpr size_t kWrittenResultBytesMax = 64;  // The size of the longest result of a function that writes.

// Returns the size of the longest result: small if the function writes, and as large as a value if it only reads.
constexpr size_t ResultBytesMax(const Function& function) {
  return function.writes ? kWrittenResultBytesMax : kValueBytesMax;
}

// Returns whether a function can have this name: 1 to 32 of the characters a-z, 0-9 and '-', beginning with a letter.
constexpr bool ValidFunctionName(std::string_view name) {
  if (name.empty() || name.size() > kFunctionNameBytesMax) return false;
  for (const char c : name) {
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-') return false;
  }
  return name[0] >= 'a' && name[0] <= 'z';
}

}  // namespace cell
