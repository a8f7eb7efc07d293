// Tests what a worker's logs and checkpoints hold at the moment when it dies.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "cell/server/region/region_claim.h"
#include "tests/clusters.h"

namespace cell {
namespace {

ClientOptions Quiet() {
  ClientOptions options;
  options.report = false;
  options.reconnect_us = 20;
  options.timeout_us = 2'000;
  return options;
}
void Sleep(Client* client, int64_t ns) { client->Run(client->AsyncSleepUntil(client->NowNs() + ns)); }

class MarkerTest : public ::testing::TestWithParam<Durability> {
 protected:
  static constexpr int64_t kMarkAfterNs = 20'000;
  static TestClusterOptions Options() {
    TestClusterOptions options;
    options.logs.durability = GetParam();
    options.logs.bound_ns = 4'000;
    options.logs.mark_after_ns = kMarkAfterNs;
    return options;
  }
  const RegionLog& log() const { return *cluster_.worker()->regions()->all()[0]->log; }
  // Flips one bit of the last record of the region's log, in whichever segment it is.
  void DamageLastRecord() {
    std::string* last = nullptr;
    for (const std::string& path : cluster_.disk()->paths()) {
      std::string* const bytes = cluster_.disk()->bytes(path);
      if (bytes->find(kLast) != std::string::npos) last = bytes;
    }
    ASSERT_NE(last, nullptr);
    (*last)[last->find(kLast)] ^= 1;
  }
  // Checks that the region is not served without its last record.
  void ExpectItIsNoticed() {
    cluster_.Restart(0);
    const auto value = client_->Get("first");
    EXPECT_FALSE(value.ok()) << value->value_or("absent");
    EXPECT_GT(cluster_.worker()->recoverer()->counters().failed, 0u);
    EXPECT_EQ(cluster_.worker()->recoverer()->counters().recovered, 0u);
  }

