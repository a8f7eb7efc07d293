// RouteCache is an LRU cache that maps ranges of keys to meganodes, as learnt from searches (thesis, sections 4.2 and
// 5.3).
//
// An outdated range leads to a meganode that ends before the key or no longer exists. The caller then drops the range
// and begins at the root of the tree. Not thread-safe.
#pragma once

#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "cell/layout/pointer.h"

namespace cell {

class RouteCache {
 public:
  explicit RouteCache(size_t ranges_max) : ranges_max_(ranges_max) {}

  // Returns the root of the meganode whose cached range contains `key`, or null.
  Pointer Find(std::string_view key) {
    const auto it = Holding(key);
    if (it == ranges_.end()) return {};
    by_use_.splice(by_use_.begin(), by_use_, it->second.use);
    return it->second.meganode;
  }

  // Stores that the meganode with this root holds [low, high), or everything from `low` on if there is no `high`.
  void Keep(std::string_view low, std::optional<std::string_view> high, Pointer meganode) {
    if (ranges_max_ == 0) return;
    // Ranges that overlap the new one are older. Drop them.
    auto it = ranges_.upper_bound(low);
    if (it != ranges_.begin()) {
      const auto before = std::prev(it);
      if (!before->second.high.has_value() || *before->second.high > low) it = before;
    }
    while (it != ranges_.end() && (!high.has_value() || it->first < *high)) it = Erase(it);
    if (ranges_.size() >= ranges_max_) Erase(by_use_.back());
    const auto made = ranges_.emplace(std::string(low), Range{std::nullopt, meganode, {}}).first;
    if (high.has_value()) made->second.high = std::string(*high);
    by_use_.push_front(made);
    made->second.use = by_use_.begin();
  }

  // Drops the range that contains `key`, if one is cached.
  void Drop(std::string_view key) {
    const auto it = Holding(key);
    if (it != ranges_.end()) Erase(it);
  }
  size_t size() const { return ranges_.size(); }

 private:
  struct Range;
  using Ranges = std::map<std::string, Range, std::less<>>;  // Keyed by low key.
  struct Range {
    std::optional<std::string> high;
    Pointer meganode;
    std::list<Ranges::iterator>::iterator use;
  };

  Ranges::iterator Holding(std::string_view key) {
    auto it = ranges_.upper_bound(key);
    if (it == ranges_.begin()) return ranges_.end();
    --it;
    return it->second.high.has_value() && key >= *it->second.high ? ranges_.end() : it;
  }
  Ranges::iterator Erase(Ranges::iterator it) {
    by_use_.erase(it->second.use);
    return ranges_.erase(it);
  }

  const size_t ranges_max_;
  Ranges ranges_;
  std::list<Ranges::iterator> by_use_;  // Most recent first.
};

}  // namespace cell
