#include "cell/cmd/log_lines.h"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <iterator>
#include <utility>

#include "fmt/format.h"
#include "spdlog/pattern_formatter.h"

namespace cell {
namespace {

// Returns the number of bytes of the UTF-8 character at the beginning of `text`, and sets *code. Returns 0 if there is
// none. REQUIRES: `text` is not empty.
size_t Utf8At(std::string_view text, uint32_t* code) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t size = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (size == 0 || size > text.size()) return 0;
  *code = size == 1 ? first : first & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0) != 0x80) return 0;
    *code = *code << 6 | (next & 0x3f);
  }
  const bool too_long = (size == 3 && *code < 0x800) || (size == 4 && *code < 0x10000);
  const bool surrogate = *code >= 0xd800 && *code < 0xe000;
  return too_long || surrogate || *code > 0x10ffff ? 0 : size;
}

bool Shown(uint32_t code) {
  const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  const bool separator = code == 0x2028 || code == 0x2029;
  const bool direction = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return !control && !separator && !direction;
}

class OneLineMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& to) override {
    const std::string line = OneLine({message.payload.data(), message.payload.size()});
    to.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override { return std::make_unique<OneLineMessage>(); }
};

}  // namespace

std::string OneLine(std::string_view text) {
  std::string line;
  line.reserve(std::min(text.size(), kLogTextBytesMax));
  for (size_t at = 0; at < text.size();) {
    if (line.size() >= kLogTextBytesMax) return line + fmt::format("... ({} bytes more)", text.size() - at);
    uint32_t code = 0;
    const size_t size = Utf8At(text.substr(at), &code);
    if (size > 0 && Shown(code)) {
      line += text.substr(at, size);
    } else if (text[at] == '\n') {
      line += "\\n";
    } else {
      for (const char byte : text.substr(at, std::max<size_t>(size, 1))) {
        fmt::format_to(std::back_inserter(line), "\\x{:02x}", static_cast<unsigned char>(byte));
      }
    }
    at += std::max<size_t>(size, 1);
  }
  return line;
}

std::unique_ptr<spdlog::formatter> LogLines() {
  auto lines = std::make_unique<spdlog::pattern_formatter>();
  lines->add_flag<OneLineMessage>('*').set_pattern("[%Y-%m-%d %H:%M:%S.%e] [%^%l%$] %*");
  return lines;
}

}  // namespace cell
