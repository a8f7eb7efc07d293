// Checks when the logs of a worker's regions are flushed, and what becomes of logs whose disk fails or hangs.
#include "cell/server/region/log_flusher.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cell/log/log_replay.h"
#include "cell/server/region/logged_region_test.h"

namespace cell {
namespace {

constexpr int64_t kMarkAfterNs = 20'000'000;

class LogFlusherTest : public LoggedRegionTest {
 protected:
  explicit LogFlusherTest(Durability durability = Durability::kAsync) : LoggedRegionTest(Options(durability)) {
    Turn();  // It is seen that nothing is left to flush.
    EXPECT_FALSE(region()->log->dirty());
  }

  static LogFlusherOptions Options(Durability durability) {
    LogFlusherOptions options;
    options.durability = durability;
    options.bound_ns = kBoundNs;
    options.mark_after_ns = kMarkAfterNs;
    options.waiting_bytes_max = 10'000;
    return options;
  }
  // Returns how much time passes until everything that was appended is on disk.
  int64_t TimeToFlush() {
    const int64_t begun_ns = network_.now_ns();
    while (region()->log->dirty()) Turn();
    return network_.now_ns() - begun_ns;
  }
};

// A turn in which much is written at once ends before it fills the memory.
TEST_F(LogFlusherTest, WritesWaitAsSoonAsTooMuchIsNotOnDisk) {
  EXPECT_FALSE(region()->late(*fabric_));
  region()->log->Append(RecordKind::kDelete, "key", "");
  Turn();
  const std::string value(2'000, 'v');
  int puts = 0;
  for (; puts < 100 && !region()->late(*fabric_); ++puts) {
    region()->log->AppendPut({"key", value, kNeverExpires, 1, {}});
  }
  EXPECT_LE(puts, 6);  // Without a step of the flusher.
  TimeToFlush();
  Turn();
  EXPECT_FALSE(region()->late(*fabric_));
}

// Records are collected for half of the bound, so that one sync serves many. The other half is left for the disk.
TEST_F(LogFlusherTest, AFlushBeginsAfterHalfOfTheBound) {
  const uint64_t flushes = flusher_.counters().flushes;
  const int64_t begun_ns = network_.now_ns();
  for (int i = 0; i < 10; ++i) {
    Put("key" + std::to_string(i));
    PassTime(kBoundNs / 50);
  }
  EXPECT_EQ(flusher_.counters().flushes, flushes);
  TimeToFlush();
  EXPECT_GE(network_.now_ns() - begun_ns, kBoundNs / 2);
  EXPECT_LT(network_.now_ns() - begun_ns, kBoundNs);
  EXPECT_EQ(flusher_.counters().flushes, flushes + 1);
}

TEST_F(LogFlusherTest, AFlushThatIsWaitedForBeginsAtOnce) {
  Put("key");
  const int64_t begun_ns = network_.now_ns();
  EXPECT_TRUE(Run(flusher_.Flushed(kRegion)).ok());
  EXPECT_LT(network_.now_ns() - begun_ns, kBoundNs / 10);
  EXPECT_FALSE(region()->log->dirty());
}

// Nothing can be flushed until the new segment is open. A worker that waits until a time that has passed would spin.
TEST_F(LogFlusherTest, WhileASegmentIsOpenedThereIsNoTimeToWaitFor) {
  const uint64_t sequence = region()->log->BeginRoll();
  PassTime(kBoundNs);
  EXPECT_TRUE(region()->log->dirty());
  EXPECT_GT(flusher_.NextNs(), network_.now_ns());
  std::unique_ptr<LogWriter> segment;
  ASSERT_TRUE(Run(flusher_.Open(kRegion, region()->log->epoch(), sequence, &segment)).ok());
  region()->log->EndRoll(std::move(segment));
  TimeToFlush();
}

// A crash loses at most what was acknowledged within one bound.
TEST_F(LogFlusherTest, WritesWaitWhileTheOldestRecordIsOlderThanTheBound) {
  pool_.SetPaused(true);
  Put("key");
  PassTime(kBoundNs - kBoundNs / 10);
  EXPECT_FALSE(region()->late(*fabric_));
  PassTime(kBoundNs / 5);
  EXPECT_TRUE(region()->late(*fabric_));
  pool_.SetPaused(false);
  while (region()->late(*fabric_)) Turn();
  EXPECT_FALSE(region()->log->dirty());
}

// The worker may not have looked at its logs for long, because it slept or served others.
TEST_F(LogFlusherTest, WritesWaitThoughTheFlusherHasNotLookedSince) {
  pool_.SetPaused(true);
  Put("key");
  Turn();
  EXPECT_FALSE(region()->late(*fabric_));
  const int64_t until_ns = network_.now_ns() + kBoundNs + kBoundNs / 10;
  network_.At(until_ns, [] {});
  while (network_.now_ns() < until_ns) network_.Step();
  EXPECT_TRUE(region()->late(*fabric_));
  pool_.SetPaused(false);
  while (region()->late(*fabric_)) Turn();
  EXPECT_FALSE(region()->log->dirty());
}

// The first flush took what was there when it began. What came during it is as old as that flush.
TEST_F(LogFlusherTest, WhatCameDuringAFlushIsAsOldAsItsBeginning) {
  Put("first");
  while (!region()->log->flushing()) Turn();
  pool_.SetPaused(true);
  const int64_t begun_ns = network_.now_ns();
  Put("second");
  PassTime(kBoundNs / 10);
  pool_.SetPaused(false);
  while (region()->log->durable() == 0 || region()->log->flushing()) Turn();
  const int64_t took_ns = TimeToFlush() + (network_.now_ns() - begun_ns);
  EXPECT_LT(took_ns, kBoundNs);
}

// The flush that has begun has its own bytes. What comes during it is limited.
TEST_F(LogFlusherTest, WritesWaitWhenTooMuchIsInMemory) {
  pool_.SetPaused(true);
  Put("first");
  while (!region()->log->flushing()) Turn();
  for (int i = 0; i < 20; ++i) Put("key" + std::to_string(i), std::string(300, 'v'));
  Turn();
  EXPECT_FALSE(region()->late(*fabric_));
  for (int i = 0; i < 20; ++i) Put("more" + std::to_string(i), std::string(300, 'v'));
  Turn();
  EXPECT_TRUE(region()->late(*fabric_));
  pool_.SetPaused(false);
  while (region()->late(*fabric_)) Turn();
}

// The marker says that the record before it is on disk. Without it, replay would take damage of the last record for a
// write that never ended.
TEST_F(LogFlusherTest, AnIdleLogIsMarkedOnce) {
  Put("key");
  TimeToFlush();
  const uint64_t markers = flusher_.counters().markers;
  PassTime(kMarkAfterNs - kBoundNs);
  EXPECT_EQ(flusher_.counters().markers, markers);
  PassTime(2 * kBoundNs + kMarkAfterNs);
  EXPECT_EQ(flusher_.counters().markers, markers + 1);
  PassTime(3 * kMarkAfterNs);
  EXPECT_EQ(flusher_.counters().markers, markers + 1);
  EXPECT_FALSE(region()->log->unmarked() || region()->log->dirty());
}

// The target of a migration was told the number of the last record.
TEST_F(LogFlusherTest, TheLogOfAFrozenRegionIsNotMarked) {
  Put("key");
  TimeToFlush();
  const uint64_t appended = region()->log->appended();
  region()->ChangeState(RegionState::kFrozen);
  region()->tree->RaiseLastStamp(region()->tree->header().stamp_bound);  // It would want a bound, too.
  PassTime(3 * kMarkAfterNs);
  EXPECT_EQ(region()->log->appended(), appended);
  region()->Unfreeze();
  PassTime(2 * kMarkAfterNs);
  EXPECT_EQ(region()->log->appended(), appended + 2);
}

// Until then, writes wait.
TEST_F(LogFlusherTest, AFlushBeginsAtOnceWhenTooMuchIsInMemory) {
  for (int i = 0; i < 40; ++i) Put("key" + std::to_string(i), std::string(300, 'v'));
  const int64_t begun_ns = network_.now_ns();
  Turn();
  EXPECT_TRUE(region()->late(*fabric_));
  EXPECT_TRUE(region()->log->flushing());
  TimeToFlush();
  EXPECT_LT(network_.now_ns() - begun_ns, kBoundNs / 10);
}

// Otherwise the next record would be flushed too early, alone.
TEST_F(LogFlusherTest, WhatCameDuringAFlushIsCollectedFromItsBeginning) {
  for (const bool requested : {false, true}) {
    SCOPED_TRACE(requested);
    Put("first");
    if (requested) region()->RequestFlush();
    while (!region()->log->flushing()) Turn();
    Put("second");
    while (region()->log->flushing()) Turn();
    const uint64_t flushes = flusher_.counters().flushes;
    PassTime(kBoundNs / 5);
    EXPECT_TRUE(region()->log->dirty());
    EXPECT_FALSE(region()->log->flushing());
    TimeToFlush();
    EXPECT_EQ(flusher_.counters().flushes, flushes + 1);
  }
}

TEST_F(LogFlusherTest, ARequestWithoutAnythingToFlushIsForgotten) {
  region()->RequestFlush();
  Turn();
  Put("key");
  PassTime(kBoundNs / 5);
  EXPECT_TRUE(region()->log->dirty());
  EXPECT_FALSE(region()->log->flushing());
}

// So that no later owner gives one of them again.
TEST_F(LogFlusherTest, NoStampIsGivenAboveABoundThatIsOnDisk) {
  const auto bound_on_disk = [this] {
    LogReplay replay(&store_, kRegion);
    EXPECT_TRUE(replay.Open().ok());
    return replay.last_stamp();
  };
  const auto last_stamp = [this] { return region()->tree->header().last_stamp; };
  const uint64_t first = bound_on_disk();
  EXPECT_GT(first, last_stamp());
  EXPECT_EQ(region()->tree->header().stamp_bound, first);
  // It takes over the keys of a region that has given all of these. Puts wait for a flush, which nothing else asks for.
  region()->tree->RaiseLastStamp(first);
  EXPECT_TRUE(absl::IsUnavailable(region()->store->Put("key", "value", Crc64("value", Crc64("key"))).status()));
  TimeToFlush();
  while (region()->tree->header().stamp_bound == first) Turn();
  Put("key");
  EXPECT_GT(last_stamp(), first);
  EXPECT_LE(last_stamp(), bound_on_disk());
  // A flush takes the next one along in time.
  for (int i = 0; i < 100; ++i) {
    region()->tree->RaiseLastStamp(last_stamp() + 1'000'000'000);
    Put("key");
    EXPECT_TRUE(Run(flusher_.Flushed(kRegion)).ok());
    ASSERT_LE(last_stamp(), bound_on_disk());
  }
  // A log that takes nothing leaves the bound as it is.
  const uint64_t bound = region()->tree->header().stamp_bound;
  region()->tree->RaiseLastStamp(bound);
  files_->FailAt(0, absl::DataLossError("the disk failed"));
  for (int i = 0; i < 100; ++i) Turn();
  EXPECT_EQ(region()->tree->header().stamp_bound, bound);
  EXPECT_TRUE(absl::IsUnavailable(region()->store->Put("key", "value", Crc64("value", Crc64("key"))).status()));
}

// The region is about to be cut or copied: a write that is logged and not applied would be missing.
TEST_F(LogFlusherTest, ARegionIsSettledWhenItsLoggedWritesAreApplied) {
  region()->log->Append(RecordKind::kPut, "key", "value");
  region()->pending.emplace_back().sequence = region()->log->appended();
  region()->ChangeState(RegionState::kFrozen);
  Task<absl::Status> settled = flusher_.Settled(kRegion);
  settled.Start();
  PassTime(3 * kBoundNs);
  EXPECT_FALSE(region()->log->dirty());
  EXPECT_FALSE(settled.done());
  region()->pending.clear();
  region()->changed.Notify();
  PassTime(kBoundNs);
  ASSERT_TRUE(settled.done());
  EXPECT_TRUE(settled.Take().ok());
}

// Its transactions may have to wait for a server that is away, and its writes wait meanwhile.
TEST_F(LogFlusherTest, ARegionIsNotSettledForEver) {
  std::string part;
  AppendOperation({PartOperationKind::kDelete, "key"}, &part);
  region()->transactions.Add(
      std::make_shared<RegionTransaction>(PreparedPart{{1, 1, UINT64_MAX, 1}, 0, 0, 0, kRegion, "", part}, 0));
  region()->ChangeState(RegionState::kFrozen);
  Task<absl::Status> settled = flusher_.Settled(kRegion);
  settled.Start();
  PassTime(50'000'000);
  EXPECT_FALSE(settled.done());
  PassTime(100'000'000);
  ASSERT_TRUE(settled.done());
  EXPECT_TRUE(absl::IsUnavailable(settled.Take()));
  EXPECT_GT(region()->no_parts_before_ns, 1'000'000'000) << "those that it has can end meanwhile";
}

TEST_F(LogFlusherTest, ARegionWhoseLogFailsIsNotSettled) {
  region()->pending.emplace_back().sequence = region()->log->appended() + 1;
  region()->ChangeState(RegionState::kFrozen);
  Task<absl::Status> settled = flusher_.Settled(kRegion);
  settled.Start();
  PassTime(3 * kBoundNs);
  EXPECT_FALSE(settled.done());
  region()->FailLog(absl::DataLossError("the disk failed"));
  PassTime(3 * kBoundNs);
  ASSERT_TRUE(settled.done());
  EXPECT_EQ(settled.Take().code(), absl::StatusCode::kDataLoss);
  region()->pending.clear();
}

TEST_F(LogFlusherTest, ARegionThatIsLostIsNotSettled) {
  region()->pending.emplace_back().sequence = region()->log->appended() + 1;
  region()->ChangeState(RegionState::kFrozen);
  Task<absl::Status> settled = flusher_.Settled(kRegion);
  settled.Start();
  PassTime(3 * kBoundNs);
  EXPECT_FALSE(settled.done());
  region()->ChangeState(RegionState::kLost);
  PassTime(3 * kBoundNs);
  ASSERT_TRUE(settled.done());
  EXPECT_TRUE(absl::IsAborted(settled.Take()));
  region()->pending.clear();
}

// What a sync that failed has dropped, the next one would not write.
TEST_F(LogFlusherTest, ALogThatHasFailedStaysFailed) {
  Put("key");
  files_->FailAt(0, absl::DataLossError("the disk failed"));
  EXPECT_EQ(Run(flusher_.Flushed(kRegion)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(flusher_.counters().failed, 1u);
  const uint64_t flushes = flusher_.counters().flushes, durable = region()->log->durable();
  Put("other");
  EXPECT_FALSE(Run(flusher_.Flushed(kRegion)).ok());
  PassTime(3 * kBoundNs);
  EXPECT_EQ(flusher_.counters().flushes, flushes);
  EXPECT_EQ(region()->log->durable(), durable);
}

// The log that is there has records which the region table does not know of.
TEST_F(LogFlusherTest, ALogIsMadeOnce) {
  const absl::Status again = Run(flusher_.Create(kRegion));
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists) << again;
  EXPECT_TRUE(flusher_.found_anothers());
}

// Its server died before it had removed that log.
TEST_F(LogFlusherTest, AnEarlierRegionsLogMakesRoomForThatOfALaterOneWithItsId) {
  const uint32_t id = kRegion + 1;
  ASSERT_TRUE(store_.Open(id, 3, 1).ok());
  ASSERT_TRUE(store_.NoteEnd(id, 3, 9).ok());
  ASSERT_TRUE(regions_.Create(id, {}, RegionState::kServing, 4).ok());
  const absl::Status made = Run(flusher_.Create(id));
  ASSERT_TRUE(made.ok()) << made;
  EXPECT_FALSE(flusher_.found_anothers());
  EXPECT_EQ(regions_.Find(id)->log->epoch(), 4u);
  EXPECT_EQ(store_.List(id)->size(), 1u);
  EXPECT_EQ(*store_.NotedEnd(id, 1), 0u);
  EXPECT_TRUE(absl::IsAborted(store_.Open(id, 3, 7).status()));  // The earlier one's owner may still be there.
}

// The new log cannot be made, at any call of the disk. The earlier one's owner adds nothing to what was removed.
TEST_F(LogFlusherTest, NothingIsAddedToAnEarlierRegionsLogOnceItIsRemoved) {
  size_t removed = 0;
  for (uint64_t call = 0;; ++call) {
    const auto id = static_cast<uint32_t>(10 + call);
    ASSERT_TRUE(store_.Open(id, 3, 1).ok());
    ASSERT_TRUE(regions_.Create(id, {}, RegionState::kServing, 4).ok());
    files_->FailAt(call, absl::UnavailableError("EIO"));
    const absl::Status made = Run(flusher_.Create(id));
    files_->FailAt(UINT64_MAX, absl::OkStatus());
    regions_.Drop(id);
    if (made.ok()) break;
    const auto parts = store_.List(id);
    const bool there =
        parts.ok() && std::any_of(parts->begin(), parts->end(), [](auto& part) { return part.epoch == 3; });
    if (there) continue;
    ++removed;
    EXPECT_TRUE(absl::IsAborted(store_.Open(id, 3, 7).status())) << call;
  }
  EXPECT_GT(removed, 0u);
}

TEST_F(LogFlusherTest, ALogThatFindsNoDescriptorIsOpenedLater) {
  ASSERT_TRUE(store_.Fence(kRegion, 2).ok());
  region()->memory->header().log_sequence = region()->log->appended();
  files_->set_descriptors_gone(true);
  Task<absl::Status> opened = flusher_.Continue(kRegion, 2);
  opened.Start();
  PassTime(10 * kBoundNs);
  EXPECT_FALSE(opened.done());
  files_->set_descriptors_gone(false);
  while (!opened.done()) Turn();
  EXPECT_TRUE(opened.Take().ok());
  EXPECT_EQ(region()->log->epoch(), 2u);
}

// A server that ends does not wait for other programs to give descriptors back.
TEST_F(LogFlusherTest, AnOpenThatFindsNoDescriptorEndsWithTheWorker) {
  files_->set_descriptors_gone(true);
  Task<absl::Status> opened = flusher_.Continue(kRegion, 2);
  opened.Start();
  PassTime(10 * kBoundNs);
  EXPECT_FALSE(opened.done());
  scheduler_.Stop();
  PassTime(10 * kBoundNs);
  EXPECT_TRUE(opened.done());
  files_->set_descriptors_gone(false);
  while (!opened.done()) Turn();
}

// Nothing that is written to the region could get to disk.
TEST_F(LogFlusherTest, ALogThatCannotContinueHasFailed) {
  files_->FailAt(0, absl::DataLossError("the disk failed"));
  EXPECT_EQ(Run(flusher_.Continue(kRegion, 2)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(region()->log->epoch(), 2u);
  EXPECT_EQ(region()->log->status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(LogFlusherTest, ARegionThatIsDroppedWhileItsLogIsOpenedGetsNone) {
  pool_.SetPaused(true);
  Task<absl::Status> opened = flusher_.Continue(kRegion, 2);
  opened.Start();
  regions_.Drop(kRegion);
  pool_.SetPaused(false);
  while (!opened.done()) Turn();
  EXPECT_EQ(opened.Take().code(), absl::StatusCode::kAborted);
}

// Otherwise the region would be checkpointed at once, or not for a long time.
TEST_F(LogFlusherTest, ALogThatContinuesCountsItsBytesFromItsBegin) {
  for (int i = 0; i < 20; ++i) Put("key", std::string(300, 'v'));
  region()->NoteCheckpoint();
  EXPECT_EQ(region()->log_bytes_since_checkpoint(), 0u);
  ASSERT_TRUE(Run(flusher_.Flushed(kRegion)).ok());
  region()->memory->header().log_sequence = region()->log->appended();
  ASSERT_TRUE(Run(flusher_.Continue(kRegion, 2)).ok());
  EXPECT_EQ(region()->log_bytes_since_checkpoint(), region()->log->bytes());
  Put("key");
  EXPECT_EQ(region()->log_bytes_since_checkpoint(), region()->log->bytes());
}

TEST_F(LogFlusherTest, ARegionThatIsDroppedIsNotWaitedFor) {
  pool_.SetPaused(true);
  Put("key");
  Task<absl::Status> flushed = flusher_.Flushed(kRegion);
  flushed.Start();
  Turn();
  EXPECT_FALSE(flushed.done());
  regions_.Drop(kRegion);
  while (!flushed.done()) Turn();
  EXPECT_EQ(flushed.Take().code(), absl::StatusCode::kAborted);
  pool_.SetPaused(false);
  while (!pool_.idle()) Turn();  // The flush ends without the region.
}

TEST_F(LogFlusherTest, FinishFlushesMarksAndRecordsTheEnd) {
  Put("key");
  ASSERT_TRUE(flusher_.Finish().ok());
  EXPECT_FALSE(region()->log->dirty() || region()->log->unmarked());
  EXPECT_EQ(*store_.NotedEnd(kRegion, 1), region()->log->appended());
}

// A worker that ends collects no more records.
TEST_F(LogFlusherTest, FinishDoesNotWaitForFlushesToBeDue) {
  Put("key");
  const int64_t begun_ns = network_.now_ns();
  ASSERT_TRUE(flusher_.Finish().ok());
  EXPECT_LT(network_.now_ns() - begun_ns, kBoundNs);
}

TEST_F(LogFlusherTest, FinishSaysWhatMayNotBeOnADiskThatHangs) {
  pool_.SetPaused(true);
  Put("key");
  const int64_t begun_ns = network_.now_ns();
  const absl::Status finished = flusher_.Finish();
  EXPECT_EQ(finished.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(finished.message().find("regions may not be on it: 1"), std::string::npos) << finished;
  EXPECT_GE(network_.now_ns() - begun_ns, LogFlusherOptions().finish_patience_ns);
  EXPECT_LT(network_.now_ns() - begun_ns, 2 * LogFlusherOptions().finish_patience_ns);
  pool_.SetPaused(false);
  while (!pool_.idle()) Turn();
}

class SyncLogFlusherTest : public LogFlusherTest {
 protected:
  static constexpr int64_t kSlowDiskNs = 100'000;

  // The first flush has had the two records of a new log. Nobody waits for them any more.
  SyncLogFlusherTest() : LogFlusherTest(Durability::kSync) { PassTime(LogFlusherOptions().gather_max_ns); }
  void Append(int records) {
    for (int i = 0; i < records; ++i) region()->log->Append(RecordKind::kPut, "key", "value");
  }
  // Flushes records, as a disk does that is slow from then on.
  void FlushRecords(int records) {
    pool_.set_mean_ns(kSlowDiskNs);
    Append(records);
    Turn();
    const int64_t begun_ns = network_.now_ns();
    while (region()->log->flushing()) Turn();
    took_ns_ = network_.now_ns() - begun_ns;
  }
  int64_t took_ns_ = 0;  // By the last FlushRecords.
};

// Each acknowledgement waits for a flush, so none is delayed. What comes during one goes with the next.
TEST_F(SyncLogFlusherTest, FlushesFollowEachOther) {
  RegionLog* const log = region()->log.get();
  const uint64_t flushes = flusher_.counters().flushes;
  log->Append(RecordKind::kPut, "first", "value");
  Turn();
  EXPECT_TRUE(log->flushing());
  for (int i = 0; i < 10; ++i) log->Append(RecordKind::kPut, std::to_string(i), "value");
  EXPECT_LT(TimeToFlush(), kBoundNs / 10);
  EXPECT_EQ(flusher_.counters().flushes, flushes + 2);
}

// Otherwise the first client to send again would have a flush of its own, and the others would wait for it.
TEST_F(SyncLogFlusherTest, AFlushWaitsForThoseThatTheLastOneHasAnswered) {
  FlushRecords(3);
  Append(2);
  Turn();
  EXPECT_FALSE(region()->log->flushing());
  EXPECT_GT(flusher_.NextNs(), network_.now_ns());
  EXPECT_LE(flusher_.NextNs(), network_.now_ns() + took_ns_ / 4);
  Append(1);
  Turn();
  EXPECT_TRUE(region()->log->flushing());
  Append(1);  // Comes during the flush, and belongs to those that are waited for after it.
  while (region()->log->flushing()) Turn();
  Append(2);
  Turn();
  EXPECT_FALSE(region()->log->flushing());
  Append(1);
  Turn();
  EXPECT_TRUE(region()->log->flushing());
}

TEST_F(SyncLogFlusherTest, AFlushWaitsForThemForAQuarterOfTheLastOne) {
  FlushRecords(3);
  EXPECT_GT(took_ns_, kSlowDiskNs / 10);
  Append(2);
  const int64_t begun_ns = network_.now_ns();
  while (!region()->log->flushing()) Turn();
  EXPECT_GE(network_.now_ns() - begun_ns, took_ns_ / 8);
  EXPECT_LE(network_.now_ns() - begun_ns, took_ns_ / 4 + 1'000);
}

// A disk may hang for seconds.
TEST_F(SyncLogFlusherTest, AFlushWaitsForThemForAMillisecondAtMost) {
  Append(3);
  Turn();
  pool_.SetPaused(true);
  PassTime(100 * LogFlusherOptions().gather_max_ns);
  pool_.SetPaused(false);
  while (region()->log->flushing()) Turn();
  Append(2);
  const int64_t begun_ns = network_.now_ns();
  while (!region()->log->flushing()) Turn();
  EXPECT_LE(network_.now_ns() - begun_ns, LogFlusherOptions().gather_max_ns + 1'000);
}

TEST_F(SyncLogFlusherTest, AClientAloneWaitsForNobody) {
  for (int i = 0; i < 3; ++i) {
    Append(1);
    Turn();
    EXPECT_TRUE(region()->log->flushing());
    while (region()->log->flushing()) Turn();
  }
}

TEST_F(SyncLogFlusherTest, AFlushThatIsAskedForWaitsForNobody) {
  FlushRecords(3);
  Append(1);
  region()->RequestFlush();
  Turn();
  EXPECT_TRUE(region()->log->flushing());
}

// However slow the disk is, no write is acknowledged before it is on it.
TEST_F(SyncLogFlusherTest, ASlowDiskMakesNoWriteWait) {
  pool_.SetPaused(true);
  region()->log->Append(RecordKind::kPut, "key", "value");
  PassTime(3 * kBoundNs);
  EXPECT_FALSE(region()->late(*fabric_));
  pool_.SetPaused(false);
  TimeToFlush();
}

}  // namespace
}  // namespace cell
