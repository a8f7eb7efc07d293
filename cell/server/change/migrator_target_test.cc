// Checks that the target of a migration trusts nothing that its source says, neither the pages nor their content.
#include <gtest/gtest.h>

#include "cell/server/change/migration_phase.h"
#include "cell/server/change/migrator.h"
#include "cell/server/change/migrator_test.h"

namespace cell {
namespace {

TEST(MigrationPhase, AllowsWhatItsTableShows) {
  constexpr std::string_view kNames[] = {"offered", "copying", "frozen", "sealed", "settling", "migrated", "kept"};
  std::string changes;
  for (int from = 0; from < 7; ++from) {
    changes += fmt::format("{}:", kNames[from]);
    for (int to = 0; to < 7; ++to) {
      if (CanChange(MigrationPhase(from), MigrationPhase(to))) changes += fmt::format(" {}", kNames[to]);
    }
    changes += "\n";
  }
  EXPECT_EQ(changes,
            "offered: copying kept\n"
            "copying: frozen kept\n"
            "frozen: sealed kept\n"
            "sealed: settling migrated\n"
            "settling: migrated kept\n"
            "migrated:\n"
            "kept:\n");
}

// A worker that recovers its own regions needs their slots.
TEST_F(MigratorTest, TakesNoneInThePlaceOfARegionThatItRecovers) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  {
    const std::lock_guard lock(cluster_->mutex);
    for (uint32_t i = 0; i < worker_->regions()->regions_max(); ++i) {
      cluster_->state.table.regions.Set(kRegion + 1 + i, {{"target", 0}, 1});
    }
    ++cluster_->state.table.version;
    ++cluster_->changes;
  }
  SetDraining(true);  // It reads the table.
  SetDraining(false);
  Offer();
  EXPECT_FALSE(Migrated());
  EXPECT_EQ(AnswerTo(MakeMigrationRequest(MigrationStep::kOffer, kRegion, 1, 0, "source")).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(MigratorTest, TakesARegionThatIsOne) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  source_.runs = {{0, kPages}};
  Offer();
  EXPECT_TRUE(Migrated());
  EXPECT_EQ(cluster_->state.table.Find(kRegion)->epoch, 2u);
}

// A source that gets no answer for a while (because of a slow log directory) offers the region again.
TEST_F(MigratorTest, ARegionThatIsOfferedTwiceIsTakenOnce) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  source_.runs = {{0, kPages}};
  const std::string offer = MakeMigrationRequest(MigrationStep::kOffer, kRegion, 1, 0, "source");
  EXPECT_TRUE(AnswerTo(offer).ok());
  EXPECT_EQ(AnswerTo(offer).code(), absl::StatusCode::kAlreadyExists);
  for (int i = 0; i < 100'000 && !worker_->scheduler()->idle(); ++i) {
    source_fabric_->Poll();
    if (worker_->Poll() == 0) network_.Step();
  }
  EXPECT_TRUE(Migrated());
  EXPECT_EQ(std::count(source_.steps.begin(), source_.steps.end(), MigrationStep::kBegin), 1);
  EXPECT_EQ(AnswerTo(offer).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(MigratorTest, RefusesOffersThatCannotBe) {
  EXPECT_EQ(AnswerTo(MakeMigrationRequest(MigrationStep::kOffer, 0, 1, 0, "source")).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AnswerTo(MakeMigrationRequest(MigrationStep::kOffer, Pointer::kRegionMax + 1, 1, 0, "source")).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AnswerTo(MakeMigrationRequest(MigrationStep::kOffer, 5, 1, 0, "target")).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(worker_->regions()->size(), 0u);
}

TEST_F(MigratorTest, TakesNothingWhileItsServerIsDrained) {
  const std::string offer = MakeMigrationRequest(MigrationStep::kOffer, kRegion, 1, 0, "source");
  SetDraining(true);
  EXPECT_EQ(AnswerTo(offer).code(), absl::StatusCode::kResourceExhausted);
  SetDraining(false);
  EXPECT_TRUE(AnswerTo(offer).ok());
}

TEST_F(MigratorTest, TakesNothingWhileItEnds) {
  worker_->scheduler()->Stop();
  EXPECT_EQ(AnswerTo(MakeMigrationRequest(MigrationStep::kOffer, kRegion, 1, 0, "source")).code(),
            absl::StatusCode::kResourceExhausted);
}

// The rounds of a migration that has begun may take long.
TEST_F(MigratorTest, EndsWhatItTakesWhileItEnds) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  source_.runs = {{0, kPages}};
  worker_->sync_points()->on_reach = [this](std::string_view point) {
    if (point == "migration: target: first copy") worker_->scheduler()->Stop();
  };
  Offer();
  EXPECT_FALSE(Migrated());
  EXPECT_EQ(source_.why, "this server is shutting down");
}

// The next migration of the region, from here, copies the pages that were written since the region was made.
TEST_F(MigratorTest, NotesThePagesThatItCopies) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  source_.runs = {{0, kPages}};
  Offer();
  ASSERT_TRUE(Migrated());
  EXPECT_EQ(worker_->regions()->Find(kRegion)->written->count(), kPages);
}

// The memory of another region is used again. Pages that were never written are not copied, and must be zeros.
TEST_F(MigratorTest, NothingOfAnotherRegionIsLeftInTheMemory) {
  constexpr uint64_t kLastWord = kShape.extents_offset() - sizeof(uint64_t);
  HeldRegion* const former = *worker_->regions()->Create(kRegion + 1, {});
  const RegionMemory* const memory = former->memory;
  former->memory->StoreWord(kLastWord, 1);
  worker_->regions()->Drop(kRegion + 1);
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  source_.runs = {{0, 2}};
  Offer();
  ASSERT_TRUE(Migrated());
  ASSERT_EQ(worker_->regions()->Find(kRegion)->memory, memory);
  EXPECT_EQ(LoadWord(memory->at(kLastWord)), 0u);
}

// A region is offered, goes away, and comes back to its source in other memory. The target knows where it was before.
TEST_F(MigratorTest, ReadsARegionWhereItIsNow) {
  source_.runs = {{0, kPages}};
  Offer();
  ASSERT_FALSE(Migrated());  // The memory holds no region.
  source_fabric_->DropRegion(kRegion);
  ASSERT_EQ(*source_fabric_->CreateRegion(kRegion + 1, kShape.region_bytes()), memory_);
  RegionMemory* const now = *source_fabric_->CreateRegion(kRegion, kShape.region_bytes());
  ASSERT_NE(now, memory_);
  ASSERT_TRUE(Meganode::Format(now, kRegion, kShape).ok());
  Offer();
  EXPECT_TRUE(Migrated());
}

// Somebody writes as fast as the target copies. Writes must wait at some time, or the migration would never end.
TEST_F(MigratorTest, FreezesWhenRoundsDoNotGetShorter) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  source_.runs = {{0, kPages}};
  Offer();
  ASSERT_TRUE(Migrated());
  EXPECT_EQ(std::count(source_.steps.begin(), source_.steps.end(), MigrationStep::kWritten), 1);
}

TEST_F(MigratorTest, FreezesAfterTwelveRoundsThatHardlyGetShorter) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  source_.runs = {{0, kPages}};
  source_.shrinks = true;
  Offer();
  ASSERT_TRUE(Migrated());
  EXPECT_EQ(std::count(source_.steps.begin(), source_.steps.end(), MigrationStep::kWritten), 12);
}

