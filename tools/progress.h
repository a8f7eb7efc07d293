// A bar on a terminal, for what takes long. Without a terminal it says nothing.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "fmt/format.h"

namespace cell {

// A bar on a terminal, from bytes read so far of a known number (0: unknown).
class Progress {
 public:
  explicit Progress(uint64_t total) : total_(total), shown_(::isatty(STDERR_FILENO) != 0) {}
  ~Progress() {
    if (shown_) fmt::print(stderr, "\r{:79}\r", "");
  }
  void Show(uint64_t bytes, uint64_t records) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    if (total_ == 0) {
      fmt::print(stderr, "\r{} records", records);
      return;
    }
    constexpr size_t kWidth = 40;
    const auto filled = static_cast<size_t>(kWidth * std::min(bytes, total_) / total_);
    fmt::print(stderr, "\r[{:<{}}] {:3}%  {} records", std::string(filled, '#'), kWidth, 100 * bytes / total_, records);
  }

 private:
  const uint64_t total_;
  const bool shown_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace cell
