// Converts keys and values to text and back: one line for each pair, whatever bytes it has. Pure.
//
//   text   key TAB value, each escaped: \\ \t \n \r, and \xHH for a byte of a control character, or that is not UTF-8
//   JSON   {"key": K, "value": V}, each a string, or {"hex": "00ff"} if it is not UTF-8 or has control characters from
//          0x7f on
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace cell {

std::string EscapeText(std::string_view bytes);
// Reverses EscapeText. Returns InvalidArgument if a backslash is followed by anything that EscapeText does not write.
absl::StatusOr<std::string> UnescapeText(std::string_view text);

// Returns whether a terminal shows the bytes and does nothing else with them: UTF-8 without control characters, except
// tabs and line ends.
bool IsPrintable(std::string_view bytes);

nlohmann::json BytesAsJson(std::string_view bytes);
absl::StatusOr<std::string> BytesFromJson(const nlohmann::json& json);

// Parses a line of either kind. A line with a tab is text; otherwise one that begins with { is JSON. With `raw` it is
// text, in which a backslash is an ordinary byte. Returns InvalidArgument with what is wrong.
absl::StatusOr<std::pair<std::string, std::string>> ParsePair(std::string_view line, bool raw);

}  // namespace cell
