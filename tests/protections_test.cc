// Tests protections that random histories seldom exercise, with one case for each.
#include <gtest/gtest.h>

#include "tests/clusters.h"

namespace cell {
namespace {

ClientOptions Quiet() {
  ClientOptions options;
  options.report = false;
  options.reconnect_us = 20;
  return options;
}

TestClusterOptions Options(int servers, Durability durability) {
  TestClusterOptions options;
  options.servers = servers;
  options.balance.enabled = false;
  options.logs.durability = durability;
  return options;
}

// The record of a write whose sync has failed may be on disk, where the next owner of the region may find it.
TEST(FailedLog, ItsOwnWritesMayHaveBeenApplied) {
  for (const bool deletes : {false, true}) {
    SimCluster cluster({512, 128 << 10, 256 << 10}, {}, Options(1, Durability::kSync));
    auto client = cluster.NewClient(Quiet());
    ASSERT_TRUE(client->Put("key", "before").ok());
    cluster.files()->FailAt(1, absl::UnavailableError("EIO"));  // The append succeeds, and the sync fails.
    const absl::Status status = deletes ? client->Delete("key").status() : client->Put("key", "after").status();
    EXPECT_TRUE(IsMaybeApplied(status)) << status;
    EXPECT_EQ(client->Get("key")->value_or("absent"), "before");  // It was not applied.
    cluster.Kill(0);
    cluster.Restart(0);
    const std::string now = client->Get("key")->value_or("absent");
    EXPECT_EQ(now, deletes ? "absent" : "after");  // It was written before the sync failed.
  }
}

// A region is taken from a server whose disk is slow. The write that waits for the disk may be there, and be found.
TEST(LostRegion, ItsWritesMayHaveBeenApplied) {
  SimCluster cluster({512, 128 << 10, 256 << 10}, {}, Options(2, Durability::kSync));
  auto client = cluster.NewClient(Quiet());
  ASSERT_TRUE(client->Put("key", "before").ok());
  const uint32_t region = cluster.table().root;
  const RegionTable::Entry entry = *cluster.table().Find(region);
  const auto owner = static_cast<size_t>(std::stoi(entry.owner.server.substr(7)));
  cluster.SlowDisk(owner, 10'000'000);
  std::optional<absl::Status> put;
  const auto write = [&]() -> Task<bool> {
    put = (co_await client->AsyncPut("key", "after")).status();
    co_return true;
  };
  Task<bool> task = write();
  task.Start();
  const HeldRegion* const held = cluster.worker(owner)->regions()->Find(region);
  while (held->pending.empty()) client->Poll(client->NowNs() + 100);
  ASSERT_TRUE(cluster.shared()->state.table.Claim(region, entry.epoch, {fmt::format("server-{}", 1 - owner), 0}).ok());
  ++cluster.shared()->state.table.version;
  ++cluster.shared()->changes;
  while (!put.has_value()) client->Poll(client->NowNs() + 100);
  EXPECT_TRUE(IsMaybeApplied(*put)) << *put;
  EXPECT_GT(cluster.worker(owner)->recoverer()->counters().lost, 0u);
}

// An abandoned migration has collected written pages and told only its target about them. The next target needs them.
TEST(CancelledMigration, TheNextTargetGetsWhatTheFirstOneWasTold) {
  SimCluster cluster({512, 64 << 10, 128 << 10}, {}, Options(3, Durability::kNone));
  auto client = cluster.NewClient(Quiet());
  const uint32_t region = cluster.table().root;
  const auto source = static_cast<size_t>(std::stoi(cluster.table().Find(region)->owner.server.substr(7)));
  const size_t first = (source + 1) % 3, second = (source + 2) % 3;
  const auto key = [](int i) { return fmt::format("{:04}", i); };
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(client->Put(key(i), std::string(40, 'a')).ok());
  ASSERT_EQ(cluster.table().regions.size(), 1u);
  const auto give = [&](size_t to, std::optional<absl::Status>* given) -> Task<bool> {
    WorkerId target{fmt::format("server-{}", to), 0};
    *given = co_await cluster.worker(source)->migrator()->Migrate(region, std::move(target));
    co_return true;
  };
  cluster.worker(first)->sync_points()->on_reach = [&](std::string_view point) {
    if (point == "migration: target: last copy") cluster.Kill(first);
  };
  std::optional<absl::Status> given;
  cluster.worker(source)->scheduler()->Spawn(give(first, &given));
  while (!given.has_value()) cluster.network()->Step();
  ASSERT_FALSE(given->ok());
  given.reset();
  cluster.worker(source)->scheduler()->Spawn(give(second, &given));
  while (!given.has_value()) cluster.network()->Step();
  ASSERT_TRUE(given->ok()) << *given;
  for (int i = 0; i < 300; ++i) {
    const auto value = client->Get(key(i));
    ASSERT_TRUE(value.ok()) << i << value.status();
    ASSERT_EQ(value->value_or("absent"), std::string(40, 'a')) << i;
  }
  client.reset();
  EXPECT_EQ(cluster.Check().error_count, 0u);
}

// The source sees the changed table before the target's Done. It must not take the region for a lost one then: its
// migration would end only once the target counts as silent.
TEST(MigrationWithALog, EndsWithTheChangeOfTheTable) {
  SimCluster cluster({512, 64 << 10, 128 << 10}, {}, Options(2, Durability::kSync));
  auto client = cluster.NewClient(Quiet());
  ASSERT_TRUE(client->Put("key", "value").ok());
  const uint32_t region = cluster.table().root;
  const auto source = static_cast<size_t>(std::stoi(cluster.table().Find(region)->owner.server.substr(7)));
  std::optional<absl::Status> given;
  const auto give = [&]() -> Task<bool> {
    WorkerId target{fmt::format("server-{}", 1 - source), 0};
    given = co_await cluster.worker(source)->migrator()->Migrate(region, std::move(target));
    co_return true;
  };
  cluster.SlowDisk(1 - source, 1'000'000);  // The target continues the log before Done.
  cluster.worker(source)->scheduler()->Spawn(give());
  while (!given.has_value()) cluster.network()->Step();
  EXPECT_TRUE(given->ok()) << *given;
  EXPECT_EQ(cluster.worker(source)->recoverer()->counters().lost, 0u);
  EXPECT_EQ(cluster.worker(source)->migrator()->counters().sent, 1u);
  EXPECT_EQ(client->Get("key")->value_or("absent"), "value");
}

// A bit of a value in an extent flips in its server's memory. Nobody may take the result for the value, however it is
// read.
TEST(DamagedMemory, GivesNoWrongValueFromAnExtent) {
  TestClusterOptions options = Options(1, Durability::kNone);
  options.inline_max = {0};
  SimCluster cluster({512, 128 << 10, 512 << 10}, {}, options);
  auto client = cluster.NewClient(Quiet());
  for (const size_t bytes : {size_t{10}, size_t{200'000}}) {  // The second comes in pieces.
    ASSERT_TRUE(client->Put("key", std::string(bytes, 'v')).ok());
    HeldRegion* const held = cluster.worker()->regions()->Find(cluster.table().root);
    const std::optional<LeafPair> pair = held->tree->Find("key")->pair;
    ASSERT_TRUE(pair.has_value() && !pair->is_inline);
    held->memory->base()[pair->outside.extent.offset() + 3 + bytes / 2] ^= std::byte{1};
    for (const Path path : {Path::kServer, Path::kClient}) {
      const auto value = client->Get("key", {.path = path, .timeout_us = 5'000});
      EXPECT_FALSE(value.ok()) << bytes << " " << static_cast<int>(path);
    }
  }
}

// The same for an inline value. The CRC of the leaf covers it, which clients compare that read the leaf. The server
// compares the pair's check.
TEST(DamagedMemory, GivesNoWrongInlineValue) {
  SimCluster cluster({512, 128 << 10, 512 << 10}, {}, Options(1, Durability::kNone));
  auto client = cluster.NewClient(Quiet());
  ASSERT_TRUE(client->Put("key", "inline value").ok());
  HeldRegion* const held = cluster.worker()->regions()->Find(cluster.table().root);
  const std::optional<LeafPair> pair = held->tree->Find("key")->pair;
  ASSERT_TRUE(pair.has_value() && pair->is_inline);
  const auto* const value = reinterpret_cast<const std::byte*>(pair->value.data());
  held->memory->base()[value - held->memory->base()] ^= std::byte{1};
  for (const Path path : {Path::kServer, Path::kClient}) {
    const auto damaged = client->Get("key", {.path = path, .timeout_us = 5'000});
    EXPECT_EQ(damaged.status().code(), absl::StatusCode::kDataLoss) << damaged.status();
  }
  ASSERT_TRUE(client->Put("key", "another").ok());
  EXPECT_EQ(client->Get("key", {.path = Path::kServer})->value_or("absent"), "another");
}

}  // namespace
}  // namespace cell
