// Allocates extents inside a region's extents area, by offset.
//
// Uses two-level segregated fit (Masmano, Ripoll, Crespo, Real, ECRTS 2004): operations take constant time, blocks are
// 16 bytes or larger, and free neighbours are merged at once. (The thesis, 5.1, uses SQLite's mem5, a buddy allocator,
// which wastes up to half of a block.) All state is in the region, so that a region can be mapped anywhere and walked
// by the checker: the heads of the free lists are in the header page, the rest is in the blocks.
//
// A block is a header word (its units, its left neighbour's units, a free bit) followed by the extent, which is 8-byte
// aligned and padded to the end of the block. Headers are stored as atomic words, because a reader with an old pointer
// may be reading there. Thread-safety: only the region's writing thread may call it.
//
// The allocator checks the words of the header page and of the blocks before it follows them. A word that cannot be
// right means that memory was damaged. Then the allocator allocates and frees nothing any more, because it might give
// out blocks that are in use.
//
// Free space becomes scattered over many small blocks, and an extent that is larger than each of them finds no room.
// ExtentCompaction then moves extents out of a window of the area, by AllocateOutside, until it is one free block.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/layout/region.h"
#include "cell/region/region_memory.h"

namespace cell {

class ExtentAllocator {
 public:
  // REQUIRES: the positions of the extents area are in the region's header. They do not change.
  explicit ExtentAllocator(RegionMemory* memory)
      : memory_(memory),
        area_(memory->header().extents_offset),
        total_units_(static_cast<uint32_t>(memory->header().extents_bytes / kUnitBytes)) {}

  // Returns whether damage was found.
  bool damaged() const { return damaged_; }

  // Makes the whole area one free block. REQUIRES: extents_bytes is a multiple of 4096 and at most kExtentsBytesMax.
  void Format();

  // Allocates `bytes` (at least 1) bytes and returns their region offset. Returns nullopt if no free block is large
  // enough, or if damage was found.
  std::optional<uint64_t> Allocate(uint64_t bytes);
  // Works like Allocate, and stores key, value and `end` there, one after the other.
  std::optional<uint64_t> Store(std::string_view key, std::string_view value, std::string_view end = {});
  // Frees an extent. REQUIRES: `offset` came from Allocate or Store and was not freed since. If it did not, because
  // memory was damaged, or if damage was found, the extent stays in use.
  void Free(uint64_t offset);
  // Prefetch the words that Free will read for an extent of `bytes` bytes: first its header and its right neighbour's,
  // then, by what those say, its left neighbour's header and the neighbours in the right one's free list. A caller that
  // frees several extents makes the first call for each, then the second for each, so that cache misses overlap.
  void PrefetchFree(uint64_t offset, uint64_t bytes) const;
  void PrefetchNeighbours(uint64_t offset) const;

  // Returns whether Allocate would find room.
  bool Fits(uint64_t bytes) const;
  // Returns how large a free piece is in which Allocate finds room for `bytes` bytes in any case.
  static uint64_t PieceFor(uint64_t bytes);

  // A part of the area, from one region offset up to another.
  struct Window {
    uint64_t begin = 0;
    uint64_t end = 0;
    // Returns whether a part of this extent's block is inside.
    bool Has(uint64_t offset, uint64_t bytes) const;
  };
  // Returns the largest of the free blocks that usage() looks at, with its header. Returns an empty window if nothing
  // is free.
  Window LargestFree() const;
  // Begins to collect the free blocks outside of `window`, for extents that are moved out of it. Until EndSearch, what
  // was collected is kept up to date by all other calls. It takes about 12 bytes of memory for each block.
  void BeginSearch(const Window& window);
  // Collects from some blocks. Returns whether all were looked at.
  bool Collect();
  // Works like Allocate, but takes the smallest block of those collected that is large enough. Returns nullopt after
  // EndSearch.
  std::optional<uint64_t> AllocateOutside(uint64_t bytes);
  void EndSearch() { search_.reset(); }
  // Copies an extent of `bytes` bytes to another, which was allocated for as many.
  void Copy(uint64_t from, uint64_t to, uint64_t bytes) {
    memory_->Store(to, memory_->at(from), RegionShape::RoundUp(bytes, kWordBytes));
  }

  struct Usage {
    uint64_t blocks = 0;
    uint64_t bytes_used = 0;  // Includes block headers and padding.
    uint64_t bytes_total = 0;
    uint64_t largest_free_bytes = 0;  // The largest free block, with its header, of those the free lists begin with.
    // Returns 1 - largest / all free. Returns 0 if the free space is one piece.
    double fragmentation() const;
  };
  Usage usage() const;

  // Returns how many bytes fit into the extent at `offset`. Returns nullopt if the block there is
  // not in use.
  std::optional<uint64_t> RoomOf(uint64_t offset) const;

  // Calls `visit` with the offset and room of every block in use, in address order. Returns an error if the area is
  // damaged: the blocks do not add up, two free blocks are neighbours, or the free lists disagree with the blocks.
  using Visit = std::function<void(uint64_t offset, uint64_t room_bytes)>;
  absl::Status Walk(const Visit& visit) const;
  // Works like Walk, some blocks at a time. REQUIRES: the region has not been changed since the first call.
  struct WalkState {
    uint64_t at = 1;  // The next block.
    uint32_t left_units = 0;
    bool left_free = false;
    absl::btree_set<uint32_t> free_blocks;
    // Then, the free lists: the next class, and the next block of its list.
    int next_class = 0;
    uint32_t in_list = 0;
    size_t listed = 0;
  };
  // Returns whether all were visited.
  absl::StatusOr<bool> WalkSome(WalkState* state, size_t blocks, const Visit& visit) const;

 private:
  static constexpr uint64_t kUnitBytes = 16;

  // See BeginSearch.
  struct Search {
    Window window;
    uint32_t next = 1;                                    // The next block to be looked at.
    absl::btree_set<std::pair<uint32_t, uint32_t>> free;  // Sizes in units, and blocks.
  };

  struct Block {
    uint32_t units;
    uint32_t left_units;  // 0: this is the first block.
    bool free;
  };

  static uint64_t UnitsFor(uint64_t bytes);
  // Returns whether a block can be at `at`, and have these sizes.
  bool InArea(uint64_t at) const { return at >= 1 && at <= total_units_; }
  bool Sound(uint64_t at, Block block) const {
    return InArea(at) && block.units >= 1 && block.units <= total_units_ + 1 - at && block.left_units < at;
  }
  // Returns whether a free block, and its neighbours in the free list, can be followed.
  bool CanUnlink(uint32_t at, Block block) const;
  bool CanLink(uint32_t units) const;
  uint64_t Links(uint32_t at) const;

  Block Get(uint32_t at) const;
  void Set(uint32_t at, Block block);
  void Link(uint32_t at, uint32_t units);
  void Collect(uint32_t at, uint32_t units);
  void Unlink(uint32_t at, uint32_t units);
  std::optional<uint32_t> FindFree(uint32_t units) const;
  uint32_t FindLargest() const;
  // Takes a free block of at least `units` units, and frees what is not needed of it. Returns nullopt if the block is
  // damaged.
  std::optional<uint64_t> Take(uint32_t at, uint32_t units);
  uint64_t WordOffset(uint32_t at, int word) const;
  uint32_t total_units() const { return total_units_; }
  ExtentAllocatorState& state() const { return memory_->header().extents; }

  RegionMemory* memory_;
  const uint64_t area_;
  const uint32_t total_units_;
  bool damaged_ = false;
  std::unique_ptr<Search> search_;  // Null, except from BeginSearch to EndSearch.
};

}  // namespace cell
