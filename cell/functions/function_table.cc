#include "cell/functions/function_table.h"

#include <utility>

#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

absl::Status CheckFunction(const Function& function) {
  if (!ValidFunctionName(function.name)) {
    return absl::InvalidArgumentError(
        fmt::format("{} is no name of a function: use 1 to {} of the characters a-z, 0-9 and '-', a letter first",
                    ForMessage(function.name), kFunctionNameBytesMax));
  }
  if (function.run == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("function {} has nothing to run: set Function::run", ForMessage(function.name)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FunctionTable::Add(const Function& function) {
  absl::Status status = CheckFunction(function);
  if (status.ok() && !functions_.try_emplace(function.name, function).second) {
    status = absl::AlreadyExistsError(
        fmt::format("there are two functions with the name {}: rename one", ForMessage(function.name)));
  }
  if (status_.ok()) status_ = status;
  return status;
}

const Function* FunctionTable::Find(std::string_view name) const {
  const auto found = functions_.find(name);
  return found == functions_.end() ? nullptr : &found->second;
}

std::vector<const Function*> FunctionTable::all() const {
  std::vector<const Function*> all;
  all.reserve(functions_.size());
  for (const auto& [name, function] : functions_) all.push_back(&function);
  return all;
}

absl::StatusOr<FunctionOutput> Run(const Function& function, const FunctionInput& input) {
  absl::StatusOr<FunctionOutput> run = function.run(input);
  const auto bug = [&](std::string_view what) {
    return absl::InternalError(fmt::format("function {} has a bug: {}; nothing was written, tell the function's author",
                                           ForMessage(function.name), what));
  };
  if (!run.ok()) {
    switch (run.status().code()) {
      case absl::StatusCode::kInvalidArgument:
      case absl::StatusCode::kFailedPrecondition:
      case absl::StatusCode::kOutOfRange:
        return run.status();
      default:  // Clients take other codes for the server's: that they are to try again, or that it may have been
                // applied.
        return bug(fmt::format("its error has the code {}: {}", absl::StatusCodeToString(run.status().code()),
                               std::string(run.status().message())));
    }
  }
  FunctionOutput& output = *run;
  if (output.value.has_value() && !function.writes) {
    return bug("it is declared as one that only reads, and returned a new value");
  }
  if (output.value.has_value() && output.value->size() > kValueBytesMax) {
    return bug(
        fmt::format("its new value has {} bytes, and at most {} are possible", output.value->size(), kValueBytesMax));
  }
  if (output.result.size() > ResultBytesMax(function)) {
    return bug(fmt::format("its result has {} bytes, and at most {} are possible", output.result.size(),
                           ResultBytesMax(function)));
  }
  return run;
}

}  // namespace cell
