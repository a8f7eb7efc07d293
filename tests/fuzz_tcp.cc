// libFuzzer: sends any bytes to a TCP fabric, at each point where a stranger or a peer can send them. The first byte
// chooses: instead of a handshake, after it (as calls, as reads), or from a server: instead of a handshake, or to a
// client that waits for answers. Nothing may crash, and a fabric that got invalid data must still serve others.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cell/io/fabric/tcp/tcp_connection.h"
#include "cell/io/fabric/tcp/tcp_fabric.h"
#include "cell/io/fabric/waiter.h"

namespace {

using namespace cell;

class Echo : public Service {
 public:
  explicit Echo(Fabric* fabric) : fabric_(fabric) {}
  void Serve(absl::Span<const IncomingCall> calls) override {
    for (const IncomingCall& call : calls) {
      const MutableBytes to = fabric_->BeginReply(call);
      if (to.size() < kReplyBytesMin) std::abort();
      const size_t bytes = std::min(to.size(), call.request.size());
      std::memcpy(to.data(), call.request.data(), bytes);
      fabric_->EndReply(call, bytes);
    }
  }
  void Disconnected(ConnectionId) override {}

 private:
  Fabric* fabric_;
};

// On a busy machine a fuzzer may stand still for longer than the usual limit for a stranger's greeting.
const Identity kFuzz{Role::kClient, "fuzz"};
constexpr int64_t kHandshakeNs = 3'600'000'000'000;

struct Server {
  TcpFabric fabric{{.huge_pages = false, .handshake_ns = kHandshakeNs}};
  Echo echo{&fabric};
  Server() {
    if (!fabric.CreateRegion(1, 1 << 16).ok() || !fabric.Listen("127.0.0.1:0", &echo).ok()) std::abort();
  }
};

// Ends the fuzzer, and says what failed.
[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::abort();
}

// Connects. libFuzzer's timer may interrupt a connect that waits; called again, it goes on waiting.
void ConnectTo(int socket, const SocketAddress& address) {
  while (::connect(socket, reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0) {
    if (errno == EISCONN) return;
    if (errno != EINTR && errno != EALREADY) Fail("connect");
  }
}

// Closes at once, without lingering, because a fuzzer makes many connections.
void CloseHard(int socket) {
  const linger hard{1, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
}

void SendAll(int socket, std::string_view bytes) { (void)!::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

// Receives answer->size() bytes. libFuzzer's timer may interrupt a system call, even one that has begun to receive.
bool ReceiveAll(int socket, std::string* answer) {
  for (size_t at = 0; at < answer->size();) {
    const ssize_t got = ::recv(socket, answer->data() + at, answer->size() - at, 0);
    if (got > 0) at += static_cast<size_t>(got);
    if (got == 0 || (got < 0 && errno != EINTR)) return false;
  }
  return true;
}

// Sends `bytes` as a client of `server`, after a greeting if there is a purpose.
void FeedServer(Server* server, std::optional<Purpose> purpose, std::string_view bytes) {
  const SocketAddress address = ResolveAddress(server->fabric.address())->front();
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ConnectTo(socket.get(), address);
  if (purpose.has_value()) {
    ClientHandshake handshake(nullptr, kFuzz, *purpose, {});
    std::string message = handshake.Hello();
    while (!handshake.done()) {
      SendAll(socket.get(), message);
      std::string answer(handshake.wants(), 0);
      if (!ReceiveAll(socket.get(), &answer)) Fail("the server closed a connection that greeted it well");
      message.clear();
      if (!handshake.Take(AsBytes(answer), &message).ok()) Fail("the server's greeting is wrong");
    }
  }
  SendAll(socket.get(), bytes);
  ::shutdown(socket.get(), SHUT_WR);
  char answers[4096];
  for (int i = 0; i < 10'000; ++i) {
    server->fabric.Poll();
    const ssize_t got = ::recv(socket.get(), answers, sizeof(answers), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) break;
  }
  CloseHard(socket.get());
  server->fabric.Poll();
}

class Counted : public Completion {
 public:
  void Done(const absl::Status&, ConstBytes) override { ++told; }
  int told = 0;
};

// Answers a client's greetings as a server, with the real answers modified by `bytes`.
void GreetClient(std::string_view bytes) {
  static const Fd listener = *ListenTcp("127.0.0.1:0");
  static const std::string address = BoundAddress(listener.get(), "127.0.0.1:0");
  Counted connected;
  {
    TcpFabric client;
    client.Connect(address, client.NowNs() + 10'000'000'000, &connected);
    std::vector<std::pair<Fd, ServerHandshake>> greeted;
    for (int polls = 0; polls < 50 && connected.told == 0; ++polls) {
      client.Poll();
      if (Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK)); socket.valid()) {
        CloseHard(socket.get());
        greeted.emplace_back(std::move(socket), ServerHandshake(nullptr, Nonce{}));
      }
      for (auto& [socket, handshake] : greeted) {
        std::string message(handshake.wants(), 0), answer;
        if (message.empty() || ::recv(socket.get(), message.data(), message.size(), 0) <= 0) continue;
        if (!handshake.Take(AsBytes(message), &answer).ok()) std::abort();
        for (size_t i = 0; i < std::min(answer.size(), bytes.size()); ++i) {
          answer[i] = static_cast<char>(answer[i] ^ bytes[i]);
        }
        bytes.remove_prefix(std::min(answer.size(), bytes.size()));
        SendAll(socket.get(), answer + std::string(bytes.substr(0, 100)));
      }
    }
  }
  if (connected.told != 1) std::abort();
}

// Answers a client's calls or reads as a server, with `bytes`.
void FeedClient(bool reads, std::string_view bytes) {
  static const Fd listener = *ListenTcp("127.0.0.1:0");
  static const std::string address = BoundAddress(listener.get(), "127.0.0.1:0");
  Counted connected, call, read;
  std::vector<std::pair<Fd, ServerHandshake>> greeted;
  alignas(8) std::byte to[64];
  {
    TcpFabric client;
    const ConnectionId connection = client.Connect(address, client.NowNs() + 10'000'000'000, &connected);
    while (connected.told == 0) {
      client.Poll();
      if (Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK)); socket.valid()) {
        CloseHard(socket.get());
        greeted.emplace_back(std::move(socket), ServerHandshake(nullptr, Nonce{}));
      }
      for (auto& [socket, handshake] : greeted) {
        std::string message(handshake.wants(), 0), answer;
        if (message.empty() || ::recv(socket.get(), message.data(), message.size(), 0) <= 0) continue;
        if (!handshake.Take(AsBytes(message), &answer).ok()) std::abort();
        SendAll(socket.get(), answer);
      }
    }
    const std::vector<ReadPart> parts = {{Pointer(1, 0), to, 32}, {Pointer(1, 64), to + 32, 32}};
    client.Read(connection, parts, client.NowNs() + 1'000'000'000, &read);
    client.Call(connection, AsBytes("x"), {}, kReplyBytesMin, client.NowNs() + 1'000'000'000, &call);
    client.Poll();
    for (auto& [socket, handshake] : greeted) {
      if ((handshake.purpose() == Purpose::kReads) == reads) SendAll(socket.get(), bytes);
    }
    for (int i = 0; i < 50; ++i) client.Poll();
  }
  if (connected.told != 1 || call.told != 1 || read.told != 1) std::abort();  // Each exactly once.
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Server* const server = new Server;  // Never destroyed: its thread would leave OpenSSL's memory of it behind.
  static uint64_t inputs = 0;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 7) {
    case 0:
      FeedServer(server, std::nullopt, bytes);
      break;
    case 1:
      FeedServer(server, Purpose::kCalls, bytes);
      break;
    case 2:
      FeedServer(server, Purpose::kReads, bytes);
      break;
    case 3: {  // A greeting with some bits changed.
      std::string hello = ClientHandshake(nullptr, kFuzz, Purpose::kCalls, {}).Hello();
      for (size_t i = 0; i < std::min(hello.size(), bytes.size()); ++i)
        hello[i] = static_cast<char>(hello[i] ^ bytes[i]);
      FeedServer(server, std::nullopt, hello + std::string(bytes));
      break;
    }
    case 6:
      GreetClient(bytes);
      break;
    default:
      FeedClient(data[0] % 7 == 4, bytes);
  }
  if (++inputs % 100 != 0) return 0;
  TcpFabric client;
  Counted connected, call;
  const ConnectionId connection = client.Connect(server->fabric.address(), client.NowNs() + 10'000'000'000, &connected);
  while (connected.told == 0) client.Poll(), server->fabric.Poll();
  client.Call(connection, AsBytes("x"), {}, kReplyBytesMin, client.NowNs() + 10'000'000'000, &call);
  while (call.told == 0) client.Poll(), server->fabric.Poll();
  return 0;
}
