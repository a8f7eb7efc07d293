#include "cell/server/request/request_service.h"

#include <cstdio>
#include <cstring>

#include "cell/base/json.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/server/report/region_report.h"
#include "cell/server/request/add_route.h"
#include "cell/server/request/scan_request.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr size_t kRegionsPerStatus = 60;  // This many fit into a message.

}  // namespace

RequestService::RequestService(const WorkerContext& context, ServedRegions* served, HeldWrites* held, Handlers handlers,
                               Options options)
    : fabric_(context.fabric),
      options_(std::move(options)),
      started_ns_(fabric_->NowNs()),
      regions_(context.regions),
      status_(context.status),
      handlers_(handlers),
      served_(served),
      replies_(fabric_, regions_->shape().node_bytes),
      uploads_(options_.uploads),
      lookups_(&replies_, &copies_, options_.batching),
      writes_(fabric_, regions_, {served, held, handlers.room, &uploads_, &replies_},
              {options_.name, options_.held_max_ns}) {}

void RequestService::Step() {
  if (!Mutated(Mutant::kUploadsOfTheDead)) uploads_.Expire(fabric_->NowNs());
}

void RequestService::Serve(absl::Span<const IncomingCall> calls) {
  ++batches_;
  served_->CheckLease();
  batch_.clear();
  for (const IncomingCall& call : calls) Parse(call, &batch_.emplace_back());
  lookups_.Serve(absl::MakeSpan(batch_));
  bool moved = false;  // A step of a migration may have dropped regions that are targets of other requests in the
                       // batch.
  for (BatchedRequest& request : batch_) {
    if (moved && IsWrite(request.kind)) request.target = served_->Find(request.keyed.root, request.keyed.key);
    ServeOne(request);
    moved |= request.kind == MessageKind::kMigration;
  }
}

void RequestService::Parse(const IncomingCall& call, BatchedRequest* request) const {
  request->call = &call;
  const absl::StatusOr<MessageHeader> header = ParseHeader(call.request);
  request->status = header.status();
  if (!header.ok()) return;
  request->kind = header->kind;
  if (!IsLookup(header->kind) && !IsWrite(header->kind)) return;
  absl::StatusOr<KeyedRequest> keyed = ParseKeyedRequest(header->kind, call.request);
  request->status = keyed.status();
  if (!keyed.ok()) return;
  request->keyed = *keyed;
  request->target = served_->Find(keyed->root, keyed->key);
}

void RequestService::ServeOne(const BatchedRequest& request) {
  const IncomingCall& call = *request.call;
  if (!request.status.ok()) return replies_.Error(call, request.kind, request.status);
  if (IsLookup(request.kind)) return;  // It is answered already.
  if (IsWrite(request.kind)) return writes_.Serve(call, request.keyed, request.target);
  const MutableBytes to = replies_.Begin(call);
  replies_.Finish(call, request.kind, to, ServeInPlace(request.kind, call, to));
}

absl::StatusOr<size_t> RequestService::ServeInPlace(MessageKind kind, const IncomingCall& call, MutableBytes to) {
  const std::string_view text = AsText(call.request.subspan(sizeof(MessageHeader)));
  switch (kind) {
    case MessageKind::kScan:
      return Scan(call.request, to);
    case MessageKind::kFetch:
      return Fetch(call, to);
    case MessageKind::kUpload:
      return Upload(call, to);
    case MessageKind::kStatus:
      return Status(text, to);
    case MessageKind::kCheck:
      return Check(text, to);
    case MessageKind::kReport:
      return Report(call, to);
    case MessageKind::kAddRoute:
      return ServeAddRoute(*served_, call.request, to);
    case MessageKind::kWeigh:
      return Weigh(to);
    case MessageKind::kMigration:
      if (handlers_.migrations != nullptr) return handlers_.migrations->ServeMigration(call.peer, call.request, to);
      break;
    default:
      break;
  }
  return absl::InvalidArgumentError(fmt::format("unknown request of kind {}", static_cast<int>(kind)));
}

void RequestService::Disconnected(ConnectionId peer) {
  if (handlers_.migrations != nullptr) handlers_.migrations->Disconnected(peer);
  writes_.Disconnected(peer);
  copies_.Disconnected(peer);
  if (!Mutated(Mutant::kUploadsOfTheDead)) uploads_.Forget(peer);
  clients_.Forget(peer);
}

absl::StatusOr<size_t> RequestService::Scan(ConstBytes message, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<ScanRequest> request, ParseScanRequest(message));
  const Target target = served_->Find(request.fixed.root, request.key);
  if (target.store == nullptr) return WriteRoute(to, target);
  if (target.region->tree == nullptr) return NoMeganode(*target.region);
  return ServeScan(*target.region->tree, request, to);
}

