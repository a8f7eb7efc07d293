// Calls built-in functions in tests, by name and through Run, as a server does.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cell/base/check.h"
#include "cell/functions/builtin_functions.h"
#include "cell/functions/function_table.h"

namespace cell {

inline const FunctionTable& BuiltinTable() {
  static const FunctionTable table = [] {
    FunctionTable made;
    AddBuiltinFunctions(&made);
    return made;
  }();
  return table;
}

inline absl::StatusOr<FunctionOutput> Call(std::string_view name, std::optional<std::string_view> value,
                                           std::string_view argument) {
  const Function* function = BuiltinTable().Find(name);
  CELL_CHECK(function != nullptr);
  return Run(*function, {value, argument});
}

// Returns the code of the error, or kOk.
inline absl::StatusCode CodeOf(std::string_view name, std::optional<std::string_view> value,
                               std::string_view argument) {
  return Call(name, value, argument).status().code();
}

}  // namespace cell
