// RecordReader: a file of records that was finished, checkpoint or backup, one record after the other.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "cell/layout/log_record.h"

namespace cell {

// DataLoss, naming file and offset, and what to do.
absl::Status DamagedFile(const std::string& name, uint64_t offset, const std::string& what);

// Not thread-safe.
class RecordReader {
 public:
  // Of [offset, offset + bytes) of the file, what there is.
  using Read = std::function<absl::StatusOr<std::string>(uint64_t offset, uint64_t bytes)>;

  // Its records are of this region and epoch, and numbered from 1. `name`: for messages.
  RecordReader(Read read, std::string name, uint32_t region, uint32_t epoch)
      : read_(std::move(read)), name_(std::move(name)), region_(region), epoch_(epoch) {}

  // The next record, valid until the next call. DataLoss when there is none that is sound: a file that was finished has
  // an end of its own.
  absl::StatusOr<LogRecord> Next();
  // Where that will be.
  uint64_t offset() const { return offset_ + at_; }

 private:
  std::string_view Rest() const { return std::string_view(buffer_).substr(at_); }

  const Read read_;
  const std::string name_;
  const uint32_t region_;
  const uint32_t epoch_;
  std::string buffer_;
  uint64_t offset_ = 0;  // Of the buffer.
  size_t at_ = 0;
  uint64_t count_ = 0;
  bool at_end_ = false;
};

}  // namespace cell
