// Checks the guarantees of log_store.h across power losses and changes of owner.
#include "cell/log/directory_log_store.h"

#include <gtest/gtest.h>

#include "cell/io/sim/sim_fiber.h"
#include "cell/io/sim/sim_files.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr uint32_t kRegion = 7;

class DirectoryLogStoreTest : public ::testing::Test {
 protected:
  static std::string Path(uint64_t sequence, uint32_t epoch, const char* kind) {
    return fmt::format("log/region-{}/{:016x}.{:08x}.{}", kRegion, sequence, epoch, kind);
  }
  static bool Has(const SimDisk& disk, const std::string& path) {
    const std::vector<std::string> paths = disk.paths();
    return std::find(paths.begin(), paths.end(), path) != paths.end();
  }
  bool Has(const std::string& path) const { return Has(disk_, path); }
  // Writes a complete checkpoint, except for its name.
  static void Write(DirectoryLogStore* store, uint32_t epoch, uint64_t sequence) {
    const std::unique_ptr<LogWriter> writer = *store->BeginCheckpoint(kRegion, epoch, sequence);
    ASSERT_TRUE(writer->Append("checkpoint").ok() && writer->Sync().ok());
  }

  // A disk that two machines use: the owner's and another.
  struct TwoHosts {
    explicit TwoHosts(uint64_t seed) : disk(seed) {}
    SimDisk disk;
    std::unique_ptr<SimFiles> owners_host = disk.NewHost(), host = disk.NewHost();
    DirectoryLogStore owners{owners_host.get(), "log"}, store{host.get(), "log"};
    std::unique_ptr<LogWriter> segment = *owners.Open(kRegion, 1, 1);
  };

  SimDisk disk_{1};
  std::unique_ptr<SimFiles> host_ = disk_.NewHost();
  DirectoryLogStore store_{host_.get(), "log"};
};

// Each of many disks chooses differently which of the names that were not synced survive.
TEST_F(DirectoryLogStoreTest, WhatHasReturnedSurvivesAPowerLoss) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    TwoHosts two(seed);
    Write(&two.owners, 1, 1);
    ASSERT_TRUE(two.owners.CommitCheckpoint(kRegion, 1, 1).ok());
    two.owners_host->Crash();
    EXPECT_TRUE(Has(two.disk, Path(1, 1, "log")));
    EXPECT_TRUE(Has(two.disk, Path(1, 1, "checkpoint")));
    ASSERT_TRUE(two.owners.NoteEnd(kRegion, 1, 5).ok());
    two.owners_host->Crash();
    EXPECT_EQ(*two.owners.NotedEnd(kRegion, 1), 5u);
  }
}

// After a fence the former owner acknowledges no write, even if the machine that fenced has lost power since.
TEST_F(DirectoryLogStoreTest, AFenceSurvivesAPowerLoss) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    TwoHosts two(seed);
    ASSERT_TRUE(two.store.Fence(kRegion, 2).ok());
    two.host->Crash();
    ASSERT_TRUE(two.segment->Append("record").ok());
    EXPECT_TRUE(absl::IsAborted(two.segment->Sync()));
  }
}

// Two owners pause between their last look for fences and the rename, of a segment and of a checkpoint. A server that
// has fenced and read since would miss what they add.
TEST_F(DirectoryLogStoreTest, WhatAFormerOwnerHasBegunGetsNoName) {
  const auto host = disk_.NewHost();
  DirectoryLogStore store(host.get(), "log");
  ASSERT_TRUE(store_.Open(kRegion, 1, 1).ok());
  Write(&store_, 1, 5);
  ASSERT_TRUE(host_->CreateLog(Path(3, 2, "unfinished")).ok());
  ASSERT_TRUE(store.Fence(kRegion, 3).ok());
  EXPECT_TRUE(absl::IsNotFound(store_.CommitCheckpoint(kRegion, 1, 5)));
  EXPECT_TRUE(absl::IsNotFound(host_->Rename(Path(3, 2, "unfinished"), Path(3, 2, "log"))));
  EXPECT_EQ(store.List(kRegion)->size(), 1u);
}

// A file that nobody writes any more would stay until the region is fenced again.
TEST_F(DirectoryLogStoreTest, ASegmentThatCouldNotBeBegunLeavesNothing) {
  int failed = 0;
  for (uint64_t call = 0; call < 10; ++call) {
    host_->FailAt(call, absl::UnavailableError("EIO"));
    failed += !store_.Open(kRegion, 1, 1 + call, "records").ok();
    EXPECT_FALSE(Has(Path(1 + call, 1, "unfinished"))) << call;
  }
  EXPECT_GT(failed, 5);
}

// Another worker fences the owner between any two of the owner's steps. The fence may remove the file that the owner
// has begun; the owner's error must not depend on that.
TEST_F(DirectoryLogStoreTest, AnOwnerThatIsFencedWhileItBeginsASegmentIsToldSo) {
  int told = 0;
  bool opened = false;
  for (uint64_t steps = 0; !opened; ++steps) {
    SCOPED_TRACE(steps);
    const uint64_t sequence = 1 + steps;
    const auto epoch = static_cast<uint32_t>(1 + 2 * steps);
    absl::Status status;
    SimFiber opening([&] { status = store_.Open(kRegion, epoch, sequence, "records").status(); });
    for (uint64_t i = 0; i < steps && !opening.ended(); ++i) opening.Resume();
    opened = opening.ended();
    const auto host = disk_.NewHost();
    DirectoryLogStore store(host.get(), "log");
    ASSERT_TRUE(store.Fence(kRegion, epoch + 1).ok());
    while (!opening.ended()) opening.Resume();
    EXPECT_TRUE(status.ok() || absl::IsAborted(status)) << status;
    EXPECT_EQ(status.ok(), Has(Path(sequence, epoch, "log")));
    EXPECT_FALSE(Has(Path(sequence, epoch, "unfinished")));
    told += !status.ok();
  }
  EXPECT_GT(told, 5);
}