// The target also keeps nothing of an offer whose sender does not exist.
TEST_F(MigratorTest, AnOfferOfAStrangerEndsAndItsRoomIsFree) {
  for (uint32_t region = 100; region < 200; ++region) {
    EXPECT_TRUE(
        AnswerTo(MakeMigrationRequest(MigrationStep::kOffer, region, 1, 0, fmt::format("stranger-{}", region))).ok());
    for (int i = 0; i < 100'000 && !worker_->scheduler()->idle(); ++i) {
      if (worker_->Poll() == 0) network_.Step();
    }
    EXPECT_TRUE(worker_->scheduler()->idle());
    EXPECT_EQ(worker_->regions()->size(), 0u);
  }
  EXPECT_NE(worker_->service()->reports().StatusJson(0, 1).find("\"connections_to_servers\":0"), std::string::npos);
}

// A connection to a server that leaves the cluster is closed, though nobody uses it any more.
TEST_F(MigratorTest, KeepsNoConnectionToAServerThatHasLeft) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  source_.runs = {{0, kPages}};
  Offer();
  ASSERT_TRUE(Migrated());
  EXPECT_EQ(ConnectionsToServers(), 1u);
  cluster_->state.servers.pop_back();
  const auto refresh = [](Worker* worker) -> Task<bool> {
    co_return (co_await worker->rebalancer()->SetDraining(false)).ok();
  };
  worker_->scheduler()->Spawn(refresh(worker_.get()));
  for (int i = 0; i < 100'000 && ConnectionsToServers() > 0; ++i) {
    if (worker_->Poll() == 0) network_.Step();
  }
  EXPECT_EQ(ConnectionsToServers(), 0u);
}

