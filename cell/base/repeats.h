// Keeps repeated log messages from filling a log. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "fmt/format.h"

namespace cell {

class Repeats {
 public:
  explicit Repeats(int64_t every_ns = 60'000'000'000) : every_ns_(every_ns) {}

  // Decides whether a message of this kind is written now. If so, returns a suffix for it: empty the first time, later
  // the number of messages that were left out, at most once every `every_ns`. Returns nullopt if the message is to be
  // left out.
  std::optional<std::string> Due(const std::string& kind, int64_t now_ns) {
    if (kinds_.size() >= kKindsMax && !kinds_.contains(kind)) kinds_.clear();
    const auto [it, first] = kinds_.try_emplace(kind, Said{now_ns, 0});
    if (first) return "";
    if (now_ns - it->second.at_ns < every_ns_) {
      ++it->second.left_out;
      return std::nullopt;
    }
    const uint64_t left_out = it->second.left_out;
    it->second = {now_ns, 0};
    return left_out == 0 ? "" : fmt::format(" (and {} more times since this was last logged)", left_out);
  }

 private:
  static constexpr size_t kKindsMax = 256;
  struct Said {
    int64_t at_ns;
    uint64_t left_out;
  };

  const int64_t every_ns_;
  std::map<std::string, Said> kinds_;
};

}  // namespace cell
