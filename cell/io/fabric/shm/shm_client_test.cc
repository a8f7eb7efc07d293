// Tests clients over shm against faulty servers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/io/fabric/shm/shm_stranger.h"
#include "cell/io/fabric/waiter.h"

namespace cell {
namespace {

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
  EXPECT_NE(why({kMagic, 2, 0}, {}).find("handshake version 2, this client 4"), std::string::npos);
  EXPECT_NE(why(welcome, {}).find("malformed"), std::string::npos);
  EXPECT_NE(why(welcome, {other.get()}).find("not memory"), std::string::npos);
  EXPECT_NE(why(welcome, {small->fd()}).find("too small"), std::string::npos);
  EXPECT_NE(why(welcome, {rings->fd(), rings->fd()}).find("unexpected descriptors"), std::string::npos);
  EXPECT_EQ(why(welcome, {rings->fd()}), "");
}

}  // namespace
}  // namespace cell
