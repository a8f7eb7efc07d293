// Keys and values as text, and back: one line for each pair, whatever bytes are in it. Pure.
//
//   text   key TAB value, each escaped: \\ \t \n \r, and \xHH for a byte of a control character, or that is not UTF-8
//   JSON   {"key": K, "value": V}, each a string, or {"hex": "00ff"} when it is not UTF-8 or has control characters from
//          0x7f on
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace cell {

std::string EscapeText(std::string_view bytes);
// InvalidArgument: a backslash is followed by something else than what EscapeText writes.
absl::StatusOr<std::string> UnescapeText(std::string_view text);

// Whether a terminal shows the bytes, and does nothing else with them: UTF-8 without control characters, but for tabs
// and line ends.
bool IsPrintable(std::string_view bytes);

nlohmann::json BytesAsJson(std::string_view bytes);
absl::StatusOr<std::string> BytesFromJson(const nlohmann::json& json);

// Reads a line of either kind: one with a tab is text, else one that begins with { is JSON. `raw`: it is text, and a
// backslash is a byte like any other. InvalidArgument says what is wrong.
absl::StatusOr<std::pair<std::string, std::string>> ParsePair(std::string_view line, bool raw);

}  // namespace cell
