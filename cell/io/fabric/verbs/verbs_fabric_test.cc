// Tests the verbs fabric on a real RDMA device: the one with the address in CELL_TEST_RDMA_HOST, or the first active
// one. Without a device its tests are skipped; //tests:verbs_vm_test runs them in a virtual machine that has one.
#include "cell/io/fabric/verbs/verbs_fabric.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <cstdlib>

#include "cell/base/check.h"
#include "cell/io/fabric/event_loop_conformance.h"
#include "cell/io/fabric/fabric_conformance.h"
#include "cell/io/fabric/verbs/verbs_device.h"
#include "cell/io/fabric/verbs/verbs_domain.h"
#include "cell/io/fabric/verbs/verbs_link.h"
#include "cell/io/net/tcp_socket.h"
#include "cell/io/net/test_credentials.h"

namespace cell {
namespace {

// Returns "" if there is no device.
const std::string& Host() {
  static const std::string host = [] {
    const char* given = std::getenv("CELL_TEST_RDMA_HOST");
    return given != nullptr ? std::string(given) : RdmaSourceAddress("", -1);
  }();
  return host;
}

std::string HostPort() {
  static int port = 20'000;
  return fmt::format("{}:{}", Host().find(':') == std::string::npos ? Host() : "[" + Host() + "]", port++);
}

class VerbsHarness : public ThreadsHarness {
 public:
  explicit VerbsHarness(VerbsFabricOptions options) : options_(std::move(options)) {}
  std::string Missing() override { return Host().empty() ? "no RDMA device" : ""; }
  std::unique_ptr<Fabric> NewEndpoint() override { return std::make_unique<VerbsFabric>(options_); }
  std::string Address(int n) override {
    if (!addresses_.contains(n)) addresses_[n] = HostPort();
    return addresses_[n];
  }

