// Patterns of Redis: ? is one byte, * any bytes, [abc], [^a] and [a-c] one byte of a set, and \ makes the next byte
// plain.
#pragma once

#include <string>
#include <string_view>

namespace cell::gateway {

// Returns whether all of `text` matches. Takes at most text.size() * pattern.size() steps.
bool MatchesGlob(std::string_view pattern, std::string_view text);

// Returns what every text that matches begins with: a scan for the pattern needs no other keys.
std::string GlobPrefix(std::string_view pattern);

}  // namespace cell::gateway
