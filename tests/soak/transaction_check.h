// Checks the history of the soak's transactions, plain gets, puts and deletes of the same keys included.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/soak/logged_history.h"

namespace cell {

struct TimeSpan {
  int64_t begin_ns, end_ns;
};

struct TransactionVerdict {
  std::vector<std::string> violations = {};
  std::string undecided = {};  // Why the history could be neither proved nor refuted. Empty if it was.
  size_t checked = 0;          // Transactions.
  size_t left_out = 0;         // Transactions that write, whose place among the other writers is not known.
};

// Checks that the history is strictly serializable (tests/simulation/serializability.h). Gives up after `steps_max`
// steps.
//
// The order of a key's writers has to be known for that. Transactions tell their stamps, and plain puts have one once
// somebody has got their value with its stamp. Without a stamp a write has its place by time, if no other write of its
// key overlaps with it. Other writes, and transactions whose outcome nobody learned, are left out, and what was read
// from them, too. What is left is strictly serializable if all of it is, because the same order proves that.
TransactionVerdict CheckStrictlySerializable(const LoggedHistory& history, uint64_t steps_max);

// Checks what is promised with `async`, where a fault at a time of `lossy` may lose what was acknowledged then, or up
// to `slack_ns` before:
//  1. A value is not read before its put began.
//  2. What was acknowledged at another time, before a read began, is read, or something newer. That is checked of
//     writes whose stamp is known.
//  3. A transaction that has read something of another one has read all of it, or something newer.
TransactionVerdict CheckNotLost(const LoggedHistory& history, const std::vector<TimeSpan>& lossy, int64_t slack_ns);

}  // namespace cell
