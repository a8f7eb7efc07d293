#include "pilaf/hash_layout.h"

#include "cell/base/bytes.h"
#include "cell/base/crc64.h"

namespace cell {

HashGeometry GeometryOf(uint32_t region, const RegionShape& shape, uint32_t bucket_bytes) {
  const uint64_t extents_offset = kRegionHeaderBytes + RegionShape::RoundUp(shape.meganode_bytes, 4096);
  HashGeometry geometry{region, 0, bucket_bytes, extents_offset, shape.extents_bytes};
  geometry.units = static_cast<uint32_t>((extents_offset - kUnitsOffset) / geometry.unit_bytes());
  return geometry;
}

uint64_t ExtentCrc(uint64_t pair_crc, Expiry expiry) {
  return expiry == kNeverExpires ? pair_crc
                                 : pair_crc ^ Crc64({reinterpret_cast<const std::byte*>(&expiry), sizeof(expiry)});
}

HashPair PairIn(const HashSlot& slot, std::string_view extent) {
  HashPair pair{extent.substr(0, slot.key_bytes), extent.substr(slot.key_bytes, slot.pair_bytes() - slot.key_bytes)};
  pair.outside = true;
  if (slot.expires != 0) pair.expiry = Load<Expiry>(AsBytes(extent).data() + slot.pair_bytes());
  return pair;
}

std::optional<HashPair> ParseExtent(const HashSlot& slot, std::string_view extent) {
  const HashPair pair = PairIn(slot, extent);
  if (ExtentCrc(Crc64(extent.substr(0, slot.pair_bytes())), pair.expiry) != slot.extent_crc) return std::nullopt;
  return pair;
}

uint64_t SlotCrc(const HashSlot& slot, uint32_t region, uint32_t at) {
  return Crc64({reinterpret_cast<const std::byte*>(&slot), offsetof(HashSlot, crc)},
               Pointer(region, kUnitsOffset + uint64_t{at} * sizeof(HashSlot)).raw());
}

uint64_t HeaderCrc(const HashHeader& header) {
  return Crc64({reinterpret_cast<const std::byte*>(&header), offsetof(HashHeader, crc)});
}

std::optional<HashSlot> ParseSlot(const std::byte* image, uint32_t region, uint32_t at) {
  const auto slot = Load<HashSlot>(image);
  static constexpr HashSlot kNeverWritten{};
  if (std::memcmp(&slot, &kNeverWritten, sizeof(slot)) != 0 && slot.crc != SlotCrc(slot, region, at)) {
    return std::nullopt;
  }
  return slot;
}

std::optional<HashHeader> ParseHashHeader(const std::byte* image, uint32_t region) {
  const auto header = Load<HashHeader>(image);
  if (header.magic != kHashMagic || header.region != region || header.crc != HeaderCrc(header)) return std::nullopt;
  return header;
}

}  // namespace cell
