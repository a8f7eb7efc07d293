// Checks that the source of a migration gives up nothing before its target has everything.
#include <gtest/gtest.h>

#include "cell/server/change/migrator.h"
#include "cell/server/change/migrator_test.h"

namespace cell {
namespace {

// Here the worker is the source, and the test is the target.
class SourceTest : public MigratorTest {
 protected:
  static constexpr uint32_t kOwn = kRegion + 1;

  explicit SourceTest(Durability durability = Durability::kNone) : MigratorTest(durability) {
    region_ = *worker_->regions()->Create(kOwn, {});
    // More runs than fit into a short reply.
    for (uint32_t page = 0; page < kPages; page += 2) region_->written->Mark(page * WrittenPages::kPageBytes, 1);
    cluster_->state.table.ids.next = kOwn + 1;
    cluster_->state.table.regions.Set(kOwn, {{"target", 0}, 1});
    ++cluster_->state.table.version;
    const auto create_log = [](Worker* worker) -> Task<bool> {
      co_return (co_await worker->logs()->Create(kOwn)).ok();
    };
    worker_->scheduler()->Spawn(create_log(worker_.get()));
    AwaitIdle();
    Migrate();
    target_ = Connect();
  }
  void Turn() {
    if (client_->Poll() + source_fabric_->Poll() + worker_->Poll() > 0) return;
    network_.At(network_.now_ns() + 1'000, [] {});  // Time passes when nothing happens.
    network_.Step();
  }
  void AwaitIdle() {
    for (int i = 0; i < 100'000 && !worker_->scheduler()->idle(); ++i) Turn();
    ASSERT_TRUE(worker_->scheduler()->idle());
  }
  // Runs until the region has been offered. When the migration has ended, migrated_ has its outcome.
  void Migrate() {
    const auto migrate = [](Worker* worker, std::shared_ptr<absl::Status> migrated) -> Task<bool> {
      WorkerId to{"source", 0};
      *migrated = co_await worker->migrator()->Migrate(kOwn, std::move(to));
      co_return true;
    };
    source_.steps.clear();
    worker_->scheduler()->Spawn(migrate(worker_.get(), migrated_));
    for (int i = 0; i < 100'000 && !source_.Saw(MigrationStep::kOffer); ++i) Turn();
    CELL_CHECK(source_.Saw(MigrationStep::kOffer));
  }
  // Returns the outcome of a migration that ends soon and by itself.
  absl::Status TryToMigrate(WorkerId to) {
    const auto ended = std::make_shared<std::optional<absl::Status>>();
    const auto migrate = [](Worker* worker, WorkerId target,
                            std::shared_ptr<std::optional<absl::Status>> outcome) -> Task<bool> {
      *outcome = co_await worker->migrator()->Migrate(kOwn, std::move(target));
      co_return true;
    };
    worker_->scheduler()->Spawn(migrate(worker_.get(), std::move(to), ended));
    for (int i = 0; i < 100'000 && !ended->has_value(); ++i) Turn();
    return ended->value_or(absl::DeadlineExceededError("it has not ended"));
  }
  // Ends the migration that has been offered.
  void Refuse() {
    ASSERT_TRUE(Ask(target_, MigrationStep::kCancel).ok());
    AwaitIdle();
    ASSERT_FALSE(region_->claimed());
  }
  // Lets time pass in which nobody says anything.
  void Pass(int64_t ns) {
    const int64_t end_ns = network_.now_ns() + ns;
    network_.At(end_ns, [] {});
    while (network_.now_ns() < end_ns) {
      if (worker_->Poll() == 0) network_.Step();
    }
    for (int i = 0; i < 100; ++i) Turn();
  }
  // Returns the first word of the root, by which readers see whether it is valid.
  uint64_t Root() const { return LoadWord(region_->memory->at(kRegionHeaderBytes)); }
  ConnectionId Connect() {
    Waiter connected;
    const ConnectionId connection = client_->Connect("target", INT64_MAX, &connected);
    CELL_CHECK(connected.Await(client_.get()).ok());
    return connection;
  }
  // Makes a step and returns the number of pages that did not fit into the answer. Adds the pages in it to told_.
  absl::StatusOr<uint32_t> Ask(ConnectionId target, MigrationStep step, uint64_t epoch = 1, std::string_view why = "") {
    const std::string request = MakeMigrationRequest(step, kOwn, epoch, 0, why);
    Waiter answered;
    client_->Call(target, AsBytes(request), {}, kReplyBytesMin, INT64_MAX, &answered);
    while (!answered.done()) Turn();
    std::vector<PageRun> runs;
    ASSIGN_OR_RETURN(const MigrationReply reply, ParseMigrationReply(AsBytes(answered.reply()), &runs));
    for (const PageRun& run : runs) {
      for (uint32_t page = run.first; page < run.first + run.pages; ++page) told_.insert(page);
    }
    return reply.more;
  }

  // Makes all steps up to the seal.
  void Seal() {
    absl::StatusOr<uint32_t> more = Ask(target_, MigrationStep::kBegin);
    while (more.value_or(0) > 0) more = Ask(target_, MigrationStep::kWritten);
    more = Ask(target_, MigrationStep::kFreeze);
    while (more.value_or(0) > 0) more = Ask(target_, MigrationStep::kWritten);
    ASSERT_TRUE(Ask(target_, MigrationStep::kSeal).ok());
  }
  // Changes the region table, and lets the worker see it.
  void ChangeTable(const std::function<void(RegionTable*)>& change) {
    membership_->Watch();
    change(&cluster_->state.table);
    ++cluster_->state.table.version;
    ++cluster_->changes;
  }

  HeldRegion* region_;
  const std::shared_ptr<absl::Status> migrated_ = std::make_shared<absl::Status>();
  ConnectionId target_;
  std::set<uint32_t> told_;
};

// The worker still has its connection to the process that has ended.
TEST_F(SourceTest, ATargetThatWasStartedAgainIsOfferedTheRegionAtOnce) {
  Refuse();
  source_fabric_->Crash();
  const std::unique_ptr<SimFabric> ended = std::exchange(source_fabric_, network_.NewEndpoint());
  Source again(source_fabric_.get());
  ASSERT_TRUE(source_fabric_->Listen("source", &again).ok());
  const auto migrate = [](Worker* worker) -> Task<bool> {
    WorkerId to{"source", 0};
    co_return (co_await worker->migrator()->Migrate(kOwn, std::move(to))).ok();
  };
  worker_->scheduler()->Spawn(migrate(worker_.get()));
  for (int i = 0; i < 100'000 && !again.Saw(MigrationStep::kOffer) && !worker_->scheduler()->idle(); ++i) Turn();
  EXPECT_TRUE(again.Saw(MigrationStep::kOffer));
  Refuse();
  source_fabric_->Crash();
}

TEST_F(SourceTest, SealsWhatItsTakerHasBeenToldOfAlone) {
  EXPECT_FALSE(Ask(target_, MigrationStep::kSeal).ok());
  ASSERT_TRUE(Ask(target_, MigrationStep::kBegin).ok());
  EXPECT_FALSE(Ask(target_, MigrationStep::kSeal).ok());
  while (Ask(target_, MigrationStep::kWritten).value_or(0) > 0) {
  }
  for (uint32_t page = 1; page < kPages; page += 2) region_->written->Mark(page * WrittenPages::kPageBytes, 1);
  absl::StatusOr<uint32_t> more = Ask(target_, MigrationStep::kFreeze);
  ASSERT_GT(more.value_or(0), 0u);
  EXPECT_FALSE(Ask(target_, MigrationStep::kSeal).ok());
  while (more.value_or(0) > 0) more = Ask(target_, MigrationStep::kWritten);
  EXPECT_FALSE(Ask(target_, MigrationStep::kDone).ok());
  EXPECT_EQ(region_->state(), RegionState::kFrozen);
  EXPECT_TRUE(Ask(target_, MigrationStep::kSeal).ok());
  EXPECT_EQ(region_->state(), RegionState::kSealed);
  EXPECT_EQ(told_.size(), kPages);
  EXPECT_TRUE(Ask(target_, MigrationStep::kDone).ok());
  EXPECT_EQ(worker_->regions()->Find(kOwn), nullptr);
}

TEST_F(SourceTest, AnswersItsTakerAlone) {
  const auto refused = [this](ConnectionId target, MigrationStep step, uint64_t epoch) {
    return absl::IsFailedPrecondition(Ask(target, step, epoch).status());
  };
  EXPECT_TRUE(refused(target_, MigrationStep::kBegin, 2));
  EXPECT_TRUE(Ask(target_, MigrationStep::kBegin).ok());
  const ConnectionId other = Connect();
  for (const MigrationStep step : {MigrationStep::kBegin, MigrationStep::kWritten, MigrationStep::kFreeze,
                                   MigrationStep::kSeal, MigrationStep::kDone, MigrationStep::kCancel}) {
    EXPECT_TRUE(refused(other, step, 1)) << static_cast<int>(step);
    EXPECT_TRUE(refused(target_, step, 2)) << static_cast<int>(step);
  }
  EXPECT_TRUE(Ask(target_, MigrationStep::kFreeze).ok());
}

// A target that gave up already knew of some written pages. The next target must be told of them again.
TEST_F(SourceTest, TheNextTargetIsToldOfAllPages) {
  const auto begin = [this] {
    absl::StatusOr<uint32_t> more = Ask(target_, MigrationStep::kBegin);
    while (more.value_or(0) > 0) more = Ask(target_, MigrationStep::kWritten);
    EXPECT_TRUE(more.ok()) << more.status();
    return std::exchange(told_, {});
  };
  const std::set<uint32_t> first = begin();
  EXPECT_GE(first.size(), kPages / 2);
  ASSERT_TRUE(Ask(target_, MigrationStep::kCancel).ok());
  AwaitIdle();
  ASSERT_FALSE(region_->claimed());
  EXPECT_EQ(region_->state(), RegionState::kServing);
  Migrate();
  EXPECT_EQ(begin(), first);
}

TEST_F(SourceTest, ATargetThatRefusesTheOfferIsNotWaitedFor) {
  EXPECT_TRUE(Ask(target_, MigrationStep::kCancel, 1, "its disk is full").ok());
  EXPECT_FALSE(region_->claimed());
  EXPECT_EQ(region_->state(), RegionState::kServing);
  AwaitIdle();
  EXPECT_EQ(migrated_->message(), "source.0 did not accept region 8: its disk is full");
}

// That the target has begun says as much as its answer to the offer, which is lost.
TEST_F(SourceTest, ATargetThatHasBegunNeedsNotHaveAnsweredTheOffer) {
  ASSERT_TRUE(Ask(target_, MigrationStep::kCancel).ok());
  AwaitIdle();
  source_.answers = false;
  Migrate();
  ASSERT_TRUE(Ask(target_, MigrationStep::kBegin).ok());
  ASSERT_EQ(ConnectionsToServers(), 1u);
  source_fabric_->Crash();
  for (int i = 0; i < 100'000 && ConnectionsToServers() > 0; ++i) Turn();
  ASSERT_EQ(ConnectionsToServers(), 0u);
  EXPECT_TRUE(Ask(target_, MigrationStep::kWritten).ok());
  EXPECT_TRUE(region_->ClaimedFor(ClaimPurpose::kMigrate));
}

TEST_F(SourceTest, ATakerWhoseConnectionEndsIsNotWaitedFor) {
  ASSERT_TRUE(Ask(target_, MigrationStep::kBegin).ok());
  ASSERT_TRUE(Ask(target_, MigrationStep::kFreeze).ok());
  const int64_t begun_ns = network_.now_ns();
  client_->Disconnect(target_);
  for (int i = 0; i < 100'000 && region_->claimed(); ++i) Turn();
  ASSERT_FALSE(region_->claimed());
  EXPECT_EQ(region_->state(), RegionState::kServing);
  EXPECT_LT(network_.now_ns() - begun_ns, MigratorOptions().silence_ns / 2);
}

// A region is frozen once. A target that asks again, even after the seal, is refused, and nothing changes.
// A transaction may wait for a server that is away. The region takes no new transactions for a while, so that its old
// ones can end.
TEST_F(SourceTest, ARegionWhoseTransactionsDoNotEndIsKept) {
  ASSERT_TRUE(Ask(target_, MigrationStep::kBegin).ok());
  std::string part;
  AppendOperation({PartOperationKind::kDelete, "key"}, &part);
  const PreparedPart prepared{{1, 1, UINT64_MAX, 1}, 0, 0, 0, kOwn, "", part};
  region_->transactions.Add(std::make_shared<RegionTransaction>(prepared, network_.now_ns()));
  absl::Status status = Ask(target_, MigrationStep::kFreeze).status();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(region_->state(), RegionState::kFrozen);
  for (int i = 0; i < 20 && status.ok(); ++i) {
    Pass(10'000'000);
    status = Ask(target_, MigrationStep::kWritten).status();
  }
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(region_->state(), RegionState::kServing);
  EXPECT_GT(region_->no_parts_before_ns, network_.now_ns());
  EXPECT_NE(migrated_->message().find("have not ended yet"), std::string::npos) << *migrated_;
  region_->transactions.Remove(prepared.id);
}

TEST_F(SourceTest, ARegionIsFrozenOnce) {
  absl::StatusOr<uint32_t> more = Ask(target_, MigrationStep::kBegin);
  while (more.value_or(0) > 0) more = Ask(target_, MigrationStep::kWritten);
  more = Ask(target_, MigrationStep::kFreeze);
  while (more.value_or(0) > 0) more = Ask(target_, MigrationStep::kWritten);
  EXPECT_FALSE(Ask(target_, MigrationStep::kFreeze).ok());
  EXPECT_EQ(region_->state(), RegionState::kFrozen);
  ASSERT_TRUE(Ask(target_, MigrationStep::kSeal).ok());
  EXPECT_FALSE(Ask(target_, MigrationStep::kFreeze).ok());
  EXPECT_EQ(region_->state(), RegionState::kSealed);
}

// Done may be lost. The table says the same, and then nobody waits until the target has gone silent.
TEST_F(SourceTest, EndsWhenTheTableNamesAnotherOwner) {
  Seal();
  for (int i = 0; i < 100; ++i) Turn();
  ASSERT_EQ(worker_->regions()->Find(kOwn), region_);
  ChangeTable([](RegionTable* table) { ASSERT_TRUE(table->Move(kOwn, 1, {"source", 0}).ok()); });
  for (int i = 0; i < 10'000 && worker_->regions()->Find(kOwn) != nullptr; ++i) Turn();  // 10 ms at most.
  EXPECT_EQ(worker_->regions()->Find(kOwn), nullptr);
  EXPECT_EQ(worker_->migrator()->counters().sent, 1u);
}

// If it were dropped before the target owns it, and the target cancelled, nobody would have it.
TEST_F(SourceTest, StaysWhenTheTableChangesAndNamesTheSameOwner) {
  Seal();
  const uint64_t revision = membership_->state().revision;
  ChangeTable([](RegionTable*) {});
  for (int i = 0; i < 1000; ++i) Turn();
  EXPECT_GT(membership_->state().revision, revision);
  EXPECT_EQ(worker_->regions()->Find(kOwn), region_);
  EXPECT_EQ(worker_->migrator()->counters().sent, 0u);
}

// A second Begin, and a step before the first, must not reach a check that ends the process.
TEST_F(SourceTest, BeginsOnceAndFirst) {
  EXPECT_FALSE(Ask(target_, MigrationStep::kWritten).ok());
  ASSERT_TRUE(Ask(target_, MigrationStep::kBegin).ok());
  EXPECT_FALSE(Ask(target_, MigrationStep::kBegin).ok());
}

// The table says that the region stays here, but it was recovered elsewhere since.
TEST_F(SourceTest, ARegionThatIsLostMeanwhileIsNotReadAgain) {
  const uint64_t serving = Root();
  Seal();
  EXPECT_NE(Root(), serving);
  membership_->set_unreachable(true);
  ASSERT_TRUE(Ask(target_, MigrationStep::kCancel).ok());  // It reads the table again and again.
  region_->ChangeState(RegionState::kLost);
  membership_->set_unreachable(false);
  for (int i = 0; i < 100'000 && region_->claimed(); ++i) Turn();
  ASSERT_FALSE(region_->claimed());
  ASSERT_EQ(worker_->regions()->Find(kOwn), region_);
  EXPECT_EQ(cluster_->state.table.Find(kOwn)->epoch, 2u);
  EXPECT_TRUE(region_->lost());
  EXPECT_NE(Root(), serving);
}

TEST_F(SourceTest, ARegionThatIsClaimedOrLostIsNotMigrated) {
  ASSERT_TRUE(region_->claimed());
  EXPECT_TRUE(absl::IsAborted(TryToMigrate({"source", 0})));
  Refuse();
  region_->ChangeState(RegionState::kLost);
  EXPECT_TRUE(absl::IsAborted(TryToMigrate({"source", 0})));
}

TEST_F(SourceTest, ARegionIsWhereItIs) {
  Refuse();
  source_.steps.clear();
  const absl::Status status = TryToMigrate({"target", 0});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(source_.steps.empty());
}

// It may have to zero its memory first.
TEST_F(SourceTest, ATargetThatHasNotBegunMayBeSilentForLonger) {
  Pass(8 * MigratorOptions().silence_ns);
  ASSERT_TRUE(Ask(target_, MigrationStep::kBegin).ok());
  Pass(2 * MigratorOptions().silence_ns);
  EXPECT_FALSE(region_->claimed());
}

TEST_F(SourceTest, ATargetThatNeverBeginsIsNotWaitedForForEver) {
  Pass(12 * MigratorOptions().silence_ns);
  EXPECT_FALSE(region_->claimed());
  EXPECT_EQ(region_->state(), RegionState::kServing);
}

// Otherwise the region could not be split or migrated elsewhere until the target counts as silent.
TEST_F(SourceTest, AnOfferThatDoesNotArriveEndsTheMigration) {
  Refuse();
  source_fabric_->Crash();
  EXPECT_FALSE(absl::IsDeadlineExceeded(TryToMigrate({"source", 0})));
  EXPECT_FALSE(region_->claimed());
}

// A lost region is not frozen or sealed any more, whatever its target says.
TEST_F(SourceTest, ARegionThatIsLostMeanwhileIsNotGivenAway) {
  ASSERT_TRUE(Ask(target_, MigrationStep::kBegin).ok());
  region_->ChangeState(RegionState::kLost);
  for (const MigrationStep step : {MigrationStep::kWritten, MigrationStep::kFreeze, MigrationStep::kSeal}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(Ask(target_, step).status())) << static_cast<int>(step);
  }
  EXPECT_TRUE(region_->lost());
}

// While the source settles who has the region, neither the target nor the time says anything about that.
TEST_F(SourceTest, ASealedRegionIsServedOnlyByWhatTheTableSays) {
  Seal();
  membership_->set_unreachable(true);
  ASSERT_TRUE(Ask(target_, MigrationStep::kCancel).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Ask(target_, MigrationStep::kCancel).status()));
  Pass(2 * MigratorOptions().silence_ns);
  ASSERT_TRUE(region_->claimed());
  EXPECT_EQ(region_->state(), RegionState::kSealed);
  membership_->set_unreachable(false);
  AwaitIdle();
  EXPECT_FALSE(region_->claimed());
  EXPECT_EQ(region_->state(), RegionState::kServing);
}

// Another worker has taken the region over, although this one is alive. Nothing that is not sealed has migrated.
TEST_F(SourceTest, ARegionThatIsTakenOverWhileItIsCopiedHasNotMigrated) {
  ASSERT_TRUE(Ask(target_, MigrationStep::kBegin).ok());
  const uint64_t revision = membership_->state().revision;
  ChangeTable([](RegionTable* table) { ASSERT_TRUE(table->Move(kOwn, 1, {"source", 0}).ok()); });
  for (int i = 0; i < 1000; ++i) Turn();
  EXPECT_GT(membership_->state().revision, revision);
  EXPECT_EQ(worker_->regions()->Find(kOwn), region_);
  EXPECT_EQ(worker_->migrator()->counters().sent, 0u);
}

// A large region takes longer to copy than a target may be silent.
TEST_F(SourceTest, ATargetThatAsksOnIsNotSilent) {
  ASSERT_TRUE(Ask(target_, MigrationStep::kBegin).ok());
  for (int i = 0; i < 4; ++i) {
    Pass(MigratorOptions().silence_ns * 2 / 3);
    ASSERT_TRUE(Ask(target_, MigrationStep::kWritten).ok()) << i;
  }
  Pass(2 * MigratorOptions().silence_ns);
  EXPECT_FALSE(region_->claimed());
}

TEST_F(SourceTest, CountsHowLongWritesWaited) {
  ASSERT_TRUE(Ask(target_, MigrationStep::kBegin).ok());
  ASSERT_TRUE(Ask(target_, MigrationStep::kFreeze).ok());
  EXPECT_EQ(worker_->migrator()->counters().longest_frozen_ns, 0u);
  Pass(1'000'000);
  ASSERT_TRUE(Ask(target_, MigrationStep::kCancel).ok());
  EXPECT_GE(worker_->migrator()->counters().longest_frozen_ns, 1'000'000u);
}

// The first of all connections ends. It belongs to no target yet.
TEST_F(SourceTest, AnOfferOutlivesTheConnectionsOfOthers) {
  client_->Disconnect(target_);
  for (int i = 0; i < 1000; ++i) Turn();
  EXPECT_TRUE(region_->ClaimedFor(ClaimPurpose::kMigrate));
  ASSERT_TRUE(Ask(Connect(), MigrationStep::kBegin).ok());
}

class LoggedSourceTest : public SourceTest {
 protected:
  LoggedSourceTest() : SourceTest(Durability::kAsync) {}
};

// The target continues the log. What the source had not written by then would be missing in the middle of it.
TEST_F(LoggedSourceTest, SealsNothingThatIsNotOnDisk) {
  absl::StatusOr<uint32_t> more = Ask(target_, MigrationStep::kBegin);
  while (more.value_or(0) > 0) more = Ask(target_, MigrationStep::kWritten);
  disk_pool_->SetPaused(true);
  region_->log->Append(RecordKind::kPut, "key", "value");
  more = Ask(target_, MigrationStep::kFreeze);
  while (more.value_or(0) > 1) more = Ask(target_, MigrationStep::kWritten);
  ASSERT_EQ(more.value_or(0), 1u);  // It has been told of all pages, and is to ask again.
  EXPECT_FALSE(Ask(target_, MigrationStep::kSeal).ok());
  EXPECT_EQ(region_->state(), RegionState::kFrozen);
  disk_pool_->SetPaused(false);
  while (more.value_or(0) > 0) more = Ask(target_, MigrationStep::kWritten);
  EXPECT_TRUE(Ask(target_, MigrationStep::kSeal).ok());
  EXPECT_EQ(region_->state(), RegionState::kSealed);
}

// The same holds for a write that is on disk and not applied yet: the copy would not have it.
TEST_F(LoggedSourceTest, SealsNothingThatIsNotApplied) {
  absl::StatusOr<uint32_t> more = Ask(target_, MigrationStep::kBegin);
  while (more.value_or(0) > 0) more = Ask(target_, MigrationStep::kWritten);
  region_->pending.emplace_back();
  more = Ask(target_, MigrationStep::kFreeze);
  while (more.value_or(0) > 1) more = Ask(target_, MigrationStep::kWritten);
  for (int i = 0; i < 100; ++i) Turn();
  ASSERT_EQ(region_->log->durable(), region_->log->appended());
  EXPECT_EQ(Ask(target_, MigrationStep::kWritten).value_or(0), 1u);
  EXPECT_FALSE(Ask(target_, MigrationStep::kSeal).ok());
  region_->pending.clear();
  EXPECT_EQ(Ask(target_, MigrationStep::kWritten).value_or(1), 0u);
  EXPECT_TRUE(Ask(target_, MigrationStep::kSeal).ok());
}

TEST_F(LoggedSourceTest, ARegionThatIsTakenBackIsReadAndWrittenAsBefore) {
  const uint64_t records = region_->log->appended();
  Seal();
  const uint64_t sealed = Root();
  ASSERT_TRUE(Ask(target_, MigrationStep::kCancel).ok());
  AwaitIdle();
  EXPECT_EQ(region_->state(), RegionState::kServing);
  EXPECT_NE(Root(), sealed);
  EXPECT_EQ(region_->epoch(), 2u);
  EXPECT_EQ(region_->log->epoch(), 2u);
  EXPECT_EQ(region_->log->appended(), records + 1);  // The new segment has one record that says whose it is.
}

// Otherwise the target would ask forever whether everything is on disk.
TEST_F(LoggedSourceTest, EndsWhenTheLogFails) {
  ASSERT_TRUE(Ask(target_, MigrationStep::kBegin).ok());
  ASSERT_TRUE(Ask(target_, MigrationStep::kFreeze).ok());
  region_->FailLog(absl::UnavailableError("EIO"));
  EXPECT_TRUE(absl::IsUnavailable(Ask(target_, MigrationStep::kWritten).status()));
  EXPECT_FALSE(region_->claimed());
  EXPECT_EQ(region_->state(), RegionState::kServing);
  AwaitIdle();
  EXPECT_EQ(*migrated_, absl::UnavailableError("EIO"));
}

TEST_F(LoggedSourceTest, ARegionWhoseLogHasFailedIsNotOffered) {
  Refuse();
  source_.steps.clear();
  region_->FailLog(absl::UnavailableError("EIO"));
  EXPECT_EQ(TryToMigrate({"source", 0}), absl::UnavailableError("EIO"));
  EXPECT_TRUE(source_.steps.empty());
}

TEST_F(SourceTest, OnlyTheTargetMakesSteps) {
  client_->SetSelf({Role::kServer, "another"});
  const ConnectionId another = Connect();
  for (const MigrationStep step : {MigrationStep::kBegin, MigrationStep::kCancel, MigrationStep::kSeal}) {
    EXPECT_EQ(Ask(another, step).status().code(), absl::StatusCode::kPermissionDenied);
  }
  EXPECT_TRUE(Ask(target_, MigrationStep::kBegin).ok());
}

}  // namespace
}  // namespace cell
