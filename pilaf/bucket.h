// Bucket: the second layout's unit. Many small pairs in one piece that verifies itself as a whole, so that one read
// finds nearly every key and its value (FaRM, NSDI 2014, 3.6, reads 1.04 times a lookup at 90 % full).
//
//   [BucketHeader, 64 bytes][records, one after the other]
//
// A key has two buckets. It is in the first, unless that was full: then it is in the second, and the first has its tag
// among those that are away. A record is a pair, or says where in the extents it is:
//
//   key_bytes (2), value_bytes (2), key, value
//   key_bytes (2), 0xffff, place (4), extent (4), extent_bytes (4), CRC64 of the extent (8)
//
// A bucket's CRC is seeded with where it is and covers what is used of it. Each bucket tells the region's range, so
// that one read shows that a key is absent, too. Pure.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "cell/base/bytes.h"
#include "pilaf/hash_layout.h"

namespace cell {

inline constexpr uint32_t kBucketBytesMin = 512;
inline constexpr uint32_t kBucketBytesMax = 4096;
inline constexpr size_t kAwayMax = 16;

struct BucketHeader {
  uint64_t crc;             // Of all after it, to the last record's end.
  uint32_t version;         // Counts this bucket's changes.
  uint16_t used;            // Bytes of records.
  uint16_t count;           // Records.
  HashRange range;          // Of the region.
  uint16_t away;            // Keys of this bucket that are in their second one...
  uint16_t any;             // ...which are too many to be told: any may be, until none is.
  uint16_t tags[kAwayMax];  // Else theirs.
  uint16_t reserved[2];
};
static_assert(sizeof(BucketHeader) == 64);

constexpr bool ValidBucketBytes(uint64_t bytes) {
  return bytes >= kBucketBytesMin && bytes <= kBucketBytesMax && (bytes & (bytes - 1)) == 0;
}
// The two buckets of a key, which are different.
constexpr std::array<uint32_t, 2> BucketsOf(const KeyHash& hash, uint32_t buckets) {
  const uint32_t first = SlotOf(hash.probes[0], buckets);
  const uint32_t second = SlotOf(hash.probes[1], buckets);
  return {first, second != first ? second : (first + 1) % buckets};
}

struct BucketRecord {
  std::string_view bytes;  // All of it.
  uint16_t key_bytes = 0;
  bool in_extent = false;
  // Of a pair that is here.
  std::string_view key, value;
  // Of one that is in an extent.
  uint32_t place = 0;
  HashSlot slot{};  // Its extent, extent_bytes, extent_crc and key_bytes.
};
inline constexpr size_t kPairHeaderBytes = 4;
inline constexpr size_t kExtentRecordBytes = 24;

// A bucket, read from shared memory, that was verified.
class BucketView {
 public:
  // Nothing: torn, or not this bucket.
  static std::optional<BucketView> Parse(ConstBytes image, uint32_t region, uint64_t offset);
  // Without verifying: of the writer's own.
  explicit BucketView(const std::byte* bytes) : bytes_(bytes) {}

  BucketHeader header() const { return Load<BucketHeader>(bytes_); }
  // Whether a key of this bucket may be in its second one.
  bool MayBeAway(const KeyHash& hash) const;
  template <typename Visit>
  void ForEach(Visit visit) const {
    size_t at = 0;
    for (std::optional<BucketRecord> record = Next(&at); record.has_value(); record = Next(&at)) visit(*record);
  }
  // The key's record. `is_key` says whether a record in an extent that looks like it is.
  template <typename IsKey>
  std::optional<BucketRecord> Find(std::string_view key, const KeyHash& hash, IsKey is_key) const {
    size_t at = 0;
    for (std::optional<BucketRecord> record = Next(&at); record.has_value(); record = Next(&at)) {
      if (record->key_bytes != key.size()) continue;
      if (record->in_extent ? record->place == hash.place && is_key(*record) : record->key == key) return record;
    }
    return std::nullopt;
  }

 private:
  // The record at `at` of the records, and where the next one is. Nothing: at the end.
  std::optional<BucketRecord> Next(size_t* at) const;

  const std::byte* bytes_;
};

// A bucket as it is going to be.
class BucketDraft {
 public:
  BucketDraft(uint32_t region, uint64_t offset, uint32_t bucket_bytes)
      : region_(region), offset_(offset), bucket_bytes_(bucket_bytes) {}

  void Begin(const HashRange& range);  // An empty one.
  void CopyOf(const RegionMemory& memory);
  BucketView view() const { return BucketView(bytes_.data()); }
  void SetRange(const HashRange& range) { header().range = range; }
  size_t free_bytes() const { return bucket_bytes_ - sizeof(BucketHeader) - view().header().used; }

  // There is room for it.
  void Append(std::string_view record);
  // `record` is of view().
  void Remove(const BucketRecord& record);
  void AddAway(uint16_t tag);
  void RemoveAway(uint16_t tag);
  // With the next version.
  void Publish(RegionMemory* memory);

 private:
  BucketHeader& header() { return *reinterpret_cast<BucketHeader*>(bytes_.data()); }

  const uint32_t region_;
  const uint64_t offset_;
  const uint32_t bucket_bytes_;
  alignas(64) std::array<std::byte, kBucketBytesMax> bytes_;
};

std::string PairRecord(std::string_view key, std::string_view value);
std::string ExtentRecord(const KeyHash& hash, const HashSlot& slot);

}  // namespace cell
