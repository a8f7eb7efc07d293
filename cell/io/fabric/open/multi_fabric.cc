#include "cell/io/fabric/open/multi_fabric.h"

#include <sys/epoll.h>

#include <algorithm>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

// A part that found nothing in this many polls is polled only every kPollIdleEvery polls...
constexpr int kIdlePolls = 16;
constexpr uint32_t kPollIdleEvery = 32;
// ...and its check for work is made only this often if it takes a system call and another part's check does not.
constexpr uint32_t kCheckCostlyEvery = 64;

// A peer's id here combines its id in its part with the part's index.
constexpr ConnectionId kPartsMax = 4;

}  // namespace

// Passes a part's calls on, and translates the peers' ids to those of this endpoint.
class MultiFabric::PartService final : public Service {
 public:
  PartService(ConnectionId part) : part_(part) {}
  void Serve(absl::Span<const IncomingCall> calls) override {
    calls_.assign(calls.begin(), calls.end());
    for (IncomingCall& call : calls_) call.peer = call.peer * kPartsMax + part_;
    service->Serve(calls_);
  }
  void Disconnected(ConnectionId peer) override { service->Disconnected(peer * kPartsMax + part_); }

  Service* service = nullptr;

 private:
  const ConnectionId part_;
  std::vector<IncomingCall> calls_;
};

// Makes a connection: tries the fabrics one after the other.
class MultiFabric::Attempt final : public Completion {
 public:
  Attempt(MultiFabric* fabric, ConnectionId id, int64_t deadline_ns, Completion* completion)
      : id(id), deadline_ns(deadline_ns), fabric_(fabric), completion_(completion) {}

  void Done(const absl::Status& status, ConstBytes) override {
    if (!status.ok()) {
      errors_ += fmt::format("{}{}", errors_.empty() ? "" : "; ", std::string(status.message()));
      Route* const route = fabric_->routes_.Find(id);
      if (!left.empty() && !ended && !fabric_->closing_ && fabric_->NowNs() < deadline_ns) {
        // Using TCP instead of RDMA must not go unnoticed. A container without the server's files is normal.
        spdlog::log(route->part->kind == FabricKind::kVerbs ? spdlog::level::warn : spdlog::level::debug,
                    "cannot connect by {}, trying another fabric: {}", ToString(route->part->kind),
                    std::string(status.message()));
        return fabric_->TryNext(route);
      }
      told = true;
      fabric_->ended_.push_back(id);
      return completion_->Done(absl::Status(status.code(), errors_), {});
    }
    told = true;
    completion_->Done(status, {});
  }

  std::vector<FabricAddress> left;  // Addresses still to be tried, the next one last.
  const ConnectionId id;
  const int64_t deadline_ns;
  bool ended = false;
  bool told = false;

 private:
  MultiFabric* fabric_;
  Completion* completion_;
  std::string errors_;
};

MultiFabric::MultiFabric(Polling polling, std::shared_ptr<RegionPool> pool)
    : PollingFabric(polling, std::move(pool)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

MultiFabric::~MultiFabric() {
  closing_ = true;
  TellNow();
}

void MultiFabric::Add(FabricKind kind, std::unique_ptr<PollingFabric> fabric) {
  CELL_CHECK(parts_.size() < kPartsMax && PartOf(kind) == nullptr && fabric->pool() == pool());
  auto part = std::make_unique<Part>();
  part->kind = kind;
  part->service = std::make_unique<PartService>(static_cast<ConnectionId>(parts_.size()));
  part->fabric = std::move(fabric);
  parts_.push_back(std::move(part));
}

void MultiFabric::SetSelf(Identity self) {
  for (const auto& part : parts_) part->fabric->SetSelf(self);
  PollingFabric::SetSelf(std::move(self));
}

void MultiFabric::SetReaders(Readers readers) {
  for (const auto& part : parts_) part->fabric->SetReaders(readers);
}

MultiFabric::Part* MultiFabric::PartOf(FabricKind kind) {
  const auto it = std::find_if(parts_.begin(), parts_.end(), [kind](const auto& part) { return part->kind == kind; });
  return it == parts_.end() ? nullptr : it->get();
}

void MultiFabric::Use(Part* part) {
  if (std::exchange(part->used, true)) return;
  epoll_event event{};
  event.events = EPOLLIN;
  CELL_CHECK_EQ(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, part->fabric->wait_fd(), &event), 0);
}

