// SoundLeaf and SoundRight return leaves of a meganode whose bytes were verified, for requests that take whole leaves.
// Pure.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "cell/base/status_macros.h"
#include "cell/tree/meganode.h"

namespace cell {

// Returns whether the keys of a verified leaf grow, and the key behind it is one that can be passed on.
inline bool IsSound(const Meganode& tree, const NodeView& leaf) {
  return leaf.InOrder() && leaf.header().high_key_bytes <= tree.key_bytes_max();
}

// Return the leaf of a key, and the one to the right of `leaf`. Return DataLoss if it was damaged in memory.
inline absl::StatusOr<NodeView> SoundLeaf(const Meganode& tree, std::string_view key) {
  ASSIGN_OR_RETURN(const NodeView leaf, tree.VerifiedLeafOf(key));
  if (IsSound(tree, leaf)) return leaf;
  return DamagedNode(tree.region(), leaf.self());
}

inline absl::StatusOr<NodeView> SoundRight(const Meganode& tree, const NodeView& leaf) {
  ASSIGN_OR_RETURN(const NodeView right, tree.VerifiedNode(leaf.right()));
  if (right.holds_pairs() && IsSound(tree, right) && right.low_key() == leaf.high_key()) return right;
  return DamagedNode(tree.region(), right.self());
}

}  // namespace cell
