// Makes records of transactions with names, for tests of the checker of serializability.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/serializability.h"

namespace cell {

// Return a transaction that only reads, one that puts keys as well, and one that deletes them.
inline TransactionRecord Reader(std::string name, int64_t begin, int64_t end,
                                std::vector<TransactionRecord::Read> reads) {
  return {begin, end, 0, std::move(reads), {}, std::move(name)};
}
inline TransactionRecord Writer(std::string name, int64_t begin, int64_t end, uint64_t stamp, std::vector<int> puts,
                                std::vector<TransactionRecord::Read> reads = {}) {
  TransactionRecord writer{begin, end, stamp, std::move(reads), {}, std::move(name)};
  for (const int key : puts) writer.writes.push_back({key, false});
  return writer;
}
inline TransactionRecord Deleter(std::string name, int64_t begin, int64_t end, uint64_t stamp, std::vector<int> keys,
                                 std::vector<TransactionRecord::Read> reads = {}) {
  TransactionRecord deleter = Writer(std::move(name), begin, end, stamp, std::move(keys), std::move(reads));
  for (TransactionRecord::Write& write : deleter.writes) write.deletes = true;
  return deleter;
}

// Gives the transaction a time that overlaps with those of all others that were given one. Those with a lower `place`
// come first in the checker's order.
inline constexpr int64_t kWide = 1000;
inline TransactionRecord At(int64_t place, TransactionRecord one) {
  one.begin_ns = place - kWide;
  one.end_ns = place + kWide;
  return one;
}

}  // namespace cell
