// Checks that a target trusts nothing that a source says, neither its pages nor their content, and that a source gives
// up nothing before its target has everything.
#include "cell/server/change/migrator.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cell/base/check.h"
#include "cell/cluster/memory_membership.h"
#include "cell/io/fabric/waiter.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/io/sim/sim_files.h"
#include "cell/io/sim/sim_thread_pool.h"
#include "cell/log/directory_log_store.h"
#include "cell/server/change/migration_phase.h"
#include "cell/server/worker.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr RegionShape kShape{512, 64 << 10, 176 << 10};
constexpr uint32_t kRegion = 7;
constexpr uint32_t kPages = kShape.region_bytes() / WrittenPages::kPageBytes;

// Answers each step with the runs that the test wants.
class Source : public Service {
 public:
  explicit Source(Fabric* fabric) : fabric_(fabric) {}
  void Serve(absl::Span<const IncomingCall> calls) override {
    for (const IncomingCall& call : calls) {
      const auto request = ParseMigrationRequest(call.request);
      const MigrationStep step = request->fixed.step;
      steps.push_back(step);
      if (step == MigrationStep::kCancel) why = std::string(request->key);
      if (!answers) continue;
      const bool tells =
          step == MigrationStep::kBegin || step == MigrationStep::kWritten || step == MigrationStep::kFreeze;
      const MutableBytes to = fabric_->BeginReply(call);
      auto reply = ReplyOf<MigrationReply>(MessageKind::kMigration);
      for (const PageRun& run : tells ? runs : std::vector<PageRun>()) {
        Store(to.data() + reply.header.bytes, run);
        reply.header.bytes += sizeof(PageRun);
        ++reply.runs;
      }
      Store(to.data(), reply);
      fabric_->EndReply(call, reply.header.bytes);
      if (tells && shrinks && runs[0].pages > 1) --runs[0].pages;
    }
  }
  void Disconnected(ConnectionId) override {}
  bool Saw(MigrationStep step) const { return std::find(steps.begin(), steps.end(), step) != steps.end(); }

  bool answers = true;
  bool shrinks = false;  // Each step names one page less than the step before.
  std::vector<PageRun> runs;
  std::vector<MigrationStep> steps;
  std::string why;  // The target's reason when it cancelled.

 private:
  Fabric* fabric_;
};

