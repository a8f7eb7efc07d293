#include "tests/soak/transaction_check.h"

#include <algorithm>
#include <map>

#include "tests/simulation/serializability.h"

namespace cell {
namespace {

constexpr int64_t kNever = LoggedTransaction::kNever;

// Makes a history for the checker of strict serializability.
class Ordering {
 public:
  explicit Ordering(const LoggedHistory& history)
      : history_(history), all_(history.transactions), ranks_(all_.size(), 0) {}

  std::vector<TransactionRecord> Run() {
    RankStamped();
    CollectVersions();
    PlaceUnstamped();
    std::vector<TransactionRecord> records;
    for (size_t i = 0; i < all_.size(); ++i) {
      const LoggedTransaction& one = all_[i];
      if (one.failed() || (ranks_[i] == 0 && !(one.done() && one.writes.empty()))) continue;
      records.push_back(RecordOf(i));
    }
    return records;
  }
  size_t left_out() const { return left_out_; }

 private:
  // A write of a key whose place is known. Versions are in the order of their ranks. So each has ended by the time when
  // a later one has, and begins no earlier than one before it.
  struct Version {
    uint64_t rank;
    int64_t begin_ns, end_ns;
  };
  struct Key {
    std::vector<Version> versions = {};
    std::vector<size_t> unstamped = {};  // Writes that were acknowledged, in the order of their begins.
    // Times in which the key may have been absent because of a delete that was left out.
    std::vector<TimeSpan> perhaps_absent = {};
  };
  // Ranks between those of two stamps are for writes without one.
  static constexpr uint64_t kPlaces = uint64_t{1} << 20;

