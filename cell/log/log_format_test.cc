// Checks how replay treats a log's end that is torn, damaged, or written by another release.
#include <gtest/gtest.h>

#include "cell/io/sim/sim_files.h"
#include "cell/log/directory_log_store.h"
#include "cell/log/log_replay.h"
#include "cell/log/record_reader.h"
#include "cell/log/region_log.h"

namespace cell {
namespace {

constexpr uint32_t kRegion = 7;

std::string BeginOf(uint32_t format) {
  const SegmentBegin begin{kLogMagic, format, kRegion};
  return std::string(reinterpret_cast<const char*>(&begin), sizeof(begin));
}

class LogFormatTest : public ::testing::Test {
 protected:
  // Writes a segment that begins with record `sequence` to disk.
  void Write(uint32_t epoch, uint64_t sequence, const std::string& bytes) {
    const std::unique_ptr<LogWriter> writer = *store_.Open(kRegion, epoch, sequence);
    ASSERT_TRUE(writer->Append(bytes).ok() && writer->Sync().ok());
  }
  static std::string Segment(uint32_t format) {
    std::string bytes;
    AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", BeginOf(format), {}, &bytes);
    AppendRecord({kRegion, 1, 2, 1}, RecordKind::kRange, "", EncodeRange({}), {}, &bytes);
    AppendRecord({kRegion, 1, 3, 2}, RecordKind::kPut, "key", "value", {}, &bytes);
    return bytes;
  }
  absl::Status Open(uint64_t* next = nullptr) {
    LogReplay replay(&store_, kRegion);
    absl::Status status = replay.Open();
    if (next != nullptr) *next = replay.next_sequence();
    return status;
  }
  void ExpectForeign(const absl::Status& status, const std::string& file, const std::string& what) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_NE(status.message().find(file), std::string::npos) << status;
    EXPECT_NE(status.message().find(what), std::string::npos) << status;
  }

