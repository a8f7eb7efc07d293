#include "cell/region/expiry_sweep.h"

#include <algorithm>
#include <utility>

#include "cell/base/status_macros.h"

namespace cell {

ExpirySweep::ExpirySweep(PairStore* store) : next_(store->FirstPlace()) {
  store->first_expiry_ = UINT64_MAX;  // Pairs that are put from now on lower it again.
}

absl::StatusOr<std::vector<std::string>> ExpirySweep::Next(PairStore* store) {
  ASSIGN_OR_RETURN(PairStore::Expiries found, store->ExpiriesAt(*next_));
  first_left_ = std::min(first_left_, found.first_left);
  next_ = std::move(found.next);
  if (ended()) store->first_expiry_ = std::min(store->first_expiry_, first_left_);
  return std::move(found.expired);
}

}  // namespace cell
