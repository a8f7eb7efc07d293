// Journal records the events of a simulation, line by line, and its violations.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cell/base/random.h"
#include "fmt/format.h"

namespace cell {

class Journal {
 public:
  using Tell = std::function<void(const std::string&)>;

  // `now_ns` returns the simulation's time. `tell` is called with each line, unless it is null.
  Journal(std::function<int64_t()> now_ns, const Tell& tell) : now_ns_(std::move(now_ns)), tell_(tell) {}

  template <typename... Args>
  void Trace(fmt::format_string<Args...> format, Args&&... args) {
    std::string line = fmt::format("{:>12} {}", now_ns_(), fmt::format(format, std::forward<Args>(args)...));
    for (const char c : line) hash_ = Mix64(hash_ + static_cast<uint8_t>(c) + 1);
    if (tell_) tell_(line);
    last_lines_.push_back(std::move(line));
    if (last_lines_.size() > kLinesKept) last_lines_.pop_front();
  }
  template <typename... Args>
  void Violate(fmt::format_string<Args...> format, Args&&... args) {
    const std::string what = fmt::format(format, std::forward<Args>(args)...);
    Trace("VIOLATION {}", what);
    if (violations_.size() < kViolationsMax) violations_.push_back(what);
  }

  bool right() const { return violations_.empty(); }
  const std::vector<std::string>& violations() const { return violations_; }
  // Returns the hash of all lines.
  uint64_t hash() const { return hash_; }
  std::vector<std::string> last_lines() const { return {last_lines_.begin(), last_lines_.end()}; }

  static constexpr size_t kViolationsMax = 5;

 private:
  static constexpr size_t kLinesKept = 60;

  const std::function<int64_t()> now_ns_;
  const Tell& tell_;
  uint64_t hash_ = 0;
  std::deque<std::string> last_lines_;
  std::vector<std::string> violations_;
};

}  // namespace cell
