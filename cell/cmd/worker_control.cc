#include "cell/cmd/worker_control.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "cell/base/bytes.h"
#include "cell/base/task.h"
#include "cell/cluster/region_table.h"
#include "cell/server/region/region_state.h"
#include "cell/server/worker.h"

namespace cell {
namespace {

ControlledWorker::Region Describe(const HeldRegion& held, const RegionTable& table) {
  ControlledWorker::Region region;
  region.region = held.region();
  const RegionTable::Entry* entry = table.Find(held.region());
  region.epoch = entry != nullptr ? entry->epoch : 0;
  if (held.tree != nullptr) {
    region.tier = held.tree->tier();
    region.right = held.tree->range().right.region();
  }
  const auto hash_parts = table.TableOf(held.region());
  if (hash_parts != table.tables.end()) {
    region.table = hash_parts->first;
    const auto above = hash_parts->second.parts.upper_bound(held.hash != nullptr ? held.hash->range().first : 0);
    if (above != hash_parts->second.parts.end()) region.right = above->second;
  }
  region.keys = held.store->keys();
  region.fill = held.store->fill();
  region.busy = held.claimed();
  region.state = StateOf(held);
  return region;
}

// Runs the coroutine `work` on the worker's thread and hands its result to `answer`.
template <typename Work, typename Answer>
Task<bool> Finish(Worker* worker, Work work, Answer answer) {
  auto result = co_await work(worker);
  answer(std::move(result));
  co_return true;
}
template <typename Work, typename Answer>
void Run(Worker* worker, Work work, Answer answer) {
  worker->Post([work = std::move(work), answer = std::move(answer)](Worker* its) {
    its->scheduler()->Spawn(Finish(its, work, answer));
  });
}

Task<absl::StatusOr<size_t>> AllocateOn(Worker* worker, uint32_t count) {
  const absl::Status status = co_await worker->allocator()->PrepareMemory(count);
  if (!status.ok()) co_return status;
  co_return worker->regions()->free();
}

Task<absl::Status> SetEvictionOn(Worker* worker, std::string table, std::string prefix, std::string evict) {
  const std::optional<Eviction> eviction = ParseEviction(evict);
  if (!eviction.has_value() && evict != kNoRule) {
    co_return absl::InvalidArgumentError(
        fmt::format("{} is no rule: give none, ttl, lru-sampled or default", ForMessage(evict)));
  }
  co_return co_await worker->SetEviction(std::move(table), std::move(prefix), eviction);
}

GrantScope ScopeOf(const ControlledWorker::Scope& scope) {
  if (scope.everything) return {};
  if (!scope.table.empty()) return {GrantScope::Kind::kTable, scope.table};
  return {GrantScope::Kind::kPrefix, scope.prefix};
}

Task<absl::Status> ChangeGrantOn(Worker* worker, ControlledWorker::GrantChange change) {
  const std::optional<Rights> rights = Rights::Parse(change.rights);
  if (!rights.has_value()) {
    co_return absl::InvalidArgumentError(
        fmt::format("{} are no rights: give a list of read, scan, write, admin", ForMessage(change.rights)));
  }
  // Whether a revoke was made once. It is made again if the answer was lost, and then there is nothing left to take.
  const auto taken = std::make_shared<bool>(false);
  Membership::TableChange apply = [change, rights = *rights, taken](RegionTable* its) {
    absl::Status status = its->ChangeGrant(change.user, ScopeOf(change.scope), rights, !change.revoke);
    if (change.revoke && *taken && absl::IsNotFound(status)) return absl::OkStatus();
    if (status.ok()) *taken = true;
    return status;
  };
  co_return co_await worker->ChangeTable(std::move(apply));
}

Task<absl::Status> EnforceGrantsOn(Worker* worker, bool enforce) {
  Membership::TableChange apply = [enforce](RegionTable* its) {
    its->grants.Enforce(enforce);
    return absl::OkStatus();
  };
  co_return co_await worker->ChangeTable(std::move(apply));
}

Task<absl::StatusOr<uint64_t>> RebalanceOn(Worker* worker) {
  uint64_t moved = 0;
  const absl::Status status = co_await worker->rebalancer()->Rebalance(&moved);
  if (!status.ok()) co_return status;
  co_return moved;
}

Task<absl::StatusOr<ControlledWorker::Checkpoints>> CheckpointOn(Worker* worker) {
  Checkpointer::Made made;
  const absl::Status status = co_await worker->checkpointer()->CheckpointAll(&made);
  if (!status.ok()) co_return status;
  co_return ControlledWorker::Checkpoints{made.regions, made.bytes};
}

}  // namespace

void WorkerControl::Status(Answer<std::string> answer) {
  worker_->Post([answer = std::move(answer)](Worker* its) {
    answer(its->service()->reports().StatusJson(/*first=*/0, SIZE_MAX));
  });
}

void WorkerControl::Regions(Answer<Holding> answer) {
  worker_->Post([answer = std::move(answer)](Worker* its) {
    const RegionTable& table = its->membership()->state().table;
    Holding holding;
    for (const HeldRegion* held : its->regions()->all()) holding.regions.push_back(Describe(*held, table));
    const size_t max = its->regions()->regions_max();
    holding.room = max - std::min(its->regions()->size(), max);
    answer(std::move(holding));
  });
}

void WorkerControl::Holds(uint32_t region, Answer<bool> answer) {
  worker_->Post([region, answer = std::move(answer)](Worker* its) { answer(its->regions()->Find(region) != nullptr); });
}

void WorkerControl::RegionOwners(Answer<Owners> answer) {
  worker_->Post([answer = std::move(answer)](Worker* its) {
    const RegionTable& table = its->membership()->state().table;
    Owners owners;
    for (const auto& [region, entry] : table.regions) {
      owners.owners.push_back({region, entry.owner.server, entry.owner.worker, entry.epoch, entry.recovering,
                               entry.split_parent.has_value()});
    }
    owners.table_version = table.version;
    answer(std::move(owners));
  });
}

void WorkerControl::DrainProgress(Answer<DrainState> answer) {
  worker_->Post([answer = std::move(answer)](Worker* its) {
    answer({its->regions()->size(), its->rebalancer()->draining(), its->rebalancer()->DrainStuck()});
  });
}

void WorkerControl::Allocate(uint32_t count, Answer<absl::StatusOr<size_t>> answer) {
  Run(
      worker_, [count](Worker* its) { return AllocateOn(its, count); }, std::move(answer));
}

void WorkerControl::Split(uint32_t region, Answer<absl::Status> answer) {
  Run(
      worker_, [region](Worker* its) { return its->splitter()->Split(region); }, std::move(answer));
}

void WorkerControl::Join(uint32_t region, Answer<absl::Status> answer) {
  Run(
      worker_, [region](Worker* its) { return its->joiner()->Join(region); }, std::move(answer));
}

void WorkerControl::Move(uint32_t region, std::string server, uint32_t worker, Answer<absl::Status> answer) {
  WorkerId to{std::move(server), worker};
  Run(
      worker_, [region, to](Worker* its) { return its->migrator()->Migrate(region, to); }, std::move(answer));
}

void WorkerControl::SetDraining(bool draining, Answer<absl::Status> answer) {
  Run(
      worker_, [draining](Worker* its) { return its->rebalancer()->SetDraining(draining); }, std::move(answer));
}

void WorkerControl::Rebalance(Answer<absl::StatusOr<uint64_t>> answer) { Run(worker_, RebalanceOn, std::move(answer)); }

void WorkerControl::Checkpoint(Answer<absl::StatusOr<Checkpoints>> answer) {
  Run(worker_, CheckpointOn, std::move(answer));
}

void WorkerControl::CreateTable(std::string table, uint32_t bucket_bytes, uint32_t parts, Answer<absl::Status> answer) {
  Run(
      worker_,
      [table = std::move(table), bucket_bytes, parts](Worker* its) {
        return its->tables()->Create(table, bucket_bytes, parts);
      },
      std::move(answer));
}

void WorkerControl::DropTable(std::string table, Answer<absl::Status> answer) {
  Run(
      worker_, [table = std::move(table)](Worker* its) { return its->tables()->Drop(table); }, std::move(answer));
}

void WorkerControl::Administers(std::string client, Scope scope, Answer<bool> answer) {
  worker_->Post([client = std::move(client), scope = std::move(scope), answer = std::move(answer)](Worker* its) {
    const UserRights rights(its->membership()->state().table.grants, client);
    answer(rights.OfScope(Right::kAdmin, ScopeOf(scope)));
  });
}

void WorkerControl::ChangeGrant(GrantChange change, Answer<absl::Status> answer) {
  Run(
      worker_, [change = std::move(change)](Worker* its) { return ChangeGrantOn(its, change); }, std::move(answer));
}

void WorkerControl::EnforceGrants(bool enforce, Answer<absl::Status> answer) {
  Run(
      worker_, [enforce](Worker* its) { return EnforceGrantsOn(its, enforce); }, std::move(answer));
}

void WorkerControl::SetEviction(std::string table, std::string prefix, std::string evict, Answer<absl::Status> answer) {
  const auto set = [table = std::move(table), prefix = std::move(prefix), evict = std::move(evict)](Worker* its) {
    return SetEvictionOn(its, table, prefix, evict);
  };
  Run(worker_, set, std::move(answer));
}

}  // namespace cell
