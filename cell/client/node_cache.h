// NodeCache: the nodes near the root that a client has read, least recently used out first (the thesis, 5.3).
//
// A stale node costs steps and never a wrong answer: only inner nodes are cached, their children stay in the tree, and
// what a split moved is reached by right links. One thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "cell/tree/node_view.h"

namespace cell {

class NodeCache {
 public:
  NodeCache(size_t bytes, uint32_t node_bytes, int level_min);

  // The cached node, if it is there; valid until the next change.
  std::optional<NodeView> Find(Pointer node);
  // Keeps a copy of a verified node if its level is high enough.
  void Keep(const NodeView& node);
  void Drop(Pointer node);
  void Clear();
  size_t size() const { return nodes_.size(); }

 private:
  struct Entry {
    Pointer node;
    std::unique_ptr<std::byte[]> image;
  };

  const size_t nodes_max_;
  const uint32_t node_bytes_;
  const int level_min_;
  std::list<Entry> by_use_;  // Most recent first.
  absl::flat_hash_map<uint64_t, std::list<Entry>::iterator> nodes_;
};

}  // namespace cell
