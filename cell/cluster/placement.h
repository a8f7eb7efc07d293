// Placement: which worker should hold a region. Pure.
//
// The thesis (Fig. 4.3) asks servers at random until one has room. Here the region table tells who has most room, and
// one of the best two is taken at random, so that givers who decide at the same time do not all choose the same
// (Mitzenmacher, "The power of two choices", 2001).
#pragma once

#include <optional>

#include "cell/base/random.h"
#include "cell/cluster/membership.h"

namespace cell {

// A worker other than `giver` with room for one more region. With `to_balance`, only one that would then still hold
// fewer than `giver` does now.
std::optional<WorkerId> ChooseTaker(const ClusterState& state, const WorkerId& giver, bool to_balance, Random* random);

}  // namespace cell
