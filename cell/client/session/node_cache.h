// NodeCache is an LRU cache of the inner nodes near the root that a client has read (thesis, section 5.3).
//
// An outdated node costs extra steps, but never leads to a wrong answer: only inner nodes are cached, their children
// stay in the tree, and keys that a split has moved are reached by right links. Not thread-safe.
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

  // Returns the node if it is cached. The view is valid until the cache changes.
  std::optional<NodeView> Find(Pointer node);
  enum class Kept {
    kNot,         // Its level is too low, or the cache holds nothing.
    kAgain,       // In place of an older image of it.
    kMore,        // It was not there.
    kForAnother,  // It was not there, and another node had to go for it.
  };
  // Stores a copy of `node` if its level is at least `level_min`. REQUIRES: `node` is verified.
  Kept Keep(const NodeView& node);
  void Drop(Pointer node);
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