class MigratorTest : public ::testing::Test {
 protected:
  explicit MigratorTest(Durability durability = Durability::kNone) {
    ClusterState state;
    state.shape = kShape;
    state.durability = durability;
    state.servers = {{"target", {{"target", 8}}, ""}, {"source", {{"source", 8}}, ""}};
    state.table.next_region = kRegion + 1;
    state.table.root = 1;
    state.table.regions = {{1, {{"source", 0}, 1}}, {kRegion, {{"source", 0}, 1}}};
    cluster_ = std::make_shared<MemoryCluster>(state);
    Worker::Options options;
    options.self = {"target", 0};
    options.balance.enabled = false;
    options.logs.durability = durability;
    auto membership = std::make_unique<MemoryMembership>(cluster_);
    membership_ = membership.get();
    auto disk_pool = std::make_unique<SimThreadPool>(&network_, 1, 1'000);
    disk_pool_ = disk_pool.get();
    Worker::Logs logs{std::make_shared<DirectoryLogStore>(files_.get(), "log"), std::move(disk_pool),
                      std::make_unique<SimThreadPool>(&network_, 2, 1'000)};
    worker_ = std::make_unique<Worker>(network_.NewEndpoint(), std::move(membership), std::move(logs), options);
    CELL_CHECK(worker_->Start("target").ok());
    memory_ = *source_fabric_->CreateRegion(kRegion, kShape.region_bytes());
    CELL_CHECK(source_fabric_->Listen("source", &source_).ok());
  }
  ~MigratorTest() override { EXPECT_TRUE(worker_->Stop().ok()); }

  // Offers the region, and waits until nothing is in progress.
  void Offer() {
    std::string offer = MakeMigrationRequest(MigrationStep::kOffer, kRegion, 1, 0, "source");
    Waiter connected, answered;
    const ConnectionId connection = client_->Connect("target", INT64_MAX, &connected);
    ASSERT_TRUE(connected.Await(client_.get()).ok());
    client_->Call(connection, AsBytes(offer), {}, kReplyBytesMin, INT64_MAX, &answered);
    for (int i = 0; i < 100'000 && (!answered.done() || !worker_->scheduler()->idle()); ++i) {
      client_->Poll();
      source_fabric_->Poll();
      if (worker_->Poll() == 0) network_.Step();
    }
    ASSERT_TRUE(answered.done() && worker_->scheduler()->idle());
  }
  // Runs the target and its source.
  void RunUntil(const std::function<bool()>& ended) {
    for (int i = 0; i < 100'000 && !ended(); ++i) {
      source_fabric_->Poll();
      if (worker_->Poll() == 0) network_.Step();
    }
    ASSERT_TRUE(ended());
  }
  // Returns the answer to an offer that `client_` sends.
  absl::Status AnswerTo(const std::string& offer) {
    Waiter connected, answered;
    const ConnectionId connection = client_->Connect("target", INT64_MAX, &connected);
    CELL_CHECK(connected.Await(client_.get()).ok());
    client_->Call(connection, AsBytes(offer), {}, kReplyBytesMin, INT64_MAX, &answered);
    while (!answered.done()) {
      client_->Poll();
      worker_->fabric()->Poll();
      network_.Step();
    }
    std::vector<PageRun> none;
    return ParseMigrationReply(AsBytes(answered.reply()), &none).status();
  }
  bool Migrated() {
    const bool held = worker_->regions()->Find(kRegion) != nullptr;
    EXPECT_EQ(held, cluster_->state.table.Find(kRegion)->owner.server == "target");
    EXPECT_EQ(held, source_.Saw(MigrationStep::kSeal));
    return held;
  }
  size_t ConnectionsToServers() {
    return nlohmann::json::parse(worker_->service()->reports().StatusJson(0, 1))["connections_to_servers"]
        .get<size_t>();
  }
  void SetDraining(bool draining) {
    const auto set = [](Worker* worker, bool draining) -> Task<bool> {
      co_return (co_await worker->rebalancer()->SetDraining(draining)).ok();
    };
    worker_->scheduler()->Spawn(set(worker_.get(), draining));
    for (int i = 0; i < 100'000 && worker_->rebalancer()->draining() != draining; ++i) {
      if (worker_->Poll() == 0) network_.Step();
    }
  }

  SimNetwork network_{{}};
  SimDisk disk_{1};
  const std::unique_ptr<SimFiles> files_ = disk_.NewHost();
  SimThreadPool* disk_pool_;  // The worker's.
  std::shared_ptr<MemoryCluster> cluster_;
  std::unique_ptr<Worker> worker_;
  MemoryMembership* membership_;  // The worker's.
  std::unique_ptr<SimFabric> source_fabric_ = network_.NewEndpoint();
  Source source_{source_fabric_.get()};
  std::unique_ptr<SimFabric> client_ = network_.NewEndpoint();
  RegionMemory* memory_;
};

// A worker that recovers its own regions needs their slots.
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

TEST_F(MigratorTest, TakesNoneInThePlaceOfARegionThatItRecovers) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  {
    const std::lock_guard lock(cluster_->mutex);
    for (uint32_t i = 0; i < worker_->regions()->regions_max(); ++i) {
      cluster_->state.table.regions[kRegion + 1 + i] = {{"target", 0}, 1};
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
  EXPECT_TRUE(refused([](RegionHeader* header) { header->nodes_end = UINT32_MAX; }));
  EXPECT_TRUE(refused([](RegionHeader* header) { header->nodes_used = 99; }));
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
  EXPECT_EQ(source_.why, "its log was not found: all servers must use the same --log-dir");
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

// Here the worker is the source, and the test is the target.
class SourceTest : public MigratorTest {
 protected:
  static constexpr uint32_t kOwn = kRegion + 1;

  explicit SourceTest(Durability durability = Durability::kNone) : MigratorTest(durability) {
    region_ = *worker_->regions()->Create(kOwn, {});
    // More runs than fit into a short reply.
    for (uint32_t page = 0; page < kPages; page += 2) region_->written->Mark(page * WrittenPages::kPageBytes, 1);
    cluster_->state.table.next_region = kOwn + 1;
    cluster_->state.table.regions[kOwn] = {{"target", 0}, 1};
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
  EXPECT_LT(network_.now_ns() - begun_ns, Worker::Options().silence_ns / 2);
}

// A region is frozen once. A target that asks again, even after the seal, is refused, and nothing changes.
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
  Pass(2 * Worker::Options().silence_ns);
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
    Pass(Worker::Options().silence_ns * 2 / 3);
    ASSERT_TRUE(Ask(target_, MigrationStep::kWritten).ok()) << i;
  }
  Pass(2 * Worker::Options().silence_ns);
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

}  // namespace
}  // namespace cell
