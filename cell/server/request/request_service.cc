#include "cell/server/request/request_service.h"

#include <utility>

#include "cell/base/status_macros.h"
#include "cell/layout/roles.h"
#include "cell/server/region/regions.h"
#include "cell/server/report/status_report.h"
#include "cell/server/request/function_request.h"
#include "cell/server/request/range_request.h"
#include "cell/server/request/route_request.h"
#include "cell/server/request/scan_request.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {

RequestService::RequestService(const WorkerContext& context, ServedRegions* served, HeldWrites* held, Handlers handlers,
                               const Options& options)
    : migrations_(handlers.migrations),
      regions_(context.regions),
      served_(served),
      permissions_(context.fabric, context.membership),
      replies_(context.fabric, context.regions->shape().node_bytes),
      large_values_(context.fabric, served, held, options.name, options.uploads),
      evictor_(context, options.evictor),
      compactor_(context, options.compactor),
      lookups_(&replies_, large_values_.copies(), &evictor_, options.batching),
      writes_(context.fabric, context.scheduler, context.regions,
              {served, held, handlers.room, &evictor_, &compactor_, large_values_.uploads(), &replies_, &permissions_},
              {options.name, options.held_max_ns}),
      sweeper_(context, served, &writes_, options.sweeper),
      reports_(context, options.name),
      checks_(context.regions, &replies_, options.name),
      long_requests_(context.fabric, options.long_requests),
      table_requests_(context.membership, handlers.table),
      snapshots_(context.fabric, context.regions, {served, &permissions_, large_values_.copies()}) {
  context.status->Add([this](nlohmann::json* status) { AddTo(status); });
}

void RequestService::Serve(absl::Span<const IncomingCall> calls) {
  ++batches_;
  served_->CheckLease();
  batch_.clear();
  long_batch_.clear();
  for (const IncomingCall& call : calls) {
    Parse(call, &batch_.emplace_back());
    if (!MayTakeLong(batch_.back())) continue;
    long_batch_.push_back(std::move(batch_.back()));
    batch_.pop_back();
  }
  lookups_.Serve(absl::MakeSpan(batch_));
  bool moved = false;  // A step of a migration may have dropped regions that are targets of other requests in the
                       // batch.
  for (BatchedRequest& request : batch_) {
    if (moved && IsKeyed(request.kind) && !request.gone) request.target = TargetOf(*served_, request.keyed);
    ServeOne(request);
    moved |= request.kind == MessageKind::kMigration;
  }
  for (const BatchedRequest& request : long_batch_) {
    const absl::Status kept =
        long_requests_.Serve(*request.call, [this](const IncomingCall& call) { ServeAlone(call); });
    if (!kept.ok()) replies_.Error(*request.call, request.kind, kept);
  }
}

bool RequestService::MayTakeLong(const BatchedRequest& request) {
  if (!request.status.ok()) return false;  // An error takes no time.
  switch (request.kind) {
    case MessageKind::kScan:
    case MessageKind::kCount:
    case MessageKind::kDeleteRange:
    case MessageKind::kFetch:
    case MessageKind::kStatus:
    case MessageKind::kReport:
    case MessageKind::kWeigh:
    case MessageKind::kTablePart:
    case MessageKind::kScanSnapshot:
    case MessageKind::kGetSnapshot:
    case MessageKind::kEvaluate:  // Of a value of 1 MB it takes longer than 64 KB of any reply.
      return true;
    case MessageKind::kGet:  // Of a value that is copied.
      return request.keyed.copy != 0;
    default:
      return false;
  }
}

void RequestService::ServeAlone(const IncomingCall& call) {
  BatchedRequest request;
  Parse(call, &request);
  lookups_.Serve(absl::MakeSpan(&request, 1));
  ServeOne(request);
}

size_t RequestService::ServeWaiting() {
  if (long_requests_.size() > 0) served_->CheckLease();
  return long_requests_.ServeWaiting([this](const IncomingCall& call) { ServeAlone(call); }) + checks_.Step();
}

void RequestService::Parse(const IncomingCall& call, BatchedRequest* request) {
  request->call = &call;
  const absl::StatusOr<MessageHeader> header = ParseHeader(call.request);
  request->status = header.status();
  if (!header.ok()) return;
  request->kind = header->kind;
  if (!MayRequest(call.from->role, header->kind)) {
    ++not_allowed_;
    request->status = absl::PermissionDeniedError(
        fmt::format("{} may not send this: it is for {}s", ToString(*call.from), ToString(*LeastRole(header->kind))));
    return;
  }
  if (!IsKeyed(header->kind)) return;
  request->status = ParseKeyedRequest(header->kind, call.request, &request->keyed);
  if (request->status.ok()) request->status = permissions_.CheckKeyed(call, request->keyed, &request->gone);
  // The state of a leaf has a checksum of all its pairs.
  if (request->keyed.wants_leaf) request->keyed.wants_leaf = permissions_.MayReadMemory(call);
  if (request->status.ok() && !request->gone) request->target = TargetOf(*served_, request->keyed);
}

