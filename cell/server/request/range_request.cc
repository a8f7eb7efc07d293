#include "cell/server/request/range_request.h"

#include <algorithm>

#include "cell/base/status_macros.h"
#include "cell/server/request/served_regions.h"
#include "cell/server/request/sound_leaves.h"

namespace cell {
namespace {

// The slots of a leaf that are in a range.
struct Slots {
  int first, end;
  bool last;  // The range has nothing behind this leaf.
};

// REQUIRES: `from` is in the leaf or below it.
Slots SlotsOf(const NodeView& leaf, std::string_view from, std::string_view to) {
  Slots slots{0, leaf.count(), !leaf.has_high() || (!to.empty() && to <= leaf.high_key())};
  if (!leaf.BelowLow(from)) slots.first = leaf.LowerBound(from);
  if (to.empty() || leaf.PastHigh(to)) return slots;
  slots.end = leaf.BelowLow(to) ? 0 : leaf.LowerBound(to);
  slots.first = std::min(slots.first, slots.end);
  return slots;
}

// Returns whether a key of the range in this leaf is held to be written.
bool HidesAny(const KeyLocks& locks, const NodeView& leaf, std::string_view from, std::string_view to) {
  const std::string low(leaf.BelowLow(from) ? leaf.low_key() : from);
  if (!leaf.has_high()) return to.empty() ? locks.HidesAny(low) : locks.HidesAny(low, to);
  const std::string high(leaf.high_key());
  return locks.HidesAny(low, to.empty() || to > high ? std::string_view(high) : to);
}

}  // namespace

absl::Status CheckRangeRoom(const Meganode& tree, size_t room) {
  if (room >= RangeReplyBytes(tree.key_bytes_max())) return absl::OkStatus();
  return absl::InvalidArgumentError("a range request must leave room for a key");
}

absl::StatusOr<LeafKeys> KeysOfLeaf(const Meganode& tree, std::string_view from, std::string_view to) {
  ASSIGN_OR_RETURN(const NodeView leaf, SoundLeaf(tree, from));
  const Slots slots = SlotsOf(leaf, from, to);
  LeafKeys found;
  if (!slots.last) found.next = leaf.high_key();
  for (int i = slots.first; i < slots.end; ++i) found.keys.push_back(leaf.key(i));
  return found;
}

absl::StatusOr<size_t> ServeCount(const Meganode& tree, const KeyLocks& locks, const Parsed<RangeRequest>& request,
                                  MutableBytes to) {
  RETURN_IF_ERROR(CheckRangeRoom(tree, to.size()));
  absl::StatusOr<NodeView> leaf = SoundLeaf(tree, request.key);
  RETURN_IF_ERROR(leaf.status());
  RangeResult result{0, false, {}};
  const uint64_t now = tree.ClusterTime();
  std::string next;
  for (int leaves = 1; leaf.ok(); ++leaves) {
    const bool hidden = leaf->locked() && HidesAny(locks, *leaf, request.key, request.value);
    if (hidden && leaves == 1) return WriteLocked(to);
    if (hidden) break;
    const Slots slots = SlotsOf(*leaf, request.key, request.value);
    result.pairs += static_cast<uint64_t>(slots.end - slots.first);
    for (int i = slots.first; tree.expiring() > 0 && i < slots.end; ++i) {
      if (leaf->leaf_slot(i).expires() && HasExpired(leaf->pair(i).expiry, now)) --result.pairs;
    }
    result.done = slots.last;
    if (slots.last) break;
    next = leaf->high_key();
    if (leaves == kLeavesPerCount || !tree.Covers(next)) break;
    leaf = SoundRight(tree, *leaf);  // If that was damaged, the next slice begins there, and returns the error.
  }
  if (!result.done) result.next_key = next;
  return WriteRangeReply(to, MessageKind::kCount, result);
}

}  // namespace cell
