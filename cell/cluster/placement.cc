#include "cell/cluster/placement.h"

#include <algorithm>

namespace cell {

std::vector<WorkerId> MigrationTargets(const ClusterState& state, const WorkerId& source, Random* random) {
  std::vector<WorkerId> targets;
  for (const ClusterState::Server& server : state.servers) {
    if (state.table.draining.contains(server.name)) continue;
    for (uint32_t i = 0; i < server.workers.size(); ++i) {
      WorkerId worker{server.name, i};
      if (worker == source || server.workers[i].address.empty()) continue;
      if (state.table.CountOf(worker) >= server.workers[i].regions_max) continue;
      targets.push_back(std::move(worker));
    }
  }
  for (size_t i = targets.size(); i > 1; --i) std::swap(targets[i - 1], targets[random->Below(i)]);
  return targets;
}

std::vector<WorkerId> RoomiestTargets(const ClusterState& state, const WorkerId& source, Random* random) {
  std::vector<WorkerId> targets = MigrationTargets(state, source, random);
  // Keep the order of equals random. Otherwise all sources would choose from the same two.
  std::stable_sort(targets.begin(), targets.end(), [&state](const WorkerId& a, const WorkerId& b) {
    return state.table.CountOf(a) < state.table.CountOf(b);
  });
  return targets;
}

std::optional<WorkerId> ChooseTarget(const ClusterState& state, const WorkerId& source, Random* random) {
  std::vector<WorkerId> targets = RoomiestTargets(state, source, random);
  if (targets.empty()) return std::nullopt;
  return targets[random->Below(std::min<size_t>(2, targets.size()))];
}

std::vector<uint32_t> ShareOut(const ClusterState& state, const std::vector<uint32_t>& orphans,
                               std::vector<WorkerId> alive, const WorkerId& self) {
  std::sort(alive.begin(), alive.end());
  std::vector<size_t> counts;
  counts.reserve(alive.size());
  for (const WorkerId& worker : alive) counts.push_back(state.table.CountOf(worker));
  std::vector<uint32_t> own;
  // A region is better on a draining server than on none.
  const bool all_drained = std::all_of(alive.begin(), alive.end(), [&state](const WorkerId& worker) {
    return state.table.draining.contains(worker.server);
  });
  for (const uint32_t region : orphans) {
    std::optional<size_t> best;
    for (size_t i = 0; i < alive.size(); ++i) {
      if (!all_drained && state.table.draining.contains(alive[i].server)) continue;
      // Skip workers that the membership has lost meanwhile, which may include `self`.
      const ClusterState::Worker* const worker = state.FindWorker(alive[i]);
      if (worker == nullptr || counts[i] >= worker->regions_max) continue;
      if (!best.has_value() || counts[i] < counts[*best]) best = i;
    }
    if (!best.has_value()) break;
    ++counts[*best];
    if (alive[*best] == self) own.push_back(region);
  }
  return own;
}

std::optional<size_t> BestTransfer(uint64_t own, uint64_t other, absl::Span<const uint64_t> weights) {
  if (own <= other) return std::nullopt;
  const uint64_t apart = own - other;
  const auto apart_without = [apart](uint64_t weight) {
    return 2 * weight > apart ? 2 * weight - apart : apart - 2 * weight;
  };
  const auto best = std::min_element(weights.begin(), weights.end(),
                                     [&](uint64_t a, uint64_t b) { return apart_without(a) < apart_without(b); });
  if (best == weights.end() || apart_without(*best) + own / 16 >= apart) return std::nullopt;
  return static_cast<size_t>(best - weights.begin());
}

}  // namespace cell
