#include "cell/cluster/membership.h"

#include "fmt/format.h"

namespace cell {

std::optional<Durability> ParseDurability(const std::string& text) {
  for (const Durability durability : {Durability::kNone, Durability::kAsync, Durability::kSync}) {
    if (text == ToString(durability)) return durability;
  }
  return std::nullopt;
}

bool ClusterState::TakeNewer(const ClusterState& other) {
  const bool as_new_servers = other.servers_version >= servers_version;
  const bool as_new_table = other.table.version >= table.version || Mutated(Mutant::kOlderTableTaken);
  if (as_new_servers) servers = other.servers, servers_version = other.servers_version;
  if (as_new_table) table = other.table;
  if (as_new_servers || as_new_table) ++revision;
  return as_new_servers || as_new_table;
}

const ClusterState::Server* ClusterState::FindServer(const std::string& name) const {
  for (const Server& server : servers) {
    if (server.name == name) return &server;
  }
  return nullptr;
}

const ClusterState::Worker* ClusterState::FindWorker(const WorkerId& id) const {
  const Server* server = FindServer(id.server);
  if (server == nullptr || id.worker >= server->workers.size() || server->workers[id.worker].address.empty()) {
    return nullptr;
  }
  return &server->workers[id.worker];
}

absl::StatusOr<WorkerId> ClusterState::OwnerOf(uint32_t region) const {
  const RegionTable::Entry* entry = table.Find(region);
  if (entry == nullptr) return absl::NotFoundError(fmt::format("the cluster has no region {}", region));
  if (FindWorker(entry->owner) == nullptr) {
    return absl::UnavailableError(
        fmt::format("region {} is held by {}, which is not in the cluster", region, entry->owner.server));
  }
  return entry->owner;
}

}  // namespace cell
