#include "tools/backup_file.h"

#include <utility>

#include "cell/base/crc64.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr uint32_t kNoRegion = 0;

template <typename T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

}  // namespace

void PairSum::Add(std::string_view key, std::string_view value, Expiry expiry) {
  const uint64_t sizes[] = {key.size(), value.size()};  // The sizes ensure that no byte can move from the key to the
                                                        // value.
  checksum = Crc64(value, Crc64(key, Crc64(BytesOf(sizes), checksum)));
  if (expiry != kNeverExpires) checksum = Crc64(BytesOf(expiry), checksum);
  ++pairs;
}

BackupWriter::BackupWriter() {
  Append(RecordKind::kBegin, BytesOf(SegmentBegin{kBackupMagic, kBackupFormat, kNoRegion}));
}

void BackupWriter::Append(RecordKind kind, std::string_view value) {
  AppendRecord({kNoRegion, 0, ++records_, 0}, kind, "", value, {}, &chunk_);
}

absl::Status BackupWriter::Add(std::string_view key, std::string_view value, Expiry expiry) {
  if (key <= last_key_) {
    return absl::DataLossError(
        fmt::format("the scan failed after {} pairs: a key is not greater than the previous one", sum_.pairs));
  }
  last_key_ = key;
  sum_.Add(key, value, expiry);
  AppendPut({kNoRegion, 0, ++records_, 0}, {key, value, expiry}, &chunk_);
  return absl::OkStatus();
}

void BackupWriter::End() { Append(RecordKind::kEnd, BytesOf(BackupEnd{sum_.pairs, sum_.checksum})); }

BackupReader::BackupReader(RecordReader::Read read, const std::string& name, KeySource* keys)
    : name_(name),
      reader_(
          [this, read = std::move(read)](uint64_t offset, MutableBytes to) {
            absl::StatusOr<size_t> got = read(offset, to);
            if (!got.ok()) read_error_ = got.status();
            return got;
          },
          name, FileIdentity{}, keys) {}

absl::Status BackupReader::Damaged(uint64_t offset, const std::string& what) const {
  return absl::DataLossError(
      fmt::format("{} is damaged at offset {}: {}. Take another copy, or another backup", name_, offset, what));
}

absl::Status BackupReader::CheckBegin(const LogRecord& record) {
  if (record.kind != RecordKind::kBegin) return Damaged(0, "its first record is not a begin record");
  const auto begin = Load<SegmentBegin>(AsBytes(record.value).data());
  has_checksum_ = begin.magic == kBackupMagic;
  if (begin.region != kNoRegion || (!has_checksum_ && begin.magic != kLogMagic)) return Damaged(0, "it is no backup");
  if (!has_checksum_ || (begin.format >= kBackupFormatMin && begin.format <= kBackupFormat)) return absl::OkStatus();
  if (begin.format == kSealedBackupFormat) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{} has format {}, but this release reads formats 1 to {}: use the release that wrote it", name_,
                  begin.format, kSealedBackupFormat));
}

absl::Status BackupReader::CheckEnd(const LogRecord& record, uint64_t offset) {
  if (!has_checksum_) {
    const auto end = Load<CheckpointEnd>(AsBytes(record.value).data());
    if (end.records != records_ - 1) return Damaged(offset, "its end record has a different number of records");
    return absl::OkStatus();
  }
  const auto end = Load<BackupEnd>(AsBytes(record.value).data());
  if (PairSum{end.pairs, end.checksum} == sum_) return absl::OkStatus();
  return Damaged(offset, fmt::format("its end record says {} pairs with checksum {:016x}, but it has {} with {:016x}",
                                     end.pairs, end.checksum, sum_.pairs, sum_.checksum));
}

absl::StatusOr<std::optional<LogRecord>> BackupReader::Next() {
  while (!ended_) {
    const uint64_t at = reader_.offset();
    const absl::StatusOr<LogRecord> record = reader_.Next();
    if (!read_error_.ok()) return read_error_;
    // The reader's own message says what to do with a log.
    if (absl::IsDataLoss(record.status())) {
      return Damaged(at, "there is no valid record, or it was changed, but the file has not ended");
    }
    if (!record.ok()) return record.status();
    if (++records_ == 1) {
      RETURN_IF_ERROR(CheckBegin(*record));
    } else if (record->kind == RecordKind::kEnd) {
      RETURN_IF_ERROR(CheckEnd(*record, at));
      ended_ = true;
    } else if (record->kind == RecordKind::kPut && record->key > last_key_) {
      last_key_ = record->key;
      sum_.Add(record->key, record->value, record->expiry);
      return *record;
    } else {
      return Damaged(at, "it has an unexpected record");
    }
  }
  return std::nullopt;
}

}  // namespace cell
