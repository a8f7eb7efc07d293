#include "cell/server/request/request_service.h"

#include <cstring>

#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/server/request/scan_request.h"
#include "fmt/format.h"

namespace cell {
namespace {

absl::Status NoMeganode(const HeldRegion& region) {
  return absl::InvalidArgumentError(fmt::format("region {} is part of a hash table: it has no order", region.region()));
}

}  // namespace

RequestService::RequestService(Fabric* fabric, Regions* regions, const Membership* membership,
                               MigrationHandler* migrations, Options options)
    : fabric_(fabric),
      options_(std::move(options)),
      started_ns_(fabric->NowNs()),
      regions_(regions),
      migrations_(migrations),
      served_(fabric, regions, membership),
      replies_(fabric, regions->shape().node_bytes),
      uploads_(options_.uploads),
      lookups_(&replies_, &copies_, options_.batching),
      writes_(fabric, regions, &served_, &uploads_, &replies_, {options_.name, options_.held_max_ns}) {}

void RequestService::Step() {
  if (!Mutated(Mutant::kUploadsOfTheDead)) uploads_.Expire(fabric_->NowNs());
}

void RequestService::Serve(absl::Span<const IncomingCall> calls) {
  ++batches_;
  served_.CheckLease();
  batch_.clear();
  for (const IncomingCall& call : calls) Parse(call, &batch_.emplace_back());
  lookups_.Serve(absl::MakeSpan(batch_));
  bool moved = false;  // A step of a migration may have dropped regions that others of the batch go to.
  for (BatchedRequest& request : batch_) {
    if (moved && IsWrite(request.kind)) request.target = served_.Find(request.keyed.root, request.keyed.key);
    ServeOne(request);
    moved |= request.kind == MessageKind::kMove;
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
  request->target = served_.Find(keyed->root, keyed->key);
}

void RequestService::ServeOne(const BatchedRequest& request) {
  const IncomingCall& call = *request.call;
  if (!request.status.ok()) return replies_.Error(call, request.kind, request.status);
  if (IsLookup(request.kind)) return;  // It is answered.
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
      return AddRoute(call.request, to);
    case MessageKind::kWeigh:
      return Weigh(to);
    case MessageKind::kMove:
      if (migrations_ != nullptr) return migrations_->ServeMove(call.peer, call.request, to);
      break;
    default:
      break;
  }
  return absl::InvalidArgumentError(fmt::format("unknown request of kind {}", static_cast<int>(kind)));
}

void RequestService::Disconnected(ConnectionId peer) {
  if (migrations_ != nullptr) migrations_->Disconnected(peer);
  writes_.Disconnected(peer);
  copies_.Disconnected(peer);
  if (!Mutated(Mutant::kUploadsOfTheDead)) uploads_.Forget(peer);
  ForgetReport(peer);
}

absl::StatusOr<size_t> RequestService::Scan(ConstBytes message, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<ScanRequest> request, ParseScanRequest(message));
  const Target target = served_.Find(request.fixed.root, request.key);
  if (target.store == nullptr) return WriteRoute(to, target);
  if (target.region->tree == nullptr) return NoMeganode(*target.region);
  return ServeScan(*target.region->tree, request, to);
}

// The bytes may be another extent's by now: the client checks the CRC over all pieces.
absl::StatusOr<size_t> RequestService::Fetch(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const FetchRequest request, ParseFetchRequest(call.request));
  if (request.copy != 0) {
    const std::optional<std::string_view> piece =
        copies_.Find(call.peer, request.copy, request.from.offset(), request.bytes);
    if (!piece.has_value() || request.bytes > to.size() - sizeof(ReplyHeader)) {
      return absl::OutOfRangeError(fmt::format("no copy {} with these bytes on {}", request.copy, options_.name));
    }
    const size_t bytes = WriteTextReply(to, MessageKind::kFetch, *piece);
    copies_.Fetched(call.peer, request.copy, request.from.offset() + request.bytes);
    return bytes;
  }
  const HeldRegion* region = served_.FindReadable(request.from.region());
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
  if (request.fixed.offset == 0) writes_.GiveUp(call.peer, request.fixed.upload);
  RETURN_IF_ERROR(
      uploads_.Add(call.peer, request.fixed.upload, request.fixed.offset, request.value, fabric_->NowNs()));
  return WriteTextReply(to, MessageKind::kUpload, "");
}

std::string RequestService::AnswerPeer(ConstBytes request) {
  std::string reply(kMessageBytesMax, 0);
  const MutableBytes to(reinterpret_cast<std::byte*>(reply.data()), reply.size());
  absl::StatusOr<size_t> bytes = AddRoute(request, to);
  if (!bytes.ok()) bytes = WriteErrorReply(to, MessageKind::kAddRoute, bytes.status());
  reply.resize(*bytes);
  return reply;
}

absl::StatusOr<size_t> RequestService::AddRoute(ConstBytes message, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<AddRouteRequest> request, ParseAddRouteRequest(message));
  HeldRegion* region = regions_->Find(request.fixed.root.region());
  if (region == nullptr || !region->writable()) {
    return WriteRouteReply(to, {RouteKind::kNotHeld, {}, {}, {}, false, false});
  }
  if (region->tree == nullptr) return NoMeganode(*region);
  Meganode& tree = *region->tree;
  if (tree.tier() < request.fixed.tier) return WriteRouteReply(to, {RouteKind::kTooLow, {}, {}, {}, false, false});
  if (tree.tier() > request.fixed.tier || !tree.Covers(request.key)) {
    return WriteRoute(to, served_.Find(request.fixed.root, request.key));
  }
  auto reply = ReplyOf<WriteReply>(MessageKind::kAddRoute);
  if (region->log != nullptr && !region->log->status().ok()) return region->log->status();
  ASSIGN_OR_RETURN(reply.existed, tree.InsertRoute(request.key, request.fixed.child));
  if (region->log != nullptr && region->log->dirty()) {
    region->flush_now = true;
    return absl::UnavailableError("the route is not on disk yet: ask again");
  }
  Store(to.data(), reply);
  return sizeof(reply);
}

absl::StatusOr<size_t> RequestService::Weigh(MutableBytes to) const {
  auto reply = ReplyOf<WeighReply>(MessageKind::kWeigh);
  reply.bytes_used = regions_->bytes_used();
  Store(to.data(), reply);
  return sizeof(reply);
}

}  // namespace cell
