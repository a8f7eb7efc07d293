#include "cell/client/session/node_cache.h"

#include <algorithm>

namespace cell {

NodeCache::NodeCache(size_t bytes, uint32_t node_bytes, int level_min)
    : nodes_max_(bytes / node_bytes), node_bytes_(node_bytes), level_min_(std::max(level_min, 1)) {}

std::optional<NodeView> NodeCache::Find(Pointer node) {
  const auto it = nodes_.find(node.raw());
  if (it == nodes_.end()) return std::nullopt;
  if (it->second != by_use_.begin()) by_use_.splice(by_use_.begin(), by_use_, it->second);
  return NodeView::Trusted(it->second->image.get(), node_bytes_);
}

NodeCache::Kept NodeCache::Keep(const NodeView& node) {
  if ((node.tier() == 0 && node.level() < level_min_) || nodes_max_ == 0) return Kept::kNot;
  const bool known = nodes_.contains(node.self().raw());
  Drop(node.self());
  const bool full = nodes_.size() == nodes_max_;
  if (full) {
    nodes_.erase(by_use_.back().node.raw());
    by_use_.pop_back();
  }
  by_use_.push_front({node.self(), std::make_unique<std::byte[]>(node_bytes_)});
  std::memcpy(by_use_.front().image.get(), node.bytes(), node_bytes_);
  nodes_[node.self().raw()] = by_use_.begin();
  if (known) return Kept::kAgain;
  return full ? Kept::kForAnother : Kept::kMore;
}

void NodeCache::Drop(Pointer node) {
  const auto it = nodes_.find(node.raw());
  if (it == nodes_.end()) return;
  by_use_.erase(it->second);
  nodes_.erase(it);
}

}  // namespace cell
