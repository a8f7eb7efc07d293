// Tests Pilaf tables as a client sees them, in virtual time: compared with a model, through growth and drops, and what
// is refused.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>
#include <unordered_map>

#include "cell/base/random.h"
#include "pilaf/key_hash.h"
#include "tests/clusters.h"

namespace cell {
namespace {

// Regions of 896 slots, or 14 buckets of 2 KB, and room for some hundred pairs in addition.
constexpr RegionShape kShape{512, 32 << 10, 64 << 10};

TestClusterOptions Servers(int servers) {
  TestClusterOptions options;
  options.servers = servers;
  options.balance.every_ns = 20'000;
  return options;
}

CallOptions By(Path path) {
  CallOptions options;
  options.path = path;
  return options;
}

class TableTest : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Layouts, TableTest, ::testing::Values(0, 512, 2048));  // Bucket sizes; 0: slots.

TEST_P(TableTest, IsAsAModelThroughGrowth) {
  SimCluster cluster(kShape, {}, Servers(3));
  ASSERT_TRUE(cluster.CreateTable("t", GetParam(), 0).ok());
  const std::unique_ptr<Client> client = cluster.NewClient({});
  absl::StatusOr<Table> table = client->OpenTable("t");
  ASSERT_TRUE(table.ok()) << table.status();
  std::unordered_map<std::string, std::string> model;
  Random random(1);
  const Path paths[] = {Path::kServer, Path::kClient, Path::kHybrid};
  for (int i = 0; i < 12'000; ++i) {
    const std::string key = fmt::format("{}", random.Below(3'000)) + std::string(random.Below(4) * 20, 'k');
    const CallOptions by = By(paths[random.Below(3)]);
    const auto it = model.find(key);
    switch (random.Below(5)) {
      case 0:
      case 1: {
        const std::string value(random.Below(200), static_cast<char>('a' + random.Below(26)));
        const absl::StatusOr<bool> existed = table->Put(key, value, by);
        ASSERT_TRUE(existed.ok()) << existed.status();
        ASSERT_EQ(*existed, it != model.end());
        model[key] = value;
        break;
      }
      case 2: {
        const absl::StatusOr<bool> existed = table->Delete(key, by);
        ASSERT_TRUE(existed.ok()) << existed.status();
        ASSERT_EQ(*existed, model.erase(key) == 1);
        break;
      }
      case 3:
        ASSERT_EQ(*table->Contains(key, by), it != model.end()) << key;
        break;
      default: {
        const auto value = table->Get(key, by);
        ASSERT_TRUE(value.ok()) << value.status();
        ASSERT_EQ(value->has_value(), it != model.end()) << key;
        if (value->has_value()) {
          ASSERT_EQ(**value, it->second);
        }
      }
    }
  }
  uint64_t splits = 0;
  for (size_t i = 0; i < 3; ++i) splits += cluster.worker(i)->splitter()->parts().splits;
  EXPECT_GT(splits, 4u);
  const auto check = client->Check();
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_TRUE(check->errors.empty()) << check->errors[0];
  EXPECT_EQ(check->table_keys, model.size());
  EXPECT_EQ(cluster.Check().hash_keys, model.size());
}

TEST_P(TableTest, AnySizeOfKeyAndValue) {
  SimCluster cluster({1024, 256 << 10, 8 << 20}, {}, Servers(1));
  ASSERT_TRUE(cluster.CreateTable("t", GetParam(), 0).ok());
  const std::unique_ptr<Client> client = cluster.NewClient({});
  absl::StatusOr<Table> table = client->OpenTable("t");
  std::map<std::string, std::string> model;
  for (const size_t key_bytes : {1, 8, 61, 300, 4096}) {
    for (const size_t value_bytes : {0, 1, 63, 500, 4096, 4097, 70'000, 1 << 20}) {
      std::string key(key_bytes, static_cast<char>(value_bytes % 251));
      key[key_bytes / 2] = '\0';
      key.back() = static_cast<char>(value_bytes / 37 + key_bytes);
      model[key] = std::string(value_bytes, static_cast<char>('a' + model.size() % 26));
      const absl::StatusOr<bool> put = table->Put(key, model[key]);
      ASSERT_TRUE(put.ok()) << put.status();
    }
  }
  for (const auto& [key, value] : model) {
    for (const Path path : {Path::kServer, Path::kClient}) {
      const auto got = table->Get(key, By(path));
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_EQ(got->value_or("absent"), value);
    }
  }
  const auto code = [](const auto& result) { return result.status().code(); };
  EXPECT_EQ(code(table->Get("")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(table->Get(std::string(4097, 'k'))), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(table->Put("k", std::string((1 << 20) + 1, 'v'))), absl::StatusCode::kInvalidArgument);
}

TEST(Tables, WhatIsRefused) {
  SimCluster cluster(kShape, {}, Servers(2));
  const auto code = [&cluster](const std::string& name, uint32_t bucket_bytes, uint32_t parts) {
    return cluster.CreateTable(name, bucket_bytes, parts).code();
  };
  EXPECT_EQ(code("t", 0, 1), absl::StatusCode::kOk);
  EXPECT_EQ(code("t", 0, 1), absl::StatusCode::kAlreadyExists);
  for (const char* name : {"", "a b", "a/b", "\x01", "caf\xc3\xa9", "a\"b"}) {
    EXPECT_EQ(code(name, 0, 1), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(code(std::string(65, 'n'), 0, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::string(64, 'n'), 0, 1), absl::StatusCode::kOk);
  EXPECT_EQ(code("u", 1000, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("u", 8192, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("u", 0, 5000), absl::StatusCode::kInvalidArgument);
  const std::unique_ptr<Client> client = cluster.NewClient({});
  EXPECT_EQ(client->OpenTable("nope").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(client->OpenTable("a\nb").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(client->Tables().size(), 2u);
}

// No worker needs more parts than its share, so a table fits if the cluster has room.
TEST_P(TableTest, PartsFitIfTheClusterHasRoom) {
  TestClusterOptions options = Servers(3);
  options.regions_max = 8;
  options.balance.every_ns = 1'000'000'000'000;
  SimCluster cluster(kShape, {}, options);
  ASSERT_TRUE(cluster.CreateTable("t", GetParam(), 20).ok());
  const std::unique_ptr<Client> client = cluster.NewClient({});
  const Client::TableInfo made = client->Tables().at(0);
  ASSERT_EQ(made.parts.size(), 20u);
  uint64_t before = 0;
  for (const Client::TableInfo::Part& part : made.parts) {
    if (part.first > 0) {
      EXPECT_NEAR(static_cast<double>(part.first - before), 0x1p32 / 20, 20);
    }
    before = part.first;
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_GE(cluster.worker(i)->regions()->size(), 6u);
  // 21 of the workers' 24 slots for regions are taken.
  const absl::Status refused = cluster.CreateTable("u", GetParam(), 4);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_NE(refused.message().find("cannot create a table of 4 parts"), std::string_view::npos) << refused;
  EXPECT_EQ(client->Tables().size(), 1u);
  EXPECT_EQ(cluster.table().regions.size(), 21u);
  EXPECT_TRUE(cluster.CreateTable("v", GetParam(), 0, 1).ok());  // One per worker, or fewer.
  absl::StatusOr<Table> table = client->OpenTable("t");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(table->Put(fmt::format("{}", i), "v").ok());
  EXPECT_EQ(cluster.Check().hash_keys, 100u);
}

// The region table knows the room of a worker that takes nothing.
TEST_P(TableTest, FewerPartsThanWereAskedForAreSaid) {
  TestClusterOptions options = Servers(3);
  options.regions_max = 8;
  options.balance.every_ns = 1'000'000'000'000;
  SimCluster cluster(kShape, {}, options);
  cluster.Kill(2);
  const absl::Status status = cluster.CreateTable("t", GetParam(), 20);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("15 of 20 parts"), std::string_view::npos) << status;
  const std::unique_ptr<Client> client = cluster.NewClient({});
  ASSERT_EQ(client->Tables().at(0).parts.size(), 15u);
  absl::StatusOr<Table> table = client->OpenTable("t");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(table->Put(fmt::format("{}", i), "v").ok());
}

// Puts for which there is no room are refused, and everything else is unchanged. With more memory it continues.
TEST_P(TableTest, WithoutMemoryToGrowItServesWhatItHas) {
  TestClusterOptions options = Servers(1);
  options.regions_max = 2;  // The tree's, and one more.
  SimCluster cluster(kShape, {}, options);
  ASSERT_TRUE(cluster.CreateTable("t", GetParam(), 1).ok());
  ClientOptions patient;
  patient.timeout_us = 2'000'000;
  const std::unique_ptr<Client> client = cluster.NewClient(patient);
  absl::StatusOr<Table> table = client->OpenTable("t");
  std::vector<std::string> stored;
  absl::Status refused;
  for (int i = 0; refused.ok() && i < 5'000; ++i) {
    const std::string key = fmt::format("key {}", i);
    refused = table->Put(key, std::string(100, 'v')).status();
    if (refused.ok()) stored.push_back(key);
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_GT(stored.size(), 100u);
  for (const std::string& key : stored) {
    for (const Path path : {Path::kServer, Path::kClient}) {
      ASSERT_EQ((*table->Get(key, By(path))).value_or("absent"), std::string(100, 'v')) << key;
    }
  }
  for (size_t i = 0; i < stored.size() / 2; ++i) EXPECT_TRUE(*table->Delete(stored[i]));
  EXPECT_TRUE(*table->Put(stored.back(), "w"));
  EXPECT_FALSE(*table->Put("one more", "v"));
  const TestReport report = cluster.Check();
  EXPECT_TRUE(report.ok()) << report.errors[0];
  EXPECT_EQ(report.hash_keys, stored.size() - stored.size() / 2 + 1);
}

// The server tries again and again to split what is full, and still removes what is dropped.
TEST_P(TableTest, DroppedWhileItIsFull) {
  TestClusterOptions options = Servers(1);
  options.regions_max = 2;
  SimCluster cluster(kShape, {}, options);
  ASSERT_TRUE(cluster.CreateTable("t", GetParam(), 1).ok());
  ASSERT_TRUE(cluster.SetEviction("t", Eviction::kLru).ok());
  const std::unique_ptr<Client> client = cluster.NewClient({});
  absl::StatusOr<Table> table = client->OpenTable("t");
  for (int i = 0; i < 2'000; ++i) ASSERT_TRUE(table->Put(fmt::format("key {}", i), std::string(100, 'v')).ok());
  EXPECT_TRUE(cluster.DropTable("t").ok());
  EXPECT_EQ(cluster.worker()->regions()->size(), 1u);
}

TEST_P(TableTest, DroppedAndMadeAgainItIsEmpty) {
  SimCluster cluster(kShape, {}, Servers(2));
  const std::unique_ptr<Client> client = cluster.NewClient({});
  const auto drop = [&cluster](const std::string& name) {
    std::optional<absl::Status> status;
    const auto run = [&]() -> Task<bool> {
      status = co_await cluster.worker(1)->tables()->Drop(name);
      co_return true;
    };
    cluster.worker(1)->scheduler()->Spawn(run());
    while (!status.has_value()) cluster.network()->Step();
    return *status;
  };
  EXPECT_EQ(drop("t").code(), absl::StatusCode::kNotFound);
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(cluster.CreateTable("t", GetParam(), 4).ok());
    absl::StatusOr<Table> table = client->OpenTable("t");
    ASSERT_TRUE(table.ok());
    for (int i = 0; i < 200; ++i) {
      const std::string key = fmt::format("{}", i);
      ASSERT_FALSE((*table->Get(key, By(Path::kClient))).has_value());
      ASSERT_FALSE(*table->Put(key, fmt::format("{}", round)));
      ASSERT_EQ((*table->Get(key, By(Path::kClient))).value_or("absent"), fmt::format("{}", round));
    }
    ASSERT_TRUE(drop("t").ok());
    for (const Path path : {Path::kServer, Path::kClient}) {
      EXPECT_EQ(table->Get("1", By(path)).status().code(), absl::StatusCode::kNotFound);
    }
    EXPECT_EQ(table->Put("1", "v").status().code(), absl::StatusCode::kNotFound);
    // Its regions are returned, and the tree's is left.
    const auto held = [&] { return cluster.worker(0)->regions()->size() + cluster.worker(1)->regions()->size(); };
    for (int i = 0; i < 1'000'000 && held() > 1; ++i) cluster.network()->Step();
    EXPECT_EQ(held(), 1u);
    EXPECT_EQ(cluster.table().regions.size(), 1u);
  }
}

// Parts with few keys, in memory that was never used, migrate into memory that was full of other keys.
TEST_P(TableTest, InMemoryThatWasUsedBefore) {
  SimCluster cluster({512, 512 << 10, 512 << 10}, {}, Servers(3));
  cluster.shared()->state.table.draining.insert("server-2");
  const std::unique_ptr<Client> client = cluster.NewClient({});
  ASSERT_TRUE(cluster.CreateTable("junk", GetParam(), 4).ok());
  absl::StatusOr<Table> junk = client->OpenTable("junk");
  for (int i = 0; i < 5'000; ++i) ASSERT_TRUE(junk->Put(fmt::format("{}", i), "v").ok());
  std::optional<absl::Status> dropped;
  const auto drop = [&]() -> Task<bool> {
    dropped = co_await cluster.worker(0)->tables()->Drop("junk");
    co_return true;
  };
  cluster.worker(0)->scheduler()->Spawn(drop());
  while (!dropped.has_value()) cluster.network()->Step();
  cluster.shared()->state.table.draining.clear();
  ++cluster.shared()->state.table.version;
  ASSERT_TRUE(cluster.CreateTable("t", GetParam(), 6, 2).ok());
  EXPECT_GT(cluster.worker(1)->migrator()->counters().received, 1u);
  absl::StatusOr<Table> table = client->OpenTable("t");
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(table->Put(fmt::format("{}", i), "w").ok());
  for (int i = 0; i < 500; ++i) {
    for (const Path path : {Path::kServer, Path::kClient}) {
      const auto value = table->Get(fmt::format("{}", i), By(path));
      ASSERT_TRUE(value.ok()) << value.status();
      ASSERT_EQ(value->value_or("absent"), i < 50 ? "w" : "absent");
    }
  }
  const TestReport report = cluster.Check();
  EXPECT_TRUE(report.ok()) << report.errors[0];
}

// A new server gets its share, and nothing is lost or hidden meanwhile.
TEST_P(TableTest, ANewServerGetsItsShare) {
  SimCluster cluster(kShape, {}, Servers(3));
  cluster.shared()->state.table.draining.insert("server-2");  // As if it were not there yet.
  ASSERT_TRUE(cluster.CreateTable("t", GetParam(), 8).ok());
  const std::unique_ptr<Client> client = cluster.NewClient({});
  absl::StatusOr<Table> table = client->OpenTable("t");
  for (int i = 0; i < 800; ++i) ASSERT_TRUE(table->Put(fmt::format("{}", i), std::string(60, 'v')).ok());
  EXPECT_EQ(cluster.worker(2)->regions()->size(), 0u);
  const size_t parts = client->Tables()[0].parts.size();
  cluster.shared()->state.table.draining.clear();
  ++cluster.shared()->state.table.version;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 800; i += 7) {
      const auto value = table->Get(fmt::format("{}", i), By(round % 2 == 0 ? Path::kClient : Path::kServer));
      ASSERT_TRUE(value.ok()) << value.status();
      ASSERT_TRUE(value->has_value()) << i;
    }
  }
  for (int i = 0; i < 1'000'000 && cluster.worker(2)->regions()->size() < parts / 3; ++i) cluster.network()->Step();
  EXPECT_GE(cluster.worker(2)->regions()->size(), parts / 3);
  EXPECT_EQ(cluster.Check().hash_keys, 800u);
}

// Uses threads and shared memory, mainly for ThreadSanitizer: one client writes while another reads, and parts split
// and migrate.
TEST_P(TableTest, OverSharedMemory) {
  constexpr int kKeys = 2'000;
  ShmCluster cluster(kShape, Servers(3));
  ASSERT_TRUE(cluster.CreateTable("t", GetParam(), 0).ok());
  auto writer = cluster.NewClient({});
  absl::StatusOr<Table> to = writer->OpenTable("t");
  ASSERT_TRUE(to.ok()) << to.status();
  for (int i = 0; i < kKeys; i += 2) ASSERT_TRUE(to->Put(fmt::format("{}", i), fmt::format("{} 0", i)).ok());
  std::atomic<bool> stop = false;
  std::thread thread([&] {
    for (int i = 0; !stop; ++i) {
      const int key = i % kKeys;
      const absl::StatusOr<bool> done = key % 2 == 0 || i / kKeys % 2 == 0
                                            ? to->Put(fmt::format("{}", key), fmt::format("{} {}", key, i))
                                            : to->Delete(fmt::format("{}", key));
      EXPECT_TRUE(done.ok()) << done.status();
    }
  });
  auto reader = cluster.NewClient({});
  absl::StatusOr<Table> from = reader->OpenTable("t");
  for (int i = 0; i < 20'000; ++i) {
    const int key = i * 7 % kKeys;
    const auto value = from->Get(fmt::format("{}", key), By(i % 4 == 0 ? Path::kServer : Path::kClient));
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(value->has_value() || key % 2 == 1) << key;
    if (value->has_value()) {
      EXPECT_EQ((*value)->substr(0, (*value)->find(' ')), fmt::format("{}", key));
    }
  }
  stop = true;
  thread.join();
  writer.reset();
  reader.reset();
  const TestReport report = cluster.Check();
  EXPECT_TRUE(report.ok()) << report.errors[0];
}

// Opening a table waits for a region table that was requested after it began. One that was already on its way may be
// too old to name the table.
TEST(Tables, AreFoundAsSoonAsTheyAreMade) {
  TestClusterOptions options;
  options.logs.durability = Durability::kSync;
  options.table_lease_ns = 2'000'000;
  SimCluster cluster(kShape, {}, options);
  const SimCluster::DrivenClient client = cluster.NewDrivenClient({});
  ASSERT_TRUE(client.client->Put("key", "value").ok());
  // A get asks for the region table once its lease has lapsed.
  const int64_t lapsed_ns = cluster.network()->now_ns() + options.table_lease_ns;
  while (cluster.network()->now_ns() <= lapsed_ns) cluster.network()->Step();
  auto get = client.client->AsyncGet("key", By(Path::kClient));
  get.Start();
  const uint64_t questions = client.client->metrics().table_questions;
  while (client.client->metrics().table_questions == questions) client.client->Poll(client.client->NowNs() + 1'000);
  ASSERT_TRUE(cluster.CreateTable("t", 0, 1).ok());
  EXPECT_TRUE(client.client->OpenTable("t").ok());
  while (!get.done()) client.client->Poll(INT64_MAX);
  EXPECT_EQ(get.Take()->value_or("absent"), "value");
}

}  // namespace
}  // namespace cell
