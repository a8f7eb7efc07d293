// RecordReader reads a finished file of records, a checkpoint or a backup, one record at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/io/file/block_buffer.h"
#include "cell/layout/log_record.h"
#include "cell/log/record_cipher.h"

namespace cell {

// Returns DataLoss with file, offset, and what to do.
absl::Status DamagedFile(const std::string& name, uint64_t offset, const std::string& what);
// Returns FailedPrecondition: another release wrote the file `name`. `what` says how this was found.
absl::Status ForeignFile(const std::string& name, const std::string& what);
// Checks the first record of the file `name`. Returns FailedPrecondition, with file and format, if this release does
// not read that format. Returns DataLoss if it is not a first record, or that of another region's file.
absl::Status CheckBegin(const LogRecord& record, const std::string& name, uint32_t region);

// Not thread-safe.
class RecordReader {
 public:
  // Reads [offset, offset + to.size()) of the file, as far as it goes (Files::Read).
  using Read = std::function<absl::StatusOr<size_t>(uint64_t offset, MutableBytes to)>;

  // Reads records of the file's region and epoch, numbered from 1. `name` is for messages. `keys` open an encrypted
  // file; null: there are none. They must outlive this.
  RecordReader(Read read, const std::string& name, const FileIdentity& file, KeySource* keys)
      : read_(std::move(read)), name_(name), region_(file.region), epoch_(file.epoch), opener_(keys, name, file) {}

  // Returns the next record, valid until the next call. Returns DataLoss if there is no sound record, because a
  // finished file has an end record, or if the record of an encrypted file was changed. Returns FailedPrecondition if
  // the file cannot be decrypted (RecordOpener::Begin).
  absl::StatusOr<LogRecord> Next();
  // A record, and its offset in the file.
  struct Placed {
    LogRecord record;
    uint64_t offset;
  };
  // Sets *batch to the next record, and to those behind it that need no further read, at most kBatchRecords and not
  // beyond an end record. They are valid until the next call. Returns the errors of Next; *batch then has the records
  // before the one with the error.
  absl::Status NextBatch(std::vector<Placed>* batch);
  // Returns the offset of the next record.
  uint64_t offset() const { return read_bytes_ - (end_ - at_); }

 private:
  std::string_view Rest() const { return AsText({buffer_.data() + at_, end_ - at_}); }
  absl::Status ReadOn();
  // Checks and opens the record at the beginning of what is left, and goes on to the next.
  absl::Status Accept(LogRecord* record);

  static constexpr size_t kBatchRecords = 256;

  const Read read_;
  const std::string name_;
  const uint32_t region_;
  const uint32_t epoch_;
  RecordOpener opener_;
  BlockBuffer buffer_;
  size_t at_ = 0, end_ = 0;  // Bytes that were read but not returned yet.
  uint64_t read_bytes_ = 0;  // Position in the file.
  uint64_t count_ = 0;
  bool at_end_ = false;
};

}  // namespace cell
