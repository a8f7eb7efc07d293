// Rebuild builds a hash region again from its pairs. Pure.
#pragma once

#include <functional>

#include "pilaf/hash_table.h"

namespace cell {

// Puts all pairs into a table. Buckets are bins and pairs have sizes, so whether all pairs fit may depend on their
// order. If one does not fit, everything starts over in another order. `empty` returns the empty table each time.
// `pairs` enumerates all pairs, in the same order each time, and stops at an error. `then` returns ResourceExhausted if
// the table with all pairs lacks room for what is to come. Returns ResourceExhausted if that all fits in none of the
// orders that were tried.
using PutPair = std::function<absl::Status(const HashPair& pair)>;
absl::Status Rebuild(const std::function<absl::StatusOr<HashTable*>()>& empty,
                     const std::function<absl::Status(const PutPair&)>& pairs,
                     const std::function<absl::Status()>& then = absl::OkStatus);

}  // namespace cell
