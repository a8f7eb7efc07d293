// Defines the records of a region's log and of its checkpoints, byte by byte. Pure.
//
//   [RecordHeader, 32 bytes][key][value][zeros to a multiple of 8]
//
// A record is accepted only whole. Its CRC covers everything except itself and the padding. The CRC is seeded with the
// region, so that a file of another region that was copied here is not accepted. The kind says what a record means:
//
//   kBegin        -, SegmentBegin            first record of each file
//   kRange        low key, RangeValue        range of the meganode; after kBegin of a new region and of a checkpoint
//   kPut          key, value
//   kDelete       key, -
//   kRoute        key, Pointer               the child from `key` on
//   kCut          key, CutValue              the meganode ends at `key` now
//   kEnd          -, CheckpointEnd           last record of a checkpoint: it is complete
//   kHashRange    -, HashRangeValue          like kRange, for a region that is part of a Pilaf table
//   kHashCut      -, HashCutValue            like kCut, for a region that is part of a Pilaf table
//   kMarker       -, -                       all records before it are on disk; written when a log has been idle
//   kJoin         -, JoinValue               the meganode has what its right neighbour had, if that is gone from the
//                                            region table: the pairs are in the records since the last kCut
//   kClear        -, -                       the meganode has none of the pairs that it had
//   kHashJoin     -, HashJoinValue           like kJoin, for a region that is part of a Pilaf table: the pairs are
//                                            in the records since the last kHashCut
//   kPutExpiring  key, Expiry and value      like kPut, for a pair with an expiry
//   kPutStamped   key, stamp and value       like kPut, for a pair with a stamp (node.h)
//   kPutStampedExpiring
//                 key, stamp, Expiry, value  like kPut, for a pair with both
//   kStampBound   -, stamp                   no put is given a higher stamp before a later one of these is on disk
//   kApplied      key, outcome, stamp, Expiry, value
//                                            like kPut, for a put by a request that must take effect only once
//                                            (outcome.h). The expiry can be none
//   kOutcome      -, outcome                 the outcome of an earlier such request
//   kPrepared     -, prepared part           a transaction's part (transaction.h): nothing is decided yet
//   kDecided      -, outcome                 what was decided of the part that was prepared with the outcome's id. If
//   it
//                                            is `changed`, the part's writes take effect, with the outcome's stamp
//
// The records of an encrypted file are sealed (cell/log/record_cipher.h), except for the first one, whose value a
// SealBegin follows. In a sealed record key and value are encrypted, and a tag follows them, which its size counts:
//
//   [RecordHeader, flags kSealed][encrypted key and value][tag, 16 bytes][zeros to a multiple of 8]
//
// The first record of a file keeps its frame and the fields of SegmentBegin in every format, so that a release
// recognizes the files of a later one. Format 2 added kMarker, format 3 kJoin and kClear, format 4 kPutExpiring and
// kHashJoin, format 5 the epochs of the other region in cuts and joins, format 7 kPutStamped, kPutStampedExpiring
// and kStampBound, format 9 kApplied and kOutcome, and format 11 kPrepared and kDecided. Formats 6, 8, 10 and 12 are
// those of encrypted files whose records are of formats 5, 7, 9 and 11.
//
// Replaying a record twice is safe. The effect of all records except kBegin and the ranges depends only on the last
// record of each key, on the cuts and clears before it and on the last cut or join, so records may be applied to a
// state that already includes them, if all that follow are applied, too. Splits of nodes need no records: replay builds
// new nodes. Pointers from elsewhere name only the root, whose position never changes (region.h).
//
// A join begins with a kCut, or a kHashCut, at the region's end: what an earlier attempt has copied there does not
// count.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "cell/base/bytes.h"
#include "cell/layout/expiry.h"
#include "cell/layout/limits.h"
#include "cell/layout/outcome.h"
#include "cell/layout/pointer.h"
#include "cell/layout/transaction.h"

