// KeyLocks knows which keys of a region transactions hold while they are prepared: those that they write, alone, and
// those and the ranges that they have read, together with others that read. Nothing ever waits for a lock here: who
// meets one of another is told so.
//
// Pure. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/types/span.h"

namespace cell {

class KeyLocks {
 public:
  // A transaction, by client, slot and number of its id. Zeros: a request of its own.
  using Owner = std::tuple<uint64_t, uint16_t, uint64_t>;
  static constexpr Owner kNobody = {0, 0, 0};

  bool empty() const { return writers_.empty() && readers_.empty() && ranges_.empty(); }

  // Return whether this owner may read a key or a range, or write a key, as far as others are concerned. An empty `to`
  // is the end of the tree.
  bool MayRead(std::string_view key, const Owner& owner = kNobody) const {
    if (writers_.empty()) return true;
    const auto it = writers_.find(key);
    return it == writers_.end() || it->second == owner;
  }
  bool MayReadRange(std::string_view from, std::string_view to, const Owner& owner = kNobody) const;
  bool MayWrite(std::string_view key, const Owner& owner = kNobody) const { return MayWriteAll({&key, 1}, owner); }
  // Returns whether this owner may write all of these keys, which are in order.
  bool MayWriteAll(absl::Span<const std::string_view> keys, const Owner& owner) const;
  bool MayWriteRange(std::string_view from, std::string_view to) const;

  // Return whether a key in [low, high) is held to be written: readers of memory must ask then. No `high`: to the end.
  bool HidesAny(std::string_view low) const { return writers_.lower_bound(low) != writers_.end(); }
  bool HidesAny(std::string_view low, std::string_view high) const {
    const auto it = writers_.lower_bound(low);
    return it != writers_.end() && it->first < high;
  }
  bool hides_nothing() const { return writers_.empty(); }
  // Returns how many ranges are held.
  size_t ranges() const { return ranges_.size(); }

  // REQUIRES: the owner may do so.
  void Read(std::string_view key, const Owner& owner) { readers_.emplace(key, owner); }
  void ReadRange(std::string_view from, std::string_view to, const Owner& owner) {
    ranges_.push_back({std::string(from), std::string(to), owner});
  }
  void Write(std::string_view key, const Owner& owner) { writers_.emplace(key, owner); }
  // Release what the owner holds, if it does.
  void ReleaseRead(std::string_view key, const Owner& owner);
  void ReleaseWrite(std::string_view key, const Owner& owner);
  void ReleaseRanges(const Owner& owner) {
    std::erase_if(ranges_, [&](const Range& range) { return range.owner == owner; });
  }

 private:
  struct Range {
    std::string from;
    std::string to;  // Empty: to the end.
    Owner owner;
  };

  std::map<std::string, Owner, std::less<>> writers_;
  std::multimap<std::string, Owner, std::less<>> readers_;
  std::vector<Range> ranges_;
};

}  // namespace cell
