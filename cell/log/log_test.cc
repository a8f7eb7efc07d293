// Checks that a log returns an exact prefix of what was appended, which includes all that was synced, whatever happened
// to the machine; or else an error that names the damage.
#include <gtest/gtest.h>

#include <map>

#include "cell/base/random.h"
#include "cell/base/status_macros.h"
#include "cell/io/sim/sim_files.h"
#include "cell/log/directory_log_store.h"
#include "cell/log/log_replay.h"
#include "cell/log/region_log.h"

namespace cell {
namespace {

constexpr uint32_t kRegion = 7;
using Model = std::map<std::string, std::string>;

// Writes a region's log and remembers the meaning of each of its prefixes.
class Owner {
 public:
  Owner(LogStore* store, uint32_t epoch) : store_(store), epoch_(epoch) {}

  absl::Status Open(uint64_t sequence) {
    ASSIGN_OR_RETURN(auto writer, store_->Open(kRegion, epoch_, sequence));
    log_ = std::make_unique<RegionLog>(kRegion, epoch_, sequence, std::move(writer));
    states_[sequence] = model_;
    return absl::OkStatus();
  }
  // Opens the log as the next owner, after it was read.
  absl::Status GoOn(const LogReplay& replay) {
    const LogReplay::Rest rest = replay.RestFor(epoch_);
    ASSIGN_OR_RETURN(auto writer, store_->Open(kRegion, epoch_, rest.sequence, rest.bytes));
    log_ = std::make_unique<RegionLog>(kRegion, epoch_, rest.next_sequence, std::move(writer), /*begun=*/true);
    states_[rest.next_sequence - 1] = model_;
    return absl::OkStatus();
  }
  void Range(const MeganodeRange& range) { Note(log_->Append(RecordKind::kRange, range.low, EncodeRange(range))); }
  void Put(const std::string& key, const std::string& value) {
    model_[key] = value;
    Note(log_->Append(RecordKind::kPut, key, value));
  }
  void Delete(const std::string& key) {
    model_.erase(key);
    Note(log_->Append(RecordKind::kDelete, key, ""));
  }
  absl::Status Flush() {
    auto flush = log_->BeginFlush();
    const absl::Status status = flush.Write();
    log_->EndFlush(std::move(flush), status);
    return status;
  }
  // Writes a checkpoint of the current state, as if it took no time, and trims the log before it.
  absl::Status Checkpoint() {
    const uint64_t sequence = log_->BeginRoll();
    RETURN_IF_ERROR(Flush());
    ASSIGN_OR_RETURN(auto segment, store_->Open(kRegion, epoch_, sequence));
    log_->EndRoll(std::move(segment));
    Note(sequence);
    RETURN_IF_ERROR(WriteCheckpoint(sequence, log_->appended()));
    return store_->Trim(kRegion, epoch_, sequence);
  }
  absl::Status WriteCheckpoint(uint64_t sequence, uint64_t log_sequence) {
    RETURN_IF_ERROR(Flush());
    ASSIGN_OR_RETURN(auto writer, store_->BeginCheckpoint(kRegion, epoch_, sequence));
    std::string bytes;
    uint64_t records = 0;
    const auto add = [&](RecordKind kind, std::string_view key, const std::string& value) {
      AppendRecord({kRegion, epoch_, ++records, 0}, kind, key, value, {}, &bytes);
    };
    add(RecordKind::kBegin, "", BeginValue(kRegion));
    add(RecordKind::kRange, "", EncodeRange({}));
    for (const auto& [key, value] : model_) add(RecordKind::kPut, key, value);
    const CheckpointEnd end{records, log_sequence};
    add(RecordKind::kEnd, "", std::string(reinterpret_cast<const char*>(&end), sizeof(end)));
    RETURN_IF_ERROR(writer->Append(bytes));
    RETURN_IF_ERROR(writer->Sync());
    return store_->CommitCheckpoint(kRegion, epoch_, sequence);
  }

  RegionLog* log() { return log_.get(); }
  Model* model() { return &model_; }
  // Returns the meaning of the log up to each sequence.
  const std::map<uint64_t, Model>& states() const { return states_; }

