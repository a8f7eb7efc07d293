#include "tools/pair_text.h"

#include <cstdint>
#include <optional>

#include "cell/base/json.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

// Returns the UTF-8 character at the beginning of `bytes`, with its size. Returns nullopt if there is none.
struct Character {
  size_t bytes;
  uint32_t point;
};
std::optional<Character> FirstCharacter(std::string_view bytes) {
  const auto c = static_cast<unsigned char>(bytes[0]);
  const size_t more = c < 0x80                ? 0
                      : c >= 0xc2 && c < 0xe0 ? 1
                      : c >= 0xe0 && c < 0xf0 ? 2
                      : c >= 0xf0 && c < 0xf5 ? 3
                                              : bytes.size();
  if (more >= bytes.size()) return std::nullopt;
  uint32_t point = more == 0 ? c : c & (0x3f >> more);
  for (size_t k = 1; k <= more; ++k) {
    const auto next = static_cast<unsigned char>(bytes[k]);
    if ((next & 0xc0) != 0x80) return std::nullopt;
    point = point << 6 | (next & 0x3f);
  }
  if (more == 2 && (point < 0x800 || (point >= 0xd800 && point < 0xe000))) return std::nullopt;
  if (more == 3 && (point < 0x10000 || point > 0x10ffff)) return std::nullopt;
  return Character{more + 1, point};
}

// Also characters that change the direction of what follows them, so that a line seems to say something else.
bool IsControl(uint32_t point) {
  return point < 0x20 || (point >= 0x7f && point < 0xa0) || (point >= 0x202a && point <= 0x202e) ||
         (point >= 0x2066 && point <= 0x2069);
}

// Returns whether a JSON string shows the bytes: nlohmann::json escapes only the control characters below 0x20.
bool IsJsonText(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::optional<Character> first = FirstCharacter(bytes);
    if (!first.has_value() || (IsControl(first->point) && first->point >= 0x20)) return false;
    bytes.remove_prefix(first->bytes);
  }
  return true;
}

std::optional<unsigned> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

std::optional<char> HexByte(std::string_view text) {
  if (text.size() < 2) return std::nullopt;
  const std::optional<unsigned> high = HexDigit(text[0]), low = HexDigit(text[1]);
  if (!high.has_value() || !low.has_value()) return std::nullopt;
  return static_cast<char>(*high << 4 | *low);
}

}  // namespace

std::string EscapeText(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const std::optional<Character> first = FirstCharacter(bytes);
    const size_t taken = first.has_value() ? first->bytes : 1;
    switch (bytes[0]) {
      case '\\':
        text += "\\\\";
        break;
      case '\t':
        text += "\\t";
        break;
      case '\n':
        text += "\\n";
        break;
      case '\r':
        text += "\\r";
        break;
      default:
        if (first.has_value() && !IsControl(first->point)) {
          text += bytes.substr(0, taken);
        } else {
          for (const unsigned char c : bytes.substr(0, taken)) text += fmt::format("\\x{:02x}", c);
        }
    }
    bytes.remove_prefix(taken);
  }
  return text;
}

absl::StatusOr<std::string> UnescapeText(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      bytes += text[i];
      continue;
    }
    const char what = ++i < text.size() ? text[i] : '\0';
    if (what == '\\') {
      bytes += '\\';
    } else if (what == 't') {
      bytes += '\t';
    } else if (what == 'n') {
      bytes += '\n';
    } else if (what == 'r') {
      bytes += '\r';
    } else if (const std::optional<char> byte = what == 'x' ? HexByte(text.substr(i + 1)) : std::nullopt) {
      bytes += *byte;
      i += 2;
    } else {
      return absl::InvalidArgumentError(
          "invalid escape: only \\\\ \\t \\n \\r \\xHH are allowed; write \\\\ for a backslash, or load with --raw");
    }
  }
  return bytes;
}

bool IsPrintable(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::optional<Character> first = FirstCharacter(bytes);
    if (!first.has_value() || (IsControl(first->point) && bytes[0] != '\t' && bytes[0] != '\n')) return false;
    bytes.remove_prefix(first->bytes);
  }
  return true;
}

nlohmann::json BytesAsJson(std::string_view bytes) {
  if (IsJsonText(bytes)) return std::string(bytes);
  std::string hex;
  for (const unsigned char c : bytes) hex += fmt::format("{:02x}", c);
  return {{"hex", hex}};
}

absl::StatusOr<std::string> BytesFromJson(const nlohmann::json& json) {
  if (json.is_string()) return json.get<std::string>();
  const auto hex = json.is_object() && json.size() == 1 ? json.find("hex") : json.end();
  if (hex == json.end() || !hex->is_string()) {
    return absl::InvalidArgumentError(R"(is neither a string nor {"hex": "..."})");
  }
  const std::string text = hex->get<std::string>();
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    const std::optional<char> byte = HexByte(std::string_view(text).substr(i));
    if (!byte.has_value()) return absl::InvalidArgumentError("is not made of pairs of hexadecimal digits");
    bytes += *byte;
  }
  return bytes;
}

absl::StatusOr<std::pair<std::string, std::string>> ParsePair(std::string_view line, bool raw) {
  const size_t tab = line.find('\t');
  if (tab == std::string_view::npos && !raw && line.substr(0, 1) == "{") {
    const absl::StatusOr<nlohmann::json> json = ParseJson(line);
    if (!json.ok() || !json->is_object() || !json->contains("key") || !json->contains("value")) {
      return absl::InvalidArgumentError(R"(it is not {"key": ..., "value": ...})");
    }
    if (json->size() != 2) {  // What is not stored, such as an expiry, must not be dropped silently.
      return absl::InvalidArgumentError(R"(it has more than "key" and "value")");
    }
    std::string parts[2];
    for (const auto& [name, part] : {std::pair{"key", &parts[0]}, {"value", &parts[1]}}) {
      absl::StatusOr<std::string> bytes = BytesFromJson((*json)[name]);
      if (!bytes.ok()) {
        return absl::InvalidArgumentError(fmt::format("its {} {}", name, std::string(bytes.status().message())));
      }
      *part = *std::move(bytes);
    }
    return std::pair(std::move(parts[0]), std::move(parts[1]));
  }
  if (tab == std::string_view::npos || tab == 0) {
    return absl::InvalidArgumentError(R"(it is neither "key TAB value" nor {"key": ..., "value": ...})");
  }
  if (raw) return std::pair(std::string(line.substr(0, tab)), std::string(line.substr(tab + 1)));
  ASSIGN_OR_RETURN(std::string key, UnescapeText(line.substr(0, tab)));
  ASSIGN_OR_RETURN(std::string value, UnescapeText(line.substr(tab + 1)));
  return std::pair(std::move(key), std::move(value));
}

}  // namespace cell
