// Checks when a region is checkpointed, and what a checkpoint waits for.
#include "cell/server/region/checkpointer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "cell/log/log_replay.h"
#include "cell/server/region/logged_region_test.h"

namespace cell {
namespace {

constexpr uint64_t kLogBytesMin = 10'000;

class CheckpointerTest : public LoggedRegionTest {
 protected:
  CheckpointerTest() : LoggedRegionTest(Options()) {}
  ~CheckpointerTest() override { End(); }

  static LogFlusherOptions Options() {
    LogFlusherOptions options;
    options.durability = Durability::kAsync;
    options.bound_ns = kBoundNs;
    return options;
  }
  WorkerContext Context() {
    WorkerContext context;
    context.scheduler = &scheduler_;
    context.regions = &regions_;
    context.logs = &flusher_;
    return context;
  }
  // Replaces one value until the log is longer than `bytes`.
  void Lengthen(uint64_t bytes) {
    while (region()->log_bytes_since_checkpoint() <= bytes) Put("key", std::string(300, 'v'));
  }
  // Returns how many parts of this kind the region's log has.
  int64_t Parts(LogPart::Kind kind) {
    const std::vector<LogPart> parts = *store_.List(kRegion);
    return std::count_if(parts.begin(), parts.end(), [kind](const LogPart& part) { return part.kind == kind; });
  }
  // Flips a bit of a value in memory, as no write does.
  void FlipValueOf(std::string_view key) {
    const std::string_view value = region()->tree->ValueOf(*region()->tree->Find(key)->pair);
    region()->memory->base()[AsBytes(value).data() - region()->memory->base()] ^= std::byte{1};
  }
  // Looks whether a checkpoint is due. Returns whether one has begun.
  bool Begins() {
    checkpointer_.Step();
    return region()->ClaimedFor(ClaimPurpose::kCheckpoint);
  }

