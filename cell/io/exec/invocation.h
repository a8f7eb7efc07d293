// Sets up the directory and the standard streams that a program gets from its caller.
#pragma once

#include "absl/status/status.h"

namespace cell {

// Enters the directory where `bazel run` was called, because Bazel starts programs in another one. Relative paths then
// mean what their user intended. Call it first in main.
void EnterCallersDirectory();

// Occupies the standard streams that are closed. Otherwise a file or socket that is opened later would get their
// number, and with it the program's output. Call it before anything is opened.
void HoldStandardStreams();

// Returns an error that says that standard output cannot be written. `error` is an errno; 0: unknown.
absl::Status OutputError(int error);

// Flushes standard output. Returns OutputError if this or an earlier write failed.
absl::Status FlushOutput();

}  // namespace cell
