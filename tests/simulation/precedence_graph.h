// PrecedenceGraph says which transactions come before which others, and why. It keeps an order of its nodes in which
// each edge points forward.
//
//  1. Edges are added at the end and removed from the end. An edge keeps its number.
//  2. After Sort succeeds, edges point from lower to higher positions. An edge that would not moves only nodes between
//     its ends (Pearce and Kelly 2006). The order stays as it is when edges are removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cell {

struct Precedence {
  enum class Reason : uint8_t {
    kEnd,          // From a transaction to the moment of its end.
    kTime,         // From a moment to the next one.
    kBegin,        // From the last moment before a transaction's begin to the transaction.
    kRead,         // `to` read what `from` wrote.
    kOverwrote,    // `to` wrote the version after that of `from`.
    kReplaced,     // `to` wrote the version after that which `from` read.
    kBeforePut,    // `from` read the key as absent, and `to` put it.
    kAfterDelete,  // `from` deleted the key, and `to` read it as absent.
  };
  int from, to;
  Reason reason;
  int key = -1;
};

class PrecedenceGraph {
 public:
  explicit PrecedenceGraph(size_t nodes)
      : out_(nodes), in_(nodes), position_(nodes), seen_(nodes), length_(nodes), via_(nodes) {}

  size_t edges() const { return edges_.size(); }
  const Precedence& edge(size_t number) const { return edges_[number]; }
  int position(int node) const { return position_[static_cast<size_t>(node)]; }
  uint64_t steps() const { return steps_; }  // Edges that FindPath and Add have looked at.

  // Orders all nodes, those that may come next by their `moments`. Returns false if there is a cycle.
  bool Sort(const std::vector<int64_t>& moments);
  // Returns the edges of a short cycle. REQUIRES: Sort has failed, and no edge was added since.
  std::vector<size_t> FindCycle();

  // Adds an edge. After Sort succeeded, REQUIRES that no path leads from `to` to `from`.
  void Add(const Precedence& edge);
  // Removes all edges from this number on.
  void Truncate(size_t edges);

  // Returns the edges of a shortest path of at least one edge, or nothing, using edges below the number `end` only. The
  // way from one transaction to another by moments counts as one step.
  std::vector<size_t> FindPath(int from, int to, size_t end = SIZE_MAX);

 private:
  // Collects the nodes that are reached from one within some positions, along the edges or against them.
  void Reach(int node, bool forward, int least, int greatest, std::vector<int>* reached);

  std::vector<Precedence> edges_;
  std::vector<std::vector<size_t>> out_, in_;  // By node: edges.
  std::vector<int> position_;  // By node. After Sort failed: nodes without a position have the greatest one.
  bool sorted_ = false;
  uint64_t steps_ = 0;

  // The number of the current search, and by node: the last search that has reached it, how many steps that took, and
  // the edge by which the node was reached.
  uint64_t search_ = 0;
  std::vector<uint64_t> seen_;
  std::vector<int> length_;
  std::vector<size_t> via_;
};

}  // namespace cell