absl::Status MultiFabric::Listen(const std::string& addresses, Service* service) {
  ASSIGN_OR_RETURN(const std::vector<FabricAddress> all, ParseAddresses(addresses));
  for (const FabricAddress& one : all) {
    if (PartOf(one.kind) == nullptr) {
      return absl::FailedPreconditionError(fmt::format("this program cannot listen by {}", ToString(one.kind)));
    }
  }
  for (const FabricAddress& one : all) {
    Part* part = PartOf(one.kind);
    part->service->service = service;
    RETURN_IF_ERROR(part->fabric->Listen(one.address, part->service.get()));
    Use(part);
  }
  return absl::OkStatus();
}

IncomingCall MultiFabric::InnerCall(const IncomingCall& call, Part** part) const {
  *part = parts_[call.peer % kPartsMax].get();
  IncomingCall inner = call;
  inner.peer = call.peer / kPartsMax;
  return inner;
}

MutableBytes MultiFabric::BeginReply(const IncomingCall& call) {
  Part* part;
  const IncomingCall inner = InnerCall(call, &part);
  return part->fabric->BeginReply(inner);
}

void MultiFabric::EndReply(const IncomingCall& call, size_t bytes) {
  Part* part;
  const IncomingCall inner = InnerCall(call, &part);
  part->fabric->EndReply(inner, bytes);
}

ServiceTimes MultiFabric::TimesOf(const IncomingCall& call, uint64_t read_bytes) const {
  Part* part;
  const IncomingCall inner = InnerCall(call, &part);
  return part->fabric->TimesOf(inner, read_bytes);
}

size_t MultiFabric::peers() const {
  size_t peers = 0;
  for (const auto& part : parts_) peers += part->fabric->peers();
  return peers;
}

ConnectionId MultiFabric::Connect(const std::string& addresses, int64_t deadline_ns, Completion* completion) {
  const ConnectionId id = routes_.Add([&](ConnectionId made) {
    auto route = std::make_unique<Route>();
    route->attempt = std::make_unique<Attempt>(this, made, deadline_ns, completion);
    return route;
  });
  Route* const route = routes_.Find(id);
  const auto refuse = [&](const std::string& why) {
    route->attempt->told = true;
    ended_.push_back(id);
    TellLater(completion, absl::UnavailableError(why));
    return id;
  };
  const absl::StatusOr<std::vector<FabricAddress>> all = ParseAddresses(addresses);
  if (!all.ok()) {
    return refuse(std::string(all.status().message()));
  }
  std::vector<FabricAddress>& left = route->attempt->left;
  for (const FabricAddress& one : *all) {
    const bool here = one.machine.empty() || one.machine == ThisMachine();
    if (PartOf(one.kind) != nullptr && (one.kind != FabricKind::kShm || here)) left.push_back(one);
  }
  std::stable_sort(left.begin(), left.end(), [](const auto& a, const auto& b) { return a.kind < b.kind; });
  if (left.empty()) {
    std::string have;
    for (const auto& part : parts_) have += fmt::format("{}{}", have.empty() ? "" : ", ", ToString(part->kind));
    return refuse(fmt::format("no fabric of this program reaches {}: it has {}{}", addresses, have,
                              have == "shm" ? ", which reaches only this machine" : ""));
  }
  TryNext(route);
  return id;
}

void MultiFabric::TryNext(Route* route) {
  Attempt* attempt = route->attempt.get();
  const FabricAddress next = attempt->left.back();
  attempt->left.pop_back();
  Part* part = PartOf(next.kind);
  Use(part);
  part->idle = 0;
  route->part = part;
  const char* why = next.kind == FabricKind::kShm     ? "the server is on this machine"
                    : next.kind == FabricKind::kVerbs ? "both have an RDMA device"
                                                      : "no faster fabric reaches the server";
  spdlog::debug("connecting to {} by {}: {}{}", next.address, ToString(next.kind),
                parts_.size() == 1 ? "--fabric allows no other" : why,
                attempt->left.empty() ? "" : fmt::format(" ({} more to try)", attempt->left.size()));
  route->id = part->fabric->Connect(next.address, attempt->deadline_ns, attempt);
}

