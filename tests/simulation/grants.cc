// Checks what plain users are refused, and what they are not refused, against the grants that servers went by.
#include <optional>
#include <string>
#include <vector>

#include "cell/base/random.h"
#include "cell/cluster/eviction_rules.h"
#include "tests/simulation/users.h"

namespace cell {

Users::Verdict Users::Granted(const User& user, uint64_t since, const GrantHistory::Test& test) const {
  if (!user.plain()) return Verdict::kAlways;
  return world_->grants.Of(SimulationPlan::NameOf(user.plan->user), since, test);
}

void Users::CheckGranted(const User& user, const std::string& what, Verdict verdict, uint64_t since, Path path,
                         const absl::Status& status) {
  if (!user.plain()) return;
  if (status.ok()) {
    if (verdict != Verdict::kNever) return;
    world_->journal.Violate("client {} was never granted {}, and it was done", user.index, what);
    return;
  }
  if (!absl::IsPermissionDenied(status)) return;
  ++world_->report.denied;
  // Who insists on reads needs the right to them, too.
  const auto of_memory = [](const UserRights& rights) { return rights.OfMemory(); };
  if (path == Path::kClient && Granted(user, since, of_memory) != Verdict::kAlways) return;
  if (verdict == Verdict::kAlways) {
    world_->journal.Violate("client {} was granted {} all the time, but: {}", user.index, what, status.ToString());
  }
}

std::optional<Users::GrantedKeys> Users::ChooseGranted(const User& user, Random* random) const {
  if (!user.plain() || random->Below(2) == 0) return std::nullopt;
  const Grants::ByUser& by_user = world_->cluster.table().grants.by_user();
  const auto its = by_user.find(SimulationPlan::NameOf(user.plan->user));
  if (its == by_user.end()) return std::nullopt;
  std::vector<std::string> prefixes;
  for (const auto& [scope, rights] : its->second) {
    if (scope.kind == GrantScope::Kind::kPrefix) prefixes.push_back(scope.name);
  }
  if (prefixes.empty()) return std::nullopt;
  const std::string& prefix = prefixes[random->Below(prefixes.size())];
  GrantedKeys keys{world_->table_keys, 0, prefix, *EndOfPrefix(prefix)};
  while (keys.first < world_->history.keys() && KeyName(keys.first) < keys.from) ++keys.first;
  keys.end = keys.first;
  while (keys.end < world_->history.keys() && KeyName(keys.end) < keys.to) ++keys.end;
  if (keys.end == keys.first) return std::nullopt;
  return keys;
}

}  // namespace cell
