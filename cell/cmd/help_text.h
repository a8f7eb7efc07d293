// Formats the text of --help as a user expects it, where CLI11 does not.
#pragma once

#include <memory>

#include "CLI/CLI.hpp"

namespace cell {

// Returns a formatter that lists an argument that can also be given as a flag once, as an argument, and that shows a
// flag with its opposite as "--load,--no-load", and not as "--load,--no-load{false}".
std::shared_ptr<CLI::FormatterBase> HelpText();

}  // namespace cell
