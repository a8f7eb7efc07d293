#include "cell/log/log_replay.h"

#include <algorithm>

#include "cell/base/status_macros.h"
#include "cell/log/record_reader.h"
#include "fmt/format.h"

namespace cell {
namespace {

absl::Status Damaged(const LogPart& part, uint64_t offset, const std::string& what) {
  return DamagedFile(part.name, offset, what);
}

RecordReader Reader(LogStore* store, uint32_t region, const LogPart& part) {
  const auto read = [store, region, part](uint64_t offset, uint64_t bytes) {
    return store->Read(region, part, offset, bytes);
  };
  return RecordReader(read, part.name, region, part.epoch);
}

bool RightBegin(const LogRecord& record, uint32_t region) {
  if (record.kind != RecordKind::kBegin) return false;
  const auto begin = Load<SegmentBegin>(AsBytes(record.value).data());
  return begin.magic == kLogMagic && begin.format == kLogFormat && begin.region == region;
}

MeganodeRange RangeOf(const LogRecord& record) {
  const auto value = Load<RangeValue>(AsBytes(record.value).data());
  MeganodeRange range{value.tier, std::string(record.key), std::nullopt, value.right};
  if (value.has_high != 0) range.high = std::string(record.value.substr(sizeof(value)));
  return range;
}

// A checkpoint's first two records.
absl::StatusOr<MeganodeRange> ReadBegin(RecordReader* reader, uint32_t region, const LogPart& part) {
  ASSIGN_OR_RETURN(const LogRecord begin, reader->Next());
  if (!RightBegin(begin, region)) return Damaged(part, 0, "it is no checkpoint of this release");
  ASSIGN_OR_RETURN(const LogRecord range, reader->Next());
  if (range.kind != RecordKind::kRange) return Damaged(part, reader->offset(), "its range is missing");
  return RangeOf(range);
}

}  // namespace

absl::Status LogReplay::Open() {
  ASSIGN_OR_RETURN(const std::vector<LogPart> parts, store_->List(region_));
  std::vector<LogPart> segments;
  for (const LogPart& part : parts) {
    if (part.kind == LogPart::Kind::kSegment) {
      segments.push_back(part);
    } else if (!checkpoint_.has_value() || part.sequence >= checkpoint_->sequence) {
      checkpoint_ = part;
    }
  }
  uint64_t start = 1;
  if (checkpoint_.has_value()) {
    start = checkpoint_->sequence;
    RecordReader reader = Reader(store_, region_, *checkpoint_);
    ASSIGN_OR_RETURN(range_, ReadBegin(&reader, region_, *checkpoint_));
    has_range_ = true;
  }
  next_sequence_ = start;
  for (size_t i = 0; i < segments.size(); ++i) {
    // What a later owner wrote counts, from its first record on.
    uint64_t limit = UINT64_MAX;
    for (size_t j = i + 1; j < segments.size(); ++j) limit = std::min(limit, segments[j].sequence);
    if (limit <= std::max(segments[i].sequence, start)) continue;
    RETURN_IF_ERROR(ReadSegment(segments[i], limit, i + 1 == segments.size()));
  }
  if (!has_range_) {
    if (next_sequence_ <= 2) return absl::NotFoundError(fmt::format("the log of region {} was only begun", region_));
    return Damaged(segments[0], 0, "the region's range is missing");
  }
  keys_.reserve(last_.size());
  for (const auto& [key, record] : last_) keys_.push_back(key);
  std::sort(keys_.begin(), keys_.end());
  return absl::OkStatus();
}

absl::Status LogReplay::ReadSegment(const LogPart& part, uint64_t limit, bool last) {
  if (part.sequence > next_sequence_) {
    return Damaged(part, 0, fmt::format("records {} to {}, before it, are missing", next_sequence_, part.sequence - 1));
  }
  ASSIGN_OR_RETURN(std::string bytes, store_->Read(region_, part, 0, UINT64_MAX));
  segments_.push_back(std::make_unique<std::string>(std::move(bytes)));
  const std::string_view all = *segments_.back();
  size_t at = 0;
  uint64_t expected = part.sequence;
  while (expected < limit) {
    const std::optional<LogRecord> record = ParseRecord(all.substr(at), region_);
    if (!record.has_value() || record->sequence != expected || record->epoch != part.epoch ||
        (at == 0 && !RightBegin(*record, region_))) {
      break;
    }
    if (expected >= next_sequence_) RETURN_IF_ERROR(Apply(*record, part, at));
    at += RecordBytes(record->key.size(), record->value.size());
    ++expected;
  }
  next_sequence_ = std::max(next_sequence_, expected);
  log_bytes_ += at;
  if (expected == limit) return absl::OkStatus();
  if (!last) {
    // The next segment was begun after this one was complete.
    return Damaged(part, at, fmt::format("record {} is not whole, and later ones are there", expected));
  }
  return FindEnd(part, all.substr(at), at, expected);
}

// From `offset` on there is no record of the expected sequence: whether the log ends there.
absl::Status LogReplay::FindEnd(const LogPart& part, std::string_view rest, uint64_t offset, uint64_t expected) {
  torn_bytes_ += rest.size();
  for (size_t at = 0; at + sizeof(RecordHeader) <= rest.size(); at += kRecordAlignment) {
    const std::optional<LogRecord> record = ParseRecord(rest.substr(at), region_);
    if (!record.has_value() || record->epoch != part.epoch || record->synced < expected) continue;
    return Damaged(
        part, offset,
        fmt::format("record {} is not whole, though record {}, at offset {}, was written after it was on disk",
                    expected, record->sequence, offset + at));
  }
  return absl::OkStatus();
}

absl::Status LogReplay::Apply(const LogRecord& record, const LogPart& part, uint64_t offset) {
  ++records_;
  switch (record.kind) {
    case RecordKind::kBegin:
      if (offset == 0) break;
      return Damaged(part, offset, "a beginning in the middle");
    case RecordKind::kRange:
      range_ = RangeOf(record);
      has_range_ = true;
      break;
    case RecordKind::kPut:
    case RecordKind::kDelete:
    case RecordKind::kRoute:
      last_[record.key] = record;
      break;
    case RecordKind::kCut:
      // A checkpoint that was begun before the cut may have the range as it was after it.
      if (!range_.high.has_value() || record.key < *range_.high) {
        range_.high = std::string(record.key);
        range_.right = record.pointer();
      }
      cuts_.push_back(record.pointer());
      break;
    case RecordKind::kEnd:
      return Damaged(part, offset, "a checkpoint's end in a log");
  }
  return absl::OkStatus();
}

absl::Status LogReplay::ForEach(const Visit& visit) const {
  auto tail = keys_.begin();
  const auto visit_tail = [&]() -> absl::Status {
    const LogRecord& record = last_.at(*tail++);
    if (record.kind == RecordKind::kDelete || !InRange(record.key)) return absl::OkStatus();
    return visit(record.key, record.value);
  };
  if (checkpoint_.has_value()) {
    RecordReader reader = Reader(store_, region_, *checkpoint_);
    RETURN_IF_ERROR(ReadBegin(&reader, region_, *checkpoint_).status());
    std::string last_key;
    for (uint64_t records = 2;; ++records) {
      const uint64_t offset = reader.offset();
      ASSIGN_OR_RETURN(const LogRecord record, reader.Next());
      if (record.kind == RecordKind::kEnd) {
        const auto end = Load<CheckpointEnd>(AsBytes(record.value).data());
        if (end.records != records) return Damaged(*checkpoint_, offset, "it has not as many records as its end says");
        if (end.log_sequence >= next_sequence_) {
          return Damaged(*checkpoint_, offset,
                         fmt::format("it needs the log up to record {}, which ends with {}", end.log_sequence,
                                     next_sequence_ - 1));
        }
        break;
      }
      if ((record.kind != RecordKind::kPut && record.kind != RecordKind::kRoute) ||
          (records > 2 && record.key <= last_key)) {
        return Damaged(*checkpoint_, offset, "its records are out of order");
      }
      last_key = record.key;
      while (tail != keys_.end() && *tail < record.key) RETURN_IF_ERROR(visit_tail());
      if (tail != keys_.end() && *tail == record.key) {
        RETURN_IF_ERROR(visit_tail());
      } else if (InRange(record.key)) {
        RETURN_IF_ERROR(visit(record.key, record.value));
      }
    }
  }
  while (tail != keys_.end()) RETURN_IF_ERROR(visit_tail());
  return absl::OkStatus();
}

}  // namespace cell
