#include "cell/log/log_replay.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_set.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/log/record_cipher.h"
#include "cell/log/record_reader.h"
#include "cell/log/region_log.h"
#include "fmt/format.h"
#include "pilaf/key_hash.h"

namespace cell {
namespace {

constexpr ptrdiff_t kPrefetch = 12;                // Distance in records.
constexpr uint64_t kSequenceMax = UINT64_MAX / 2;  // No log reaches this.

void Prefetch(const char* bytes, int lines) {
  for (int i = 0; i < lines; ++i) __builtin_prefetch(bytes + 64 * i);
}

// Returns a number that compares like the text's first bytes.
uint64_t HeadOf(std::string_view text) {
  uint64_t head = 0;
  std::memcpy(&head, text.data(), std::min(text.size(), sizeof(head)));
  return __builtin_bswap64(head);
}

size_t CommonBytes(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

absl::Status Damaged(const LogPart& part, uint64_t offset, const std::string& what) {
  return DamagedFile(part.name, offset, what);
}

FileIdentity IdentityOf(uint32_t region, const LogPart& part) {
  return {region, part.epoch, part.sequence, part.kind == LogPart::Kind::kCheckpoint};
}

MeganodeRange RangeOf(const LogRecord& record) {
  const auto value = Load<RangeValue>(AsBytes(record.value).data());
  MeganodeRange range{value.tier, std::string(record.key), std::nullopt, value.right};
  if (value.has_high != 0) range.high = std::string(record.value.substr(sizeof(value)));
  return range;
}

}  // namespace

absl::StatusOr<size_t> LogReplay::Read(const LogPart& part, uint64_t offset, MutableBytes to) const {
  const int64_t begun_ns = NowNs();
  absl::StatusOr<size_t> read = store_->Read(region_, part, offset, to);
  times_.read_ns += NowNs() - begun_ns;
  return read;
}

RecordReader LogReplay::Reader(const LogPart& part) const {
  const auto read = [this, part](uint64_t offset, MutableBytes to) { return Read(part, offset, to); };
  return RecordReader(read, part.name, IdentityOf(region_, part), store_->keys());
}

bool LogReplay::SetRange(const LogRecord& record) {
  if (record.kind == RecordKind::kHashRange) {
    hash_range_ = Load<HashRangeValue>(AsBytes(record.value).data());
  } else if (record.kind == RecordKind::kRange) {
    range_ = RangeOf(record);
  } else {
    return false;
  }
  has_range_ = true;
  return true;
}

absl::Status LogReplay::Open() {
  ASSIGN_OR_RETURN(std::vector<LogPart> parts, store_->List(region_));
  // An earlier region with this id may have left some, or its owner may write some yet.
  std::erase_if(parts, [this](const LogPart& part) { return part.epoch < first_epoch_; });
  if (parts.empty()) return absl::NotFoundError(fmt::format("there is no log of region {}", region_));
  std::vector<LogPart> segments;
  for (const LogPart& part : parts) {
    // Records after it would have no number, and the next owner's own segment would count as torn.
    if (part.sequence == 0 || part.sequence > kSequenceMax) {
      return Damaged(part, 0, fmt::format("its name says that it begins with record {}", part.sequence));
    }
    if (part.kind == LogPart::Kind::kSegment) {
      segments.push_back(part);
    } else if (!checkpoint_.has_value() || part.sequence >= checkpoint_->sequence) {
      checkpoint_ = part;
    }
  }
  uint64_t start = 1;
  if (checkpoint_.has_value()) {
    start = checkpoint_->sequence;
    RecordReader reader = Reader(*checkpoint_);
    ASSIGN_OR_RETURN(const LogRecord begin, reader.Next());
    RETURN_IF_ERROR(CheckBegin(begin, checkpoint_->name, region_));
    ASSIGN_OR_RETURN(const LogRecord range, reader.Next());
    if (!SetRange(range)) return Damaged(*checkpoint_, reader.offset(), "its range is missing");
    ASSIGN_OR_RETURN(const LogRecord third, reader.Next());
    if (third.kind == RecordKind::kStampBound) RaiseLastStamp(third);
  }
  next_sequence_ = start;
  synced_ = start - 1;
  for (size_t i = 0; i < segments.size(); ++i) {
    // Records of a later owner take precedence, from its first record on.
    uint64_t limit = UINT64_MAX;
    for (size_t j = i + 1; j < segments.size(); ++j) limit = std::min(limit, segments[j].sequence);
    if (limit <= std::max(segments[i].sequence, start)) continue;
    RETURN_IF_ERROR(ReadSegment(segments[i], limit, i + 1 == segments.size()));
  }
  ASSIGN_OR_RETURN(const uint64_t noted, store_->NotedEnd(region_, first_epoch_));
  if (noted >= next_sequence_) {
    return Damaged(parts.back(), log_bytes_,
                   fmt::format("its last record is {}, but record {} was on disk when its server ended",
                               next_sequence_ - 1, noted));
  }
  if (!has_range_) {
    if (next_sequence_ <= 2) return absl::NotFoundError(fmt::format("the log of region {} has no content", region_));
    return Damaged(segments[0], 0, "the region's range is missing");
  }
  DropCutOff();
  SortChanges();
  return absl::OkStatus();
}

bool LogReplay::IsGone(uint32_t region, uint32_t epoch) const {
  if (!is_gone_) return false;
  return is_gone_(region, std::max(epoch, 1u));  // 0: from before ids were used again, when regions began at epoch 1.
}

void LogReplay::DropCutOff() {
  // From the last change to the first, the lowest cut behind it counts.
  size_t kept = changes_.size();
  for (size_t at = changes_.size(); at-- > 0;) {
    for (; !cut_at_.empty() && cut_at_.back().changes > at; cut_at_.pop_back()) LowerCut(cut_at_.back());
    if (!lowest_cut_.has_value() || !CutOff(ReadRecord(changes_[at].record).key)) changes_[--kept] = changes_[at];
  }
  changes_.erase(changes_.begin(), changes_.begin() + static_cast<ptrdiff_t>(kept));
  for (const Cut& cut : cut_at_) LowerCut(cut);
  cut_at_.clear();
}

void LogReplay::LowerCut(const Cut& cut) {
  if (!lowest_cut_.has_value()) lowest_cut_ = cut;
  lowest_cut_->key = std::min(lowest_cut_->key, cut.key);
  lowest_cut_->position = std::min(lowest_cut_->position, cut.position);
}

bool LogReplay::CutOff(std::string_view key) const {
  if (!lowest_cut_.has_value()) return false;
  return hash_range_.has_value() ? HashKey(key).position >= lowest_cut_->position : key >= lowest_cut_->key;
}

void LogReplay::SortChanges() {
  const auto key_of = [this](const Change& change) { return ReadRecord(change.record).key.substr(common_bytes_); };
  for (auto change = changes_.begin(); change != changes_.end(); ++change) {
    if (changes_.end() - change > kPrefetch) Prefetch((change + kPrefetch)->record, 1);
    change->head = HeadOf(key_of(*change));
  }
  // The sort is stable, so the last change of a key stays the last.
  std::stable_sort(changes_.begin(), changes_.end(), [&](const Change& a, const Change& b) {
    return a.head != b.head ? a.head < b.head : key_of(a) < key_of(b);
  });
  size_t kept = 0;
  for (const Change& change : changes_) {
    const bool again =
        kept > 0 && changes_[kept - 1].head == change.head && key_of(changes_[kept - 1]) == key_of(change);
    changes_[again ? kept - 1 : kept++] = change;
  }
  changes_.resize(kept);
}

absl::Status LogReplay::ReadSegment(const LogPart& part, uint64_t limit, bool last) {
  if (part.sequence > next_sequence_) {
    return Damaged(part, 0,
                   fmt::format("the records {} to {} before it are missing", next_sequence_, part.sequence - 1));
  }
  ASSIGN_OR_RETURN(const uint64_t size, store_->Size(region_, part));
  segments_.emplace_back(size);
  BlockBuffer& segment = segments_.back();
  ASSIGN_OR_RETURN(const size_t read, Read(part, 0, {segment.data(), segment.size()}));
  const std::string_view all = AsText({segment.data(), read});
  RecordOpener opener(store_->keys(), part.name, IdentityOf(region_, part));
  size_t at = 0;
  uint64_t expected = part.sequence;
  while (expected < limit) {
    const std::optional<LogRecord> frame = ParseFrame(all.substr(at), region_);
    if (!frame.has_value() || frame->sequence != expected || frame->epoch != part.epoch) break;
    std::optional<LogRecord> record = ParseRecord(all.substr(at), region_);
    if (at == 0) {
      const absl::Status known = CheckBegin(record.has_value() ? *record : *frame, part.name, region_);
      if (!known.ok() && last && Mutated(Mutant::kForeignFormatTorn)) return absl::OkStatus();
      RETURN_IF_ERROR(known);
    }
    if (!record.has_value()) {  // The frame is whole, so this is not the torn end.
      return ForeignFile(part.name,
                         fmt::format("it has a record of kind {} at offset {}, which this release does not know",
                                     static_cast<int>(frame->kind), at));
    }
    if (at == 0) {
      RETURN_IF_ERROR(opener.Begin(*record));
    } else {
      RETURN_IF_ERROR(opener.Open(&*record, at));  // In `segment`.
    }
    if (expected >= next_sequence_) RETURN_IF_ERROR(Apply(*record, part, at));
    synced_ = std::max(synced_, record->synced);
    at += record->bytes();
    ++expected;
  }
  next_sequence_ = std::max(next_sequence_, expected);
  synced_ = std::max(synced_, part.sequence - 1);  // It was begun when all records before it were on disk.
  last_part_ = all.substr(0, at);
  log_bytes_ += at;
  if (expected == limit) return absl::OkStatus();
  if (!last) {
    // The next segment was begun after this one was complete.
    return Damaged(part, at, fmt::format("record {} is incomplete, but later records exist", expected));
  }
  return FindEnd(part, all.substr(at), at, expected);
}

LogReplay::Rest LogReplay::RestFor(uint32_t epoch, uint64_t stamp_bound) const {
  Rest rest{std::min(synced_ + 1, next_sequence_), "", 0};
  rest.next_sequence = rest.sequence;
  const auto next = [&]() -> RecordContext {
    const auto unsynced = static_cast<uint32_t>(rest.next_sequence - rest.sequence);
    return {region_, epoch, rest.next_sequence++, unsynced};
  };
  AppendRecord(next(), RecordKind::kBegin, "", BeginValue(region_), {}, &rest.bytes);
  for (size_t at = 0; at < last_part_.size();) {
    const LogRecord record = ReadRecord(last_part_.data() + at);
    at += record.bytes();
    if (record.sequence < rest.sequence || record.kind == RecordKind::kBegin || record.kind == RecordKind::kMarker) {
      continue;
    }
    if (record.kind == RecordKind::kPut) {
      AppendPut(next(), {record.key, record.value, record.expiry, record.stamp, record.outcome}, &rest.bytes);
    } else {
      AppendRecord(next(), record.kind, record.key, record.value, {}, &rest.bytes);
    }
  }
  if (stamp_bound != 0) {
    AppendRecord(next(), RecordKind::kStampBound, "", EncodeStampBound(stamp_bound), {}, &rest.bytes);
  }
  // The segment gets its name when all of these are on disk.
  AppendRecord({region_, epoch, rest.next_sequence++, 0}, RecordKind::kMarker, "", "", {}, &rest.bytes);
  return rest;
}

// Decides whether the log ends at `offset`, where there is no record with the expected sequence.
absl::Status LogReplay::FindEnd(const LogPart& part, std::string_view rest, uint64_t offset, uint64_t expected) {
  torn_bytes_ += rest.find_last_not_of('\0') + 1;  // npos + 1 is 0: there are only zeros.
  for (size_t at = 0; at + sizeof(RecordHeader) <= rest.size(); at += kRecordAlignment) {
    const std::optional<LogRecord> record = ParseRecord(rest.substr(at), region_);
    if (!record.has_value() || record->epoch != part.epoch || record->synced < expected) continue;
    return Damaged(
        part, offset,
        fmt::format("record {} is incomplete, although record {} at offset {} was written after it was on disk",
                    expected, record->sequence, offset + at));
  }
  return absl::OkStatus();
}

void LogReplay::Remember(std::string_view outcome, uint64_t stamp) {
  if (Mutated(Mutant::kOutcomesUnread)) return;
  Outcome decoded = DecodeOutcome(outcome);
  if (stamp != 0) decoded.stamp = stamp;
  outcomes_.Remember(std::move(decoded));
  // In a long log there are many that were forgotten since.
  if (outcomes_.size() > 2 * Outcomes::kMax) outcomes_.Forget(stamp);
}

std::vector<std::string> LogReplay::prepared() const {
  std::vector<std::string> parts;
  for (const auto& [owner, part] : prepared_) parts.push_back(part);
  return parts;
}

void LogReplay::AddChange(std::string_view key, const char* record) {
  common_bytes_ =
      changes_.empty() ? key.size() : CommonBytes(key, ReadRecord(changes_[0].record).key.substr(0, common_bytes_));
  changes_.push_back({0, record});
}

void LogReplay::Decide(const LogRecord& decision) {
  Remember(decision.value, 0);
  const Outcome outcome = DecodeOutcome(decision.value);
  last_stamp_ = std::max(last_stamp_, outcome.stamp);
  const auto prepared = prepared_.extract({outcome.id.client, outcome.id.slot, outcome.id.number});
  // It is not there if a checkpoint was begun since: it has what the part wrote.
  if (prepared.empty() || !outcome.changed) return;
  const absl::StatusOr<PreparedPart> its = ParsePrepared(prepared.mapped());
  const absl::StatusOr<std::vector<PartOperation>> operations = ParseOperations(its->part);
  const RecordContext context{region_, decision.epoch, decision.sequence};
  for (const PartOperation& operation : *operations) {
    if (!operation.writes()) continue;
    std::string& record = committed_.emplace_back();
    if (operation.kind == PartOperationKind::kDelete) {
      AppendRecord(context, RecordKind::kDelete, operation.key, {}, {}, &record);
    } else {
      AppendPut(context, {operation.key, operation.value, operation.expires, outcome.stamp}, &record);
    }
    AddChange(ReadRecord(record.data()).key, record.data());
  }
}

absl::Status LogReplay::Apply(const LogRecord& record, const LogPart& part, uint64_t offset) {
  ++records_;
  switch (record.kind) {
    case RecordKind::kBegin:
      if (offset == 0) break;
      return Damaged(part, offset, "it has a begin record in the middle");
    case RecordKind::kRange:
    case RecordKind::kHashRange:
      SetRange(record);
      break;
    case RecordKind::kPut:
      if (!record.outcome.empty()) Remember(record.outcome, record.stamp);
      [[fallthrough]];
    case RecordKind::kDelete:
    case RecordKind::kRoute:
      AddChange(record.key, record.key.data() - sizeof(RecordHeader));
      break;
    case RecordKind::kCut:
      // A checkpoint that was begun before the cut may already have the range from after it.
      if (!range_.high.has_value() || record.key < *range_.high) {
        range_.high = std::string(record.key);
        range_.right = record.pointer();
      }
      if (!IsGone(record.pointer().region(), record.ValueAs<CutValue>().epoch)) {
        cuts_.emplace(record.pointer().region(), 0);
      }
      if (!Mutated(Mutant::kJoinsWithoutCut)) cut_at_.push_back({changes_.size(), record.key});
      break;
    case RecordKind::kClear:
      cut_at_.push_back({changes_.size()});
      break;
    case RecordKind::kJoin: {
      const auto join = Load<JoinValue>(AsBytes(record.value).data());
      if (!IsGone(join.region, join.epoch) && !Mutated(Mutant::kJoinAlwaysCounts)) break;
      range_.high.reset();
      if (join.has_high != 0) range_.high = std::string(record.value.substr(sizeof(join)));
      range_.right = join.right;
      joined_[join.region] = join.epoch;
      break;
    }
    case RecordKind::kHashCut: {
      const auto cut = record.ValueAs<HashCutValue>();
      if (!hash_range_.has_value() || cut.first <= hash_range_->first) {
        return Damaged(part, offset, "it has a split record that leaves no keys");
      }
      hash_range_->last = std::min(hash_range_->last, cut.first - 1);
      if (!IsGone(cut.region, cut.epoch)) cuts_.emplace(cut.region, cut.first);
      if (!Mutated(Mutant::kJoinsWithoutCut)) cut_at_.push_back({changes_.size(), {}, cut.first});
      break;
    }
    case RecordKind::kHashJoin: {
      const auto join = record.ValueAs<HashJoinValue>();
      if (!IsGone(join.region, join.epoch) && !Mutated(Mutant::kJoinAlwaysCounts)) break;
      if (!hash_range_.has_value() || join.last < hash_range_->first) {
        return Damaged(part, offset, "it has the record of a join with a region that is not above it");
      }
      hash_range_->last = join.last;
      joined_[join.region] = join.epoch;
      break;
    }
    case RecordKind::kStampBound:
      RaiseLastStamp(record);
      break;
    case RecordKind::kOutcome:
      Remember(record.value, 0);
      break;
    case RecordKind::kPrepared: {
      const absl::StatusOr<PreparedPart> part = ParsePrepared(record.value);
      last_stamp_ = std::max(last_stamp_, part->stamp);
      prepared_.insert_or_assign({part->id.client, part->id.slot, part->id.number}, std::string(record.value));
      break;
    }
    case RecordKind::kDecided:
      Decide(record);
      break;
    case RecordKind::kPutExpiring:  // They were read as a kPut.
    case RecordKind::kPutStamped:
    case RecordKind::kPutStampedExpiring:
    case RecordKind::kApplied:
    case RecordKind::kMarker:
      break;  // ReadSegment has evaluated it.
    case RecordKind::kEnd:
      return Damaged(part, offset, "it has a checkpoint's end record, but is a log");
  }
  return absl::OkStatus();
}

absl::Status LogReplay::ReadCheckpoint(
    const std::function<absl::Status(const LogRecord&, uint64_t offset)>& visit) const {
  if (!checkpoint_.has_value()) return absl::OkStatus();
  RecordReader reader = Reader(*checkpoint_);
  uint64_t records = 0;
  for (std::vector<RecordReader::Placed> batch;;) {
    const int64_t begun_ns = NowNs(), read_before_ns = times_.read_ns;
    const absl::Status status = reader.NextBatch(&batch);
    times_.check_ns += NowNs() - begun_ns - (times_.read_ns - read_before_ns);
    for (const auto& [record, offset] : batch) {
      if (++records <= 2) continue;  // Open has read these.
      if (records == 3 && record.kind == RecordKind::kStampBound) continue;
      if (record.kind == RecordKind::kEnd) return CheckEnd(record, records, offset);
      RETURN_IF_ERROR(visit(record, offset));
    }
    RETURN_IF_ERROR(status);
  }
}

absl::Status LogReplay::CheckEnd(const LogRecord& record, uint64_t records, uint64_t offset) const {
  const auto end = Load<CheckpointEnd>(AsBytes(record.value).data());
  if (end.records != records - 1) return Damaged(*checkpoint_, offset, "its end record has a wrong count");
  if (end.log_sequence < next_sequence_) return absl::OkStatus();
  return Damaged(*checkpoint_, offset,
                 fmt::format("it needs the log up to record {}, but the log ends with record {}", end.log_sequence,
                             next_sequence_ - 1));
}

absl::Status LogReplay::ForEachUnordered(const Visit& visit) const {
  // A key that the log changed counts only there. There are then never more keys than existed at one moment.
  absl::flat_hash_set<std::string_view> changed;
  changed.reserve(checkpoint_.has_value() ? changes_.size() : 0);
  for (const Change& change : changes_) {
    if (checkpoint_.has_value()) changed.insert(ReadRecord(change.record).key);
  }
  RETURN_IF_ERROR(ReadCheckpoint([&](const LogRecord& record, uint64_t offset) -> absl::Status {
    if (record.kind != RecordKind::kPut) return Damaged(*checkpoint_, offset, "it has a record that is not a pair");
    return changed.contains(record.key) || CutOff(record.key) ? absl::OkStatus() : visit(record);
  }));
  for (const Change& change : changes_) {
    const LogRecord record = ReadRecord(change.record);
    if (record.kind == RecordKind::kPut) RETURN_IF_ERROR(visit(record));
  }
  return absl::OkStatus();
}

absl::Status LogReplay::ForEach(const Visit& visit) const {
  if (hash_range_.has_value()) return ForEachUnordered(visit);
  auto tail = changes_.begin();
  LogRecord change;  // *tail
  const auto look = [&] {
    if (changes_.end() - tail > kPrefetch) Prefetch((tail + kPrefetch)->record, 4);
    if (tail != changes_.end()) change = ReadRecord(tail->record);
  };
  const auto visit_tail = [&]() -> absl::Status {
    if (change.kind != RecordKind::kDelete && InRange(change.key)) RETURN_IF_ERROR(visit(change));
    ++tail;
    look();
    return absl::OkStatus();
  };
  look();
  std::optional<std::string> last_key;
  RETURN_IF_ERROR(ReadCheckpoint([&](const LogRecord& record, uint64_t offset) -> absl::Status {
    if ((record.kind != RecordKind::kPut && record.kind != RecordKind::kRoute) ||
        (last_key.has_value() && record.key <= *last_key)) {
      return Damaged(*checkpoint_, offset, "its records are out of order");
    }
    last_key = record.key;
    while (tail != changes_.end() && change.key < record.key) RETURN_IF_ERROR(visit_tail());
    if (tail != changes_.end() && change.key == record.key) return visit_tail();
    return InRange(record.key) && !CutOff(record.key) ? visit(record) : absl::OkStatus();
  }));
  while (tail != changes_.end()) RETURN_IF_ERROR(visit_tail());
  return absl::OkStatus();
}

}  // namespace cell