 private:
  const VerbsFabricOptions options_;
  std::map<int, std::string> addresses_;
};

INSTANTIATE_TEST_SUITE_P(VerbsAdaptive, FabricConformance, ::testing::Values(MakeHarness([] {
                           return std::make_unique<VerbsHarness>(VerbsFabricOptions{.huge_pages = false});
                         })));
INSTANTIATE_TEST_SUITE_P(VerbsBusy, FabricConformance, ::testing::Values(MakeHarness([] {
                           return std::make_unique<VerbsHarness>(
                               VerbsFabricOptions{.polling = Polling::kBusy,
                                                  .huge_pages = false,
                                                  .credentials = CredentialsOf("a secret of this test")});
                         })));

TEST(VerbsObjects, PeersMayReadAndNothingElse) {
  EXPECT_EQ(kRegionAccess, IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(kBufferAccess & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ), 0);
  EXPECT_EQ((kRegionAccess | kBufferAccess) & IBV_ACCESS_RELAXED_ORDERING, 0);
}

TEST(VerbsDevice, APortsSpeedIsThatOfAllItsLanes) {
  const auto speed = [](int lane, int width) {
    ibv_port_attr port{};
    port.active_speed = static_cast<uint8_t>(lane);
    port.active_width = static_cast<uint8_t>(width);
    return GbitPerSecond(port);
  };
  EXPECT_EQ(speed(32, 2), 100);  // EDR, 4x.
  EXPECT_EQ(speed(2, 2), 16);    // DDR, 4x: 20 Gb/s with its coding.
  EXPECT_EQ(speed(128, 4), 800);
  EXPECT_EQ(speed(77, 2), 0);
  EXPECT_EQ(speed(32, 0), 0);
}

TEST(VerbsDevice, TheListSaysWhatIsThere) {
  const std::string text = Describe(ListRdmaDevices());
  if (Host().empty()) {
    EXPECT_NE(text.find("No RDMA device"), std::string::npos);
    GTEST_SKIP() << "no RDMA device";
  }
  EXPECT_NE(text.find(Host()), std::string::npos) << text;
  EXPECT_FALSE(RdmaDeviceOf(Host()).empty());
  EXPECT_EQ(RdmaDeviceOf("192.0.2.1"), "");
  const std::string device = RdmaDeviceOf(Host());
  EXPECT_NE(RdmaSourceAddress(device, -1), "");
  EXPECT_NE(RdmaSourceAddress(device + ":1", -1), "");
  EXPECT_EQ(RdmaSourceAddress(device + ":77", -1), "");
  EXPECT_EQ(RdmaSourceAddress(device, 7777), "");
}

// Runs a server, and a peer that speaks verbs and does what it likes.
class VerbsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Host().empty()) GTEST_SKIP() << "no RDMA device";
    address_ = HostPort();
    Start({.huge_pages = false, .credentials = CredentialsOf("a secret of this test")});
  }
  void Start(const VerbsFabricOptions& options) {
    server_ = std::make_unique<VerbsFabric>(options);
    service_ = std::make_unique<EchoService>(server_.get());
    memory_ = *server_->CreateRegion(1, 1 << 16);
    memory_->StoreWord(800, 800);
    ASSERT_TRUE(server_->Listen(address_, service_.get()).ok());
    threads_.Run(server_.get());
  }
  void TearDown() override {
    if (server_ == nullptr) return;
    ExpectStillServing();
    threads_.Stop(server_.get());
  }
  void ExpectStillServing() {
    VerbsFabric client({.credentials = CredentialsOf("a secret of this test")});
    const auto connection = ConnectTo(&client, address_);
    ASSERT_TRUE(connection.ok()) << connection.status();
    Waiter call, read;
    client.Call(*connection, AsBytes("hello"), {}, kReplyBytesMin, client.NowNs() + 5'000'000'000, &call);
    ASSERT_TRUE(call.Await(&client).ok());
    EXPECT_EQ(call.reply(), "HELLO");
    alignas(8) std::byte to[8];
    const ReadPart part{Pointer(1, 800), to, 8};
    client.Read(*connection, {&part, 1}, client.NowNs() + 5'000'000'000, &read);
    ASSERT_TRUE(read.Await(&client).ok());
    EXPECT_EQ(Load<uint64_t>(to), 800u);
  }

  struct Threads : ThreadsHarness {
    std::unique_ptr<Fabric> NewEndpoint() override { return nullptr; }
    std::string Address(int) override { return {}; }
  };
  Threads threads_;
  std::string address_;
  std::unique_ptr<VerbsFabric> server_;
  std::unique_ptr<EchoService> service_;
  RegionMemory* memory_ = nullptr;
};

// A queue pair that is connected to the server and obeys no rules.
class RawPeer {
 public:
  explicit RawPeer(const std::string& address, CmGreeting greeting = {kCmMagic, kCmVersion, IBV_MTU_1024, 0}) {
    rdma_cm_id* made = nullptr;
    // Without an event channel, every step is synchronous.
    CELL_CHECK_EQ(::rdma_create_id(nullptr, &made, nullptr, RDMA_PS_TCP), 0);
    id_.reset(made);
    sockaddr_storage to = ResolveAddress(address)->front().storage;
    CELL_CHECK_EQ(::rdma_resolve_addr(made, nullptr, reinterpret_cast<sockaddr*>(&to), 2000), 0);
    CELL_CHECK_EQ(::rdma_resolve_route(made, 2000), 0);
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {64, 64, 1, 1, 0};
    attributes.sq_sig_all = 1;
    CELL_CHECK_EQ(::rdma_create_qp(made, nullptr, &attributes), 0);
    memory_.reset(::ibv_reg_mr(made->pd, bytes_, sizeof(bytes_), static_cast<int>(IBV_ACCESS_LOCAL_WRITE)));
    CELL_CHECK_NE(memory_, nullptr);
    for (int i = 0; i < 16; ++i) {
      ibv_sge place{reinterpret_cast<uint64_t>(bytes_ + kChunkBytes), kChunkBytes, memory_->lkey};
      ibv_recv_wr request{}, *bad = nullptr;
      request.sg_list = &place;
      request.num_sge = 1;
      CELL_CHECK_EQ(::ibv_post_recv(made->qp, &request, &bad), 0);
    }
    rdma_conn_param param{};
    param.private_data = &greeting;
    param.private_data_len = sizeof(greeting);
    param.initiator_depth = 1;
    param.retry_count = 3;
    param.rnr_retry_count = 7;
    connected_ = ::rdma_connect(made, &param) == 0;
  }
  ~RawPeer() {
    if (connected_) ::rdma_disconnect(id_.get());
    memory_.reset();
    ::rdma_destroy_qp(id_.get());
  }
  bool connected() const { return connected_; }

  ibv_wc_status Send(ConstBytes bytes) {
    std::memcpy(bytes_, bytes.data(), bytes.size());
    return Post(IBV_WR_SEND, static_cast<uint32_t>(bytes.size()), 0, 0);
  }
  ibv_wc_status Send(const ChunkHeader& header, std::string_view payload) {
    std::string chunk(reinterpret_cast<const char*>(&header), sizeof(header));
    return Send(AsBytes(chunk += payload));
  }
  // Posts one request and waits for it.
  ibv_wc_status Post(ibv_wr_opcode opcode, uint32_t bytes, uint64_t address, uint32_t key) {
    ibv_sge place{reinterpret_cast<uint64_t>(bytes_), bytes, memory_->lkey};
    ibv_send_wr request{}, *bad = nullptr;
    request.sg_list = &place;
    request.num_sge = 1;
    request.opcode = opcode;
    request.wr.rdma.remote_addr = address;
    request.wr.rdma.rkey = key;
    if (::ibv_post_send(id_->qp, &request, &bad) != 0) return IBV_WC_GENERAL_ERR;
    ibv_wc done{};
    for (int i = 0; i < 100'000; ++i) {
      if (::ibv_poll_cq(id_->send_cq, 1, &done) == 1) return done.status;
      ::usleep(100);
    }
    return IBV_WC_FATAL_ERR;
  }
  // Returns the next message's bytes, or "" if the connection ends first.
  std::string Receive() {
    ibv_wc done{};
    for (int i = 0; i < 100'000; ++i) {
      if (::ibv_poll_cq(id_->recv_cq, 1, &done) == 1) {
        if (done.status != IBV_WC_SUCCESS) return {};
        return std::string(AsText({bytes_ + kChunkBytes + sizeof(ChunkHeader), done.byte_len - sizeof(ChunkHeader)}));
      }
      pollfd ended{id_->channel->fd, POLLIN, 0};
      if (::poll(&ended, 1, 0) > 0) return {};  // librdmacm has an event: the server is gone.
      ::usleep(100);
    }
    ADD_FAILURE() << "neither an answer nor an end";
    return {};
  }
  void Greet(const std::string& secret) {
    ClientHandshake handshake(KeysOf(secret).get(), kTester, Purpose::kVerbs, RandomNonce());
    std::string message = handshake.Hello();
    while (!handshake.done()) {
      ASSERT_EQ(Send({MessageType::kHandshake, 0, 0, static_cast<uint32_t>(message.size()), 0, 0, 0}, message),
                IBV_WC_SUCCESS);
      const std::string answer = Receive();
      ASSERT_EQ(answer.size(), handshake.wants());
      message.clear();
      ASSERT_TRUE(handshake.Take(AsBytes(answer), &message).ok());
    }
  }
  RegionKey AskRegion(uint32_t region) {
    EXPECT_EQ(Send({MessageType::kAskRegion, 0, 0, 0, 0, 0, region}, ""), IBV_WC_SUCCESS);
    const std::string answer = Receive();
    return answer.size() == sizeof(RegionKey) ? Load<RegionKey>(AsBytes(answer).data()) : RegionKey{};
  }
  const std::byte* bytes() const { return bytes_; }

 private:
  CmId id_;
  alignas(64) std::byte bytes_[2 * kChunkBytes] = {};
  MemoryRegistration memory_;
  bool connected_ = false;
};

TEST_F(VerbsTest, RegionsCanBeReadAndNotBeWritten) {
  RegionKey key;
  {
    RawPeer reader(address_);
    reader.Greet("a secret of this test");
    key = reader.AskRegion(1);
    ASSERT_EQ(key.bytes, uint64_t{1} << 16);
    ASSERT_EQ(reader.Post(IBV_WR_RDMA_READ, 8, key.address + 800, key.key), IBV_WC_SUCCESS);
    EXPECT_EQ(Load<uint64_t>(reader.bytes()), 800u);
    EXPECT_EQ(reader.AskRegion(2).bytes, 0u);
  }
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    RawPeer writer(address_);
    writer.Greet("a secret of this test");
    EXPECT_NE(writer.Post(opcode, 8, key.address + 800, key.key), IBV_WC_SUCCESS);
    EXPECT_EQ(LoadWord(memory_->at(800)), 800u);
  }
  RawPeer beyond(address_);
  beyond.Greet("a secret of this test");
  EXPECT_NE(beyond.Post(IBV_WR_RDMA_READ, 64, key.address + (1 << 20), key.key), IBV_WC_SUCCESS);
}

