#include "cell/io/sim/sim_fabric.h"

#include <gtest/gtest.h>

#include "cell/base/check.h"
#include "cell/io/fabric/event_loop_conformance.h"
#include "cell/io/fabric/fabric_conformance.h"

namespace cell {
namespace {

class SimHarness : public FabricHarness {
 public:
  std::unique_ptr<Fabric> NewEndpoint() override {
    auto endpoint = network_.NewEndpoint();
    hosts_.push_back(endpoint->host());
    return endpoint;
  }
  std::string Address(int n) override { return fmt::format("sim:{}", n); }
  bool Real() override { return false; }
  void Run(Fabric* server) override {
    SetCut(server, false);
    static_cast<SimFabric*>(server)->SetPaused(false);
  }
  void Stop(Fabric* server) override { static_cast<SimFabric*>(server)->SetPaused(true); }

  // One-sided reads need no process, so they must get no answer either.
  bool Silence(Fabric* server) override {
    Stop(server);
    SetCut(server, true);
    return true;
  }

 private:
  void SetCut(Fabric* server, bool cut) {
    SimHost* const host = static_cast<SimFabric*>(server)->host();
    for (SimHost* other : hosts_) {
      if (other != host) network_.SetCut(other, host, cut), network_.SetCut(host, other, cut);
    }
  }

  SimNetwork network_{{.break_after_ns = 1'000'000'000}};
  std::vector<SimHost*> hosts_;
};

INSTANTIATE_TEST_SUITE_P(Sim, FabricConformance,
                         ::testing::Values(MakeHarness([] { return std::make_unique<SimHarness>(); })));

// Depending on the seed, a read during a write sees some lines from before and some from after.
TEST(SimFabric, SameSeedSameRaces) {
  const auto run = [](uint64_t seed) {
    SimNetwork network({.seed = seed});
    auto server = network.NewEndpoint();
    auto client = network.NewEndpoint();
    RegionMemory* memory = *server->CreateRegion(1, 1 << 16);
    EchoService service(server.get());
    CELL_CHECK(server->Listen("a", &service).ok());
    const ConnectionId connection = *ConnectTo(client.get(), "a");
    std::string seen;
    std::vector<std::byte> ones(1024, std::byte{1});
    for (int i = 0; i < 50; ++i) {
      std::vector<std::byte> to(1024), zeros(1024);
      memory->Store(0, zeros.data(), 1024);
      Waiter waiter;
      const ReadPart part{Pointer(1, 0), to.data(), 1024};
      client->Read(connection, {&part, 1}, INT64_MAX, &waiter);
      while (!waiter.done() && network.now_ns() < 1'000'000'000) {
        memory->Store(0, ones.data(), 1024);
        if (client->Poll() == 0) network.Step();
      }
      for (size_t line = 0; line < 16; ++line) seen.push_back(to[line * 64] == std::byte{1} ? '1' : '0');
    }
    return seen;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
  EXPECT_NE(run(1).find("01"), std::string::npos);
  EXPECT_NE(run(1).find("10"), std::string::npos);
}

// Whatever part of the read was copied by its deadline, no line is copied afterwards.
TEST(SimFabric, NothingIsCopiedOfAReadThatIsPastItsDeadline) {
  uint64_t begun = 0, late = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SimNetwork network({.seed = seed});
    auto server = network.NewEndpoint();
    auto client = network.NewEndpoint();
    RegionMemory* memory = *server->CreateRegion(1, 1 << 16);
    EchoService service(server.get());
    CELL_CHECK(server->Listen("a", &service).ok());
    const ConnectionId connection = *ConnectTo(client.get(), "a");
    const std::vector<std::byte> ones(1024, std::byte{1});
    memory->Store(0, ones.data(), 1024);
    std::vector<std::byte> to(1024);
    Waiter waiter;
    const ReadPart part{Pointer(1, 0), to.data(), 1024};
    client->Read(connection, {&part, 1}, client->NowNs() + 1'200, &waiter);
    while (!waiter.done()) {
      if (client->Poll() == 0) network.Step();
    }
    if (waiter.status().ok()) continue;
    EXPECT_EQ(waiter.status().code(), absl::StatusCode::kDeadlineExceeded);
    ++late;
    const auto copied = std::count(to.begin(), to.end(), std::byte{1});
    begun += copied > 0;
    while (network.Step()) {
    }
    EXPECT_EQ(std::count(to.begin(), to.end(), std::byte{1}), copied) << seed;
  }
  EXPECT_GT(begun, 3u);
  EXPECT_GT(late, begun);
}

}  // namespace
}  // namespace cell
