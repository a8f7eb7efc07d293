#include "cell/tree/invalid_nodes.h"

#include <cstdint>
#include <optional>

#include "cell/base/shared_words.h"

namespace cell {

void InvalidNodes::AddFrom(Pointer first) {
  const size_t begin = nodes_.size();
  size_t parent = above_;
  Pointer fetched_until;
  std::optional<uint8_t> level;
  for (Pointer next = first; next.region() == tree_->region();) {
    if (parent < begin && (fetched_until.null() || next == fetched_until)) {
      const NodeView above = tree_->Node(nodes_[parent++]);
      for (int i = 0; i < above.count(); ++i) Prefetch(tree_->Node(above.inner_slot(i).child()).bytes(), 64);
      fetched_until = parent < begin ? tree_->Node(nodes_[parent]).inner_slot(0).child() : Pointer();
    }
    const NodeView node = tree_->Node(next);
    if (node.gone() || node.level() != level.value_or(node.level()) || nodes_.size() > tree_->header().node_count)
      break;
    level = node.level();
    nodes_.push_back(next);
    next = node.right();
  }
  above_ = begin;
}

void InvalidNodes::Invalidate() {
  for (const Pointer node : nodes_) tree_->MarkGone(node);
}

void InvalidNodes::PrefetchBlocks(const NodeView& leaf) const {
  if (!leaf.holds_pairs()) return;
  for (int i = 0; i < leaf.count(); ++i) {
    const LeafPair pair = leaf.pair(i);
    if (!pair.is_inline) tree_->extents_.PrefetchFree(pair.outside.extent.offset(), pair.pair_bytes());
  }
}

bool InvalidNodes::Free(size_t nodes) {
  for (; nodes > 0 && !nodes_.empty(); --nodes) {
    const NodeView node = tree_->Node(nodes_.back());
    if (node.holds_pairs() && node.header().crc == NodeCrc(node.bytes(), node.node_bytes())) {
      if (nodes_.size() > 1) PrefetchBlocks(tree_->Node(nodes_.end()[-2]));
      for (int i = 0; i < node.count(); ++i) {
        const LeafPair pair = node.pair(i);
        if (!pair.is_inline) tree_->extents_.Free(pair.outside.extent.offset());
      }
    }
    tree_->FreeNode(nodes_.back());
    nodes_.pop_back();
  }
  return nodes_.empty();
}

}  // namespace cell
