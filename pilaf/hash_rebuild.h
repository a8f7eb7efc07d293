// Rebuild: a hash region made anew from its pairs. Pure.
#pragma once

#include <functional>
#include <string_view>

#include "pilaf/hash_table.h"

namespace cell {

// Puts all pairs into a table. Buckets are bins and pairs have sizes, so that whether all fit may depend on the order
// in which they come: when one does not, all begins anew in another order. `empty` gives the table, with nothing in it,
// each time; `pairs` tells all pairs, in the same order each time, and stops at an error. ResourceExhausted: they do
// not fit in any order that was tried.
using PutPair = std::function<absl::Status(std::string_view key, std::string_view value)>;
absl::Status Rebuild(const std::function<absl::StatusOr<HashTable*>()>& empty,
                     const std::function<absl::Status(const PutPair&)>& pairs);

}  // namespace cell
