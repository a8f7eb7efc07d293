// MeganodeSplit moves the right part of a meganode into an empty one, while both are written (thesis, Fig. 4.3).
//
// The thesis locks the right part's range, copies its nodes, and then switches the links. Here nothing is locked. Pairs
// are copied a few at a time, between other work of the thread that writes both meganodes. A write to a key that was
// already copied is made in both meganodes. Both are therefore equal when the last pair is copied. Then Finish, without
// interruption,
//
//   1. cuts the left part, from the root down: on each level the node that covers the split key ends there now, and its
//      right link is the new meganode's root;
//   2. invalidates each node of the right part (MarkGone), before the new meganode takes writes of its own.
//
// At each moment a one-sided reader sees the key in the old right part, which does not change, or in the new meganode,
// which is equal; or it finds an invalidated node and goes back. Reclaim frees the extents and nodes of the right part
// afterwards. The CRC catches readers with an old slot.
//
// Must be destroyed before its meganodes. Not thread-safe: only the thread that writes both meganodes may call it.
#pragma once

#include <optional>
#include <string>

#include "cell/tree/invalid_nodes.h"
#include "cell/tree/meganode.h"

namespace cell {

class MeganodeSplit {
 public:
  // Chooses a key that leaves about half on each side, judged by fan-out: the low key of a leaf. Returns nullopt if
  // there is only one leaf.
  static std::optional<std::string> ChooseKey(const Meganode& from);

  // Copies [key, end) of `from` into `to`. `to` is empty and formatted for that range, with the tier, high key and
  // right neighbour of `from`. `key` is from ChooseKey, and no nodes of `from` were merged since (BordersKept).
  MeganodeSplit(Meganode* from, Meganode* to, std::string key);
  ~MeganodeSplit();
  MeganodeSplit(const MeganodeSplit&) = delete;
  MeganodeSplit& operator=(const MeganodeSplit&) = delete;

  const std::string& key() const { return key_; }
  Meganode* to() const { return to_; }

  // Copies about `entries` more entries. Returns true when all are copied. Returns an error if `to` cannot take them,
  // and DataLoss if they were damaged in memory: destroy this then, and `from` is unchanged.
  absl::StatusOr<bool> Copy(size_t entries);

  // Returns OK if `to` has taken all changes so far, and otherwise the error of the first one that it did not take. If
  // OK, and if nothing is written to `from` since, Finish does not fail.
  const absl::Status& mirrored() const { return mirrored_; }

  // Makes the next stamps of `to` later than those that `from` has given so far.
  void TakeStamps() { to_->RaiseLastStamp(from_->header().last_stamp); }

  // Finishes the split. REQUIRES: Copy returned true. Returns an error if `to` could not take a change.
  absl::Status Finish();

  // Frees what `nodes` more invalidated nodes used. Returns true if nothing is left to free. REQUIRES: Finish
  // succeeded.
  bool Reclaim(size_t nodes) { return right_part_.Free(nodes); }

 private:
  NodeView LastBefore(std::string_view key, uint8_t level, Pointer from) const;
  void Cut(const NodeView& node);
  absl::Status CopySlot(const NodeView& node, int slot, const std::string& key);
  void Mirror(std::string_view key);
  void PrefetchExtents(const NodeView& leaf) const;

  Meganode* const from_;
  Meganode* const to_;
  const Meganode::BordersKept borders_;
  const std::string key_;
  std::string next_;   // Everything below this key, a low key of leaves, is copied.
  Pointer next_leaf_;  // Location of the next leaf, after the first.
  bool copied_ = false;
  absl::Status mirrored_;
  InvalidNodes right_part_;  // Invalid once Finish has succeeded.
};

}  // namespace cell
