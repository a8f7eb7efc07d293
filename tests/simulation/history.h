// History records what a simulation's clients did and saw, by key, and checks whether that is allowed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "tests/simulation/linearizability.h"

namespace cell {

inline std::string KeyName(size_t key) { return fmt::format("k{:05}", key); }

class History {
 public:
  explicit History(size_t keys) : operations_(keys) {}

  size_t keys() const { return operations_.size(); }
  const std::vector<KeyOperation>& of(size_t key) const { return operations_[key]; }
  // Adds an operation. Operations that end one after the other are added in that order.
  void Add(size_t key, const KeyOperation& operation) {
    const bool read = operation.kind == KeyOperation::Kind::kGet || operation.kind == KeyOperation::Kind::kContains;
    const auto in = [&operation](const Window& window) {
      return operation.end_ns >= window.begin_ns && operation.end_ns <= window.end_ns;
    };
    if (read && std::any_of(stale_.begin(), stale_.end(), in)) return;
    operations_[key].push_back(operation);
  }
  // Ignores reads that end within this window and were not added yet.
  void MayBeStale(int64_t begin_ns, int64_t end_ns) { stale_.push_back({begin_ns, end_ns}); }
  // Returns the time from which on all reads count again.
  int64_t reads_count_from_ns() const {
    int64_t from_ns = 0;
    for (const Window& window : stale_) from_ns = std::max(from_ns, window.end_ns + 1);
    return from_ns;
  }
  // Records that, with async, writes acknowledged within this window may be lost.
  void MayLose(int64_t begin_ns, int64_t end_ns) { windows_.push_back({begin_ns, end_ns}); }

  struct Verdict {
    std::vector<std::string> violations;  // Limited to about this many.
    uint64_t checked = 0;                 // Operations.
    uint64_t gave_up = 0;                 // Keys whose histories are too complex to be decided.
  };
  // Checks that each key's history is linearizable. With `may_lose`, checks instead that the final value was written
  // after everything that was acknowledged more than `slack_ns` before such a window.
  Verdict Check(bool may_lose, int64_t slack_ns, size_t violations_max) const;

 private:
  struct Window {
    int64_t begin_ns, end_ns;
  };
  void CheckLinear(size_t key, Verdict* verdict) const;
  void CheckLoss(size_t key, int64_t slack_ns, Verdict* verdict) const;

  std::vector<std::vector<KeyOperation>> operations_;
  std::vector<Window> windows_, stale_;
};

}  // namespace cell
