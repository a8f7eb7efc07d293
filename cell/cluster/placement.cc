#include "cell/cluster/placement.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace cell {
namespace {

// How many regions each worker owns, counted in one pass: a cluster may have 1,000 servers and 100,000 regions.
class RegionCounts {
 public:
  // `table` must outlive this, unchanged.
  explicit RegionCounts(const RegionTable& table) {
    for (const auto& [region, entry] : table.regions) ++counts_[{entry.owner.server, entry.owner.worker}];
  }
  size_t Of(const WorkerId& worker) const {
    const auto it = counts_.find({worker.server, worker.worker});
    return it == counts_.end() ? 0 : it->second;
  }

 private:
  absl::flat_hash_map<std::pair<std::string_view, uint32_t>, size_t> counts_;
};

// Returns the workers other than `source` with room, in random order.
std::vector<WorkerRoom> Targets(const ClusterState& state, const WorkerId& source, Random* random) {
  std::vector<WorkerRoom> targets = RoomOfWorkers(state);
  std::erase_if(targets, [&source](const WorkerRoom& one) { return one.worker == source || one.room == 0; });
  for (size_t i = targets.size(); i > 1; --i) std::swap(targets[i - 1], targets[random->Below(i)]);
  return targets;
}

std::vector<WorkerId> WorkersOf(std::vector<WorkerRoom> rooms) {
  std::vector<WorkerId> workers;
  workers.reserve(rooms.size());
  for (WorkerRoom& one : rooms) workers.push_back(std::move(one.worker));
  return workers;
}

}  // namespace

std::vector<WorkerRoom> RoomOfWorkers(const ClusterState& state) {
  const RegionCounts counts(state.table);
  std::vector<WorkerRoom> rooms;
  for (const ClusterState::Server& server : state.servers) {
    if (state.table.draining.contains(server.name)) continue;
    for (uint32_t i = 0; i < server.workers.size(); ++i) {
      const ClusterState::Worker& worker = server.workers[i];
      if (worker.address.empty()) continue;
      WorkerId id{server.name, i};
      const size_t regions = counts.Of(id);
      rooms.push_back({std::move(id), regions, worker.regions_max - std::min<size_t>(worker.regions_max, regions)});
    }
  }
  return rooms;
}

std::vector<WorkerId> MigrationTargets(const ClusterState& state, const WorkerId& source, Random* random) {
  return WorkersOf(Targets(state, source, random));
}

std::vector<WorkerId> RoomiestTargets(const ClusterState& state, const WorkerId& source, Random* random) {
  std::vector<WorkerRoom> targets = Targets(state, source, random);
  // Keep the order of equals random. Otherwise all sources would choose from the same two.
  std::stable_sort(targets.begin(), targets.end(),
                   [](const WorkerRoom& a, const WorkerRoom& b) { return a.regions < b.regions; });
  return WorkersOf(std::move(targets));
}

std::optional<WorkerId> ChooseTarget(const ClusterState& state, const WorkerId& source, Random* random) {
  std::vector<WorkerId> targets = RoomiestTargets(state, source, random);
  if (targets.empty()) return std::nullopt;
  return targets[random->Below(std::min<size_t>(2, targets.size()))];
}

std::vector<uint32_t> ShareOut(const ClusterState& state, const std::vector<uint32_t>& orphans,
                               std::vector<WorkerId> alive, const WorkerId& self) {
  std::sort(alive.begin(), alive.end());
  // A region is better on a draining server than on none.
  const bool all_drained = std::all_of(alive.begin(), alive.end(), [&state](const WorkerId& worker) {
    return state.table.draining.contains(worker.server);
  });
  const RegionCounts counts(state.table);
  std::vector<WorkerRoom> takers;  // In the order of their ids.
  for (const WorkerId& id : alive) {
    if (!all_drained && state.table.draining.contains(id.server)) continue;
    // Skip workers that the membership has lost meanwhile, which may include `self`.
    const ClusterState::Worker* const worker = state.FindWorker(id);
    const size_t regions = counts.Of(id);
    if (worker != nullptr && regions < worker->regions_max)
      takers.push_back({id, regions, worker->regions_max - regions});
  }
  std::vector<uint32_t> own;
  for (const uint32_t region : orphans) {
    const auto best = std::min_element(takers.begin(), takers.end(), [](const WorkerRoom& a, const WorkerRoom& b) {
      return a.room > 0 && (b.room == 0 || a.regions < b.regions);
    });
    if (best == takers.end() || best->room == 0) break;
    ++best->regions;
    --best->room;
    if (best->worker == self) own.push_back(region);
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
