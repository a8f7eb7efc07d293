// MeganodeSplit: moves the right part of a meganode into an empty one, while both are written (the thesis, Fig. 4.3).
//
// The thesis locks the right part's range, copies its nodes, and then switches the links. Here nothing is locked: pairs
// are copied a few at a time between other work of the thread that writes both meganodes, and a change of what was
// copied is made in both. So when the last pair is copied both are equal, and Finish, in one go,
//
//   1. cuts the left part, from the root down: on each level the node that covers the split key ends there now, and its
//      right link is the new meganode's root;
//   2. invalidates each node of the right part (MarkGone), before the new meganode takes writes of its own.
//
// A one-sided reader sees, at each moment, the key in the old right part, which does not change, or in the new
// meganode, which is equal; or it comes to a node that is gone, and goes back. Extents and nodes of the right part are
// freed afterwards, by Reclaim; a reader with an old slot is caught by the CRC.
//
// To be destroyed before its meganodes. One thread: the one that writes both meganodes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cell/tree/meganode.h"

namespace cell {

class MeganodeSplit {
 public:
  // A key that leaves about half on each side, by fan-out: the low key of a leaf. Nothing when there is one leaf.
  static std::optional<std::string> ChooseKey(const Meganode& from);

  // Copies [key, end) of `from` into `to`, which is empty and formatted for that range: tier, high key and right
  // neighbour of `from`. `key` is from ChooseKey.
  MeganodeSplit(Meganode* from, Meganode* to, std::string key);
  ~MeganodeSplit();
  MeganodeSplit(const MeganodeSplit&) = delete;
  MeganodeSplit& operator=(const MeganodeSplit&) = delete;

  const std::string& key() const { return key_; }
  Meganode* to() const { return to_; }

  // Copies about `entries` more. True: all are copied. An error: `to` cannot take them; destroy this, and `from` is as
  // if nothing had been.
  absl::StatusOr<bool> Copy(size_t entries);

  // Whether `to` has taken all changes so far. Once it has, and nothing is written to `from`, Finish does not fail.
  const absl::Status& mirrored() const { return mirrored_; }

  // After Copy returned true. Like Copy, it may find that `to` could not take a change.
  absl::Status Finish();

  // After Finish: frees what `nodes` more given-up nodes used. True: nothing is left to free.
  bool Reclaim(size_t nodes);

 private:
  NodeView LastBefore(std::string_view key, uint8_t level, Pointer from) const;
  std::vector<Pointer> RightPart(const NodeView& cut, const std::vector<Pointer>& above) const;
  void Cut(const NodeView& node);
  absl::Status CopySlot(const NodeView& node, int slot, const std::string& key);
  void Mirror(std::string_view key);
  void PrefetchExtents(const NodeView& leaf) const;
  void PrefetchBlocks(const NodeView& leaf) const;

  Meganode* const from_;
  Meganode* const to_;
  const std::string key_;
  std::string next_;  // What is below is copied: a low key of leaves.
  Pointer place_;     // Where the next leaf goes, after the first.
  bool copied_ = false;
  absl::Status mirrored_;
  std::vector<Pointer> invalid_nodes_;  // To be reclaimed, last first.
};

}  // namespace cell
