// libFuzzer: sends any packets, descriptors and ring contents to a shm fabric, from a stranger, a client and a server.
// The first byte chooses: packets instead of a greeting, a client that has greeted, a server that answers a greeting,
// or one whose client has reads and calls in flight. Nothing may crash or hang, and a fabric that got invalid data must
// still serve others.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "cell/io/fabric/fabric_harness.h"
#include "cell/io/fabric/shm/shm_connection.h"
#include "spdlog/spdlog.h"

namespace {

using namespace cell;

// The rest of the input.
class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  template <typename T>
  T Take() {
    T value{};
    const size_t taken = std::min(sizeof(T), bytes_.size());
    std::memcpy(&value, bytes_.data(), taken);
    bytes_.remove_prefix(taken);
    return value;
  }
  std::string_view TakeBytes(size_t most) {
    const std::string_view taken = bytes_.substr(0, most);
    bytes_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view bytes_;
};

std::string Path(const char* name) { return fmt::format("/tmp/fuzz-shm-{}-{}", ::getpid(), name); }

// Returns a descriptor of some kind, with or without the properties that a fabric requires.
Fd Descriptor(uint8_t kind) {
  const uint64_t bytes = uint64_t{4096} << (kind >> 4);
  switch (kind % 6) {
    case 0:
      return Fd(::eventfd(kind >> 4, EFD_CLOEXEC | EFD_NONBLOCK));
    case 1:
      return Fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
    case 2:
      return Fd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    default: {
      Fd memory(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      if (kind % 6 < 5 && ::ftruncate(memory.get(), static_cast<off_t>(kind % 6 == 3 ? kRingsBytes : bytes)) != 0)
        std::abort();
      if (kind % 2 == 1) (void)::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
      return memory;
    }
  }
}

void SendAny(int socket, std::string_view bytes, Input* in) {
  std::vector<Fd> fds;
  std::vector<int> numbers;
  for (uint8_t left = in->Take<uint8_t>() % 8; left > 0; --left) {
    fds.push_back(Descriptor(in->Take<uint8_t>()));
    numbers.push_back(fds.back().get());
  }
  (void)SendPacket(socket, AsBytes(bytes), numbers);
}

// Writes input into a ring that the other side reads, and into its control words.
void Scribble(const ShmMemory& rings, size_t control, size_t ring, size_t capacity, Input* in) {
  RingControl* const words = ControlAt(rings, control);
  for (uint8_t left = in->Take<uint8_t>() % 8; left > 0; --left) {
    const RingFrame frame{in->Take<uint32_t>(), in->Take<uint32_t>(), in->Take<uint64_t>()};
    const size_t at = in->Take<uint16_t>() % (capacity / kFrameAlign) * kFrameAlign;
    Store(rings.base() + ring + at, frame);
  }
  words->written = in->Take<uint32_t>();
  if (in->Take<uint8_t>() % 4 == 0) words->consumed = in->Take<uint64_t>();
  if (in->Take<uint8_t>() % 4 == 0) words->sleeping = in->Take<uint32_t>();
}

struct Server {
  ShmFabric fabric{{.huge_pages = false, .accept_rest_ns = 0}};
  EchoService echo{&fabric};
  const std::string path = Path("server");
  Server() {
    spdlog::set_level(spdlog::level::off);
    if (!fabric.CreateRegion(1, 1 << 16).ok() || !fabric.Listen(path, &echo).ok()) std::abort();
  }
  void Poll() {
    for (int i = 0; i < 3; ++i) {
      fabric.Poll();
      fabric.AfterWait();  // Makes it look at its sockets.
    }
  }
};

void FeedServer(Server* server, bool greeted, Input in) {
  absl::StatusOr<Fd> connected = ConnectUnix(server->path);
  if (!connected.ok()) std::abort();
  PeerSocket socket(*std::move(connected), std::make_shared<Closer>());
  ShmMemory rings;
  if (greeted) {
    const Hello hello = HelloOf({Role::kClient, "fuzz"});
    (void)SendPacket(socket.get(), {reinterpret_cast<const std::byte*>(&hello), sizeof(hello)}, {});
    server->Poll();
    absl::StatusOr<Packet> welcome = socket.Receive(sizeof(WelcomePacket), PeerSocket::Takes::kMemory);
    if (!welcome.ok() || !welcome->memory.valid()) std::abort();
    rings = *ShmMemory::Map(std::move(welcome->memory), kRingsBytes, ShmMemory::Sharing::kReadWrite);
  }
  for (int steps = 0; steps < 16 && !in.empty(); ++steps) {
    const uint8_t what = in.Take<uint8_t>();
    if (greeted && what % 3 == 0) {
      Scribble(rings, kRequestControl, kRequestRing, ShmFabric::kRequestRingBytes, &in);
    } else if (greeted && what % 3 == 1) {
      const AskRegion ask{kMagic, in.Take<uint64_t>()};
      SendAny(socket.get(), {reinterpret_cast<const char*>(&ask), sizeof(ask)}, &in);
    } else {
      SendAny(socket.get(), in.TakeBytes(what / 4), &in);
    }
    server->Poll();
  }
}

class Counted : public Completion {
 public:
  void Done(const absl::Status& result, ConstBytes) override { ++told, status = result; }
  int told = 0;
  absl::Status status;
};

void FeedClient(bool welcomed, Input in) {
  static const std::string path = Path("client");
  static const Fd listener = *ListenUnix(path);
  Counted connected, call, read;
  alignas(8) std::byte to[64];
  {
    ShmFabric client;
    const ConnectionId connection = client.Connect(path, client.NowNs() + 10'000'000'000, &connected);
    const Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) std::abort();
    const auto poll = [&client] {
      for (int i = 0; i < 3; ++i) client.Poll(), client.AfterWait();
    };
    ShmMemory rings;
    if (welcomed) {
      rings = *ShmMemory::Create("rings", kRingsBytes, ShmMemory::Sharing::kReadWrite, false);
      const WelcomePacket welcome{kMagic, ShmFabric::kVersion, 0};
      (void)SendPacket(socket.get(), {reinterpret_cast<const std::byte*>(&welcome), sizeof(welcome)}, {rings.fd()});
      poll();
      if (connected.told != 1 || !connected.status.ok()) std::abort();
    } else {
      WelcomePacket welcome{kMagic, ShmFabric::kVersion, 0};
      if (in.Take<uint8_t>() % 4 == 0) welcome.magic ^= in.Take<uint64_t>();
      if (in.Take<uint8_t>() % 4 == 0) welcome.version = in.Take<uint32_t>();
      SendAny(socket.get(), {reinterpret_cast<const char*>(&welcome), sizeof(welcome)}, &in);
      poll();
    }
    const std::vector<ReadPart> parts = {{Pointer(1, 0), to, 32}, {Pointer(2, 64), to + 32, 32}};
    client.Read(connection, parts, client.NowNs() + 1'000'000'000, &read);
    client.Call(connection, AsBytes("x"), {}, kReplyBytesMin, client.NowNs() + 1'000'000'000, &call);
    poll();
    for (int steps = 0; steps < 16 && !in.empty(); ++steps) {
      const uint8_t what = in.Take<uint8_t>();
      if (welcomed && what % 3 == 0) {
        Scribble(rings, kReplyControl, kReplyRing, ShmFabric::kReplyRingBytes, &in);
      } else if (what % 3 == 1) {
        const RegionPacket region{kMagic, in.Take<uint8_t>() % 4u | uint64_t{in.Take<uint8_t>() % 8u == 0} << 32,
                                  in.Take<uint32_t>()};
        SendAny(socket.get(), {reinterpret_cast<const char*>(&region), sizeof(region)}, &in);
      } else {
        SendAny(socket.get(), in.TakeBytes(what / 4), &in);
      }
      poll();
    }
  }
  if (connected.told != 1 || call.told != 1 || read.told != 1) std::abort();  // Each exactly once.
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Server* const server = new Server;
  static uint64_t inputs = 0;
  if (size == 0) return 0;
  const Input in(std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  if (data[0] % 4 < 2) {
    FeedServer(server, data[0] % 4 == 1, in);
    server->Poll();
  } else {
    FeedClient(data[0] % 4 == 3, in);
  }
  if (++inputs % 100 != 0) return 0;
  ShmFabric client;
  Counted connected, call;
  const ConnectionId connection = client.Connect(server->path, client.NowNs() + 10'000'000'000, &connected);
  while (connected.told == 0) client.Poll(), server->Poll();
  client.Call(connection, AsBytes("x"), {}, kReplyBytesMin, client.NowNs() + 10'000'000'000, &call);
  while (call.told == 0) client.Poll(), server->Poll();
  if (!call.status.ok()) std::abort();
  return 0;
}
