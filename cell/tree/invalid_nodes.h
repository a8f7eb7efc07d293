// InvalidNodes takes nodes out of a meganode, many at once: it invalidates them in one turn, and frees them and their
// extents afterwards, some at a time. Must be destroyed before the meganode. Not thread-safe: only the thread that
// writes the meganode may call it.
#pragma once

#include <cstddef>
#include <vector>

#include "cell/tree/meganode.h"
#include "cell/tree/node_view.h"

namespace cell {

class InvalidNodes {
 public:
  explicit InvalidNodes(Meganode* tree) : tree_(tree) {}
  InvalidNodes(const InvalidNodes&) = delete;
  InvalidNodes& operator=(const InvalidNodes&) = delete;

  // Collects the node `first` and all nodes to its right on its level that are in the meganode. Collects nothing if
  // `first` is null or in another meganode. Call it for the levels from the top down: most nodes of a level are
  // children of the nodes that the previous call collected, and are prefetched, so that the links need not be followed
  // one cache miss at a time. Stops at a node that was damaged in memory.
  void AddFrom(Pointer first);

  // Invalidates what was collected: readers that come to a node go back.
  void Invalidate();

  // Frees about `nodes` more nodes, and the extents of their pairs. A node that was damaged in memory loses its
  // extents, which nothing uses again. Returns true if nothing is left to free. REQUIRES: they are invalid.
  bool Free(size_t nodes);

 private:
  void PrefetchBlocks(const NodeView& leaf) const;

  Meganode* const tree_;
  std::vector<Pointer> nodes_;
  size_t above_ = 0;  // Where the nodes of the last AddFrom begin.
};

}  // namespace cell
