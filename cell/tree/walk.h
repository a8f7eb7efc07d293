// Walk searches one meganode's B-link tree as a step machine without I/O (Sagiv; thesis, 4.2 and 4.3).
//
// It says which node it wants. Its driver fetches that node, parses it, and passes the view to Visit. This repeats
// until Visit returns kArrived: the view then covers the key at the requested level. The server drives it over its own
// memory, the client over one-sided reads, the checker over a dump.
//
// A walk that meets an invalid node, a wrong level, or a key below the low key goes back to the last node that was
// right. After kSetbacksBeforeRoot such setbacks it goes back to the root. After kVisitsMax visits in all it gives up.
//
// A walk stays in the meganode where it began. A right link or a child that is another meganode's root ends it with
// kElsewhere, and the driver continues there with another walk. A root that is not (or no longer) the key's ends it
// with kRestart, and the search begins again from the root of the tree.
//
// Not thread-safe. `key` must outlive the walk.
#pragma once

#include <array>
#include <string_view>

#include "cell/layout/limits.h"
#include "cell/tree/node_view.h"

namespace cell {

class Walk {
 public:
  static constexpr int kVisitsMax = 1024;
  static constexpr int kSetbacksBeforeRoot = 4;
  static constexpr int kTornReadsBeforeSetback = 32;

  enum class Step {
    kRead,       // Fetch wants().
    kArrived,    // The visited node covers the key.
    kElsewhere,  // wants() is the root of another meganode; moved_right() tells a neighbour from a child.
    kRestart,    // The meganode is gone, or the key is below it.
    kGaveUp,     // Out of budget.
  };

  Walk() = default;
  // Searches from a meganode's root for the node of `stop_level` and `stop_tier` that covers `key`.
  Walk(std::string_view key, Pointer root, uint8_t stop_level = 0, uint8_t stop_tier = 0)
      : key_(key), root_(root), wants_(root), stop_level_(stop_level), stop_tier_(stop_tier) {}

  Pointer wants() const { return wants_; }
  std::string_view key() const { return key_; }

  // Continues with `node`, the verified view of wants().
  Step Visit(const NodeView& node);
  // Reports that wants() could not be read whole, or was not the expected node.
  Step Failed(NodeFault fault);

  // Continues with another key, which `leaf` of this meganode probably covers: a neighbour. REQUIRES: the walk arrived
  // at a leaf.
  void GoBeside(Pointer leaf, std::string_view key);

  // Returns whether the last Visit followed a right link: the parent is out of date, or a split is not finished.
  bool moved_right() const { return moved_right_; }
  // After kRestart: returns whether the meganode is there and the key is below it.
  bool below() const { return below_; }
  // Returns false once anything was wrong. Nodes must then come from the server and not from a cache.
  bool may_use_cache() const { return setbacks_ == 0; }
  // Returns the last valid node seen at `level`; null above the root.
  Pointer path(int level) const { return level < kLevelsMax ? path_[level] : Pointer(); }
  int visits() const { return visits_; }
  // Returns the level of wants(); -1: any.
  int level() const { return level_; }
  // Returns the tier of the meganode once its root was visited; -1 before.
  int tier() const { return tier_; }
  Pointer root() const { return root_; }

 private:
  Step SetBack();

  std::string_view key_;
  Pointer root_;
  Pointer wants_;
  uint8_t stop_level_ = 0;
  uint8_t stop_tier_ = 0;
  int8_t level_ = -1;  // The level that wants() must have. -1: any, because it is the root.
  int8_t tier_ = -1;
  bool moved_right_ = false;
  bool below_ = false;
  int visits_ = 0;
  int setbacks_ = 0;
  int torn_ = 0;
  std::array<Pointer, kLevelsMax> path_{};
};

}  // namespace cell
