// Helps to parse command lines: words in quotes, completion, and messages that suggest what was meant.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

namespace cell {

// Splits a line into words like a shell: '...', "..." (where \" and \\ mean " and \) and backslashes. Returns
// InvalidArgument if a quote is not closed.
absl::StatusOr<std::vector<std::string>> SplitWords(std::string_view line);

// Returns the one of `known` that `word` most likely means, or "" if none is similar.
std::string Nearest(std::string_view word, const std::vector<std::string>& known);

// Returns what is wrong with a command line that `app` could not parse, in one line.
std::string ParseMessage(const CLI::App& app, const CLI::ParseError& error);

// Writes the requested help, or "PROGRAM: what is wrong" to standard error. Returns the exit status, 0 or 2.
int EndOfParse(const char* program, const CLI::App& app, const CLI::ParseError& error);

// Returns the completions of a line's last word: commands, flags, or for an argument (such as `table`, or the value of
// --table) what `values` returns for its name. `words` are those of the line; the last one is unfinished and may be
// empty.
std::vector<std::string> Completions(const CLI::App& app, const std::vector<std::string>& words,
                                     const std::function<std::vector<std::string>(std::string_view name)>& values);

}  // namespace cell
