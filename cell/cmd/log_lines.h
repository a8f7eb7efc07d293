// Formats the server's log so that each message is one line of printable characters, and not a long one.
//
// Messages have text of other processes in them: names in their requests and in the membership, and the errors that
// they answer. Without this, a stranger could write lines that look like the server's own, commands to the terminal
// that shows the log, or lines without end.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "spdlog/formatter.h"

namespace cell {

// A longer message is cut, and ends with how many bytes were left out.
inline constexpr size_t kLogTextBytesMax = 4096;

// Returns the text as one line of UTF-8. What a terminal or a reader of lines would not show as a character (control
// characters, line separators, marks that change the direction of text, bytes that are not UTF-8) becomes \n or \x1b.
std::string OneLine(std::string_view text);

// Returns a formatter that writes time, level and OneLine of the message.
std::unique_ptr<spdlog::formatter> LogLines();

}  // namespace cell