namespace cell {

enum class RecordKind : uint8_t {
  kBegin = 1,
  kRange,
  kPut,
  kDelete,
  kRoute,
  kCut,
  kEnd,
  kHashRange,
  kHashCut,
  kMarker,
  kJoin,
  kClear,
  kPutExpiring,
  kHashJoin,
  kPutStamped,
  kPutStampedExpiring,
  kStampBound,
  kApplied,
  kOutcome,
  kPrepared,
  kDecided
};

struct RecordHeader {
  uint64_t crc;       // Covers everything after this field except the padding. Seeded with the region's id.
  uint32_t bytes;     // Header, key and value.
  uint32_t unsynced;  // Number of records before this one that were not known to be on disk when it was written.
  uint64_t sequence;  // One more than that of the record before. In a checkpoint they count from its first record.
  uint32_t epoch;     // Ownership epoch.
  uint16_t key_bytes;
  RecordKind kind;
  uint8_t flags;  // kSealed; other bits are zero.
};
static_assert(sizeof(RecordHeader) == 32);

inline constexpr uint8_t kSealed = 1;
inline constexpr uint8_t kOpened = 2;  // Only in memory: a sealed record that was opened in place.
inline constexpr size_t kSealTagBytes = 16;

inline constexpr size_t kRecordAlignment = 8;
inline constexpr size_t kRecordBytesMax = sizeof(RecordHeader) + kNodeBytesMax + kOutcomeBytesMax + sizeof(uint64_t) +
                                          sizeof(Expiry) + kValueBytesMax + kSealTagBytes;
static_assert(kRecordBytesMax >= sizeof(RecordHeader) + kPreparedBytesMax + kSealTagBytes);
inline constexpr uint64_t kLogMagic = 0x31474f4c4c4c4543;  // "CELLLOG1" in memory order

struct SegmentBegin {
  uint64_t magic;
  uint32_t format;
  uint32_t region;
};
inline constexpr uint32_t kLogFormat = 11;    // The format that is written.
inline constexpr uint32_t kLogFormatMin = 1;  // The oldest format that can be read.
inline constexpr uint32_t kSealedLogFormat = 12;
constexpr bool IsSealedLogFormat(uint32_t format) {
  return format == 6 || format == 8 || format == 10 || format == kSealedLogFormat;
}
inline constexpr uint32_t kSealedBackupFormat = 4;  // Of tools/backup_file.h.

// Follows SegmentBegin in an encrypted file.
struct SealBegin {
  std::byte key_id[8];  // DataKey::id.
  std::byte salt[32];   // Random.
};
static_assert(sizeof(SealBegin) == 40);

struct RangeValue {
  Pointer right;
  uint32_t high_key_bytes;  // The high key follows.
  uint8_t tier;
  uint8_t has_high;
  uint16_t reserved;
};
static_assert(sizeof(RangeValue) == 16);

// Region ids are used again, so cuts and joins say at which epoch the other region was. Before format 5 they did not:
// their values end before that, or it is 0.

// Names the new right neighbour.
struct CutValue {
  Pointer right;
  uint32_t epoch;
  uint32_t reserved;
};
static_assert(sizeof(CutValue) == 16);

// Says which region was joined, and where the meganode ends then. The high key follows.
struct JoinValue {
  Pointer right;
  uint32_t region;
  uint32_t high_key_bytes;
  uint32_t epoch;
  uint8_t has_high;
  uint8_t reserved[3];
};
static_assert(sizeof(JoinValue) == 24);

struct HashRangeValue {
  uint32_t first;
  uint32_t last;
  uint32_t bucket_bytes;  // 0: the part has slots instead of buckets.
  uint32_t reserved;
};
struct HashCutValue {
  uint32_t first;   // Keys from this hash position on...
  uint32_t region;  // ...are in this region.
  uint32_t epoch;
};

struct HashJoinValue {
  uint32_t region;  // The region that was joined.
  uint32_t last;    // The last hash position that it had.
  uint32_t epoch;
};

struct CheckpointEnd {
  uint64_t records;       // Number of records before this one.
  uint64_t log_sequence;  // The log must be present up to this record, because the checkpoint may hold its effects.
};

// Returns the number of bytes that a record takes.
constexpr size_t RecordBytes(size_t key_bytes, size_t value_bytes) {
  return RoundUp(sizeof(RecordHeader) + key_bytes + value_bytes, kRecordAlignment);
}

// Holds a verified record. Its key and value point into the bytes that it was parsed from.
struct LogRecord {
  RecordKind kind{};
  uint32_t epoch = 0;
  uint64_t sequence = 0;
  uint64_t synced = 0;  // Records up to this sequence number were on disk when this one was written.
  std::string_view key;
  std::string_view value;
  // Set for puts. All kinds of puts have the kind kPut here, and `value` is the value of the pair.
  uint64_t stamp = 0;  // 0: it has none.
  Expiry expiry = kNeverExpires;
  std::string_view outcome = {};  // Of a put. Empty: it has none.

  bool sealed = false;  // It is in a sealed record. Key and value are encrypted until they are opened.

  // Returns the number of bytes that the record takes.
  size_t bytes() const {
    const size_t stamp_bytes = stamp == 0 ? 0 : sizeof(stamp);
    const size_t facts_bytes =
        outcome.empty() ? stamp_bytes + ExpiryBytes(expiry) : outcome.size() + sizeof(stamp) + sizeof(expiry);
    return RecordBytes(key.size(), facts_bytes + value.size() + (sealed ? kSealTagBytes : 0));
  }
  // Returns the pointer of a kRoute or kCut record.
  Pointer pointer() const { return Load<Pointer>(AsBytes(value).data()); }
  // Returns a value of fixed size. Fields that it does not have, because its format is older, are 0.
  template <typename T>
  T ValueAs() const {
    T fixed{};
    std::memcpy(&fixed, value.data(), std::min(sizeof(fixed), value.size()));
    return fixed;
  }
};

// Identifies a record's log and its position there.
struct RecordContext {
  uint32_t region = 0;
  uint32_t epoch = 0;
  uint64_t sequence = 0;
  uint32_t unsynced = 0;
};

// A pair as a log has it.
struct LoggedPair {
  std::string_view key;
  std::string_view value;
  Expiry expiry = kNeverExpires;
  uint64_t stamp = 0;             // 0: none.
  std::string_view outcome = {};  // Of the request that puts it. Empty: it has none.
};
// Appends a put's record, of the kind that has what the pair has.
void AppendPut(const RecordContext& context, const LoggedPair& pair, std::string* to);
// Appends a record to *to. Its value is `value` followed by `more`.
void AppendRecord(const RecordContext& context, RecordKind kind, std::string_view key, std::string_view value,
                  std::string_view more, std::string* to);

// Parses the record at the beginning of `bytes`. Returns nullopt unless there is a whole record of this region with a
// valid CRC. Its kind may belong to a later format.
std::optional<LogRecord> ParseFrame(std::string_view bytes, uint32_t region);
// Works like ParseFrame, but returns nullopt for kinds that this release does not know. Checks the sizes that the kind
// prescribes, but not the content. Of a sealed record only the header counts (OpenedRecord).
std::optional<LogRecord> ParseRecord(std::string_view bytes, uint32_t region);

// Reads a record that was accepted before and has not changed since, or was opened in place.
LogRecord ReadRecord(const char* bytes);
// Reads a sealed record that was accepted and then opened in place. Returns nullopt if its sizes are not those that its
// kind prescribes.
std::optional<LogRecord> OpenedRecord(const char* bytes);

}  // namespace cell
