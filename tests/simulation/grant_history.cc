#include "tests/simulation/grant_history.h"

#include <algorithm>

#include "cell/base/check.h"

namespace cell {
namespace {

// Returns the rights of everybody while no grants are enforced.
UserRights AllRights() {
  Grants grants;
  CELL_CHECK(grants.Give(Grants::kEveryUser, {}, *Rights::Parse("admin")).ok());
  return {grants, Grants::kEveryUser};
}

}  // namespace

GrantHistory::GrantHistory(SimCluster* cluster) : cluster_(cluster) {
  Add(cluster_->table().grants);
  cluster_->shared()->on_table = [this](const RegionTable& table) { Add(table.grants); };
}

GrantHistory::~GrantHistory() { cluster_->shared()->on_table = nullptr; }

void GrantHistory::Add(const Grants& grants) {
  if (grants_.empty() || grants_.back().version() != grants.version()) grants_.push_back(grants);
}

uint64_t GrantHistory::oldest() const {
  uint64_t oldest = grants_.back().version();
  for (size_t i = 0; i < cluster_->servers(); ++i) {
    if (!cluster_->Dead(i)) oldest = std::min(oldest, cluster_->grants_followed(i));
  }
  return oldest;
}

const UserRights& GrantHistory::RightsOf(const std::string& user, size_t at) const {
  const auto it = rights_.find({user, at});
  if (it != rights_.end()) return it->second;
  UserRights rights = grants_[at].enforced() ? UserRights(grants_[at], user) : AllRights();
  return rights_.emplace(std::pair(user, at), std::move(rights)).first->second;
}

GrantHistory::Verdict GrantHistory::Of(const std::string& user, uint64_t since, const Test& test) const {
  size_t passed = 0, all = 0;
  for (size_t at = grants_.size(); at-- > 0 && grants_[at].version() >= since;) {
    ++all;
    passed += test(RightsOf(user, at));
  }
  return passed == all ? Verdict::kAlways : passed > 0 ? Verdict::kSometimes : Verdict::kNever;
}

bool GrantHistory::MayRead(const Identity& peer, const SimFabric& server) const {
  if (peer.role != Role::kClient) return true;
  for (size_t i = 0; i < cluster_->servers(); ++i) {
    if (cluster_->Dead(i) || cluster_->server(i) != &server) continue;
    const auto of_memory = [](const UserRights& rights) { return rights.OfMemory(); };
    return Of(peer.name, cluster_->grants_followed(i), of_memory) != Verdict::kNever;
  }
  return true;  // It is only starting, and has taken no turn yet.
}

}  // namespace cell
