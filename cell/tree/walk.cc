#include "cell/tree/walk.h"

#include "cell/base/mutant.h"

namespace cell {

Walk::Step Walk::Visit(const NodeView& node) {
  if (++visits_ > kVisitsMax) return Step::kGaveUp;
  moved_right_ = false;
  torn_ = 0;
  if (!node.InBounds()) return level_ < 0 ? Step::kRestart : SetBack();  // A server's memory was damaged.
  if (level_ < 0) {                                                      // The node is the root.
    if (node.gone() || node.tier() < stop_tier_ || (node.tier() == stop_tier_ && node.level() < stop_level_)) {
      return Step::kRestart;
    }
    below_ = node.BelowLow(key_);
    if (below_) return Step::kRestart;
    tier_ = static_cast<int8_t>(node.tier());
  } else if (node.gone() || node.level() != level() || node.tier() != tier() ||
             (node.BelowLow(key_) && !Mutated(Mutant::kLowKeyUnchecked))) {
    return SetBack();
  }
  level_ = static_cast<int8_t>(node.level());
  if (node.PastHigh(key_)) {
    if (node.right().null()) return SetBack();
    moved_right_ = true;
    wants_ = node.right();
    return wants_.region() == root_.region() ? Step::kRead : Step::kElsewhere;
  }
  path_[node.level()] = node.self();
  if (node.level() == stop_level_ && node.tier() == stop_tier_) return Step::kArrived;
  const int slot = node.ChildSlot(key_);
  if (slot < 0) return SetBack();
  wants_ = node.inner_slot(slot).child();
  if (node.level() == 0) return Step::kElsewhere;
  --level_;
  return Step::kRead;
}

Walk::Step Walk::Failed(NodeFault fault) {
  if (++visits_ > kVisitsMax) return Step::kGaveUp;
  if (fault == NodeFault::kTorn && ++torn_ < kTornReadsBeforeSetback) return Step::kRead;
  torn_ = 0;
  if (level_ < 0 && fault != NodeFault::kTorn) return Step::kRestart;
  return SetBack();
}

Walk::Step Walk::SetBack() {
  moved_right_ = false;
  const int above = level_ + 1;
  if (++setbacks_ <= kSetbacksBeforeRoot && level_ >= 0 && above < kLevelsMax && !path_[above].null()) {
    wants_ = path_[above];
    level_ = static_cast<int8_t>(above);
    path_[above] = Pointer();  // If that node is not valid any more either, the next setback goes higher.
  } else {
    wants_ = root_;
    level_ = -1;
    path_.fill(Pointer());
  }
  return Step::kRead;
}

void Walk::GoBeside(Pointer leaf, std::string_view key) {
  key_ = key;
  wants_ = leaf;
  level_ = 0;
  visits_ = setbacks_ = torn_ = 0;
  moved_right_ = false;
}

}  // namespace cell
