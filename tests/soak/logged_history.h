// LoggedHistory is what all processes of a soak did to its keys of transactions, as their logs (transaction_log.h)
// tell.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/soak/transaction_log.h"

namespace cell {

struct LoggedTransaction {
  enum class Outcome { kUnknown, kDone, kFailed };
  static constexpr int64_t kNever = INT64_MAX;

  std::string name;
  int64_t begin_ns = 0;
  int64_t end_ns = kNever;
  Outcome outcome = Outcome::kUnknown;
  uint64_t stamp = 0;  // Of what it has written. 0: it is not known, or it has written nothing.
  std::vector<LoggedPair> reads = {};
  std::vector<LoggedPair> writes = {};

  bool done() const { return outcome == Outcome::kDone; }
  bool failed() const { return outcome == Outcome::kFailed; }
};

struct LoggedHistory {
  std::vector<LoggedTransaction> transactions;
  std::unordered_map<int64_t, size_t> writer_of;  // By value: the transaction that puts it.
  std::vector<std::string> violations;            // What the processes complain of, and what needs no further check.
  size_t unknown = 0;                             // Transactions of unknown outcome.

  const LoggedTransaction& WriterOf(int64_t value) const { return transactions[writer_of.at(value)]; }
};

// Reads the logs. Ignores a last line without an end, which was never passed to the system completely. Reports a value
// that was read and that nobody put, or one whose put has failed; and a stamp that is not that of its transaction.
//
// Afterwards every value that was read has a writer, and the stamps of pairs are those of their writers. A put that
// found no pair has read its key as absent. A delete that found no pair has read that, and writes nothing.
LoggedHistory ReadTransactionLogs(const std::vector<std::string>& paths);

}  // namespace cell
