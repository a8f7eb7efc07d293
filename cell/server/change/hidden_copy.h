// HiddenCopy: a region's pages on their way into memory that readers may know, from when the region was here before.
// What they find there must not look whole before the region is served here, for its owner still writes: so every node
// comes as one that is given up, every slot and bucket with a CRC that is turned round, as by PairStore::GiveUp. When
// the region has arrived, PairStore::Restore shows it. One thread.
#pragma once

#include "absl/status/status.h"
#include "cell/layout/region.h"

namespace cell {

class HiddenCopy {
 public:
  HiddenCopy(RegionMemory* memory, const RegionShape& shape) : memory_(memory), shape_(shape) {}

  // Puts `pages` whole pages to `offset`; changes `from`, which is private. The header's page is the first of all.
  // DataLoss: its header is none.
  absl::Status Place(std::byte* from, uint64_t offset, uint64_t pages);

 private:
  absl::Status TakeHeader(const std::byte* page);
  // A page of nodes, slots or buckets.
  void Hide(std::byte* page, uint64_t offset) const;

  RegionMemory* const memory_;
  const RegionShape shape_;
  bool hash_ = false;
  uint32_t unit_bytes_ = 0;  // Of a node, slot, bucket; 0: the header has not come yet.
};

}  // namespace cell
