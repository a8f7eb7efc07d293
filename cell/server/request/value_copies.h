// ValueCopies keeps large values as they were at one moment, for the peers that fetch them in pieces.
//
// A value that is overwritten all the time could never be fetched whole from its extent. A peer identifies its copies
// by numbers. A copy is dropped when the peer has fetched its last byte, makes another copy under its number, or
// disconnects. If the copies of all peers need more room than there is, the oldest are dropped first. Not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cell/io/fabric/fabric.h"

namespace cell {

class ValueCopies {
 public:
  explicit ValueCopies(size_t bytes_max) : bytes_max_(bytes_max) {}

  void Keep(ConnectionId peer, uint16_t number, std::string_view value) {
    Drop({peer, number});
    while (!copies_.empty() && bytes_ + value.size() > bytes_max_) Drop(copies_.front().of);
    copies_.push_back({{peer, number}, std::string(value)});
    by_number_[{peer, number}] = std::prev(copies_.end());
    bytes_ += value.size();
  }

  // Returns `bytes` bytes of a copy, from `offset` on. Returns nullopt if there is no such copy any more, or if it is
  // shorter.
  std::optional<std::string_view> Find(ConnectionId peer, uint16_t number, uint64_t offset, uint64_t bytes) const {
    const auto it = by_number_.find({peer, number});
    if (it == by_number_.end()) return std::nullopt;
    const std::string_view value = it->second->value;
    if (offset > value.size() || bytes > value.size() - offset) return std::nullopt;
    return value.substr(offset, bytes);
  }

  // Records that the copy's bytes before `end` have been fetched.
  void Fetched(ConnectionId peer, uint16_t number, uint64_t end) {
    const auto it = by_number_.find({peer, number});
    if (it != by_number_.end() && end >= it->second->value.size()) Drop({peer, number});
  }

  void Disconnected(ConnectionId peer) {
    for (auto it = by_number_.lower_bound({peer, 0}); it != by_number_.end() && it->first.first == peer;) {
      const Of of = (it++)->first;
      Drop(of);
    }
  }

  size_t bytes() const { return bytes_; }

 private:
  using Of = std::pair<ConnectionId, uint16_t>;
  struct Copy {
    Of of;
    std::string value;
  };

  void Drop(Of of) {
    const auto it = by_number_.find(of);
    if (it == by_number_.end()) return;
    bytes_ -= it->second->value.size();
    copies_.erase(it->second);
    by_number_.erase(it);
  }

  const size_t bytes_max_;
  size_t bytes_ = 0;
  std::list<Copy> copies_;  // The oldest first.
  std::map<Of, std::list<Copy>::iterator> by_number_;
};

}  // namespace cell
