// A region that is recovered from its log cannot be read before it is complete, not even by clients with an older
// region table that connect again to its restarted server during the replay.
#include <gtest/gtest.h>

#include "tests/clusters.h"

namespace cell {
namespace {

constexpr int kKeys = 150;
std::string Key(int i) { return fmt::format("k{:03}", i); }

Task<bool> Reader(Client* client, int first, const bool* stop, int* missing, int* found) {
  CallOptions by_reads;
  by_reads.path = Path::kClient;
  for (int i = first; !*stop; i = (i + 7) % kKeys) {
    const std::string key = Key(i);
    const absl::StatusOr<std::optional<std::string>> value = co_await client->AsyncGet(key, by_reads);
    if (value.ok()) ++(value->has_value() ? *found : *missing);
  }
  co_return true;
}

TEST(RecoveredRegion, IsReadWholeOrNotAtAll) {
  int missing = 0, found = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    TestClusterOptions options;
    options.servers = 2;
    options.logs.durability = Durability::kSync;
    options.table_lease_ns = 2'000'000;
    options.lease_wait_ns = 2'200'000;
    options.takeover_after_ns = 100'000'000;  // It comes back before that.
    SimOptions sim;
    sim.seed = seed;
    sim.latency_ns = 200;
    SimCluster cluster({512, 64 << 10, 64 << 10}, sim, options);
    ClientOptions client_options;
    client_options.report = false;
    client_options.reconnect_us = 1;
    client_options.timeout_us = 2'000;
    const size_t owner =
        static_cast<size_t>(std::stoi(cluster.table().Find(cluster.table().root)->owner.server.substr(7)));
    std::vector<SimCluster::DrivenClient> clients;
    clients.reserve(4);
    for (int i = 0; i < 4; ++i) clients.push_back(cluster.NewDrivenClient(client_options));
    for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(clients[0].client->Put(Key(i), std::string(80, 'v')).ok());
    bool stop = false;
    std::vector<Task<bool>> tasks;
    for (int i = 0; i < 4; ++i) {
      tasks.push_back(Reader(clients[static_cast<size_t>(i)].client.get(), i, &stop, &missing, &found));
      tasks.back().Start();
      clients[static_cast<size_t>(i)].Drive();
    }
    const auto run = [&](int64_t ns) {
      const int64_t until_ns = cluster.network()->now_ns() + ns;
      while (cluster.network()->now_ns() < until_ns) cluster.network()->Step();
    };
    run(50'000);
    cluster.Kill(owner);
    run(static_cast<int64_t>(seed) * 500);
    cluster.Restart(owner);
    run(6'000'000);
    stop = true;
    run(20'000'000);
    for (Task<bool>& task : tasks) ASSERT_TRUE(task.done());
    for (SimCluster::DrivenClient& client : clients) client.fabric->Drive(nullptr);
    ASSERT_EQ(cluster.worker(owner)->recoverer()->counters().recovered, 1u);
  }
  EXPECT_EQ(missing, 0);
  EXPECT_GT(found, 1'000);
}

}  // namespace
}  // namespace cell
