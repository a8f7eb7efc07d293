// Tests a shm fabric against arbitrary peers at its socket. Some tests limit the descriptors of this process, and
// warnings are counted.
#include "cell/io/fabric/shm/shm_stranger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/random.h"
#include "cell/io/fabric/fabric_harness.h"
#include "cell/io/fabric/waiter.h"
#include "cell/io/net/strangers.h"

namespace cell {
namespace {

// Connects to the socket as a stranger: garbage, silence, another version, rings full of garbage. The server must
// continue.
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

  // Waits for the server's next packet. Returns an empty one if the server has closed.
  AnyPacket Receive(const Fd& socket) {
    for (int i = 0; i < 5000; ++i) {
      if (std::optional<AnyPacket> packet = TakeAny(socket); packet.has_value()) return *std::move(packet);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "no answer";
    return {};
  }

  // Greets, and returns the descriptors that the server passed.
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
      // Frames of the request ring, and then the control words of both rings.
      Store(rings->base() + 4096 + random.Below(4096) * 16,
            RingFrame{static_cast<uint32_t>(random.Below(70'000)), static_cast<uint32_t>(random.Below(70'000)),
                      random.Next()});
    }
    for (size_t at = 0; at < 384; at += 64)
      Store(rings->base() + at, random.Below(3) == 0 ? random.Next() : random.Below(300'000) * 16);
    (void)SendPacket(socket.get(), BytesOf(kByte), {});
  }
}

// Each of these frames is one that no client of ours writes. The first two ask for more room than there is for a reply.
TEST_F(StrangerTest, AFrameThatCannotBeClosesTheConnection) {
  for (const RingFrame& frame : {RingFrame{5, kMessageBytesMax + 1, 1}, RingFrame{5, 0xffffffff, 1}, RingFrame{5, 0, 1},
                                 RingFrame{kMessageBytesMax + 1, kReplyBytesMin, 1}}) {
    SCOPED_TRACE(fmt::format("{} {}", frame.bytes, frame.reply_bytes_max));
    const Fd socket = *ConnectUnix(path_);
    auto rings = ShmMemory::Map(std::move(Greet(socket)[0]), kRingsBytes, ShmMemory::Sharing::kReadWrite);
    ASSERT_TRUE(rings.ok());
    Store(rings->base() + kRequestRing, frame);
    ControlAt(*rings, kRequestControl)->written = FrameBytes(frame.bytes);
    ASSERT_TRUE(SendPacket(socket.get(), BytesOf(kByte), {}).ok());
    EXPECT_TRUE(Receive(socket).bytes.empty());
  }
}

TEST_F(StrangerTest, AsksForRegionsThatCannotBe) {
  const Fd socket = *ConnectUnix(path_);
  (void)Greet(socket);
  for (const uint64_t region : {uint64_t{2}, (uint64_t{1} << 32) + 1, UINT64_MAX}) {
    ASSERT_TRUE(SendPacket(socket.get(), BytesOf(AskRegion{kMagic, region}), {}).ok());
    const AnyPacket answer = Receive(socket);
    ASSERT_EQ(answer.bytes.size(), sizeof(RegionPacket));
    EXPECT_EQ(Load<RegionPacket>(answer.bytes.data()).bytes, 0u) << region;
    EXPECT_TRUE(answer.fds.empty()) << region;
  }
  ASSERT_TRUE(SendPacket(socket.get(), BytesOf(AskRegion{kMagic + 1, 1}), {}).ok());
  EXPECT_TRUE(Receive(socket).bytes.empty());
}

// A client may change the flags of all descriptors that it got, fill everything that can be filled, and take nothing
// from its socket.
TEST_F(StrangerTest, NothingThatIsSharedStopsTheServer) {
  const Fd socket = *ConnectUnix(path_);
  std::vector<Fd> fds = Greet(socket);
  const auto rings = ShmMemory::Map(Fd(::dup(fds[0].get())), kRingsBytes, ShmMemory::Sharing::kReadWrite);
  ASSERT_TRUE(rings.ok());
  for (const Fd& fd : fds) {
    const uint64_t full = UINT64_MAX - 1;
    if (::fcntl(fd.get(), F_GET_SEALS) < 0) (void)!::write(fd.get(), &full, sizeof(full));
    const int flags = ::fcntl(fd.get(), F_GETFL);
    ASSERT_EQ(::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK), 0);
  }
  RingWriter requests(ControlAt(*rings, kRequestControl), rings->base() + kRequestRing, ShmFabric::kRequestRingBytes);
  RingReader replies(ControlAt(*rings, kReplyControl), rings->base() + kReplyRing, ShmFabric::kReplyRingBytes,
                     kMessageBytesMax);
  // Cause more replies, each of which needs a ring, than a socket holds rings.
  for (uint64_t i = 0; i < 600; ++i) {
    (void)replies.Sleep();
    ASSERT_NE(requests.Begin(8), nullptr);
    requests.End(8, i, kReplyBytesMin);
    (void)requests.Publish();  // The server looks by itself.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    std::optional<RingReader::Message> reply;
    while (!(reply = replies.Next()).has_value() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    ASSERT_TRUE(reply.has_value()) << "the server answers no more after " << i;
    ASSERT_EQ(reply->frame.id, i);
    replies.Release();
  }
}

// Sends rings that nobody requested. The server takes some of them, and then serves others.
TEST(ShmFabric, TakesABoundedNumberOfPacketsAtOnce) {
  const std::string path = TempPath("rings");
  ShmFabric server(ShmFabricOptions{.huge_pages = false});
  EchoService service(&server);
  ASSERT_TRUE(server.Listen(path, &service).ok());
  const Fd socket = *ConnectUnix(path);
  ASSERT_TRUE(SendPacket(socket.get(), BytesOf(kHello), {}).ok());
  server.AfterWait();
  const auto fill = [&] {
    int sent = 0;
    while (::send(socket.get(), &kByte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1) ++sent;
    return sent;
  };
  ASSERT_GT(fill(), 4 * kPacketsAtOnce);
  server.AfterWait();
  const int taken = fill();
  EXPECT_GE(taken, 1);
  EXPECT_LE(taken, 2 * kPacketsAtOnce);
  EXPECT_EQ(server.peers(), 1u);
}

// The last close of a descriptor may take as long as its sender wants, and the receiver is the one that closes last.
TEST_F(StrangerTest, DescriptorsThatCloseSlowlyStopNobody) {
  Lingering with_hello, twice, with_ask, with_ring, behind_an_empty_packet, behind_a_version;
  const Fd first = *ConnectUnix(path_), second = *ConnectUnix(path_), third = *ConnectUnix(path_);
  with_hello.SendWith(first, BytesOf(kHello));
  ExpectStillServing();
  (void)Greet(second);
  with_ask.SendWith(second, BytesOf(AskRegion{kMagic, 1}));
  ExpectStillServing();
  (void)Greet(third);
  with_ring.SendWith(third, BytesOf(kByte));
  ExpectStillServing();
  {  // The sender is gone before the server has taken it.
    const Fd fourth = *ConnectUnix(path_);
    twice.SendWith(fourth, BytesOf(kByte));
  }
  ExpectStillServing();
  // It stays in the socket when the server closes that because of what came before.
  const Fd fifth = *ConnectUnix(path_);
  Hello other = kHello;
  other.version = 99;
  ASSERT_TRUE(SendPacket(fifth.get(), BytesOf(other), {}).ok());
  ASSERT_TRUE(SendPacket(fifth.get(), {}, {}).ok());
  behind_a_version.SendWith(fifth, BytesOf(kByte));
  ExpectStillServing();
  const Fd sixth = *ConnectUnix(path_);
  ASSERT_TRUE(SendPacket(sixth.get(), {}, {}).ok());
  behind_an_empty_packet.SendWith(sixth, {});
  ExpectStillServing();
}

// Returns whether a client can connect; polls both sides.
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

// Timeouts play no role here: silent peers are disconnected because others come.
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

// New clients wait in the queue between silent connections, of which there are more than are kept.
TEST(ShmFabric, WhoHasGreetedIsNotTakenForSilent) {
  const std::string path = TempPath("crowd");
  ShmFabric server(ShmFabricOptions{.huge_pages = false, .handshake_ns = kForEverNs, .accept_rest_ns = 0});
  EchoService service(&server);
  ASSERT_TRUE(server.Listen(path, &service).ok());
  const FewDescriptors few(250);
  const Fd newcomer = *ConnectUnix(path);
  ASSERT_TRUE(SendPacket(newcomer.get(), BytesOf(kHello), {}).ok());
  std::vector<Fd> silent;
  silent.reserve(60);
  for (int i = 0; i < 60; ++i) silent.push_back(*ConnectUnix(path));
  for (int turns = 0; turns < 60; ++turns) server.AfterWait();  // Each accepts some.
  EXPECT_TRUE(Closed(silent.front()));
  EXPECT_EQ(server.peers(), 1u);
  const std::optional<AnyPacket> welcome = TakeAny(newcomer);
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->bytes.size(), sizeof(WelcomePacket));
}

// However many silent peers there are, they leave descriptors for peers of another fabric.
TEST(ShmFabric, SilentOnesTakeAShareOfTheDescriptors) {
  const std::string path = TempPath("share");
  ShmFabric server(ShmFabricOptions{.huge_pages = false, .handshake_ns = kForEverNs, .accept_rest_ns = 0});
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
