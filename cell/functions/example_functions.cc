// Is an example of own functions, and is in no server. README.md says how to build a server with such a file.
#include <string>

#include "cell/functions/own_functions.h"

namespace {

// Returns the first bytes of the value, as many as the argument has.
absl::StatusOr<cell::FunctionOutput> Prefix(const cell::FunctionInput& input) {
  if (!input.value.has_value()) return absl::FailedPreconditionError("the key is not stored: put it first");
  return cell::FunctionOutput{std::nullopt, std::string(input.value->substr(0, input.argument.size()))};
}

}  // namespace

void cell::AddOwnFunctions(FunctionTable* table) {
  // Functions() ends the process if a function could not be added.
  table->Add({"prefix", "returns as many bytes of the value as the argument has", false, &Prefix}).IgnoreError();
}
