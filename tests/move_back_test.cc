// A region migrates to another server and comes back into memory from which a client has read it before. That client
// knows of neither migration. It must not read what has been copied there so far while the other server still takes
// writes.
#include <gtest/gtest.h>

#include "tests/clusters.h"

namespace cell {
namespace {

class MoveBack : public ::testing::TestWithParam<std::optional<uint32_t>> {
 protected:
  static TestClusterOptions Two() {
    TestClusterOptions options;
    options.servers = 2;
    options.balance.enabled = false;
    return options;
  }

  SimCluster cluster_{{512, 32 << 10, 64 << 10}, {}, Two()};
  uint32_t region_ = 0;
};
// The tree; a table with slots; a table with buckets.
INSTANTIATE_TEST_SUITE_P(Stores, MoveBack, ::testing::Values(std::nullopt, 0u, 512u));

TEST_P(MoveBack, NothingStaleIsReadWhileItIsCopied) {
  if (GetParam().has_value()) {
    ASSERT_TRUE(cluster_.CreateTable("t", *GetParam(), 1).ok());
    region_ = cluster_.table().tables.at("t").RegionOf(0);
  } else {
    region_ = cluster_.table().root;
  }
  ClientOptions options;
  options.report = false;
  options.cache_bytes = 0;
  CallOptions reads;
  reads.path = Path::kClient;
  struct Opened {
    std::unique_ptr<Client> client;
    std::optional<Table> table;
  };
  const auto open = [&] {
    Opened opened{cluster_.NewClient(options), {}};
    if (GetParam().has_value()) opened.table = *opened.client->OpenTable("t");
    return opened;
  };
  const auto put = [](Opened* by, const std::string& key, const std::string& value) {
    return by->table.has_value() ? by->table->Put(key, value) : by->client->Put(key, value);
  };
  const auto get = [&reads](Opened* by, const std::string& key) {
    return by->table.has_value() ? by->table->Get(key, reads) : by->client->Get(key, reads);
  };
  Opened stale = open();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(put(&stale, fmt::format("{}", i), "old").ok());
  ASSERT_EQ(get(&stale, "7")->value(), "old");
  ASSERT_TRUE(cluster_.Migrate(region_, 0, 1).ok());
  Opened writer = open();  // Open it now, because the other server will answer nobody later.
  // On the way back the first pages are copied, and then the target stops for a while.
  bool copied = false;
  cluster_.worker(0)->sync_points()->on_reach = [&copied](std::string_view point) {
    copied |= point == "migration: target: first copy";
  };
  std::optional<absl::Status> moved;
  const auto back = [&]() -> Task<bool> {
    WorkerId target{"server-0", 0};
    moved = co_await cluster_.worker(1)->migrator()->Migrate(region_, std::move(target));
    co_return true;
  };
  cluster_.worker(1)->scheduler()->Spawn(back());
  while (!copied) cluster_.network()->Step();
  cluster_.Stop(0);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(put(&writer, fmt::format("{}", i), "new").ok());
  for (int i = 0; i < 100; ++i) {
    const auto value = get(&stale, fmt::format("{}", i));
    ASSERT_TRUE(value.ok()) << value.status();
    ASSERT_EQ(value->value_or("absent"), "new");
  }
  cluster_.Continue(0);
  while (!moved.has_value()) cluster_.network()->Step();
  for (int i = 0; i < 100; ++i) ASSERT_EQ(get(&stale, fmt::format("{}", i))->value_or("absent"), "new");
  stale.client.reset();
  writer.client.reset();
  const TestReport report = cluster_.Check();
  EXPECT_TRUE(report.ok()) << report.errors[0];
}

}  // namespace
}  // namespace cell
