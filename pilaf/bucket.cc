#include "pilaf/bucket.h"

#include <algorithm>

#include "cell/base/crc64.h"

namespace cell {

uint64_t BucketCrc(const std::byte* bytes, uint32_t region, uint64_t offset) {
  const size_t end = sizeof(BucketHeader) + Load<BucketHeader>(bytes).used;
  return Crc64({bytes + sizeof(uint64_t), end - sizeof(uint64_t)}, Pointer(region, offset).raw());
}

std::optional<BucketView> BucketView::Parse(ConstBytes image, uint32_t region, uint64_t offset) {
  const auto header = Load<BucketHeader>(image.data());
  if (sizeof(BucketHeader) + header.used > image.size() || header.crc != BucketCrc(image.data(), region, offset)) {
    return std::nullopt;
  }
  return BucketView(image.data());
}

bool BucketView::MayBeAway(const KeyHash& hash) const {
  const BucketHeader h = header();
  if (h.any != 0 || h.away > kAwayMax) return true;
  return std::find(h.tags, h.tags + h.away, hash.tag()) != h.tags + h.away;
}

std::optional<BucketRecord> BucketView::Next(size_t* at) const {
  const size_t left = header().used - *at;
  const std::byte* const from = bytes_ + sizeof(BucketHeader) + *at;
  if (left < kPairHeaderBytes) return std::nullopt;
  BucketRecord record;
  const auto key_bytes = Load<uint16_t>(from);
  const bool expires = (key_bytes & kRecordExpires) != 0;
  record.key_bytes = key_bytes & ~kRecordExpires;
  const auto value_bytes = Load<uint16_t>(from + 2);
  record.in_extent = value_bytes == kInExtent;
  const size_t pair_bytes = kPairHeaderBytes + record.key_bytes + value_bytes;
  const size_t bytes = record.in_extent ? kExtentRecordBytes : pair_bytes + (expires ? sizeof(Expiry) : 0);
  if (bytes > left) return std::nullopt;
  record.bytes = AsText({from, bytes});
  if (record.in_extent) {
    record.position = Load<uint32_t>(from + 4);
    record.slot.extent = Load<uint32_t>(from + 8);
    record.slot.extent_bytes = Load<uint32_t>(from + 12);
    record.slot.extent_crc = Load<uint64_t>(from + 16);
    record.slot.key_bytes = record.key_bytes & kSlotKeyBytesMask;
    record.slot.expires = expires;
  } else {
    record.key = record.bytes.substr(kPairHeaderBytes, record.key_bytes);
    record.value = record.bytes.substr(kPairHeaderBytes + record.key_bytes, value_bytes);
    if (expires) record.expiry = Load<Expiry>(from + pair_bytes);
  }
  *at += bytes;
  return record;
}

}  // namespace cell
