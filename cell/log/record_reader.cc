#include "cell/log/record_reader.h"

#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

}  // namespace

absl::Status DamagedFile(const std::string& name, uint64_t offset, const std::string& what) {
  return absl::DataLossError(
      fmt::format("{} is damaged at offset {}: {}. Nothing was recovered from it, and nothing was changed. Restore a "
                  "copy of the file, or delete the cluster (//tools:wipe) and restore a backup (cellctl restore)",
                  name, offset, what));
}

absl::Status ForeignFile(const std::string& name, const std::string& what) {
  return absl::FailedPreconditionError(fmt::format(
      "{} was written by another release: {}. Nothing was recovered from it, and nothing was changed. Use the release "
      "that wrote it, or a later one",
      name, what));
}

absl::Status CheckBegin(const LogRecord& record, const std::string& name, uint32_t region) {
  if (record.kind != RecordKind::kBegin) return DamagedFile(name, 0, "its first record is not a begin record");
  const auto begin = Load<SegmentBegin>(AsBytes(record.value).data());
  if (begin.magic != kLogMagic || begin.region != region) {
    return DamagedFile(name, 0, "it is not a log or checkpoint of this region");
  }
  if (begin.format >= kLogFormatMin && begin.format <= kSealedLogFormat) return absl::OkStatus();
  return ForeignFile(name, fmt::format("it has format {}, but this release reads formats {} to {}", begin.format,
                                       kLogFormatMin, kSealedLogFormat));
}

// Reads more of the file behind the bytes that are left. These end at a block's border, so that the file's blocks are
// read to such a border.
absl::Status RecordReader::ReadOn() {
  const size_t left = end_ - at_;
  const size_t to = RoundUp(left, kBlockBytes);
  std::memmove(buffer_.data() + to - left, buffer_.data() + at_, left);
  at_ = to - left;
  ASSIGN_OR_RETURN(const size_t more, read_(read_bytes_, {buffer_.data() + to, kReadBytes}));
  end_ = to + more;
  read_bytes_ += more;
  at_end_ = more < kReadBytes;
  return absl::OkStatus();
}

absl::StatusOr<LogRecord> RecordReader::Next() {
  if (buffer_.size() == 0) buffer_ = BlockBuffer(RoundUp(kRecordBytesMax, kBlockBytes) + kReadBytes);
  std::optional<LogRecord> record = ParseRecord(Rest(), region_);
  while (!record.has_value() && !at_end_ &&
         end_ - at_ <= kRecordBytesMax) {  // It may be longer than what is read at once.
    RETURN_IF_ERROR(ReadOn());
    record = ParseRecord(Rest(), region_);
  }
  if (!record.has_value()) return DamagedFile(name_, offset(), "there is no valid record, but the file has not ended");
  RETURN_IF_ERROR(Accept(&*record));
  return *record;
}

absl::Status RecordReader::Accept(LogRecord* record) {
  if (record->sequence != ++count_ || record->epoch != epoch_) {
    return DamagedFile(name_, offset(), fmt::format("record {} is not the expected record", record->sequence));
  }
  if (count_ == 1 && record->kind == RecordKind::kBegin) {
    RETURN_IF_ERROR(opener_.Begin(*record));
  } else {
    RETURN_IF_ERROR(opener_.Open(record, offset()));
  }
  at_ += record->bytes();
  return absl::OkStatus();
}

absl::Status RecordReader::NextBatch(std::vector<Placed>* batch) {
  batch->clear();
  const uint64_t first = offset();
  ASSIGN_OR_RETURN(const LogRecord record, Next());
  batch->push_back({record, first});
  while (batch->size() < kBatchRecords && batch->back().record.kind != RecordKind::kEnd) {
    std::optional<LogRecord> next = ParseRecord(Rest(), region_);
    if (!next.has_value()) break;  // It was not read completely, or the next call says what is wrong.
    const uint64_t at = offset();
    RETURN_IF_ERROR(Accept(&*next));
    batch->push_back({*next, at});
  }
  return absl::OkStatus();
}

}  // namespace cell
