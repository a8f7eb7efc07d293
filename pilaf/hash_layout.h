// Defines the parts of a Pilaf table that clients read with one-sided reads, byte by byte. Pure.
//
//   [RegionHeader, one page][HashHeader, one page][slots: 32 bytes each, or buckets (bucket.h)][extents]
//
// Everything is self-verifying (thesis, 3.3). A slot has a CRC of itself, seeded with its position, and the CRC of the
// extent that it points at. A slot with only zero bytes was never written, and is empty. A slot never crosses a cache
// line's border.
//
// A region holds the keys of one part of its table's hash space. The header names that part. When the part shrinks, the
// header is changed first, before any pair that belongs to another region now. When it grows by a join, the header is
// changed last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "cell/layout/expiry.h"
#include "cell/layout/region.h"
#include "pilaf/key_hash.h"

namespace cell {

inline constexpr uint64_t kHashMagic = 0x314853414846504c;  // "LPFHASH1" in memory order
inline constexpr uint64_t kHashHeaderOffset = kRegionHeaderBytes;
inline constexpr uint64_t kUnitsOffset = kHashHeaderOffset + 4096;

// Returns what requests to a part of a table name. It is not the root of a meganode (RootOf), so that a worker can tell
// which of the two a client takes a region for.
constexpr Pointer HashRootOf(uint32_t region) { return Pointer(region, kUnitsOffset); }

// Gives a part of the hash space, by KeyHash::position. Both ends are inclusive.
struct HashRange {
  uint32_t first = 0;
  uint32_t last = UINT32_MAX;
  bool Has(const KeyHash& hash) const { return hash.position >= first && hash.position <= last; }
  bool operator==(const HashRange&) const = default;
};

struct HashHeader {
  uint64_t magic;
  uint32_t region;
  uint32_t units;  // Number of slots or buckets.
  HashRange range;
  uint32_t bucket_bytes;  // 0: the units are slots.
  uint32_t invalidated;   // Not 0: the region was invalidated because another worker has it.
  uint32_t joins;         // How often the range has grown.
  uint32_t reserved[5];
  uint64_t crc;  // Covers everything before it.

  bool Serves(const KeyHash& hash) const { return invalidated == 0 && range.Has(hash); }
};
static_assert(sizeof(HashHeader) == 64);

struct HashSlot {
  uint32_t extent;          // Offset from the beginning of the extents, in words of 8 bytes.
  uint32_t extent_bytes;    // Key and value, and the expiry if the pair has one.
  uint64_t extent_crc;      // ExtentCrc of the pair.
  uint32_t version;         // Counts this slot's changes.
  uint16_t tag;             // KeyHash::tag
  uint16_t key_bytes : 14;  // 0: the slot is empty.
  uint16_t held : 1;        // A transaction holds a key that is here, or may come here: ask the owner.
  uint16_t expires : 1;     // The pair has an expiry.
  uint64_t crc;             // Covers everything before it. Seeded with the slot's position.

  bool in_use() const { return key_bytes != 0; }
  size_t pair_bytes() const { return extent_bytes - (expires != 0 ? sizeof(Expiry) : 0); }  // Key and value.
};
static_assert(sizeof(HashSlot) == 32 && kUnitsOffset % 64 == 0);
inline constexpr uint16_t kSlotKeyBytesMask = (1 << 14) - 1;
static_assert(kHashKeyBytesMax <= kSlotKeyBytesMask);
static_assert(kExtentsBytesMax / kWordBytes - 1 <= UINT32_MAX);

// Gives the positions of a hash region's parts.
struct HashGeometry {
  uint32_t region = 0;
  uint32_t units = 0;         // Number of slots or buckets.
  uint32_t bucket_bytes = 0;  // 0: the units are slots.
  uint64_t extents_offset = 0;
  uint64_t extents_bytes = 0;

  uint32_t unit_bytes() const { return bucket_bytes == 0 ? sizeof(HashSlot) : bucket_bytes; }
  uint64_t OffsetOf(uint32_t unit) const { return kUnitsOffset + uint64_t{unit} * unit_bytes(); }
  uint64_t ExtentOf(const HashSlot& slot) const { return extents_offset + uint64_t{slot.extent} * kWordBytes; }
  bool InBounds(const HashSlot& slot) const {
    const uint64_t from = uint64_t{slot.extent} * kWordBytes;
    const size_t expiry_bytes = slot.expires != 0 ? sizeof(Expiry) : 0;
    return from <= extents_bytes && slot.extent_bytes <= extents_bytes - from &&
           slot.key_bytes + expiry_bytes <= slot.extent_bytes && slot.pair_bytes() - slot.key_bytes <= kValueBytesMax;
  }
};
// Returns the positions for a region of this shape. Slots or buckets take the space of a meganode's nodes.
HashGeometry GeometryOf(uint32_t region, const RegionShape& shape, uint32_t bucket_bytes);

// A pair as it is stored: [key][value], and [Expiry] behind them if it has one.
struct HashPair {
  std::string_view key;
  std::string_view value;
  Expiry expiry = kNeverExpires;
  bool outside = false;  // It is in an extent.
};
// Returns what a slot or record says of its extent: the CRC of key and value, with the expiry mixed in.
uint64_t ExtentCrc(uint64_t pair_crc, Expiry expiry);
// Returns the pair in a slot's extent, which has slot.extent_bytes bytes. REQUIRES: the slot is InBounds.
HashPair PairIn(const HashSlot& slot, std::string_view extent);
// Works like PairIn, and returns nullopt if the extent is not, or no longer, the one that the slot names.
std::optional<HashPair> ParseExtent(const HashSlot& slot, std::string_view extent);

uint64_t SlotCrc(const HashSlot& slot, uint32_t region, uint32_t at);
uint64_t HeaderCrc(const HashHeader& header);

// Verify images. Return nullopt if the image is torn, or is not a slot of this position. The slot's extent may be
// anywhere (InBounds).
std::optional<HashSlot> ParseSlot(const std::byte* image, uint32_t region, uint32_t at);
std::optional<HashHeader> ParseHashHeader(const std::byte* image, uint32_t region);

}  // namespace cell
