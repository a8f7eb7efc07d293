// Helps the examples to read their command lines, and to end with the right status.
//
// Exit status: 0 done, 1 something is not there or not as it should be, 2 an error. An error is one line on standard
// error, which begins with the program's name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "cell/client/client.h"

namespace cell {

inline constexpr int kDone = 0;
inline constexpr int kWrong = 1;
inline constexpr int kError = 2;

// Declares the flags that name the cluster. REQUIRES: `app` has no commands yet.
void DeclareCluster(CLI::App* app, ClientOptions* options);

// The longest part of a key, so that whole keys, and bounds of scans, have at most the 226 bytes of keys.
inline constexpr size_t kPartBytesMax = 100;

// Accepts one part of a key: not empty, and without spaces and slashes.
CLI::Validator PartOfKey();

// Parses the command line, calls `run`, and writes the error if it returns one. Returns the program's exit status.
int RunExample(const char* program, CLI::App* app, int argc, char** argv,
               const std::function<absl::StatusOr<int>()>& run);

// Works like RunExample. Calls `run` with a client of the cluster in `options`, and tells all servers which
// transactions have committed before it ends, so that the next reader need not wait.
int RunTransactions(const char* program, CLI::App* app, int argc, char** argv, const ClientOptions& options,
                    const std::function<absl::StatusOr<int>(Client*)>& run);

// Opens a client. Returns InvalidArgument if no cluster was given.
absl::StatusOr<std::unique_ptr<Client>> OpenClient(const ClientOptions& options);

// The latest time that a key can have, in microseconds since the Unix epoch: 16 digits, in the year 2286.
inline constexpr uint64_t kTimeMaxUs = 9'999'999'999'999'999;

// Returns the time of this machine's clock, in microseconds since the Unix epoch.
uint64_t NowUs();

// Returns a time with zeros in front, so that keys that have it are in the order of their times.
std::string TimeDigits(uint64_t time_us);

// Parses a time from 0 to kTimeMaxUs. Returns nullopt if the text is anything else.
std::optional<uint64_t> ParseTime(std::string_view text);

// Accepts what ParseTime does.
CLI::Validator TimeInUs();

// Parses a decimal number. Returns DataLoss if the text is anything else. `key` is named in the error.
absl::StatusOr<uint64_t> NumberIn(std::string_view key, std::string_view text);

}  // namespace cell
