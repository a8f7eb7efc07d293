#include "cell/cmd/log_lines.h"

#include <ctime>
#include <iterator>
#include <utility>

#include "fmt/format.h"
#include "spdlog/pattern_formatter.h"

namespace cell {
namespace {

class EscapedMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& to) override {
    for (const char c : message.payload) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '\n') {
        to.append(std::string_view("\\n"));
      } else if (byte < 0x20 || byte == 0x7f) {
        fmt::format_to(std::back_inserter(to), "\\x{:02x}", byte);
      } else {
        to.push_back(c);  // Bytes from 0x80 on are parts of UTF-8 characters.
      }
    }
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override { return std::make_unique<EscapedMessage>(); }
};

}  // namespace

std::unique_ptr<spdlog::formatter> LogLines() {
  auto lines = std::make_unique<spdlog::pattern_formatter>();
  lines->add_flag<EscapedMessage>('*').set_pattern("[%Y-%m-%d %H:%M:%S.%e] [%^%l%$] %*");
  return lines;
}

}  // namespace cell
