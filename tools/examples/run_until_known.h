// RunUntilKnown runs a transaction until it has committed, also if the answer to a commit is lost.
//
// It uses Client::Begin, Transaction::Commit and Client::Outcome by hand, which shows how they work together, and
// counts aborts. Client::RunTransaction is shorter, and enough for a program that may do the same thing twice
// (secondary_index.cc). It asks for the outcome as well, but only until its timeout is over, and then the outcome stays
// unknown (IsMaybeApplied). A transfer of money must not be made twice. So this function has a timeout of its own for
// the question. Transaction::id names the transaction that it asks for.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "cell/client/transaction.h"

namespace cell {

// Runs `body` in a transaction and commits it, again and again while the transaction is aborted, for up to a minute.
// Returns how often it was aborted. `body` may run several times, and what it has read is only right once this has
// returned OK. Any other error of `body` or of the commit ends it, and is returned. IsMaybeApplied is returned only if
// the cluster has not told the outcome for most of a minute.
absl::StatusOr<uint64_t> RunUntilKnown(Client* client, const std::function<absl::Status(Transaction*)>& body);

}  // namespace cell
