// Formats the server's log so that each message is one line of printable characters.
//
// Messages have text of other processes in them: names in their requests, and the errors that they answer. Without
// this, a stranger could write lines that look like the server's own, or commands to the terminal that shows the log.
#pragma once

#include <memory>

#include "spdlog/formatter.h"

namespace cell {

// Returns a formatter that writes time, level and message, and control characters of the message as \n or \x1b.
std::unique_ptr<spdlog::formatter> LogLines();

}  // namespace cell
