// Implements CheckNotLost of transaction_check.h.
#include <algorithm>
#include <map>

#include "tests/soak/transaction_check.h"

namespace cell {
namespace {

class LossCheck {
 public:
  LossCheck(const LoggedHistory& history, const std::vector<TimeSpan>& lossy, int64_t slack_ns)
      : history_(history), lossy_(lossy), slack_ns_(slack_ns) {}

  TransactionVerdict Run() {
    verdict_.violations = history_.violations;
    CollectWrites();
    for (const LoggedTransaction& reader : history_.transactions) {
      if (!reader.done()) continue;
      ++verdict_.checked;
      for (const LoggedPair& read : reader.reads) {
        CheckBegun(reader, read);
        CheckNewest(reader, read);
        CheckWhole(reader, read);
      }
    }
    return std::move(verdict_);
  }

 private:
  // A write that was acknowledged, and must not be lost.
  struct Safe {
    int64_t end_ns;
    const LoggedTransaction* newest;  // Of this one and those that ended before.
  };
  struct Key {
    std::vector<Safe> safe = {};  // In the order of their ends.
    std::vector<const LoggedTransaction*> deletes = {};
  };

  bool IsSafe(const LoggedTransaction& one) const {
    if (!one.done() || one.stamp == 0) return false;
    return std::none_of(lossy_.begin(), lossy_.end(), [&](const TimeSpan& time) {
      return one.end_ns >= time.begin_ns - slack_ns_ && one.end_ns <= time.end_ns;
    });
  }

  void CollectWrites() {
    for (const LoggedTransaction& one : history_.transactions) {
      for (const LoggedPair& write : one.writes) {
        if (one.failed()) continue;
        Key& key = keys_[write.key];
        if (write.value == 0) key.deletes.push_back(&one);
        if (IsSafe(one)) key.safe.push_back({one.end_ns, &one});
      }
    }
    for (auto& [number, key] : keys_) {
      std::sort(key.safe.begin(), key.safe.end(), [](const Safe& a, const Safe& b) { return a.end_ns < b.end_ns; });
      for (size_t i = 1; i < key.safe.size(); ++i) {
        const LoggedTransaction* const before = key.safe[i - 1].newest;
        if (before->stamp > key.safe[i].newest->stamp) key.safe[i].newest = before;
      }
    }
  }

  // Returns whether a delete explains that a reader found the key absent, and not as `than` has written it.
  bool MayBeDeleted(size_t key, const LoggedTransaction& than, const LoggedTransaction& reader) const {
    const auto found = keys_.find(key);
    if (found == keys_.end()) return false;
    return std::any_of(found->second.deletes.begin(), found->second.deletes.end(), [&](const LoggedTransaction* one) {
      return one->begin_ns <= reader.end_ns && !IsBefore(*one, than);
    });
  }

  // Returns whether what was read is older than what `than` has written to the same key.
  bool IsOlder(const LoggedTransaction& reader, const LoggedPair& read, const LoggedTransaction& than) const {
    if (read.value == 0) return !MayBeDeleted(read.key, than, reader);
    return IsBefore(history_.WriterOf(read.value), than);
  }

  // Returns whether a write was certainly made before one with a stamp, and is not that one. Plain deletes have no
  // stamps, and plain puts only if somebody has read them.
  static bool IsBefore(const LoggedTransaction& one, const LoggedTransaction& than) {
    return one.stamp != 0 ? one.stamp < than.stamp : one.done() && one.end_ns < than.begin_ns;
  }

  void CheckBegun(const LoggedTransaction& reader, const LoggedPair& read) {
    if (read.value == 0 || history_.WriterOf(read.value).begin_ns <= reader.end_ns) return;
    verdict_.violations.push_back(fmt::format("{} read key {} as {}, before {} began, which put that", reader.name,
                                              read.key, read.value, history_.WriterOf(read.value).name));
  }

  void CheckNewest(const LoggedTransaction& reader, const LoggedPair& read) {
    const auto key = keys_.find(read.key);
    if (key == keys_.end()) return;
    const std::vector<Safe>& safe = key->second.safe;
    const auto after =
        std::partition_point(safe.begin(), safe.end(), [&](const Safe& one) { return one.end_ns < reader.begin_ns; });
    if (after == safe.begin() || !IsOlder(reader, read, *std::prev(after)->newest)) return;
    verdict_.violations.push_back(
        fmt::format("{} read key {} as {}, but {} had written it before, and no fault may have lost that", reader.name,
                    read.key, read.value, std::prev(after)->newest->name));
  }

  void CheckWhole(const LoggedTransaction& reader, const LoggedPair& read) {
    if (read.value == 0) return;
    const LoggedTransaction& writer = history_.WriterOf(read.value);
    if (writer.stamp == 0 || &writer == &reader) return;
    for (const LoggedPair& other : reader.reads) {
      const bool written = std::any_of(writer.writes.begin(), writer.writes.end(),
                                       [&](const LoggedPair& write) { return write.key == other.key; });
      if (!written || !IsOlder(reader, other, writer)) continue;
      verdict_.violations.push_back(
          fmt::format("{} read key {} as {}, which {} put, but key {} as {}, although the same transaction wrote it",
                      reader.name, read.key, read.value, writer.name, other.key, other.value));
    }
  }

  const LoggedHistory& history_;
  const std::vector<TimeSpan>& lossy_;
  const int64_t slack_ns_;
  std::map<size_t, Key> keys_;
  TransactionVerdict verdict_;
};

}  // namespace

TransactionVerdict CheckNotLost(const LoggedHistory& history, const std::vector<TimeSpan>& lossy, int64_t slack_ns) {
  return LossCheck(history, lossy, slack_ns).Run();
}

}  // namespace cell
