// LimitedWarnings limits warnings that strangers cause and could fill a log with. At most one a second is written, with
// the number of those left out since the last one.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "spdlog/spdlog.h"

namespace cell {

class LimitedWarnings {
 public:
  template <typename... Args>
  void Warn(int64_t now_ns, fmt::format_string<Args...> text, Args&&... args) {
    if (written_ns_.has_value() && now_ns - *written_ns_ < kEveryNs) {
      ++left_out_;
      return;
    }
    spdlog::warn(
        "{}{}", fmt::format(text, std::forward<Args>(args)...),
        left_out_ == 0 ? "" : fmt::format(" ({} other warnings about connections were suppressed)", left_out_));
    written_ns_ = now_ns;
    left_out_ = 0;
  }

 private:
  static constexpr int64_t kEveryNs = 1'000'000'000;

  std::optional<int64_t> written_ns_;
  uint64_t left_out_ = 0;  // Since the last warning.
};

}  // namespace cell
