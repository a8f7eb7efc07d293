#include "cell/tree/meganode_join.h"

#include <optional>
#include <utility>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {

// While it exists, the annex is what the left meganode's functions write to.
class MeganodeJoin::InAnnex {
 public:
  explicit InAnnex(const MeganodeJoin* join) : left_(join->left_), root_(std::exchange(left_->root_, join->annex_)) {}
  InAnnex(const InAnnex&) = delete;
  InAnnex& operator=(const InAnnex&) = delete;
  ~InAnnex() { left_->root_ = root_; }

 private:
  Meganode* const left_;
  const Pointer root_;
};

MeganodeJoin::MeganodeJoin(Meganode* left, const Meganode* right)
    : left_(left), right_(right), range_(right->range()), annex_(left->AllocateNode()), next_(range_.low) {
  CELL_CHECK(left->range().right == right->root() && left->range().high == range_.low && left->tier() == range_.tier);
  left_->RaiseLastStamp(right_->header().last_stamp);
  // A reader that comes to it by a former pointer would miss the pairs that are not in it yet. Routes may be missing.
  NodeDraft& draft = left_->draft_;
  draft.Begin(annex_, 0, range_.low, range_.high, range_.right, range_.tier);
  if (range_.tier == 0) {
    left_->PublishHidden(&draft);
  } else {
    left_->Publish(&draft);
  }
}

MeganodeJoin::~MeganodeJoin() {
  if (!finished_) FreeAnnex();
  for (const Pointer node : spare_) left_->FreeNode(node);
}

absl::Status MeganodeJoin::TooFull() const {
  return absl::ResourceExhaustedError(
      fmt::format("region {} has become too full to take what region {} has", left_->region(), right_->region()));
}

absl::StatusOr<bool> MeganodeJoin::Copy(size_t entries, size_t ahead) {
  for (size_t done = 0; done < entries && !copied_;) {
    const bool half = 2 * left_->header().nodes_used >= left_->header().node_count;
    const bool has_room = half ? right_->keys() == 0 && left_->NodesLeftForSplit(ahead) : LeavesRoom(*left_, ahead);
    if (!has_room) return TooFull();
    ASSIGN_OR_RETURN(const NodeView leaf, right_->VerifiedLeafOf(next_));
    if (leaf.low_key() != next_) return DamagedNode(right_->region(), leaf.self());
    RETURN_IF_ERROR(CopyLeaf(leaf));
    done += static_cast<size_t>(leaf.count()) + 1;
    if (leaf.right().region() != right_->region()) {
      copied_ = true;
    } else {
      next_ = leaf.high_key();
    }
  }
  // The left root must be above the annex's root in the end. Finish raises it with these nodes if it is not.
  if (copied_ && !LeavesRoom(*left_, ahead)) return TooFull();
  while (copied_ && spare_.size() <= left_->Node(annex_).level()) spare_.push_back(left_->AllocateNode());
  return copied_;
}

absl::Status MeganodeJoin::CopyLeaf(const NodeView& leaf) {
  const InAnnex in_annex(this);
  if (leaf.holds_pairs()) return left_->AppendLeaf(*right_, leaf, &next_leaf_);
  for (int i = 0; i < leaf.count(); ++i) {
    RETURN_IF_ERROR(left_->InsertRoute(leaf.key(i), leaf.inner_slot(i).child()).status());
  }
  return absl::OkStatus();
}

// Returns the annex's first node of a level.
NodeView MeganodeJoin::FirstInAnnex(uint8_t level) const {
  NodeView node = left_->Node(annex_);
  while (node.level() > level) node = left_->Node(node.inner_slot(0).child());
  return node;
}

// Returns the last node of a level of the left meganode. Its parent may not know it yet.
NodeView MeganodeJoin::LastOf(uint8_t level) const {
  NodeView node = left_->Node(left_->root());
  for (;;) {
    while (node.right().region() == left_->region()) node = left_->Node(node.right());
    if (node.level() == level) return node;
    node = left_->Node(node.inner_slot(node.count() - 1).child());
  }
}

// Moves the content of the left root into a node of its own, and makes the root that node's parent.
void MeganodeJoin::RaiseRoot() {
  const NodeView root = left_->Node(left_->root());
  const MeganodeRange range = left_->range();
  const auto level = static_cast<uint8_t>(root.level() + 1);
  const Pointer child = spare_.back();
  spare_.pop_back();
  NodeDraft& draft = left_->draft_;
  draft.CopyOf(root);
  draft.Move(child, range.right);
  left_->Publish(&draft);
  draft.Begin(left_->root(), level, range.low, range.high, range.right, range.tier);
  CELL_CHECK(draft.Insert(0, range.low, SlotOf(child)));
  left_->Publish(&draft);
}

// Makes the last node of a level above the annex end where the right meganode ended.
void MeganodeJoin::Extend(const NodeView& node) {
  NodeDraft& draft = left_->draft_;
  draft.Begin(node.self(), node.level(), node.low_key(), range_.high, range_.right, node.tier());
  bool all = true;
  for (int i = 0; all && i < node.count(); ++i) all = draft.Insert(i, node.key(i), node.inner_slot(i));
  // The fences may share less than before. Children without a slot are reached by right links.
  if (all && node.level() == left_->Node(annex_).level() + 1) {
    draft.Insert(node.count(), range_.low, SlotOf(annex_));
  }
  left_->Publish(&draft);
}

void MeganodeJoin::Finish() {
  CELL_CHECK(copied_ && !finished_);
  const uint8_t top = left_->Node(annex_).level();
  while (left_->Node(left_->root()).level() <= top) RaiseRoot();
  const uint8_t root_level = left_->Node(left_->root()).level();
  for (uint8_t level = 0; level <= root_level; ++level) {
    const NodeView last = LastOf(level);
    if (level > top) {
      Extend(last);
      continue;
    }
    left_->draft_.CopyOf(last);
    left_->draft_.Move(last.self(), FirstInAnnex(level).self());
    left_->Publish(&left_->draft_);
  }
  left_->unmerged_ = true;
  finished_ = true;
}

void MeganodeJoin::FreeAnnex() {
  RegionHeader& h = left_->memory_->header();
  const uint8_t top = left_->Node(annex_).level();
  std::vector<Pointer> nodes;
  for (uint8_t level = 0; level <= top; ++level) {
    for (Pointer at = FirstInAnnex(level).self(); at.region() == h.region && at != next_leaf_;
         at = left_->Node(at).right()) {
      nodes.push_back(at);
    }
  }
  for (const Pointer node : nodes) left_->MarkGone(node);
  for (const Pointer at : nodes) {
    const NodeView node = left_->Node(at);
    if (node.level() == 0) h.keys -= static_cast<uint64_t>(node.count());
    for (int i = 0; node.holds_pairs() && i < node.count(); ++i) {
      const LeafPair pair = node.pair(i);
      h.data_bytes -= pair.pair_bytes();
      h.expiring -= pair.expiry != kNeverExpires;
      if (!pair.is_inline) left_->extents_.Free(pair.outside.extent.offset());
    }
  }
  if (!next_leaf_.null()) nodes.push_back(next_leaf_);
  for (const Pointer node : nodes) left_->FreeNode(node);
}

}  // namespace cell
