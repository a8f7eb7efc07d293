#include "cell/tree/meganode_clear.h"

#include <vector>

#include "cell/base/check.h"
#include "cell/base/mutant.h"

namespace cell {

bool MeganodeClear::Pays(const Meganode& tree) { return tree.Node(tree.root()).level() > 0; }

MeganodeClear::MeganodeClear(Meganode* tree) : nodes_(tree), pairs_(tree->header().keys) {
  CELL_CHECK(tree->tier() == 0 && !tree->on_change_ && tree->borders_kept_ == 0);
  const MeganodeRange range = tree->range();
  const NodeView root = tree->Node(tree->root());
  for (NodeView first = root; first.level() > 0 && first.count() > 0;) {
    const NodeView child = tree->Node(first.inner_slot(0).child());
    if (child.gone() || child.level() + 1 != first.level()) break;  // One of both was damaged in memory.
    nodes_.AddFrom(child.self());
    first = child;
  }
  std::vector<uint64_t> extents;  // Of the root, if it is a leaf.
  for (int i = 0; root.level() == 0 && i < root.count(); ++i) {
    const LeafPair pair = root.pair(i);
    if (!pair.is_inline) extents.push_back(pair.outside.extent.offset());
  }
  if (!Mutated(Mutant::kClearedLate)) nodes_.Invalidate();
  tree->draft_.Begin(tree->root(), 0, range.low, range.high, range.right, range.tier);
  tree->Publish(&tree->draft_);
  if (Mutated(Mutant::kClearedLate)) nodes_.Invalidate();
  for (const uint64_t extent : extents) tree->extents_.Free(extent);
  RegionHeader& header = tree->memory_->header();
  header.keys = 0;
  header.data_bytes = 0;
  header.expiring = 0;
  tree->deletes_ += pairs_;
}

}  // namespace cell
