// Floods one server as a greedy client would, until it is told to stop, and says how the server took it. See
// tools/measure_security.py.
//
// Most kinds are calls: each connection keeps --outstanding of them under way, and each one that is answered is
// replaced by the next. The others are connections that come and go, that say nothing, and that say nonsense.
//
// Prints "ready" once all connections stand. After SIGTERM it prints one line of JSON: how many calls were answered
// ("done"), how many of those with an error ("refused"), how many connections ended ("ended"), and for how many seconds
// it went on.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/base/status_macros.h"
#include "cell/cmd/number_flags.h"
#include "cell/io/fabric/fabric.h"
#include "cell/io/fabric/open/open_fabric.h"
#include "cell/io/net/credentials.h"
#include "cell/io/net/fd.h"
#include "cell/io/net/tcp_socket.h"
#include "cell/io/net/unix_socket.h"
#include "cell/layout/identity.h"
#include "cell/layout/limits.h"
#include "cell/layout/wire.h"
#include "fmt/format.h"

namespace cell {
namespace {

volatile std::sig_atomic_t stopped = 0;

struct Flags {
  std::string kind;
  std::string address;
  std::string name = "greedy";
  std::string role = "client";
  uint32_t region = 1;
  uint64_t extents_offset = 0;
  size_t connections = 1;
  size_t outstanding = 64;
  CredentialFiles::Paths credentials;
};

struct Counts {
  uint64_t done = 0;
  uint64_t refused = 0;
  uint64_t ended = 0;
};

constexpr std::string_view kTcp = "tcp://";
constexpr int64_t kPatienceNs = 30'000'000'000;
constexpr int64_t kTurnNs = 20'000'000;  // How soon it notices that it shall end.
constexpr size_t kUploadParts = 16;
constexpr uint32_t kFetchBytes = 32 << 10;
constexpr uint64_t kPutKeys = 20'000;
constexpr size_t kPutValueBytes = 100;

struct Request {
  std::string head, body;
};

// Makes the requests of one connection, one after the other.
class Requests {
 public:
  Requests(const Flags& flags, uint64_t seed)
      : kind_(flags.kind),
        region_(flags.region),
        root_(region_, kRegionHeaderBytes),
        extents_(region_, flags.extents_offset),
        random_(seed) {}

  Request Next() {
    const uint64_t i = next_++;
    if (kind_ == "checks") return {MakeTextRequest(MessageKind::kCheck, fmt::format("{}", region_)), ""};
    if (kind_ == "statuses") return {MakeTextRequest(MessageKind::kStatus), ""};
    if (kind_ == "scans") return {MakeScanRequest(root_, "", std::nullopt, {kScanLimitMax, kMessageBytesMax}), ""};
    if (kind_ == "counts") return {MakeRangeRequest(MessageKind::kCount, root_, "", ""), ""};
    if (kind_ == "fetches") return {MakeFetchRequest(extents_, kFetchBytes), ""};
    if (kind_ == "gets") return {MakeKeyRequest(MessageKind::kGet, root_, {}, Key()), ""};
    if (kind_ == "uploads") {
      const auto part = static_cast<uint32_t>(i % kUploadParts);
      const auto number = static_cast<uint16_t>(1 + i / kUploadParts % kUploadsMax);
      const std::string piece(kUploadPartBytesMax, 'u');
      return {
          MakeUploadRequest(number, part * static_cast<uint32_t>(piece.size()), static_cast<uint32_t>(piece.size())),
          piece};
    }
    CELL_CHECK(kind_ == "puts");
    const std::string key = Key(), value(kPutValueBytes, 'p');
    return {MakePutRequest(root_, {}, Crc64(value, Crc64(key)), key, static_cast<uint32_t>(value.size()), 0), value};
  }

 private:
  static constexpr uint64_t kRegionHeaderBytes = 4096;

  std::string Key() { return fmt::format("flood-{:06}", random_.Below(kPutKeys)); }

