// Tests a shm fabric against arbitrary peers at its socket, and its clients against faulty servers. Some tests limit
// the descriptors of this process, and warnings are counted.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "cell/base/check.h"
#include "cell/base/random.h"
#include "cell/io/fabric/fabric_harness.h"
#include "cell/io/fabric/shm/shm_connection.h"
#include "cell/io/fabric/waiter.h"
#include "cell/io/net/strangers.h"

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

// Takes a packet with all its descriptors. Returns nullopt if there is none yet.
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
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); got >= 0 && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    for (size_t i = 0; i < (header->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      packet.fds.emplace_back(fd);
    }
  }
  return packet;
}
// Returns whether the other end has closed.
bool Closed(const Fd& socket) {
  const std::optional<AnyPacket> packet = TakeAny(socket);
  return packet.has_value() && packet->bytes.empty();
}

// Holds a TCP connection with bytes that one end has sent and the other does not take: closing it takes minutes.
class Lingering {
 public:
  Lingering() {
    const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int small = 4096;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    CELL_CHECK(::bind(listener.get(), at, bytes) == 0 && ::listen(listener.get(), 1) == 0);
    CELL_CHECK_EQ(::getsockname(listener.get(), at, &bytes), 0);
    end_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    CELL_CHECK_EQ(::connect(end_.get(), at, bytes), 0);
    other_ = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger wait{1, 600};
    CELL_CHECK_EQ(::setsockopt(end_.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)), 0);
    const std::string much(65536, 'x');
    while (::send(end_.get(), much.data(), much.size(), MSG_DONTWAIT) > 0) {
    }
  }
  // Sends it with `bytes` and keeps no reference, so that closing the packet closes the connection.
  void SendWith(const Fd& socket, ConstBytes bytes) {
    CELL_CHECK(SendPacket(socket.get(), bytes, {end_.get()}).ok());
    end_ = Fd();
  }

 private:
  Fd end_, other_;  // Closing other_ ends any waiting close.
};

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