// Serves a fetch. The bytes may belong to another extent by now: the client checks the CRC over all pieces.
absl::StatusOr<size_t> RequestService::Fetch(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const FetchRequest request, ParseFetchRequest(call.request));
  if (request.copy != 0) {
    const std::optional<std::string_view> piece =
        copies_.Find(call.peer, request.copy, request.from.offset(), request.bytes);
    if (!piece.has_value() || request.bytes > to.size() - sizeof(ReplyHeader)) {
      return absl::OutOfRangeError(
          fmt::format("the requested bytes are not in copy {} on {}", request.copy, options_.name));
    }
    const size_t bytes = WriteTextReply(to, MessageKind::kFetch, *piece);
    copies_.Fetched(call.peer, request.copy, request.from.offset() + request.bytes);
    return bytes;
  }
  const HeldRegion* region = served_->FindReadable(request.from.region());
  if (region != nullptr && region->store->ExtentInBounds(request.from, request.bytes) &&
      request.bytes <= to.size() - sizeof(ReplyHeader)) {
    Store(to.data(),
          ReplyHeader{MessageKind::kFetch, 0, static_cast<uint32_t>(sizeof(ReplyHeader) + request.bytes), {}});
    std::memcpy(to.data() + sizeof(ReplyHeader), region->store->Extent(request.from), request.bytes);
    return sizeof(ReplyHeader) + request.bytes;
  }
  return absl::OutOfRangeError(
      fmt::format("no extent of {} bytes at {} on {}", request.bytes, ToString(request.from), options_.name));
}

absl::StatusOr<size_t> RequestService::Upload(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<UploadRequest> request, ParseUploadRequest(call.request));
  if (request.fixed.offset == 0) writes_.Withdraw(call.peer, request.fixed.upload);
  RETURN_IF_ERROR(uploads_.Add(call.peer, request.fixed.upload, request.fixed.offset, request.value, fabric_->NowNs()));
  return WriteTextReply(to, MessageKind::kUpload, "");
}

absl::StatusOr<size_t> RequestService::Weigh(MutableBytes to) const {
  auto reply = ReplyOf<WeighReply>(MessageKind::kWeigh);
  reply.bytes_used = regions_->bytes_used();
  Store(to.data(), reply);
  return sizeof(reply);
}

// Serves a status request: "FIRST", or nothing for 0. The reply lists the regions from number FIRST on, as many as are
// sure to fit into a message.
absl::StatusOr<size_t> RequestService::Status(std::string_view text, MutableBytes to) const {
  unsigned first = 0;
  if (!text.empty() && std::sscanf(std::string(text).c_str(), "%u", &first) != 1) {
    return absl::InvalidArgumentError("a status request must contain \"FIRST\" or nothing");
  }
  return WriteTextReply(to, MessageKind::kStatus, StatusJson(first, kRegionsPerStatus));
}

std::string RequestService::StatusJson(size_t first, size_t regions_max) const {
  nlohmann::json json;
  json["server"] = options_.name;
  json["uptime_seconds"] = static_cast<double>(fabric_->NowNs() - started_ns_) / 1e9;
  json["connections"] = fabric_->peers();
  json["batches"] = batches_;
  json["refused"] = replies_.refused();
  const std::pair<const char*, MessageKind> kinds[] = {
      {"search", MessageKind::kSearch}, {"get", MessageKind::kGet},       {"put", MessageKind::kPut},
      {"delete", MessageKind::kDelete}, {"scan", MessageKind::kScan},     {"fetch", MessageKind::kFetch},
      {"upload", MessageKind::kUpload}, {"status", MessageKind::kStatus}, {"add_route", MessageKind::kAddRoute}};
  for (const auto& [name, kind] : kinds) json["served"][name] = replies_.served(kind);
  json["routed"] = replies_.routed();
  json["held_writes"] = {{"now", writes_.held().size()},
                         {"ever", writes_.held().ever()},
                         {"longest_us", static_cast<double>(writes_.held().longest_ns()) / 1e3}};
  json["uploads"] = {{"bytes", uploads_.bytes()}, {"dropped", uploads_.dropped()}};
  json["regions_max"] = regions_->regions_max();
  json["regions_ready"] = regions_->free();
  const std::vector<HeldRegion*> held = regions_->all();
  json["regions_held"] = held.size();
  json["regions"] = nlohmann::json::array();
  for (size_t i = first; i < held.size() && i - first < regions_max; ++i) {
    json["regions"].push_back(RegionStatus(*held[i]));
  }
  clients_.AddTo(&json);
  status_->AddTo(&json);
  return JsonText(json);
}

absl::StatusOr<size_t> RequestService::Report(const IncomingCall& call, MutableBytes to) {
  RETURN_IF_ERROR(clients_.Set(call.peer, AsText(call.request.subspan(sizeof(MessageHeader)))));
  return WriteTextReply(to, MessageKind::kReport, "");
}

// Serves a check. "REGION" returns the region's report. "REGION FIRST" returns its routes from number FIRST on, as many
// as fit.
absl::StatusOr<size_t> RequestService::Check(std::string_view text, MutableBytes to) {
  unsigned id = 0, first = 0;
  const int numbers = std::sscanf(std::string(text).c_str(), "%u %u", &id, &first);
  if (numbers < 1) return absl::InvalidArgumentError("a check request must contain \"REGION\" or \"REGION FIRST\"");
  const HeldRegion* region = regions_->Find(id);
  if (region == nullptr || !region->readable()) {
    return absl::NotFoundError(fmt::format("{} does not hold region {}", options_.name, id));
  }
  if (region->state() == RegionState::kFilling) {
    return absl::FailedPreconditionError(fmt::format("region {} is being filled", id));
  }
  if (handlers_.room != nullptr) handlers_.room->FreeAll();
  const bool routes = numbers == 2 && region->tree != nullptr;
  return WriteTextReply(to, MessageKind::kCheck, routes ? RoutesReport(*region, first) : CheckReport(*region));
}

}  // namespace cell
