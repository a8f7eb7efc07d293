#include "cell/server/request/scan_request.h"

#include <algorithm>
#include <optional>
#include <string>

#include "cell/base/status_macros.h"
#include "cell/server/request/scan_writer.h"
#include "cell/server/request/served_regions.h"
#include "cell/server/request/sound_leaves.h"
#include "cell/tree/scan_position.h"

namespace cell {
namespace {

constexpr int kLeavesPerScan = 64;

// Prefetches what a scan of `leaf` from slot `first` on will read: extents, and the leaf to the right.
void PrefetchForScan(const Meganode& tree, const NodeView& leaf, int first, bool down, bool keys_only) {
  if (!down && leaf.right().region() == tree.region()) {
    Prefetch(tree.Node(leaf.right()).bytes(), leaf.node_bytes());
  }
  if (keys_only) return;
  for (int slot = first; ScanPosition::In(leaf, slot); slot += down ? -1 : 1) {
    const LeafPair pair = leaf.pair(slot);
    if (!pair.is_inline) Prefetch(tree.Extent(pair.outside.extent), std::min<size_t>(pair.pair_bytes(), 512));
  }
}

// Returns the least key of at most `bytes_max` bytes above `key`, or "" if there is none.
std::string LeastAbove(std::string_view key, size_t bytes_max) {
  std::string above(key);
  if (above.size() < bytes_max) return above + '\0';
  while (!above.empty() && above.back() == '\xff') above.pop_back();
  if (!above.empty()) ++above.back();
  return above;
}

// The keys that a scan has not passed yet, as far as transactions hold them to be written.
class Unpassed {
 public:
  Unpassed(const KeyLocks& locks, const ScanPosition& position, size_t key_bytes_max)
      : locks_(locks), position_(position), key_bytes_max_(key_bytes_max) {
    last_ = position.at();
  }
  // Returns whether one is held up to this one, inclusive.
  bool HiddenTo(std::string_view key) const {
    return position_.down() ? locks_.HidesAny(key, Upper()) : locks_.HidesAny(Lower(), std::string(key) + '\0');
  }
  // Returns whether one is held of those that the leaf has, and the scan wants.
  bool HiddenIn(const NodeView& leaf) const {
    const std::optional<std::string>& end = position_.end();
    if (position_.down()) {
      const std::string low(leaf.low_key());
      return locks_.HidesAny(end.has_value() ? std::max(*end, low) : low, Upper());
    }
    if (!leaf.has_high()) return end.has_value() ? locks_.HidesAny(Lower(), *end) : locks_.HidesAny(Lower());
    const std::string high(leaf.high_key());
    return locks_.HidesAny(Lower(), end.has_value() ? std::min(*end, high) : high);
  }
  void Pass(std::string_view key) {
    last_ = key;
    passed_ = true;
  }
  // Returns where the scan goes on: "" if there are no more keys.
  std::string next() const {
    if (!passed_) return last_;
    return position_.down() ? GreatestBelow(last_, key_bytes_max_) : LeastAbove(last_, key_bytes_max_);
  }

 private:
  std::string Lower() const { return passed_ ? last_ + '\0' : last_; }
  std::string Upper() const { return passed_ ? last_ : last_ + '\0'; }

  const KeyLocks& locks_;
  const ScanPosition& position_;
  const size_t key_bytes_max_;
  std::string last_;  // The key that was passed last, or where the scan began in this leaf.
  bool passed_ = false;
};

// Ends the reply of a scan that has come to a key that a transaction holds.
size_t EndLocked(const Unpassed& unpassed, ScanWriter* writer) {
  return writer->empty() ? WriteLocked(writer->to()) : writer->GoOn(unpassed.next(), {});
}

// Adds what the scan wants of its leaves to the reply, from the position on. Returns DataLoss if something was damaged
// in memory: the position is there, behind all entries that were added.
absl::StatusOr<size_t> AddEntries(const Meganode& tree, const KeyLocks& locks, bool keys_only, ScanPosition* position,
                                  ScanWriter* writer) {
  std::string key;
  const uint64_t now = tree.ClusterTime();
  ASSIGN_OR_RETURN(NodeView leaf, SoundLeaf(tree, position->at()));
  for (int leaves = 0;; ++leaves) {
    const bool locked = leaf.locked();
    Unpassed unpassed(locks, *position, tree.key_bytes_max());
    const int first = position->First(leaf);
    PrefetchForScan(tree, leaf, first, position->down(), keys_only);
    for (int slot = first; ScanPosition::In(leaf, slot); slot += position->step()) {
      leaf.CopyKey(slot, &key);
      const bool past = position->Past(key);
      if (locked && (past ? unpassed.HiddenIn(leaf) : unpassed.HiddenTo(key))) return EndLocked(unpassed, writer);
      if (past) return writer->Done();
      const LeafPair pair = leaf.pair(slot);
      if (HasExpired(pair.expiry, now)) continue;
      const absl::StatusOr<bool> added = writer->AddPair(tree, key, pair);
      if (added.ok() && *added) {
        if (locked) unpassed.Pass(key);
        continue;
      }
      position->MoveTo(key);
      if (!added.ok()) return added.status();
      return writer->GoOn(position->at(), {});
    }
    if (locked && unpassed.HiddenIn(leaf)) return EndLocked(unpassed, writer);
    if (position->EndsWith(leaf)) return writer->Done();
    position->Pass(leaf);
    if (!tree.Covers(position->at())) return writer->GoOn(position->at(), position->down() ? Pointer() : leaf.right());
    // After many empty leaves the scan continues in another call, so that other requests are served.
    if (leaves == kLeavesPerScan || writer->full()) return writer->GoOn(position->at(), {});
    if (position->down()) {
      ASSIGN_OR_RETURN(leaf, SoundLeaf(tree, position->at()));
    } else {
      ASSIGN_OR_RETURN(leaf, SoundRight(tree, leaf));
    }
  }
}

}  // namespace

absl::StatusOr<size_t> ServeScan(const Meganode& tree, const KeyLocks& locks, const Parsed<ScanRequest>& request,
                                 const KeySpan* seen, MutableBytes to) {
  const bool keys_only = request.fixed.keys_only != 0;
  ASSIGN_OR_RETURN(ScanTarget target, ScanTarget::Of(MessageKind::kScan, tree, request, seen, to));
  auto& [position, writer] = target;
  absl::StatusOr<size_t> bytes = AddEntries(tree, locks, keys_only, &position, &writer);
  // The reply has the entries before the damage. The next call begins at the damage and returns the error.
  if (absl::IsDataLoss(bytes.status()) && !writer.empty()) return writer.GoOn(position.at(), {});
  return bytes;
}

}  // namespace cell
