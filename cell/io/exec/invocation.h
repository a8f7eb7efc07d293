// The directory and the standard streams that a program gets from its caller.
#pragma once

#include "absl/status/status.h"

namespace cell {

// Enters the directory where `bazel run` was called, which starts programs in another one: relative paths are then as
// their user meant them. Call it first in main.
void EnterCallersDirectory();

// Takes the places of standard streams that are closed. A file or socket that is opened later would get their number,
// and with it what the program prints. Call it before anything is opened.
void HoldStandardStreams();

// Says that standard output cannot be written. `error`: an errno; 0: not known.
absl::Status OutputError(int error);

// Writes what was printed so far. The error is OutputError's, also if it was an earlier write that failed.
absl::Status FlushOutput();

}  // namespace cell
