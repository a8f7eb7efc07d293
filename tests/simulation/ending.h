// Ending: what is to hold when the faults are over. Everything ends, every region is served, each key reads as its
// history says, and the trees and tables are right.
#pragma once

#include <cstdint>
#include <string>

#include "tests/simulation/users.h"
#include "tests/simulation/world.h"

namespace cell {

class Ending {
 public:
  // Both must outlive it.
  Ending(World* world, Users* users) : world_(world), users_(users) {}

  // Whether every server that lives is a member, and every region is served. Looks from time to time.
  bool Settled();
  // Lets time pass until every operation has ended and every region is served. False, and a violation: that takes
  // longer than it may.
  bool Settle();
  // Reads every key by each path, with a client that knows nothing yet.
  void ReadAll();
  // Checks trees, tables and routes.
  void CheckCluster();
  void CheckHistories();

 private:
  // Regions that nobody serves.
  std::string Unserved();

  World* const world_;
  Users* const users_;
  int64_t look_ns_ = 0;
};

}  // namespace cell
