// Checks what the selector learns, and what it must not learn.
#include <gtest/gtest.h>

#include "cell/client/client_testing.h"
#include "tests/clusters.h"

namespace cell {
namespace {

TEST(Hybrid, ARuleThatIsNoneIsRefused) {
  ClientOptions options;
  options.selector = "thesys";
  EXPECT_EQ(ClientTesting::Open(options, nullptr, nullptr).status().code(), absl::StatusCode::kInvalidArgument);
}

// A search by the server takes one round, by reads several. Puts of the same client wait for a disk that takes as long
// as hundreds of rounds. The server's core does not cause that wait, and by reads it would be just as long.
TEST(Hybrid, ADiskThatWritesWaitForIsNotTheServersLatency) {
  for (const Durability durability : {Durability::kNone, Durability::kSync}) {
    SCOPED_TRACE(ToString(durability));
    TestClusterOptions options;
    options.servers = 1;
    options.logs.durability = durability;
    options.inline_max = {0};  // A get by reads takes more than one read, so a call is faster.
    SimCluster cluster({512, 256 << 10, 256 << 10}, {}, options);
    ClientOptions client_options;
    client_options.report = false;
    client_options.path = Path::kHybrid;
    if (durability == Durability::kSync) cluster.SlowDisk(0, 2'000'000);
    const auto client = cluster.NewClient(client_options);
    const auto key = [](int i) { return fmt::format("k{:05}", i % 500); };
    for (int i = 0; i < 2'000; ++i) {
      if (i == 1'000) client->ResetMetrics();
      ASSERT_TRUE(client->Put(key(i), "value").ok());
      for (int get = 0; get < 3; ++get) ASSERT_TRUE(client->Get(key(i + get)).ok());
    }
    const ClientMetrics& metrics = client->metrics();
    const uint64_t all = metrics.server_path + metrics.client_path;
    EXPECT_GT(metrics.server_path, all * 9 / 10) << "of " << all;
  }
}

}  // namespace
}  // namespace cell
