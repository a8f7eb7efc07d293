#include "cell/client/session.h"

#include <algorithm>
#include <cstdlib>

#include "fmt/format.h"

namespace cell {
namespace {

constexpr int64_t kConnectTimeoutNs = 1'000'000'000;
constexpr int kReconnectDoublings = 3;
constexpr int64_t kReportEveryNs = 1'000'000'000;
constexpr int64_t kRefreshingPauseNs = 20'000;
constexpr int64_t kRefreshPauseNs = 10'000'000;
constexpr int64_t kMembershipPauseNs = 200'000;
// Owners of regions that are gone are forgotten once there are so many more of them than regions.
constexpr size_t kOwnersSlack = 1024;
// Of one walk: its nodes are written as fast as they are read.
constexpr int kTornReadsMax = 64;

}  // namespace

std::byte* NodePool::Take() {
  ++taken_;
  if (free_.empty()) return static_cast<std::byte*>(std::aligned_alloc(64, kNodeBytesMax));
  std::byte* const buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void NodePool::Give(std::byte* buffer) {
  free_.push_back(buffer);
  --taken_;
  if (released_ && taken_ == 0) delete this;
}

void NodePool::Release() {
  released_ = true;
  if (taken_ == 0) delete this;
}

NodePool::~NodePool() {
  for (std::byte* const buffer : free_) std::free(buffer);
}

Session::Session(const ClientOptions& options, std::unique_ptr<Fabric> fabric, std::unique_ptr<Membership> membership)
    : options_(options),
      membership_(std::move(membership)),
      fabric_(std::move(fabric)),
      cache_(options.cache_bytes, membership_->state().shape.node_bytes, options.cache_level_min),
      routes_(options.route_ranges) {
  selector_ = ParseSelector(options.selector).value();  // Client::Open has looked at it.
  revision_ = cluster().revision;
  now_ns_ = fabric_->NowNs();
  reported_ns_ = now_ns_;
}

Session::~Session() {
  Close();
  nodes_->Release();
}

template <typename Is>
size_t Session::WakeIf(const Is& is) {
  std::vector<std::coroutine_handle<>> woken;  // They may wait again.
  std::erase_if(waiting_, [&](const EventAwaiter* waiting) {
    if (!is(*waiting)) return false;
    woken.push_back(waiting->handle);
    return true;
  });
  for (const std::coroutine_handle<> handle : woken) handle.resume();
  return woken.size();
}

void Session::Wake(const void* event) {
  WakeIf([event](const EventAwaiter& waiting) { return waiting.event == event; });
}

void Session::Close() {
  if (closed_) return;
  now_ns_ = fabric_->NowNs();
  closed_ = true;
  fabric_.reset();  // Tells what is in flight.
  WakeIf([](const EventAwaiter&) { return true; });
  while (!timers_.empty()) {
    const Timer timer = timers_.top();
    timers_.pop();
    timer.handle.resume();
  }
  detached_.clear();
}

CallContext Session::Begin(const CallOptions& options) {
  now_ns_ = NowNs();
  const int64_t timeout_us = std::max<int64_t>(0, options.timeout_us.value_or(options_.timeout_us));
  const bool none = timeout_us >= (INT64_MAX - now_ns_) / 1000;
  return {options.path.value_or(options_.path), now_ns_, none ? INT64_MAX : now_ns_ + timeout_us * 1000};
}

Path Session::ChoosePath(Selector* selector, const CallContext& context) {
  Path path = context.path;
  if (path == Path::kHybrid) {
    path = selector->Choose(context.started_ns).choice == Selector::Choice::kServer ? Path::kServer : Path::kClient;
  }
  ++(path == Path::kServer ? metrics_.server_path : metrics_.client_path);
  return path;
}

void Session::End(const CallContext& context, const absl::Status& status) {
  ++metrics_.operations;
  if (!status.ok()) ++metrics_.errors;
  const auto latency_ns = static_cast<uint64_t>(std::max<int64_t>(0, now_ns_ - context.started_ns));
  metrics_.latency_ns.Record(latency_ns);
  if (options_.report) since_report_ns_.Record(latency_ns);
}

ServerConnection* Session::ConnectionTo(const WorkerId& worker, const std::string& address) {
  ServerConnection*& server = by_worker_[worker];
  if (server == nullptr) {
    const uint64_t seed = options_.seed + 3 * servers_.size();
    servers_.push_back(std::make_unique<ServerConnection>(worker, address, selector_, seed, &estimates_));
    server = servers_.back().get();
  }
  if (server->address != address) {  // It came back elsewhere.
    if (server->up) lost_.push_back(server->id);
    server->up = false;
    server->address = address;
    server->last_attempt_ns = INT64_MIN;
    server->failed_attempts = 0;
  }
  return server;
}

bool Session::WillBeServed(uint32_t region) const {
  if (cluster().durability == Durability::kNone) return false;
  const RegionTable::Entry* const entry = cluster().table.Find(region);
  if (entry == nullptr) return cluster().servers.size() > 1;
  return entry->recovering ||
         std::any_of(cluster().servers.begin(), cluster().servers.end(),
                     [entry](const ClusterState::Server& server) { return server.name != entry->owner.server; });
}

void Session::ForgetRegion(ServerConnection* server, uint32_t region) {
  if (!closed_) fabric_->ForgetRegion(server->id, region);
}

std::vector<ServerConnection*> Session::AllServers() {
  std::vector<ServerConnection*> all;
  for (const ClusterState::Server& server : cluster().servers) {
    for (uint32_t i = 0; i < server.workers.size(); ++i) {
      const std::string& address = server.workers[i].address;
      if (!address.empty()) all.push_back(ConnectionTo({server.name, i}, address));
    }
  }
  return all;
}

const Session::Owner* Session::LookUpOwner(uint32_t region) {
  const auto before = owners_.find(region);
  const RegionTable::Entry* const entry = cluster().table.Find(region);
  const ClusterState::Worker* const worker =
      entry == nullptr || entry->recovering ? nullptr : cluster().FindWorker(entry->owner);
  if (worker == nullptr) {
    if (before != owners_.end()) before->second.known = false, before->second.revision = revision_;
    return nullptr;
  }
  ServerConnection* const server = ConnectionTo(entry->owner, worker->address);
  // It went away and came back: what this client has mapped may be the memory of a process that has ended.
  if (before != owners_.end() && before->second.server == server && before->second.epoch != entry->epoch &&
      server->up) {
    ForgetRegion(server, region);
  }
  if (owners_.size() > 2 * cluster().table.regions.size() + kOwnersSlack) {
    absl::erase_if(owners_, [this](const auto& one) { return cluster().table.Find(one.first) == nullptr; });
  }
  Owner& owner = owners_[region];
  owner = {server, entry->epoch, revision_, true};
  return &owner;
}

bool Session::StillHolds(const Holder& holder) {
  if (holder.revision == revision_ || Mutated(Mutant::kTableLeaseUnchecked)) return true;
  const Owner* const owner = OwnerOf(holder.region);
  return owner != nullptr && owner->server == holder.server && owner->epoch == holder.epoch;
}

Task<bool> Session::Refresh(int64_t deadline_ns) {
  const uint64_t wanted = refreshes_ + 1 + refreshing_;  // One that is under way may have asked too early.
  while (refreshes_ < wanted && !closed_ && fabric_->NowNs() < deadline_ns) {
    BeginRefresh();
    if (refreshes_ < wanted) co_await SleepUntil(std::min(deadline_ns, fabric_->NowNs() + kRefreshingPauseNs));
  }
  co_return refreshes_ >= wanted;
}

void Session::BeginRefresh() {
  if (refreshing_) return;
  refreshing_ = true;
  refreshed_ns_ = fabric_->NowNs();
  reads_at_refresh_ = metrics_.node_reads + metrics_.lookup_reads;
  membership_->Refresh([this](const absl::Status& status) {
    refreshing_ = false;
    ++refreshes_;
    if (!status.ok()) return;
    table_ns_ = refreshed_ns_;
    revision_ = cluster().revision;
  });
}

Task<absl::StatusOr<ServerConnection*>> Session::Connect(uint32_t region, int64_t deadline_ns) {
  if (closed_) co_return Closed();
  const absl::StatusOr<WorkerId> owner = cluster().OwnerOf(region);
  if (!owner.ok()) {
    if (region == 0) co_return absl::UnavailableError("the cluster has no root yet: no server has started");
    co_return absl::UnavailableError(std::string(owner.status().message()));
  }
  const Owner* const known = OwnerOf(region);
  if (known == nullptr) {
    co_return absl::UnavailableError(fmt::format("region {} is being recovered by {}", region, owner->server));
  }
  ServerConnection* const server = known->server;
  if (!server->up) {
    const absl::Status status = co_await Connect(server, deadline_ns);
    if (absl::IsCancelled(status)) co_return status;
    if (!status.ok()) {
      co_return absl::UnavailableError(
          fmt::format("region {} on {}: {}", region, server->worker.server, std::string(status.message())));
    }
  }
  co_return server;
}

Task<absl::Status> Session::Connect(ServerConnection* server, int64_t deadline_ns) {
  if (server->up) co_return absl::OkStatus();
  if (closed_) co_return Closed();
  if (!server->connecting) {
    const int64_t pause_ns = (options_.reconnect_us * 1000)
                             << std::min(std::max(server->failed_attempts - 1, 0), kReconnectDoublings);
    if (server->last_attempt_ns != INT64_MIN && fabric_->NowNs() - server->last_attempt_ns < pause_ns) {
      co_return server->why_down;
    }
    server->connecting = true;
    Keep(std::make_unique<Attempt>(this, server));
  }
  while (server->connecting) {
    if (closed_) co_return Closed();
    if (fabric_->NowNs() >= deadline_ns) {
      co_return absl::UnavailableError(fmt::format("no server has answered at {} in time", server->address));
    }
    co_await WaitFor(&server->connecting, deadline_ns);
  }
  co_return server->up ? absl::OkStatus() : server->why_down;
}

Task<bool> Session::TryConnect(ServerConnection* server) {
  const std::string address = server->address;
  server->last_attempt_ns = fabric_->NowNs();
  ConnectAwaiter connecting(fabric_.get(), address, server->last_attempt_ns + kConnectTimeoutNs);
  const absl::StatusOr<ConnectionId> id = co_await connecting;
  server->connecting = false;
  if (closed_) co_return false;
  const bool moved = server->address != address;  // It came back elsewhere meanwhile.
  if (id.ok() && !moved) {
    server->failed_attempts = 0;
    server->id = *id;
    server->up = true;
  } else {
    lost_.push_back(connecting.connection);  // Or it would be kept.
    server->failed_attempts += !moved;
    server->silent = fabric_->NowNs() >= server->last_attempt_ns + kConnectTimeoutNs;
    server->why_down = id.status();
    if (moved) server->why_down = absl::UnavailableError(fmt::format("no server is at {} any more", address));
  }
  Wake(&server->connecting);
  co_return true;
}

absl::Status Session::Note(ServerConnection* server, absl::Status status) {
  const bool lost = status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kUnknown;
  if (lost && server->up) {
    server->up = false;
    server->why_down = status;
    server->last_attempt_ns = fabric_->NowNs();
    lost_.push_back(server->id);
  }
  return status;
}

Task<uint16_t> Session::TakeNumber(ServerConnection* server, int64_t deadline_ns) {
  while (server->free_numbers.empty()) {
    if (closed_ || fabric_->NowNs() >= deadline_ns) co_return uint16_t{0};
    co_await WaitFor(&server->free_numbers, deadline_ns);
  }
  const uint16_t number = server->free_numbers.back();
  server->free_numbers.pop_back();
  co_return number;
}

void Session::GiveNumber(ServerConnection* server, uint16_t number) {
  server->free_numbers.push_back(number);
  Wake(&server->free_numbers);
}

void Session::Poll(int64_t until_ns) {
  for (const ConnectionId id : std::exchange(lost_, {})) fabric_->Disconnect(id);
  if (!detached_.empty()) std::erase_if(detached_, [](const auto& task) { return task->ended(); });
  size_t done = membership_->Poll();
  revision_ = cluster().revision;
  now_ns_ = fabric_->NowNs();
  // A client that reads keeps its lease.
  const bool renew = metrics_.node_reads + metrics_.lookup_reads != reads_at_refresh_ &&
                     now_ns_ - table_ns_ > cluster().table_lease_ns / 3;
  if ((refresh_soon_ || renew) && !refreshing_ && now_ns_ - refreshed_ns_ >= kRefreshPauseNs) {
    refresh_soon_ = false;
    BeginRefresh();
  }
  while (!timers_.empty() && timers_.top().at_ns <= now_ns_) {
    const Timer timer = timers_.top();
    timers_.pop();
    timer.handle.resume();
    ++done;  // Who polls may have waited for just this.
  }
  if (!waiting_.empty()) done += WakeIf([this](const EventAwaiter& waiting) { return waiting.deadline_ns <= now_ns_; });
  if (options_.report && now_ns_ - reported_ns_ >= kReportEveryNs) SendReport();
  if (fabric_->Poll() + done > 0) return;
  if (membership_->pending()) until_ns = std::min(until_ns, now_ns_ + kMembershipPauseNs);
  if (!timers_.empty()) until_ns = std::min(until_ns, timers_.top().at_ns);
  for (const EventAwaiter* waiting : waiting_) until_ns = std::min(until_ns, waiting->deadline_ns);
  // Reports are due meanwhile.
  fabric_->Wait(std::min(until_ns, now_ns_ + kReportEveryNs));
  now_ns_ = fabric_->NowNs();
}

void Session::SendReport() {
  const auto up = std::find_if(servers_.begin(), servers_.end(), [](const auto& server) { return server->up; });
  if (reporting_.in_flight || up == servers_.end()) return;
  ServerConnection* const server = up->get();
  const std::string json = fmt::format(
      R"({{"operations":{},"server_path":{},"client_path":{},"retries":{},"node_reads":{},"errors":{},"lookups":{},)"
      R"("lookup_reads":{},"lookup_torn":{},"lookup_extents":{},"lookup_moved":{},"p50_us":{:.2f},"p99_us":{:.2f},)"
      R"("seconds":{:.3f}}})",
      metrics_.operations, metrics_.server_path, metrics_.client_path, metrics_.retries(), metrics_.node_reads,
      metrics_.errors, metrics_.lookups, metrics_.lookup_reads, metrics_.lookup_torn, metrics_.lookup_extents,
      metrics_.lookup_moved, static_cast<double>(since_report_ns_.Quantile(0.5)) / 1e3,
      static_cast<double>(since_report_ns_.Quantile(0.99)) / 1e3, static_cast<double>(now_ns_ - reported_ns_) / 1e9);
  reported_ns_ = now_ns_;
  since_report_ns_.Clear();
  reporting_.in_flight = true;
  const std::string request = MakeTextRequest(MessageKind::kReport, json);
  fabric_->Call(server->id, AsBytes(request), {}, kReplyBytesMin, now_ns_ + kReportEveryNs, &reporting_);
}

Task<absl::StatusOr<Walk::Step>> Session::WalkToLeaf(ServerConnection* server, Walk* walk, bool use_cache,
                                                     WalkedLeaf* to, int64_t deadline_ns, Selector* selector,
                                                     int* reads) {
  to->parent = NodeView();
  for (int torn = 0;;) {
    Walk::Step step;
    const Pointer wanted = walk->wants();
    std::optional<NodeView> node = use_cache && walk->may_use_cache() ? cache_.Find(wanted) : std::nullopt;
    to->cached = node.has_value();
    if (to->cached) {
      ++metrics_.cache_hits;
      step = walk->Visit(*node);
    } else {
      const int64_t asked_ns = now_ns_;
      const ReadPart part{wanted, to->buffer.data(), node_bytes()};
      ++metrics_.node_reads;
      ++*reads;
      if (absl::Status status = co_await Read(server, {&part, 1}, deadline_ns); !status.ok()) {
        if (status.code() != absl::StatusCode::kOutOfRange) co_return status;
        step = walk->Failed(NodeFault::kForeign);  // A stale pointer to what is no node.
      } else {
        selector->ObserveRead(now_ns_ - asked_ns);
        NodeView view;
        const NodeFault fault = NodeView::Parse(ConstBytes(to->buffer.data(), node_bytes()), wanted, &view);
        if (fault == NodeFault::kNone) {
          step = walk->Visit(view);
          cache_.Keep(view);
          node = view;
          if (view.level() == 1) {
            to->buffer.Swap(&to->parent_buffer);
            to->parent = view;
          } else {
            to->leaf = view;
          }
        } else {
          if (fault == NodeFault::kTorn) ++metrics_.torn, ++torn;
          step = walk->Failed(fault);
        }
      }
    }
    if (step == Walk::Step::kArrived || step == Walk::Step::kLost) co_return step;
    if (walk->moved_right()) {
      ++metrics_.moved_right;
      const Pointer parent = walk->path(walk->level() + 1);
      if (!parent.null()) cache_.Drop(parent);  // What it said is stale.
    }
    if (step == Walk::Step::kElsewhere) {
      if (!walk->moved_right()) {  // A route, in the node just visited.
        // All that it says, if it was read just now: a client of a large cluster learns its ways soon. What a cached
        // node says may be older than what is known.
        for (int i = 0; i < node->count() && !to->cached; ++i) KeepRoute(*node, i);
      }
      co_return step;
    }
    if (step == Walk::Step::kGaveUp || torn > kTornReadsMax) {
      co_return absl::AbortedError(
          fmt::format("no way to the leaf of {} in {} reads", ForMessage(walk->key()), walk->visits()));
    }
    if (now_ns_ >= deadline_ns) {
      co_return absl::DeadlineExceededError(fmt::format("search for {} took too long", ForMessage(walk->key())));
    }
  }
}

void Session::KeepRoute(const NodeView& leaf, int slot) {
  std::optional<std::string> high;
  if (slot + 1 < leaf.count()) {
    high = leaf.key(slot + 1);
  } else if (leaf.has_high()) {
    high = leaf.high_key();
  }
  routes_.Keep(leaf.key(slot), high, leaf.inner_slot(slot).child());
}

}  // namespace cell
