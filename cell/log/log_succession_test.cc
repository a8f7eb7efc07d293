// Checks that a log keeps its records when one owner follows another, and that a fenced owner adds none.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "cell/log/test_log.h"

namespace cell {
namespace {

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

TEST_F(LogTest, ExpiriesPassFromOwnerToOwner) {
  auto owner = std::make_unique<Owner>(&store_, 1);
  ASSERT_TRUE(owner->Open(1).ok());
  owner->Range({});
  Model model;
  for (uint32_t epoch = 2; epoch <= 5; ++epoch) {
    SCOPED_TRACE(epoch);
    owner->Put(fmt::format("k{}", epoch), "value", 1000 + epoch);
    owner->Put("again", std::string(epoch, 'v'), epoch % 2 == 0 ? 7 : kNeverExpires);
    owner->Put("plain", "value");
    owner->Put("empty", "", kExpiryMax);
    ASSERT_TRUE((epoch == 3 ? owner->Checkpoint() : owner->Flush()).ok());
    model = *owner->model();
    LogReplay replay(&store_, kRegion);
    ASSERT_TRUE(replay.Open().ok());
    EXPECT_EQ(*Replayed(replay), model);
    owner = std::make_unique<Owner>(&store_, epoch);
    ASSERT_TRUE(owner->GoOn(replay).ok());
    *owner->model() = model;
    LogReplay again(&store_, kRegion);
    ASSERT_TRUE(again.Open().ok());
    EXPECT_EQ(*Replayed(again), model);
  }
  EXPECT_EQ(model.size(), 7u);
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

}  // namespace
}  // namespace cell