void RequestService::ServeOne(const BatchedRequest& request) {
  const IncomingCall& call = *request.call;
  if (!request.status.ok()) return replies_.Error(call, request.kind, request.status);
  if (IsLookup(request.kind)) return;  // It is answered already.
  if (IsWrite(request.kind)) return writes_.Serve(call, request.keyed, request.target);
  if (request.kind == MessageKind::kCheck) {
    const absl::Status begun = checks_.Add(call, AsText(call.request.subspan(sizeof(MessageHeader))));
    if (!begun.ok()) replies_.Error(call, request.kind, begun);
    return;
  }
  const MutableBytes to = replies_.Begin(call);
  replies_.Finish(call, request.kind, to,
                  request.kind == MessageKind::kEvaluate
                      ? Evaluate(call, request.keyed, request.target, large_values_.copies(), to)
                      : ServeInPlace(request.kind, call, to));
}

absl::StatusOr<size_t> RequestService::ServeInPlace(MessageKind kind, const IncomingCall& call, MutableBytes to) {
  const std::string_view text = AsText(call.request.subspan(sizeof(MessageHeader)));
  switch (kind) {
    case MessageKind::kScan:
      return Scan(call, to);
    case MessageKind::kCount:
      return CountRange(call, to);
    case MessageKind::kFetch:
      return Fetch(call, to);
    case MessageKind::kUpload:
      return Upload(call, to);
    case MessageKind::kStatus:
      return reports_.Status(text, to);
    case MessageKind::kReport:
      return reports_.Report(call.peer, text, to);
    case MessageKind::kAddRoute:
    case MessageKind::kRemoveRoute:
      return ServeRouteRequest(served_, call.request, to);
    case MessageKind::kTime:
      return Time(to);
    case MessageKind::kTableVersion:
      return table_requests_.Version(call.request, to);
    case MessageKind::kTablePart:
      return table_requests_.Part(call.request, to);
    case MessageKind::kWeigh:
      return reports_.Weigh(to);
    case MessageKind::kSnapshot:
      return snapshots_.Take(call, to);
    case MessageKind::kGetSnapshot:
      return snapshots_.Get(call, to);
    case MessageKind::kScanSnapshot:
      return snapshots_.Scan(call, to);
    case MessageKind::kMigration:
      if (migrations_ != nullptr) return migrations_->ServeMigration(call, to);
      break;
    default:
      break;
  }
  return absl::InvalidArgumentError(fmt::format("unknown request of kind {}", static_cast<int>(kind)));
}

void RequestService::Disconnected(ConnectionId peer) {
  permissions_.Disconnected(peer);
  if (migrations_ != nullptr) migrations_->Disconnected(peer);
  writes_.Disconnected(peer);
  large_values_.Disconnected(peer);
  reports_.Disconnected(peer);
  checks_.Disconnected(peer);
  long_requests_.Disconnected(peer);
}

absl::StatusOr<size_t> RequestService::Scan(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<ScanRequest> request, ParseScanRequest(call.request));
  const KeySpan* seen;
  RETURN_IF_ERROR(permissions_.CheckScan(call, request.fixed.root, request.key, &seen));
  const Target target = served_->Find(request.fixed.root, request.key);
  if (target.store == nullptr) return WriteRoute(to, target, request.key);
  if (target.region->tree == nullptr) return NoMeganode(*target.region);
  return ServeScan(*target.region->tree, target.region->transactions.locks, request, seen, to);
}

size_t RequestService::Time(MutableBytes to) const {
  auto reply = ReplyOf<TimeReply>(MessageKind::kTime);
  reply.time_ns = regions_->ClusterTime();
  Store(to.data(), reply);
  return sizeof(reply);
}

absl::StatusOr<size_t> RequestService::Fetch(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const FetchRequest request, ParseFetchRequest(call.request));
  // A copy was made for this peer, when its get was allowed. An extent is memory, and may have any pair by now.
  if (request.copy == 0) RETURN_IF_ERROR(permissions_.CheckMemory(call));
  return large_values_.Fetch(call, to);
}