  const std::string kind_;
  const uint32_t region_;
  const Pointer root_, extents_;
  Random random_;
  uint64_t next_ = 0;
};

// One connection and its calls. Once a call fails because the connection is gone, or if the kind is "connections" once
// it stands, it is made again.
class Greedy final : public Completion {
 public:
  Greedy(const Flags& flags, size_t number, Fabric* fabric, Counts* counts)
      : flags_(flags), fabric_(fabric), counts_(counts), requests_(flags, number + 1) {
    for (size_t i = 0; i < flags.outstanding; ++i) lanes_.emplace_back(this);
  }

  // Connects if there is no connection, or if it is to be made again.
  void Tend() {
    if (state_ == State::kBroken) {
      state_ = State::kNone;
      ++counts_->ended;
      fabric_->Disconnect(connection_);  // Ends what is under way.
    }
    if (state_ != State::kNone) return;
    state_ = State::kConnecting;
    connection_ = fabric_->Connect(flags_.address, fabric_->NowNs() + kPatienceNs, this);
  }

  bool stands() const { return state_ == State::kOpen || state_ == State::kBroken; }
  const absl::Status& why_not() const { return why_not_; }

  void Done(const absl::Status& status, ConstBytes) override {
    why_not_ = status;
    if (!status.ok()) {
      state_ = State::kNone;  // Such a connection is gone by itself.
      ++counts_->ended;
      return;
    }
    if (flags_.kind == "connections") {
      state_ = State::kBroken;
      return;
    }
    state_ = State::kOpen;
    for (Lane& lane : lanes_) Send(&lane);
  }

 private:
  enum class State { kNone, kConnecting, kOpen, kBroken };

  struct Lane final : Completion {
    explicit Lane(Greedy* all) : greedy(all) {}
    void Done(const absl::Status& status, ConstBytes reply) override { greedy->Answered(this, status, reply); }
    Greedy* greedy;
  };

  void Send(Lane* lane) {
    const Request request = requests_.Next();
    fabric_->Call(connection_, AsBytes(request.head), AsBytes(request.body), kMessageBytesMax, INT64_MAX, lane);
  }

  void Answered(Lane* lane, const absl::Status& status, ConstBytes reply) {
    if (state_ != State::kOpen) return;
    if (!status.ok()) {
      state_ = State::kBroken;
      return;
    }
    ++counts_->done;
    ReplyHeader header{};
    if (reply.size() >= sizeof(header)) std::memcpy(&header, reply.data(), sizeof(header));
    counts_->refused += header.code != 0;
    Send(lane);
  }

