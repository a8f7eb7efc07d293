// Allocates extents inside a region's extents area, by offset.
//
// Two-level segregated fit (Masmano, Ripoll, Crespo, Real, ECRTS 2004): constant time, blocks from 16 bytes up, merged
// with free neighbours at once. (The thesis, 5.1, uses SQLite's mem5, a buddy allocator, which loses up to half of a
// block.) All state is in the region: the free lists' heads in its header page, the rest in the blocks, so that a
// region can be mapped anywhere and walked by the checker.
//
// A block is a header word (its units, its left neighbour's units, a free bit) and then the extent, which is 8-byte
// aligned and padded to the block's end. Headers are stored as atomic words: a reader with an old pointer may be
// reading there. Thread-safety: the region's writing thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cell/layout/region.h"

namespace cell {

class ExtentAllocator {
 public:
  explicit ExtentAllocator(RegionMemory* memory) : memory_(memory) {}

  // Makes the whole area one free block. extents_bytes is a multiple of 4096, at most kExtentsBytesMax.
  void Format();

  // The region offset of `bytes` (at least 1) free bytes, or nothing when no block is large enough.
  std::optional<uint64_t> Allocate(uint64_t bytes);
  // The same, and puts key and value there, one after the other.
  std::optional<uint64_t> Store(std::string_view key, std::string_view value);
  // `offset` came from Allocate or Store and was not freed since.
  void Free(uint64_t offset);
  // Fetches what Free of an extent of so many bytes will look at.
  void PrefetchFree(uint64_t offset, uint64_t bytes) const;

  struct Usage {
    uint64_t blocks = 0;
    uint64_t bytes_used = 0;  // With block headers and padding.
    uint64_t bytes_total = 0;
    uint64_t largest_free_bytes = 0;  // The largest extent that is sure to fit, from the free lists.
    // 1 - largest / all free: 0 when what is free is in one piece.
    double fragmentation() const;
  };
  Usage usage() const;

  // Calls `visit` with the offset and room of every block in use, in address order. Fails on damage: blocks that do
  // not add up, two free neighbours, or free lists that disagree with the blocks.
  absl::Status Walk(const std::function<void(uint64_t offset, uint64_t room_bytes)>& visit) const;

 private:
  struct Block {
    uint32_t units;
    uint32_t left_units;  // 0: the first block.
    bool free;
  };

  Block Get(uint32_t at) const;
  void Set(uint32_t at, Block block);
  void Link(uint32_t at, uint32_t units);
  void Unlink(uint32_t at, uint32_t units);
  std::optional<uint32_t> FindFree(uint32_t units) const;
  uint64_t WordOffset(uint32_t at, int word) const;
  uint32_t total_units() const;
  ExtentAllocatorState& state() const { return memory_->header().extents; }

  RegionMemory* memory_;
};

}  // namespace cell