absl::StatusOr<size_t> RequestService::Upload(const IncomingCall& call, MutableBytes to) {
  RETURN_IF_ERROR(permissions_.CheckUpload(call));
  return large_values_.Upload(call, to);
}

absl::StatusOr<size_t> RequestService::CountRange(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<RangeRequest> request, ParseRangeRequest(call.request));
  RETURN_IF_ERROR(permissions_.CheckCount(call, request.fixed.root, request.key, request.value));
  const Target target = served_->Find(request.fixed.root, request.key);
  if (target.store == nullptr) return WriteRoute(to, target, request.key);
  if (target.region->tree == nullptr) return NoMeganode(*target.region);
  return ServeCount(*target.region->tree, target.region->transactions.locks, request, to);
}

void RequestService::AddTo(nlohmann::json* status) const {
  (*status)["batches"] = batches_;
  (*status)["refused"] = replies_.refused();
  (*status)["not_allowed"] = not_allowed_;
  (*status)["not_granted"] = permissions_.refused();
  (*status)["cleared"] = writes_.cleared();
  (*status)["expired"] = writes_.expired();
  (*status)["evicted"] = writes_.evicted();
  const std::pair<const char*, MessageKind> kinds[] = {{"search", MessageKind::kSearch},
                                                       {"get", MessageKind::kGet},
                                                       {"put", MessageKind::kPut},
                                                       {"delete", MessageKind::kDelete},
                                                       {"scan", MessageKind::kScan},
                                                       {"fetch", MessageKind::kFetch},
                                                       {"upload", MessageKind::kUpload},
                                                       {"status", MessageKind::kStatus},
                                                       {"add_route", MessageKind::kAddRoute},
                                                       {"remove_route", MessageKind::kRemoveRoute},
                                                       {"count", MessageKind::kCount},
                                                       {"delete_range", MessageKind::kDeleteRange},
                                                       {"time", MessageKind::kTime},
                                                       {"table_version", MessageKind::kTableVersion},
                                                       {"table_part", MessageKind::kTablePart},
                                                       {"write_if", MessageKind::kWriteIf},
                                                       {"apply", MessageKind::kApply},
                                                       {"evaluate", MessageKind::kEvaluate},
                                                       {"transact", MessageKind::kTransact},
                                                       {"decide", MessageKind::kDecide},
                                                       {"snapshot", MessageKind::kSnapshot},
                                                       {"get_snapshot", MessageKind::kGetSnapshot},
                                                       {"scan_snapshot", MessageKind::kScanSnapshot}};
  for (const auto& [name, kind] : kinds) (*status)["served"][name] = replies_.served(kind);
  (*status)["served"]["upload"] = replies_.served(MessageKind::kUpload) - large_values_.empty_uploads();
  (*status)["served"]["raw_call"] = large_values_.empty_uploads();
  size_t held = 0, snapshots = 0;
  uint64_t taken = 0, gone_on = 0;
  regions_->ForEach([&](const HeldRegion* region) {
    held += region->transactions.size();
    snapshots += region->snapshots.size();
    taken += region->snapshots.taken();
    gone_on += region->snapshots.gone_on();
  });
  (*status)["snapshots"] = {{"now", snapshots},
                            {"taken", taken},
                            {"waited_too_long", gone_on},
                            {"bytes", regions_->snapshots().bytes()},
                            {"ended_for_room", regions_->snapshots().ended()}};
  const TransactionRequests::Counters& transactions = writes_.transactions().counters();
  (*status)["transactions"] = {{"now", held},
                               {"prepared", transactions.prepared},
                               {"committed", transactions.committed},
                               {"aborted", transactions.aborted},
                               {"untimely", transactions.untimely}};
  for (const Function* function : Functions().all()) (*status)["functions"].push_back(std::string(function->name));
  (*status)["routed"] = replies_.routed();
  (*status)["held_writes"] = {{"now", writes_.held().size()},
                              {"ever", writes_.held().ever()},
                              {"displaced", writes_.held().displaced()},
                              {"longest_us", static_cast<double>(writes_.held().longest_ns()) / 1e3}};
  (*status)["uploads"] = {{"bytes", uploads().bytes()}, {"dropped", uploads().dropped()}};
  (*status)["checks"] = {{"now", checks_.size()}, {"refused", checks_.refused()}};
  (*status)["long_requests"] = {
      {"now", long_requests_.size()}, {"waited", long_requests_.ever()}, {"refused", long_requests_.refused()}};
}

}  // namespace cell
