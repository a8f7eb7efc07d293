// Tests a tcp fabric against arbitrary peers at its port, and its clients against a server that does not answer.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/random.h"
#include "cell/io/fabric/fabric_harness.h"
#include "cell/io/fabric/tcp/tcp_connection.h"
#include "cell/io/fabric/tcp/tcp_fabric.h"
#include "cell/io/fabric/waiter.h"
#include "cell/io/net/descriptors.h"
#include "cell/io/net/strangers.h"
#include "cell/io/net/tcp_socket.h"
#include "cell/io/net/test_credentials.h"

namespace cell {
namespace {

constexpr const char* kSecret = "a secret for this test";

template <typename T>
std::string Bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// Runs a server with strangers at its port. It must still serve after each test.
class TcpStrangerTest : public ::testing::Test {
 protected:
  void SetUp() override { StartServer({.huge_pages = false}); }
  void StartServer(const TcpFabricOptions& options) {
    StopServer();
    credentials_ = options.credentials;
    server_ = std::make_unique<TcpFabric>(options);
    service_ = std::make_unique<EchoService>(server_.get());
    memory_ = *server_->CreateRegion(1, kRegionBytes);
    for (uint64_t at = 0; at < kRegionBytes; at += 8) memory_->StoreWord(at, at);
    ASSERT_TRUE(server_->Listen("127.0.0.1:0", service_.get()).ok());
    RunServer();
  }
  void RunServer() {
    stop_ = false;
    thread_ = std::thread([this] {
      while (!stop_) {
        if (server_->Poll() == 0) server_->Wait(server_->NowNs() + 1'000'000);
      }
    });
  }
  void StopServer() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void TearDown() override {
    ExpectStillServing();
    StopServer();
  }
  void ExpectStillServing() {
    TcpFabric client({.credentials = credentials_});
    const auto connection = ConnectTo(&client, server_->address());
    ASSERT_TRUE(connection.ok()) << connection.status();
    Waiter call, read;
    client.Call(*connection, AsBytes("hello"), {}, kReplyBytesMin, client.NowNs() + 5'000'000'000, &call);
    ASSERT_TRUE(call.Await(&client).ok());
    EXPECT_EQ(call.reply(), "HELLO");
    uint64_t word = 0;
    const ReadPart part{Pointer(1, 800), reinterpret_cast<std::byte*>(&word), 8};
    client.Read(*connection, {&part, 1}, client.NowNs() + 5'000'000'000, &read);
    ASSERT_TRUE(read.Await(&client).ok());
    EXPECT_EQ(word, 800u);
  }

  // Returns a blocking socket, with a short buffer if `receive_buffer` is given.
  Fd Socket(int receive_buffer = 0, const char* from = "127.0.0.1") const {
    const SocketAddress address = ResolveAddress(server_->address())->front();
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (receive_buffer > 0) {
      ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    const timeval timeout{10, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    sockaddr_in own{};
    own.sin_family = AF_INET;
    ::inet_pton(AF_INET, from, &own.sin_addr);
    CELL_CHECK_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
    CELL_CHECK_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes), 0);
    return socket;
  }
  static bool Send(const Fd& socket, std::string_view bytes) {
    return ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // Returns all that comes until there are `bytes` bytes or the server closes.
  static std::string Receive(const Fd& socket, size_t bytes) {
    std::string all(bytes, 0);
    size_t have = 0;
    while (have < bytes) {
      const ssize_t got = ::recv(socket.get(), all.data() + have, bytes - have, 0);
      if (got <= 0) break;
      have += static_cast<size_t>(got);
    }
    return all.substr(0, have);
  }
  // Returns whether the server closes without sending anything.
  static bool Closed(const Fd& socket) {
    char byte;
    const ssize_t got = ::recv(socket.get(), &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }
  // Greets with the secret. Returns false if the server closes instead.
  static bool Greet(const Fd& socket, Purpose purpose, const Identity& who = kTester) {
    ClientHandshake handshake(nullptr, who, purpose, RandomNonce());
    std::string message = handshake.Hello();
    while (!handshake.done()) {
      if (!Send(socket, message)) return false;
      const std::string answer = Receive(socket, handshake.wants());
      message.clear();
      if (!handshake.Take(AsBytes(answer), &message).ok()) return false;
    }
    return true;
  }
  Fd Greeted(Purpose purpose, int receive_buffer = 0) const {
    Fd socket = Socket(receive_buffer);
    CELL_CHECK(Greet(socket, purpose));
    return socket;
  }
  // Returns the bytes of this process for which the kernel has allocated pages.
  static size_t PrivateBytes() {
    size_t total = 0, resident = 0, shared = 0;
    std::ifstream("/proc/self/statm") >> total >> resident >> shared;
    return (resident - shared) * 4096;
  }

  static constexpr uint64_t kRegionBytes = 1 << 20;
  std::shared_ptr<CredentialSource> credentials_;
  std::unique_ptr<TcpFabric> server_;
  std::unique_ptr<EchoService> service_;
  RegionMemory* memory_ = nullptr;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST_F(TcpStrangerTest, GarbageInsteadOfAHandshake) {
  const Fd socket = Socket();
  ASSERT_TRUE(Send(socket, "GET / HTTP/1.1\r\nHost: a-name-that-is-long-enough\r\n\r\n"));
  EXPECT_TRUE(Closed(socket));
}

TEST_F(TcpStrangerTest, AnotherVersionIsToldOurs) {
  const Fd socket = Socket();
  std::string hello = ClientHandshake(nullptr, kTester, Purpose::kCalls, RandomNonce()).Hello();
  hello[8] = 99;
  ASSERT_TRUE(Send(socket, hello));
  const std::string challenge = Receive(socket, 4096);
  ASSERT_GE(challenge.size(), sizeof(ChallengeMessage));
  EXPECT_EQ(Load<uint32_t>(AsBytes(challenge).data() + 8), kHandshakeVersion);
  EXPECT_TRUE(Closed(socket));
}

TEST_F(TcpStrangerTest, WithoutTheSecretNobodyComesIn) {
  StartServer({.huge_pages = false, .credentials = CredentialsOf(kSecret)});
  for (const auto& [credentials, hint] :
       {std::pair(CredentialsOf("another"), "--secret-file"),
        std::pair(std::shared_ptr<CredentialSource>(std::make_shared<FixedCredentials>()), "--secret-file")}) {
    TcpFabric client({.credentials = credentials});
    const absl::Status status = ConnectTo(&client, server_->address()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(std::string(status.message()).find(hint), std::string::npos) << status;
  }
  // These connections continue as if they had been accepted.
  for (const Purpose purpose : {Purpose::kCalls, Purpose::kReads}) {
    const Fd socket = Socket();
    ASSERT_TRUE(Send(socket, ClientHandshake(nullptr, kTester, purpose, RandomNonce()).Hello() + std::string(32, 'p') +
                                 Bytes(ReadRequest{0, Pointer(1, 0).raw(), 1024, 0})));
    EXPECT_EQ(Receive(socket, 4096), NeedsTlsAnswer());  // And not a byte of the region.
  }
  StopServer();
  EXPECT_EQ(server_->peers(), 0u);
  RunServer();
}

TEST_F(TcpStrangerTest, AClientWithASecretTrustsNoServerWithoutIt) {
  TcpFabric client({.credentials = CredentialsOf(kSecret)});
  const absl::Status status = ConnectTo(&client, server_->address()).status();
  EXPECT_NE(std::string(status.message()).find("without a secret"), std::string::npos) << status;
}

// Bytes that look like TLS and are none, at every length, and a whole greeting of TLS that goes on with nonsense.
TEST_F(TcpStrangerTest, NonsenseInsteadOfTls) {
  StartServer({.huge_pages = false, .credentials = CredentialsOf(kSecret)});
  Random random(5);
  for (int i = 0; i < 300; ++i) {
    const Fd socket = Socket();
    std::string bytes = i % 3 == 0 ? "" : std::string("\x16\x03\x01\x02\x00\x01", 6);
    for (uint64_t left = random.Below(600); left > 0; --left) bytes += static_cast<char>(random.Next());
    (void)Send(socket, bytes);
  }
}

// Each of these costs the server a key exchange. Reads of others go on between them.
TEST_F(TcpStrangerTest, AFloodOfTlsHandshakesKeepsNobodyOut) {
  StartServer({.huge_pages = false, .credentials = CredentialsOf(kSecret)});
  TcpFabric friendly({.credentials = CredentialsOf(kSecret)});
  const ConnectionId connection = *ConnectTo(&friendly, server_->address());
  const std::shared_ptr<const TlsContext> tls = CredentialsOf("another")->Current(0)->tls;
  for (int i = 0; i < 100; ++i) {
    const Fd socket = Socket();
    ASSERT_EQ(::fcntl(socket.get(), F_SETFL, O_NONBLOCK), 0);
    const auto session = tls->Connect(tls, socket.get(), kTester);
    (void)session->Handshake();
    std::array<std::byte, 8> word;
    Waiter read;
    friendly.Read(connection, {{Pointer(1, 8), word.data(), 8}}, INT64_MAX, &read);
    EXPECT_TRUE(read.Await(&friendly).ok());
    EXPECT_EQ(Load<uint64_t>(word.data()), 8u);
  }
}

TEST_F(TcpStrangerTest, TheHandshakeMayComeByteByByte) {
  const Fd socket = Socket();
  ClientHandshake handshake(nullptr, kTester, Purpose::kReads, RandomNonce());
  std::string message = handshake.Hello();
  while (!handshake.done()) {
    for (const char byte : message) ASSERT_TRUE(Send(socket, {&byte, 1}));
    const std::string answer = Receive(socket, handshake.wants());
    message.clear();
    ASSERT_TRUE(handshake.Take(AsBytes(answer), &message).ok());
  }
}

TEST_F(TcpStrangerTest, WhoDoesNotGreetIsSentAway) {
  StartServer({.huge_pages = false, .handshake_ns = 50'000'000});
  const Fd silent = Socket(), halfway = Socket();
  ASSERT_TRUE(Send(halfway, ClientHandshake(nullptr, kTester, Purpose::kCalls, RandomNonce()).Hello().substr(0, 20)));
  EXPECT_TRUE(Closed(silent));
  EXPECT_TRUE(Closed(halfway));
}

TEST_F(TcpStrangerTest, AFloodOfSilentConnectionsKeepsNobodyOut) {
  StartServer({.huge_pages = false,
               .credentials = CredentialsOf(kSecret),
               .handshake_ns = 600'000'000'000});  // They must not end by a timeout.
  std::vector<Fd> flood;
  for (size_t i = 0; i < GreetingMax() + 100; ++i) flood.push_back(Socket());
  EXPECT_TRUE(Closed(flood.front()));  // The oldest are disconnected.
  ExpectStillServing();
}

// There are few descriptors. However many silent connections there are, clients that greet get in, and by another
// fabric, too.
// The other host is another address of loopback.
TEST_F(TcpStrangerTest, AFloodFromOneHostClosesNoConnectionOfAnother) {
  const Fd slow = Socket();
  std::vector<Fd> flood;
  for (int i = 0; i < 400; ++i) {  // More than are kept.
    flood.push_back(Socket(0, "127.0.0.2"));
    if (i % 50 == 0) ExpectStillServing();
  }
  EXPECT_TRUE(Closed(flood.front()));
  EXPECT_TRUE(Greet(slow, Purpose::kReads));  // It came first, and would be the oldest.
}

TEST_F(TcpStrangerTest, SilentOnesTakeAShareOfTheDescriptors) {
  StartServer({.huge_pages = false, .handshake_ns = 600'000'000'000});
  const FewDescriptors few(250);
  std::vector<Fd> flood;
  flood.reserve(110);
  for (int i = 0; i < 110; ++i) flood.push_back(Socket());
  for (int i = 0; i < 110 - FewDescriptors::kLimit / 8; ++i) EXPECT_TRUE(Closed(flood[static_cast<size_t>(i)])) << i;
  ExpectStillServing();
}

TEST_F(TcpStrangerTest, WithoutDescriptorsTheOldestSilentOnesLeave) {
  StartServer({.huge_pages = false, .handshake_ns = 600'000'000'000});
  std::vector<Fd> silent, greeted;
  for (int i = 0; i < 3; ++i) silent.push_back(Socket());
  greeted.push_back(Greeted(Purpose::kReads));  // All earlier connections have been accepted by now.
  const FewDescriptors few(0);
  for (int i = 0; i < 2; ++i) greeted.push_back(Greeted(Purpose::kReads));
  EXPECT_TRUE(Closed(silent[0]));
  EXPECT_TRUE(Closed(silent[1]));
  char byte;
  EXPECT_LT(::recv(silent[2].get(), &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_EQ(errno, EAGAIN);
}

// A slot is free again when its connection has gone, and then goes to the next one.
TEST_F(TcpStrangerTest, AsManyReadAsMay) {
  StartServer({.huge_pages = false, .peers_max = 2});
  for (int round = 0; round < 4; ++round) {
    const Fd first = Socket(), second = Socket(), third = Socket();
    EXPECT_TRUE(Greet(first, Purpose::kReads));
    EXPECT_TRUE(Greet(second, Purpose::kReads));
    EXPECT_FALSE(Greet(third, Purpose::kReads));
  }
  for (int round = 0; round < 4; ++round) {  // Nor do more users find room.
    const Fd first = Socket(), second = Socket(), third = Socket();
    EXPECT_TRUE(Greet(first, Purpose::kReads, {Role::kClient, "a"}));
    EXPECT_TRUE(Greet(second, Purpose::kReads, {Role::kServer, "b"}));
    EXPECT_FALSE(Greet(third, Purpose::kReads, {Role::kClient, "c"}));
  }
}

TEST_F(TcpStrangerTest, AsManyCallAsMay) {
  StartServer({.huge_pages = false, .peers_max = 2});
  const Fd first = Socket(), second = Socket(), third = Socket();
  EXPECT_TRUE(Greet(first, Purpose::kCalls, {Role::kClient, "a"}));
  EXPECT_TRUE(Greet(second, Purpose::kCalls, {Role::kServer, "b"}));
  EXPECT_TRUE(Greet(third, Purpose::kCalls, {Role::kClient, "c"}));  // The worker refuses it, which comes after that.
  EXPECT_TRUE(Closed(third));
  StartServer({.huge_pages = false});  // One with room again.
}

TEST_F(TcpStrangerTest, WhoComesBackIsNotCountedTwice) {
  StartServer({.huge_pages = false, .peers_max = 16});  // Of which one user may have eight.
  for (int i = 0; i < 20; ++i) {
    const Fd socket = Greeted(Purpose::kCalls);
    ASSERT_TRUE(Send(socket, Bytes(CallFrame{5, kReplyBytesMin, 1}) + "hello"));
    ASSERT_EQ(Receive(socket, sizeof(CallFrame) + 5).size(), sizeof(CallFrame) + 5) << i;
  }
}

TEST_F(TcpStrangerTest, CannotFillTheLog) {
  const LogLines lines;
  for (int i = 0; i < 100; ++i) {
    const Fd socket = Greeted(Purpose::kCalls);
    ASSERT_TRUE(Send(socket, Bytes(CallFrame{0xffffffff, 4096, 1})));
    EXPECT_TRUE(Closed(socket));
  }
  ExpectStillServing();
  EXPECT_TRUE(lines.AreFew());
}

TEST_F(TcpStrangerTest, LengthsThatLie) {
  for (const CallFrame& frame :
       {CallFrame{kMessageBytesMax + 1, 4096, 1}, CallFrame{0xffffffff, 4096, 1}, CallFrame{16, 0, 1},
        CallFrame{16, kMessageBytesMax + 1, 1}, CallFrame{16, 0xffffffff, 1}}) {
    const Fd socket = Greeted(Purpose::kCalls);
    ASSERT_TRUE(Send(socket, Bytes(frame) + std::string(16, 'x')));
    EXPECT_TRUE(Closed(socket)) << frame.bytes << " " << frame.reply_bytes_max;
  }
}

TEST_F(TcpStrangerTest, APeerThatStopsMidMessageDisturbsNobody) {
  const Fd stopped = Greeted(Purpose::kCalls);
  ASSERT_TRUE(Send(stopped, Bytes(CallFrame{50'000, 4096, 1}) + std::string(20'000, 'x')));
  const Fd reading = Greeted(Purpose::kReads);
  ASSERT_TRUE(Send(reading, Bytes(ReadRequest{0, Pointer(1, 0).raw(), 64, 0}).substr(0, 11)));
  ExpectStillServing();
  ASSERT_TRUE(Send(stopped, std::string(30'000, 'y')));  // This connection continues, and gets its answer.
  const std::string answer = Receive(stopped, sizeof(CallFrame) + 4096);
  ASSERT_EQ(answer.size(), sizeof(CallFrame) + 4096);
  EXPECT_EQ(answer.back(), 'X');
}

TEST_F(TcpStrangerTest, AReadOutsideIsRefusedAndTheNextOneServed) {
  const Fd socket = Greeted(Purpose::kReads);
  std::string requests;
  const std::vector<std::pair<uint64_t, uint32_t>> outside = {{Pointer(2, 0).raw(), 8},
                                                              {Pointer(1, kRegionBytes - 8).raw(), 16},
                                                              {Pointer(1, kRegionBytes).raw(), 0xfffffff8},
                                                              {Pointer(1, Pointer::kOffsetMax - 7).raw(), 64},
                                                              {Pointer(1, 4).raw(), 8},
                                                              {Pointer(1, 0).raw(), 4},
                                                              {0, 0xffffffff}};
  for (const auto& [pointer, bytes] : outside) requests += Bytes(ReadRequest{5, pointer, bytes, 0});
  requests += Bytes(ReadRequest{6, Pointer(1, kRegionBytes - 8).raw(), 8, 0});
  ASSERT_TRUE(Send(socket, requests));
  for (size_t i = 0; i < outside.size(); ++i) {
    const auto answer = Load<ReadAnswer>(AsBytes(Receive(socket, sizeof(ReadAnswer))).data());
    EXPECT_EQ(answer.id, 5u);
    EXPECT_EQ(answer.code, kReadOutside);
    EXPECT_EQ(answer.bytes, 0u);
  }
  const auto answer = Load<ReadAnswer>(AsBytes(Receive(socket, sizeof(ReadAnswer))).data());
  EXPECT_EQ(answer.id, 6u);
  EXPECT_EQ(answer.code, kReadOk);
  EXPECT_EQ(Load<uint64_t>(AsBytes(Receive(socket, 8)).data()), kRegionBytes - 8);
}

// The client requests much and takes nothing. The server keeps kOutBytesMax for it, serves others, and later sends
// everything.
TEST_F(TcpStrangerTest, ASlowReaderOfOneSidedReads) {
  const Fd socket = Greeted(Purpose::kReads, 4096);
  constexpr size_t kReads = 60;
  for (size_t i = 0; i < kReads; ++i) {
    ASSERT_TRUE(Send(socket, Bytes(ReadRequest{i, Pointer(1, 0).raw(), kRegionBytes, 0})));
  }
  const size_t before = PrivateBytes();
  ExpectStillServing();
  ExpectStillServing();  // By now the listener's thread has done all that it will do for a client that takes nothing.
  EXPECT_LT(PrivateBytes(), before + kReads * kRegionBytes / 4);  // Sanitizers keep freed memory.
  for (size_t i = 0; i < kReads; ++i) {
    const std::string answer = Receive(socket, sizeof(ReadAnswer) + kRegionBytes);
    ASSERT_EQ(answer.size(), sizeof(ReadAnswer) + kRegionBytes);
    ASSERT_EQ(Load<ReadAnswer>(AsBytes(answer).data()).id, i);
    ASSERT_EQ(Load<uint64_t>(AsBytes(answer).data() + answer.size() - 8), kRegionBytes - 8);
  }
}

TEST_F(TcpStrangerTest, ASlowReaderOfReplies) {
  const Fd socket = Greeted(Purpose::kCalls, 4096);
  const std::string call = Bytes(CallFrame{60'000, kMessageBytesMax, 3}) + std::string(60'000, 'q');
  // Send until the server takes no more: both the server and the sockets hold a bounded amount.
  size_t sent = 0;
  for (int idle = 0; idle < 200;) {
    const std::string_view rest = std::string_view(call).substr(sent % call.size());
    const ssize_t some = ::send(socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (some > 0) {
      sent += static_cast<size_t>(some);
      idle = 0;
    } else {
      ++idle;
      ::usleep(1000);
    }
    ASSERT_LT(sent, size_t{64} << 20);
  }
  ExpectStillServing();
  // The client takes the replies after all.
  for (size_t i = 0; i < sent / call.size(); ++i) {
    const std::string reply = Receive(socket, sizeof(CallFrame) + 60'000);
    ASSERT_EQ(reply.size(), sizeof(CallFrame) + 60'000);
    ASSERT_EQ(reply.back(), 'Q');
  }
}

TEST_F(TcpStrangerTest, RandomBytesAfterTheHandshake) {
  Random random(6);
  for (int i = 0; i < 60; ++i) {
    const Fd socket = Greeted(i % 2 == 0 ? Purpose::kCalls : Purpose::kReads);
    std::string bytes;
    while (bytes.size() < 3000) bytes += Bytes(random.Below(3) == 0 ? random.Next() : random.Below(70'000));
    (void)Send(socket, bytes);
  }
}

TEST_F(TcpStrangerTest, AServerOutOfDescriptorsRecovers) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<Fd> waiting;
  waiting.reserve(20);
  for (int i = 0; i < 20; ++i) {
    waiting.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const SocketAddress address = ResolveAddress(server_->address())->front();
  for (const Fd& socket : waiting) {
    ASSERT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes), 0);
  }
  ::usleep(50'000);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ExpectStillServing();
}

// Greets, and otherwise answers only what a test tells it to.
class MuteServer {
 public:
  ConnectionId Connect(TcpFabric* client) {
    Waiter connected;
    const ConnectionId connection =
        client->Connect(BoundAddress(listener_.get(), "127.0.0.1:0"), client->NowNs() + 10'000'000'000, &connected);
    while (!connected.done()) {
      client->Poll();
      if (Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK)); socket.valid()) {
        greeted_.emplace_back(std::move(socket), ServerHandshake(nullptr, RandomNonce()));
      }
      for (auto& [socket, handshake] : greeted_) {
        std::string message(handshake.wants(), 0), answer;
        if (message.empty() || ::recv(socket.get(), message.data(), message.size(), 0) <= 0) continue;
        CELL_CHECK(handshake.Take(AsBytes(message), &answer).ok());
        Send(socket, answer);
      }
    }
    CELL_CHECK(connected.status().ok());
    return connection;
  }
  void AnswerReads(const std::string& bytes) {
    for (auto& [socket, handshake] : greeted_) {
      if (handshake.purpose() == Purpose::kReads) Send(socket, bytes);
    }
  }
  void Leave() { greeted_.clear(); }

 private:
  static void Send(const Fd& socket, const std::string& bytes) {
    CELL_CHECK_EQ(::send(socket.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }

  const Fd listener_ = *ListenTcp("127.0.0.1:0");
  std::vector<std::pair<Fd, ServerHandshake>> greeted_;
};

// The server's reader is stopped, and so are all answers. The client must not wait forever.
TEST(TcpFabric, AServerThatAnswersNoReadsIsGone) {
  MuteServer server;
  TcpFabric client({.read_timeout_ns = 20'000'000});
  const ConnectionId connection = server.Connect(&client);
  Waiter read;
  alignas(8) std::byte to[8];
  const ReadPart part{Pointer(1, 0), to, 8};
  client.Read(connection, {&part, 1}, INT64_MAX, &read);
  EXPECT_EQ(read.Await(&client).code(), absl::StatusCode::kUnavailable);
}

TEST(TcpFabric, AReadPastItsDeadlineEndsAndItsAnswerIsDropped) {
  MuteServer server;
  TcpFabric client;
  const ConnectionId connection = server.Connect(&client);
  Waiter late, patient;
  uint64_t of_late[3] = {77, 77, 77}, of_patient = 0;
  const auto part = [](uint64_t* to, uint32_t bytes) {
    return ReadPart{Pointer(1, 0), reinterpret_cast<std::byte*>(to), bytes};
  };
  const ReadPart parts[] = {part(of_late, 8), part(of_late + 1, 16)};
  const int64_t deadline_ns = client.NowNs() + 20'000'000;
  client.Read(connection, parts, deadline_ns, &late);
  const ReadPart last = part(&of_patient, 8);
  client.Read(connection, {&last, 1}, INT64_MAX, &patient);
  const auto answer = [](uint64_t id, uint32_t bytes) { return Bytes(ReadAnswer{id, bytes, kReadOk}); };
  // The first part, and half of the second: bytes that have begun to come are dropped like the others.
  server.AnswerReads(answer(0, 8) + Bytes(uint64_t{1}) + answer(1, 16) + Bytes(uint64_t{2}));
  EXPECT_EQ(late.AwaitDeadline(&client, deadline_ns).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(patient.done());
  server.AnswerReads(Bytes(uint64_t{3}) + answer(2, 8) + Bytes(uint64_t{4}));
  EXPECT_TRUE(patient.Await(&client).ok());
  EXPECT_EQ(of_patient, 4u);
  EXPECT_EQ(of_late[2], 77u);
}

// The conformance tests do this, too, but with a listener that answers reads and connects.
TEST(TcpFabric, ADeadlineCountsWhenAnEarlierOneHasPassed) {
  MuteServer server;
  const Fd silent = *ListenTcp("127.0.0.1:0");
  TcpFabric client;
  const ConnectionId connection = server.Connect(&client);
  alignas(8) std::byte to[8];
  const ReadPart part{Pointer(1, 0), to, 8};
  for (const bool connects : {false, true}) {
    Waiter early, late;
    const int64_t early_ns = client.NowNs() + 20'000'000, late_ns = early_ns + 20'000'000;
    client.Call(connection, AsBytes("call"), {}, kReplyBytesMin, early_ns, &early);
    if (connects) {
      client.Connect(BoundAddress(silent.get(), "127.0.0.1:0"), late_ns, &late);
    } else {
      client.Read(connection, {&part, 1}, late_ns, &late);
    }
    early.AwaitDeadline(&client, early_ns);
    EXPECT_EQ(late.AwaitDeadline(&client, late_ns).code(),
              connects ? absl::StatusCode::kUnavailable : absl::StatusCode::kDeadlineExceeded);
  }
}

// The server cannot have served a call that never left this process.
TEST(TcpFabric, ACallThatWasNotSentBeforeTheConnectionBrokeIsUnavailable) {
  MuteServer server;
  TcpFabric client;
  const ConnectionId connection = server.Connect(&client);
  Waiter sent, not_sent;
  client.Call(connection, AsBytes("call"), {}, kReplyBytesMin, INT64_MAX, &sent);
  client.Poll();  // Sends it.
  client.Call(connection, AsBytes("call"), {}, kReplyBytesMin, INT64_MAX, &not_sent);
  server.Leave();
  while (!client.HasWork()) {
  }
  EXPECT_EQ(sent.Await(&client).code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(not_sent.Await(&client).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cell
