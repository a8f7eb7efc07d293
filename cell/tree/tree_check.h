// TreeCheck verifies every invariant of a region's structure, a slice at a time. The region may be written between two
// slices, and split, joined with another or cleared: what is checked of a node is true at every moment.
//
//   nodes     versions, CRC, self pointer, valid, level; slots sorted, inside the fences
//   levels    begin at the root's low key, end at its high key with its right link; each low key is the left
//             neighbour's high key
//   children  each slot's child is in the level below with the slot's key as low key; a node without a parent slot is
//             a half split (counted, not an error)
//   walk      a search for each node's low key ends at that node
//   extents   inside the area, in use, large enough, CRC right
//   stamps    none is 0 or above the header's last stamp
//
// Two checks concern the region as a whole. They are made only if nothing was written from the first slice to the last,
// and if nothing is being freed gradually (whole()):
//
//   extents   no two shared, none in use without a slot; free lists agree with the blocks
//   counts    the header's keys and bytes
//
// So a check of a region that is written finds every node and every pair that was damaged in memory, wrong links and
// fences, and extents that were freed too early. It does not find keys that were lost together with their extents, or
// extents that are never freed.
//
// Not thread-safe: used on the thread that writes the region.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/container/flat_hash_set.h"
#include "cell/region/extent_allocator.h"
#include "cell/region/extent_marks.h"
#include "cell/region/region_memory.h"
#include "cell/tree/node_view.h"
#include "cell/tree/tree_report.h"

namespace cell {

// The offsets of extents that writes have reserved which are not applied yet. Nothing points at them.
using ReservedExtents = absl::flat_hash_set<uint64_t>;

class TreeCheck {
 public:
  struct Slice {
    const RegionMemory& memory;  // The same region in each slice.
    int64_t bytes = INT64_MAX;   // The slice ends when about this many bytes were verified.
    bool settled = true;         // Nothing of the region is being freed gradually.
    std::function<ReservedExtents()> reserved = [] { return ReservedExtents(); };
  };
  // Continues. Returns whether the check has ended.
  bool Step(const Slice& slice);

  // After the end: returns whether the region was compared as a whole.
  bool whole() const { return whole_; }
  const TreeReport& report() const { return report_; }

 private:
  enum class Phase : uint8_t { kBegin, kLevels, kExtents, kEnd };

  void Note(std::string_view where, std::string_view what);
  // Notes an error unless `good`. `what` is a text, or returns one.
  template <typename What>
  void Expect(bool good, std::string_view where, const What& what) {
    if (good) return;
    if constexpr (std::is_invocable_v<What>) {
      Note(where, what());
    } else {
      Note(where, what);
    }
  }
  bool CheckHeader();
  // Reads the root, whose level and range may have changed. Returns false if that fails.
  bool ReadRoot();
  std::optional<NodeView> Read(Pointer pointer);
  // Returns the node of a level that covers a key.
  struct Arrival {
    std::optional<NodeView> node;
    bool by_right_link = false;
  };
  Arrival Find(std::string_view key, int level);
  // Checks the nodes of level_ from key_ on. Returns whether the level has ended.
  bool CheckLevel();
  // Checks a node whose left neighbour ends at key_, and moves key_ to its end. Returns false if the level ends here.
  bool CheckNode(const NodeView& node, bool after_change);
  void CheckSlots(const NodeView& node, std::string_view where);
  void CheckPair(const LeafPair& pair, const std::string& key, std::string_view where);
  void CompareCounts();
  // Returns whether all extents were visited.
  bool CompareExtents();
  const RegionHeader& header() const { return slice_->memory.header(); }

  const Slice* slice_ = nullptr;  // These two are set during Step.
  const ExtentAllocator* allocator_ = nullptr;
  Phase phase_ = Phase::kBegin;
  int64_t left_ = 0;     // Bytes that this slice may still verify.
  uint64_t stores_ = 0;  // Of the region at the end of the last slice.
  bool changed_ = false;
  bool whole_ = true;
  Pointer root_;
  int root_level_ = 0;
  int level_ = 0;
  std::string key_;  // Everything of level_ before it was checked.
  Pointer next_;     // The node that begins there, as its left neighbour said. Null: this is the first of the level.
  uint64_t nodes_of_level_ = 0;
  ExtentMarks pointed_;
  ExtentAllocator::WalkState extents_;
  ReservedExtents reserved_;
  TreeReport report_;
};

// Checks a region that nobody writes meanwhile.
TreeReport CheckTree(const RegionMemory& memory, const ReservedExtents& reserved = {});

}  // namespace cell
