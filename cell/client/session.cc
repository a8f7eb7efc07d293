#include "cell/client/session.h"

#include <cstdlib>

#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr int64_t kConnectTimeoutNs = 1'000'000'000;
constexpr int64_t kReconnectPauseNs = 100'000'000;
constexpr int64_t kReportEveryNs = 1'000'000'000;

}  // namespace

NodeBuffer::NodeBuffer(Session* session) : session_(session) {
  if (session->free_buffers_.empty()) {
    bytes_ = static_cast<std::byte*>(std::aligned_alloc(64, kNodeBytesMax));
  } else {
    bytes_ = session->free_buffers_.back();
    session->free_buffers_.pop_back();
  }
}

Session::Session(const ClientOptions& options, std::unique_ptr<Fabric> fabric, const ClusterFile& cluster)
    : options_(options),
      shape_(cluster.shape),
      node_bytes_(cluster.shape.node_bytes),
      root_(cluster.tree_root()),
      fabric_(std::move(fabric)),
      cache_(options.cache_bytes, cluster.shape.node_bytes, options.cache_level_min) {
  for (const ClusterFile::Server& server : cluster.servers) {
    for (const ClusterFile::Worker& worker : server.workers) {
      servers_.push_back(
          std::make_unique<ServerConnection>(worker.socket, worker.regions, options.seed + 2 * servers_.size()));
    }
  }
  now_ns_ = fabric_->NowNs();
  reported_ns_ = now_ns_;
}

Session::~Session() {
  fabric_.reset();  // Tells what is in flight.
  for (std::byte* buffer : free_buffers_) std::free(buffer);
}

