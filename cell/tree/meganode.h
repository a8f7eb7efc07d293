// Meganode: a B-link tree in one region, as the region's writing thread works on it.
//
// Sagiv's algorithm as the thesis uses it (4.2): a split writes the right sibling whole, then the left node, and puts
// the separator into the parent as a later step. Until then readers reach the sibling by the right link, and the next
// writer that passes finishes the split. Deletes never rebalance. Every step is one published node. See README.md.
//
// Thread-safety: one thread calls it; others may read the region's nodes and extents at any time.
//
// Invariants
//   1. A region's nodes and extents are at every moment what TreeCheck accepts, but for half splits.
//   2. An operation that fails has changed nothing.
//   3. An extent is complete before a leaf points at it, and freed only after no leaf does.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/layout/region.h"
#include "cell/tree/extent_allocator.h"
#include "cell/tree/node_draft.h"
#include "cell/tree/walk.h"

namespace cell {

class Meganode {
 public:
  // Makes an empty tree in `memory`: zeroed, and at least shape.region_bytes() long. Its root is the tree's root.
  static absl::Status Format(RegionMemory* memory, uint32_t region, const RegionShape& shape);

  // A formatted region; `memory` must outlive this.
  explicit Meganode(RegionMemory* memory);

  Pointer root() const { return root_; }
  uint32_t region() const { return header().region; }
  const RegionHeader& header() const { return memory_->header(); }
  size_t key_bytes_max() const { return KeyBytesMax(header().node_bytes); }
  ExtentAllocator::Usage extents() const { return extents_.usage(); }

  // Where a key's leaf is, and its slot there if it is stored.
  struct Place {
    Pointer leaf;
    std::optional<LeafSlot> slot;
  };
  absl::StatusOr<Place> Find(std::string_view key) const;

  // Many searches at once, interleaved with prefetching so that their cache misses overlap (design.md, 10: cache
  // misses are what a search costs). Results are those of Find, one by one.
  struct Lookup {
    std::string_view key;
    absl::Status status;
    Place place;
  };
  static constexpr size_t kBatchMax = 16;
  void FindBatch(absl::Span<Lookup> lookups, bool prefetch_extents) const;

  // The leaf that holds `key`'s place, for scans; valid until the next change.
  absl::StatusOr<NodeView> LeafOf(std::string_view key) const;
  NodeView Node(Pointer pointer) const;
  const std::byte* Extent(Pointer extent) const { return memory_->at(extent.offset()); }
  // Whether [pointer, pointer + bytes) lies in the extents area, at an extent's alignment.
  bool ExtentInBounds(Pointer extent, uint64_t bytes) const;

  // Inserts or replaces. `crc` is Crc64 of key and value, computed by the client. `hint`, if not null, is the leaf
  // that the client found; used when it is right. True: the key was there before.
  // InvalidArgument: a size or the CRC is wrong. ResourceExhausted: nodes or extents are used up.
  absl::StatusOr<bool> Put(std::string_view key, std::string_view value, uint64_t crc, Pointer hint = {});

  // True: the key was there.
  absl::StatusOr<bool> Delete(std::string_view key, Pointer hint = {});

  absl::Status CheckKey(std::string_view key) const;

  // The steps of a split, as an observer sees them right after each.
  enum class SplitStep { kRightWritten, kLeftWritten, kSeparatorWritten };
  // For tests: returning false abandons the split there, as a writer that dies would.
  void set_split_observer(std::function<bool(SplitStep)> observer) { split_observer_ = std::move(observer); }

 private:
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

  absl::StatusOr<Descent> Descend(std::string_view key, uint8_t level) const;
  bool HintIsRight(Pointer hint, std::string_view key) const;
  absl::StatusOr<uint64_t> StoreExtent(std::string_view key, std::string_view value);
  absl::Status InsertIntoLeaf(Pointer leaf, std::string_view key, const LeafSlot& slot);
  void InsertSeparators(std::vector<Separator> pending);
  template <typename Slot>
  std::optional<Separator> Split(const NodeView& node, int at, std::string_view key, const Slot& slot);
  bool Observe(SplitStep step) { return !split_observer_ || split_observer_(step); }

  Pointer AllocateNode();
  bool NodesLeftForSplit() const;
  void Publish(NodeDraft* draft) { draft->Publish(memory_, draft->view().self().offset()); }

  RegionMemory* memory_;
  Pointer root_;
  ExtentAllocator extents_;
  NodeDraft draft_;
  NodeDraft right_draft_;
  std::function<bool(SplitStep)> split_observer_;
};

}  // namespace cell
