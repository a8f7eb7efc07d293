// Has the merges of a Meganode: of nodes that deletes have left small, with the root that lowers. See README.md.
#include <string>

#include "cell/base/check.h"
#include "cell/base/mutant.h"
#include "cell/tree/meganode.h"

namespace cell {
namespace {

struct Fill {
  size_t used;  // Bytes of the entries with their slots and heads.
  size_t room;  // Bytes that they could have.
};

Fill FillOf(const NodeView& node) {
  Fill fill{static_cast<size_t>(node.count()) * (kKeyHeadBytes + SlotBytes(node.header())),
            node.fences_offset() - sizeof(NodeHeader)};
  for (int i = 0; i < node.count(); ++i) fill.used += node.entry(i).size();
  return fill;
}

// A node that splits leaves two halves or, if keys arrive in order, a full one. None of these is merged before most of
// it is deleted, and what is merged takes many puts until it splits. So nodes do not merge and split in turns.
bool Small(const Fill& fill) { return 4 * fill.used < fill.room; }
bool Large(const Fill& fill) { return 4 * fill.used > 3 * fill.room; }

// Returns whether a node has as little as a node can have.
bool Emptied(const NodeView& node) { return node.count() <= (node.holds_pairs() ? 0 : 1); }

// Inserts all slots of `node` behind those of the draft. Returns false if they do not fit.
bool Append(const NodeView& node, NodeDraft* draft) {
  std::string key;
  for (int i = 0; i < node.count(); ++i) {
    node.CopyKey(i, &key);
    const int at = draft->view().count();
    if (node.holds_pairs() ? !draft->Insert(at, key, node.pair(i)) : !draft->Insert(at, key, node.inner_slot(i))) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool Meganode::IsSmall(const NodeView& node) { return Small(FillOf(node)); }

void Meganode::MergeSmall(std::string_view key) {
  if (borders_kept_ > 0) {
    unmerged_ = true;
    return;
  }
  for (bool again = true; again;) {
    again = false;
    for (uint8_t level = 0; level < Root().level(); ++level) {
      const absl::StatusOr<Descent> descent = Descend(key, level);
      const absl::StatusOr<Descent> above = Descend(key, static_cast<uint8_t>(level + 1));
      if (!descent.ok() || !above.ok() || !IsSmall(Node(descent->node))) break;
      const NodeView parent = Node(above->node);
      const int slot = parent.ChildSlot(key);
      if (slot < 0 || parent.inner_slot(slot).child() != descent->node) break;  // A half split lies between them.
      const bool merged = MergeChildren(parent, slot - 1) || MergeChildren(parent, slot);
      again = again || (merged && level > 0);  // Its children have other neighbours now.
      if (!merged && parent.count() > 1) break;
    }
  }
  while (LowerRoot()) {
  }
}

std::optional<std::string> Meganode::MergeFrom(std::string_view key, int leaves) {
  if (key == range().low) unmerged_ = false;
  std::string at(key);
  for (; leaves > 0; --leaves) {
    MergeSmall(at);
    if (unmerged_) return std::nullopt;
    const absl::StatusOr<NodeView> leaf = VerifiedLeafOf(at);
    if (!leaf.ok() || leaf->right().region() != region()) return std::nullopt;
    at = leaf->high_key();
  }
  return at;
}

bool Meganode::MergeChildren(const NodeView& parent, int slot) {
  if (slot < 0 || slot + 1 >= parent.count()) return false;
  const NodeView left = Node(parent.inner_slot(slot).child());
  const NodeView right = Node(parent.inner_slot(slot + 1).child());
  // Between the children of a half split there is another node.
  if (left.gone() || right.gone() || left.right() != right.self()) return false;
  // A copy of what was damaged in memory would have a right CRC.
  if (!VerifiedNode(left.self()).ok() || !VerifiedNode(right.self()).ok()) return false;
  const std::optional<std::string> high =
      right.has_high() ? std::optional<std::string>(right.high_key()) : std::nullopt;
  draft_.Begin(left.self(), left.level(), std::string(left.low_key()), high, right.right(), left.tier());
  if (!Append(left, &draft_) || !Append(right, &draft_)) return false;
  // The last node of a level, once emptied, is where keys that arrive in order go next.
  const bool emptied = Emptied(left) || (Emptied(right) && right.right().region() == region());
  if (!emptied && Large(FillOf(draft_.view()))) return false;

  Publish(&draft_);
  const Pointer gone = right.self();
  // Before the next write to the left node: what that gets is not in the right one.
  const bool frees = !Mutated(Mutant::kMergedNodeStays);
  if (frees) MarkGone(gone);
  draft_.CopyOf(parent);
  draft_.Remove(slot + 1);
  Publish(&draft_);
  if (frees) FreeNode(gone);
  ++merges_;
  return true;
}

bool Meganode::LowerRoot() {
  const NodeView root = Root();
  if (root.level() == 0 || root.count() != 1) return false;
  const NodeView child = Node(root.inner_slot(0).child());
  if (child.gone() || child.right() != root.right()) return false;  // After a half split it has a neighbour.
  const Pointer gone = child.self();
  draft_.CopyOf(child);
  draft_.Move(root_, child.right());
  Publish(&draft_);
  MarkGone(gone);
  FreeNode(gone);
  return true;
}

}  // namespace cell
