// Bucket is the unit of the second layout. It holds many small pairs in one piece that verifies itself as a whole, so
// that one read finds nearly every key and its value (FaRM, NSDI 2014, 3.6, needs 1.04 reads per lookup at 90 % full).
//
//   [BucketHeader, 64 bytes][records, one after the other]
//
// A key has two buckets. It is in the first unless that was full when the key was put. Then it is in the second, and
// the first bucket lists its tag among the keys that are away. A record is a pair, or gives the position of its extent:
//
//   key_bytes (2), value_bytes (2), key, value, and the expiry (8) if the pair has one
//   key_bytes (2), 0xffff, position (4), extent (4), extent_bytes (4), ExtentCrc (8)
//
// The highest bit of key_bytes says that the pair has an expiry.
// A bucket's CRC is seeded with its position and covers the used part. Each bucket holds the region's range, so that
// one read also shows that a key is absent. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "cell/base/bytes.h"
#include "pilaf/hash_layout.h"

namespace cell {

inline constexpr uint32_t kBucketBytesMin = 512;
inline constexpr uint32_t kBucketBytesMax = 4096;
inline constexpr size_t kAwayMax = 16;

struct BucketHeader {
  uint64_t crc;      // Covers everything after it, to the end of the last record.
  uint32_t version;  // Counts this bucket's changes.
  uint16_t used;     // Bytes of records.
  uint16_t count;    // Number of records.
  HashRange range;   // Range of the region.
  uint16_t away;     // Number of keys of this bucket that are in their second one.
  uint16_t any;      // Number of those when they are too many for `tags`: any key may be away then, until none is.
  uint16_t tags[kAwayMax];  // Their tags otherwise.
  uint16_t held;            // Not 0: a transaction holds a key that is here, or may come here: ask the owner.
  uint16_t reserved;
};
static_assert(sizeof(BucketHeader) == 64);

constexpr bool ValidBucketBytes(uint64_t bytes) {
  return bytes >= kBucketBytesMin && bytes <= kBucketBytesMax && (bytes & (bytes - 1)) == 0;
}
// Returns how many bytes the key, the value and the expiry of a pair in a bucket may have. A larger one is in an
// extent.
constexpr uint32_t BucketInlineMax(uint32_t bucket_bytes) { return bucket_bytes / 8; }
// Returns the two buckets of a key. They differ.
constexpr std::array<uint32_t, 2> BucketsOf(const KeyHash& hash, uint32_t buckets) {
  const uint32_t first = SlotOf(hash.probes[0], buckets);
  const uint32_t second = SlotOf(hash.probes[1], buckets);
  return {first, second != first ? second : (first + 1) % buckets};
}

struct BucketRecord {
  std::string_view bytes;  // The whole record.
  uint16_t key_bytes = 0;
  bool in_extent = false;
  // Set if the pair is in the record.
  std::string_view key, value;
  Expiry expiry = kNeverExpires;
  // Set if the pair is in an extent.
  uint32_t position = 0;
  HashSlot slot{};  // Its extent, extent_bytes, extent_crc, key_bytes and expires.
};
inline constexpr uint16_t kRecordExpires = 0x8000;  // In key_bytes.
inline constexpr uint16_t kInExtent = UINT16_MAX;   // Value of value_bytes.
inline constexpr size_t kPairHeaderBytes = 4;
inline constexpr size_t kExtentRecordBytes = 24;
inline constexpr size_t kExtentInRecord = 8;  // Where the extent is in such a record.

// Returns what a bucket's `crc` must be. REQUIRES: its `used` does not reach beyond its end.
uint64_t BucketCrc(const std::byte* bytes, uint32_t region, uint64_t offset);

// Reads a verified image of a bucket.
class BucketView {
 public:
  // Verifies an image from shared memory. Returns nullopt if it is torn, or is not this bucket.
  static std::optional<BucketView> Parse(ConstBytes image, uint32_t region, uint64_t offset);
  // Reads a bucket of the writer's own without verification.
  explicit BucketView(const std::byte* bytes) : bytes_(bytes) {}

  BucketHeader header() const { return Load<BucketHeader>(bytes_); }
  // Returns whether a key of this bucket may be in its second one.
  bool MayBeAway(const KeyHash& hash) const;
  template <typename Visit>
  void ForEach(Visit visit) const {
    size_t at = 0;
    for (std::optional<BucketRecord> record = Next(&at); record.has_value(); record = Next(&at)) visit(*record);
  }
  // Returns the key's record. `is_key` decides whether a matching record in an extent has this key.
  template <typename IsKey>
  std::optional<BucketRecord> Find(std::string_view key, const KeyHash& hash, IsKey is_key) const {
    size_t at = 0;
    for (std::optional<BucketRecord> record = Next(&at); record.has_value(); record = Next(&at)) {
      if (record->key_bytes != key.size()) continue;
      if (record->in_extent ? record->position == hash.position && is_key(*record) : record->key == key) return record;
    }
    return std::nullopt;
  }

 private:
  // Returns the record at offset *at and advances *at to the next one. Returns nullopt at the end.
  std::optional<BucketRecord> Next(size_t* at) const;

  const std::byte* bytes_;
};

}  // namespace cell
