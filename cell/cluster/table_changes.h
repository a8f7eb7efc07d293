// Applies several changes to a region table, so that a membership writes it once for all of them. Pure.
#pragma once

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cell/cluster/membership.h"

namespace cell {

// Applies changes in order, and returns the result of each. One that returns an error leaves the table as it was.
inline std::vector<absl::Status> ApplyChanges(absl::Span<const Membership::TableChange* const> changes,
                                              RegionTable* table) {
  std::vector<absl::Status> statuses;
  for (const Membership::TableChange* const change : changes) {
    RegionTable changed = *table;
    statuses.push_back((*change)(&changed));
    if (statuses.back().ok()) *table = std::move(changed);
  }
  return statuses;
}

}  // namespace cell
