// Checks what replay makes of the records, the checkpoints and the cuts in a log.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "cell/log/test_log.h"
#include "fmt/format.h"
#include "pilaf/key_hash.h"

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
  ASSERT_TRUE(store_.Remove(kRegion, UINT32_MAX).ok());
  EXPECT_FALSE(*store_.Has(kRegion));
  EXPECT_EQ(LogReplay(&store_, kRegion).Open().code(), absl::StatusCode::kNotFound);
}

TEST_F(LogTest, StampsAndTheirBound) {
  Owner owner(&store_, 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  owner.log()->Append(RecordKind::kStampBound, "", EncodeStampBound(100));
  owner.log()->AppendPut({"a", "1", kNeverExpires, 7});
  owner.log()->AppendPut({"b", "2", 5, 8});
  owner.log()->AppendPut({"c", "3"});
  ASSERT_TRUE(owner.Flush().ok());
  LogReplay replay(&store_, kRegion);
  ASSERT_TRUE(replay.Open().ok());
  EXPECT_EQ(replay.last_stamp(), 100u);
  const auto stamps_in = [](const LogReplay& log) {
    std::map<std::string, uint64_t> stamps;
    const absl::Status read = log.ForEach([&](const LogRecord& record) {
      stamps[fmt::format("{}={}@{}", record.key, record.value, record.expiry)] = record.stamp;
      return absl::OkStatus();
    });
    EXPECT_TRUE(read.ok()) << read;
    return stamps;
  };
  const std::map<std::string, uint64_t> stamps{{"a=1@0", 7}, {"b=2@5", 8}, {"c=3@0", 0}};
  EXPECT_EQ(stamps_in(replay), stamps);
  // The next owner's segment repeats them, and has the next bound on disk when it has its name.
  const LogReplay::Rest rest = replay.RestFor(2, 300);
  ASSERT_TRUE(store_.Open(kRegion, 2, rest.sequence, rest.bytes).ok());
  LogReplay again(&store_, kRegion);
  ASSERT_TRUE(again.Open().ok());
  EXPECT_EQ(again.last_stamp(), 300u);
  EXPECT_EQ(stamps_in(again), stamps);
}

TEST_F(LogTest, PartsOfTransactionsCountWhereTheyWereDecided) {
  const auto id = [](uint64_t number) { return RequestId{5, number, 1'000, static_cast<uint16_t>(number)}; };
  const auto prepare = [&](Owner* owner, uint64_t number, const std::string& key) {
    std::string part;
    AppendOperation({PartOperationKind::kPut, key, "new", PairDigest(key, "new"), 77}, &part);
    AppendOperation({PartOperationKind::kDelete, "gone" + key}, &part);
    AppendOperation({PartOperationKind::kReadNothing, "read"}, &part);
    const PreparedPart prepared{id(number), 20, 1, 2, kRegion, {}, part};
    owner->log()->Append(RecordKind::kPrepared, "", EncodePrepared(prepared));
  };
  const auto decide = [&](Owner* owner, uint64_t number, bool commits) {
    owner->log()->Append(RecordKind::kDecided, "", EncodeOutcome({id(number), 30, 1, 2, false, commits}));
  };
  Owner owner(&store_, 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  for (const std::string key : {"a", "b", "c"}) owner.Put("gone" + key, "old");
  for (uint64_t number = 1; number <= 3; ++number) prepare(&owner, number, std::string(1, "abc"[number - 1]));
  owner.Put("a", "before");
  decide(&owner, 1, true);
  decide(&owner, 2, false);
  owner.Put("gonea", "after");
  decide(&owner, 4, true);  // Its part was in a segment before the checkpoint, which has its writes.
  ASSERT_TRUE(owner.Flush().ok());
  const auto check = [&](const LogReplay& replay) {
    EXPECT_EQ(*Replayed(replay), (Model{{"a", "new@77"}, {"gonea", "after"}, {"goneb", "old"}, {"gonec", "old"}}));
    EXPECT_EQ(replay.last_stamp(), 30u);
    ASSERT_EQ(replay.prepared().size(), 1u);
    EXPECT_EQ(ParsePrepared(replay.prepared()[0])->id.number, 3u);
    EXPECT_TRUE(replay.outcomes().Find(id(1))->changed);
    EXPECT_FALSE(replay.outcomes().Find(id(2))->changed);
    EXPECT_EQ(replay.outcomes().Find(id(3)), nullptr);
    (void)replay.ForEach([](const LogRecord& record) {
      EXPECT_EQ(record.stamp, record.key == "a" ? 30u : 0u);
      EXPECT_EQ(record.expiry, record.key == "a" ? 77u : kNeverExpires);
      return absl::OkStatus();
    });
  };
  LogReplay replay(&store_, kRegion);
  ASSERT_TRUE(replay.Open().ok());
  check(replay);
  // The next owner's segment repeats what is not known to be on disk.
  const LogReplay::Rest rest = replay.RestFor(2);
  ASSERT_TRUE(store_.Open(kRegion, 2, rest.sequence, rest.bytes).ok());
  LogReplay again(&store_, kRegion);
  ASSERT_TRUE(again.Open().ok());
  check(again);
}

TEST_F(LogTest, OutcomesOfRequests) {
  const auto outcome = [](uint64_t client, uint64_t number, const std::string& result) {
    return EncodeOutcome({{client, number, 1'000, 0}, 5, 9, 0, false, true, result, 0});
  };
  Owner owner(&store_, 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  owner.log()->AppendPut({"a", "1", kNeverExpires, 7, outcome(1, 1, "first")});
  owner.log()->AppendPut({"b", "2", kNeverExpires, 8, outcome(2, 1, "other")});
  owner.log()->AppendPut({"a", "3", kNeverExpires, 9, outcome(1, 2, "second")});
  owner.log()->Append(RecordKind::kDelete, "b", "");
  owner.log()->Append(RecordKind::kOutcome, "", outcome(3, 1, "alone"));
  owner.log()->Append(RecordKind::kOutcome, "", outcome(1, 1, "written again"));
  ASSERT_TRUE(owner.Flush().ok());
  const auto check = [&](const LogReplay& replay) {
    EXPECT_EQ(*Replayed(replay), (Model{{"a", "3"}}));
    std::map<uint64_t, std::string> known;
    replay.outcomes().ForEach([&](const Outcome& one) {
      known[one.id.client] = fmt::format("{} {}@{}", one.id.number, one.result, one.stamp);
    });
    EXPECT_EQ(known, (std::map<uint64_t, std::string>{{1, "2 second@9"}, {2, "1 other@8"}, {3, "1 alone@5"}}));
  };
  LogReplay replay(&store_, kRegion);
  ASSERT_TRUE(replay.Open().ok());
  check(replay);
  // The next owner's segment repeats what is not known to be on disk.
  const LogReplay::Rest rest = replay.RestFor(2);
  ASSERT_TRUE(store_.Open(kRegion, 2, rest.sequence, rest.bytes).ok());
  LogReplay again(&store_, kRegion);
  ASSERT_TRUE(again.Open().ok());
  check(again);
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
  constexpr uint32_t kCut = 0xffffd000;  // Above the hashes of all the keys.
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
  log.Append(RecordKind::kHashRange, "", bytes_of(HashRangeValue{100, 0xfffff000, 512, 0}));
  for (const char* key : {"b", "a", "c", "d"}) log.Append(RecordKind::kPut, key, "1");
  log.Append(RecordKind::kHashCut, "", bytes_of(HashCutValue{kCut, 9, 1}));
  log.Append(RecordKind::kHashCut, "", bytes_of(HashCutValue{kCut + 1000, 8, 1}));  // An older cut, applied again.
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
      add(RecordKind::kHashRange, "", bytes_of(HashRangeValue{100, kCut - 1, 512, 0}));
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
    EXPECT_EQ(replay.hash_range()->last, kCut - 1);
    EXPECT_EQ(replay.hash_range()->bucket_bytes, 512u);
    // Cuts from before the checkpoint are part of it.
    using Cuts = std::map<uint32_t, uint32_t>;
    EXPECT_EQ(replay.cuts(), with_checkpoint ? Cuts{} : (Cuts{{8, kCut + 1000}, {9, kCut}}));
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

// A join's log, for parts of a table: a split, an attempt that failed, and one that was made. With `checkpoint`, all up
// to the split is in a checkpoint.
class JoinedPartLog {
 public:
  JoinedPartLog(LogStore* store, bool checkpoint) : log_(kRegion, 1, 1, *store->Open(kRegion, 1, 1)) {
    log_.Append(RecordKind::kHashRange, "", BytesOf(HashRangeValue{0, UINT32_MAX, 512, 0}));
    for (const std::string& key : {lower, upper, other_upper}) log_.Append(RecordKind::kPut, key, "before the split");
    Flush();
    if (checkpoint) {
      const uint64_t sequence = log_.BeginRoll();
      log_.EndRoll(*store->Open(kRegion, 1, sequence));
      auto writer = *store->BeginCheckpoint(kRegion, 1, sequence);
      std::string bytes;
      AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", BeginValue(kRegion), {}, &bytes);
      AppendRecord({kRegion, 1, 2, 0}, RecordKind::kHashRange, "", BytesOf(HashRangeValue{0, UINT32_MAX, 512, 0}), {},
                   &bytes);
      uint64_t records = 2;
      for (const std::string& key : {lower, upper, other_upper}) {
        AppendRecord({kRegion, 1, ++records, 0}, RecordKind::kPut, key, "before the split", {}, &bytes);
      }
      AppendRecord({kRegion, 1, records + 1, 0}, RecordKind::kEnd, "", BytesOf(CheckpointEnd{records, log_.appended()}),
                   {}, &bytes);
      EXPECT_TRUE(writer->Append(bytes).ok() && writer->Sync().ok());
      EXPECT_TRUE(store->CommitCheckpoint(kRegion, 1, sequence).ok());
    }
    Cut();  // The split.
    Cut();
    log_.Append(RecordKind::kPut, upper, "of the first attempt");
    log_.Append(RecordKind::kPut, third_upper, "deleted since");
    Join();
    log_.Append(RecordKind::kPut, lower, "1");
    Cut();
    log_.Append(RecordKind::kPut, upper, "2");
    Join();
    Flush();
  }

  // Returns the first key with a prefix that is in a half of the hash space.
  static std::string KeyOf(const std::string& prefix, bool upper) {
    for (int i = 0;; ++i) {
      std::string key = fmt::format("{}{}", prefix, i);
      if ((HashKey(key).position >= kHalf) == upper) return key;
    }
  }
  static constexpr uint32_t kHalf = 1u << 31;
  static constexpr uint32_t kLast = UINT32_MAX;
  const std::string lower = KeyOf("a", false), upper = KeyOf("b", true), other_upper = KeyOf("c", true),
                    third_upper = KeyOf("d", true);

 private:
  template <typename T>
  static std::string BytesOf(const T& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Flush() {
    auto flush = log_.BeginFlush();
    const absl::Status status = flush.Write();
    log_.EndFlush(std::move(flush), status);
    EXPECT_TRUE(status.ok()) << status;
  }
  void Cut() { log_.Append(RecordKind::kHashCut, "", BytesOf(HashCutValue{kHalf, 8, 1})); }
  void Join() { log_.Append(RecordKind::kHashJoin, "", BytesOf(HashJoinValue{8, kLast, 1})); }
  RegionLog log_;
};

// Returns what a recovery of the part finds. Pairs outside of its range are left out, as when the region is built.
Model ReplayedPart(const LogReplay& replay) {
  Model model;
  const absl::Status status = replay.ForEach([&](const LogRecord& record) {
    const uint32_t position = HashKey(record.key).position;
    if (position >= replay.hash_range()->first && position <= replay.hash_range()->last) {
      model[std::string(record.key)] = record.value;
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return model;
}

TEST_F(LogTest, AJoinOfPartsCountsIfTheOtherRegionIsGone) {
  for (const bool checkpoint : {false, true}) {
    const JoinedPartLog log(&store_, checkpoint);
    LogReplay replay(&store_, kRegion, [](uint32_t region, uint32_t) { return region == 8; });
    const absl::Status opened = replay.Open();
    ASSERT_TRUE(opened.ok()) << opened;
    EXPECT_EQ(ReplayedPart(replay), (Model{{log.lower, "1"}, {log.upper, "2"}}));
    EXPECT_EQ(replay.hash_range()->last, UINT32_MAX);
    EXPECT_EQ(replay.joined(), (std::map<uint32_t, uint32_t>{{8, 1}}));
    // The next owner's segment, which repeats all records, says the same.
    const LogReplay::Rest rest = replay.RestFor(2);
    ASSERT_TRUE(store_.Open(kRegion, 2, rest.sequence, rest.bytes).ok());
    LogReplay again(&store_, kRegion, [](uint32_t region, uint32_t) { return region == 8; });
    ASSERT_TRUE(again.Open().ok());
    EXPECT_EQ(ReplayedPart(again), (Model{{log.lower, "1"}, {log.upper, "2"}}));
    ASSERT_TRUE(store_.Remove(kRegion, UINT32_MAX).ok());
  }
}

TEST_F(LogTest, AJoinOfPartsDoesNotCountIfTheOtherRegionIsThere) {
  for (const bool checkpoint : {false, true}) {
    const JoinedPartLog log(&store_, checkpoint);
    LogReplay replay(&store_, kRegion, [](uint32_t, uint32_t) { return false; });
    const absl::Status opened = replay.Open();
    ASSERT_TRUE(opened.ok()) << opened;
    EXPECT_EQ(ReplayedPart(replay), (Model{{log.lower, "1"}}));
    EXPECT_EQ(replay.hash_range()->last, JoinedPartLog::kHalf - 1);
    EXPECT_TRUE(replay.joined().empty());
    ASSERT_TRUE(store_.Remove(kRegion, UINT32_MAX).ok());
  }
}

TEST_F(LogTest, ARecordOfAJoinThatLeavesNoKeysIsDamage) {
  RegionLog log(kRegion, 1, 1, *store_.Open(kRegion, 1, 1));
  const HashRangeValue range{1000, 2000, 0, 0};
  const HashJoinValue join{8, 999, 1};
  log.Append(RecordKind::kHashRange, "", std::string(reinterpret_cast<const char*>(&range), sizeof(range)));
  log.Append(RecordKind::kHashJoin, "", std::string(reinterpret_cast<const char*>(&join), sizeof(join)));
  auto flush = log.BeginFlush();
  const absl::Status status = flush.Write();
  log.EndFlush(std::move(flush), status);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(LogReplay(&store_, kRegion, [](uint32_t, uint32_t) { return true; }).Open().code(),
            absl::StatusCode::kDataLoss);
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
  void Join() { log_.Append(RecordKind::kJoin, "", EncodeJoin(8, 1, {0, "m", "x", RootOf(9)})); }
  RegionLog log_;
};

TEST_F(LogTest, AJoinCountsIfTheOtherRegionIsGone) {
  const JoinedLog log(&store_);
  LogReplay replay(&store_, kRegion, [](uint32_t region, uint32_t) { return region == 8; });
  ASSERT_TRUE(replay.Open().ok());
  EXPECT_EQ(*Replayed(replay), (Model{{"a", "1"}, {"b", "1"}, {"n", "2"}}));
  EXPECT_EQ(replay.range().high, "x");
  EXPECT_EQ(replay.range().right, RootOf(9));
  EXPECT_EQ(replay.joined(), (std::map<uint32_t, uint32_t>{{8, 1}}));
}

TEST_F(LogTest, AJoinDoesNotCountIfTheOtherRegionIsThere) {
  const JoinedLog log(&store_);
  LogReplay replay(&store_, kRegion, [](uint32_t, uint32_t) { return false; });
  ASSERT_TRUE(replay.Open().ok());
  EXPECT_EQ(*Replayed(replay), (Model{{"a", "1"}, {"b", "1"}}));
  EXPECT_EQ(replay.range().high, "m");
  EXPECT_EQ(replay.range().right, RootOf(8));
  EXPECT_TRUE(replay.joined().empty());
}

// Logs from before format 5 do not say at which epoch the other region was. Then no id had been used again.
TEST_F(LogTest, AJoinAndACutSayWhichOfTheRegionsWithAnIdTheyName) {
  RegionLog log(kRegion, 1, 1, *store_.Open(kRegion, 1, 1));
  log.Append(RecordKind::kRange, "", EncodeRange({0, "", std::nullopt, {}}));
  log.Append(RecordKind::kCut, "t", RootOf(10));
  log.Append(RecordKind::kCut, "s", EncodeCut(9, 7));
  log.Append(RecordKind::kCut, "m", EncodeCut(8, 5));
  log.Append(RecordKind::kPut, "n", "2");
  log.Append(RecordKind::kJoin, "", EncodeJoin(8, 5, {0, "m", "s", RootOf(9)}));
  auto flush = log.BeginFlush();
  const absl::Status status = flush.Write();
  log.EndFlush(std::move(flush), status);
  ASSERT_TRUE(status.ok()) << status;
  // The regions that have these ids now were added at this epoch.
  for (const uint32_t added : {1u, 5u, 6u, 8u}) {
    SCOPED_TRACE(added);
    const LogReplay::GoneAt is_gone = [added](uint32_t, uint32_t epoch) { return epoch < added; };
    LogReplay replay(&store_, kRegion, is_gone);
    ASSERT_TRUE(replay.Open().ok());
    const bool joined = added > 5;
    EXPECT_EQ(*Replayed(replay), joined ? (Model{{"n", "2"}}) : Model());
    EXPECT_EQ(replay.range().high, joined ? "s" : "m");
    EXPECT_EQ(replay.joined(), joined ? (std::map<uint32_t, uint32_t>{{8, 5}}) : (std::map<uint32_t, uint32_t>()));
    std::map<uint32_t, uint32_t> cuts;
    if (added <= 1) cuts[10] = 0;
    if (added <= 7) cuts[9] = 0;
    if (added <= 5) cuts[8] = 0;
    EXPECT_EQ(replay.cuts(), cuts);
  }
}

TEST_F(LogTest, WhatAnEarlierRegionWithTheIdHasLeftIsIgnored) {
  Owner earlier(&store_, 3);
  ASSERT_TRUE(earlier.Open(1).ok());
  earlier.Range({0, "a", "z", RootOf(9)});
  for (int i = 0; i < 100; ++i) earlier.Put(fmt::format("b{}", i), "earlier");
  ASSERT_TRUE(earlier.Checkpoint().ok());
  ASSERT_TRUE(store_.NoteEnd(kRegion, 3, earlier.log()->appended()).ok());
  Owner owner(&store_, 4);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  owner.Put("c", "1");
  ASSERT_TRUE(owner.Flush().ok());
  LogReplay replay(&store_, kRegion, nullptr, 4);
  const absl::Status opened = replay.Open();
  ASSERT_TRUE(opened.ok()) << opened;
  EXPECT_EQ(*Replayed(replay), (Model{{"c", "1"}}));
  EXPECT_EQ(replay.range().low, "");
  EXPECT_EQ(LogReplay(&store_, kRegion, nullptr, 5).Open().code(), absl::StatusCode::kNotFound);
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
