// Placement: which worker should hold a region. Pure.
//
// The thesis (Fig. 4.3) asks servers at random until one has room. Here the region table tells who has most room, and
// one of the best two is taken at random, so that sources who decide at the same time do not all choose the same
// (Mitzenmacher, "The power of two choices", 2001). Balance goes by weight, which the workers must be asked for: two at
// random, for the same reason.
#pragma once

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "cell/base/random.h"
#include "cell/cluster/membership.h"

namespace cell {

// The workers other than `source` with room for one more region, in random order.
std::vector<WorkerId> MigrationTargets(const ClusterState& state, const WorkerId& source, Random* random);

// One of the two among them that hold fewest regions.
std::optional<WorkerId> ChooseTarget(const ClusterState& state, const WorkerId& source, Random* random);

// Which of the regions of these weights, part of `own`, to give to a worker that holds `other`, so that the two come
// closest. Nothing when that gains less than a sixteenth of `own`: moving costs, too.
std::optional<size_t> BestTransfer(uint64_t own, uint64_t other, absl::Span<const uint64_t> weights);

// Which of the regions whose owners are gone `self` is to take: each worker that is there gets as many as makes their
// counts most equal. All who see the same state see the same shares. `alive`: with `self`, in any order.
std::vector<uint32_t> ShareOut(const ClusterState& state, const std::vector<uint32_t>& orphans,
                               std::vector<WorkerId> alive, const WorkerId& self);

}  // namespace cell
