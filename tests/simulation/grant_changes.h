// GrantChanges changes what users may do while they run, as operators do through the control plane of some server.
#pragma once

#include <cstdint>
#include <string>

#include "cell/base/random.h"
#include "tests/simulation/world.h"

namespace cell {

class GrantChanges {
 public:
  // `world` must outlive this.
  explicit GrantChanges(World* world) : world_(world) {}

  // Gives the grants of the plan's begin, and enforces them. Returns when that is done.
  void Enforce();
  // Gives a user these rights to each pair: to the tree by a prefix, and to the table. Returns when that is done.
  void GiveAll(const std::string& user, Rights rights);
  // Gives a user rights, or lets all users do everything, until `until_ns`. Asks server `i`.
  void Give(size_t i, Random* random, int64_t until_ns);
  // Takes rights from a user until `until_ns`. Returns false if nobody has any.
  bool Take(size_t i, Random* random, int64_t until_ns);

 private:
  void ChangeThrough(size_t i, const Membership::TableChange& change);
  // Does that at `at_ns`, through any server that is alive then.
  void Later(int64_t at_ns, Membership::TableChange change);

  World* const world_;
};

}  // namespace cell
