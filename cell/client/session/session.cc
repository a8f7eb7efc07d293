#include "cell/client/session/session.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cell/base/crc64.h"
#include "cell/layout/wire.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr int64_t kReportEveryNs = 1'000'000'000;
// Pause between polls of a membership that cannot wake this thread, as in simulations.
constexpr int64_t kMembershipPauseNs = 20'000;
// If the server has to know which pairs are used, every sixteenth get is sent to it.
constexpr uint64_t kToldGets = 16;

}  // namespace

Session::Session(const ClientOptions& options, std::unique_ptr<Fabric> fabric, std::unique_ptr<Membership> membership)
    : options_(options),
      loop_(std::move(fabric)),
      connections_(&loop_, &metrics_, options_),
      view_(&loop_, &connections_, &metrics_, std::move(membership), options_.seed),
      tree_(&loop_, &connections_, &metrics_, view_.node_bytes(), options_),
      slots_(loop_.fabric()->UniqueNumber()),
      reported_ns_(loop_.now_ns()) {
  connections_.set_cluster(Crc64(view_.cluster().uuid));
}

void Session::Close() {
  view_.StopWaking();  // Before the fabric is gone.
  loop_.Close();
}

CallContext Session::ContextOf(const CallOptions& options, OperationKind kind) {
  idle_ = false;
  loop_.Touch();
  const int64_t now_ns = loop_.now_ns();
  const int64_t timeout_us = std::max<int64_t>(0, options.timeout_us.value_or(options_.timeout_us));
  const bool none = timeout_us >= (INT64_MAX - now_ns) / 1000;
  return {options.path.value_or(options_.path), now_ns, none ? INT64_MAX : now_ns + timeout_us * 1000, kind};
}

bool Session::TellsUse(const CallContext& context) {
  const bool get = context.kind == OperationKind::kGet || context.kind == OperationKind::kLookup;
  if (!get || !view_.cluster().table.evictions.needs_use()) return false;
  return ++untold_ % kToldGets == 0;
}

Path Session::ChoosePath(Selector* selector, const CallContext& context) {
  Path path = context.path;
  if (path == Path::kHybrid && connections_.reads_denied()) {
    path = Path::kServer;
  } else if (path == Path::kHybrid) {
    const Selector::Choice choice =
        selector->Choose(context.started_ns, {in_flight_, loop_.cpu()->busy(), loop_.cpu()->turn_ns()});
    path = choice == Selector::Choice::kServer ? Path::kServer : Path::kClient;
    if (TellsUse(context)) path = Path::kServer;
  }
  ++(path == Path::kServer ? metrics_.server_path : metrics_.client_path);
  return path;
}

void Session::End(const CallContext& context, const absl::Status& status) {
  --in_flight_;
  ++metrics_.operations;
  if (!status.ok()) ++metrics_.errors;
  const auto latency_ns = static_cast<uint64_t>(std::max<int64_t>(0, loop_.now_ns() - context.started_ns));
  metrics_.latency_ns.Record(latency_ns);
  if (options_.report) since_report_ns_.Record(latency_ns);
}

void Session::Poll(int64_t until_ns) {
  if (closed()) return;
  loop_.EndWait();
  connections_.CloseBroken();
  loop_.DestroyEnded();
  size_t done = view_.Poll();
  loop_.Touch();
  view_.RefreshIfDue();
  done += loop_.Step();  // The caller may have waited for exactly this.
  const int64_t now_ns = loop_.now_ns();
  if (options_.report && now_ns - reported_ns_ >= kReportEveryNs) SendReport();
  done += loop_.PollFabric();
  idle_ = done == 0;
  if (idle_) loop_.Wait(WaitUntil(until_ns));
}

int64_t Session::WaitUntil(int64_t until_ns) const {
  until_ns = std::min(until_ns, loop_.now_ns() + kReportEveryNs);  // The next report may become due.
  return view_.must_poll() ? std::min(until_ns, loop_.now_ns() + kMembershipPauseNs) : until_ns;
}

int64_t Session::BeginWait() {
  if (closed()) return INT64_MAX;
  if (!idle_) return 0;  // What has come may have left work for the next Poll: connections to close, a table to read.
  loop_.Touch();
  const int64_t until_ns = loop_.BeginWait(WaitUntil(INT64_MAX));
  idle_ = until_ns != 0;
  return until_ns;
}

void Session::EndWait() {
  if (closed()) return;
  loop_.EndWait();
  idle_ = false;
}

void Session::SendReport() {
  WorkerConnection* const worker = connections_.AnyUp();
  if (reporting_.worker != nullptr || worker == nullptr) return;
  const int64_t now_ns = loop_.now_ns();
  const std::string json = fmt::format(
      R"({{"operations":{},"server_path":{},"client_path":{},"calls":{},"read_rounds":{},"retries":{},"node_reads":{},)"
      R"("extent_reads":{},"errors":{},"lookups":{},)"
      R"("lookup_reads":{},"lookup_torn":{},"lookup_extents":{},"lookup_moved":{},"p50_us":{:.2f},"p99_us":{:.2f},)"
      R"("seconds":{:.3f}}})",
      metrics_.operations, metrics_.server_path, metrics_.client_path, metrics_.calls, metrics_.read_rounds,
      metrics_.retries(), metrics_.node_reads, metrics_.extent_reads, metrics_.errors, metrics_.lookups,
      metrics_.lookup_reads, metrics_.lookup_torn, metrics_.lookup_extents, metrics_.lookup_moved,
      static_cast<double>(since_report_ns_.Quantile(0.5)) / 1e3,
      static_cast<double>(since_report_ns_.Quantile(0.99)) / 1e3, static_cast<double>(now_ns - reported_ns_) / 1e9);
  reported_ns_ = now_ns;
  since_report_ns_.Clear();
  reporting_.worker = worker;
  const std::string request = MakeTextRequest(MessageKind::kReport, json);
  loop_.fabric()->Call(worker->id, AsBytes(request), {}, kReplyBytesMin, now_ns + kReportEveryNs, &reporting_);
}

}  // namespace cell
