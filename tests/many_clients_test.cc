// Checks that 10,000 clients ask a cluster's coordinator for the region table no more often than ten clients do.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/clusters.h"

namespace cell {
namespace {

constexpr int64_t kLeaseNs = 100'000'000;
constexpr int kServers = 8;

class ManyClients {
 public:
  explicit ManyClients(int clients) : cluster_({512, 32 << 10, 64 << 10}, {}, Options()) {
    ClientOptions options;
    options.report = false;
    options.path = Path::kClient;
    options.cache_bytes = 0;
    CELL_CHECK(cluster_.NewClient(options)->Put("key", "value").ok());
    for (int i = 0; i < clients; ++i) {
      options.seed = static_cast<uint64_t>(i);
      clients_.push_back(cluster_.NewDrivenClient(options));
      clients_.back().Drive();
    }
  }

  // All clients read four times in each lease, one after the other.
  void Read(int leases) {
    std::vector<Task<absl::StatusOr<std::optional<std::string>>>> gets;
    const int64_t every_ns = kLeaseNs / 4 / static_cast<int64_t>(clients_.size());
    int64_t until_ns = cluster_.network()->now_ns();
    for (int i = 0; i < 4 * leases; ++i) {
      for (const SimCluster::DrivenClient& one : clients_) {
        gets.push_back(one.client->AsyncGet("key"));
        gets.back().Start();
        StepUntil(until_ns += every_ns);
      }
    }
    StepUntil(until_ns + kLeaseNs / 100);  // For the last ones.
    for (auto& get : gets) {
      ASSERT_TRUE(get.done());
      ASSERT_EQ(get.Take()->value_or("absent"), "value");
    }
  }
  // How often clients have read the region table, and how often they have asked a server instead.
  uint64_t readings() const { return Sum(&ClientMetrics::table_readings); }
  uint64_t parts() const { return Sum(&ClientMetrics::table_parts); }
  uint64_t questions() const { return Sum(&ClientMetrics::table_questions); }
  // How often anybody has asked the coordinator.
  uint64_t requests() { return cluster_.shared()->requests; }
  absl::Status ChangeTable() {
    return cluster_.ChangeTable([](RegionTable*) { return absl::OkStatus(); });
  }

 private:
  void StepUntil(int64_t until_ns) {
    cluster_.network()->At(until_ns, [] {});
    while (cluster_.network()->now_ns() < until_ns) cluster_.network()->Step();
  }
  static TestClusterOptions Options() {
    TestClusterOptions options;
    options.servers = kServers;
    options.logs.durability = Durability::kSync;
    options.table_lease_ns = kLeaseNs;
    options.session_ns = 4 * kLeaseNs;
    options.lease_wait_ns = kLeaseNs + kLeaseNs / 10;
    options.balance.enabled = false;
    return options;
  }
  uint64_t Sum(uint64_t ClientMetrics::*counter) const {
    uint64_t sum = 0;
    for (const SimCluster::DrivenClient& one : clients_) sum += one.client->metrics().*counter;
    return sum;
  }

  SimCluster cluster_;
  std::vector<SimCluster::DrivenClient> clients_;
};

TEST(ManyClients, KeepTheirLeasesWithoutTheCoordinator) {
  constexpr int kLeases = 3;
  uint64_t fewest = 0;
  for (const int count : {10, 10'000}) {
    ManyClients clients(count);
    clients.Read(1);  // The servers that are asked begin to read the table.
    const uint64_t readings = clients.readings(), questions = clients.questions(), requests = clients.requests();
    clients.Read(kLeases);
    EXPECT_EQ(clients.readings(), readings);
    EXPECT_GE(clients.questions() - questions, static_cast<uint64_t>(2 * kLeases * count));
    const uint64_t asked = clients.requests() - requests;
    if (fewest == 0) fewest = asked;
    EXPECT_LE(asked, 4u * 4 * kLeases + 2 * kServers)
        << "four workers, four times in each lease, and what servers need";
    EXPECT_LE(asked, fewest + 4);
    // Each client gets a change from a server: the root, and the one shard that there is.
    const uint64_t parts = clients.parts(), before = clients.requests();
    ASSERT_TRUE(clients.ChangeTable().ok());
    clients.Read(2);
    EXPECT_GE(clients.parts() - parts, static_cast<uint64_t>(count));
    EXPECT_LE(clients.parts() - parts, static_cast<uint64_t>(2 * count));
    EXPECT_LE(clients.readings() - readings, static_cast<uint64_t>(count) / 10)
        << "from servers that did not know of it";
    EXPECT_LE(clients.requests() - before, 4u * 4 * 2 + 2 * kServers + static_cast<uint64_t>(count) / 10);
    const uint64_t after = clients.parts();
    clients.Read(1);
    EXPECT_EQ(clients.parts(), after);
  }
}

}  // namespace
}  // namespace cell
