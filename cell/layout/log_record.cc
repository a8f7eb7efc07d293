#include "cell/layout/log_record.h"

#include <algorithm>
#include <cstddef>

#include "cell/base/crc64.h"

namespace cell {
namespace {

bool IsKnown(RecordKind kind) { return kind >= RecordKind::kBegin && kind <= RecordKind::kDecided; }

bool SizesFit(const LogRecord& record) {
  switch (record.kind) {
    case RecordKind::kBegin:
      return record.value.size() >= sizeof(SegmentBegin);
    case RecordKind::kRange:
      return record.value.size() >= sizeof(RangeValue) &&
             record.value.size() - sizeof(RangeValue) == Load<RangeValue>(AsBytes(record.value).data()).high_key_bytes;
    case RecordKind::kPut:
      return !record.key.empty() && record.value.size() <= kValueBytesMax;
    case RecordKind::kDelete:
      return !record.key.empty() && record.value.empty();
    case RecordKind::kRoute:
      return record.value.size() == sizeof(Pointer);
    case RecordKind::kCut:
      return record.value.size() == sizeof(CutValue) || record.value.size() == sizeof(Pointer);
    case RecordKind::kEnd:
      return record.value.size() == sizeof(CheckpointEnd);
    case RecordKind::kHashRange:
      return record.value.size() == sizeof(HashRangeValue);
    case RecordKind::kHashCut:
      return record.value.size() == sizeof(HashCutValue) || record.value.size() == offsetof(HashCutValue, epoch);
    case RecordKind::kHashJoin:
      return record.key.empty() &&
             (record.value.size() == sizeof(HashJoinValue) || record.value.size() == offsetof(HashJoinValue, epoch));
    case RecordKind::kPutExpiring:
    case RecordKind::kPutStamped:
    case RecordKind::kPutStampedExpiring:
    case RecordKind::kApplied:
      return false;  // ReadRecord makes a kPut of it if what it prescribes is there.
    case RecordKind::kStampBound:
      return record.key.empty() && record.value.size() == sizeof(uint64_t) &&
             record.ValueAs<uint64_t>() <= kLastStampMax;
    case RecordKind::kPrepared:
      return record.key.empty() && ParsePrepared(record.value).ok();
    case RecordKind::kOutcome:
    case RecordKind::kDecided:
      return record.key.empty() && OutcomeBytes(record.value) == record.value.size();
    case RecordKind::kMarker:
    case RecordKind::kClear:
      return record.key.empty() && record.value.empty();
    case RecordKind::kJoin:
      return record.value.size() >= sizeof(JoinValue) &&
             record.value.size() - sizeof(JoinValue) == Load<JoinValue>(AsBytes(record.value).data()).high_key_bytes;
  }
  return false;
}

bool HasStamp(RecordKind kind) { return kind == RecordKind::kPutStamped || kind == RecordKind::kPutStampedExpiring; }
bool HasExpiry(RecordKind kind) { return kind == RecordKind::kPutExpiring || kind == RecordKind::kPutStampedExpiring; }

// Makes a kPut of a put's record of another kind, if what its kind prescribes is there and valid.
void ReadPut(LogRecord* record) {
  LogRecord put = *record;
  put.kind = RecordKind::kPut;
  const auto take = [&put](uint64_t* to) {
    if (put.value.size() < sizeof(*to)) return false;
    *to = Load<uint64_t>(AsBytes(put.value).data());
    put.value.remove_prefix(sizeof(*to));
    return true;
  };
  if (record->kind == RecordKind::kApplied) {
    const std::optional<size_t> outcome_bytes = OutcomeBytes(put.value);
    if (!outcome_bytes.has_value()) return;
    put.outcome = put.value.substr(0, *outcome_bytes);
    put.value.remove_prefix(*outcome_bytes);
    if (!take(&put.stamp) || put.stamp == 0 || put.stamp > kLastStampMax || !take(&put.expiry)) return;
    if (put.expiry != kNeverExpires && put.expiry > kExpiryMax) return;
    *record = put;
    return;
  }
  if (HasStamp(record->kind) && (!take(&put.stamp) || put.stamp == 0 || put.stamp > kLastStampMax)) return;
  if (HasExpiry(record->kind) && (!take(&put.expiry) || put.expiry == kNeverExpires || put.expiry > kExpiryMax)) return;
  *record = put;
}

}  // namespace

void AppendPut(const RecordContext& context, const LoggedPair& pair, std::string* to) {
  if (!pair.outcome.empty()) {
    std::string facts(pair.outcome);
    const uint64_t words[2] = {pair.stamp, pair.expiry};
    facts.append(reinterpret_cast<const char*>(words), sizeof(words));
    return AppendRecord(context, RecordKind::kApplied, pair.key, facts, pair.value, to);
  }
  constexpr RecordKind kKinds[2][2] = {{RecordKind::kPut, RecordKind::kPutExpiring},
                                       {RecordKind::kPutStamped, RecordKind::kPutStampedExpiring}};
  const bool stamped = pair.stamp != 0, expires = pair.expiry != kNeverExpires;
  const uint64_t words[2] = {stamped ? pair.stamp : pair.expiry, pair.expiry};
  const std::string_view bytes(reinterpret_cast<const char*>(words), (stamped + expires) * sizeof(uint64_t));
  AppendRecord(context, kKinds[stamped][expires], pair.key, bytes, pair.value, to);
}

void AppendRecord(const RecordContext& context, RecordKind kind, std::string_view key, std::string_view value,
                  std::string_view more, std::string* to) {
  RecordHeader header{};
  header.bytes = static_cast<uint32_t>(sizeof(header) + key.size() + value.size() + more.size());
  header.unsynced = context.unsynced;
  header.sequence = context.sequence;
  header.epoch = context.epoch;
  header.key_bytes = static_cast<uint16_t>(key.size());
  header.kind = kind;
  const size_t at = to->size();
  to->append(reinterpret_cast<const char*>(&header), sizeof(header));
  to->append(key).append(value).append(more);
  const std::string_view checked = std::string_view(*to).substr(at + sizeof(header.crc));
  header.crc = Crc64(checked, context.region);
  std::memcpy(to->data() + at, &header.crc, sizeof(header.crc));
  to->resize(RoundUp(to->size() - at, kRecordAlignment) + at);
}

std::optional<LogRecord> ParseFrame(std::string_view bytes, uint32_t region) {
  if (bytes.size() < sizeof(RecordHeader)) return std::nullopt;
  const auto header = Load<RecordHeader>(AsBytes(bytes).data());
  const size_t tag_bytes = (header.flags & kSealed) != 0 ? kSealTagBytes : 0;
  if (header.bytes < sizeof(header) + header.key_bytes + tag_bytes || header.bytes > kRecordBytesMax ||
      RoundUp(header.bytes, kRecordAlignment) > bytes.size()) {
    return std::nullopt;
  }
  if (Crc64(bytes.substr(sizeof(header.crc), header.bytes - sizeof(header.crc)), region) != header.crc) {
    return std::nullopt;
  }
  const std::string_view padding = bytes.substr(header.bytes, RoundUp(header.bytes, kRecordAlignment) - header.bytes);
  if (std::any_of(padding.begin(), padding.end(), [](char byte) { return byte != 0; })) return std::nullopt;
  if (header.sequence == 0) return std::nullopt;
  return ReadRecord(bytes.data());
}

std::optional<LogRecord> ParseRecord(std::string_view bytes, uint32_t region) {
  std::optional<LogRecord> record = ParseFrame(bytes, region);
  if (!record.has_value()) return record;
  const uint8_t flags = Load<RecordHeader>(AsBytes(bytes).data()).flags;
  if (flags != 0 && flags != kSealed) return std::nullopt;
  const bool may_be_sealed = IsKnown(record->kind) && record->kind != RecordKind::kBegin;
  if (record->sealed ? !may_be_sealed : !SizesFit(*record)) return std::nullopt;
  return record;
}

LogRecord ReadRecord(const char* bytes) {
  RecordHeader header;
  std::memcpy(&header, bytes, sizeof(header));
  LogRecord record;
  record.kind = header.kind;
  record.epoch = header.epoch;
  record.sequence = header.sequence;
  record.synced = header.sequence - 1 - std::min<uint64_t>(header.unsynced, header.sequence - 1);
  record.key = std::string_view(bytes + sizeof(header), header.key_bytes);
  record.sealed = (header.flags & kSealed) != 0;
  const size_t tag_bytes = record.sealed ? kSealTagBytes : 0;
  record.value = std::string_view(record.key.end(), header.bytes - sizeof(header) - header.key_bytes - tag_bytes);
  if (record.sealed && (header.flags & kOpened) == 0) return record;
  if (HasStamp(record.kind) || HasExpiry(record.kind) || record.kind == RecordKind::kApplied) ReadPut(&record);
  return record;
}

std::optional<LogRecord> OpenedRecord(const char* bytes) {
  const LogRecord record = ReadRecord(bytes);
  return SizesFit(record) ? std::optional<LogRecord>(record) : std::nullopt;
}

}  // namespace cell
