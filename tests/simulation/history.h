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
    if (read && Stale(operation.end_ns)) return;
    operations_[key].push_back(operation);
  }
  // How many of the keys [first, end) were there, each at some moment from begin_ns to end_ns.
  struct Count {
    size_t first, end;
    int64_t begin_ns, end_ns;
    uint64_t pairs;
    bool deleted = false;  // A deletion may count pairs that had expired.
  };
  void AddCount(const Count& count) {
    if (!Stale(count.end_ns)) counts_.push_back(count);
  }
  // Ignores reads that end within this window and were not added yet.
  void MayBeStale(int64_t begin_ns, int64_t end_ns) { stale_.push_back({begin_ns, end_ns}); }
  // Returns whether a read that ends at this time, and is added now, is ignored.
  bool Stale(int64_t end_ns) const {
    return std::any_of(stale_.begin(), stale_.end(),
                       [end_ns](const Window& window) { return end_ns >= window.begin_ns && end_ns <= window.end_ns; });
  }
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
  // Checks that each key's history is linearizable, and that the counts can be right. With `may_lose`, checks instead
  // that the final value was written after everything that was acknowledged more than `slack_ns` before such a window.
  Verdict Check(bool may_lose, int64_t slack_ns, size_t violations_max) const;

 private:
  struct Window {
    int64_t begin_ns, end_ns;
  };
  // Return whether a key was there all the time, as far as can be told, and whether it was there at some moment.
  bool CertainlyThere(size_t key, int64_t begin_ns, int64_t end_ns) const;
  bool PossiblyThere(size_t key, int64_t begin_ns, int64_t end_ns, bool expired_too) const;
  void CheckCount(const Count& count, Verdict* verdict) const;
  void CheckLinear(size_t key, Verdict* verdict) const;
  void CheckLoss(size_t key, int64_t slack_ns, Verdict* verdict) const;

  std::vector<std::vector<KeyOperation>> operations_;
  std::vector<Count> counts_;
  std::vector<Window> windows_, stale_;
};

}  // namespace cell
