// Placement chooses which worker should hold a region. Pure.
//
// The thesis (Fig. 4.3) asks servers at random until one has room. Here the region table shows which workers have the
// most room, and one of the best two is chosen at random, so that sources that decide at the same time do not all
// choose the same target (Mitzenmacher, "The power of two choices", 2001). Balancing uses weights, which the workers
// must be asked for: two at random, for the same reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "cell/base/random.h"
#include "cell/cluster/membership.h"

namespace cell {

// A worker that may get regions.
struct WorkerRoom {
  WorkerId worker;
  size_t regions = 0;  // Number of regions that it owns.
  size_t room = 0;     // Number of regions that it can take.
};
// Returns all workers that are there, but for those of draining servers. Takes one pass over the region table.
std::vector<WorkerRoom> RoomOfWorkers(const ClusterState& state);

// Returns the workers other than `source` with room for one more region, in random order.
std::vector<WorkerId> MigrationTargets(const ClusterState& state, const WorkerId& source, Random* random);

// Returns the same, those that hold the fewest regions first. Equals are in random order.
std::vector<WorkerId> RoomiestTargets(const ClusterState& state, const WorkerId& source, Random* random);

// Returns one of the first two of these.
std::optional<WorkerId> ChooseTarget(const ClusterState& state, const WorkerId& source, Random* random);

// Chooses which of the regions with these weights, which are part of `own`, a source should migrate to a target
// that holds `other`, so that the two become as equal as possible. Returns nullopt if that gains less than a sixteenth
// of `own`, because a migration has a cost, too.
std::optional<size_t> BestTransfer(uint64_t own, uint64_t other, absl::Span<const uint64_t> weights);

// Returns the share of `self` of the regions whose owners are gone. The shares make the workers' counts as equal as
// possible. All workers that see the same state compute the same shares. `alive` includes `self`, in any order.
std::vector<uint32_t> ShareOut(const ClusterState& state, const std::vector<uint32_t>& orphans,
                               std::vector<WorkerId> alive, const WorkerId& self);

}  // namespace cell