// A peer that knows a key cannot use it without the handshake.
TEST_F(VerbsTest, AServerKnowsWhatIsBusyForHowLong) {
  ExpectStillServing();
  EXPECT_GT(service_->call_ns, 0u);
  EXPECT_LT(service_->call_ns, 1'000'000'000u);
  const RdmaPort port = ListRdmaDevices().front().ports.front();
  EXPECT_GT(port.gbit_per_s, 0);
  EXPECT_NEAR(service_->read_ns, 8 * 1024 / port.gbit_per_s, 1);
}

TEST_F(VerbsTest, WhoHasNotGreetedReadsNothing) {
  RawPeer friendly(address_);
  friendly.Greet("a secret of this test");
  const RegionKey key = friendly.AskRegion(1);
  RawPeer stranger(address_);
  EXPECT_NE(stranger.Post(IBV_WR_RDMA_READ, 8, key.address + 800, key.key), IBV_WC_SUCCESS);
  EXPECT_EQ(Load<uint64_t>(stranger.bytes()), 0u);
  EXPECT_EQ(friendly.Post(IBV_WR_RDMA_READ, 8, key.address + 800, key.key), IBV_WC_SUCCESS);
}

TEST_F(VerbsTest, WithoutTheSecretNobodyComesIn) {
  VerbsFabric client({.credentials = CredentialsOf("another")});
  const absl::Status status = ConnectTo(&client, address_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("secret"), std::string::npos) << status;
}

TEST_F(VerbsTest, AnotherVersionOrAnotherProgramIsRefused) {
  EXPECT_FALSE(RawPeer(address_, {kCmMagic, kCmVersion + 1, IBV_MTU_1024, 0}).connected());
  EXPECT_FALSE(RawPeer(address_, {0x12345678, kCmVersion, IBV_MTU_1024, 0}).connected());
}

TEST_F(VerbsTest, NonsenseEndsItsConnectionAndNoOther) {
  const ChunkHeader call{MessageType::kCall, 0, 0, 5, 0, 256, 1};
  const auto after_greeting = [&](const ChunkHeader& header, std::string_view payload) {
    RawPeer peer(address_);
    peer.Greet("a secret of this test");
    (void)peer.Send(header, payload);
    EXPECT_TRUE(peer.Receive().empty());
  };
  ChunkHeader header = call;
  header.message_bytes = 0xffffffff;
  after_greeting(header, "hello");
  header = call;
  header.offset = 7;
  after_greeting(header, "hello");
  header = call;
  header.reply_bytes_max = 0xffffffff;
  after_greeting(header, "hello");
  header = call;
  header.credits = 1000;
  after_greeting(header, "hello");
  header = call;
  header.type = static_cast<MessageType>(77);
  after_greeting(header, "hello");
  header = call;
  header.type = MessageType::kReply;
  after_greeting(header, "hello");
  RawPeer impatient(address_);  // A call before the handshake.
  (void)impatient.Send(call, "hello");
  EXPECT_TRUE(impatient.Receive().empty());
}

TEST_F(VerbsTest, WhoSendsWithoutCreditIsSentAway) {
  RawPeer peer(address_);
  peer.Greet("a secret of this test");
  // The server does not poll meanwhile, so nothing returns credits.
  threads_.Stop(server_.get());
  for (uint32_t i = 0; i <= kCredits; ++i) {
    ASSERT_EQ(peer.Send({MessageType::kCall, 0, 0, 5, 0, 256, 1}, "hello"), IBV_WC_SUCCESS);
  }
  threads_.Run(server_.get());
  EXPECT_TRUE(peer.Receive().empty());
}

TEST_F(VerbsTest, WhoDoesNotGreetIsSentAway) {
  threads_.Stop(server_.get());
  server_.reset();
  address_ = HostPort();
  Start({.huge_pages = false, .credentials = CredentialsOf("a secret of this test"), .handshake_ns = 50'000'000});
  RawPeer silent(address_);
  EXPECT_TRUE(silent.Receive().empty());
}

TEST_F(VerbsTest, AFloodOfSilentConnectionsKeepsNobodyOut) {
  threads_.Stop(server_.get());
  server_.reset();
  address_ = HostPort();
  // They must not end by a timeout.
  Start({.huge_pages = false, .credentials = CredentialsOf("a secret of this test"), .handshake_ns = 600'000'000'000});
  std::vector<std::unique_ptr<RawPeer>> flood;
  flood.reserve(280);
  for (int i = 0; i < 280; ++i) flood.push_back(std::make_unique<RawPeer>(address_));
  ExpectStillServing();
  EXPECT_TRUE(flood.front()->Receive().empty());  // The oldest have been disconnected.
}

TEST_F(VerbsTest, ConnectionsThatBreakLeaveNoQueuePairBehind) {
  for (int i = 0; i < 30; ++i) {
    VerbsFabric client({.credentials = CredentialsOf("a secret of this test")});
    const auto connection = ConnectTo(&client, address_);
    ASSERT_TRUE(connection.ok()) << connection.status();
    Waiter call, read;
    alignas(8) std::byte to[64];
    const ReadPart part{Pointer(1, 0), to, 64};
    client.Call(*connection, AsBytes("x"), {}, kReplyBytesMin, client.NowNs() + 5'000'000'000, &call);
    client.Read(*connection, {&part, 1}, client.NowNs() + 5'000'000'000, &read);
    if (i % 3 == 0) client.Poll();
    if (i % 3 != 2) {
      client.Disconnect(*connection);
      client.Poll();
      EXPECT_TRUE(call.done() && read.done());
      EXPECT_EQ(client.queue_pairs(), 0u);
    } else {
      call.Await(&client);
      read.Await(&client);
    }
  }
  ExpectStillServing();
  for (int i = 0; i < 5000 && service_->disconnected < 31; ++i) ::usleep(1000);
  EXPECT_EQ(service_->disconnected, 31);
  threads_.Stop(server_.get());
  EXPECT_EQ(server_->queue_pairs(), 0u);
  EXPECT_EQ(server_->peers(), 0u);
  threads_.Run(server_.get());
}

// Makes as many connections as the device has room for, and one more. That one gets an error, and the others work.
TEST_F(VerbsTest, ADeviceThatIsFullSaysSoAndServesTheOthers) {
  threads_.Stop(server_.get());
  server_.reset();
  address_ = HostPort();
  constexpr size_t kPeersMax = 350;
  Start({.huge_pages = false, .credentials = CredentialsOf("a secret of this test"), .peers_max = kPeersMax});
  struct Connected {
    Fabric* client;
    ConnectionId id;
  };
  std::vector<std::unique_ptr<VerbsFabric>> clients;
  std::vector<Connected> connected;
  absl::Status refused;
  while (refused.ok() && connected.size() <= kPeersMax) {
    if (connected.size() % 100 == 0) {
      clients.push_back(
          std::make_unique<VerbsFabric>(VerbsFabricOptions{.credentials = CredentialsOf("a secret of this test")}));
      clients.back()->SetSelf({Role::kClient, fmt::format("user-{}", clients.size())});  // One may have half of them.
    }
    const auto connection = ConnectTo(clients.back().get(), address_);
    refused = connection.status();
    if (refused.ok()) connected.push_back({clients.back().get(), *connection});
  }
  EXPECT_EQ(connected.size(), kPeersMax);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  for (const Connected& one : connected) {
    // Make replies that are not sent inline, and too few per connection for any to request a completion. Together they
    // take more send buffers than the server has.
    const std::string text(2000, 'x');
    for (uint32_t i = 0; i < kSignalEvery - 3; ++i) {
      Waiter call;
      one.client->Call(one.id, AsBytes(text), {}, 4096, one.client->NowNs() + 10'000'000'000, &call);
      ASSERT_TRUE(call.Await(one.client).ok());
    }
  }
  clients.clear();
  for (int i = 0; i < 10'000 && service_->disconnected < static_cast<int>(kPeersMax); ++i) ::usleep(1000);
  EXPECT_EQ(service_->disconnected, kPeersMax);
}

TEST_F(VerbsTest, TheSmallerMtuIsTaken) {
  VerbsFabric client({.credentials = CredentialsOf("a secret of this test"), .mtu_bytes = 256});
  const auto connection = ConnectTo(&client, address_);
  ASSERT_TRUE(connection.ok()) << connection.status();
  const std::string text(30'000, 'm');
  Waiter call;
  client.Call(*connection, AsBytes(text), {}, kMessageBytesMax, client.NowNs() + 5'000'000'000, &call);
  ASSERT_TRUE(call.Await(&client).ok());
  EXPECT_EQ(call.reply(), std::string(30'000, 'M'));
}

TEST_F(VerbsTest, ADeviceThatIsNotThereIsNamed) {
  VerbsFabric client({.credentials = CredentialsOf("a secret of this test"), .device = "mlx5_77"});
  const absl::Status status = ConnectTo(&client, address_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("mlx5_77"), std::string::npos) << status;
}

}  // namespace
}  // namespace cell