  SimDisk disk_{1};
  std::unique_ptr<SimFiles> host_ = disk_.NewHost();
  DirectoryLogStore store_{host_.get(), "log"};
  const std::string first_ = "log/region-7/0000000000000001.00000001.log";
};

TEST_F(LogFormatTest, EachFormatThatIsReadIsRead) {
  for (uint32_t format = kLogFormatMin; format <= kLogFormat; ++format) {
    if (IsSealedLogFormat(format)) continue;  // See sealed_log_store_test.
    Write(1, 1, Segment(format));
    uint64_t next = 0;
    ASSERT_TRUE(Open(&next).ok());
    EXPECT_EQ(next, 4u);
    ASSERT_TRUE(store_.Remove(kRegion, UINT32_MAX).ok());
  }
}

// The segment has only its beginning, and nothing after it could say that it was on disk.
TEST_F(LogFormatTest, ALastSegmentOfALaterFormatIsNoTornTail) {
  Write(1, 1, Segment(kSealedLogFormat + 1));
  ExpectForeign(Open(), first_, fmt::format("has format {}", kSealedLogFormat + 1));
  ASSERT_TRUE(store_.Remove(kRegion, UINT32_MAX).ok());
  Write(1, 1, Segment(kLogFormat));
  std::string second;
  AppendRecord({kRegion, 2, 4, 0}, RecordKind::kBegin, "", BeginOf(99), {}, &second);
  Write(2, 4, second);
  ExpectForeign(Open(), "log/region-7/0000000000000004.00000002.log", "has format 99");
}

TEST_F(LogFormatTest, ABeginningMayHaveMoreFieldsInALaterFormat) {
  std::string bytes;
  AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", BeginOf(kSealedLogFormat + 1), "more", &bytes);
  Write(1, 1, bytes);
  ExpectForeign(Open(), first_, "has format");
}

TEST_F(LogFormatTest, AFormatBeforeTheFirstThatIsReadIsNamed) {
  Write(1, 1, Segment(kLogFormatMin - 1));
  ExpectForeign(Open(), first_, fmt::format("has format {}", kLogFormatMin - 1));
}

TEST_F(LogFormatTest, APutWhoseExpiryIsNotOneIsNoRecord) {
  const auto record = [](std::string_view value) {
    std::string bytes;
    AppendRecord({kRegion, 1, 4, 3}, RecordKind::kPutExpiring, "key", value, {}, &bytes);
    return bytes;
  };
  const auto expiry = [](Expiry expiry) { return std::string(reinterpret_cast<const char*>(&expiry), sizeof(expiry)); };
  EXPECT_EQ(ParseRecord(record(expiry(5)), kRegion)->expiry, 5u);
  EXPECT_TRUE(ParseRecord(record(expiry(5) + std::string(kValueBytesMax, 'v')), kRegion).has_value());
  for (const std::string& value : {std::string(), std::string(7, 'v'), expiry(kNeverExpires), expiry(kExpiryMax + 1),
                                   expiry(5) + std::string(kValueBytesMax + 1, 'v')}) {
    EXPECT_FALSE(ParseRecord(record(value), kRegion).has_value()) << value.size();
  }
}

TEST_F(LogFormatTest, APutWithAStampThatIsNoneIsNoRecord) {
  const auto record = [](RecordKind kind, std::string_view value) {
    std::string bytes;
    AppendRecord({kRegion, 1, 4, 3}, kind, kind == RecordKind::kStampBound ? "" : "key", value, {}, &bytes);
    return bytes;
  };
  const auto word = [](uint64_t word) { return std::string(reinterpret_cast<const char*>(&word), sizeof(word)); };
  const auto stamped = RecordKind::kPutStamped, both = RecordKind::kPutStampedExpiring, bound = RecordKind::kStampBound;
  const std::string bytes = record(both, word(7) + word(5) + "value");
  const LogRecord put = ParseRecord(bytes, kRegion).value();
  EXPECT_EQ(put.stamp, 7u);
  EXPECT_EQ(put.expiry, 5u);
  EXPECT_EQ(put.value, "value");
  EXPECT_EQ(put.bytes(), bytes.size());
  EXPECT_TRUE(ParseRecord(record(stamped, word(kLastStampMax)), kRegion).has_value());
  EXPECT_TRUE(ParseRecord(record(bound, word(kLastStampMax)), kRegion).has_value());
  for (const uint64_t stamp : {uint64_t{0}, kLastStampMax + 1}) {
    EXPECT_FALSE(ParseRecord(record(stamped, word(stamp)), kRegion).has_value()) << stamp;
    EXPECT_FALSE(ParseRecord(record(both, word(stamp) + word(5)), kRegion).has_value()) << stamp;
  }
  EXPECT_FALSE(ParseRecord(record(bound, word(kLastStampMax + 1)), kRegion).has_value());
  EXPECT_FALSE(ParseRecord(record(bound, word(7) + "more"), kRegion).has_value());
  for (const std::string& value :
       {std::string(), std::string(7, 'v'), word(7) + std::string(kValueBytesMax + 1, 'v')}) {
    EXPECT_FALSE(ParseRecord(record(stamped, value), kRegion).has_value()) << value.size();
  }
  for (const std::string& value : {word(7), word(7) + std::string(7, 'v'), word(7) + word(kNeverExpires)}) {
    EXPECT_FALSE(ParseRecord(record(both, value), kRegion).has_value()) << value.size();
  }
}

TEST_F(LogFormatTest, APutWithAnOutcomeThatIsNoneIsNoRecord) {
  const auto record = [](RecordKind kind, std::string_view value) {
    std::string bytes;
    AppendRecord({kRegion, 1, 4, 3}, kind, kind == RecordKind::kApplied ? "key" : "", value, {}, &bytes);
    return bytes;
  };
  const auto word = [](uint64_t word) { return std::string(reinterpret_cast<const char*>(&word), sizeof(word)); };
  const std::string outcome = EncodeOutcome({{1, 2, 3, 4}, 0, 5, 6, true, true, "result", 0});
  for (const Expiry expiry : {kNeverExpires, Expiry{5}}) {
    std::string bytes;
    AppendPut({kRegion, 1, 4, 3}, {"key", "value", expiry, 7, outcome}, &bytes);
    const std::optional<LogRecord> put = ParseRecord(bytes, kRegion);
    ASSERT_TRUE(put.has_value());
    EXPECT_EQ(put->kind, RecordKind::kPut);
    EXPECT_EQ(put->key, "key");
    EXPECT_EQ(put->value, "value");
    EXPECT_EQ(put->stamp, 7u);
    EXPECT_EQ(put->expiry, expiry);
    EXPECT_EQ(put->outcome, outcome);
    EXPECT_EQ(put->bytes(), bytes.size());
  }
  std::string wrong = outcome;
  wrong[offsetof(OutcomeHeader, flags)] = 2 * kOutcomeOpen;
  const auto applied = RecordKind::kApplied, alone = RecordKind::kOutcome;
  EXPECT_TRUE(ParseRecord(record(applied, outcome + word(7) + word(kNeverExpires)), kRegion).has_value());
  EXPECT_TRUE(ParseRecord(record(alone, outcome), kRegion).has_value());
  for (const std::string& value :
       {std::string(), outcome, wrong + word(7) + word(5), outcome + word(7), outcome + word(0) + word(5),
        outcome + word(kLastStampMax + 1) + word(5), outcome + word(7) + word(kExpiryMax + 1),
        outcome + word(7) + word(5) + std::string(kValueBytesMax + 1, 'v')}) {
    EXPECT_FALSE(ParseRecord(record(applied, value), kRegion).has_value()) << value.size();
  }
  for (const std::string& value : {std::string(), outcome.substr(1), outcome + "more"}) {
    EXPECT_FALSE(ParseRecord(record(alone, value), kRegion).has_value()) << value.size();
  }
}

// Such records say nothing about this segment.
TEST_F(LogFormatTest, RecordsOfAnotherEpochAreNoPartOfASegment) {
  std::string bytes = Segment(kLogFormat);
  AppendRecord({kRegion, 2, 4, 1}, RecordKind::kPut, "key", "stale", {}, &bytes);
  AppendRecord({kRegion, 2, 5, 1}, RecordKind::kPut, "key", "stale", {}, &bytes);
  Write(1, 1, bytes);
  uint64_t next = 0;
  const absl::Status status = Open(&next);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(next, 4u);
}

TEST_F(LogFormatTest, ACheckpointWithAnotherEpochsRecordsIsDamage) {
  Write(1, 1, Segment(kLogFormat));
  std::string bytes;
  AppendRecord({kRegion, 2, 1, 0}, RecordKind::kBegin, "", BeginOf(kLogFormat), {}, &bytes);
  AppendRecord({kRegion, 2, 2, 0}, RecordKind::kRange, "", EncodeRange({}), {}, &bytes);
  const std::unique_ptr<LogWriter> writer = *store_.BeginCheckpoint(kRegion, 1, 1);
  ASSERT_TRUE(writer->Append(bytes).ok() && writer->Sync().ok());
  ASSERT_TRUE(store_.CommitCheckpoint(kRegion, 1, 1).ok());
  const absl::Status status = Open();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_NE(status.message().find("checkpoint"), std::string::npos) << status;
}

TEST_F(LogFormatTest, ACheckpointOfALaterFormatIsNamed) {
  Write(1, 1, Segment(kLogFormat));
  const std::unique_ptr<LogWriter> writer = *store_.BeginCheckpoint(kRegion, 1, 1);
  std::string bytes;
  AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", BeginOf(kSealedLogFormat + 1), {}, &bytes);
  ASSERT_TRUE(writer->Append(bytes).ok() && writer->Sync().ok());
  ASSERT_TRUE(store_.CommitCheckpoint(kRegion, 1, 1).ok());
  ExpectForeign(Open(), "checkpoint", "has format");
}

TEST_F(LogFormatTest, AWholeRecordOfAnUnknownKindIsNoTornTail) {
  std::string bytes = Segment(kLogFormat);
  AppendRecord({kRegion, 1, 4, 3}, static_cast<RecordKind>(77), "key", "value", {}, &bytes);
  Write(1, 1, bytes);
  ExpectForeign(Open(), first_, "kind 77");
}

// A torn beginning is torn in any format: nothing in the segment was acknowledged.
TEST_F(LogFormatTest, ATornBeginningIsTheEnd) {
  Write(1, 1, Segment(kLogFormat));
  std::string second;
  AppendRecord({kRegion, 2, 4, 0}, RecordKind::kBegin, "", BeginOf(99), {}, &second);
  for (size_t bytes = 0; bytes <= second.find_last_not_of('\0'); ++bytes) {  // Zeros follow anyway.
    Write(2, 4, second.substr(0, bytes));
    uint64_t next = 0;
    ASSERT_TRUE(Open(&next).ok()) << bytes;
    EXPECT_EQ(next, 4u);
    ASSERT_TRUE(host_->Remove("log/region-7/0000000000000004.00000002.log").ok());
  }
}

// Flips each bit of a log that ends with a marker. All damage is reported, except damage of the marker itself, which
// has no record after it.
TEST_F(LogFormatTest, DamageOfTheLastRecordBeforeAMarkerIsNoticed) {
  RegionLog log(kRegion, 1, 1, *store_.Open(kRegion, 1, 1));
  const auto flush = [&log] {
    auto flush = log.BeginFlush();
    const absl::Status status = flush.Write();
    log.EndFlush(std::move(flush), status);
    ASSERT_TRUE(status.ok()) << status;
  };
  log.Append(RecordKind::kRange, "", EncodeRange({}));
  log.Append(RecordKind::kPut, "key", "value");
  EXPECT_FALSE(log.unmarked());
  flush();
  ASSERT_TRUE(log.unmarked());
  const uint64_t marker_at = log.bytes();
  log.Mark();
  EXPECT_FALSE(log.unmarked());
  flush();
  EXPECT_FALSE(log.unmarked());  // One is enough.
  std::string* bytes = disk_.bytes(first_);
  for (size_t bit = 0; bit < log.bytes() * 8; ++bit) {
    (*bytes)[bit / 8] ^= static_cast<char>(1 << bit % 8);
    uint64_t next = 0;
    const absl::Status status = Open(&next);
    if (bit / 8 < marker_at) {
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << bit << status;
    } else {
      ASSERT_TRUE(status.ok()) << bit << status;
      ASSERT_EQ(next, 4u);
    }
    (*bytes)[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
}

// The records that the next owner wrote again, with the beginning of its segment, are on disk. Damage of them is not a
// torn tail.
TEST_F(LogFormatTest, DamageOfWhatTheNextOwnerWroteOnceMoreIsNoticed) {
  Write(1, 1, Segment(kLogFormat));
  LogReplay replay(&store_, kRegion);
  ASSERT_TRUE(replay.Open().ok());
  const LogReplay::Rest rest = replay.RestFor(2);
  ASSERT_TRUE(store_.Open(kRegion, 2, rest.sequence, rest.bytes).ok());
  std::string* bytes = disk_.bytes("log/region-7/0000000000000001.00000002.log");
  const size_t key = bytes->find("keyvalue");
  ASSERT_NE(key, std::string::npos);
  ASSERT_TRUE(Open().ok());
  (*bytes)[key] ^= 1;
  EXPECT_EQ(Open().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace cell
