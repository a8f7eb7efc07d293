#include "cell/cluster/placement.h"

#include <algorithm>
#include <vector>

namespace cell {

std::optional<WorkerId> ChooseTaker(const ClusterState& state, const WorkerId& giver, bool to_balance, Random* random) {
  struct Candidate {
    WorkerId worker;
    size_t count;
  };
  std::vector<Candidate> candidates;
  const size_t own = state.table.CountOf(giver);
  for (const ClusterState::Server& server : state.servers) {
    if (state.table.draining.contains(server.name)) continue;
    for (uint32_t i = 0; i < server.workers.size(); ++i) {
      WorkerId worker{server.name, i};
      const size_t count = state.table.CountOf(worker);
      if (worker == giver || count >= server.workers[i].regions_max) continue;
      if (to_balance && count + 1 >= own) continue;
      candidates.push_back({std::move(worker), count});
    }
  }
  if (candidates.empty()) return std::nullopt;
  // Among equals any: else all givers would see the same two.
  for (size_t i = candidates.size() - 1; i > 0; --i) std::swap(candidates[i], candidates[random->Below(i + 1)]);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.count < b.count; });
  return candidates[random->Below(std::min<size_t>(2, candidates.size()))].worker;
}

}  // namespace cell
