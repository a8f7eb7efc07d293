// Log records: how a region's log and its checkpoints are framed, byte by byte. Pure.
//
//   [RecordHeader, 32 bytes][key][value][zeros to a multiple of 8]
//
// A record is accepted only whole: its CRC covers all but itself and the padding, and is seeded with the region, so
// that a file that came to another's place is not taken for it. What a record means is in its kind:
//
//   kBegin        -, SegmentBegin            each file's first
//   kRange        low key, RangeValue        what the meganode covers: after kBegin of a new region and of a checkpoint
//   kPut          key, value
//   kDelete       key, -
//   kRoute        key, Pointer               the child from `key` on
//   kCut          key, Pointer               the meganode ends at `key` now; the neighbour that begins there
//   kEnd          -, CheckpointEnd           a checkpoint's last: it is complete
//   kHashRange    -, HashRangeValue          as kRange, of a region that is part of a Pilaf table
//   kHashCut      -, HashCutValue            and as kCut
//   kMarker       -, -                       all records before it are on disk; written when a log has been idle
//
// A file's first record keeps its frame and the fields of SegmentBegin in every format, so that a release recognizes the
// files of a later one. Format 2 added kMarker.
//
// All but kBegin and the ranges have effects that depend on nothing but the last of each key, and on the lowest cut; so
// records may be applied to a state that already has them. Splits of nodes need no record: replay makes nodes anew, and
// no pointer from elsewhere names one but the root, whose place never changes (region.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cell/base/bytes.h"
#include "cell/layout/limits.h"
#include "cell/layout/pointer.h"

namespace cell {

enum class RecordKind : uint8_t { kBegin = 1, kRange, kPut, kDelete, kRoute, kCut, kEnd, kHashRange, kHashCut, kMarker };

struct RecordHeader {
  uint64_t crc;       // Of all that follows, padding apart, seeded with the region's id.
  uint32_t bytes;     // Header, key and value.
  uint32_t unsynced;  // How many records before this one were not known to be on disk when it was written.
  uint64_t sequence;  // One more than the last record's; in a checkpoint they count from its first.
  uint32_t epoch;     // Of ownership.
  uint16_t key_bytes;
  RecordKind kind;
  uint8_t reserved;
};
static_assert(sizeof(RecordHeader) == 32);

inline constexpr size_t kRecordAlignment = 8;
inline constexpr size_t kRecordBytesMax = sizeof(RecordHeader) + kNodeBytesMax + kValueBytesMax;
inline constexpr uint64_t kLogMagic = 0x31474f4c4c4c4543;  // "CELLLOG1" in memory order

struct SegmentBegin {
  uint64_t magic;
  uint32_t format;
  uint32_t region;
};
inline constexpr uint32_t kLogFormat = 2;     // What is written.
inline constexpr uint32_t kLogFormatMin = 1;  // The oldest that is read.

struct RangeValue {
  Pointer right;
  uint32_t high_key_bytes;  // Follow.
  uint8_t tier;
  uint8_t has_high;
  uint16_t reserved;
};
static_assert(sizeof(RangeValue) == 16);

struct HashRangeValue {
  uint32_t first;
  uint32_t last;
  uint32_t bucket_bytes;  // 0: slots.
  uint32_t reserved;
};
struct HashCutValue {
  uint32_t first;   // From there on keys are in...
  uint32_t region;  // ...this region.
};

struct CheckpointEnd {
  uint64_t records;       // Before this one.
  uint64_t log_sequence;  // The log must be there up to this record: the checkpoint may hold effects of it.
};

// A record that was verified; its key and value are where they were found.
struct LogRecord {
  RecordKind kind{};
  uint32_t epoch = 0;
  uint64_t sequence = 0;
  uint64_t synced = 0;  // Up to there records were on disk when this one was written.
  std::string_view key;
  std::string_view value;

  // Of kRoute and kCut.
  Pointer pointer() const { return Load<Pointer>(AsBytes(value).data()); }
};

// Where a record belongs.
struct RecordPlace {
  uint32_t region = 0;
  uint32_t epoch = 0;
  uint64_t sequence = 0;
  uint32_t unsynced = 0;
};

// How many bytes a record takes.
constexpr size_t RecordBytes(size_t key_bytes, size_t value_bytes) {
  return RoundUp(sizeof(RecordHeader) + key_bytes + value_bytes, kRecordAlignment);
}

// Puts a record at the end of *to. The value is `value` and then `more`.
void AppendRecord(const RecordPlace& place, RecordKind kind, std::string_view key, std::string_view value,
                  std::string_view more, std::string* to);

// Returns the record that begins at the first of `bytes`, if there is a whole one of this region with a right CRC. Its
// kind may be one of a later format.
std::optional<LogRecord> ParseFrame(std::string_view bytes, uint32_t region);
// The same, of a kind that this release knows. Sizes that a kind must have are checked; what it says is not.
std::optional<LogRecord> ParseRecord(std::string_view bytes, uint32_t region);

// The same, of bytes that it has accepted before and nobody has changed since.
LogRecord ReadRecord(const char* bytes);

}  // namespace cell
