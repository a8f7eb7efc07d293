// RecordReader: a file of records that was finished, checkpoint or backup, one record after the other.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "cell/io/file/block_buffer.h"
#include "cell/layout/log_record.h"

namespace cell {

// DataLoss, naming file and offset, and what to do.
absl::Status DamagedFile(const std::string& name, uint64_t offset, const std::string& what);
// FailedPrecondition: another release wrote the file `name`; `what` says how that is seen.
absl::Status ForeignFile(const std::string& name, const std::string& what);
// Checks the first record of the file `name`. FailedPrecondition, naming file and format, when this release does not
// read that format. DataLoss when it is no beginning, or that of another region's file.
absl::Status CheckBegin(const LogRecord& record, const std::string& name, uint32_t region);

// Not thread-safe.
class RecordReader {
 public:
  // Of [offset, offset + to.size()) of the file, what there is (Files::Read).
  using Read = std::function<absl::StatusOr<size_t>(uint64_t offset, MutableBytes to)>;

  // Its records are of this region and epoch, and numbered from 1. `name`: for messages.
  RecordReader(Read read, std::string name, uint32_t region, uint32_t epoch)
      : read_(std::move(read)), name_(std::move(name)), region_(region), epoch_(epoch) {}

  // The next record, valid until the next call. DataLoss when there is none that is sound: a file that was finished has
  // an end of its own.
  absl::StatusOr<LogRecord> Next();
  // Where that will be.
  uint64_t offset() const { return read_bytes_ - (end_ - at_); }

 private:
  std::string_view Rest() const { return AsText({buffer_.data() + at_, end_ - at_}); }
  absl::Status ReadOn();

  const Read read_;
  const std::string name_;
  const uint32_t region_;
  const uint32_t epoch_;
  BlockBuffer buffer_;
  size_t at_ = 0, end_ = 0;  // What of it was read and not told.
  uint64_t read_bytes_ = 0;  // Of the file.
  uint64_t count_ = 0;
  bool at_end_ = false;
};

}  // namespace cell
