#include "cell/log/record_reader.h"

#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr uint64_t kReadBytes = uint64_t{4} << 20;

}  // namespace

absl::Status DamagedFile(const std::string& name, uint64_t offset, const std::string& what) {
  return absl::DataLossError(fmt::format(
      "{} is damaged at offset {}: {}. Nothing was recovered from it, and nothing was changed. Bring back a "
      "copy of the file, or bring the cluster up anew (--begin-anew) and restore a backup (cellctl restore)",
      name, offset, what));
}

absl::StatusOr<LogRecord> RecordReader::Next() {
  std::optional<LogRecord> record = ParseRecord(Rest(), region_);
  if (!record.has_value() && !at_end_) {
    buffer_.erase(0, at_);
    offset_ += at_;
    at_ = 0;
    while (!record.has_value() && !at_end_) {  // A record may be longer than what is read at once.
      ASSIGN_OR_RETURN(const std::string more, read_(offset_ + buffer_.size(), kReadBytes));
      at_end_ = more.size() < kReadBytes;
      buffer_ += more;
      record = ParseRecord(Rest(), region_);
      if (buffer_.size() > kRecordBytesMax + kReadBytes) break;
    }
  }
  if (!record.has_value()) return DamagedFile(name_, offset(), "there is no sound record, and it has not ended");
  if (record->sequence != ++count_ || record->epoch != epoch_) {
    return DamagedFile(name_, offset(), fmt::format("record {} is not the one that belongs there", record->sequence));
  }
  at_ += RecordBytes(record->key.size(), record->value.size());
  return *record;
}

}  // namespace cell
