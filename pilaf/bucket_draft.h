// BucketDraft composes the new content of a bucket for the region's writing thread, and publishes it whole. Readers use
// BucketView (bucket.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cell/region/region_memory.h"
#include "pilaf/bucket.h"

namespace cell {

class BucketDraft {
 public:
  BucketDraft(uint32_t region, uint64_t offset, uint32_t bucket_bytes)
      : region_(region), offset_(offset), bucket_bytes_(bucket_bytes) {}

  void Begin(const HashRange& range);  // Begins an empty bucket.
  void CopyOf(const RegionMemory& memory);
  BucketView view() const { return BucketView(bytes_.data()); }
  void SetRange(const HashRange& range) { header().range = range; }
  void SetHeld(bool held) { header().held = held; }
  size_t free_bytes() const { return bucket_bytes_ - sizeof(BucketHeader) - view().header().used; }

  // Appends a record. REQUIRES: there is room for it.
  void Append(std::string_view record);
  // Removes a record. REQUIRES: `record` is from view().
  void Remove(const BucketRecord& record);
  // Makes the record that points at the extent `from` point at `to` (HashSlot::extent), which has the same content.
  void Repoint(uint32_t from, uint32_t to);
  void AddAway(uint16_t tag);
  void RemoveAway(uint16_t tag);
  // Writes the bucket with the next version.
  void Publish(RegionMemory* memory);

 private:
  BucketHeader& header() { return *reinterpret_cast<BucketHeader*>(bytes_.data()); }

  const uint32_t region_;
  const uint64_t offset_;
  const uint32_t bucket_bytes_;
  alignas(64) std::array<std::byte, kBucketBytesMax> bytes_;
};

// Compose the two kinds of record.
std::string PairRecord(const HashPair& pair);
std::string ExtentRecord(const KeyHash& hash, const HashSlot& slot);

}  // namespace cell