void MultiFabric::Disconnect(ConnectionId id) {
  Route* const route = routes_.Find(id);
  if (route == nullptr || std::exchange(route->attempt->ended, true)) return;
  if (Part* const part = std::exchange(route->part, nullptr); part != nullptr) part->fabric->Disconnect(route->id);
  ended_.push_back(id);
}

MultiFabric::Route* MultiFabric::Live(ConnectionId id) const {
  Route* const route = routes_.Find(id);
  return route != nullptr && route->part != nullptr ? route : nullptr;
}

FabricKind MultiFabric::KindOf(ConnectionId connection) const { return routes_.Find(connection)->part->kind; }

void MultiFabric::ForgetRegion(ConnectionId id, uint32_t region) {
  if (Route* const route = Live(id); route != nullptr) route->part->fabric->ForgetRegion(route->id, region);
}

void MultiFabric::Read(ConnectionId id, absl::Span<const ReadPart> parts, int64_t deadline_ns, Completion* completion) {
  Route* const route = Live(id);
  if (route == nullptr) return TellLater(completion, absl::UnavailableError("not connected"));
  route->part->fabric->Read(route->id, parts, deadline_ns, completion);
}

void MultiFabric::Call(ConnectionId id, ConstBytes head, ConstBytes body, size_t reply_bytes_max, int64_t deadline_ns,
                       Completion* completion) {
  Route* const route = Live(id);
  if (route == nullptr) return TellLater(completion, absl::UnavailableError("not connected"));
  route->part->fabric->Call(route->id, head, body, reply_bytes_max, deadline_ns, completion);
}

size_t MultiFabric::Poll() {
  for (const ConnectionId id : std::exchange(ended_, {})) {
    const Route* route = routes_.Find(id);
    if (route == nullptr) continue;
    if (route->attempt->told) {
      routes_.Remove(id);
    } else {
      ended_.push_back(id);  // Its part may have much to report.
    }
  }
  size_t done = 0;
  ++polls_;
  for (const auto& part : parts_) {
    const bool idle = part->idle >= kIdlePolls;
    if (!part->used || (idle && polls_ % kPollIdleEvery != 0)) continue;
    // While another part is busy nobody waits. Without this, an idle part would look at its sockets very seldom.
    if (idle) part->fabric->AfterWait();
    const size_t found = part->fabric->Poll();
    part->idle = found > 0 ? 0 : part->idle + 1;
    done += found;
  }
  return done + TellNow();
}

void MultiFabric::Flush() {
  for (const auto& part : parts_) {
    if (part->used) part->fabric->Flush();
  }
}

int64_t MultiFabric::NextDeadlineNs() const {
  int64_t next_ns = INT64_MAX;
  for (const auto& part : parts_) next_ns = std::min(next_ns, part->fabric->NextDeadlineNs());
  return next_ns;
}

bool MultiFabric::HasWork() const {
  if (HasToTell()) return true;
  ++checks_;
  bool cheap = false;  // A part whose check is cheap was checked. Such parts come first.
  for (const auto& part : parts_) {
    if (!part->used || (part->kind == FabricKind::kTcp && cheap && checks_ % kCheckCostlyEvery != 0)) continue;
    cheap |= part->kind != FabricKind::kTcp;
    if (!part->fabric->HasWork()) continue;
    part->idle = 0;
    return true;
  }
  return false;
}

bool MultiFabric::BeginSleep() {
  bool work = HasToTell();
  for (const auto& part : parts_) {
    if (part->used) work |= part->fabric->BeginSleep();
  }
  return work;
}

void MultiFabric::EndSleep() {
  for (const auto& part : parts_) {
    if (part->used) part->fabric->EndSleep();
  }
}

void MultiFabric::AfterWait() {
  for (const auto& part : parts_) {
    if (!part->used) continue;
    part->fabric->AfterWait();
    part->idle = 0;
  }
}

}  // namespace cell
