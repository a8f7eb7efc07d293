#include "cell/region/extent_compaction.h"

#include <algorithm>

#include "cell/base/status_macros.h"

namespace cell {

bool ExtentCompaction::Pays(const PairStore& store) {
  const ExtentAllocator::Usage usage = store.extents();
  const auto free = static_cast<double>(usage.bytes_total - usage.bytes_used);
  return !store.extents_damaged() && free >= kFreeShareMin * static_cast<double>(usage.bytes_total) && free > 0 &&
         usage.fragmentation() > kFragmentationMin;
}

bool ExtentCompaction::MayMakeRoom(const PairStore& store, uint64_t bytes) {
  const ExtentAllocator::Usage usage = store.extents();
  return !store.extents_damaged() && usage.bytes_used + ExtentAllocator::PieceFor(bytes) <= usage.bytes_total &&
         !store.extent_allocator().Fits(bytes);
}

ExtentCompaction::ExtentCompaction(PairStore* store, uint64_t bytes, Aim aim) {
  const uint64_t begin = store->header().extents_offset;
  const uint64_t end = begin + store->header().extents_bytes;
  const ExtentAllocator::Usage usage = store->extents();
  const ExtentAllocator::Window piece = store->extent_allocator()->LargestFree();
  const uint64_t least = ExtentAllocator::PieceFor(bytes);
  const uint64_t size = aim == Aim::kLeast ? least : std::max(least, (usage.bytes_total - usage.bytes_used) / 2);
  if (piece.end <= piece.begin || size > end - begin) {  // Nothing is free, or memory was damaged.
    moves_.ended = true;
    return;
  }
  if (aim == Aim::kHalf) {
    moves_.window.begin = std::min(piece.begin, end - size);
  } else {
    moves_.window.begin = std::max(piece.end, begin + size) - size;
  }
  moves_.window.end = moves_.window.begin + size;
  store->extent_allocator()->BeginSearch(moves_.window);
}

absl::Status ExtentCompaction::Step(PairStore* store, uint64_t bytes_max) {
  if (!collected_) {
    collected_ = store->extent_allocator()->Collect();
    return absl::OkStatus();
  }
  moves_.bytes_max = bytes_max;
  RETURN_IF_ERROR(store->MoveExtents(&moves_));
  if (moves_.ended) End(store);
  return absl::OkStatus();
}

}  // namespace cell
