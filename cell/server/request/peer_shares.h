// PeerShares counts what each peer holds of something that all peers share. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>

#include "cell/base/check.h"
#include "cell/io/fabric/fabric.h"

namespace cell {

class PeerShares {
 public:
  void Add(ConnectionId peer, size_t amount) {
    by_peer_[peer] += amount;
    total_ += amount;
  }
  // REQUIRES: the peer holds as much.
  void Remove(ConnectionId peer, size_t amount) {
    const auto it = by_peer_.find(peer);
    CELL_CHECK(it != by_peer_.end() && it->second >= amount);
    it->second -= amount;
    total_ -= amount;
    if (it->second == 0) by_peer_.erase(it);
  }

  size_t of(ConnectionId peer) const {
    const auto it = by_peer_.find(peer);
    return it == by_peer_.end() ? 0 : it->second;
  }
  size_t total() const { return total_; }
  // Returns the peer that holds most. Returns nullopt if nobody holds anything.
  std::optional<ConnectionId> Heaviest() const {
    const auto it = std::max_element(by_peer_.begin(), by_peer_.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
    if (it == by_peer_.end()) return std::nullopt;
    return it->first;
  }

 private:
  std::map<ConnectionId, size_t> by_peer_;
  size_t total_ = 0;
};

}  // namespace cell
