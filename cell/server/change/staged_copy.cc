#include "cell/server/change/staged_copy.h"

#include "cell/base/status_macros.h"
#include "cell/layout/node.h"
#include "fmt/format.h"
#include "pilaf/bucket.h"

namespace cell {

absl::Status StagedCopy::TakeHeader(const std::byte* page) {
  const auto header = Load<RegionHeader>(page);
  hash_ = header.magic == kHashMagic;
  const bool known = hash_ ? header.node_bytes == sizeof(HashSlot) || ValidBucketBytes(header.node_bytes)
                           : header.magic == kRegionMagic && header.node_bytes == shape_.node_bytes;
  if (!known) return absl::DataLossError("the copied data is not a region of this cluster");
  unit_bytes_ = header.node_bytes;
  return absl::OkStatus();
}

void StagedCopy::Hide(std::byte* page, uint64_t offset) const {
  if (!hash_) {
    for (uint64_t at = 0; at < WrittenPages::kPageBytes; at += unit_bytes_) Store(page + at, kVersionGone);
    return;
  }
  if (offset == kHashHeaderOffset) {
    auto header = Load<HashHeader>(page);
    header.invalidated = 1;
    if (header.crc == HeaderCrc(Load<HashHeader>(page))) header.crc = HeaderCrc(header);
    return Store(page, header);
  }
  const uint64_t crc = unit_bytes_ == sizeof(HashSlot) ? offsetof(HashSlot, crc) : offsetof(BucketHeader, crc);
  for (uint64_t at = crc; at < WrittenPages::kPageBytes; at += unit_bytes_) {
    const auto word = Load<uint64_t>(page + at);
    if (word != 0) Store(page + at, ~word);  // 0: never written.
  }
}

absl::Status StagedCopy::WritePages(std::byte* from, uint64_t offset, uint64_t pages) {
  for (; pages > 0; --pages, from += WrittenPages::kPageBytes, offset += WrittenPages::kPageBytes) {
    if (offset == 0) RETURN_IF_ERROR(TakeHeader(from));
    if (unit_bytes_ == 0) return absl::DataLossError("the copy did not begin with the region's header");
    if (offset >= kRegionHeaderBytes && offset < shape_.extents_offset()) Hide(from, offset);
    CopyToShared(from, memory_->base() + offset, WrittenPages::kPageBytes);
  }
  return absl::OkStatus();
}

}  // namespace cell
