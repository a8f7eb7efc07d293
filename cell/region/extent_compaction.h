// ExtentCompaction makes one free piece of extents of a region whose free space is scattered, a few extents at a time,
// while the region is used. Pure.
//
// A pass empties a *window* of the extents area. It collects the free blocks outside of the window, visits all pairs of
// the region, and moves the extents in the window to those blocks (PairStore::MoveExtents). The largest free block is a
// part of the window, so that as little as possible is moved. Nothing that is stored changes, and readers need nothing
// new.
//
// An extent stays in the window if no free block outside is large enough for it. Then the free piece is smaller than
// the window. Ordinary allocations may use the window meanwhile.
//
// One pass of a region at a time. The region may go while it is compacted; the pass then has no further use. Not
// thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "cell/region/pair_store.h"

namespace cell {

class ExtentCompaction {
 public:
  // A region is compacted in the background if its free space is at least this share of the area, and if the largest
  // piece of it has less than a quarter of it.
  static constexpr double kFreeShareMin = 1.0 / 8;
  static constexpr double kFragmentationMin = 0.75;

  // Returns whether a pass in the background is worth its work.
  static bool Pays(const PairStore& store);
  // Returns whether an extent of `bytes` bytes finds no room only because the free space is scattered.
  static bool MayMakeRoom(const PairStore& store, uint64_t bytes);

  // Says which window a pass empties.
  enum class Aim : uint8_t {
    kHalf,   // As large as half of the free space, and as the extent needs; to the right of the largest free block.
    kLeast,  // As large as the extent needs, to the left of that block: another attempt if the first was in vain.
  };

  // Begins a pass over `store`, which all calls get. `bytes`: the size of an extent that needs room; 0: none does.
  ExtentCompaction(PairStore* store, uint64_t bytes, Aim aim = Aim::kHalf);

  // Moves some extents: about `bytes_max` bytes at most, and at least one if there is one. Returns DataLoss if a leaf
  // was damaged in memory: the pass cannot go on then. REQUIRES: not ended(), and those of PairStore::MoveExtents.
  absl::Status Step(PairStore* store, uint64_t bytes_max);
  // Frees the memory of a pass that does not go on, although it has not ended.
  static void End(PairStore* store) { store->extent_allocator()->EndSearch(); }
  // Returns whether the pass has visited all pairs.
  bool ended() const { return moves_.ended; }

  // Return how many extents were moved so far, and the bytes of their keys and values.
  uint64_t moved() const { return moves_.extents; }
  uint64_t moved_bytes() const { return moves_.bytes; }

 private:
  bool collected_ = false;
  PairStore::ExtentMoves moves_;
};

}  // namespace cell
