// MultiGet over several servers answers as Get does, one key after the other.
#include <gtest/gtest.h>

#include "cell/base/random.h"
#include "tests/clusters.h"

namespace cell {
namespace {

TEST(MultiGet, AnswersLikeGetsOverAllServers) {
  TestClusterOptions options;
  options.servers = 3;
  options.steward.balance_every_ns = 50'000;
  SimCluster cluster({512, 32 << 10, 64 << 10}, {}, options);
  ClientOptions of_client;
  of_client.report = false;
  auto client = cluster.NewClient(of_client);
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(client->Put(fmt::format("key{:05}", i * 7919 % 4000), fmt::format("value {}", i)).ok());
  }
  EXPECT_GT(cluster.table().CountOf({"server-1", 0}) + cluster.table().CountOf({"server-2", 0}), 2u);
  Random random(1);
  for (const Path path : {Path::kServer, Path::kClient, Path::kHybrid}) {
    CallOptions call;
    call.path = path;
    std::vector<std::string> keys;
    for (int i = 0; i < 700; ++i) keys.push_back(fmt::format("key{:05}", random.Below(4000)));
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    const auto values = client->MultiGet(views, call);
    ASSERT_TRUE(values.ok()) << values.status();
    ASSERT_EQ(values->size(), keys.size());
    for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ((*values)[i], *client->Get(keys[i])) << keys[i];
  }
  EXPECT_TRUE(client->MultiGet({})->empty());
  const std::vector<std::string_view> bad = {"key00001", "", "key00002"};
  EXPECT_EQ(client->MultiGet(bad).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cell
