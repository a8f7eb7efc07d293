// Defines the bytes that `cellctl backup` writes and `cellctl restore` reads: all pairs of a tree, in key order. They
// are a file, or pieces in a pool (backup_place.h).
//
// It consists of log records (log_record.h) without a region:
//
//   kBegin   -, SegmentBegin    kBackupMagic, kBackupFormat
//   kPut, kPutExpiring          a pair; each key is greater than the one before
//   kEnd     -, BackupEnd       the number of pairs, and the checksum over all of them
//
// Format 1 had the magic of logs, and at its end the number of records without a checksum. Format 3 added kPutExpiring.
// Both earlier formats can be read.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/layout/log_record.h"
#include "cell/log/record_reader.h"

namespace cell {

inline constexpr uint64_t kBackupMagic = 0x31504b424c4c4543;  // "CELLBKP1" in memory order.
inline constexpr uint32_t kBackupFormat = 3;
inline constexpr uint32_t kBackupFormatMin = 2;  // The oldest with kBackupMagic that can be read.

// Holds the number of pairs and a checksum over all of them, in their order.
struct PairSum {
  uint64_t pairs = 0;
  uint64_t checksum = 0;

  void Add(std::string_view key, std::string_view value, Expiry expiry);
  bool operator==(const PairSum&) const = default;
};

struct BackupEnd {
  uint64_t pairs;
  uint64_t checksum;
};
static_assert(sizeof(BackupEnd) == sizeof(CheckpointEnd));  // Required of a record of this kind.

// Composes a backup's records.
class BackupWriter {
 public:
  BackupWriter();

  // Adds a pair. Returns DataLoss if the key is not greater than the last one, which means that the scan is wrong.
  absl::Status Add(std::string_view key, std::string_view value, Expiry expiry);
  // Adds the end. Nothing may be added afterwards.
  void End();

  // Return the size of what was composed since the last Take, and take it.
  size_t bytes() const { return chunk_.size(); }
  std::string Take() { return std::exchange(chunk_, {}); }

  const PairSum& sum() const { return sum_; }

 private:
  void Append(RecordKind kind, std::string_view value);

  std::string chunk_;
  std::string last_key_;
  uint64_t records_ = 0;
  PairSum sum_;
};

// Reads a backup, one pair at a time.
class BackupReader {
 public:
  // `name` is the file's, for messages. `keys` open an encrypted backup; null: there are none.
  BackupReader(RecordReader::Read read, const std::string& name, KeySource* keys = nullptr);
  BackupReader(const BackupReader&) = delete;
  BackupReader& operator=(const BackupReader&) = delete;

  // Returns the next pair, valid until the next call. Returns nullopt after the last one if the count and the checksum
  // at the file's end are right. Returns DataLoss if the file is damaged or not a backup, and FailedPrecondition if
  // another release wrote it. Returns an error of `read` as it is.
  absl::StatusOr<std::optional<LogRecord>> Next();

  // Returns how much of the file has been read.
  uint64_t offset() const { return reader_.offset(); }
  // Returns the sum of the pairs that were returned.
  const PairSum& sum() const { return sum_; }

 private:
  absl::Status Damaged(uint64_t offset, const std::string& what) const;
  absl::Status CheckBegin(const LogRecord& record);
  absl::Status CheckEnd(const LogRecord& record, uint64_t offset);

  const std::string name_;
  absl::Status read_error_;  // Of `read`.
  RecordReader reader_;
  uint64_t records_ = 0;
  bool has_checksum_ = false;  // Format 1 has none.
  bool ended_ = false;
  std::string last_key_;
  PairSum sum_;
};

}  // namespace cell
