// Checks that calls end in time, however short that is and whatever they wait for, and that Open waits as long as its
// timeout.
#include <gtest/gtest.h>

#include "cell/base/check.h"
#include "cell/client/client_testing.h"
#include "tests/clusters.h"

namespace cell {
namespace {

const RegionShape kShape{1024, 1 << 20, 8 << 20};
constexpr int64_t kSlackNs = 100'000;
constexpr int64_t kTimeoutsUs[] = {0, 100, 1'000, 10'000};

ClientOptions Options(int64_t timeout_us = 5'000'000) {
  ClientOptions options;
  options.report = false;
  options.reconnect_us = 20;
  options.timeout_us = timeout_us;
  return options;
}

class ClientDeadline : public ::testing::Test {
 protected:
  ClientDeadline() : client_(cluster_.NewDrivenClient(Options())) {
    CELL_CHECK(cluster_.CreateTable("t", 0, 1).ok());
    table_ = *client_.client->OpenTable("t");
    CELL_CHECK(client_.client->Put("key", "value").ok() && table_->Put("key", "value").ok());
  }
  // Checks that each operation fails in time.
  void ExpectAllInTime() {
    for (const int64_t timeout_us : kTimeoutsUs) {
      for (const Path path : {Path::kServer, Path::kClient, Path::kHybrid}) {
        const CallOptions call{.path = path, .timeout_us = timeout_us};
        const std::string large(200'000, 'v');
        int operation = 0;
        const auto expect = [&](const absl::Status& status) {
          EXPECT_FALSE(status.ok());
          EXPECT_LE(cluster_.network()->now_ns(), began_ns_ + timeout_us * 1'000 + kSlackNs)
              << "operation " << operation << ", " << ToString(path) << ", " << timeout_us << " us: " << status;
          began_ns_ = cluster_.network()->now_ns();
          ++operation;
        };
        began_ns_ = cluster_.network()->now_ns();
        expect(client_.client->Get("key", call).status());
        expect(client_.client->Contains("key", call).status());
        expect(client_.client->Put("key", "other", call).status());
        expect(client_.client->Put("key", large, call).status());
        expect(client_.client->Delete("key", call).status());
        expect(table_->Get("key", call).status());
        expect(table_->Put("key", "other", call).status());
        Scan scan = client_.client->NewScan({.call = call});
        expect(scan.Next().status());
      }
    }
  }

  SimCluster cluster_{kShape, {.break_after_ns = INT64_MAX / 4}};
  SimCluster::DrivenClient client_;
  std::optional<Table> table_;
  int64_t began_ns_ = 0;
};

TEST_F(ClientDeadline, EndsWhatWaitsForAnAnswer) {
  cluster_.network()->SetCut(client_.host, cluster_.host(0), true);
  ExpectAllInTime();
}

TEST_F(ClientDeadline, EndsWhatWaitsForAConnection) {
  cluster_.network()->SetCut(client_.host, cluster_.host(0), true);
  cluster_.network()->Break(client_.host, cluster_.host(0));
  ExpectAllInTime();
}

// A batch that was read ahead may fail when it is wanted, and is then requested again. Both must fit into one timeout.
TEST_F(ClientDeadline, EndsAScanWhoseNextBatchWasReadAhead) {
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(client_.client->Put(fmt::format("s{:03}", i), "value").ok());
  for (const Path path : {Path::kServer, Path::kClient}) {
    constexpr int64_t kTimeoutUs = 10'000;
    Scan scan = client_.client->NewScan({.from = "s", .batch = 10, .call = {.path = path, .timeout_us = kTimeoutUs}});
    for (int i = 0; i < 11; ++i) ASSERT_TRUE(*scan.Next());
    cluster_.network()->SetCut(client_.host, cluster_.host(0), true);  // The third batch is being read ahead.
    const int64_t began_ns = cluster_.network()->now_ns();
    absl::Status status;
    for (int i = 0; i < 20 && status.ok(); ++i) status = scan.Next().status();
    EXPECT_FALSE(status.ok());
    EXPECT_LE(cluster_.network()->now_ns(), began_ns + kTimeoutUs * 1'000 + kSlackNs)
        << ToString(path) << " " << status;
    cluster_.network()->SetCut(client_.host, cluster_.host(0), false);
    EXPECT_TRUE(scan.Next().ok());
  }
}

// Makes more uploads than a connection takes at the same time.
TEST_F(ClientDeadline, EndsWhatWaitsForOtherUploads) {
  cluster_.network()->SetCut(client_.host, cluster_.host(0), true);
  const std::string large(200'000, 'v');
  std::vector<Task<absl::StatusOr<bool>>> puts;
  for (int i = 0; i < kUploadsMax; ++i) {
    puts.push_back(client_.client->AsyncPut("key", large, {.path = Path::kServer}));
    puts.back().Start();
  }
  const int64_t began_ns = cluster_.network()->now_ns();
  EXPECT_FALSE(client_.client->Put("key", large, {.path = Path::kServer, .timeout_us = 10'000}).ok());
  EXPECT_LE(cluster_.network()->now_ns(), began_ns + 10'000'000 + kSlackNs);
  cluster_.network()->SetCut(client_.host, cluster_.host(0), false);
  for (auto& put : puts) {
    while (!put.done()) client_.client->Poll(INT64_MAX);
    EXPECT_TRUE(put.Take().ok());
  }
}

// Accepts connections, and answers no calls.
struct Deaf : Service {
  void Serve(absl::Span<const IncomingCall>) override {}
  void Disconnected(ConnectionId) override {}
};

// While the client connects to the old address of its server, the server comes back elsewhere. The connection succeeds
// in the end, to a process that is not the server any more.
TEST_F(ClientDeadline, AServerThatCameBackElsewhereIsSoughtThere) {
  SimHost* const host = cluster_.network()->NewHost();
  const auto former = cluster_.network()->NewEndpoint(host);
  Deaf deaf;
  ASSERT_TRUE(former->Listen("former", &deaf).ok());
  const auto move = [this](const std::string& address) {
    MemoryCluster* const shared = cluster_.shared().get();
    const std::lock_guard lock(shared->mutex);
    shared->state.servers[0].workers[0].address = address;
    ++shared->state.table.version;
    ++shared->changes;
  };
  const std::string address = cluster_.shared()->state.servers[0].workers[0].address;
  move("former");
  ClientOptions options = Options(20'000);
  options.connect = false;
  const SimCluster::DrivenClient late = cluster_.NewDrivenClient(options);
  cluster_.network()->SetCut(late.host, host, true);
  auto first = late.client->AsyncGet("key", {.path = Path::kServer});
  first.Start();
  late.client->Poll(0);
  move(address);
  EXPECT_EQ(late.client->Tables().size(), 1u);  // Makes the client see the table.
  auto second = late.client->AsyncGet("key", {.path = Path::kServer});
  second.Start();
  late.client->Poll(0);
  cluster_.network()->SetCut(late.host, host, false);
  for (auto* const get : {&first, &second}) {
    while (!get->done()) late.client->Poll(INT64_MAX);
    const auto value = get->Take();
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(**value, "value");
  }
  for (int i = 0; i < 100; ++i) cluster_.network()->Step();
  former->Poll();
  EXPECT_EQ(former->peers(), 0u);
}

TEST_F(ClientDeadline, NoneIsNone) {
  for (const Path path : {Path::kServer, Path::kClient, Path::kHybrid}) {
    const CallOptions call{.path = path, .timeout_us = INT64_MAX};
    EXPECT_TRUE(client_.client->Put("key", "value", call).ok());
    EXPECT_EQ(client_.client->Get("key", call)->value(), "value");
    EXPECT_EQ(table_->Get("key", call)->value(), "value");
    EXPECT_TRUE(*client_.client->NewScan({.call = call}).Next());
  }
  auto client = cluster_.NewClient(Options(INT64_MAX));
  EXPECT_EQ(client->Get("key")->value(), "value");
  EXPECT_TRUE(client->OpenTable("t").ok());
  // While the server is stopped.
  cluster_.Stop(0);
  auto get = client->AsyncGet("key", {.path = Path::kServer});
  get.Start();
  cluster_.network()->At(cluster_.network()->now_ns() + 20'000'000, [this] { cluster_.Continue(0); });
  while (!get.done()) client->Poll(INT64_MAX);
  EXPECT_EQ(get.Take()->value(), "value");
}

// The server does not answer the handshake for longer than one attempt to connect lasts, but answers in time.
TEST(OpenTimeout, IsHowLongOpenWaitsForASlowServer) {
  SimCluster cluster(kShape, {.break_after_ns = INT64_MAX / 4});
  for (const int64_t timeout_us : {50'000, 1'500'000}) {
    SimHost* const host = cluster.network()->NewHost();
    cluster.network()->SetCut(host, cluster.host(0), true);
    const int64_t began_ns = cluster.network()->now_ns();
    cluster.network()->At(began_ns + 1'100'000'000,
                          [&cluster, host] { cluster.network()->SetCut(host, cluster.host(0), false); });
    const auto client = ClientTesting::Open(Options(timeout_us), cluster.network()->NewEndpoint(host),
                                            std::make_unique<MemoryMembership>(cluster.shared()));
    const int64_t took_ns = cluster.network()->now_ns() - began_ns;
    EXPECT_EQ(client.ok(), timeout_us > 1'100'000) << client.status();
    EXPECT_LE(took_ns, client.ok() ? 1'200'000'000 : timeout_us * 1'000 + kSlackNs);
    while (cluster.network()->now_ns() < began_ns + 1'100'000'000) ASSERT_TRUE(cluster.network()->Step());
  }
}

// The only server restarts and reads its log.
TEST(OpenTimeout, IsHowLongOpenWaitsForARecovery) {
  TestClusterOptions options;
  options.logs.durability = Durability::kSync;
  SimCluster cluster(kShape, {}, options);
  ASSERT_TRUE(cluster.NewClient(Options())->Put("key", "value").ok());
  cluster.Kill(0);
  cluster.Restart(0);
  bool recovering = false;
  while (!recovering) {
    ASSERT_TRUE(cluster.network()->Step());
    recovering = cluster.table().Find(cluster.table().root)->recovering;
  }
  const auto client = ClientTesting::Open(Options(), cluster.network()->NewEndpoint(),
                                          std::make_unique<MemoryMembership>(cluster.shared()));
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ((*client)->Get("key")->value(), "value");
}

}  // namespace
}  // namespace cell
