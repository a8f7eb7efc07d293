// Meganode: a B-link tree in one region, as the region's writing thread works on it.
//
// Sagiv's algorithm as the thesis uses it (4.2): a split writes the right sibling whole, then the left node, and puts
// the separator into the parent as a later step. Until then readers reach the sibling by the right link, and the next
// writer that passes finishes the split. Deletes never rebalance. Every step is one published node. See README.md.
//
// A meganode of tier 0 holds pairs; one above holds routes: the roots of meganodes one tier below, by their low keys.
// Its range is [low key, high key); keys outside are another's, and operations on them fail with OutOfRange. RouteOf
// then says where to go on.
//
// Thread-safety: one thread calls it; others may read the region's nodes and extents at any time.
//
// Invariants
//   1. A region's nodes and extents are at every moment what TreeCheck accepts, but for half splits.
//   2. An operation that fails has changed nothing.
//   3. An extent is complete before a leaf points at it, and freed only after no leaf does.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/layout/region.h"
#include "cell/tree/node_draft.h"
#include "cell/tree/pair_store.h"
#include "cell/tree/walk.h"

namespace cell {

class Meganode : public PairStore {
 public:
  using Range = MeganodeRange;

  // Makes an empty meganode in `memory`, at least shape.region_bytes() long: zeros, or what was a region before.
  static absl::Status Format(RegionMemory* memory, uint32_t region, const RegionShape& shape, const Range& range);
  static absl::Status Format(RegionMemory* memory, uint32_t region, const RegionShape& shape) {
    return Format(memory, region, shape, Range());
  }

  // A formatted region; `memory` must outlive this.
  explicit Meganode(RegionMemory* memory);

  Pointer root() const { return root_; }
  Range range() const;
  uint8_t tier() const { return Node(root_).tier(); }
  bool Covers(std::string_view key) const { return Node(root_).Covers(key); }
  size_t key_bytes_max() const { return KeyBytesMax(header().node_bytes); }
  double unit_fill() const override {
    return static_cast<double>(header().nodes_used) / static_cast<double>(header().node_count);
  }

  // Where a key's leaf is, and its slot there if it is stored.
  struct Place {
    Pointer leaf;
    std::optional<LeafSlot> slot;
  };
  absl::StatusOr<Place> Find(std::string_view key) const;

  // Many searches at once, of any of the thread's meganodes, interleaved with prefetching so that their cache misses
  // overlap (see README.md). Results are those of Find, one by one.
  struct Lookup {
    const Meganode* tree;
    std::string_view key;
    absl::Status status;
    Place place;
  };
  static constexpr size_t kBatchMax = 16;
  static void FindBatch(absl::Span<Lookup> lookups, bool prefetch_extents);

  // Where the search for a key leads from here.
  struct Route {
    enum class Kind : uint8_t {
      kHere,   // The key's place is in this meganode.
      kChild,  // In the child `next`, which covers [low, high).
      kRight,  // In the neighbour `next` or beyond: this meganode ends before.
      kLost,   // Below this meganode.
    };
    Kind kind = Kind::kHere;
    Pointer next;
    std::string low;
    std::optional<std::string> high;
  };
  Route RouteOf(std::string_view key) const;

  // The leaf that holds `key`'s place, for scans; above tier 0, the node whose slots are routes. Valid until the next
  // change.
  absl::StatusOr<NodeView> LeafOf(std::string_view key) const;
  NodeView Node(Pointer pointer) const;
  // Of Put, Commit and Delete: `hint`, if not null, is the leaf that the client found; used when it is right.
  absl::StatusOr<bool> Put(std::string_view key, std::string_view value, uint64_t crc, Pointer hint = {}) override;
  absl::StatusOr<Prepared> Prepare(std::string_view key, std::string_view value, uint64_t crc,
                                   const Ahead& ahead) override;
  bool Commit(const Prepared& prepared, std::string_view key, Pointer hint = {}) override;
  void Discard(const Prepared& prepared) override { extents_.Free(prepared.extent); }