 private:
  void Note(uint64_t sequence) { states_[sequence] = model_; }

  LogStore* const store_;
  const uint32_t epoch_;
  std::unique_ptr<RegionLog> log_;
  Model model_;
  std::map<uint64_t, Model> states_;
};

absl::StatusOr<Model> Replayed(const LogReplay& replay) {
  Model model;
  std::string last;
  RETURN_IF_ERROR(replay.ForEach([&](std::string_view key, std::string_view value) {
    EXPECT_LT(last, key);
    last = key;
    model.emplace(key, value);
    return absl::OkStatus();
  }));
  return model;
}

class LogTest : public ::testing::Test {
 protected:
  std::string Segment(uint64_t sequence, uint32_t epoch) const {
    return fmt::format("log/region-{}/{:016x}.{:08x}.log", kRegion, sequence, epoch);
  }

  SimDisk disk_{1};
  std::unique_ptr<SimFiles> host_ = disk_.NewHost();
  DirectoryLogStore store_{host_.get(), "log"};
};

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
                    .ForEach([&model](std::string_view key, std::string_view value) {
                      model[std::string(key)] = value;
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

// Each byte and each bit is tried, and the whole log is read each time. Sanitizers make that many times slower, so they
// use a smaller log.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kLogShare = 4;
#else
constexpr size_t kLogShare = 1;
#endif

// Cuts a log of 1 MiB at each byte. The whole records before the cut are what is left.
TEST_F(LogTest, CutAtEachByte) {
  Owner owner(&store_, 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  std::string* bytes = disk_.bytes(Segment(1, 1));
  std::vector<size_t> ends = {0};  // End of each record.
  Random random(5);
  for (int i = 0; bytes->size() < (size_t{1} << 20) / kLogShare; ++i) {
    ASSERT_TRUE(owner.Flush().ok());
    if (i == 0) ends.push_back(RecordBytes(0, sizeof(SegmentBegin)));
    ends.push_back(owner.log()->bytes());
    owner.Put(fmt::format("{:06}", i), std::string(random.Below(10) == 0 ? random.Below(64) : 8192, 'v'));
  }
  ASSERT_TRUE(owner.Flush().ok());
  ends.push_back(owner.log()->bytes());
  size_t whole = ends.size() - 1;
  for (size_t size = bytes->size(); size > 0; --size) {
    bytes->resize(size);
    while (ends[whole] > size) --whole;
    LogReplay replay(&store_, kRegion);
    const absl::Status status = replay.Open();
    if (whole < 2) {
      ASSERT_EQ(status.code(), absl::StatusCode::kNotFound) << size << ": " << status;
      continue;
    }
    ASSERT_TRUE(status.ok()) << size << ": " << status;
    ASSERT_EQ(replay.next_sequence(), whole + 1) << size;
    ASSERT_EQ(replay.torn_bytes(), std::string_view(*bytes).substr(ends[whole]).find_last_not_of('\0') + 1) << size;
    if (size != ends[whole] && size % 1009 != 0) continue;
    const absl::StatusOr<Model> model = Replayed(replay);
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_EQ(*model, owner.states().at(whole)) << size;
  }
}

// Flips each bit of 64 KiB. A flip is an error, or makes the log end within what the last sync wrote.
TEST_F(LogTest, EachBitFlipped) {
  Owner owner(&store_, 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  std::string* bytes = disk_.bytes(Segment(1, 1));
  size_t last_flush = 0, flushed = 0;
  for (int i = 0; bytes->size() < (size_t{64} << 10) / kLogShare; ++i) {
    owner.Put(fmt::format("{:06}", i), std::string(static_cast<size_t>(i % 700), 'v'));
    if (i % 4 != 3) continue;
    last_flush = std::exchange(flushed, owner.log()->bytes());
    ASSERT_TRUE(owner.Flush().ok());
  }
  size_t damaged = 0, torn = 0;
  for (size_t bit = 0; bit < bytes->size() * 8; ++bit) {
    (*bytes)[bit / 8] ^= static_cast<char>(1 << bit % 8);
    LogReplay replay(&store_, kRegion);
    const absl::Status status = replay.Open();
    if (status.ok()) {
      ASSERT_GE(bit / 8, last_flush);
      ASSERT_GT(replay.torn_bytes(), 0u);
      if (bit % 8 == 0) {
        ASSERT_EQ(*Replayed(replay), owner.states().at(replay.next_sequence() - 1));
      }
      ++torn;
    } else {
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      if (damaged++ == 100'000 / kLogShare) {
        EXPECT_NE(status.ToString().find(Segment(1, 1)), std::string::npos) << status;
        EXPECT_NE(status.ToString().find("offset"), std::string::npos) << status;
        EXPECT_NE(status.ToString().find("cellctl restore"), std::string::npos) << status;
      }
    }
    (*bytes)[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
  EXPECT_GT(damaged, kLogShare == 1 ? 400'000u : 90'000u);
  EXPECT_GT(torn, 1'000u);
}

TEST_F(LogTest, EachBitOfACheckpointFlipped) {
  Owner owner(&store_, 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  for (int i = 0; i < 20; ++i) owner.Put(fmt::format("{:06}", i), std::string(static_cast<size_t>(10 * i), 'v'));
  ASSERT_TRUE(owner.Checkpoint().ok());
  std::string* bytes = nullptr;
  for (const std::string& path : disk_.paths()) {
    if (path.find(".checkpoint") != std::string::npos) bytes = disk_.bytes(path);
  }
  bytes->resize(bytes->find_last_not_of('\0') + 1);  // The rest fills up a block.
  for (size_t bit = 0; bit < bytes->size() * 8; ++bit) {
    (*bytes)[bit / 8] ^= static_cast<char>(1 << bit % 8);
    LogReplay replay(&store_, kRegion);
    absl::Status status = replay.Open();
    if (status.ok()) status = Replayed(replay).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << bit << status;
    (*bytes)[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
  for (size_t size = bytes->size() - 1; size > 0; --size) {
    bytes->resize(size);
    LogReplay replay(&store_, kRegion);
    absl::Status status = replay.Open();
    if (status.ok()) status = Replayed(replay).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << size << status;
  }
}

// A process dies with records in the file that were not synced, or whose sync has failed. Its successor reads them and
// continues behind them. They must still be there when the first one's machine loses power then.
TEST(LogSuccession, WhatWasBuiltUponStays) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SimDisk disk(seed);
    const auto first_host = disk.NewHost(), second_host = disk.NewHost();
    DirectoryLogStore first(first_host.get(), "log"), second(second_host.get(), "log");
    std::unique_ptr<LogWriter> writer = *first.Open(kRegion, 1, 1);
    std::string bytes;
    AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", BeginValue(kRegion), {}, &bytes);
    AppendRecord({kRegion, 1, 2, 1}, RecordKind::kRange, "", EncodeRange({}), {}, &bytes);
    AppendRecord({kRegion, 1, 3, 2}, RecordKind::kPut, "a", "1", {}, &bytes);
    ASSERT_TRUE(writer->Append(bytes).ok());
    if (seed % 2 == 0) {
      first_host->FailAt(0, absl::UnavailableError("EIO"));
      ASSERT_FALSE(writer->Sync().ok());
    }
    LogReplay read(&second, kRegion);
    ASSERT_TRUE(read.Open().ok());
    ASSERT_EQ(read.next_sequence(), 4u);
    Owner next(&second, 2);
    ASSERT_TRUE(next.GoOn(read).ok());
    next.Put("b", "2");
    ASSERT_TRUE(next.Flush().ok());
    first_host->Crash();
    LogReplay again(&second, kRegion);
    const absl::Status status = again.Open();
    ASSERT_TRUE(status.ok()) << seed << status;
    EXPECT_EQ(*Replayed(again), (Model{{"a", "1"}, {"b", "2"}}));
  }
}

// Only a segment's name says that everything before it is on disk. An owner dies before its segment has more. The next
// owner must not begin before it, or it would cut off existing records.
TEST_F(LogTest, WhatComesBeforeASegmentThatWasOnlyBegunStays) {
  Owner owner(&store_, 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  for (const char* key : {"a", "b", "c"}) owner.Put(key, "1");
  ASSERT_TRUE(owner.Flush().ok());  // No later record says that it is on disk.
  const uint64_t sequence = owner.log()->BeginRoll();
  ASSERT_TRUE(owner.Flush().ok());
  ASSERT_TRUE(store_.Open(kRegion, 1, sequence).ok());
  LogReplay replay(&store_, kRegion);
  ASSERT_TRUE(replay.Open().ok());
  EXPECT_EQ(replay.RestFor(2).sequence, sequence);
  Owner next(&store_, 2);
  ASSERT_TRUE(next.GoOn(replay).ok());
  next.Put("d", "2");
  ASSERT_TRUE(next.Flush().ok());
  LogReplay again(&store_, kRegion);
  ASSERT_TRUE(again.Open().ok());
  EXPECT_EQ(*Replayed(again), (Model{{"a", "1"}, {"b", "1"}, {"c", "1"}, {"d", "2"}}));
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

// The next owner copies the last segment's records into its own segment and cuts them off the old one. So its segment
// must be on disk before it has its name.
TEST(LogSuccession, WhatIsWrittenOnceMoreIsThereAtOnce) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    SimDisk disk(seed);
    const auto first_host = disk.NewHost(), second_host = disk.NewHost();
    DirectoryLogStore first(first_host.get(), "log"), second(second_host.get(), "log");
    Owner owner(&first, 1);
    ASSERT_TRUE(owner.Open(1).ok());
    owner.Range({});
    owner.Put("a", "1");
    ASSERT_TRUE(owner.Flush().ok());  // The write is acknowledged, and no later record says that it is on disk.
    LogReplay read(&second, kRegion);
    ASSERT_TRUE(read.Open().ok());
    ASSERT_LT(read.RestFor(2).sequence, read.next_sequence());
    ASSERT_TRUE(Owner(&second, 2).GoOn(read).ok());
    second_host->Crash();
    LogReplay again(&first, kRegion);
    const absl::Status status = again.Open();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(*Replayed(again), (Model{{"a", "1"}}));
  }
}

TEST_F(LogTest, AMissingSegmentIsNoticed) {
  Owner owner(&store_, 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  owner.Put("a", "1");
  ASSERT_TRUE(owner.Flush().ok());
  Owner next(&store_, 2);
  ASSERT_TRUE(next.Open(4).ok());
  next.Put("b", "2");
  ASSERT_TRUE(next.Flush().ok());
  ASSERT_TRUE(LogReplay(&store_, kRegion).Open().ok());
  std::string* bytes = disk_.bytes(Segment(1, 1));
  const std::string whole = *bytes;
  bytes->resize(owner.log()->bytes() - 1);  // This is not the log's end: the next owner saw the whole record.
  const absl::Status torn = LogReplay(&store_, kRegion).Open();
  EXPECT_EQ(torn.code(), absl::StatusCode::kDataLoss);
  // The message must ask for a copy of this file.
  EXPECT_NE(torn.message().find(Segment(1, 1)), std::string::npos) << torn;
  ASSERT_TRUE(host_->Remove(Segment(1, 1)).ok());
  EXPECT_EQ(LogReplay(&store_, kRegion).Open().code(), absl::StatusCode::kDataLoss);
}

// Otherwise the next owner's records after the file would be cut off as a torn end, or start again at the first number.
TEST_F(LogTest, AnEndThatWasNotedIsMissed) {
  uint64_t last = 0;
  {
    Owner owner(&store_, 1);
    ASSERT_TRUE(owner.Open(1).ok());
    owner.Range({0, "", std::nullopt, {}});
    owner.Put("a", "1");
    ASSERT_TRUE(owner.Flush().ok());
    last = owner.log()->appended();
  }
  ASSERT_TRUE(store_.NoteEnd(kRegion, 1, last).ok());
  ASSERT_TRUE(store_.NoteEnd(kRegion, 1, last).ok());
  EXPECT_EQ(*store_.NotedEnd(kRegion), last);
  EXPECT_TRUE(LogReplay(&store_, kRegion).Open().ok());
  ASSERT_TRUE(store_.NoteEnd(kRegion, 1, last + 1).ok());
  const absl::Status missed = LogReplay(&store_, kRegion).Open();
  EXPECT_TRUE(absl::IsDataLoss(missed)) << missed;
  EXPECT_NE(missed.message().find(Segment(1, 1)), std::string::npos) << missed;
  ASSERT_TRUE(store_.Trim(kRegion, 1, last + 2).ok());  // A checkpoint includes it.
  EXPECT_EQ(*store_.NotedEnd(kRegion), 0u);
}

TEST_F(LogTest, AFileWhoseNumberNoLogHasIsDamage) {
  for (const uint64_t sequence : {uint64_t{0}, UINT64_MAX}) {
    SCOPED_TRACE(sequence);
    Owner owner(&store_, 1);
    ASSERT_TRUE(store_.Remove(kRegion).ok());
    ASSERT_TRUE(owner.Open(1).ok());
    owner.Range({});
    owner.Put("a", "1");
    ASSERT_TRUE(owner.WriteCheckpoint(sequence, owner.log()->appended()).ok());
    const absl::Status status = LogReplay(&store_, kRegion).Open();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_NE(status.message().find(".checkpoint"), std::string::npos) << status;
  }
}

TEST_F(LogTest, AFencedOwnerAcknowledgesNothing) {
  const auto other_host = disk_.NewHost();
  DirectoryLogStore other(other_host.get(), "log");
  Owner old(&store_, 1);
  ASSERT_TRUE(old.Open(1).ok());
  old.Range({});
  old.Put("a", "1");
  ASSERT_TRUE(old.Flush().ok());
  old.Put("a", "2");
  ASSERT_TRUE(other.Fence(kRegion, 3).ok());  // Fenced by a server that does nothing more.
  EXPECT_EQ(old.Flush().code(), absl::StatusCode::kAborted);
  EXPECT_LT(old.log()->durable(), old.log()->appended());
  EXPECT_EQ(old.Open(5).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Owner(&store_, 2).Open(5).code(), absl::StatusCode::kAborted);

  LogReplay replay(&other, kRegion);
  ASSERT_TRUE(replay.Open().ok());
  EXPECT_EQ(*Replayed(replay), (Model{{"a", "2"}}));  // It may be there, because the write was not reported as failed.
  Owner next(&other, 4);
  ASSERT_TRUE(next.Open(replay.next_sequence()).ok());
  next.Put("b", "3");
  ASSERT_TRUE(next.Flush().ok());
  // Later writes of the old owner are not part of the log.
  old.log()->Fail(absl::OkStatus());
  old.Put("b", "stale");
  EXPECT_EQ(old.Flush().code(), absl::StatusCode::kAborted);
  LogReplay last(&other, kRegion);
  ASSERT_TRUE(last.Open().ok());
  EXPECT_EQ(*Replayed(last), (Model{{"a", "2"}, {"b", "3"}}));
}

// Lets each call to the file system fail once, in turn. Acknowledged writes are there after a crash, or the damage is
// reported.
TEST_F(LogTest, EachCallFails) {
  uint64_t failed = 0;
  for (uint64_t n = 0;; ++n) {
    SimDisk disk(n + 1);
    const auto host = disk.NewHost();
    DirectoryLogStore store(host.get(), "log");
    Owner owner(&store, 1);
    host->FailAt(n, n % 2 == 0 ? absl::UnavailableError("EIO") : absl::ResourceExhaustedError("ENOSPC"));
    const auto run = [&]() -> absl::Status {
      RETURN_IF_ERROR(owner.Open(1));
      owner.Range({});
      RETURN_IF_ERROR(owner.Flush());
      for (int round = 0; round < 4; ++round) {
        for (int i = 0; i < 10; ++i) owner.Put(fmt::format("{}", i * round), std::string(300, 'v'));
        RETURN_IF_ERROR(owner.Flush());
        if (round % 2 == 1) RETURN_IF_ERROR(owner.Checkpoint());
      }
      return absl::OkStatus();
    };
    const absl::Status status = run();
    const uint64_t durable = owner.log() == nullptr ? 0 : owner.log()->durable();
    host->Crash();
    LogReplay replay(&store, kRegion);
    const absl::Status opened = replay.Open();
    if (durable >= 2) {
      ASSERT_TRUE(opened.ok()) << n << ": " << opened;
      ASSERT_GE(replay.next_sequence(), durable + 1) << n;
      const absl::StatusOr<Model> model = Replayed(replay);
      ASSERT_TRUE(model.ok()) << n << ": " << model.status();
      ASSERT_EQ(*model, owner.states().at(replay.next_sequence() - 1)) << n;
    } else {
      ASSERT_TRUE(opened.ok() || opened.code() == absl::StatusCode::kNotFound) << n << ": " << opened;
    }
    failed += !status.ok();
    if (host->calls() <= n) break;
  }
  EXPECT_GT(failed, 40u);
}

// Owners crash at arbitrary moments, one after the other. Each finds an exact prefix that includes all that was synced.
TEST_F(LogTest, CrashAfterCrash) {
  uint64_t torn = 0, lost = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SimDisk disk(seed);
    Random random(seed);
    Model model;
    std::vector<std::unique_ptr<SimFiles>> hosts;  // Some lose power only after others have continued from what they
                                                   // wrote.
    for (uint32_t epoch = 1; epoch < 6; ++epoch) {
      SimFiles* const host = hosts.emplace_back(disk.NewHost()).get();
      DirectoryLogStore store(host, "log");
      Owner owner(&store, epoch);
      *owner.model() = model;
      if (epoch == 1) {
        ASSERT_TRUE(owner.Open(1).ok());
        owner.Range({});
      } else {
        LogReplay replay(&store, kRegion);
        ASSERT_TRUE(replay.Open().ok());
        const bool dies = random.Below(10) == 0;
        if (dies) host->FailAt(random.Below(8), absl::UnavailableError("crashed"));
        const absl::Status status = owner.GoOn(replay);
        ASSERT_TRUE(status.ok() || dies) << status;
        if (!status.ok()) {
          host->Crash();
          continue;
        }
        for (size_t i = 0; i + 1 < hosts.size(); ++i) hosts[i]->Crash();
        host->FailAt(0, absl::OkStatus());
      }
      ASSERT_TRUE(owner.Flush().ok());
      for (uint64_t left = random.Below(60); left > 0; --left) {
        const std::string key = fmt::format("{}", random.Below(20));
        if (random.Below(4) == 0) {
          owner.Delete(key);
        } else {
          owner.Put(key, std::string(random.Below(1500), 'v'));
        }
        if (random.Below(5) == 0) {
          ASSERT_TRUE(owner.Flush().ok());
        }
        if (random.Below(30) == 0) {
          ASSERT_TRUE(owner.Checkpoint().ok());
        }
      }
      auto flush = owner.log()->BeginFlush();
      if (random.Below(2) == 0) {  // It is written but not synced.
        host->FailAt(1, absl::UnavailableError("crashed"));
        ASSERT_FALSE(flush.Write().ok());
      }
      if (random.Below(2) == 0) host->Crash();
      const auto survivor = disk.NewHost();
      DirectoryLogStore theirs(survivor.get(), "log");
      ASSERT_TRUE(theirs.Fence(kRegion, epoch + 1).ok());
      LogReplay replay(&theirs, kRegion);
      const absl::Status status = replay.Open();
      ASSERT_TRUE(status.ok()) << seed << ": " << status;
      ASSERT_GE(replay.next_sequence(), owner.log()->durable() + 1);
      const absl::StatusOr<Model> replayed = Replayed(replay);
      ASSERT_TRUE(replayed.ok()) << seed << ": " << replayed.status();
      ASSERT_EQ(*replayed, owner.states().at(replay.next_sequence() - 1)) << seed;
      torn += replay.torn_bytes() > 0;
      lost += replay.next_sequence() <= owner.log()->appended();
      model = *replayed;
    }
  }
  EXPECT_GT(torn, 100u);
  EXPECT_GT(lost, 100u);
}

}  // namespace
}  // namespace cell
