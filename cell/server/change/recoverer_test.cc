// A former owner continues at any moment of a recovery. What it has acknowledged must be recovered.
#include "cell/server/change/recoverer.h"

#include <gtest/gtest.h>

#include "cell/base/check.h"
#include "cell/cluster/memory_membership.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/io/sim/sim_files.h"
#include "cell/io/sim/sim_thread_pool.h"
#include "cell/log/directory_log_store.h"
#include "cell/server/worker.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr RegionShape kShape{512, 32 << 10, 64 << 10};
constexpr uint32_t kRegion = 1;

// Lets time pass between the operations of a log, so that others act then.
class HookedStore : public DirectoryLogStore {
 public:
  HookedStore(Files* files, std::function<void()> hook) : DirectoryLogStore(files, "log"), hook_(std::move(hook)) {}

  absl::StatusOr<bool> Has(uint32_t region) override { return hook_(), DirectoryLogStore::Has(region); }
  absl::Status Fence(uint32_t region, uint32_t epoch) override {
    return hook_(), DirectoryLogStore::Fence(region, epoch);
  }
  absl::StatusOr<std::unique_ptr<LogWriter>> Open(uint32_t region, uint32_t epoch, uint64_t sequence,
                                                  std::string_view first) override {
    return hook_(), DirectoryLogStore::Open(region, epoch, sequence, first);
  }
  absl::StatusOr<std::vector<LogPart>> List(uint32_t region) override {
    return hook_(), DirectoryLogStore::List(region);
  }
  absl::StatusOr<size_t> Read(uint32_t region, const LogPart& part, uint64_t offset, MutableBytes to) override {
    return hook_(), DirectoryLogStore::Read(region, part, offset, to);
  }
  absl::StatusOr<uint64_t> Size(uint32_t region, const LogPart& part) override {
    return hook_(), DirectoryLogStore::Size(region, part);
  }
  absl::Status Probe(uint32_t region) override { return hook_(), DirectoryLogStore::Probe(region); }

 private:
  const std::function<void()> hook_;
};

absl::Status Flush(RegionLog* log) {
  auto flush = log->BeginFlush();
  absl::Status status = flush.Write();
  log->EndFlush(std::move(flush), status);
  return status;
}

class RecovererTest : public ::testing::Test {
 protected:
  struct Outcome {
    bool acknowledged = false;  // The former owner acknowledged the write meanwhile.
    bool happened = false;      // The recovery had at least `n` operations.
    std::string value;
  };