  const Flags& flags_;
  Fabric* const fabric_;
  Counts* const counts_;
  Requests requests_;
  std::deque<Lane> lanes_;
  ConnectionId connection_ = 0;
  State state_ = State::kNone;
  absl::Status why_not_;
};

bool IsTcp(const std::string& address) { return address.rfind(kTcp, 0) == 0; }

absl::Status FloodWithCalls(const Flags& flags, Counts* counts) {
  std::deque<Greedy> all;  // Before the fabric, which ends their calls when it goes.
  ASSIGN_OR_RETURN(std::shared_ptr<CredentialFiles> credentials, CredentialFiles::Open(flags.credentials));
  ASSIGN_OR_RETURN(const std::unique_ptr<MultiFabric> fabric, OpenFabric({.kind = IsTcp(flags.address) ? "tcp" : "shm",
                                                                          .huge_pages = false,
                                                                          .credentials = std::move(credentials)}));
  fabric->SetSelf({*ParseRole(flags.role), flags.name});
  for (size_t i = 0; i < flags.connections; ++i) all.emplace_back(flags, i, fabric.get(), counts);
  bool ready = false;
  while (stopped == 0) {
    size_t standing = 0;
    for (Greedy& one : all) {
      if (!ready) RETURN_IF_ERROR(one.why_not());  // Later on servers may refuse.
      one.Tend();
      standing += one.stands();
    }
    if (!ready && (standing == all.size() || flags.kind == "connections")) {
      ready = true;
      fmt::print("ready\n");
      std::fflush(stdout);
    }
    if (fabric->Poll() == 0) fabric->Wait(fabric->NowNs() + kTurnNs);
  }
  return absl::OkStatus();
}

absl::StatusOr<Fd> ConnectSocket(const Flags& flags) {
  if (!IsTcp(flags.address)) return ConnectUnix(flags.address);
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, ResolveAddress(flags.address.substr(kTcp.size())));
  return ConnectTcp(addresses.front());
}

// Holds connections that send nothing, or nonsense once. Those that the server closes are made again.
absl::Status FloodWithSockets(const Flags& flags, Counts* counts) {
  std::vector<Fd> sockets(flags.connections);
  std::vector<pollfd> polled(flags.connections);
  Random random(1);
  std::string nonsense(4096, '\0');
  for (char& c : nonsense) c = static_cast<char>(random.Below(256));
  bool ready = false;
  while (stopped == 0) {
    for (size_t i = 0; i < sockets.size(); ++i) {
      if (sockets[i].valid()) continue;
      ASSIGN_OR_RETURN(sockets[i], ConnectSocket(flags));
      polled[i] = {sockets[i].get(), static_cast<short>(flags.kind == "nonsense" ? POLLIN | POLLOUT : POLLIN), 0};
    }
    if (!ready) fmt::print("ready\n");
    std::fflush(stdout);
    ready = true;
    if (::poll(polled.data(), polled.size(), kTurnNs / 1'000'000) <= 0) continue;
    for (size_t i = 0; i < sockets.size(); ++i) {
      if ((polled[i].revents & POLLOUT) != 0) {
        polled[i].events = POLLIN;
        (void)::send(polled[i].fd, nonsense.data(), nonsense.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      }
      if ((polled[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      char scratch[4096];
      if (::recv(polled[i].fd, scratch, sizeof(scratch), MSG_DONTWAIT) > 0) continue;
      ++counts->ended;
      sockets[i] = Fd();
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"Flood one server as a greedy client, until SIGTERM."};
  app.add_option("--kind", flags.kind, "What to send")
      ->required()
      ->check(CLI::IsMember({"checks", "scans", "counts", "statuses", "fetches", "uploads", "gets", "puts",
                             "connections", "silent", "nonsense"}));
  app.add_option("--address", flags.address, "The worker's address: tcp://HOST:PORT, or the path of its Unix socket")
      ->required();
  app.add_option("--name", flags.name, "Name to appear under")->capture_default_str();
  app.add_option("--role", flags.role)->check(CLI::IsMember({"client", "operator"}))->capture_default_str();
  app.add_option("--region", flags.region, "Region that the requests name")
      ->check(WholeNumber(1, (1 << 24) - 1))
      ->capture_default_str();
  app.add_option("--extents-offset", flags.extents_offset, "Where the region's extents begin, for fetches")
      ->check(Count())
      ->capture_default_str();
  app.add_option("--connections", flags.connections)->check(WholeNumber(1, 4000))->capture_default_str();
  app.add_option("--outstanding", flags.outstanding, "Calls under way on each connection")
      ->check(WholeNumber(1, 1024))
      ->capture_default_str();
  app.add_option("--secret-file", flags.credentials.secret, "File with the secret that proves --role and --name");
  app.add_option("--tls-authority", flags.credentials.authority);
  app.add_option("--tls-certificate", flags.credentials.certificate);
  app.add_option("--tls-key", flags.credentials.key);
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGTERM, [](int) { stopped = 1; });
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // No flood outlives who began it.
  Counts counts;
  const bool calls = flags.kind != "silent" && flags.kind != "nonsense";
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status status = calls ? FloodWithCalls(flags, &counts) : FloodWithSockets(flags, &counts);
  if (!status.ok()) {
    fmt::print(stderr, "flood: {}\n", std::string(status.message()));
    return 1;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  fmt::print("{{\"done\": {}, \"refused\": {}, \"ended\": {}, \"seconds\": {}}}\n", counts.done, counts.refused,
             counts.ended, took.count());
  return 0;
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }
