// MeganodeJoin takes the entries of a meganode's right neighbour into the meganode itself.
//
// It is the reverse of MeganodeSplit. Nothing is written to the right meganode while its entries are copied, a few at a
// time, into an *annex*: a tree within the left region that nothing in the left tree points at yet. The left meganode
// takes writes meanwhile. Finish then puts the annex behind the left tree, without interruption:
//
//   1. on each level that the annex has, the last node's right link leads to the first node of the annex;
//   2. on each level above, up to the root, the last node ends where the right meganode ended.
//
// The caller then invalidates the right meganode, before the left one takes writes to its keys. At each moment a
// one-sided reader finds a key in the right meganode, which does not change, or in the annex, which is equal. If this
// is destroyed before Finish, the annex is freed, and the left meganode is as if nothing had been copied, except that
// the last stamp may be higher.
//
// Until Finish, tree_check reports the annex's extents, because it finds no leaf that points at them.
//
// Must be destroyed before its meganodes. Not thread-safe: only the thread that writes both meganodes may call it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/tree/meganode.h"

namespace cell {

class MeganodeJoin {
 public:
  // Returns whether two meganodes together are small enough to be joined: they would fill less than half of one, so
  // that what was joined takes many writes until it is split again. If the right one is empty, the left one stays as
  // full as it is, and may be fuller.
  static bool Fits(const Meganode& left, const Meganode& right) {
    if (left.fill() + right.fill() < kFillMax) return true;
    return right.keys() == 0 && left.fill() < kFillMaxBesideEmpty && left.NodesLeftForSplit(1);
  }

  // Returns whether a step of the copy can be made while `ahead` writes are prepared for the left meganode: it takes as
  // many nodes as one more write, and none that these may need.
  static bool LeavesRoom(const Meganode& left, size_t ahead) {
    return (ahead == 0 && left.writes_kept_ == 0) || left.NodesLeftForSplit(ahead);
  }

  // REQUIRES: LeavesRoom, and `right` has the tier of `left` and is its right neighbour. Nothing is written to `right`
  // until this is destroyed.
  MeganodeJoin(Meganode* left, const Meganode* right);
  ~MeganodeJoin();
  MeganodeJoin(const MeganodeJoin&) = delete;
  MeganodeJoin& operator=(const MeganodeJoin&) = delete;

  // Copies about `entries` more entries. Returns true when all are copied. Each is reported to the left meganode's
  // on_write, like a put. `ahead`: the number of writes that are prepared for the left meganode. Returns
  // ResourceExhausted if that has become too full, and DataLoss if an entry was damaged in memory: destroy this then.
  absl::StatusOr<bool> Copy(size_t entries, size_t ahead = 0);

  // Finishes the join. REQUIRES: Copy returned true. Cannot fail.
  void Finish();

 private:
  static constexpr double kFillMax = 0.5;
  static constexpr double kFillMaxBesideEmpty = 0.9;

  class InAnnex;

  absl::Status TooFull() const;
  absl::Status CopyLeaf(const NodeView& leaf);
  void RaiseRoot();
  NodeView FirstInAnnex(uint8_t level) const;
  NodeView LastOf(uint8_t level) const;
  void Extend(const NodeView& node);
  void FreeAnnex();

  Meganode* const left_;
  const Meganode* const right_;
  const MeganodeRange range_;  // Of the right meganode.
  const Pointer annex_;        // Root of the annex.
  std::string next_;           // Everything below this key, a low key of leaves, is copied.
  Pointer next_leaf_;          // Location of the annex's next leaf. Null before the first one and after the last.
  bool copied_ = false;
  bool finished_ = false;
  std::vector<Pointer> spare_;  // Nodes for raising the root, so that Finish cannot fail.
};

}  // namespace cell
