// Ending checks what must hold when the faults are over: everything ends, every region is served, each key reads as its
// history says, and the trees and tables are right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulation/users.h"
#include "tests/simulation/world.h"

namespace cell {

class Ending {
 public:
  // All arguments must outlive it.
  Ending(World* world, Users* users, TransactionHistory* transactions)
      : world_(world), users_(users), transactions_(transactions) {}

  // Returns whether every live server is a member and every region is served. Checks only from time to time.
  bool Settled();
  // Lets time pass until every operation has ended and every region is served. If that takes too long, reports a
  // violation and returns false.
  bool Settle();
  // Reads every key by each path, with a client without any state. With grants, does so as a user as well. Checks what
  // the transactions have seen.
  void ReadAll();
  // Checks trees, tables and routes.
  void CheckCluster();
  void CheckHistories();
  // Deletes all keys of the tree, and checks that its regions join each other until one is left.
  void Empty();

 private:
  void ReadAllBy(Client* client, const std::vector<Path>& paths);
  // Lists regions that nobody serves.
  std::string Unserved();

  World* const world_;
  Users* const users_;
  TransactionHistory* const transactions_;
  int64_t look_ns_ = 0;
};

}  // namespace cell