TEST_F(MigratorTest, RefusesPagesThatAreNone) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  for (const PageRun& run : std::vector<PageRun>{
           {kPages, 1}, {kPages - 1, 2}, {0, 0}, {0, 65}, {0, UINT32_MAX}, {UINT32_MAX, 1}, {UINT32_MAX, UINT32_MAX}}) {
    source_.runs = {{0, 1}, run};
    source_.why.clear();
    Offer();
    EXPECT_FALSE(Migrated()) << run.first << " " << run.pages;
    EXPECT_EQ(source_.why, "source.0 sent page numbers that are out of range");
  }
}

TEST_F(MigratorTest, RefusesARegionOfAnotherIdOrShape) {
  source_.runs = {{0, kPages}};
  const auto refused = [this](const std::function<void(RegionHeader*)>& change) {
    CELL_CHECK(Meganode::Format(memory_, kRegion, kShape).ok());
    change(&memory_->header());
    Offer();
    return !Migrated();
  };
  EXPECT_TRUE(refused([](RegionHeader* header) { header->magic = 0; }));
  EXPECT_TRUE(refused([](RegionHeader* header) { header->region = kRegion + 1; }));
  EXPECT_TRUE(refused([](RegionHeader* header) { header->node_bytes = 4096; }));
  EXPECT_TRUE(refused([](RegionHeader* header) { header->node_count = UINT32_MAX; }));
  EXPECT_TRUE(refused([](RegionHeader* header) { header->extents_bytes *= 2; }));
  EXPECT_TRUE(refused([](RegionHeader* header) { header->extents_bytes /= 2; }));
  EXPECT_TRUE(refused([](RegionHeader* header) { header->nodes_end = UINT32_MAX; }));
  EXPECT_TRUE(refused([](RegionHeader* header) { header->nodes_used = 99; }));
  EXPECT_TRUE(refused([](RegionHeader* header) { header->last_stamp = kLastStampMax + 1; }));
  EXPECT_FALSE(refused([](RegionHeader*) {}));
}

// The source has taken the region back between the seal and the table. The target must not serve it.
TEST_F(MigratorTest, AnEpochThatHasPassedIsNotTaken) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  source_.runs = {{0, kPages}};
  worker_->sync_points()->on_reach = [this](std::string_view point) {
    if (point != "migration: target: before the table") return;
    CELL_CHECK(cluster_->state.table.Move(kRegion, 1, {"source", 0}).ok());
  };
  Offer();
  EXPECT_EQ(worker_->regions()->Find(kRegion), nullptr);
  EXPECT_EQ(cluster_->state.table.Find(kRegion)->owner.server, "source");
  EXPECT_EQ(cluster_->state.table.Find(kRegion)->epoch, 2u);
}

