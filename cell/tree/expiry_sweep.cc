#include "cell/tree/expiry_sweep.h"

#include <algorithm>

#include "cell/base/status_macros.h"

namespace cell {

ExpirySweep::ExpirySweep(Meganode* tree) : next_(tree->range().low) {
  tree->first_expiry_ = UINT64_MAX;  // Pairs that are put from now on lower it again.
}

absl::StatusOr<std::vector<std::string>> ExpirySweep::NextLeaf(Meganode* tree) {
  std::vector<std::string> keys;
  std::optional<std::string> next;
  if (tree->Covers(*next_)) {  // Otherwise it was split, and its right part is swept by itself.
    ASSIGN_OR_RETURN(const NodeView leaf, tree->VerifiedLeafOf(*next_));
    const uint64_t now = tree->ClusterTime();
    for (int i = 0; i < leaf.count(); ++i) {
      if (!leaf.leaf_slot(i).expires()) continue;
      const Expiry expiry = leaf.pair(i).expiry;
      if (HasExpired(expiry, now)) {
        keys.push_back(leaf.key(i));
      } else {
        first_left_ = std::min(first_left_, expiry);
      }
    }
    if (leaf.has_high()) next = leaf.high_key();
  }
  next_ = std::move(next);
  if (next_.has_value() && !tree->Covers(*next_)) next_.reset();
  if (ended()) tree->first_expiry_ = std::min(tree->first_expiry_, first_left_);
  return keys;
}

}  // namespace cell
