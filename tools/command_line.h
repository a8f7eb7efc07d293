// Command lines: words in quotes, completion, and messages that name what was meant.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

namespace cell {

// Splits a line into words as a shell does: '...', "..." (where \" and \\ mean " and \) and backslashes.
// InvalidArgument: a quote is not closed.
absl::StatusOr<std::vector<std::string>> SplitWords(std::string_view line);

// Returns the one of `known` that was most likely meant by `word`; empty: none is like it.
std::string Nearest(std::string_view word, const std::vector<std::string>& known);

// Returns what is wrong with a command line that `app` could not parse, in one line.
std::string ParseMessage(const CLI::App& app, const CLI::ParseError& error);

// Writes the help that was asked for, or "PROGRAM: what is wrong" to standard error. Returns the exit status, 0 or 2.
int EndOfParse(const char* program, const CLI::App& app, const CLI::ParseError& error);

// Returns what the last word of a line may go on to: commands, flags, or for an argument (`table`, say, or the value of
// --table) what `values` returns of its name. `words`: those of the line; the last one, perhaps empty, is unfinished.
std::vector<std::string> Completions(const CLI::App& app, const std::vector<std::string>& words,
                                     const std::function<std::vector<std::string>(std::string_view name)>& values);

// Refuses what is no whole number from 0 on: an unsigned number would take -1 for the largest one.
CLI::Validator Count();

// Refuses what is no number from `low` to `high`. CLI::Range takes nan for one.
CLI::Validator Between(double low, double high);

}  // namespace cell
