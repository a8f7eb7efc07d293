// FunctionTable finds functions by their names. Run runs a function and checks its output.
//
// Thread-safety: a table that nobody changes may be read by any thread. A Function in the table stays where it is.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/functions/function.h"

namespace cell {

class FunctionTable {
 public:
  // Adds a function. Returns InvalidArgument if the name is not valid or there is nothing to run, and AlreadyExists if
  // another function has the name. After an error the table is as before, except for status().
  absl::Status Add(const Function& function);

  // Returns the function with this name, or null if no function has it. Allocates no memory.
  const Function* Find(std::string_view name) const;

  // Returns all functions, sorted by name.
  std::vector<const Function*> all() const;

  // Returns the first error of Add, or OK. A server checks it once, after all have been added.
  const absl::Status& status() const { return status_; }

 private:
  std::map<std::string_view, Function> functions_;
  absl::Status status_;
};

// Runs a function. Returns its error, which is InvalidArgument, FailedPrecondition or OutOfRange. Returns Internal if
// the function breaks a rule: its error is another one, the new value or the result is too large, or it returns a new
// value but does not write. Then the function has a bug, and nothing is to be written.
absl::StatusOr<FunctionOutput> Run(const Function& function, const FunctionInput& input);

}  // namespace cell
