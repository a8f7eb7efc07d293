// GrantHistory records the grants of a simulated cluster, and says whether a user was allowed something in a period.
//
// A change of grants counts on a server from the end of the turn in which the server sees it. So at any moment a
// request may be served by the grants that the least informed live server goes by, by the newest, and by all between.
// Whatever was allowed by all of these since a request began must be served, and what was allowed by none must not.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim_cluster.h"

namespace cell {

class GrantHistory {
 public:
  enum class Verdict { kAlways, kSometimes, kNever };
  using Test = std::function<bool(const UserRights&)>;

  // The cluster must outlive it.
  explicit GrantHistory(SimCluster* cluster);
  ~GrantHistory();
  GrantHistory(const GrantHistory&) = delete;
  GrantHistory& operator=(const GrantHistory&) = delete;

  // Returns the version of the oldest grants that a live server may go by.
  uint64_t oldest() const;
  // Returns whether a user passes the test by all grants from version `since` on, by some, or by none.
  Verdict Of(const std::string& user, uint64_t since, const Test& test) const;
  // Returns whether this server may let the peer read its memory now.
  bool MayRead(const Identity& peer, const SimFabric& server) const;

 private:
  void Add(const Grants& grants);
  const UserRights& RightsOf(const std::string& user, size_t at) const;

  SimCluster* const cluster_;
  std::vector<Grants> grants_;                                           // In the order of their versions.
  mutable std::map<std::pair<std::string, size_t>, UserRights> rights_;  // By user and position in `grants_`.
};

}  // namespace cell
