#include "cell/client/tree/leaves_ahead.h"

#include <algorithm>

#include "cell/base/check.h"

namespace cell {

void LeavesAhead::Plan(Pointer leaf) {
  CELL_CHECK(next().null());
  Clear();
  leaves_.push_back(leaf);
}

void LeavesAhead::PlanBehind(Pointer leaf, const NodeView& parent, const ScanPosition& position, size_t count) {
  if (parent.bytes() == nullptr || !parent.Covers(position.at())) return;
  int slot = parent.ChildSlot(position.at());
  if (slot < 0 || parent.inner_slot(slot).child() != leaf) return;
  count = std::min(count, kLeavesMax - leaves_.size());
  for (; count > 0; --count) {
    slot += position.step();
    if (!ScanPosition::In(parent, slot) || position.PastChild(parent, slot)) return;
    leaves_.push_back(parent.inner_slot(slot).child());
  }
}

size_t LeavesAhead::AddReads(std::vector<ReadPart>* parts) {
  while (buffers_.size() < leaves_.size()) buffers_.emplace_back(pool_);
  const size_t before = asked_;
  for (; asked_ < leaves_.size(); ++asked_) {
    parts->push_back({leaves_[asked_], buffers_[asked_].data(), node_bytes_});
  }
  return asked_ - before;
}

}  // namespace cell
