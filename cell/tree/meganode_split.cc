#include "cell/tree/meganode_split.h"

#include <algorithm>
#include <cmath>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"

namespace cell {

std::optional<std::string> MeganodeSplit::ChooseKey(const Meganode& from) {
  // Take the middle of the root's children, then the remaining fraction in that child, and so on down to the leaves.
  NodeView node = from.Node(from.root());
  if (node.level() == 0) return std::nullopt;  // The key must be a border of leaves, so that no leaf has to be cut.
  const std::string low(node.low_key());
  double at = 0.5;
  while (node.level() > 1 && node.count() > 0) {
    const double position = at * node.count();
    const int slot = std::min(static_cast<int>(position), node.count() - 1);
    at = position - slot;
    node = from.Node(node.inner_slot(slot).child());
  }
  if (node.count() == 0) return std::nullopt;  // Cannot happen in a sound tree.
  const int slot = std::clamp(static_cast<int>(std::lround(at * node.count())), 0, node.count() - 1);
  std::string key = node.key(slot);
  if (key <= low && slot + 1 < node.count()) key = node.key(slot + 1);
  if (key <= low) return std::nullopt;
  return key;
}

MeganodeSplit::MeganodeSplit(Meganode* from, Meganode* to, std::string key)
    : from_(from), to_(to), borders_(from), key_(std::move(key)), next_(key_), right_part_(from) {
  CELL_CHECK(from->Covers(key_) && key_ > from->range().low && to->range().low == key_ && !from->on_change_);
  from_->set_on_change([this](std::string_view changed) {
    if (changed >= key_ && (copied_ || changed < next_)) Mirror(changed);
  });
}

MeganodeSplit::~MeganodeSplit() { from_->set_on_change(nullptr); }

absl::Status MeganodeSplit::CopySlot(const NodeView& node, int slot, const std::string& key) {
  if (!node.holds_pairs()) return to_->InsertRoute(key, node.inner_slot(slot).child()).status();
  const LeafPair pair = node.pair(slot);
  ASSIGN_OR_RETURN(const std::string_view value, from_->VerifiedValueOf(key, pair));
  const uint64_t crc = pair.is_inline ? Crc64(value, Crc64(key)) : pair.outside.crc;
  RETURN_IF_ERROR(to_->CheckPut(key, value, crc, pair.expiry));
  return to_->PutChecked(key, value, crc, {}, pair.stamp, pair.expiry).status();
}

void MeganodeSplit::Mirror(std::string_view changed) {
  if (!mirrored_.ok()) return;
  const std::string key(changed);
  const absl::StatusOr<NodeView> leaf = from_->LeafOf(key);
  if (!leaf.ok()) {
    mirrored_ = leaf.status();
    return;
  }
  const NodeView node = *leaf;
  if (const std::optional<int> slot = node.Find(key)) {
    mirrored_ = CopySlot(node, *slot, key);
  } else {
    mirrored_ = node.holds_pairs() ? to_->Delete(key).status() : to_->RemoveRoute(key).status();
  }
}

absl::StatusOr<bool> MeganodeSplit::Copy(size_t entries) {
  RETURN_IF_ERROR(mirrored_);
  for (size_t done = 0; done < entries && !copied_;) {
    ASSIGN_OR_RETURN(const NodeView node, from_->VerifiedLeafOf(next_));
    CELL_CHECK_EQ(node.low_key(), next_);  // A border of leaves stays one.
    const bool last = node.right().region() != from_->region();
    if (node.holds_pairs()) {
      if (!last) PrefetchExtents(from_->Node(node.right()));
      RETURN_IF_ERROR(to_->AppendLeaf(*from_, node, &next_leaf_));
    } else {
      for (int i = 0; i < node.count(); ++i) RETURN_IF_ERROR(CopySlot(node, i, node.key(i)));
    }
    done += static_cast<size_t>(node.count()) + 1;
    if (last || Mutated(Mutant::kRightLinkTooEarly)) {
      copied_ = true;
    } else {
      next_ = node.high_key();
    }
  }
  return copied_;
}

void MeganodeSplit::PrefetchExtents(const NodeView& leaf) const {
  if (!leaf.holds_pairs()) return;
  for (int i = 0; i < leaf.count(); ++i) {
    const LeafPair pair = leaf.pair(i);
    if (!pair.is_inline) Prefetch(from_->Extent(pair.outside.extent), std::min<size_t>(pair.pair_bytes(), 512));
  }
}

// Returns the node of `level` that covers the keys just below `key`. The search starts at `from`, which is that node or
// a higher one.
NodeView MeganodeSplit::LastBefore(std::string_view key, uint8_t level, Pointer from) const {
  NodeView node = from_->Node(from);
  for (;;) {
    while (node.has_high() && node.high_key() < key) node = from_->Node(node.right());
    if (node.level() == level) return node;
    node = from_->Node(node.inner_slot(std::max(0, node.LowerBound(key) - 1)).child());
  }
}

void MeganodeSplit::Cut(const NodeView& node) {
  const std::string low(node.low_key());
  NodeDraft& draft = from_->draft_;
  draft.Begin(node.self(), node.level(), low, key_, to_->root(), node.tier());
  for (int i = 0; i < node.count(); ++i) {
    const std::string key = node.key(i);
    if (key >= key_) break;
    if (node.holds_pairs()) {
      CELL_CHECK(draft.Insert(i, key, node.pair(i)));  // The leaf ended at the split key before, so nothing grows.
    } else if (!draft.Insert(i, key, node.inner_slot(i))) {
      // The split key is longer than the high key was. Children without a slot are reached by right links.
      CELL_CHECK_GT(i, 0);
      break;
    }
  }
  from_->Publish(&draft);
}

absl::Status MeganodeSplit::Finish() {
  RETURN_IF_ERROR(mirrored_);
  CELL_CHECK(copied_);
  from_->set_on_change(nullptr);
  const int top = from_->Node(from_->root()).level();
  std::vector<NodeView> cuts;
  Pointer from = from_->root();
  for (int level = top; level >= 0; --level) {
    const NodeView cut = LastBefore(key_, static_cast<uint8_t>(level), from);
    CELL_CHECK(!cut.holds_pairs() || cut.high_key() == key_);
    from = cut.self();
    right_part_.AddFrom(cut.right());
    cuts.push_back(cut);
  }
  for (const NodeView& cut : cuts) Cut(cut);
  if (!Mutated(Mutant::kOldCopyStays)) right_part_.Invalidate();
  TakeStamps();
  from_->deletes_ = 0;
  to_->unmerged_ |= from_->unmerged_;
  RegionHeader& left = from_->memory_->header();
  left.keys -= to_->header().keys;
  left.data_bytes -= to_->header().data_bytes;
  left.expiring -= to_->header().expiring;
  return absl::OkStatus();
}

}  // namespace cell
