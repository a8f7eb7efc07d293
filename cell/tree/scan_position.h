// ScanPosition tracks how far a scan of a range has come, up or down its keys. Pure; servers and clients scan with it.
//
// Nodes have right links and no left ones. A scan that goes down therefore finds the leaf to the left by keys: it
// searches for the greatest key that can be stored below this leaf's low key.
//
// Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cell/tree/node_view.h"

namespace cell {

// Returns the greatest string of at most `bytes_max` bytes below `key`. Returns "" if only the empty string is below.
std::string GreatestBelow(std::string_view key, size_t bytes_max);

class ScanPosition {
 public:
  // Upwards, scans from `at`, inclusive, to `end`, exclusive. Downwards, from `at` to `end`, both inclusive. Without
  // `end` the scan goes to the last key, or downwards to the first.
  ScanPosition(bool down, std::string at, std::optional<std::string> end, size_t key_bytes_max)
      : down_(down), at_(std::move(at)), end_(std::move(end)), key_bytes_max_(key_bytes_max) {}
  // Returns the position of a scan of [from, to) at its first key, or at its last if `down`. If the range ends before
  // it begins, the result is ended().
  static ScanPosition Of(std::string from, std::optional<std::string> to, bool down, size_t key_bytes_max);

  bool down() const { return down_; }
  // Returns where the scan continues: all keys before this one, in its direction, are done.
  const std::string& at() const { return at_; }
  const std::optional<std::string>& end() const { return end_; }
  // Returns whether no key can be left.
  bool ended() const { return Past(at_) || (down_ && at_.empty()); }
  // Returns whether `key`, which is at or behind at(), is outside of the range.
  bool Past(std::string_view key) const { return end_.has_value() && (down_ ? key < *end_ : key >= *end_); }

  // Returns whether the range has no keys in the child at `slot` of an inner node, which is behind at().
  bool PastChild(const NodeView& parent, int slot) const;

  // First(leaf), step() and In enumerate the slots of `leaf`, which covers at(), in this direction.
  int First(const NodeView& leaf) const;
  int step() const { return down_ ? -1 : 1; }
  static bool In(const NodeView& leaf, int slot) { return slot >= 0 && slot < leaf.count(); }
  // Returns whether the range ends with `leaf`.
  bool EndsWith(const NodeView& leaf) const;

  void MoveTo(std::string_view key) { at_.assign(key); }
  // Moves beyond `leaf`. REQUIRES: the range does not end with it.
  void Pass(const NodeView& leaf) { at_ = down_ ? GreatestBelow(leaf.low_key(), key_bytes_max_) : leaf.high_key(); }

 private:
  bool down_;
  std::string at_;
  std::optional<std::string> end_;
  size_t key_bytes_max_;
};

}  // namespace cell
