#include "cell/io/fabric/tcp/tcp_fabric.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "cell/base/random.h"
#include "cell/io/fabric/event_loop_conformance.h"
#include "cell/io/fabric/fabric_conformance.h"
#include "cell/io/net/byte_queue.h"
#include "cell/io/net/tcp_socket.h"
#include "cell/io/net/test_certificates.h"
#include "cell/io/net/test_credentials.h"

namespace cell {
namespace {

constexpr const char* kSecret = "a secret for this test";

// Returns an address on a loopback network that only this test process uses.
std::string HostPort(int n) {
  static std::atomic<int> counter = 0;
  const int pid = ::getpid();
  return fmt::format("127.{}.{}.{}:{}", 1 + pid / 250 % 250, 1 + pid % 250, 1 + n, 20'000 + counter++);
}

class TcpHarness : public ThreadsHarness {
 public:
  explicit TcpHarness(TcpFabricOptions options) : options_(std::move(options)) {}
  std::unique_ptr<Fabric> NewEndpoint() override { return std::make_unique<TcpFabric>(options_); }
  bool ClientsAreClients() override { return clients_are_clients; }
  std::string Address(int n) override {
    if (!addresses_.contains(n)) addresses_[n] = HostPort(n);
    return addresses_[n];
  }

  // Its listener's thread still answers reads. AReadPastItsDeadlineEnds tests a server that does not.
  bool Silence(Fabric* server) override {
    Stop(server);
    return false;
  }

  bool clients_are_clients = true;

 private:
  const TcpFabricOptions options_;
  std::map<int, std::string> addresses_;
};

INSTANTIATE_TEST_SUITE_P(TcpAdaptive, FabricConformance, ::testing::Values(MakeHarness([] {
                           return std::make_unique<TcpHarness>(TcpFabricOptions{.huge_pages = false});
                         })));
INSTANTIATE_TEST_SUITE_P(TcpBusy, FabricConformance, ::testing::Values(MakeHarness([] {
                           return std::make_unique<TcpHarness>(TcpFabricOptions{
                               .polling = Polling::kBusy, .huge_pages = false, .credentials = CredentialsOf(kSecret)});
                         })));

INSTANTIATE_TEST_SUITE_P(
    TcpCertificates, FabricConformance, ::testing::Values(MakeHarness([] {
      static const TestAuthority authority("cluster");
      const auto keys = std::make_shared<const Keyring>();
      const Credentials both{keys, *TlsContext::Make(keys, authority.Issue("URI:cell://server/any"))};
      auto harness = std::make_unique<TcpHarness>(
          TcpFabricOptions{.huge_pages = false, .credentials = std::make_shared<FixedCredentials>(both)});
      harness->clients_are_clients = false;
      return harness;
    })));

TEST(TcpFabricUsers, OneUserDoesNotTakeAllConnections) {
  const std::string address = HostPort(9);
  TcpFabric server(TcpFabricOptions{.huge_pages = false, .peers_max = 20});
  EchoService service(&server);
  ASSERT_TRUE(server.Listen(address, &service).ok());
  TcpFabric greedy(TcpFabricOptions{.huge_pages = false}), modest(TcpFabricOptions{.huge_pages = false});
  greedy.SetSelf({Role::kClient, "greedy"});
  modest.SetSelf({Role::kClient, "modest"});
  const auto await = [&server](TcpFabric* client, const Waiter& waiter) {
    while (!waiter.done()) {
      if (server.Poll() + client->Poll() == 0) client->Wait(client->NowNs() + 100'000);
    }
  };
  const auto served = [&](TcpFabric* client) {
    Waiter connected, called;
    const int64_t deadline_ns = client->NowNs() + 20'000'000'000;
    const ConnectionId connection = client->Connect(address, deadline_ns, &connected);
    await(client, connected);
    if (!connected.status().ok()) return false;
    client->Call(connection, AsBytes("call"), {}, kReplyBytesMin, deadline_ns, &called);
    await(client, called);
    return called.status().ok();
  };
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(served(&greedy)) << i;
  EXPECT_FALSE(served(&greedy));
  EXPECT_TRUE(served(&modest));
}

TEST(ParseHostPort, TakesHostsAndNothingElse) {
  using Parts = std::pair<std::string, uint16_t>;
  EXPECT_EQ(*ParseHostPort("10.0.0.1:7000"), Parts("10.0.0.1", 7000));
  EXPECT_EQ(*ParseHostPort("node-3:1"), Parts("node-3", 1));
  EXPECT_EQ(*ParseHostPort("[fe80::1]:65535"), Parts("fe80::1", 65535));
  for (const char* bad : {"", ":", "host", "host:", ":7000", "host:70000", "host:7x", "host:-1", "fe80::1:7", "[]:7"}) {
    EXPECT_EQ(ParseHostPort(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(ByteQueue, WhatGoesInComesOutInOrder) {
  Random random(2);
  ByteQueue queue;
  uint8_t in = 0, out = 0;
  for (int i = 0; i < 100'000; ++i) {
    const size_t bytes = random.Below(300);
    std::byte* to = queue.Grow(bytes);
    for (size_t j = 0; j < bytes; ++j) to[j] = std::byte{in++};
    queue.Commit(bytes);
    const size_t taken = std::min(queue.size(), random.Below(310));
    for (size_t j = 0; j < taken; ++j) ASSERT_EQ(queue.data()[j], std::byte{out++});
    queue.Consume(taken);
    queue.Shrink(64);
  }
}

}  // namespace
}  // namespace cell
