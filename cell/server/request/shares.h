// Shares counts what each user, and each of its connections, holds of something that all share. It says whose place
// another one takes when there is no room: that of the user who holds most, and of that user's connections the one that
// holds most. So nobody gets more by opening connections. A user is an identity as text (cell/layout/identity.h). Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "cell/base/check.h"
#include "cell/io/fabric/fabric.h"

namespace cell {

class Shares {
 public:
  void Add(std::string_view user, ConnectionId peer, size_t amount) {
    const auto its = by_user_.try_emplace(std::string(user)).first;
    its->second.total += amount;
    its->second.by_peer[peer] += amount;
    user_of_[peer] = its;
    total_ += amount;
  }
  // REQUIRES: the peer holds as much.
  void Remove(ConnectionId peer, size_t amount) {
    const auto of = user_of_.find(peer);
    CELL_CHECK(of != user_of_.end());
    const auto user = of->second;
    const auto its = user->second.by_peer.find(peer);
    CELL_CHECK(its->second >= amount);
    its->second -= amount;
    user->second.total -= amount;
    total_ -= amount;
    if (its->second > 0) return;
    user->second.by_peer.erase(its);
    user_of_.erase(of);
    if (user->second.by_peer.empty()) by_user_.erase(user);
  }

  size_t of(ConnectionId peer) const {
    const auto of = user_of_.find(peer);
    return of == user_of_.end() ? 0 : of->second->second.by_peer.at(peer);
  }
  size_t of_user(std::string_view user) const {
    const auto its = by_user_.find(user);
    return its == by_user_.end() ? 0 : its->second.total;
  }
  size_t total() const { return total_; }

  // Returns the connection that is to make room for `amount` more of the user and its connection `peer`: one of a user
  // who holds more than this one would then, or else one of its own that holds more than `peer` would. Returns nullopt
  // if nobody holds that much.
  std::optional<ConnectionId> InTheWayOf(std::string_view user, ConnectionId peer, size_t amount) const {
    const auto most = std::max_element(by_user_.begin(), by_user_.end(),
                                       [](const auto& a, const auto& b) { return a.second.total < b.second.total; });
    if (most == by_user_.end()) return std::nullopt;
    if (most->first != user && most->second.total > of_user(user) + amount) return Heaviest(most->second)->first;
    const auto own = by_user_.find(user);
    if (own == by_user_.end()) return std::nullopt;
    const auto heaviest = Heaviest(own->second);
    return heaviest->second > of(peer) + amount ? std::optional(heaviest->first) : std::nullopt;
  }

 private:
  struct User {
    size_t total = 0;
    std::map<ConnectionId, size_t> by_peer;  // Not empty.
  };
  using ByUser = std::map<std::string, User, std::less<>>;

  static std::map<ConnectionId, size_t>::const_iterator Heaviest(const User& user) {
    return std::max_element(user.by_peer.begin(), user.by_peer.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; });
  }

  ByUser by_user_;
  std::map<ConnectionId, ByUser::iterator> user_of_;
  size_t total_ = 0;
};

}  // namespace cell
