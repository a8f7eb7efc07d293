#include "cell/tree/leaf_sample.h"

#include <algorithm>

namespace cell {

absl::StatusOr<std::optional<NodeView>> SampleLeaf(const Meganode& tree, const std::string& low,
                                                   const std::optional<std::string>& high, Random* random) {
  const MeganodeRange range = tree.range();
  if ((high.has_value() && *high <= range.low) || (range.high.has_value() && low >= *range.high)) return std::nullopt;
  Pointer at = tree.root();
  for (int levels = 0; levels <= kLevelsMax; ++levels) {
    const NodeView node = tree.Node(at);
    if (!node.InBounds()) break;
    if (node.level() == 0) return tree.VerifiedNode(at);
    if (node.count() == 0) break;
    int first = node.BelowLow(low) ? 0 : node.PastHigh(low) ? node.count() - 1 : node.ChildSlot(low);
    int last = node.count() - 1;
    if (high.has_value() && node.Covers(*high)) {
      last = node.ChildSlot(*high);
      if (last > first && node.key(last) == *high) --last;
    }
    first = std::max(first, 0);
    last = std::max(last, first);
    at = node.inner_slot(first + static_cast<int>(random->Below(static_cast<uint64_t>(last - first) + 1))).child();
  }
  return DamagedNode(tree.region(), at);
}

}  // namespace cell