  // Fills an empty meganode with the leaves of another, one after the other from its own low key on: takes a copy of
  // `leaf` of `from`, and of its extents, whose CRCs stay for readers to check. *place: where it goes, null for the
  // first; then where the next one will go. After ResourceExhausted this meganode is of no use.
  absl::Status AppendLeaf(const Meganode& from, const NodeView& leaf, Pointer* place);

  // Above tier 0: from `key` on, to the next route's key, the child is `child`. True: there was a route of this key; it
  // is left as it is. The key of the first route may be empty. InvalidArgument: it is too long. ResourceExhausted.
  absl::StatusOr<bool> InsertRoute(std::string_view key, Pointer child);

  absl::StatusOr<bool> Delete(std::string_view key, Pointer hint = {}) override;
  absl::StatusOr<bool> CommitDelete(std::string_view key, Pointer hint = {}) override;

  absl::Status CheckKey(std::string_view key) const override;

  // Of all nodes.
  void Invalidate() override;
  void Restore() override;
  // Whether `header` is that of a region of this shape, and its numbers make sense: before a copy is trusted.
  static absl::Status CheckHeader(const RegionHeader& header, uint32_t region, const RegionShape& shape);

  // The steps of a split, as an observer sees them right after each.
  enum class SplitStep { kRightWritten, kLeftWritten, kSeparatorWritten };
  // For tests: returning false abandons the split there, as a writer that dies would.
  void set_split_observer(std::function<bool(SplitStep)> observer) { split_observer_ = std::move(observer); }

 private:
  friend class MeganodeSplit;
  friend class MeganodeBuilder;

  // A split that its parent does not know of yet.
  struct Separator {
    uint8_t level;  // Of the node that must hold it.
    std::string key;
    Pointer child;
  };

  struct Descent {
    Pointer node;
    std::vector<Separator> unfinished;
  };

  absl::Status NotHere(Walk::Step step, std::string_view key) const;
  absl::StatusOr<Descent> Descend(std::string_view key, uint8_t level) const;
  bool HintIsRight(Pointer hint, std::string_view key) const;
  absl::StatusOr<uint64_t> StoreExtent(std::string_view key, std::string_view value);
  absl::Status NoNodes() const;
  absl::Status NoExtent(size_t bytes) const;
  template <typename Slot>
  absl::Status InsertAtBottom(Pointer node, std::string_view key, const Slot& slot);
  void InsertSeparators(std::vector<Separator> pending);
  template <typename Slot>
  std::optional<Separator> Split(const NodeView& node, int at, std::string_view key, const Slot& slot);
  bool Observe(SplitStep step) { return !split_observer_ || split_observer_(step); }

  absl::Status CheckPut(std::string_view key, std::string_view value, uint64_t crc) const;
  // What is in (key, slot) is in the leaf. True: the key was there.
  absl::StatusOr<bool> PutSlot(Descent descent, std::string_view key, const LeafSlot& slot);
  // Leaves that are appended one after the other: where the next one goes, and then that it is there. Of *place see
  // AppendLeaf.
  struct LeafPlace {
    bool first;
    Pointer self;
    Pointer right;
  };
  absl::StatusOr<LeafPlace> PlaceLeaf(bool last, Pointer* place);
  void LinkLeaf(const LeafPlace& leaf, std::string_view low);

  Pointer AllocateNode();
  // Gives a node up: readers that come to it are sent back. Its bytes stay until FreeNode.
  void MarkGone(Pointer node);
  void FreeNode(Pointer node);
  bool NodesLeftForSplit(size_t ahead = 0) const;
  void Publish(NodeDraft* draft) { draft->Publish(memory_, draft->view().self().offset()); }

  Pointer root_;
  NodeDraft draft_;
  NodeDraft right_draft_;
  std::function<bool(SplitStep)> split_observer_;
};

}  // namespace cell
