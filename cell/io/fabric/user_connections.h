// UserConnections counts the connections of each client's identity, so that one user cannot take all that a server has.
// Operators and servers are not counted. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "cell/layout/identity.h"

namespace cell {

class UserConnections {
 public:
  // `all_max`: how many connections the server takes. Half of them are for one user, or all if they are few.
  explicit UserConnections(size_t all_max) : max_(std::max(all_max / 2, std::min<size_t>(all_max, 8))) {}

  // Counts a connection. Returns false, and does not, if the user has as many as one may have.
  [[nodiscard]] bool Add(const Identity& user) {
    if (user.role != Role::kClient) return true;
    size_t& count = by_name_[user.name];
    if (count >= max_) return false;
    ++count;
    return true;
  }
  // REQUIRES: Add has counted it.
  void Remove(const Identity& user) {
    if (user.role != Role::kClient) return;
    const auto it = by_name_.find(user.name);
    if (--it->second == 0) by_name_.erase(it);
  }
  size_t max() const { return max_; }

 private:
  const size_t max_;
  std::map<std::string, size_t> by_name_;
};

}  // namespace cell
