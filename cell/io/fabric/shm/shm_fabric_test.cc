#include "cell/io/fabric/shm/shm_fabric.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <random>
#include <thread>

#include "cell/base/check.h"
#include "cell/base/random.h"
#include "cell/io/fabric/event_loop_conformance.h"
#include "cell/io/fabric/fabric_conformance.h"
#include "cell/io/fabric/shm/shm_ring.h"
#include "cell/io/memory/shm_memory.h"
#include "cell/io/net/unix_socket.h"

namespace cell {
namespace {

std::string TempPath(const std::string& name) {
  static const unsigned process = std::random_device()();  // Tests in sandboxes share /tmp, and have the same ids.
  static std::atomic<int> counter = 0;
  return fmt::format("/tmp/cell-test-{:08x}-{}-{}", process, counter++, name);
}

class ShmHarness : public ThreadsHarness {
 public:
  explicit ShmHarness(ShmFabricOptions options) : options_(options) {}
  std::unique_ptr<Fabric> NewEndpoint() override { return std::make_unique<ShmFabric>(options_); }
  std::string Address(int n) override { return base_ + std::to_string(n); }

 private:
  const ShmFabricOptions options_;
  const std::string base_ = TempPath("s");
};

INSTANTIATE_TEST_SUITE_P(ShmAdaptive, FabricConformance, ::testing::Values(MakeHarness([] {
                           return std::make_unique<ShmHarness>(ShmFabricOptions{.huge_pages = false});
                         })));
INSTANTIATE_TEST_SUITE_P(ShmBusy, FabricConformance, ::testing::Values(MakeHarness([] {
                           return std::make_unique<ShmHarness>(
                               ShmFabricOptions{.polling = Polling::kBusy, .huge_pages = false});
                         })));

// The file is closed to others from its first moment on, whatever the umask is.
TEST(ShmFabric, TheSocketIsThisUsersAlone) {
  for (const mode_t umask : {0, 077}) {
    const mode_t umask_before = ::umask(umask);
    for (const std::optional<gid_t> group : {std::optional<gid_t>(), std::optional(::getegid())}) {
      const std::string path = TempPath("mode");
      ShmFabric server(ShmFabricOptions{.huge_pages = false, .group = group});
      EchoService service(&server);
      ASSERT_TRUE(server.Listen(path, &service).ok());
      struct stat info;
      ASSERT_EQ(::stat(path.c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 0777u, group.has_value() ? 0660u : 0600u);
      EXPECT_EQ(info.st_gid, ::getegid());
    }
    ::umask(umask_before);
  }
}

// However many connect, the worker has time for requests between the connections that it accepts.
TEST(ShmFabric, RequestsAreServedBetweenAcceptedConnections) {
  const std::string path = TempPath("rest");
  constexpr int64_t kHourNs = 3'600'000'000'000;
  ShmFabric server(ShmFabricOptions{.huge_pages = false, .accept_rest_ns = kHourNs});
  EchoService service(&server);
  ASSERT_TRUE(server.Listen(path, &service).ok());
  constexpr int kConnections = 2 * ShmFabric::kAcceptsAtOnce;
  Waiter connected[kConnections], answer;  // The client tells those that still wait when it ends.
  ShmFabric client(ShmFabricOptions{.huge_pages = false});
  ConnectionId connections[kConnections];
  for (int i = 0; i < kConnections; ++i) connections[i] = client.Connect(path, INT64_MAX, &connected[i]);
  const auto poll = [&] {
    server.Poll();
    client.Poll();
  };
  while (!connected[0].done()) poll();
  client.Call(connections[0], AsBytes("hello"), {}, kReplyBytesMin, INT64_MAX, &answer);
  for (int i = 0; i < 10'000 || !answer.done(); ++i) poll();
  EXPECT_EQ(answer.reply(), "HELLO");
  for (int i = 0; i < kConnections; ++i) EXPECT_EQ(connected[i].done(), i < ShmFabric::kAcceptsAtOnce) << i;
  EXPECT_LE(server.NextDeadlineNs(), server.NowNs() + kHourNs);  // It does not sleep for longer.
}

TEST(ShmMemory, WhoGetsTheDescriptorCanOnlyRead) {
  const auto shm = ShmMemory::Create("test", 8192, ShmMemory::Sharing::kReadOnly, false);
  ASSERT_TRUE(shm.ok());
  shm->base()[0] = std::byte{1};
  EXPECT_EQ(::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, shm->fd(), 0), MAP_FAILED);
  EXPECT_NE(::ftruncate(shm->fd(), 0), 0);
  EXPECT_NE(::write(shm->fd(), "x", 1), 1);
  const auto mapped = ShmMemory::Map(Fd(::dup(shm->fd())), 8192, ShmMemory::Sharing::kReadOnly);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(mapped->base()[0], std::byte{1});
}

TEST(ShmMemory, RefusesToMapWhatCouldShrinkOrIsTooSmall) {
  const int loose = ::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(loose, 8192), 0);
  EXPECT_EQ(ShmMemory::Map(Fd(loose), 8192, ShmMemory::Sharing::kReadOnly).status().code(),
            absl::StatusCode::kDataLoss);
  const auto small = ShmMemory::Create("small", 4096, ShmMemory::Sharing::kReadOnly, false);
  EXPECT_EQ(ShmMemory::Map(Fd(::dup(small->fd())), 8192, ShmMemory::Sharing::kReadOnly).status().code(),
            absl::StatusCode::kDataLoss);
}

class RingTest : public ::testing::Test {
 protected:
  static constexpr size_t kCapacity = 4096;
  alignas(64) RingControl control_{};
  alignas(16) std::byte bytes_[kCapacity] = {};
  RingWriter writer_{&control_, bytes_, kCapacity};
  RingReader reader_{&control_, bytes_, kCapacity, 1024};
};

TEST_F(RingTest, MessagesComeInOrderThroughManyWraps) {
  Random random(3);
  uint64_t sent = 0, received = 0;
  while (received < 100'000) {
    const size_t bytes = random.Below(1000);
    if (std::byte* to = writer_.Begin(bytes)) {
      std::memset(to, static_cast<int>(sent), bytes);
      writer_.End(bytes, sent++, 0);
      writer_.Publish();
    }
    if (random.Below(2) == 0) continue;
    while (const auto message = reader_.Next()) {
      ASSERT_EQ(message->frame.id, received);
      for (size_t i = 0; i < message->frame.bytes; ++i) ASSERT_EQ(message->bytes[i], static_cast<std::byte>(received));
      ++received;
    }
    ASSERT_FALSE(reader_.damaged());
    reader_.Release();
  }
}

TEST_F(RingTest, AFullRingTakesNoMore) {
  int taken = 0;
  while (writer_.Begin(1000) != nullptr) {
    writer_.End(1000, 0, 0);
    ++taken;
  }
  EXPECT_EQ(taken, 4);
}

// The other side may write anything: positions, sizes, wrap marks.
TEST_F(RingTest, NonsenseIsDamageAndReadsNothingOutOfBounds) {
  for (const auto& [written, frame_bytes] : std::vector<std::pair<uint64_t, uint32_t>>{{8, 0},
                                                                                       {kCapacity + 16, 0},
                                                                                       {~uint64_t{0}, 0},
                                                                                       {32, 1025},
                                                                                       {2048, 1500},
                                                                                       {32, 17},
                                                                                       {4096, 0x7fffffff},
                                                                                       {16, kWrap}}) {
    RingReader reader(&control_, bytes_, kCapacity, 1024);
    Store(bytes_, RingFrame{frame_bytes, 0, 0});
    control_.written = written;
    EXPECT_FALSE(reader.Next().has_value());
    EXPECT_TRUE(reader.damaged()) << written << " " << frame_bytes;
  }
  Random random(5);
  for (int i = 0; i < 200'000; ++i) {
    RingReader reader(&control_, bytes_, kCapacity, 1024);
    for (int j = 0; j < 8; ++j)
      Store(bytes_ + random.Below(16) * 16, RingFrame{static_cast<uint32_t>(random.Below(2000)), 0, 0});
    control_.written = random.Below(6000);
    while (const auto message = reader.Next()) {
      ASSERT_GE(message->bytes, bytes_);
      ASSERT_LE(message->bytes + message->frame.bytes, bytes_ + kCapacity);
    }
  }
}

TEST_F(RingTest, AReaderThatLiesAboutItsPositionGetsNoMoreRoom) {
  control_.consumed = 1 << 20;
  for (int i = 0; i < 4; ++i) {
    ASSERT_NE(writer_.Begin(1000), nullptr);
    writer_.End(1000, 0, 0);
  }
  EXPECT_EQ(writer_.Begin(1000), nullptr);
}

// Calls that are made while replies are taken are sent at once, and the server answers while the client still takes
// replies. It must find room for each answer.
TEST(ShmFabric, AServerAsFastAsCanBeFindsRoomForItsAnswers) {
  struct Answers : Service {
    explicit Answers(Fabric* fabric) : fabric(fabric) {}
    void Serve(absl::Span<const IncomingCall> calls) override {
      for (const IncomingCall& call : calls) {
        (void)fabric->BeginReply(call);
        fabric->EndReply(call, call.reply_bytes_max);
      }
    }
    void Disconnected(ConnectionId) override {}
    Fabric* fabric;
  };
  struct Caller : Completion {
    void Done(const absl::Status& status, ConstBytes) override {
      CELL_CHECK(status.ok());
      ++answered;
      if (answered < 10'000) client->Call(connection, AsBytes(request), {}, 4128, INT64_MAX, this);
      server->Poll();
    }
    Fabric *client = nullptr, *server = nullptr;
    ConnectionId connection = 0;
    std::string request = "12345678";
    int answered = 0;
  };
  ShmFabric server({.huge_pages = false}), client;
  Answers answers(&server);
  const std::string address = TempPath("fast");
  ASSERT_TRUE(server.Listen(address, &answers).ok());
  struct Connected : Completion {
    void Done(const absl::Status& status, ConstBytes) override { ok = status.ok(); }
    bool ok = false;
  } connected;
  Caller caller;
  caller.client = &client;
  caller.server = &server;
  caller.connection = client.Connect(address, INT64_MAX, &connected);
  while (!connected.ok) server.Poll(), client.Poll();
  for (int i = 0; i < 64; ++i) client.Call(caller.connection, AsBytes(caller.request), {}, 4128, INT64_MAX, &caller);
  while (caller.answered < 10'000) server.Poll(), client.Poll();
}

// Wake comes when Wait has looked for it for the last time and is about to sleep. Nothing else would end the Wait.
TEST(ShmFabric, AWakeAtTheLastMomentEndsTheWait) {
  struct WokenLate : ShmFabric {
    bool BeginSleep() override {
      Wake();
      return ShmFabric::BeginSleep();
    }
  } fabric;
  const int64_t until_ns = fabric.NowNs() + 10'000'000'000;
  fabric.Wait(until_ns);
  EXPECT_LT(fabric.NowNs(), until_ns);
}

// A worker waits for times that are fractions of a millisecond away. A machine that is busy may wake it late now and
// then, and does not do so each time.
TEST(ShmFabric, AWaitEndsWithinAMillisecondOfItsTime) {
  ShmFabric fabric(ShmFabricOptions{.huge_pages = false});
  int64_t least_ns = INT64_MAX;
  for (int i = 0; i < 100; ++i) {
    const int64_t begun_ns = fabric.NowNs();
    while (fabric.NowNs() < begun_ns + 200'000) fabric.Wait(begun_ns + 200'000);
    least_ns = std::min(least_ns, fabric.NowNs() - begun_ns);
  }
  EXPECT_LT(least_ns, 600'000);
}

// Two silent peers take both slots. They are disconnected, and then there is room.
TEST(ShmFabric, WhoDoesNotGreetIsSentAway) {
  const std::string path = TempPath("silent");
  ShmFabric server(ShmFabricOptions{.huge_pages = false, .peers_max = 2, .handshake_ns = 50'000'000});
  EchoService service(&server);
  ASSERT_TRUE(server.Listen(path, &service).ok());
  const Fd first = *ConnectUnix(path), second = *ConnectUnix(path);
  const auto closed = [](const Fd& socket) {
    char byte;
    return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
  };
  for (int i = 0; i < 10'000 && !(closed(first) && closed(second)); ++i) {
    if (server.Poll() == 0) server.Wait(server.NowNs() + 1'000'000);
  }
  EXPECT_TRUE(closed(first) && closed(second));
  ShmFabric client;
  Waiter connected;
  client.Connect(path, client.NowNs() + 5'000'000'000, &connected);
  for (int i = 0; i < 10'000 && !connected.done(); ++i) {
    server.Poll();
    client.Poll();
  }
  EXPECT_TRUE(connected.done());
  EXPECT_EQ(server.peers(), 1u);
}

// Without descriptors nobody is accepted. Clients that wait meanwhile are accepted once there are some.
TEST(ShmFabric, AServerOutOfDescriptorsRecovers) {
  const std::string path = TempPath("descriptors");
  ShmFabric server(ShmFabricOptions{.huge_pages = false});
  EchoService service(&server);
  ASSERT_TRUE(server.Listen(path, &service).ok());
  ShmFabric client;
  Waiter connected;
  client.Connect(path, client.NowNs() + 20'000'000'000, &connected);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int i = 0; i < 20; ++i) server.Wait(server.NowNs() + 1'000'000);
  EXPECT_EQ(server.peers(), 0u);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  for (int i = 0; i < 10'000 && !connected.done(); ++i) {
    if (server.Poll() == 0) server.Wait(server.NowNs() + 1'000'000);
    client.Poll();
  }
  EXPECT_TRUE(connected.done());
  EXPECT_EQ(server.peers(), 1u);
}

}  // namespace
}  // namespace cell