CallContext Session::Begin(const CallOptions& options) {
  now_ns_ = fabric_->NowNs();
  return {options.path.value_or(options_.path), now_ns_,
          now_ns_ + options.timeout_us.value_or(options_.timeout_us) * 1000};
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

absl::StatusOr<ServerConnection*> Session::Connect(uint32_t region) {
  for (const auto& server : servers_) {
    for (const uint32_t owned : server->regions) {
      if (owned != region) continue;
      if (!server->up) RETURN_IF_ERROR(Connect(server.get()));
      return server.get();
    }
  }
  return absl::UnavailableError(fmt::format("no server of the cluster holds region {}", region));
}

absl::Status Session::Connect(ServerConnection* server) {
  const int64_t now = fabric_->NowNs();
  if (server->last_attempt_ns != INT64_MIN && now - server->last_attempt_ns < kReconnectPauseNs) {
    return absl::UnavailableError(fmt::format("no server answers at {}", server->address));
  }
  server->last_attempt_ns = now;
  ASSIGN_OR_RETURN(server->id, fabric_->Connect(server->address, kConnectTimeoutNs));
  server->up = true;
  cache_.Clear();  // It may have begun anew.
  for (const uint32_t region : server->regions) {
    const std::vector<uint32_t> there = fabric_->regions(server->id);
    if (std::find(there.begin(), there.end(), region) == there.end()) {
      server->up = false;
      lost_.push_back(server->id);
      return absl::UnavailableError(fmt::format("the server at {} does not hold region {}", server->address, region));
    }
  }
  return absl::OkStatus();
}

absl::Status Session::Note(ServerConnection* server, absl::Status status) {
  const bool lost = status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kUnknown;
  if (lost && server->up) {
    server->up = false;
    server->last_attempt_ns = fabric_->NowNs();
    lost_.push_back(server->id);
  }
  return status;
}

void Session::GiveUpload(ServerConnection* server, uint16_t upload) {
  server->free_uploads.push_back(upload);
  if (server->waiting_for_upload.empty()) return;
  const std::coroutine_handle<> next = server->waiting_for_upload.back();
  server->waiting_for_upload.pop_back();
  next.resume();
}

void Session::Poll(int64_t until_ns) {
  for (const ConnectionId id : std::exchange(lost_, {})) fabric_->Disconnect(id);
  now_ns_ = fabric_->NowNs();
  while (!timers_.empty() && timers_.top().at_ns <= now_ns_) {
    const Timer timer = timers_.top();
    timers_.pop();
    timer.handle.resume();
  }
  if (options_.report && now_ns_ - reported_ns_ >= kReportEveryNs) SendReport();
  if (fabric_->Poll() > 0) return;
  if (!timers_.empty()) until_ns = std::min(until_ns, timers_.top().at_ns);
  // Reports are due meanwhile.
  fabric_->Wait(std::min(until_ns, now_ns_ + kReportEveryNs));
  now_ns_ = fabric_->NowNs();
}

void Session::SendReport() {
  ServerConnection* server = servers_.front().get();
  if (reporting_.in_flight || !server->up) return;
  const std::string json = fmt::format(
      R"({{"operations":{},"server_path":{},"client_path":{},"retries":{},"node_reads":{},"errors":{},"p50_us":{:.2f},)"
      R"("p99_us":{:.2f},"seconds":{:.3f}}})",
      metrics_.operations, metrics_.server_path, metrics_.client_path, metrics_.retries(), metrics_.node_reads,
      metrics_.errors, static_cast<double>(since_report_ns_.Quantile(0.5)) / 1e3,
      static_cast<double>(since_report_ns_.Quantile(0.99)) / 1e3, static_cast<double>(now_ns_ - reported_ns_) / 1e9);
  reported_ns_ = now_ns_;
  since_report_ns_.Clear();
  reporting_.in_flight = true;
  const std::string request = MakeTextRequest(MessageKind::kReport, json);
  fabric_->Call(server->id, AsBytes(request), {}, kReplyBytesMin, now_ns_ + options_.timeout_us * 1000, &reporting_);
}

Task<absl::Status> Session::WalkToLeaf(ServerConnection* server, Walk* walk, NodeBuffer* buffer, NodeView* leaf,
                                       int64_t deadline_ns, Selector* selector, int* reads) {
  for (;;) {
    Walk::Step step;
    const Pointer wanted = walk->wants();
    std::optional<NodeView> node = walk->may_use_cache() ? cache_.Find(wanted) : std::nullopt;
    if (node.has_value()) {
      ++metrics_.cache_hits;
      step = walk->Visit(*node);
    } else {
      const int64_t asked_ns = now_ns_;
      const ReadPart part{wanted, buffer->data(), node_bytes_};
      ++metrics_.node_reads;
      ++*reads;
      if (absl::Status status = co_await Read(server, {&part, 1}); !status.ok()) {
        if (status.code() != absl::StatusCode::kOutOfRange) co_return status;
        step = walk->Failed(NodeFault::kForeign);  // A stale pointer to what is no node.
      } else {
        selector->ObserveRead(now_ns_ - asked_ns);
        NodeView view;
        const NodeFault fault = NodeView::Parse(ConstBytes(buffer->data(), node_bytes_), wanted, &view);
        if (fault == NodeFault::kNone) {
          step = walk->Visit(view);
          if (view.level() > 0) cache_.Keep(view);
          *leaf = view;
        } else {
          ++metrics_.torn;
          step = walk->Failed(fault);
        }
      }
    }
    if (step == Walk::Step::kArrived) co_return absl::OkStatus();
    if (walk->moved_right()) {
      ++metrics_.moved_right;
      const Pointer parent = walk->path(walk->level() + 1);
      if (!parent.null()) cache_.Drop(parent);  // What it said is stale.
    }
    if (step == Walk::Step::kGaveUp) {
      co_return absl::UnavailableError(
          fmt::format("no way to the leaf of {} in {} reads", ForMessage(walk->key()), Walk::kVisitsMax));
    }
    if (now_ns_ > deadline_ns) {
      co_return absl::DeadlineExceededError(fmt::format("search for {} took too long", ForMessage(walk->key())));
    }
  }
}

}  // namespace cell