  Checkpointer checkpointer_{Context(), {kLogBytesMin}};
};

// The log before the checkpoint is needed no more. The next one begins a new segment.
TEST_F(CheckpointerTest, ACheckpointReplacesTheLogBeforeIt) {
  Put("key");
  ASSERT_TRUE(Run(checkpointer_.Checkpoint(kRegion)).ok());
  EXPECT_EQ(Parts(LogPart::Kind::kCheckpoint), 1);
  EXPECT_EQ(Parts(LogPart::Kind::kSegment), 1);
  EXPECT_EQ(checkpointer_.counters().checkpoints, 1u);
}

TEST_F(CheckpointerTest, EveryRegionOfTheWorkerIsCheckpointed) {
  ASSERT_TRUE(regions_.Create(kRegion + 1, {}).ok());
  ASSERT_TRUE(Run(flusher_.Create(kRegion + 1)).ok());
  Checkpointer::Made made;
  ASSERT_TRUE(Run(checkpointer_.CheckpointAll(&made)).ok());
  EXPECT_EQ(made.regions, 2u);
  EXPECT_EQ(checkpointer_.counters().checkpoints, 2u);
}

// After a checkpoint the pairs are in it alone.
TEST_F(CheckpointerTest, PairsOfTreesAndTablesKeepTheirExpiry) {
  RegionContent content;
  content.hash_range = HashRange{0, UINT32_MAX};
  ASSERT_TRUE(regions_.Create(kRegion + 1, content).ok());
  ASSERT_TRUE(Run(flusher_.Create(kRegion + 1)).ok());
  for (const uint32_t id : {kRegion, kRegion + 1}) {
    ASSERT_TRUE(regions_.Find(id)->store->Put("key", "value", Crc64("value", Crc64("key")), {}, 7).ok());
    ASSERT_TRUE(Run(checkpointer_.Checkpoint(id)).ok());
    LogReplay replay(&store_, id);
    ASSERT_TRUE(replay.Open().ok());
    std::vector<Expiry> expiries;
    const absl::Status read = replay.ForEach([&](const LogRecord& record) {
      expiries.push_back(record.expiry);
      return absl::OkStatus();
    });
    ASSERT_TRUE(read.ok()) << read;
    EXPECT_EQ(expiries, std::vector<Expiry>{7});
  }
}

// After a checkpoint the stamps are in it alone, and that of the deleted key is below its bound.
TEST_F(CheckpointerTest, ACheckpointHasStampsAndTheirBound) {
  Put("deleted");
  Put("key");
  const uint64_t stamp = region()->tree->Find("key")->pair->stamp;
  Put("deleted");
  const uint64_t last = region()->tree->header().last_stamp;
  ASSERT_TRUE(*region()->store->Delete("deleted"));
  ASSERT_TRUE(Run(checkpointer_.Checkpoint(kRegion)).ok());
  ASSERT_EQ(Parts(LogPart::Kind::kSegment), 1);
  LogReplay replay(&store_, kRegion);
  ASSERT_TRUE(replay.Open().ok());
  EXPECT_GE(replay.last_stamp(), last);
  const absl::Status read = replay.ForEach([&](const LogRecord& record) {
    EXPECT_EQ(record.key, "key");
    EXPECT_EQ(record.stamp, stamp);
    return absl::OkStatus();
  });
  EXPECT_TRUE(read.ok()) << read;
}

// Neither the records before the checkpoint nor those that it includes wait until a flush is due.
TEST_F(CheckpointerTest, ACheckpointAsksForTheFlushesThatItNeeds) {
  Put("key");
  const int64_t begun_ns = network_.now_ns();
  ASSERT_TRUE(Run(checkpointer_.Checkpoint(kRegion)).ok());
  EXPECT_LT(network_.now_ns() - begun_ns, kBoundNs / 4);
}

// A write that is logged before the new segment and not yet applied would be neither in the checkpoint nor in the log.
TEST_F(CheckpointerTest, ACheckpointWaitsUntilEarlierWritesAreApplied) {
  region()->log->Append(RecordKind::kPut, "key", "value");
  region()->pending.emplace_back().sequence = region()->log->appended();
  Task<absl::Status> made = checkpointer_.Checkpoint(kRegion);
  made.Start();
  PassTime(10 * kBoundNs);
  EXPECT_FALSE(made.done());
  EXPECT_EQ(Parts(LogPart::Kind::kCheckpoint), 0);
  region()->pending.clear();
  region()->changed.Notify();
  PassTime(10 * kBoundNs);
  ASSERT_TRUE(made.done());
  EXPECT_TRUE(made.Take().ok());
}

// Outcomes go to the new segment with each checkpoint, and may be more than after how much the next one begins.
TEST_F(CheckpointerTest, WhatACheckpointLogsAgainCallsForNoOther) {
  Put("key");
  for (uint32_t client = 1; client <= 300; ++client) {
    region()->outcomes.Remember({{client, 1, UINT64_MAX, 0}, 1, 0, 0, false, true, "a result"});
  }
  const uint64_t before = region()->log->bytes();
  ASSERT_TRUE(Run(checkpointer_.Checkpoint(kRegion)).ok());
  ASSERT_GT(region()->log->bytes() - before, kLogBytesMin);
  EXPECT_FALSE(Begins());
  Lengthen(kLogBytesMin);
  EXPECT_TRUE(Begins());
}

// A log that has failed gets no new segment: what it dropped would be missing before it.
TEST_F(CheckpointerTest, ALogThatFailsBeforeItsNewSegmentGetsNone) {
  Put("key");
  pool_.SetPaused(true);
  Task<absl::Status> made = checkpointer_.Checkpoint(kRegion);
  made.Start();
  Turn();
  region()->FailLog(absl::DataLossError("the disk failed"));
  pool_.SetPaused(false);
  while (!made.done()) Turn();
  EXPECT_EQ(made.Take().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Parts(LogPart::Kind::kSegment), 1);
  EXPECT_EQ(checkpointer_.counters().checkpoint_bytes, 0u);
}

// It may include writes whose records never get to disk.
TEST_F(CheckpointerTest, ACheckpointWhoseLogFailsMeanwhileIsDiscarded) {
  Put("key");
  Task<absl::Status> made = checkpointer_.Checkpoint(kRegion);
  made.Start();
  while (checkpointer_.counters().checkpoint_bytes == 0) Turn();
  ASSERT_FALSE(made.done());
  region()->FailLog(absl::DataLossError("the disk failed"));
  while (!made.done()) Turn();
  EXPECT_EQ(made.Take().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Parts(LogPart::Kind::kCheckpoint), 0);
}

// The log and the checkpoint before have the pair as it was stored. They are not removed for a copy of the damage.
TEST_F(CheckpointerTest, ADamagedPairIsNotWrittenAndTheLogStays) {
  for (const std::string& value : {std::string("inline"), std::string(300, 'v')}) {
    SCOPED_TRACE(value);
    Put("key", value);
    Put("other");
    ASSERT_TRUE(Run(checkpointer_.Checkpoint(kRegion)).ok());
    const std::vector<LogPart> before = *store_.List(kRegion);
    const Checkpointer::Counters counters = checkpointer_.counters();
    FlipValueOf("key");
    Put("other");  // The leaf has a right CRC.
    const absl::Status status = Run(checkpointer_.Checkpoint(kRegion));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_NE(status.message().find("region 1: the pair of key \"key\""), std::string_view::npos) << status;
    EXPECT_EQ(checkpointer_.counters().checkpoints, counters.checkpoints);
    EXPECT_EQ(checkpointer_.counters().damaged, counters.damaged + 1);
    const std::vector<LogPart> after = *store_.List(kRegion);
    for (const LogPart& part : before) {
      const auto same = [&part](const LogPart& other) { return other.name == part.name; };
      EXPECT_TRUE(std::any_of(after.begin(), after.end(), same)) << part.name;
    }
    EXPECT_EQ(Parts(LogPart::Kind::kCheckpoint), 1);
    // A put makes it right.
    Put("key", value);
    EXPECT_TRUE(Run(checkpointer_.Checkpoint(kRegion)).ok());
  }
}

// The next leaf is found by the high fence of the one before. A wrong fence leads past the leaves between.
TEST_F(CheckpointerTest, ADamagedLeafIsNotWritten) {
  for (char first = 'a'; first < 'k'; ++first) {
    for (char second = 'a'; second < 'k'; ++second) Put(std::string({first, second}));
  }
  const NodeView leaf = *region()->tree->LeafOf("");
  ASSERT_EQ(leaf.low_key(), "");
  ASSERT_LT(leaf.high_key(), "j");
  auto* const fence =
      const_cast<std::byte*>(leaf.bytes()) + leaf.node_bytes() - kTailVersionBytes - leaf.high_key().size();
  ASSERT_EQ(*fence, static_cast<std::byte>(leaf.high_key()[0]));
  *fence ^= std::byte{16};
  ASSERT_GT(leaf.high_key(), "p");
  EXPECT_EQ(Run(checkpointer_.Checkpoint(kRegion)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Parts(LogPart::Kind::kCheckpoint), 0);
  *fence ^= std::byte{16};
  EXPECT_TRUE(Run(checkpointer_.Checkpoint(kRegion)).ok());
}

TEST_F(CheckpointerTest, ADamagedRegionIsNotTriedAgainAtOnce) {
  Lengthen(kLogBytesMin);
  FlipValueOf("key");
  ASSERT_TRUE(Begins());
  while (region()->claimed()) Turn();
  EXPECT_EQ(checkpointer_.counters().damaged, 1u);
  EXPECT_FALSE(Begins());
}

TEST_F(CheckpointerTest, ALongLogIsCheckpointed) {
  EXPECT_FALSE(Begins());
  Lengthen(kLogBytesMin);
  ASSERT_TRUE(Begins());
  while (region()->claimed()) Turn();
  EXPECT_EQ(checkpointer_.counters().checkpoints, 1u);
  EXPECT_FALSE(Begins());
}

// So checkpoints write at most half of what the log does.
TEST_F(CheckpointerTest, ALargeRegionIsCheckpointedWhenItsLogIsTwiceAsLong) {
  for (int i = 0; i < 40; ++i) Put("other" + std::to_string(i), std::string(300, 'v'));
  const uint64_t bytes = region()->store->data_bytes();
  ASSERT_GT(bytes, kLogBytesMin);
  Lengthen(bytes + bytes / 2);
  EXPECT_FALSE(Begins());
  Lengthen(3 * bytes);
  EXPECT_TRUE(Begins());
}

// A split or a migration needs the region for itself.
TEST_F(CheckpointerTest, AClaimedRegionIsNotCheckpointed) {
  Lengthen(kLogBytesMin);
  RegionClaim claim(region(), ClaimPurpose::kSplit);
  EXPECT_FALSE(Begins());
  claim.Release();
  EXPECT_TRUE(Begins());
}

// It would fail at once, again and again.
TEST_F(CheckpointerTest, ARegionWhoseLogHasFailedIsNotCheckpointed) {
  Lengthen(kLogBytesMin);
  region()->FailLog(absl::DataLossError("the disk failed"));
  EXPECT_FALSE(Begins());
}

TEST_F(CheckpointerTest, AWorkerThatEndsBeginsNoCheckpoint) {
  Lengthen(kLogBytesMin);
  scheduler_.Stop();
  EXPECT_FALSE(Begins());
}

}  // namespace
}  // namespace cell