  // Returns a cluster of which the region's owner is not a member any more.
  static ClusterState OldOwnersCluster() {
    ClusterState state;
    state.shape = kShape;
    state.durability = Durability::kSync;
    state.servers = {{"new", {{"new", 8}}, ""}};
    state.table.ids.next = kRegion + 1;
    state.table.root = kRegion;
    state.table.regions = {{kRegion, {{"old", 0}, 1}}};
    return state;
  }
  static Worker::Options Options() {
    Worker::Options options;
    options.self = {"new", 0};
    options.balance.enabled = false;
    options.logs.durability = Durability::kSync;
    options.recoverer.takeover_after_ns = options.recoverer.lease_wait_ns = 1'000;
    options.recoverer.look_every_ns = 1'000;
    return options;
  }
  static Worker::Logs LogsOf(SimNetwork* network, Files* files, std::function<void()> hook) {
    return {std::make_shared<HookedStore>(files, std::move(hook)), std::make_unique<SimThreadPool>(network, 1, 1'000),
            std::make_unique<SimThreadPool>(network, 2, 1'000)};
  }
  // Returns what the worker's status says of regions whose recovery has failed.
  static std::string FailuresOf(Worker* worker) {
    return nlohmann::json::parse(worker->service()->reports().StatusJson(0, 1))["recovery_failures"].dump();
  }
  // Runs at most a hundred thousand steps.
  static void RunUntil(SimNetwork* network, Worker* worker, const std::function<bool()>& ended) {
    for (int i = 0; i < 100'000 && !ended(); ++i) {
      if (worker->Poll() > 0) continue;
      network->At(network->now_ns() + 100, [] {});  // Time passes when nothing happens.
      network->Step();
    }
  }

  // Recovers a region. Before the n-th operation its former owner, whose process was stopped until then, executes a
  // write, which it acknowledges if it is synced.
  static Outcome Recover(uint64_t n) {
    SimDisk disk(n + 1);
    const auto old_host = disk.NewHost(), new_host = disk.NewHost();
    DirectoryLogStore old_store(old_host.get(), "log");
    RegionLog log(kRegion, 1, 1, *old_store.Open(kRegion, 1, 1));
    log.Append(RecordKind::kRange, "", EncodeRange({}));
    log.Append(RecordKind::kPut, "key", "before");
    CELL_CHECK(Flush(&log).ok());

    Outcome outcome;
    uint64_t operations = 0;
    const auto hook = [&] {
      if (operations++ != n) return;
      outcome.happened = true;
      log.Append(RecordKind::kPut, "key", "meanwhile");
      const absl::Status status = Flush(&log);
      EXPECT_TRUE(status.ok() || absl::IsAborted(status)) << status;
      outcome.acknowledged = status.ok();
    };
    SimNetwork network{SimOptions{}};
    auto membership = std::make_unique<MemoryMembership>(std::make_shared<MemoryCluster>(OldOwnersCluster()));
    Worker worker(network.NewEndpoint(), std::move(membership), LogsOf(&network, new_host.get(), hook), Options());
    CELL_CHECK(worker.Start("new").ok());
    RunUntil(&network, &worker, [&worker] { return worker.recoverer()->counters().recovered > 0; });
    EXPECT_EQ(worker.recoverer()->counters().recovered, 1u);
    if (HeldRegion* const held = worker.regions()->Find(kRegion); held != nullptr) {
      const std::optional<LeafPair> pair = held->tree->Find("key")->pair;
      if (pair.has_value()) outcome.value = held->tree->ValueOf(*pair);
    }
    EXPECT_TRUE(worker.Stop().ok());
    return outcome;
  }
};

TEST_F(RecovererTest, WhatAFormerOwnerAcknowledgesMeanwhileIsRecovered) {
  int acknowledged = 0, refused = 0;
  for (uint64_t n = 0;; ++n) {
    const Outcome outcome = Recover(n);
    if (!outcome.happened) break;
    if (outcome.acknowledged) {
      EXPECT_EQ(outcome.value, "meanwhile") << "before operation " << n;
    }
    ++(outcome.acknowledged ? acknowledged : refused);
  }
  EXPECT_GT(acknowledged, 0);
  EXPECT_GT(refused, 3);
}

// While the worker looks for the region's log, another takes the region over, and the worker learns this before it
// claims.
TEST_F(RecovererTest, ARegionThatAnotherTookMeanwhileIsNotClaimed) {
  SimDisk disk(1);
  const auto host = disk.NewHost();
  DirectoryLogStore store(host.get(), "log");
  CELL_CHECK(store.Open(kRegion, 1, 1).ok());
  const auto cluster = std::make_shared<MemoryCluster>(OldOwnersCluster());
  const WorkerId other{"other", 0};
  int looks = 0;
  const auto hook = [&] {
    if (looks++ > 0) return;
    const std::lock_guard lock(cluster->mutex);
    cluster->state.servers.push_back({"other", {{"other", 8}}, ""});
    CELL_CHECK(cluster->state.table.Claim(kRegion, 1, other).ok());
    ++cluster->state.table.version;
    ++cluster->changes;
  };
  SimNetwork network{SimOptions{}};
  auto membership = std::make_unique<MemoryMembership>(cluster);
  membership->Watch();
  Worker worker(network.NewEndpoint(), std::move(membership), LogsOf(&network, host.get(), hook), Options());
  CELL_CHECK(worker.Start("new").ok());
  const int64_t end_ns = network.now_ns() + 1'000'000;
  RunUntil(&network, &worker, [&network, end_ns] { return network.now_ns() >= end_ns; });
  EXPECT_GT(looks, 0);
  EXPECT_EQ(worker.recoverer()->counters().recovered, 0u);
  EXPECT_EQ(cluster->state.table.Find(kRegion)->owner, other);
  EXPECT_EQ(cluster->state.table.Find(kRegion)->epoch, 2u);
  EXPECT_TRUE(worker.Stop().ok());
}

// Touching memory for the first time takes longer than the rest of a replay.
TEST_F(RecovererTest, MemoryIsPreparedWhileTheFormerOwnerMayReturn) {
  SimDisk disk(1);
  const auto host = disk.NewHost();
  DirectoryLogStore store(host.get(), "log");
  RegionLog log(kRegion, 1, 1, *store.Open(kRegion, 1, 1));
  log.Append(RecordKind::kRange, "", EncodeRange({}));
  CELL_CHECK(Flush(&log).ok());
  const auto cluster = std::make_shared<MemoryCluster>(OldOwnersCluster());
  SimNetwork network{SimOptions{}};
  Worker::Options options = Options();
  options.recoverer.takeover_after_ns = 1'000'000;
  Worker worker(network.NewEndpoint(), std::make_unique<MemoryMembership>(cluster), LogsOf(&network, host.get(), [] {}),
                options);
  CELL_CHECK(worker.Start("new").ok());
  RunUntil(&network, &worker, [&worker] { return worker.regions()->free() > 0; });
  EXPECT_EQ(worker.regions()->free(), 1u);
  EXPECT_EQ(cluster->state.table.Find(kRegion)->epoch, 1u);
  RunUntil(&network, &worker, [&worker] { return worker.recoverer()->counters().recovered > 0; });
  EXPECT_EQ(worker.recoverer()->counters().recovered, 1u);
  EXPECT_EQ(worker.regions()->free(), 0u);
  EXPECT_TRUE(worker.Stop().ok());
}

// A membership has many kinds of errors. If it returns DataLoss when the region is about to be served, and a session is
// lost meanwhile, an intact log must not count as damaged.
TEST_F(RecovererTest, AnErrorOfTheMembershipIsNoDamageOfTheLog) {
  SimDisk disk(1);
  const auto host = disk.NewHost();
  DirectoryLogStore store(host.get(), "log");
  RegionLog log(kRegion, 1, 1, *store.Open(kRegion, 1, 1));
  log.Append(RecordKind::kRange, "", EncodeRange({}));
  CELL_CHECK(Flush(&log).ok());
  SimNetwork network{SimOptions{}};
  auto membership = std::make_unique<MemoryMembership>(std::make_shared<MemoryCluster>(OldOwnersCluster()));
  MemoryMembership* const its = membership.get();
  Worker worker(network.NewEndpoint(), std::move(membership), LogsOf(&network, host.get(), [] {}), Options());
  CELL_CHECK(worker.Start("new").ok());
  RunUntil(&network, &worker, [&worker] { return worker.recoverer()->recovering() > 0; });
  ASSERT_EQ(worker.recoverer()->counters().recovered, 0u);
  its->set_failure(absl::DataLossError("the region table cannot be read"));
  RunUntil(&network, &worker, [&worker] { return worker.regions()->Find(kRegion) != nullptr; });
  its->Rejoin();
  worker.recoverer()->Step();  // The region is lost before the answer comes.
  RunUntil(&network, &worker, [&worker] { return worker.recoverer()->recovering() == 0; });
  EXPECT_EQ(worker.recoverer()->counters().failed, 1u);
  its->set_failure(absl::OkStatus());
  RunUntil(&network, &worker, [&worker] { return worker.recoverer()->counters().recovered > 0; });
  EXPECT_EQ(worker.recoverer()->counters().recovered, 1u);
  EXPECT_TRUE(worker.Stop().ok());
}

// A store in which the list of parts of one region is damaged.
class DamagedStore : public DirectoryLogStore {
 public:
  DamagedStore(Files* files, uint32_t damaged) : DirectoryLogStore(files, "log"), damaged_(damaged) {}
  absl::StatusOr<bool> Has(uint32_t region) override {
    return region == damaged_ ? absl::StatusOr<bool>(Damaged()) : DirectoryLogStore::Has(region);
  }
  absl::StatusOr<uint32_t> LastEpoch(uint32_t region) override {
    return region == damaged_ ? absl::StatusOr<uint32_t>(Damaged()) : DirectoryLogStore::LastEpoch(region);
  }

 private:
  static absl::Status Damaged() { return absl::DataLossError("its list of parts is damaged"); }

  const uint32_t damaged_;
};

TEST_F(RecovererTest, ADamagedListOfPartsStopsItsRegionAlone) {
  constexpr uint32_t kOther = kRegion + 1;
  for (const uint32_t damaged : {kRegion, kOther}) {
    SimDisk disk(1);
    const auto old_host = disk.NewHost(), host = disk.NewHost();
    DirectoryLogStore store(old_host.get(), "log");
    for (const uint32_t region : {kRegion, kOther}) {
      RegionLog log(region, 1, 1, *store.Open(region, 1, 1));
      log.Append(RecordKind::kRange, "", EncodeRange({}));
      CELL_CHECK(Flush(&log).ok());
    }
    ClusterState state = OldOwnersCluster();
    state.table.ids.next = kOther + 1;
    state.table.regions.Set(kOther, {{"old", 0}, 1});
    const auto cluster = std::make_shared<MemoryCluster>(state);
    SimNetwork network{SimOptions{}};
    Worker worker(network.NewEndpoint(), std::make_unique<MemoryMembership>(cluster),
                  Worker::Logs{std::make_shared<DamagedStore>(host.get(), damaged),
                               std::make_unique<SimThreadPool>(&network, 1, 1'000),
                               std::make_unique<SimThreadPool>(&network, 2, 1'000)},
                  Options());
    CELL_CHECK(worker.Start("new").ok());
    RunUntil(&network, &worker,
             [&worker] { return worker.recoverer()->counters().recovered > 0 && worker.scheduler()->idle(); });
    EXPECT_EQ(worker.recoverer()->counters().recovered, 1u);
    EXPECT_EQ(cluster->state.table.Find(damaged)->owner, (WorkerId{"old", 0}));
    EXPECT_EQ(cluster->state.table.Find(damaged)->epoch, 1u);
    EXPECT_EQ(FailuresOf(&worker), fmt::format(R"([{{"region":{},"why":"its list of parts is damaged"}}])", damaged));
    EXPECT_TRUE(worker.Stop().ok());
  }
}

// A store of which this worker can read nothing.
class UnreadableStore : public DirectoryLogStore {
 public:
  explicit UnreadableStore(Files* files) : DirectoryLogStore(files, "log") {}
  absl::Status Fence(uint32_t, uint32_t) override { return absl::UnavailableError("EIO"); }
};

TEST_F(RecovererTest, ARegionIsPassedOnAlsoWhenNobodyHadRoomForItBefore) {
  SimDisk disk(1);
  const auto old_host = disk.NewHost(), host = disk.NewHost();
  DirectoryLogStore store(old_host.get(), "log");
  RegionLog log(kRegion, 1, 1, *store.Open(kRegion, 1, 1));
  log.Append(RecordKind::kRange, "", EncodeRange({}));
  CELL_CHECK(Flush(&log).ok());
  const auto cluster = std::make_shared<MemoryCluster>(OldOwnersCluster());
  SimNetwork network{SimOptions{}};
  Worker::Options options = Options();
  options.recoverer.retry_after_ns = 10'000;
  Worker worker(
      network.NewEndpoint(), std::make_unique<MemoryMembership>(cluster),
      Worker::Logs{std::make_shared<UnreadableStore>(host.get()), std::make_unique<SimThreadPool>(&network, 1, 1'000),
                   std::make_unique<SimThreadPool>(&network, 2, 1'000)},
      options);
  CELL_CHECK(worker.Start("new").ok());
  RunUntil(&network, &worker, [&worker] { return worker.recoverer()->counters().failed > 0; });
  EXPECT_EQ(cluster->state.table.Find(kRegion)->owner, (WorkerId{"new", 0}));
  EXPECT_NE(FailuresOf(&worker).find("EIO"), std::string::npos) << FailuresOf(&worker);
  cluster->state.servers.push_back({"third", {{"third", 8}}, ""});
  RunUntil(&network, &worker, [&cluster] { return cluster->state.table.Find(kRegion)->owner.server == "third"; });
  EXPECT_EQ(cluster->state.table.Find(kRegion)->owner, (WorkerId{"third", 0}));
  EXPECT_TRUE(worker.Stop().ok());
}

// A membership may not be able to change the owners of many regions at once. They are claimed in several changes then.
TEST_F(RecovererTest, RegionsThatCannotBeClaimedAtOnceAreClaimedOneAfterTheOther) {
  constexpr uint32_t kRegions = 5;
  SimDisk disk(1);
  const auto old_host = disk.NewHost(), host = disk.NewHost();
  DirectoryLogStore store(old_host.get(), "log");
  ClusterState state = OldOwnersCluster();
  for (uint32_t region = kRegion; region < kRegion + kRegions; ++region) {
    RegionLog log(region, 1, 1, *store.Open(region, 1, 1));
    log.Append(RecordKind::kRange, "", EncodeRange({}));
    CELL_CHECK(Flush(&log).ok());
    state.table.regions.Set(region, {{"old", 0}, 1});
  }
  state.table.ids.next = kRegion + kRegions;
  const auto cluster = std::make_shared<MemoryCluster>(state);
  cluster->regions_at_once = 2;
  SimNetwork network{SimOptions{}};
  Worker worker(network.NewEndpoint(), std::make_unique<MemoryMembership>(cluster), LogsOf(&network, host.get(), [] {}),
                Options());
  CELL_CHECK(worker.Start("new").ok());
  RunUntil(&network, &worker, [&worker] { return worker.recoverer()->counters().recovered == kRegions; });
  EXPECT_EQ(worker.recoverer()->counters().recovered, kRegions);
  EXPECT_TRUE(worker.Stop().ok());
}

// LogCollector passes over a damaged log that belongs to no region, and removes the others.
TEST_F(RecovererTest, ADamagedLogOfNobodyKeepsNoOtherFromBeingRemoved) {
  constexpr uint32_t kDamaged = kRegion + 1, kGone = kRegion + 2;
  SimDisk disk(1);
  const auto old_host = disk.NewHost(), host = disk.NewHost();
  DirectoryLogStore store(old_host.get(), "log");
  for (const uint32_t region : {kRegion, kDamaged, kGone}) {
    RegionLog log(region, 1, 1, *store.Open(region, 1, 1));
    log.Append(RecordKind::kRange, "", EncodeRange({}));
    CELL_CHECK(Flush(&log).ok());
  }
  ClusterState state = OldOwnersCluster();
  state.table.ids.next = kGone + 1;
  state.table.ids.removed_epoch = 1;
  SimNetwork network{SimOptions{}};
  Worker::Options options = Options();
  options.collector.look_every_ns = 100'000;
  Worker worker(network.NewEndpoint(), std::make_unique<MemoryMembership>(std::make_shared<MemoryCluster>(state)),
                Worker::Logs{std::make_shared<DamagedStore>(host.get(), kDamaged),
                             std::make_unique<SimThreadPool>(&network, 1, 1'000),
                             std::make_unique<SimThreadPool>(&network, 2, 1'000)},
                options);
  CELL_CHECK(worker.Start("new").ok());
  RunUntil(&network, &worker, [&worker] { return worker.collector()->removed() > 0 && worker.scheduler()->idle(); });
  EXPECT_FALSE(*store.Has(kGone));
  EXPECT_TRUE(*store.Has(kDamaged));
  EXPECT_TRUE(worker.Stop().ok());
}

// The former owner died while it split the region, before the cut was on disk.
TEST_F(RecovererTest, TheLogOfARegionThatWasNotCutOffIsRemoved) {
  constexpr uint32_t kChild = kRegion + 1;
  SimDisk disk(1);
  const auto old_host = disk.NewHost(), host = disk.NewHost();
  DirectoryLogStore store(old_host.get(), "log");
  for (const uint32_t region : {kRegion, kChild}) {
    RegionLog log(region, 1, 1, *store.Open(region, 1, 1));
    log.Append(RecordKind::kRange, "", EncodeRange({}));
    CELL_CHECK(Flush(&log).ok());
  }
  ClusterState state = OldOwnersCluster();
  state.table.ids.next = kChild + 1;
  state.table.regions.Set(kChild, {{"old", 0}, 1, kRegion});
  const auto cluster = std::make_shared<MemoryCluster>(state);
  SimNetwork network{SimOptions{}};
  Worker worker(network.NewEndpoint(), std::make_unique<MemoryMembership>(cluster), LogsOf(&network, host.get(), [] {}),
                Options());
  CELL_CHECK(worker.Start("new").ok());
  RunUntil(&network, &worker,
           [&worker] { return worker.recoverer()->counters().recovered > 0 && worker.scheduler()->idle(); });
  EXPECT_EQ(worker.recoverer()->counters().recovered, 1u);
  EXPECT_EQ(cluster->state.table.Find(kChild), nullptr);
  EXPECT_TRUE(*store.Has(kRegion));
  EXPECT_FALSE(*store.Has(kChild));
  EXPECT_TRUE(worker.Stop().ok());
}

// A worker is about to recover a region of its own. A new region must not take its slot.
TEST_F(RecovererTest, ARegionThatIsToBeRecoveredKeepsItsPlace) {
  SimDisk disk(1);
  const auto old_host = disk.NewHost(), host = disk.NewHost();
  DirectoryLogStore old_store(old_host.get(), "log");
  RegionLog log(kRegion, 1, 1, *old_store.Open(kRegion, 1, 1));
  log.Append(RecordKind::kRange, "", EncodeRange({}));
  CELL_CHECK(Flush(&log).ok());
  ClusterState state = OldOwnersCluster();
  state.table.regions.Change(kRegion, [](RegionEntry* entry) { entry->owner = {"new", 0}; });
  state.servers[0].workers[0].regions_max = 1;
  const auto cluster = std::make_shared<MemoryCluster>(state);
  SimNetwork network{SimOptions{}};
  Worker::Options options = Options();
  options.regions_max = 1;
  Worker worker(network.NewEndpoint(), std::make_unique<MemoryMembership>(cluster), LogsOf(&network, host.get(), [] {}),
                options);
  CELL_CHECK(worker.Start("new").ok());
  ASSERT_EQ(worker.regions()->size(), 0u);
  absl::Status made;
  const auto make = [](Worker* its, absl::Status* status) -> Task<bool> {
    *status = co_await its->tables()->Create("t", 0, 0);
    co_return true;
  };
  worker.scheduler()->Spawn(make(&worker, &made));
  RunUntil(&network, &worker, [&worker] { return worker.recoverer()->counters().recovered > 0; });
  EXPECT_EQ(worker.recoverer()->counters().recovered, 1u);
  EXPECT_EQ(made.code(), absl::StatusCode::kResourceExhausted) << made;
  EXPECT_EQ(cluster->state.table.regions.size(), 1u);
  EXPECT_TRUE(worker.Stop().ok());
}

// While the worker checks whether the disk of a failed log answers again, others may begin something with the region.
TEST_F(RecovererTest, ARegionThatIsBusyWhenItsDiskAnswersIsNotGivenUp) {
  SimDisk disk(1);
  const auto old_host = disk.NewHost(), host = disk.NewHost();
  DirectoryLogStore old_store(old_host.get(), "log");
  RegionLog log(kRegion, 1, 1, *old_store.Open(kRegion, 1, 1));
  log.Append(RecordKind::kRange, "", EncodeRange({}));
  CELL_CHECK(Flush(&log).ok());
  HeldRegion* failed = nullptr;
  RegionClaim claim;
  int probes = 0;
  const auto hook = [&] {
    if (failed == nullptr) return;
    if (!failed->claimed()) claim = RegionClaim(failed, ClaimPurpose::kCheckpoint);
    ++probes;
  };
  SimNetwork network{SimOptions{}};
  auto membership = std::make_unique<MemoryMembership>(std::make_shared<MemoryCluster>(OldOwnersCluster()));
  Worker::Options options = Options();
  options.recoverer.probe_every_ns = 1'000;
  Worker worker(network.NewEndpoint(), std::move(membership), LogsOf(&network, host.get(), hook), options);
  CELL_CHECK(worker.Start("new").ok());
  const auto counters = [&worker] { return worker.recoverer()->counters(); };
  RunUntil(&network, &worker, [&] { return counters().recovered > 0 && worker.scheduler()->idle(); });
  HeldRegion* const held = worker.regions()->Find(kRegion);
  ASSERT_NE(held, nullptr);
  held->log->Fail(absl::UnavailableError("EIO"));
  failed = held;
  const auto run_on = [&] {
    const int64_t end_ns = network.now_ns() + 100'000;
    RunUntil(&network, &worker, [&] { return network.now_ns() >= end_ns; });
  };
  run_on();
  EXPECT_GT(probes, 0);
  EXPECT_FALSE(held->lost());
  EXPECT_EQ(counters().retaken, 0u);
  failed = nullptr;
  claim.Release();
  run_on();
  EXPECT_EQ(counters().retaken, 1u);
  EXPECT_EQ(counters().recovered, 2u);
  EXPECT_TRUE(worker.Stop().ok());
}

// A worker that holds the region, which it has recovered.
class RecoveredTest : public RecovererTest {
 protected:
  RecoveredTest() {
    DirectoryLogStore old_store(old_host_.get(), "log");
    RegionLog log(kRegion, 1, 1, *old_store.Open(kRegion, 1, 1));
    log.Append(RecordKind::kRange, "", EncodeRange({}));
    CELL_CHECK(Flush(&log).ok());
    auto membership = std::make_unique<MemoryMembership>(std::make_shared<MemoryCluster>(OldOwnersCluster()));
    membership_ = membership.get();
    Worker::Options options = Options();
    options.recoverer.probe_every_ns = 1'000;
    worker_ = std::make_unique<Worker>(network_.NewEndpoint(), std::move(membership),
                                       LogsOf(&network_, host_.get(), [] {}), options);
    CELL_CHECK(worker_->Start("new").ok());
    RunUntil(&network_, worker_.get(), [this] { return recovered() > 0 && worker_->scheduler()->idle(); });
    held_ = worker_->regions()->Find(kRegion);
    CELL_CHECK_NE(held_, nullptr);
  }
  ~RecoveredTest() override { EXPECT_TRUE(worker_->Stop().ok()); }

  void RunOn() {
    const int64_t end_ns = network_.now_ns() + 100'000;
    RunUntil(&network_, worker_.get(), [this, end_ns] { return network_.now_ns() >= end_ns; });
  }
  uint64_t recovered() { return worker_->recoverer()->counters().recovered; }
  uint64_t retaken() { return worker_->recoverer()->counters().retaken; }

  SimDisk disk_{1};
  const std::unique_ptr<SimFiles> old_host_ = disk_.NewHost(), host_ = disk_.NewHost();
  SimNetwork network_{SimOptions{}};
  MemoryMembership* membership_;  // The worker's.
  std::unique_ptr<Worker> worker_;
  HeldRegion* held_;
};

// Somebody else may write the region elsewhere from now on. Readers of the memory here must notice that, and nothing
// that is written here may count as logged.
TEST_F(RecoveredTest, ALostRegionIsNeitherReadNorLogged) {
  const auto root = [this] { return LoadWord(held_->memory->at(kRegionHeaderBytes)); };
  const uint64_t serving = root();
  const RegionClaim claim(held_, ClaimPurpose::kCheckpoint);  // It is not dropped yet.
  membership_->Rejoin();
  worker_->recoverer()->Step();
  ASSERT_TRUE(held_->lost());
  EXPECT_NE(root(), serving);
  EXPECT_TRUE(absl::IsAborted(held_->log->status())) << held_->log->status();
}

// The region table does not change again meanwhile.
TEST_F(RecoveredTest, ALostRegionThatWasClaimedIsDroppedAndRecoveredAfterTheClaim) {
  RegionClaim claim(held_, ClaimPurpose::kCheckpoint);
  membership_->Rejoin();
  RunOn();
  ASSERT_EQ(worker_->regions()->Find(kRegion), held_);
  ASSERT_TRUE(held_->lost());
  EXPECT_EQ(recovered(), 1u);
  claim.Release();
  RunOn();
  EXPECT_EQ(recovered(), 2u);
}

// A flush of the failed log is still in progress, and has its writer.
TEST_F(RecoveredTest, ARegionWhoseLogIsBeingFlushedIsNotGivenUp) {
  const absl::Status failed = absl::UnavailableError("EIO");
  held_->log->Append(RecordKind::kPut, "key", "value");
  auto flush = held_->log->BeginFlush();
  held_->log->Fail(failed);
  RunOn();
  ASSERT_EQ(retaken(), 0u);
  held_->log->EndFlush(std::move(flush), failed);
  RunOn();
  EXPECT_EQ(retaken(), 1u);
  EXPECT_EQ(recovered(), 2u);
}

// Somebody has removed the log of a region that is served. All that is left of the region is in memory.
TEST_F(RecoveredTest, ARegionThatCouldNotBeRecoveredFromItsFailedLogStaysInMemory) {
  DirectoryLogStore store(host_.get(), "log");
  const std::vector<LogPart> parts = *store.List(kRegion);
  for (const LogPart& part : parts) ASSERT_TRUE(host_->Remove(part.name).ok());
  held_->log->Fail(absl::DataLossError("the log lacks an object"));
  RunOn();
  EXPECT_EQ(worker_->regions()->Find(kRegion), held_);
  EXPECT_FALSE(held_->lost());
  EXPECT_EQ(retaken(), 0u);
  EXPECT_EQ(FailuresOf(worker_.get()), R"([{"region":1,"why":"there is no log in log/region-1"}])");
}

}  // namespace
}  // namespace cell