// Answers greetings as a test says.
class LyingServer {
 public:
  // Connects `client` and returns the server's end.
  Fd Connect(ShmFabric* client, Waiter* connected) {
    connection = client->Connect(path_, client->NowNs() + 5'000'000'000, connected);
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    CELL_CHECK(socket.valid());
    return socket;
  }

  ConnectionId connection = 0;  // The last connection.

 private:
  const std::string path_ = TempPath("liar");
  const Fd listener_ = *ListenUnix(path_);
};

TEST(ShmClient, DescriptorsThatCloseSlowlyDoNotStopIt) {
  LyingServer server;
  Lingering with_welcome, with_region, behind;
  const WelcomePacket welcome{kMagic, ShmFabric::kVersion, 0};
  const auto begin = std::chrono::steady_clock::now();
  {
    ShmFabric client;
    Waiter connected, read, left;
    const Fd first = server.Connect(&client, &connected);
    with_welcome.SendWith(first, BytesOf(welcome));
    EXPECT_EQ(connected.Await(&client).code(), absl::StatusCode::kUnavailable);
    const Fd second = server.Connect(&client, &left);
    behind.SendWith(second, BytesOf(kByte));
    while (!left.done()) client.Poll();
    // This client is welcomed properly, and gets something else instead of a region.
    Waiter welcomed;
    const Fd third = server.Connect(&client, &welcomed);
    const auto rings = ShmMemory::Create("rings", kRingsBytes, ShmMemory::Sharing::kReadWrite, false);
    ASSERT_TRUE(rings.ok() && SendPacket(third.get(), BytesOf(welcome), {rings->fd()}).ok());
    ASSERT_TRUE(welcomed.Await(&client).ok());
    alignas(8) std::byte to[8];
    const ReadPart part{Pointer(1, 0), to, 8};
    client.Read(server.connection, {&part, 1}, client.NowNs() + 5'000'000'000, &read);
    with_region.SendWith(third, BytesOf(RegionPacket{kMagic, 1, 4096}));
    EXPECT_EQ(read.Await(&client).code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

// Two reads wait for region 1. Its answer lets both ask for region 2, but nobody is there any more: the first question
// breaks the connection, and the second read must end with it.
TEST(ShmClient, ReadsThatWaitForASecondRegionEndWithTheConnection) {
  LyingServer server;
  ShmFabric client;
  Waiter welcomed, first, second;
  Fd socket = server.Connect(&client, &welcomed);
  const WelcomePacket welcome{kMagic, ShmFabric::kVersion, 0};
  const auto rings = ShmMemory::Create("rings", kRingsBytes, ShmMemory::Sharing::kReadWrite, false);
  ASSERT_TRUE(rings.ok() && SendPacket(socket.get(), BytesOf(welcome), {rings->fd()}).ok());
  ASSERT_TRUE(welcomed.Await(&client).ok());
  alignas(8) std::byte to[16];
  const ReadPart parts[] = {{Pointer(1, 0), to, 8}, {Pointer(2, 0), to + 8, 8}};
  client.Read(server.connection, parts, INT64_MAX, &first);
  client.Read(server.connection, parts, INT64_MAX, &second);
  const auto memory = ShmMemory::Create("region", 4096, ShmMemory::Sharing::kReadOnly, false);
  ASSERT_TRUE(memory.ok());
  // Read the packets of the client first. Closing a socket with unread packets discards the answer, too.
  char sent[64];
  int packets = 0;
  while (::recv(socket.get(), sent, sizeof(sent), 0) > 0) ++packets;
  ASSERT_GE(packets, 2);  // Its greeting, and the question for region 1.
  ASSERT_TRUE(SendPacket(socket.get(), BytesOf(RegionPacket{kMagic, 1, 4096}), {memory->fd()}).ok());
  socket = Fd();
  EXPECT_EQ(first.Await(&client).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(second.Await(&client).code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(first.status().message().find("accepts no requests"), std::string_view::npos) << first.status();
}

// The ring for replies has no room for all these calls, so the last one still waits in this process.
TEST(ShmClient, AnAnswerToACallThatWasNotSentBreaksTheConnection) {
  LyingServer server;
  ShmFabric client;
  Waiter welcomed;
  const Fd socket = server.Connect(&client, &welcomed);
  const WelcomePacket welcome{kMagic, ShmFabric::kVersion, 0};
  const auto rings = ShmMemory::Create("rings", kRingsBytes, ShmMemory::Sharing::kReadWrite, false);
  ASSERT_TRUE(rings.ok() && SendPacket(socket.get(), BytesOf(welcome), {rings->fd()}).ok());
  ASSERT_TRUE(welcomed.Await(&client).ok());
  constexpr uint32_t kCalls = ShmFabric::kReplyRingBytes / kMessageBytesMax + 2;
  std::vector<Waiter> calls(kCalls);
  for (Waiter& call : calls) client.Call(server.connection, AsBytes("call"), {}, kMessageBytesMax, INT64_MAX, &call);
  client.Poll();
  RingWriter replies(ControlAt(*rings, kReplyControl), rings->base() + kReplyRing, ShmFabric::kReplyRingBytes);
  ASSERT_NE(replies.Begin(8), nullptr);
  replies.End(8, uint64_t{1} << 32 | (kCalls - 1), 0);  // The id of the last call.
  replies.Publish();
  EXPECT_EQ(calls.back().Await(&client).code(), absl::StatusCode::kUnavailable);  // It was not sent.
  EXPECT_EQ(calls.front().Await(&client).code(), absl::StatusCode::kUnknown);     // It was sent.
}

TEST(ShmClient, IsToldOfAnotherVersionAndTakesNothingElseThanRings) {
  LyingServer server;
  ShmFabric client;
  const auto why = [&](const WelcomePacket& welcome, const std::vector<int>& fds) {
    Waiter connected;
    const Fd socket = server.Connect(&client, &connected);
    CELL_CHECK(SendPacket(socket.get(), BytesOf(welcome), fds).ok());
    return std::string(connected.Await(&client).message());
  };
  const auto rings = ShmMemory::Create("rings", kRingsBytes, ShmMemory::Sharing::kReadWrite, false);
  const auto small = ShmMemory::Create("small", 4096, ShmMemory::Sharing::kReadWrite, false);
  ASSERT_TRUE(rings.ok() && small.ok());
  const Fd other(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const WelcomePacket welcome{kMagic, ShmFabric::kVersion, 0};
  EXPECT_NE(why({kMagic, 2, 0}, {}).find("handshake version 2, this client 3"), std::string::npos);
  EXPECT_NE(why(welcome, {}).find("malformed"), std::string::npos);
  EXPECT_NE(why(welcome, {other.get()}).find("not memory"), std::string::npos);
  EXPECT_NE(why(welcome, {small->fd()}).find("too small"), std::string::npos);
  EXPECT_NE(why(welcome, {rings->fd(), rings->fd()}).find("unexpected descriptors"), std::string::npos);
  EXPECT_EQ(why(welcome, {rings->fd()}), "");
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

// However many silent peers there are, they leave descriptors for peers of another fabric.
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
