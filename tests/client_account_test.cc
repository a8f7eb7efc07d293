// Checks that a client's state does not grow with the number of changes that it has seen in a cluster.
#include <gtest/gtest.h>
#include <malloc.h>

#include <filesystem>

#include "cell/base/check.h"
#include "cell/client/client_testing.h"
#include "cell/io/fabric/open/open_fabric.h"
#include "tests/clusters.h"

namespace cell {
namespace {

ptrdiff_t Descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

size_t Bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

// The client is in the main thread. The server is in another thread, whose memory is not counted.
class ClientAccountTest : public ::testing::Test {
 protected:
  ClientAccountTest() {
    ClientOptions options;
    options.report = false;
    options.timeout_us = 2'000'000;
    options.reconnect_us = 0;
    client_ = Opened(ClientTesting::Open(options, *OpenFabric({.huge_pages = false}),
                                         std::make_unique<MemoryMembership>(cluster_.shared())));
    CELL_CHECK(client_->Put("key", "value").ok());
  }

  // Changes the coordinator's table and its servers.
  template <typename Change>
  void Have(const Change& change) {
    MemoryCluster* const cluster = cluster_.shared().get();
    const std::lock_guard lock(cluster->mutex);
    change(&cluster->state);
    ++cluster->state.table.version;
    ++cluster->changes;
  }

  // Returns the bytes by which the client has grown in `rounds` rounds, after as many warm-up rounds.
  template <typename Round>
  ptrdiff_t Growth(int rounds, const Round& round) {
    for (int i = 0; i < rounds; ++i) round(i);
    const size_t before = Bytes();
    const ptrdiff_t descriptors = Descriptors();
    for (int i = 0; i < rounds; ++i) round(rounds + i);
    EXPECT_LE(Descriptors(), descriptors + 1);
    return static_cast<ptrdiff_t>(Bytes() - before);
  }

  ShmCluster cluster_{{1024, 1 << 20, 1 << 20}};
  std::unique_ptr<Client> client_;
};

// Regions come and go, and the client has asked each of them for a key.
TEST_F(ClientAccountTest, OwnersOfRegionsThatAreGoneAreForgotten) {
  const ptrdiff_t growth = Growth(4'000, [this](int) {
    uint32_t region = 0;
    Have([&region](ClusterState* state) {
      state->table.regions.Erase(state->table.ids.next - 1 == state->table.root ? 0 : state->table.ids.next - 1);
      region = *state->table.Add({"server-0", 0});
    });
    (void)client_->Tables();  // Makes the client see the table.
    ClientTesting::RememberRoute(client_.get(), "k", "l", region);
    ASSERT_EQ(*client_->Get("key", {.path = Path::kServer}), "value");
  });
  EXPECT_LT(growth, 50'000);
}

// A server repeatedly goes away, and comes back elsewhere or not at all for a while.
TEST_F(ClientAccountTest, ConnectionsThatEndedOrFailedLeaveNothing) {
  const std::string there = cluster_.shared()->state.servers[0].workers[0].address;
  const ptrdiff_t growth = Growth(150, [&](int i) {
    Have([&](ClusterState* state) { state->servers[0].workers[0].address = fmt::format("{}-nobody-{}", there, i); });
    (void)client_->Tables();
    EXPECT_EQ(client_->Get("key", {.timeout_us = 50'000}).status().code(), absl::StatusCode::kUnavailable);
    Have([&](ClusterState* state) { state->servers[0].workers[0].address = there; });
    (void)client_->Tables();
    ASSERT_EQ(*client_->Get("key"), "value");
  });
  EXPECT_LT(growth, 20'000);
}

}  // namespace
}  // namespace cell
