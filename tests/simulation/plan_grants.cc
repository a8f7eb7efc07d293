// Draws the grants of a plan.
#include <string>
#include <vector>

#include "cell/base/random.h"
#include "fmt/format.h"
#include "tests/simulation/plan.h"

namespace cell {

std::string SimulationPlan::NameOf(int user) {
  return user == 0 ? std::string(Grants::kEveryUser) : fmt::format("u{}", user);
}

SimulationPlan::Grant SimulationPlan::AnyGrant(Random* random) const {
  Grant grant;
  grant.user = NameOf(random->Below(8) == 0 ? 0 : 1 + static_cast<int>(random->Below(static_cast<uint64_t>(users))));
  const uint64_t kind = random->Below(4);
  if (kind == 1 && table_share > 0) {
    grant.scope = {GrantScope::Kind::kTable, "t"};
  } else if (kind != 0) {  // A prefix of a thousand keys, a hundred, ten, or of a single one.
    const std::string key = fmt::format("k{:05}", random->Below(static_cast<uint64_t>(keys)));
    grant.scope = {GrantScope::Kind::kPrefix, key.substr(0, 3 + random->Below(4))};
  }
  for (const char* const right : {"read", "scan", "write"}) {
    if (random->Below(2) == 0) grant.rights.Add(*Rights::Parse(right));
  }
  if (grant.rights.empty()) grant.rights = *Rights::Parse("admin");
  return grant;
}

std::vector<SimulationPlan::Grant> SimulationPlan::FirstGrants() const {
  std::vector<Grant> grants;
  Random random(grants_seed);
  for (int user = 1; user <= users; ++user) {
    const uint64_t how = random.Below(4);
    if (how < 2) grants.push_back({NameOf(user), {}, *Rights::Parse(how == 0 ? "scan,write" : "read,write")});
    for (uint64_t more = random.Below(4); more > 0; --more) grants.push_back(AnyGrant(&random));
  }
  return grants;
}

}  // namespace cell