  static constexpr const char* kLast = "the last value";
  mutable SimCluster cluster_{{512, 128 << 10, 256 << 10}, {}, Options()};
  std::unique_ptr<Client> client_ = cluster_.NewClient(Quiet());
};

TEST_P(MarkerTest, DamageOfTheLastRecordIsNoticedAfterAPause) {
  ASSERT_TRUE(client_->Put("first", "value").ok());
  ASSERT_TRUE(client_->Put("last", kLast).ok());
  Sleep(client_.get(), 3 * kMarkAfterNs);
  EXPECT_EQ(log().durable(), log().appended());
  EXPECT_EQ(cluster_.worker()->logs()->counters().markers, 1u);
  Sleep(client_.get(), 10 * kMarkAfterNs);
  EXPECT_EQ(cluster_.worker()->logs()->counters().markers, 1u);  // An idle log stays as it is.
  cluster_.Kill(0);
  DamageLastRecord();
  ExpectItIsNoticed();
}

TEST_P(MarkerTest, AndAfterACleanStop) {
  ASSERT_TRUE(client_->Put("first", "value").ok());
  ASSERT_TRUE(client_->Put("last", kLast).ok());
  ASSERT_TRUE(cluster_.worker()->Stop().ok());
  EXPECT_EQ(log().durable(), log().appended());
  cluster_.Kill(0);
  DamageLastRecord();
  ExpectItIsNoticed();
}

// This holds even if the marker is lost as well, so that nothing in the file shows it.
TEST_P(MarkerTest, AndSoIsTheLossOfTheWholeEndAfterACleanStop) {
  ASSERT_TRUE(client_->Put("first", "value").ok());
  ASSERT_TRUE(client_->Put("last", kLast).ok());
  ASSERT_TRUE(cluster_.worker()->Stop().ok());
  cluster_.Kill(0);
  size_t cut = 0;
  for (const std::string& path : cluster_.disk()->paths()) {
    std::string* const bytes = cluster_.disk()->bytes(path);
    if (bytes->find(kLast) == std::string::npos) continue;
    const size_t end = bytes->find("value") + 8;  // End of the first record.
    std::fill(bytes->begin() + static_cast<ptrdiff_t>(end), bytes->end(), '\0');
    ++cut;
  }
  EXPECT_EQ(cut, 1u);
  ExpectItIsNoticed();
}

// Records that its owner wrote again after a restart do not count as a torn end either.
TEST_P(MarkerTest, AndAfterARecovery) {
  ASSERT_TRUE(client_->Put("first", "value").ok());
  ASSERT_TRUE(client_->Put("last", kLast).ok());
  Sleep(client_.get(), kMarkAfterNs / 2);
  EXPECT_EQ(cluster_.worker()->logs()->counters().markers, 0u);
  cluster_.Kill(0);
  cluster_.Restart(0);
  EXPECT_EQ(client_->Get("last")->value_or("absent"), kLast);
  cluster_.Kill(0);
  for (const std::string& path : cluster_.disk()->paths()) {
    std::string* const bytes = cluster_.disk()->bytes(path);
    if (const size_t at = bytes->find(kLast); at != std::string::npos) (*bytes)[at] ^= 1;
  }
  ExpectItIsNoticed();
}

INSTANTIATE_TEST_SUITE_P(All, MarkerTest, ::testing::Values(Durability::kAsync, Durability::kSync),
                         [](const auto& info) { return ToString(info.param); });

// A disk that hangs does not keep a server from ending. The message says what may not be on disk.
TEST(Stop, DoesNotWaitForEverForADiskThatHangs) {
  for (const Durability durability : {Durability::kSync, Durability::kAsync}) {
    for (const bool checkpoint : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, {}", ToString(durability), checkpoint));
      TestClusterOptions options;
      options.logs.durability = durability;
      options.logs.bound_ns = 4'000;
      options.logs.finish_patience_ns = 1'000'000;
      SimCluster cluster({512, 128 << 10, 256 << 10}, {}, options);
      auto client = cluster.NewClient(Quiet());
      ASSERT_TRUE(client->Put("first", "value").ok());
      Sleep(client.get(), 2 * options.logs.bound_ns);
      Worker* const worker = cluster.worker();
      const std::string region =
          fmt::format("of these regions may not be on it: {}", worker->regions()->all()[0]->region());
      const auto make_checkpoint = [](Worker* of) -> Task<bool> {
        Checkpointer::Made made;
        co_return (co_await of->checkpointer()->CheckpointAll(&made)).ok();
      };
      cluster.disk_pool()->SetPaused(true);
      const absl::Status last = client->Put("last", "value").status();
      EXPECT_EQ(last.ok(), durability == Durability::kAsync) << last;
      if (checkpoint) worker->scheduler()->Spawn(make_checkpoint(worker));
      const int64_t begun_ns = cluster.network()->now_ns();
      const absl::Status stopped = worker->Stop();
      EXPECT_TRUE(absl::IsDeadlineExceeded(stopped)) << stopped;
      EXPECT_LT(cluster.network()->now_ns() - begun_ns, 3 * options.logs.finish_patience_ns);
      EXPECT_EQ(stopped.message().find(region) != std::string::npos, durability == Durability::kAsync) << stopped;
      cluster.disk_pool()->SetPaused(false);
    }
  }
}

// A checkpoint appears only when all records whose effects it may hold are on disk. Otherwise it could bring back a
// write that came after a lost one. The disk syncs once while the checkpoint is written, and not again by itself.
TEST(CheckpointEnd, WaitsForAllThatTheCheckpointMayHold) {
  TestClusterOptions options;
  options.logs.durability = Durability::kAsync;
  options.logs.bound_ns = 1'000'000'000;
  options.logs.mark_after_ns = 1'000'000'000;
  SimCluster cluster({512, 512 << 10, 1 << 20}, {}, options);
  auto client = cluster.NewClient(Quiet());
  constexpr int kKeys = 3000;
  const auto key = [](int i) { return fmt::format("k{:05}", i); };
  for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(client->Put(key(i), "old").ok());
  Worker* const worker = cluster.worker();
  ASSERT_EQ(worker->regions()->all().size(), 1u);
  HeldRegion* const held = worker->regions()->all()[0];
  const auto checkpoint = [](Worker* of, uint32_t region) -> Task<bool> {
    co_return (co_await of->checkpointer()->Checkpoint(region)).ok();
  };
  worker->scheduler()->Spawn(checkpoint(worker, held->region()));
  const auto begun = [&] {
    for (const std::string& path : cluster.disk()->paths()) {
      if (path.find("unfinished") != std::string::npos) return true;
    }
    return false;
  };
  while (!begun()) cluster.network()->Step();
  held->RequestFlush();
  while (held->log->durable() < held->log->appended()) cluster.network()->Step();
  // A key that the checkpoint has passed by now, and then one that it has not.
  ASSERT_TRUE(client->Put(key(0), "new").ok());
  ASSERT_TRUE(client->Put(key(kKeys - 1), "new").ok());
  ASSERT_LT(held->log->durable(), held->log->appended());
  ASSERT_EQ(worker->checkpointer()->counters().checkpoint_bytes, 0u) << "it has ended before";
  while (worker->checkpointer()->counters().checkpoints == 0) cluster.network()->Step();
  cluster.Kill(0, /*machine=*/true);
  cluster.Restart(0);
  EXPECT_EQ(client->Get(key(kKeys - 1))->value_or("absent"), "new");
  EXPECT_EQ(client->Get(key(0))->value_or("absent"), "new");
}

// A recovery of the region removes the files of an interrupted checkpoint.
TEST(UnfinishedCheckpoint, IsRemovedByTheNextOwner) {
  TestClusterOptions options;
  options.logs.durability = Durability::kSync;
  SimCluster cluster({512, 512 << 10, 1 << 20}, {}, options);
  auto client = cluster.NewClient(Quiet());
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(client->Put(fmt::format("k{:05}", i), "value").ok());
  const auto unfinished = [&] {
    const std::vector<std::string> paths = cluster.disk()->paths();
    return std::count_if(paths.begin(), paths.end(),
                         [](const std::string& path) { return path.find("unfinished") != std::string::npos; });
  };
  const auto checkpoint = [](Worker* worker) -> Task<bool> {
    Checkpointer::Made made;
    co_return (co_await worker->checkpointer()->CheckpointAll(&made)).ok();
  };
  cluster.worker()->scheduler()->Spawn(checkpoint(cluster.worker()));
  while (unfinished() == 0) cluster.network()->Step();
  cluster.Kill(0);
  cluster.Restart(0);
  EXPECT_EQ(client->Get("k00007")->value_or("absent"), "value");
  EXPECT_EQ(unfinished(), 0);
}

// A region was created for a new root or a new table, and its creator died before it was used. A remaining server, or
// the creator itself when it is back, removes it.
TEST(UnusedRegion, IsRemovedWhenItsMakerHasDied) {
  for (const bool comes_back : {false, true}) {
    TestClusterOptions options;
    options.servers = 2;
    options.logs.durability = Durability::kSync;
    SimCluster cluster({512, 128 << 10, 256 << 10}, {}, options);
    auto client = cluster.NewClient(Quiet());
    ASSERT_TRUE(client->Put("key", "value").ok());
    const auto owner =
        static_cast<size_t>(std::stoi(cluster.table().Find(cluster.table().root)->owner.server.substr(7)));
    const size_t maker = comes_back ? owner : 1 - owner;
    cluster.Kill(maker);
    const auto made = cluster.shared()->state.table.Add({fmt::format("server-{}", maker), 0}, 0);
    ASSERT_TRUE(made.ok());
    ++cluster.shared()->state.table.version;
    ++cluster.shared()->changes;
    if (comes_back) cluster.Restart(maker);
    for (int i = 0; i < 3'000'000 && cluster.table().Find(*made) != nullptr; ++i) cluster.network()->Step();
    EXPECT_EQ(cluster.table().Find(*made), nullptr) << comes_back;
    EXPECT_EQ(client->Get("key")->value_or("absent"), "value");
  }
}

// Any call of the disk fails, and the server continues.
TEST(Checkpoints, LeaveNothingWhenTheyFail) {
  int failed = 0;
  for (uint64_t call = 0; call < 30; ++call) {
    SCOPED_TRACE(call);
    TestClusterOptions options;
    options.logs.durability = Durability::kSync;
    SimCluster cluster({512, 32 << 10, 64 << 10}, {}, options);
    auto client = cluster.NewClient(Quiet());
    ASSERT_TRUE(client->Put("key", "value").ok());
    std::optional<absl::Status> made;
    const auto checkpoint = [&]() -> Task<bool> {
      Checkpointer::Made all;
      made = co_await cluster.worker()->checkpointer()->CheckpointAll(&all);
      co_return true;
    };
    cluster.files()->FailAt(call, absl::UnavailableError("EIO"));
    cluster.worker()->scheduler()->Spawn(checkpoint());
    while (!made.has_value()) cluster.network()->Step();
    failed += !made->ok();
    for (const std::string& path : cluster.disk()->paths()) EXPECT_FALSE(path.ends_with(".unfinished")) << path;
  }
  EXPECT_GT(failed, 5);
}

// Only the bytes that were written since the last checkpoint count.
TEST(Checkpoints, BeginWhenEnoughWasWrittenSinceTheLastOne) {
  TestClusterOptions options;
  options.logs.durability = Durability::kSync;
  options.checkpoints.log_bytes_min = 4'000;
  SimCluster cluster({512, 32 << 10, 64 << 10}, {}, options);
  auto client = cluster.NewClient(Quiet());
  const auto checkpoints_after = [&](int puts) {
    for (int i = 0; i < puts; ++i) EXPECT_TRUE(client->Put("key", std::string(1'000, 'v')).ok());
    Sleep(client.get(), 1'000'000);
    return cluster.worker()->checkpointer()->counters().checkpoints;
  };
  EXPECT_EQ(checkpoints_after(3), 0u);
  EXPECT_EQ(checkpoints_after(1), 1u);
  EXPECT_EQ(checkpoints_after(3), 1u);
  EXPECT_EQ(checkpoints_after(1), 2u);
}

// A region that is claimed may be in the middle of a split or a migration.
TEST(Checkpoints, OfAllRegionsWaitForThoseThatAreClaimed) {
  for (const bool stops : {false, true}) {
    SCOPED_TRACE(stops);
    RegionClaim claim;
    std::optional<absl::Status> made;
    {
      TestClusterOptions options;
      options.logs.durability = Durability::kSync;
      SimCluster cluster({512, 32 << 10, 64 << 10}, {}, options);
      claim = RegionClaim(cluster.worker()->regions()->Find(cluster.table().root), ClaimPurpose::kMigrate);
      const auto checkpoint = [&made](Worker* worker) -> Task<bool> {
        Checkpointer::Made all;
        made = co_await worker->checkpointer()->CheckpointAll(&all);
        co_return true;
      };
      cluster.worker()->scheduler()->Spawn(checkpoint(cluster.worker()));
      for (int i = 0; i < 10'000; ++i) cluster.network()->Step();
      EXPECT_FALSE(made.has_value());
      if (!stops) {
        claim.Release();
        while (!made.has_value()) cluster.network()->Step();
        EXPECT_TRUE(made->ok()) << *made;
      }
    }  // Here the worker ends, although the region may still be claimed.
    ASSERT_TRUE(made.has_value());
    EXPECT_EQ(made->ok(), !stops) << *made;
  }
}

// A table is dropped while the server that has it is dead, so nobody is left who knows its logs.
TEST(LogCollector, RemovesTheLogsOfWhatWasDroppedAroundACrash) {
  TestClusterOptions options;
  options.logs.durability = Durability::kSync;
  options.collector.look_every_ns = 100'000;
  SimCluster cluster({512, 32 << 10, 64 << 10}, {}, options);
  auto client = cluster.NewClient(Quiet());
  ASSERT_TRUE(client->Put("key", "value").ok());
  ASSERT_TRUE(cluster.CreateTable("dropped", 0, 3).ok());
  ASSERT_TRUE(cluster.CreateTable("kept", 0, 2).ok());
  const auto has_logs = [&] {
    std::set<uint32_t> regions;
    for (const std::string& path : cluster.disk()->paths()) {
      uint32_t region = 0;
      if (std::sscanf(path.c_str(), "log/region-%u/", &region) == 1) regions.insert(region);
    }
    return regions;
  };
  const auto listed = [&] {
    std::set<uint32_t> regions;
    for (const auto& [region, entry] : cluster.table().regions) regions.insert(region);
    return regions;
  };
  ASSERT_EQ(has_logs(), listed());
  cluster.Kill(0);
  ASSERT_TRUE(cluster.shared()->state.table.DropTable("dropped").ok());
  ++cluster.shared()->state.table.version;
  ++cluster.shared()->changes;
  cluster.Restart(0);
  EXPECT_EQ(client->Get("key")->value_or("absent"), "value");
  EXPECT_NE(has_logs(), listed());
  Sleep(client.get(), 5 * options.collector.look_every_ns);
  EXPECT_EQ(has_logs(), listed());
  EXPECT_EQ(cluster.worker()->collector()->removed(), 3u);
  EXPECT_EQ(client->Get("key")->value_or("absent"), "value");
}

// While a server is down, somebody restores a region table from before a table was created. The logs of that table must
// stay, whether the number of its region has been used again or not, because the newer region table may be restored,
// too.
class OlderRegionTable : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(IdsUsedBefore, OlderRegionTable, ::testing::Bool());

TEST_P(OlderRegionTable, LogsThatItDoesNotNameAreKept) {
  const bool id_used_before = GetParam();
  TestClusterOptions options;
  options.servers = 2;
  if (id_used_before) options.region_ids = 4;
  options.logs.durability = Durability::kSync;
  options.collector.look_every_ns = 100'000;
  options.balance.enabled = false;
  SimCluster cluster({512, 32 << 10, 64 << 10}, {}, options);
  auto client = cluster.NewClient(Quiet());
  ASSERT_TRUE(client->Put("key", "value").ok());
  const auto owner = static_cast<size_t>(std::stoi(cluster.table().Find(cluster.table().root)->owner.server.substr(7)));
  Worker* const maker = cluster.worker(1 - owner);
  std::optional<absl::Status> done;
  const auto run = [&](Task<absl::Status> task) -> Task<bool> {
    done = co_await std::move(task);
    co_return true;
  };
  const auto finish = [&](Worker* worker, Task<absl::Status> task) {
    done.reset();
    worker->scheduler()->Spawn(run(std::move(task)));
    while (!done.has_value()) cluster.network()->Step();
    return *done;
  };
  do {
    ASSERT_TRUE(finish(maker, maker->tables()->Create("earlier", 0, 1)).ok());
    ASSERT_TRUE(finish(maker, maker->tables()->Drop("earlier")).ok());
    Sleep(client.get(), 1'000'000);  // Its log is gone, too.
  } while (id_used_before && !cluster.table().ids.around);
  const RegionTable older = cluster.table();
  ASSERT_TRUE(finish(maker, maker->tables()->Create("t", 0, 1)).ok());
  const uint32_t region = cluster.table().tables.at("t").RegionOf(0);
  ASSERT_EQ(older.ids.Given(region), id_used_before);
  ASSERT_TRUE(client->OpenTable("t")->Put("key", "in t").ok());
  ASSERT_TRUE(finish(maker, maker->checkpointer()->Checkpoint(region)).ok());  // Its log has no first segment now.
  const auto logs = [&] {
    std::map<std::string, std::string> all;
    for (const std::string& path : cluster.disk()->paths()) {
      if (path.find(fmt::format("region-{}/", region)) != std::string::npos) all[path] = *cluster.disk()->bytes(path);
    }
    return all;
  };
  cluster.Kill(1 - owner);
  const RegionTable newer = cluster.table();
  const auto kept = logs();
  const auto put_back = [&](RegionTable table) {
    table.version = cluster.table().version + 1;
    cluster.shared()->state.table = std::move(table);
    ++cluster.shared()->changes;
    Sleep(client.get(), 5 * options.collector.look_every_ns);
    EXPECT_EQ(client->Get("key")->value_or("absent"), "value");
  };
  put_back(older);
  EXPECT_TRUE(logs() == kept);
  const absl::Status taken = finish(cluster.worker(owner), cluster.worker(owner)->tables()->Create("other", 0, 1));
  EXPECT_TRUE(absl::IsAlreadyExists(taken)) << taken;
  Sleep(client.get(), 5 * options.collector.look_every_ns);
  EXPECT_TRUE(logs() == kept);
  put_back(newer);
  EXPECT_EQ(client->OpenTable("t")->Get("key")->value_or("absent"), "in t");
}

}  // namespace
}  // namespace cell
