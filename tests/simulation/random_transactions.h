// Makes random histories of transactions, right and wrong ones, for tests of the checker of serializability.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cell/base/random.h"
#include "fmt/format.h"
#include "tests/simulation/serializability.h"

namespace cell {

struct HistoryShape {
  size_t transactions;
  int keys;
  size_t keys_max;     // That a transaction reads or writes.
  uint64_t overlap;    // About how many transactions overlap.
  uint64_t deletes;    // One in this number of writes deletes.
  uint64_t scans = 0;  // One in this number of transactions reads adjacent keys. 0: none.
};

// Makes a history by executing transactions one after the other. Each takes effect at one moment of its time.
inline std::vector<TransactionRecord> ExecuteSerially(const HistoryShape& shape, Random* random) {
  struct State {
    uint64_t stamp = 0;
    bool present = false;
  };
  std::vector<State> states(static_cast<size_t>(shape.keys));
  std::vector<TransactionRecord> history;
  for (size_t i = 0; i < shape.transactions; ++i) {
    const auto moment = static_cast<int64_t>(10 * i);
    TransactionRecord one{moment - static_cast<int64_t>(random->Below(10 * shape.overlap)),
                          moment + static_cast<int64_t>(random->Below(10 * shape.overlap))};
    one.name = fmt::format("T{}", i);
    const bool scans = shape.scans > 0 && random->Below(shape.scans) == 0;
    const auto first = static_cast<int>(random->Below(static_cast<uint64_t>(shape.keys)));
    const size_t size = scans ? shape.keys_max : 1 + random->Below(shape.keys_max);
    std::vector<int> keys;
    for (size_t k = 0; k < size; ++k) {
      keys.push_back(scans ? (first + static_cast<int>(k)) % shape.keys
                           : static_cast<int>(random->Below(static_cast<uint64_t>(shape.keys))));
    }
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    for (const int key : keys) {
      const State& state = states[static_cast<size_t>(key)];
      const uint64_t what = scans ? 0 : random->Below(3);
      if (what != 1) one.reads.push_back({key, state.present ? state.stamp : 0});
      if (what == 0) continue;
      one.writes.push_back({key, random->Below(shape.deletes) == 0});
      one.stamp = std::max(one.stamp, state.stamp + 1 + random->Below(2));
    }
    for (const TransactionRecord::Write& write : one.writes)
      states[static_cast<size_t>(write.key)] = {one.stamp, !write.deletes};
    if (!one.writes.empty() && random->Below(20) == 0) one.end_ns = TransactionRecord::kNever;
    history.push_back(std::move(one));
  }
  for (size_t i = history.size(); i > 1; --i) std::swap(history[i - 1], history[random->Below(i)]);
  return history;
}

inline HistoryShape SmallShape(Random* random) {
  return {.transactions = 1 + random->Below(7),
          .keys = 1 + static_cast<int>(random->Below(4)),
          .keys_max = 1 + random->Below(3),
          .overlap = random->Below(2) == 0 ? 3u : 10u,
          .deletes = 1 + random->Below(3)};
}

// Changes the time, the stamp or a read of a random transaction, unless it has none.
inline void ChangeSomething(std::vector<TransactionRecord>* history, Random* random) {
  TransactionRecord& one = (*history)[random->Below(history->size())];
  const uint64_t what = random->Below(4);
  if (what == 0) {
    const auto shift = static_cast<int64_t>(random->Below(60)) - 30;
    one.begin_ns += shift;
    if (one.end_ns != TransactionRecord::kNever) one.end_ns += shift;
  } else if (what == 1 && !one.writes.empty()) {
    one.stamp = 1 + random->Below(8);
  } else if (!one.reads.empty()) {
    TransactionRecord::Read& read = one.reads[random->Below(one.reads.size())];
    const TransactionRecord& other = (*history)[random->Below(history->size())];
    read.stamp = random->Below(3) == 0 ? 0 : other.stamp;
  }
}

// Makes up transactions. Each of their reads is of a version that some transaction wrote, or of an absence.
inline std::vector<TransactionRecord> MakeUp(const HistoryShape& shape, Random* random) {
  std::vector<TransactionRecord> history = ExecuteSerially(shape, random);
  std::vector<uint64_t> stamps;
  for (size_t i = 0; i < history.size(); ++i) stamps.push_back(i + 1);
  for (size_t i = history.size(); i > 1; --i) std::swap(stamps[i - 1], stamps[random->Below(i)]);
  for (size_t i = 0; i < history.size(); ++i) {
    if (!history[i].writes.empty()) history[i].stamp = stamps[i];
  }
  for (TransactionRecord& one : history) {
    for (TransactionRecord::Read& read : one.reads) {
      std::vector<uint64_t> versions = {0};  // Absent.
      for (const TransactionRecord& other : history) {
        for (const TransactionRecord::Write& write : other.writes) {
          if (write.key == read.key && !write.deletes && &other != &one) versions.push_back(other.stamp);
        }
      }
      read.stamp = versions[random->Below(versions.size())];
    }
  }
  return history;
}

// Makes a small history, about half of the time a wrong one.
inline std::vector<TransactionRecord> SmallHistory(Random* random) {
  if (random->Below(2) == 0) return MakeUp(SmallShape(random), random);
  std::vector<TransactionRecord> history = ExecuteSerially(SmallShape(random), random);
  for (uint64_t changes = 1 + random->Below(3); changes > 0; --changes) ChangeSomething(&history, random);
  return history;
}

// Makes a larger history, about half of the time a wrong one.
inline std::vector<TransactionRecord> LargerHistory(Random* random) {
  std::vector<TransactionRecord> history =
      ExecuteSerially({.transactions = 60, .keys = 8, .keys_max = 4, .overlap = 10, .deletes = 4}, random);
  for (uint64_t changes = random->Below(4); changes > 0; --changes) ChangeSomething(&history, random);
  return history;
}

}  // namespace cell