// Another worker fences the owner, and reads its log, between any two steps of a sync. On this disk hosts see only what
// is synced.
TEST_F(DirectoryLogStoreTest, AnOwnerThatIsFencedWhileItSyncsAcknowledgesOnlyWhatTheNextOneReads) {
  int told = 0;
  bool synced = false;
  for (uint64_t steps = 0; !synced; ++steps) {
    TwoHosts two(1);
    two.disk.set_cached(true);
    absl::Status status;
    SimFiber syncing([&] {
      status = two.segment->Append("record");
      if (status.ok()) status = two.segment->Sync();
    });
    for (uint64_t i = 0; i < steps && !syncing.ended(); ++i) syncing.Resume();
    synced = syncing.ended();
    ASSERT_TRUE(two.store.Fence(kRegion, 2).ok());
    uint64_t bytes = 0;
    const absl::StatusOr<std::vector<LogPart>> parts = two.store.List(kRegion);
    ASSERT_TRUE(parts.ok());
    for (const LogPart& part : *parts) bytes += *two.store.Size(kRegion, part);
    while (!syncing.ended()) syncing.Resume();
    EXPECT_TRUE(!status.ok() || bytes > 0) << steps;
    told += !status.ok();
  }
  EXPECT_GT(told, 1);
}

TEST_F(DirectoryLogStoreTest, NothingIsAcknowledgedIntoALogThatWasRemoved) {
  const std::unique_ptr<LogWriter> segment = *store_.Open(kRegion, 1, 1);
  ASSERT_TRUE(segment->Append("record").ok() && segment->Sync().ok());
  for (const char* name : {"0000000000000001.00000001.log", "00000001.fence"}) {
    ASSERT_TRUE(host_->Remove(fmt::format("log/region-{}/{}", kRegion, name)).ok());
  }
  ASSERT_TRUE(segment->Append("record").ok());
  EXPECT_TRUE(absl::IsNotFound(segment->Sync()));
}

TEST_F(DirectoryLogStoreTest, TrimKeepsWhatARecoveryNeeds) {
  ASSERT_TRUE(store_.Open(kRegion, 1, 1).ok());
  ASSERT_TRUE(store_.Open(kRegion, 1, 10).ok());
  ASSERT_TRUE(store_.NoteEnd(kRegion, 1, 5).ok());
  ASSERT_TRUE(store_.Trim(kRegion, 1, 5).ok());
  EXPECT_TRUE(Has(Path(1, 1, "log")));  // It has records 5 to 9.
  EXPECT_EQ(*store_.NotedEnd(kRegion, 1), 5u);
  ASSERT_TRUE(store_.Trim(kRegion, 1, 10).ok());
  EXPECT_FALSE(Has(Path(1, 1, "log")));
  EXPECT_EQ(*store_.NotedEnd(kRegion, 1), 0u);
}

TEST_F(DirectoryLogStoreTest, WhatIsRemovedIsNotOfALaterRegionWithTheId) {
  EXPECT_EQ(*store_.LastEpoch(kRegion), 0u);
  ASSERT_TRUE(store_.Open(kRegion, 3, 1).ok());
  ASSERT_TRUE(store_.NoteEnd(kRegion, 3, 5).ok());
  Write(&store_, 3, 4);
  EXPECT_EQ(*store_.LastEpoch(kRegion), 3u);
  ASSERT_TRUE(store_.Open(kRegion, 5, 1).ok());
  ASSERT_TRUE(store_.NoteEnd(kRegion, 5, 2).ok());
  EXPECT_EQ(*store_.LastEpoch(kRegion), 5u);
  EXPECT_EQ(*store_.NotedEnd(kRegion, 1), 5u);
  EXPECT_EQ(*store_.NotedEnd(kRegion, 4), 2u);
  ASSERT_TRUE(store_.Remove(kRegion, 4).ok());
  std::vector<std::string> left = disk_.paths();
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{Path(1, 5, "log"), Path(2, 5, "end"), "log/region-7/00000005.fence"}));
  ASSERT_TRUE(store_.Remove(kRegion, 5).ok());
  EXPECT_TRUE(disk_.paths().empty());
  EXPECT_TRUE(store_.Remove(kRegion, 5).ok());
}

// A former owner that does not know yet of the takeover trims its log. The next owner's files stay.
TEST_F(DirectoryLogStoreTest, AFormerOwnersTrimKeepsTheNextOnesCheckpoint) {
  ASSERT_TRUE(store_.Open(kRegion, 1, 1).ok());
  Write(&store_, 1, 1);
  ASSERT_TRUE(store_.Open(kRegion, 2, 5).ok());
  EXPECT_FALSE(Has(Path(1, 1, "unfinished")));
  Write(&store_, 2, 8);
  ASSERT_TRUE(store_.Trim(kRegion, 1, 3).ok());
  EXPECT_TRUE(store_.CommitCheckpoint(kRegion, 2, 8).ok());
}

}  // namespace
}  // namespace cell
