// Readers says which peers may read the memory of an endpoint's regions one-sided.
//
// The memory of a region has whatever pairs the region has, and later those of another region. So it is for all of it
// or for nothing.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "cell/layout/identity.h"

namespace cell {

struct Readers {
  bool everybody = true;
  std::set<std::string, std::less<>> clients = {};  // Names. Unused if `everybody`.

  // Operators and servers may always read.
  bool Has(const Identity& peer) const {
    return everybody || peer.role != Role::kClient || clients.contains(peer.name);
  }
};

}  // namespace cell
