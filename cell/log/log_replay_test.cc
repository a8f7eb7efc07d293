// Checks what replay makes of the records, the checkpoints and the cuts in a log.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "cell/log/test_log.h"
#include "fmt/format.h"

namespace cell {
namespace {

TEST_F(LogTest, GivesBackWhatWasAppended) {
  EXPECT_FALSE(*store_.Has(kRegion));
  Owner owner(&store_, 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({0, "b", "y", RootOf(9)});
  owner.Put("c", "1");
  owner.Put("k", std::string(kValueBytesMax, 'k'));
  owner.Put("d", "");
  owner.Delete("c");
  owner.Put("d", "2");
  owner.log()->Append(RecordKind::kCut, "m", RootOf(10));
  owner.log()->Append(RecordKind::kPut, "l", "3");
  ASSERT_TRUE(owner.Flush().ok());
  EXPECT_TRUE(*store_.Has(kRegion));
  LogReplay replay(&store_, kRegion);
  ASSERT_TRUE(replay.Open().ok());
  EXPECT_EQ(*Replayed(replay), (Model{{"d", "2"}, {"k", std::string(kValueBytesMax, 'k')}, {"l", "3"}}));
  EXPECT_EQ(replay.range().low, "b");
  EXPECT_EQ(replay.range().high, "m");
  EXPECT_EQ(replay.range().right, RootOf(10));
  EXPECT_EQ(replay.cuts(), (std::map<uint32_t, uint32_t>{{10, 0}}));
  EXPECT_EQ(replay.next_sequence(), 10u);
  EXPECT_EQ(replay.torn_bytes(), 0u);
  ASSERT_TRUE(store_.Remove(kRegion).ok());
  EXPECT_FALSE(*store_.Has(kRegion));
  EXPECT_EQ(LogReplay(&store_, kRegion).Open().code(), absl::StatusCode::kNotFound);
}

TEST_F(LogTest, ACheckpointAndTheLogBehindIt) {
  Owner owner(&store_, 3);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  for (int i = 0; i < 1000; ++i) owner.Put(fmt::format("{:04}", i * 3), std::string(100, 'a'));
  ASSERT_TRUE(owner.Checkpoint().ok());
  EXPECT_EQ(store_.List(kRegion)->size(), 2u);  // Earlier parts are gone.
  for (int i = 0; i < 300; ++i) owner.Put(fmt::format("{:04}", i * 7), "b");
  for (int i = 0; i < 300; ++i) owner.Delete(fmt::format("{:04}", i * 9));
  ASSERT_TRUE(owner.Flush().ok());
  LogReplay replay(&store_, kRegion);
  ASSERT_TRUE(replay.Open().ok());
  EXPECT_EQ(*Replayed(replay), *owner.model());
  // A second checkpoint, and a fuzzy one: the log is applied to a state that includes some of it already.
  ASSERT_TRUE(owner.Checkpoint().ok());
  const uint64_t from = owner.log()->appended();
  owner.Put("x", "1");
  ASSERT_TRUE(owner.WriteCheckpoint(from, owner.log()->appended()).ok());
  owner.Delete("x");
  ASSERT_TRUE(owner.Flush().ok());
  LogReplay again(&store_, kRegion);
  ASSERT_TRUE(again.Open().ok());
  EXPECT_EQ(*Replayed(again), *owner.model());
}

// A part of a table: checkpoints are unordered and have keys twice; cuts lower its end.
TEST_F(LogTest, OfAPartOfATable) {
  const auto bytes_of = [](const auto& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  RegionLog log(kRegion, 1, 1, *store_.Open(kRegion, 1, 1));
  const auto flush = [&log] {
    auto flush = log.BeginFlush();
    const absl::Status status = flush.Write();
    log.EndFlush(std::move(flush), status);
    ASSERT_TRUE(status.ok()) << status;
  };
  log.Append(RecordKind::kHashRange, "", bytes_of(HashRangeValue{100, 5000, 512, 0}));
  for (const char* key : {"b", "a", "c", "d"}) log.Append(RecordKind::kPut, key, "1");
  log.Append(RecordKind::kHashCut, "", bytes_of(HashCutValue{3000, 9}));
  log.Append(RecordKind::kHashCut, "", bytes_of(HashCutValue{4000, 8}));  // An older cut, applied again.
  flush();
  const uint64_t sequence = log.BeginRoll();
  log.EndRoll(*store_.Open(kRegion, 1, sequence));
  log.Append(RecordKind::kPut, "b", "2");
  log.Append(RecordKind::kDelete, "c", "");
  flush();
  for (const bool with_checkpoint : {false, true}) {
    if (with_checkpoint) {
      auto writer = *store_.BeginCheckpoint(kRegion, 1, sequence);
      std::string bytes;
      uint64_t records = 0;
      const auto add = [&](RecordKind kind, std::string_view key, const std::string& value) {
        AppendRecord({kRegion, 1, ++records, 0}, kind, key, value, {}, &bytes);
      };
      add(RecordKind::kBegin, "", BeginValue(kRegion));
      add(RecordKind::kHashRange, "", bytes_of(HashRangeValue{100, 2999, 512, 0}));
      for (const char* key : {"d", "a", "c", "b", "a"}) add(RecordKind::kPut, key, "1");
      add(RecordKind::kEnd, "", bytes_of(CheckpointEnd{records, log.appended()}));
      ASSERT_TRUE(writer->Append(bytes).ok() && writer->Sync().ok());
      ASSERT_TRUE(store_.CommitCheckpoint(kRegion, 1, sequence).ok());
    }
    LogReplay replay(&store_, kRegion);
    const absl::Status opened = replay.Open();
    ASSERT_TRUE(opened.ok()) << opened;
    ASSERT_TRUE(replay.hash_range().has_value());
    EXPECT_EQ(replay.hash_range()->first, 100u);
    EXPECT_EQ(replay.hash_range()->last, 2999u);
    EXPECT_EQ(replay.hash_range()->bucket_bytes, 512u);
    // Cuts from before the checkpoint are part of it.
    using Cuts = std::map<uint32_t, uint32_t>;
    EXPECT_EQ(replay.cuts(), with_checkpoint ? Cuts{} : (Cuts{{8, 4000}, {9, 3000}}));
    Model model;
    ASSERT_TRUE(replay
                    .ForEach([&model](const LogRecord& record) {
                      model[std::string(record.key)] = record.value;
                      return absl::OkStatus();
                    })
                    .ok());
    EXPECT_EQ(model, (Model{{"a", "1"}, {"b", "2"}, {"d", "1"}}));
  }
}

TEST_F(LogTest, ACheckpointNeedsItsLog) {
  Owner owner(&store_, 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  owner.Put("a", "1");
  ASSERT_TRUE(owner.WriteCheckpoint(1, owner.log()->appended() + 1).ok());
  LogReplay replay(&store_, kRegion);
  ASSERT_TRUE(replay.Open().ok());
  const absl::Status status = Replayed(replay).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.ToString().find("checkpoint"), std::string::npos) << status;
}

// The log after a checkpoint may have cuts that were made before the checkpoint's range was recorded.
TEST_F(LogTest, ACutThatACheckpointHasAlreadyDoesNotWidenItsRange) {
  RegionLog log(kRegion, 1, 1, *store_.Open(kRegion, 1, 1));
  log.Append(RecordKind::kRange, "", EncodeRange({0, "", "m", RootOf(9)}));
  log.Append(RecordKind::kCut, "t", RootOf(8));
  auto flush = log.BeginFlush();
  const absl::Status status = flush.Write();
  log.EndFlush(std::move(flush), status);
  ASSERT_TRUE(status.ok()) << status;
  LogReplay replay(&store_, kRegion);
  ASSERT_TRUE(replay.Open().ok());
  EXPECT_EQ(replay.range().high, "m");
  EXPECT_EQ(replay.range().right, RootOf(9));
}

// A join's log: an attempt that failed, and one that was made.
class JoinedLog {
 public:
  explicit JoinedLog(LogStore* store) : log_(kRegion, 1, 1, *store->Open(kRegion, 1, 1)) {
    log_.Append(RecordKind::kRange, "", EncodeRange({0, "", "m", RootOf(8)}));
    log_.Append(RecordKind::kPut, "a", "1");
    Cut();
    log_.Append(RecordKind::kPut, "n", "of the first attempt");
    log_.Append(RecordKind::kPut, "o", "deleted since");
    Join();
    Cut();
    log_.Append(RecordKind::kPut, "n", "2");
    log_.Append(RecordKind::kPut, "b", "1");
    Join();
    auto flush = log_.BeginFlush();
    const absl::Status status = flush.Write();
    log_.EndFlush(std::move(flush), status);
    EXPECT_TRUE(status.ok()) << status;
  }

 private:
  void Cut() { log_.Append(RecordKind::kCut, "m", RootOf(8)); }
  void Join() { log_.Append(RecordKind::kJoin, "", EncodeJoin(8, {0, "m", "x", RootOf(9)})); }
  RegionLog log_;
};

TEST_F(LogTest, AJoinCountsIfTheOtherRegionIsGone) {
  const JoinedLog log(&store_);
  LogReplay replay(&store_, kRegion, [](uint32_t region) { return region == 8; });
  ASSERT_TRUE(replay.Open().ok());
  EXPECT_EQ(*Replayed(replay), (Model{{"a", "1"}, {"b", "1"}, {"n", "2"}}));
  EXPECT_EQ(replay.range().high, "x");
  EXPECT_EQ(replay.range().right, RootOf(9));
  EXPECT_EQ(replay.joined(), std::set<uint32_t>{8});
}

TEST_F(LogTest, AJoinDoesNotCountIfTheOtherRegionIsThere) {
  const JoinedLog log(&store_);
  LogReplay replay(&store_, kRegion, [](uint32_t) { return false; });
  ASSERT_TRUE(replay.Open().ok());
  EXPECT_EQ(*Replayed(replay), (Model{{"a", "1"}, {"b", "1"}}));
  EXPECT_EQ(replay.range().high, "m");
  EXPECT_EQ(replay.range().right, RootOf(8));
  EXPECT_TRUE(replay.joined().empty());
}

TEST_F(LogTest, AClearLeavesWhatCameAfterIt) {
  Owner owner(&store_, 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  owner.Put("a", "1");
  owner.Put("b", "1");
  ASSERT_TRUE(owner.Checkpoint().ok());
  const uint64_t cleared = owner.log()->appended();
  owner.Put("c", "1");
  owner.log()->Append(RecordKind::kClear, "", "");
  owner.Put("b", "2");
  owner.Put("d", "2");
  ASSERT_TRUE(owner.Flush().ok());
  const Model left = {{"b", "2"}, {"d", "2"}};
  LogReplay replay(&store_, kRegion);
  ASSERT_TRUE(replay.Open().ok());
  EXPECT_EQ(*Replayed(replay), left);
  EXPECT_FALSE(replay.range().high.has_value());
  EXPECT_TRUE(replay.cuts().empty());
  // A checkpoint that was begun before the clear and has its effect, or what was there before it.
  *owner.model() = left;
  ASSERT_TRUE(owner.WriteCheckpoint(cleared, owner.log()->appended()).ok());
  LogReplay after(&store_, kRegion);
  ASSERT_TRUE(after.Open().ok());
  EXPECT_EQ(*Replayed(after), left);
}

}  // namespace
}  // namespace cell
