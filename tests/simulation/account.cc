#include "tests/simulation/account.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace cell {
namespace {

// Within this time messages have arrived, logged records are on disk, requested checkpoints are made, and the collector
// has checked twice for logs whose removal failed.
constexpr int64_t kQuietNs = 50'000'000;

// Returns what server `i` has and should not have.
std::vector<std::string> LeftAt(World* world, size_t i) {
  std::vector<std::string> left;
  SimCluster& cluster = world->cluster;
  Worker* const worker = cluster.worker(i);
  const auto none = [&](const char* what, uint64_t count) {
    if (count > 0) left.push_back(fmt::format("server {} has {} {}", i, count, what));
  };
  const SimFabric& fabric = *cluster.server(i);
  const size_t others = cluster.servers() - 1;
  none("connections more than there are other servers", fabric.peers() - std::min(fabric.peers(), others));
  none("operations in flight", fabric.in_flight());
  none("calls that are not served", fabric.queued());
  none("regions on their way", worker->regions()->size() - worker->regions()->all().size());
  none("bytes of uploads", worker->service()->uploads().bytes());
  none("checks that wait", worker->service()->checks().size());
  none("long requests that wait", worker->service()->long_requests().size());
  uint64_t held = 0, pending = 0, logs = 0, transactions = 0, snapshots = 0;
  for (const HeldRegion* region : worker->regions()->all()) {
    held += worker->service()->writes()->held().size(region->region());
    pending += region->pending.size();
    logs += region->log != nullptr;
    if (region->log != nullptr && region->log->dirty()) {
      none("records that are not on disk", region->log->appended() - region->log->durable());
    }
    if (region->lost()) continue;  // Somebody still has a claim on it. Its next owner ends its transactions.
    for (const auto& [owner, one] : region->transactions.all()) {
      left.push_back(fmt::format("transaction {}.{} is {} in region {} of server {}, with the primary {}", one->id.slot,
                                 one->id.number, one->committed ? "committed" : "prepared", region->region(), i,
                                 one->primary));
    }
    snapshots += region->snapshots.size();
    transactions += region->transactions.size() + region->outcomes.open() + !region->transactions.locks.empty();
  }
  none("writes that wait for their region", held);
  none("writes that wait for their log", pending);
  none("snapshots", snapshots);
  none("bytes of snapshots", worker->regions()->snapshots()->bytes());
  none("transactions that have not ended, or keys that they hold", transactions);
  if (world->plan.durability == Durability::kNone || world->plan.objects) return left;
  const auto open = static_cast<uint64_t>(cluster.files(i)->open_files());
  if (open != logs) left.push_back(fmt::format("server {} has {} files open, and {} logs", i, open, logs));
  return left;
}

// Returns the files on the disk that do not belong to an existing region.
std::vector<std::string> FilesLeft(World* world) {
  std::vector<std::string> left;
  if (!world->plan.files_account || world->plan.durability == Durability::kNone) return left;
  for (const std::string& path : world->cluster.disk()->paths()) {
    uint32_t region = 0;
    if (std::sscanf(path.c_str(), "log/region-%u/", &region) != 1) continue;
    if (world->cluster.table().Find(region) == nullptr) {
      left.push_back(fmt::format("there is {}, and no such region", path));
    } else if (path.ends_with(".unfinished")) {
      left.push_back(fmt::format("there is {}, which nobody writes", path));
    }
  }
  return left;
}

// Returns the logs in the pool that do not belong to an existing region.
std::vector<std::string> ObjectsLeft(World* world) {
  std::vector<std::string> left;
  if (!world->plan.files_account || world->cluster.pool() == nullptr) return left;
  for (const std::string& name : world->cluster.pool()->names()) {
    uint32_t region = 0;
    if (std::sscanf(name.c_str(), "region-%u", &region) != 1 || name != fmt::format("region-{}", region)) continue;
    if (world->cluster.table().Find(region) == nullptr)
      left.push_back(fmt::format("there is {}, and no such region", name));
  }
  return left;
}

std::vector<std::string> Left(World* world) {
  std::vector<std::string> left;
  for (size_t i = 0; i < world->cluster.servers(); ++i) {
    if (world->cluster.Dead(i)) continue;
    for (std::string& one : LeftAt(world, i)) left.push_back(std::move(one));
  }
  if (left.empty()) left = world->plan.objects ? ObjectsLeft(world) : FilesLeft(world);
  return left;
}

}  // namespace

void CheckAccount(World* world) {
  // Servers talk to each other all the time, so look for one moment at which nothing is left.
  world->RunUntil(world->now_ns() + kQuietNs, [world] { return Left(world).empty(); });
  for (const std::string& one : Left(world)) world->journal.Violate("at the end {}", one);
}

}  // namespace cell
