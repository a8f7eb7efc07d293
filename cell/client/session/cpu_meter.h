// CpuMeter measures what a client's operations take of its own core, which the selector needs where that core is what
// operations wait for. Internal to cell/client. Not thread-safe.
//
// The client's loop makes turns. A turn polls the fabric, whose completions resume coroutines one after the other. In a
// sampled turn, each completion is charged with the time until the next one begins. What is left of the turn, before
// the first completion and after the last one, is shared evenly: it is the fabric's work, such as receiving and sending
// for all of them. So all of the turn is charged.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "selector/selector.h"

namespace cell {

class CpuMeter {
 public:
  enum class Work : uint8_t { kCall, kRead };

  // Begins a turn. The turn before ends.
  void BeginTurn(int64_t now_ns) {
    const auto took_ns = static_cast<double>(now_ns - begun_ns_);
    if (took_ns > 0) busy_ += ((worked_ ? 1 : 0) - busy_) * took_ns / (took_ns + kBusyOverNs);
    if (worked_) turn_ns_ += (took_ns - turn_ns_) * kTurnWeight;
    begun_ns_ = now_ns;
    worked_ = false;
    sampled_ = ++turns_ % kSampledEvery == 0;
    completions_.clear();
  }
  // Reports that the turn has found something to do.
  void Worked() { worked_ = true; }
  // Returns whether this turn is sampled. If not, the functions below need not be called.
  bool sampled() const { return sampled_; }
  // Begins the work of a completion. `selector` learns what it takes, and must live until the turn ends; null: nobody
  // does.
  void Begin(Selector* selector, Work work, int64_t now_ns) { completions_.push_back({selector, work, now_ns}); }
  // Ends the turn's work.
  void End(int64_t now_ns) {
    sampled_ = false;
    if (completions_.empty()) return;
    const auto n = static_cast<int64_t>(completions_.size());
    const int64_t known_ns = completions_.back().begun_ns - completions_.front().begun_ns;
    // The work of the last completion is assumed to be like that of the others.
    const int64_t last_ns = n > 1 ? std::min(known_ns / (n - 1), now_ns - completions_.back().begun_ns) : 0;
    const int64_t shared_ns = (now_ns - begun_ns_ - known_ns - last_ns) / n;
    for (size_t i = 0; i < completions_.size(); ++i) {
      const Completion& one = completions_[i];
      if (one.selector == nullptr) continue;
      const int64_t own_ns = i + 1 < completions_.size() ? completions_[i + 1].begun_ns - one.begun_ns : last_ns;
      one.work == Work::kCall ? one.selector->ObserveCallCpu(own_ns + shared_ns)
                              : one.selector->ObserveReadCpu(own_ns + shared_ns);
    }
    completions_.clear();
  }

  // Returns the part of the recent time, from 0 to 1, in which the core had something to do.
  double busy() const { return busy_; }
  // Returns how long a turn that has something to do takes: a running mean.
  double turn_ns() const { return turn_ns_; }

 private:
  static constexpr uint32_t kSampledEvery = 7;
  static constexpr double kBusyOverNs = 1e6;
  static constexpr double kTurnWeight = 1.0 / 32;

  struct Completion {
    Selector* selector;
    Work work;
    int64_t begun_ns;
  };

  int64_t begun_ns_ = 0;
  bool worked_ = false;
  bool sampled_ = false;
  uint32_t turns_ = 0;
  std::vector<Completion> completions_;  // Of a sampled turn.
  double busy_ = 0;
  double turn_ns_ = 0;
};

}  // namespace cell
