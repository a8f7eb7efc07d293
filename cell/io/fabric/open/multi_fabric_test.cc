#include "cell/io/fabric/open/multi_fabric.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "cell/io/fabric/event_loop_conformance.h"
#include "cell/io/fabric/fabric_conformance.h"
#include "cell/io/fabric/open/open_fabric.h"
#include "cell/io/fabric/shm/shm_fabric.h"
#include "cell/io/fabric/tcp/tcp_fabric.h"

namespace cell {
namespace {

int Unique() {
  static std::atomic<int> counter = 0;
  return counter++;
}
std::string TempPath() {
  static const unsigned process = std::random_device()();  // Tests in sandboxes share /tmp, and have the same ids.
  return fmt::format("/tmp/cell-test-multi-{:08x}-{}", process, Unique());
}
std::string HostPort() {
  const int pid = ::getpid();
  return fmt::format("127.{}.{}.9:{}", 1 + pid / 250 % 250, 1 + pid % 250, 20'000 + Unique());
}
std::string Tcp() { return ToString({{FabricKind::kTcp, HostPort(), {}}}); }
std::string Shm(const std::string& machine = ThisMachine()) {
  return ToString({{FabricKind::kShm, TempPath(), machine}});
}

// Makes servers with both fabrics, and clients of the given kind.
class MultiHarness : public ThreadsHarness {
 public:
  explicit MultiHarness(std::string kind) : kind_(std::move(kind)) {}
  std::unique_ptr<Fabric> NewEndpoint() override {
    // The first endpoint is the server, and has all fabrics.
    const std::string kind = endpoints_++ == 0 || kind_ == "auto" ? "auto" : kind_;
    return *OpenFabric({.kind = kind, .huge_pages = false});
  }
  std::string Address(int n) override {
    if (!addresses_.contains(n)) addresses_[n] = kind_ == "tcp" ? Tcp() : kind_ == "shm" ? Shm() : Tcp() + "," + Shm();
    return addresses_[n];
  }

  bool Silence(Fabric* server) override {
    Stop(server);
    return kind_ != "tcp";  // Its listener's thread still answers reads.
  }

 private:
  const std::string kind_;
  int endpoints_ = 0;
  std::map<int, std::string> addresses_;
};

INSTANTIATE_TEST_SUITE_P(Multi, FabricConformance,
                         ::testing::Values(MakeHarness([] { return std::make_unique<MultiHarness>("auto"); }),
                                           MakeHarness([] { return std::make_unique<MultiHarness>("tcp"); })));

TEST(FabricAddress, WhatIsWrittenIsRead) {
  const std::vector<FabricAddress> all = {{FabricKind::kTcp, "10.0.0.1:7", {}},
                                          {FabricKind::kVerbs, "[fe80::1]:8", {}},
                                          {FabricKind::kShm, "/run/a,b c.sock", "0f-1"}};
  EXPECT_EQ(*ParseAddresses(ToString(all)), all);
  EXPECT_EQ(*ParseAddresses(ToString({all[2], all[0]})), (std::vector<FabricAddress>{all[0], all[2]}));
  EXPECT_EQ(*ParseAddresses("/run/x.sock"), (std::vector<FabricAddress>{{FabricKind::kShm, "/run/x.sock", {}}}));
  for (const char* bad : {"", "udp://a:1", "tcp://", "tcp://,", "tcp://a:1,", "shm://m", "shm://m/", "tcp://a:1,x"}) {
    EXPECT_EQ(ParseAddresses(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

class MultiFabricTest : public ::testing::Test {
 protected:
  void Serve(const std::string& address) {
    ASSERT_TRUE(server_->CreateRegion(1, 1 << 16).ok());
    ASSERT_TRUE(server_->Listen(address, &service_).ok());
    threads_.Run(server_.get());
  }
  void TearDown() override { threads_.Stop(server_.get()); }
  static void ExpectAnswer(Fabric* client, ConnectionId connection) {
    Waiter call;
    client->Call(connection, AsBytes("x"), {}, kReplyBytesMin, client->NowNs() + 5'000'000'000, &call);
    ASSERT_TRUE(call.Await(client).ok());
    EXPECT_EQ(call.reply(), "X");
  }

  struct Threads : ThreadsHarness {
    std::unique_ptr<Fabric> NewEndpoint() override { return nullptr; }
    std::string Address(int) override { return {}; }
  };
  Threads threads_;
  std::unique_ptr<MultiFabric> server_ = *OpenFabric({.huge_pages = false});
  EchoService service_{server_.get()};
};

TEST_F(MultiFabricTest, TheSameMachineTakesSharedMemory) {
  const std::string address = Tcp() + "," + Shm();
  Serve(address);
  const auto client = *OpenFabric({});
  const auto connection = ConnectTo(client.get(), address);
  ASSERT_TRUE(connection.ok());
  EXPECT_EQ(client->KindOf(*connection), FabricKind::kShm);
  ExpectAnswer(client.get(), *connection);
  const auto plain = *OpenFabric({.kind = "tcp"});
  const auto other = ConnectTo(plain.get(), address);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(plain->KindOf(*other), FabricKind::kTcp);
  ExpectAnswer(plain.get(), *other);
  EXPECT_EQ(threads_.PeersOf(server_.get()), 2u);
}

TEST_F(MultiFabricTest, AnotherMachinesSharedMemoryIsNotTried) {
  const std::string tcp = Tcp(), shm = Shm("another-machine");
  Serve(tcp + "," + shm);
  const auto client = *OpenFabric({});
  const auto connection = ConnectTo(client.get(), tcp + "," + shm);
  ASSERT_TRUE(connection.ok());
  EXPECT_EQ(client->KindOf(*connection), FabricKind::kTcp);
  const absl::Status status = ConnectTo(client.get(), shm).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("no fabric of this program reaches"), std::string::npos) << status;
}

// The machine is the same but its files are not: a container.
TEST_F(MultiFabricTest, WhatDoesNotAnswerIsPassedOver) {
  const std::string tcp = Tcp();
  Serve(tcp);
  const auto client = *OpenFabric({});
  const auto connection = ConnectTo(client.get(), tcp + "," + Shm());
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_EQ(client->KindOf(*connection), FabricKind::kTcp);
  ExpectAnswer(client.get(), *connection);
  // If nothing answers, the error names every reason.
  const absl::Status status = ConnectTo(client.get(), "tcp://127.0.0.1:1," + Shm()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("127.0.0.1:1"), std::string::npos) << status;
  EXPECT_NE(std::string(status.message()).find("cell-test-multi"), std::string::npos) << status;
}

// Runs `run` in a thread without root's right to open any file.
template <typename Run>
void AsNobodySpecial(const Run& run) {
  std::thread([&run] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
    ASSERT_EQ(::syscall(SYS_capget, &header, data), 0);
    data[0].effective &= ~(1u << CAP_DAC_OVERRIDE);
    ASSERT_EQ(::syscall(SYS_capset, &header, data), 0);
    run();
  }).join();
}

TEST_F(MultiFabricTest, ASocketThatThisUserMayNotUseIsPassedOver) {
  const std::string tcp = Tcp(), socket = TempPath();
  const std::string shm = ToString({{FabricKind::kShm, socket, ThisMachine()}});
  Serve(tcp + "," + shm);
  ASSERT_EQ(::chmod(socket.c_str(), 0), 0);
  AsNobodySpecial([&] {
    const auto client = *OpenFabric({});
    const auto connection = ConnectTo(client.get(), tcp + "," + shm);
    ASSERT_TRUE(connection.ok()) << connection.status();
    EXPECT_EQ(client->KindOf(*connection), FabricKind::kTcp);
    // If there is no other way, the error is final, and names the owner.
    const absl::Status status = ConnectTo(client.get(), shm).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_NE(status.message().find(fmt::format("{} belongs to user {};", socket, ::getuid())), std::string::npos)
        << status;
  });
}

// A server that is busy with another fabric's calls polls and never waits.
TEST(MultiFabric, AServerThatNeverWaitsTakesConnectionsBySharedMemory) {
  const auto server = *OpenFabric({.huge_pages = false});
  EchoService service(server.get());
  const std::string address = Shm();
  ASSERT_TRUE(server->Listen(Tcp() + "," + address, &service).ok());
  const auto client = *OpenFabric({});
  Waiter connected;
  client->Connect(address, INT64_MAX, &connected);
  for (int polls = 0; polls < 1000 && !connected.done(); ++polls) {
    server->Poll();
    client->Poll();
  }
  ASSERT_TRUE(connected.done());
  EXPECT_TRUE(connected.status().ok()) << connected.status();
}

TEST(OpenFabric, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(OpenFabric({.kind = "carrier-pigeon"}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cell
