// Shows the progress of a long command on a terminal. Writes nothing if standard error is not a terminal.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

#include "fmt/format.h"

namespace cell {

class Progress {
 public:
  // `what` is being done. `total` is the final count for Show; 0: unknown, in which case there is no bar.
  explicit Progress(std::string_view what, uint64_t total = 0)
      : what_(what), total_(total), shown_(::isatty(STDERR_FILENO) != 0) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { Clear(); }

  bool shown() const { return shown_; }

  // Updates the line, at most ten times a second. `text` is called then, and returns additional text.
  template <typename Text>
  void Show(uint64_t done, Text text) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    std::string line(what_);
    if (total_ > 0) {
      constexpr size_t kWidth = 30;
      const uint64_t reached = std::min(done, total_);
      const auto filled =
          static_cast<size_t>(static_cast<double>(kWidth) * static_cast<double>(reached) / static_cast<double>(total_));
      line += fmt::format(" [{:<{}}] {:3}%", std::string(filled, '#'), kWidth, 100 * reached / total_);
    }
    line += " " + std::string(text());
    if (line.size() > kColumns) line.resize(kColumns);
    fmt::print(stderr, "\r{:<{}}", line, kColumns);
    dirty_ = true;
  }
  // Removes the line, so that a message can be written.
  void Clear() {
    if (dirty_) fmt::print(stderr, "\r{:{}}\r", "", kColumns);
    dirty_ = false;
  }

 private:
  static constexpr size_t kColumns = 79;

  const std::string what_;
  const uint64_t total_;
  const bool shown_;
  bool dirty_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace cell
