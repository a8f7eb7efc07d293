// Strangers at a shm fabric's socket, and servers that lie to its clients. The descriptors of this process are limited
// by some tests, and warnings counted.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "cell/base/random.h"
#include "cell/io/fabric_harness.h"
#include "cell/io/shm_connection.h"
#include "cell/io/strangers.h"
#include "cell/io/waiter.h"

namespace cell {
namespace {

std::string TempPath(const std::string& name) {
  static std::atomic<int> counter = 0;
  return fmt::format("/tmp/cell-stranger-{}-{}-{}", ::getpid(), counter++, name);
}

template <typename T>
ConstBytes BytesOf(const T& value) {
  return {reinterpret_cast<const std::byte*>(&value), sizeof(value)};
}

const Hello kHello{kMagic, ShmFabric::kVersion, 0};
const char kByte = 'x';

// All that a packet has, with every descriptor. Nothing: there is none yet.
struct AnyPacket {
  std::vector<std::byte> bytes;  // Empty: the other end has closed.
  std::vector<Fd> fds;
};
std::optional<AnyPacket> TakeAny(const Fd& socket) {
  AnyPacket packet;
  packet.bytes.resize(65536);
  char control[CMSG_SPACE(200 * sizeof(int))];
  iovec part{packet.bytes.data(), packet.bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = ::recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && errno == EAGAIN) return std::nullopt;
  packet.bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); got >= 0 && header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    for (size_t i = 0; i < (header->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      packet.fds.emplace_back(fd);
    }
  }
  return packet;
}
// Whether the other end has closed.
bool Closed(const Fd& socket) {
  const std::optional<AnyPacket> packet = TakeAny(socket);
  return packet.has_value() && packet->bytes.empty();
}

// A stranger at the socket: garbage, silence, another version, rings full of nonsense. The server goes on.
class StrangerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    service_ = std::make_unique<EchoService>(&server_);
    ASSERT_TRUE(server_.CreateRegion(1, 1 << 16).ok());
    ASSERT_TRUE(server_.Listen(path_, service_.get()).ok());
    thread_ = std::thread([this] {
      while (!stop_) {
        if (server_.Poll() == 0) server_.Wait(server_.NowNs() + 1'000'000);
      }
    });
  }
  void TearDown() override {
    ExpectStillServing();
    stop_ = true;
    thread_.join();
  }
  void ExpectStillServing() {
    ShmFabric client;
    const auto connection = ConnectTo(&client, path_);
    ASSERT_TRUE(connection.ok()) << connection.status();
    Waiter waiter;
    client.Call(*connection, AsBytes("hello"), {}, kReplyBytesMin, client.NowNs() + 5'000'000'000, &waiter);
    ASSERT_TRUE(waiter.Await(&client).ok());
    EXPECT_EQ(waiter.reply(), "HELLO");
  }

  // Waits for the server's next packet; empty when it has closed.
  AnyPacket Receive(const Fd& socket) {
    for (int i = 0; i < 5000; ++i) {
      if (std::optional<AnyPacket> packet = TakeAny(socket); packet.has_value()) return *std::move(packet);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "no answer";
    return {};
  }

  // Greets, and returns what the server handed over.
  std::vector<Fd> Greet(const Fd& socket) {
    CELL_CHECK(SendPacket(socket.get(), BytesOf(kHello), {}).ok());
    AnyPacket welcome = Receive(socket);
    CELL_CHECK(welcome.bytes.size() == sizeof(WelcomePacket) && !welcome.fds.empty());
    return std::move(welcome.fds);
  }

  const std::string path_ = TempPath("stranger");
  ShmFabric server_{ShmFabricOptions{.huge_pages = false}};
  std::unique_ptr<EchoService> service_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST_F(StrangerTest, GarbageInsteadOfAHandshake) {
  const Fd socket = *ConnectUnix(path_);
  ASSERT_TRUE(SendPacket(socket.get(), AsBytes("GET / HTTP/1.1\r\n"), {}).ok());
  EXPECT_TRUE(Receive(socket).bytes.empty());
}

TEST_F(StrangerTest, AnotherVersionIsToldOurs) {
  const Fd socket = *ConnectUnix(path_);
  const uint64_t hello[2] = {0x31304d48534c4543, 99};
  ASSERT_TRUE(SendPacket(socket.get(), {reinterpret_cast<const std::byte*>(hello), 16}, {}).ok());
  const AnyPacket packet = Receive(socket);
  ASSERT_GE(packet.bytes.size(), 16u);
  EXPECT_EQ(Load<uint32_t>(packet.bytes.data() + 8), ShmFabric::kVersion);
  EXPECT_TRUE(packet.fds.empty());
}

TEST_F(StrangerTest, SilenceAndHangUp) {
  for (int i = 0; i < 50; ++i) {
    const Fd socket = *ConnectUnix(path_);
    if (i % 2 == 0) ExpectStillServing();
  }
}

TEST_F(StrangerTest, RingsFullOfNonsense) {
  Random random(9);
  for (int i = 0; i < 50; ++i) {
    const Fd socket = *ConnectUnix(path_);
    auto rings = ShmMemory::Map(std::move(Greet(socket)[0]), kRingsBytes, ShmMemory::Sharing::kReadWrite);
    ASSERT_TRUE(rings.ok());
    for (int j = 0; j < 2000; ++j) {
      // Frames of the request ring, and last the control words of both.
      Store(rings->base() + 4096 + random.Below(4096) * 16,
            RingFrame{static_cast<uint32_t>(random.Below(70'000)), static_cast<uint32_t>(random.Below(70'000)),
                      random.Next()});
    }
    for (size_t at = 0; at < 384; at += 64)
      Store(rings->base() + at, random.Below(3) == 0 ? random.Next() : random.Below(300'000) * 16);
    (void)SendPacket(socket.get(), BytesOf(kByte), {});
  }
}

// Whether a client gets in; both are polled here.
bool GetsIn(ShmFabric* server, ShmFabric* client, const std::string& path) {
  Waiter connected;
  client->Connect(path, client->NowNs() + 10'000'000'000, &connected);
  while (!connected.done()) {
    server->Poll();
    server->AfterWait();
    client->Poll();
  }
  return connected.status().ok();
}

// Time ends nobody here: those who say nothing leave because others come.
constexpr int64_t kForEverNs = 600'000'000'000;

TEST(ShmFabric, WithoutDescriptorsTheOldestSilentOneLeaves) {
  const std::string path = TempPath("few");
  ShmFabric server(ShmFabricOptions{.huge_pages = false, .handshake_ns = kForEverNs}), client;
  EchoService service(&server);
  ASSERT_TRUE(server.Listen(path, &service).ok());
  const Fd oldest = *ConnectUnix(path), other = *ConnectUnix(path);
  const FewDescriptors few(2);
  server.AfterWait();
  EXPECT_FALSE(Closed(oldest) || Closed(other));
  EXPECT_TRUE(GetsIn(&server, &client, path));
  EXPECT_TRUE(Closed(oldest));
  EXPECT_FALSE(Closed(other));
  EXPECT_TRUE(GetsIn(&server, &client, path));
  EXPECT_TRUE(Closed(other));
  EXPECT_FALSE(GetsIn(&server, &client, path));  // Nobody is silent.
  EXPECT_EQ(server.peers(), 2u);
}

TEST(ShmFabric, WithoutPlacesTheOldestSilentOneLeaves) {
  const std::string path = TempPath("places");
  ShmFabric server(ShmFabricOptions{.huge_pages = false, .peers_max = 2, .handshake_ns = kForEverNs}), client;
  EchoService service(&server);
  ASSERT_TRUE(server.Listen(path, &service).ok());
  const Fd oldest = *ConnectUnix(path);
  server.AfterWait();
  const Fd other = *ConnectUnix(path);
  server.AfterWait();
  EXPECT_TRUE(GetsIn(&server, &client, path));
  EXPECT_TRUE(Closed(oldest));
  EXPECT_FALSE(Closed(other));
  EXPECT_TRUE(GetsIn(&server, &client, path));
  EXPECT_TRUE(Closed(other));
  EXPECT_FALSE(GetsIn(&server, &client, path));
  EXPECT_EQ(server.peers(), 2u);
}

// Newcomers that wait in the queue among strangers who say nothing, more of them than are kept.
TEST(ShmFabric, WhoHasGreetedIsNotTakenForSilent) {
  const std::string path = TempPath("crowd");
  ShmFabric server(ShmFabricOptions{.huge_pages = false, .handshake_ns = kForEverNs});
  EchoService service(&server);
  ASSERT_TRUE(server.Listen(path, &service).ok());
  const FewDescriptors few(250);
  const Fd newcomer = *ConnectUnix(path);
  ASSERT_TRUE(SendPacket(newcomer.get(), BytesOf(kHello), {}).ok());
  std::vector<Fd> silent;
  for (int i = 0; i < 60; ++i) silent.push_back(*ConnectUnix(path));
  server.AfterWait();
  EXPECT_TRUE(Closed(silent.front()));
  EXPECT_EQ(server.peers(), 1u);
  const std::optional<AnyPacket> welcome = TakeAny(newcomer);
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->bytes.size(), sizeof(WelcomePacket));
}

// However many they are, they leave descriptors for who comes by another fabric.
TEST(ShmFabric, SilentOnesTakeAShareOfTheDescriptors) {
  const std::string path = TempPath("share");
  ShmFabric server(ShmFabricOptions{.huge_pages = false, .handshake_ns = kForEverNs});
  EchoService service(&server);
  ASSERT_TRUE(server.Listen(path, &service).ok());
  const FewDescriptors few(250);
  std::vector<Fd> silent;
  for (int i = 0; i < 110; ++i) {
    silent.push_back(*ConnectUnix(path));
    server.AfterWait();
  }
  EXPECT_EQ(std::count_if(silent.begin(), silent.end(), Closed), 110 - FewDescriptors::kLimit / 8);
  EXPECT_TRUE(Closed(silent.front()));
  EXPECT_FALSE(Closed(silent.back()));
}

TEST_F(StrangerTest, CannotFillTheLog) {
  const LogLines lines;
  for (int i = 0; i < 200; ++i) {
    const Fd socket = *ConnectUnix(path_);
    Hello other = kHello;
    other.version = 100 + static_cast<uint32_t>(i);
    const ConstBytes bytes = i % 2 == 0 ? BytesOf(other) : BytesOf(kByte);
    ASSERT_TRUE(SendPacket(socket.get(), bytes, {}).ok());
    while (!Receive(socket).bytes.empty()) {
    }
  }
  ExpectStillServing();
  EXPECT_TRUE(lines.AreFew());
}

}  // namespace
}  // namespace cell