  void RankStamped() {
    std::vector<uint64_t> stamps;
    for (const LoggedTransaction& one : all_) {
      if (one.stamp != 0 && !one.failed()) stamps.push_back(one.stamp);
    }
    std::sort(stamps.begin(), stamps.end());
    stamps.erase(std::unique(stamps.begin(), stamps.end()), stamps.end());
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].stamp == 0 || all_[i].failed()) continue;
      const auto at = std::lower_bound(stamps.begin(), stamps.end(), all_[i].stamp);
      ranks_[i] = static_cast<uint64_t>(at - stamps.begin() + 1) * kPlaces;
    }
  }

  void CollectVersions() {
    for (size_t i = 0; i < all_.size(); ++i) {
      const LoggedTransaction& one = all_[i];
      if (one.failed()) continue;
      for (const LoggedPair& write : one.writes) {
        Key& key = keys_[write.key];
        if (ranks_[i] != 0) {
          key.versions.push_back({ranks_[i], one.begin_ns, one.end_ns});
        } else if (one.done()) {
          key.unstamped.push_back(i);
        }
      }
    }
    for (auto& [number, key] : keys_) {
      std::vector<Version>& versions = key.versions;
      std::sort(versions.begin(), versions.end(), [](const Version& a, const Version& b) { return a.rank < b.rank; });
      for (size_t i = 1; i < versions.size(); ++i) {
        versions[i].begin_ns = std::max(versions[i].begin_ns, versions[i - 1].begin_ns);
      }
      for (size_t i = versions.size(); i > 1; --i) {
        versions[i - 2].end_ns = std::min(versions[i - 2].end_ns, versions[i - 1].end_ns);
      }
      std::sort(key.unstamped.begin(), key.unstamped.end(),
                [this](size_t a, size_t b) { return all_[a].begin_ns < all_[b].begin_ns; });
    }
  }

  // Returns the first version that may come after a moment, and the first one that certainly does.
  static size_t FirstNotBefore(const Key& key, int64_t ns) {
    const auto at = std::partition_point(key.versions.begin(), key.versions.end(),
                                         [ns](const Version& version) { return version.end_ns < ns; });
    return static_cast<size_t>(at - key.versions.begin());
  }
  static size_t FirstAfter(const Key& key, int64_t ns) {
    const auto at = std::partition_point(key.versions.begin(), key.versions.end(),
                                         [ns](const Version& version) { return version.begin_ns <= ns; });
    return static_cast<size_t>(at - key.versions.begin());
  }

  bool OverlapsWithAnother(const Key& key, size_t which) const {
    return std::any_of(key.unstamped.begin(), key.unstamped.end(), [&](size_t other) {
      return other != which && all_[other].end_ns >= all_[which].begin_ns && all_[other].begin_ns <= all_[which].end_ns;
    });
  }

  // Ranks writes without a stamp by their time, or leaves them out.
  void PlaceUnstamped() {
    for (auto& [number, key] : keys_) {
      std::map<size_t, uint64_t> placed;  // By the version that follows.
      for (const size_t i : key.unstamped) {
        const size_t next = FirstNotBefore(key, all_[i].begin_ns);
        if (next != FirstAfter(key, all_[i].end_ns) || OverlapsWithAnother(key, i)) continue;
        ranks_[i] = (next == 0 ? 0 : key.versions[next - 1].rank) + ++placed[next];
      }
    }
    for (size_t i = 0; i < all_.size(); ++i) {
      const LoggedTransaction& one = all_[i];
      if (one.writes.empty() || one.failed() || ranks_[i] != 0) continue;
      ++left_out_;
      for (const LoggedPair& write : one.writes) {
        if (write.value != 0) continue;
        Key& key = keys_[write.key];
        const size_t next = one.done() ? FirstAfter(key, one.end_ns) : key.versions.size();
        const int64_t end_ns = next < key.versions.size() ? key.versions[next].end_ns : kNever;
        key.perhaps_absent.push_back({one.begin_ns, end_ns});
      }
    }
  }

  bool MayBeAbsent(size_t key, const LoggedTransaction& reader) const {
    const auto found = keys_.find(key);
    if (found == keys_.end()) return false;
    return std::any_of(
        found->second.perhaps_absent.begin(), found->second.perhaps_absent.end(),
        [&](const TimeSpan& time) { return reader.end_ns >= time.begin_ns && reader.begin_ns <= time.end_ns; });
  }

  TransactionRecord RecordOf(size_t i) const {
    const LoggedTransaction& one = all_[i];
    TransactionRecord record{one.begin_ns, one.end_ns, ranks_[i], {}, {}, one.name};
    for (const LoggedPair& read : one.reads) {
      const auto key = static_cast<int>(read.key);
      if (read.value == 0) {
        if (!MayBeAbsent(read.key, one)) record.reads.push_back({key, 0});
      } else if (const uint64_t rank = ranks_[history_.writer_of.at(read.value)]; rank != 0) {
        record.reads.push_back({key, rank});
      }
    }
    for (const LoggedPair& write : one.writes) {
      record.writes.push_back({static_cast<int>(write.key), write.value == 0});
    }
    return record;
  }

  const LoggedHistory& history_;
  const std::vector<LoggedTransaction>& all_;
  std::vector<uint64_t> ranks_;  // By transaction. 0: it writes nothing, or is left out.
  std::map<size_t, Key> keys_;
  size_t left_out_ = 0;
};

}  // namespace

TransactionVerdict CheckStrictlySerializable(const LoggedHistory& history, uint64_t steps_max) {
  TransactionVerdict verdict{.violations = history.violations};
  Ordering ordering(history);
  const std::vector<TransactionRecord> records = ordering.Run();
  verdict.checked = records.size();
  verdict.left_out = ordering.left_out();
  const SerializabilityResult result = CheckSerializable(records, steps_max);
  if (result.kind == SerializabilityResult::kNo) {
    verdict.violations.push_back(fmt::format("the transactions are not strictly serializable: {}", result.why));
  }
  if (result.kind == SerializabilityResult::kGaveUp) verdict.undecided = result.why;
  return verdict;
}

}  // namespace cell
