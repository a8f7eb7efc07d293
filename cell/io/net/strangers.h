// Helps to test what strangers can do to a fabric: limits descriptors, and captures warnings.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/io/net/fd.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"

namespace cell {

// Limits this process's descriptors, and takes all but `left` of those that connections may have.
class FewDescriptors {
 public:
  static constexpr int kLimit = 400;

  explicit FewDescriptors(int left) {
    CELL_CHECK_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{kLimit, before_.rlim_max};
    CELL_CHECK_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    do {
      taken_.emplace_back(::dup(0));
      CELL_CHECK(taken_.back().valid());
    } while (taken_.back().get() < kLimit - kLimit / 4 - 1);
    for (int i = 0; i < left; ++i) taken_.pop_back();
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
  std::vector<Fd> taken_;
};

// Captures the log.
class LogLines {
 public:
  LogLines() {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines_)));
  }
  ~LogLines() { spdlog::set_default_logger(before_); }

  // Returns whether something was written, and at most one line a second. REQUIRES: nobody logs meanwhile.
  bool AreFew() const {
    const std::string text = lines_.str();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin_);
    const auto count = std::count(text.begin(), text.end(), '\n');
    return count >= 1 && count <= seconds.count() + 1;
  }

 private:
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::ostringstream lines_;
};

}  // namespace cell
