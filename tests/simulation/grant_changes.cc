#include "tests/simulation/grant_changes.h"

#include <string>
#include <utility>
#include <vector>

namespace cell {
namespace {

Membership::TableChange ToEnforce(bool enforce) {
  return [enforce](RegionTable* table) {
    table->grants.Enforce(enforce);
    return absl::OkStatus();
  };
}

Membership::TableChange ToChange(const SimulationPlan::Grant& grant, bool give) {
  return [grant, give](RegionTable* table) { return table->ChangeGrant(grant.user, grant.scope, grant.rights, give); };
}

}  // namespace

void GrantChanges::Enforce() {
  for (const SimulationPlan::Grant& grant : world_->plan.FirstGrants()) {
    CELL_CHECK(world_->cluster.ChangeTable(ToChange(grant, /*give=*/true)).ok());
  }
  CELL_CHECK(world_->cluster.ChangeTable(ToEnforce(true)).ok());
}

void GrantChanges::GiveAll(const std::string& user, Rights rights) {
  for (const GrantScope& scope :
       {GrantScope{GrantScope::Kind::kPrefix, "k"}, GrantScope{GrantScope::Kind::kTable, "t"}}) {
    if (scope.kind == GrantScope::Kind::kTable && world_->table_keys == 0) continue;
    CELL_CHECK(world_->cluster.ChangeTable(ToChange({user, scope, rights}, /*give=*/true)).ok());
  }
  CELL_CHECK(world_->cluster.ChangeTable(ToEnforce(true)).ok());
}

void GrantChanges::ChangeThrough(size_t i, const Membership::TableChange& change) {
  const auto run = [](Worker* worker, Membership::TableChange made) -> Task<bool> {
    co_return (co_await worker->ChangeTable(std::move(made))).ok();
  };
  Worker* const worker = world_->cluster.worker(i);
  worker->scheduler()->Spawn(run(worker, change));
}

void GrantChanges::Later(int64_t at_ns, Membership::TableChange change) {
  world_->At(at_ns, [this, change = std::move(change)] {
    if (world_->healed) return;
    for (size_t i = 0; i < world_->cluster.servers(); ++i) {
      if (!world_->cluster.Dead(i)) return ChangeThrough(i, change);
    }
  });
}

void GrantChanges::Give(size_t i, Random* random, int64_t until_ns) {
  if (random->Below(10) == 0) {
    ChangeThrough(i, ToEnforce(false));
    return Later(until_ns, ToEnforce(true));
  }
  const SimulationPlan::Grant grant = world_->plan.AnyGrant(random);
  ChangeThrough(i, ToChange(grant, /*give=*/true));
  Later(until_ns, ToChange(grant, /*give=*/false));
}

bool GrantChanges::Take(size_t i, Random* random, int64_t until_ns) {
  std::vector<SimulationPlan::Grant> grants;
  for (const auto& [user, its] : world_->cluster.table().grants.by_user()) {
    for (const auto& [scope, rights] : its) grants.push_back({user, scope, rights});
  }
  if (grants.empty()) return false;
  const SimulationPlan::Grant& grant = grants[random->Below(grants.size())];
  ChangeThrough(i, ToChange(grant, /*give=*/false));
  Later(until_ns, ToChange(grant, /*give=*/true));
  return true;
}

}  // namespace cell
