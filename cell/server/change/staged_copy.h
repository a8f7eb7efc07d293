// StagedCopy copies a region's pages into memory that readers may still map from an earlier time when the region was
// here.
//
// The former owner continues to write while pages are copied, so nothing that readers find here may look valid. Each
// node is stored as an invalidated one, each slot and bucket with its CRC inverted, as PairStore::Invalidate does. When
// the whole region has arrived, PairStore::Restore makes it valid. Not thread-safe.
#pragma once

#include "absl/status/status.h"
#include "cell/layout/region.h"
#include "cell/region/region_memory.h"

namespace cell {

class StagedCopy {
 public:
  StagedCopy(RegionMemory* memory, const RegionShape& shape) : memory_(memory), shape_(shape) {}

  // Stores `pages` whole pages at `offset`, and modifies `from` in the process. The first call must begin with the
  // header's page. Returns DataLoss if that has no valid region header.
  absl::Status WritePages(std::byte* from, uint64_t offset, uint64_t pages);

 private:
  absl::Status TakeHeader(const std::byte* page);
  // Makes a page of nodes, slots or buckets invalid.
  void Hide(std::byte* page, uint64_t offset) const;

  RegionMemory* const memory_;
  const RegionShape shape_;
  bool hash_ = false;
  uint32_t unit_bytes_ = 0;  // Size of a node, slot or bucket; 0: the header has not come yet.
};

}  // namespace cell