// The source was taken for dead meanwhile, and this worker has claimed the region, with exactly the epoch that the
// migration would end with. Its recovery may have less than the copy, or more; only the recovery counts.
TEST_F(MigratorTest, ARegionThatIsBeingRecoveredHereIsNotTaken) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  source_.runs = {{0, kPages}};
  worker_->sync_points()->on_reach = [this](std::string_view point) {
    if (point != "migration: target: before the table") return;
    CELL_CHECK(cluster_->state.table.Claim(kRegion, 1, {"target", 0}).ok());
  };
  Offer();
  EXPECT_EQ(worker_->regions()->Find(kRegion), nullptr);
  EXPECT_TRUE(cluster_->state.table.Find(kRegion)->recovering);
  EXPECT_EQ(cluster_->state.table.Find(kRegion)->epoch, 2u);
}

class LoggedTargetTest : public MigratorTest {
 protected:
  LoggedTargetTest() : MigratorTest(Durability::kAsync) {
    CELL_CHECK(Meganode::Format(memory_, kRegion, kShape).ok());
    source_.runs = {{0, kPages}};
  }
};

// Nobody could recover it here. Its slot must be free for a later offer.
TEST_F(LoggedTargetTest, ARegionWhoseLogIsNotFoundIsNotTaken) {
  Offer();
  EXPECT_FALSE(Migrated());
  EXPECT_FALSE(source_.Saw(MigrationStep::kBegin));
  EXPECT_EQ(source_.why, "its log was not found: all servers must use the same --log-store");
  EXPECT_EQ(worker_->regions()->size(), 0u);
  EXPECT_TRUE(AnswerTo(MakeMigrationRequest(MigrationStep::kOffer, kRegion, 1, 0, "source")).ok());
}

// A write that came before the log is open would be in no log.
TEST_F(LoggedTargetTest, WritesWaitUntilTheLogIsOpen) {
  constexpr uint64_t kRecords = 5;
  memory_->header().log_sequence = kRecords;
  ASSERT_TRUE(DirectoryLogStore(files_.get(), "log").Open(kRegion, 1, 1).ok());
  worker_->sync_points()->on_reach = [this](std::string_view point) {
    if (point == "migration: target: after the table") disk_pool_->SetPaused(true);
  };
  ASSERT_TRUE(AnswerTo(MakeMigrationRequest(MigrationStep::kOffer, kRegion, 1, 0, "source")).ok());
  RunUntil([this] { return worker_->regions()->Find(kRegion) != nullptr; });
  const HeldRegion* const region = worker_->regions()->Find(kRegion);
  ASSERT_EQ(region->log, nullptr);
  EXPECT_EQ(region->state(), RegionState::kFrozen);
  disk_pool_->SetPaused(false);
  RunUntil([this] { return worker_->scheduler()->idle(); });
  EXPECT_EQ(region->state(), RegionState::kServing);
  ASSERT_NE(region->log, nullptr);
  EXPECT_EQ(region->log->epoch(), 2u);
  EXPECT_EQ(region->log->appended(), kRecords + 1);
}

// A server that could offer in another's name could have a region read from anywhere.
TEST_F(MigratorTest, NobodyOffersInAnothersName) {
  const std::string offer = MakeMigrationRequest(MigrationStep::kOffer, kRegion, 1, 0, "source");
  for (const Identity& liar : {Identity{Role::kServer, "another"}, Identity{Role::kOperator, "source"}}) {
    EXPECT_EQ(AnswerTo(offer, liar).code(), absl::StatusCode::kPermissionDenied);
  }
  EXPECT_FALSE(source_.Saw(MigrationStep::kBegin));
}

}  // namespace
}  // namespace cell
