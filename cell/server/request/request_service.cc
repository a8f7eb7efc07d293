#include "cell/server/request/request_service.h"

#include <algorithm>

#include "cell/base/status_macros.h"
#include "cell/tree/scan_position.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr int kLeavesPerScan = 4096;

// What a scan of `leaf` from slot `first` on will touch: the extents, and the leaf to the right.
void PrefetchForScan(const Meganode& tree, const NodeView& leaf, int first, bool down, bool keys_only) {
  if (!down && leaf.right().region() == tree.region()) {
    Prefetch(tree.Node(leaf.right()).bytes(), leaf.node_bytes());
  }
  if (keys_only) return;
  for (int slot = first; ScanPosition::In(leaf, slot); slot += down ? -1 : 1) {
    const LeafSlot one = leaf.leaf_slot(slot);
    Prefetch(tree.Extent(one.extent), std::min<size_t>(one.extent_bytes, 512));
  }
}

absl::Status NoMeganode(const HeldRegion& region) {
  return absl::InvalidArgumentError(fmt::format("region {} is part of a hash table: it has no order", region.region()));
}

}  // namespace

RequestService::RequestService(Fabric* fabric, Regions* regions, MigrationHandler* migrations, Options options)
    : fabric_(fabric),
      options_(std::move(options)),
      started_ns_(fabric->NowNs()),
      regions_(regions),
      migrations_(migrations),
      uploads_(options_.uploads) {}

RequestService::Found RequestService::Find(Pointer root, std::string_view key) const {
  Found found;
  HeldRegion* region = regions_->Find(root.region());
  if (region == nullptr || RootOf(region->region()) != root || !region->readable()) return found;
  if (!leased_ && region->log != nullptr) return found;  // It may have been recovered elsewhere.
  found.region = region;
  if (region->hash != nullptr) {  // What is not in its range another region has, by the newest table.
    if (region->hash->range().Has(HashKey(key))) found.store = region->hash;
    return found;
  }
  const Meganode& tree = *region->tree;
  if (tree.tier() == 0 && tree.Covers(key)) {
    found.store = region->tree;
    return found;
  }
  found.route = tree.RouteOf(key);
  using Kind = Meganode::Route::Kind;
  found.kind = found.route.kind == Kind::kChild   ? RouteKind::kChild
               : found.route.kind == Kind::kRight ? RouteKind::kRight
                                                  : RouteKind::kLost;
  return found;
}

size_t RequestService::WriteRoute(MutableBytes to, const Found& found) {
  RouteView view{found.kind, found.route.next, found.route.low, {}, found.kind == RouteKind::kChild, false};
  if (found.route.high.has_value()) {
    view.high_key = *found.route.high;
    view.has_high = true;
  }
  return WriteRouteReply(to, view);
}

void RequestService::Serve(absl::Span<const IncomingCall> calls) {
  ++batches_;
  leased_ = Leased();
  hints_.assign(calls.size(), Pointer());
  ServeLookups(calls);
  for (size_t i = 0; i < calls.size(); ++i) ServeOne(calls[i], hints_[i]);
}

void RequestService::End(const IncomingCall& call, MutableBytes to, size_t bytes) {
  const ServiceTimes times = fabric_->TimesOf(call, regions_->shape().node_bytes);
  if (times.read_ns != 0) SetTimes(to, times);
  fabric_->EndReply(call, bytes);
}

void RequestService::AnswerError(const IncomingCall& call, MessageKind kind, const absl::Status& status) {
  ++refused_;
  const MutableBytes to = fabric_->BeginReply(call);
  End(call, to, WriteErrorReply(to, kind, status));
}

std::string RequestService::AnswerPeer(ConstBytes request) {
  std::string reply(kMessageBytesMax, 0);
  const MutableBytes to(reinterpret_cast<std::byte*>(reply.data()), reply.size());
  absl::StatusOr<size_t> bytes = AddRoute(request, to);
  if (!bytes.ok()) bytes = WriteErrorReply(to, MessageKind::kAddRoute, bytes.status());
  reply.resize(*bytes);
  return reply;
}

void RequestService::ServeOne(const IncomingCall& call, Pointer hint) {
  const absl::StatusOr<MessageHeader> header = ParseHeader(call.request);
  if (!header.ok()) return AnswerError(call, MessageKind{}, header.status());
  const MessageKind kind = header->kind;
  if (kind == MessageKind::kSearch || kind == MessageKind::kGet) return;  // ServeLookups has answered it.
  const bool write = kind == MessageKind::kPut || kind == MessageKind::kDelete;
  if (write && Hold(call, kind, nullptr)) return;
  // The handlers compose their reply in place; the room is taken before they run.
  const MutableBytes to = fabric_->BeginReply(call);
  absl::StatusOr<size_t> bytes = absl::InvalidArgumentError("");
  switch (kind) {
    case MessageKind::kPut:
    case MessageKind::kDelete:
      bytes = Write(call, kind, hint, to);
      break;
    case MessageKind::kScan:
      bytes = Scan(call, to);
      break;
    case MessageKind::kFetch:
      bytes = Fetch(call, to);
      break;
    case MessageKind::kUpload:
      bytes = Upload(call, to);
      break;
    case MessageKind::kStatus:
      bytes = Status(AsText(call.request.subspan(sizeof(MessageHeader))), to);
      break;
    case MessageKind::kCheck:
      bytes = Check(AsText(call.request.subspan(sizeof(MessageHeader))), to);
      break;
    case MessageKind::kReport:
      bytes = Report(call, to);
      break;
    case MessageKind::kAddRoute:
      bytes = AddRoute(call.request, to);
      break;
    case MessageKind::kWeigh: {
      auto reply = ReplyOf<WeighReply>(kind);
      reply.bytes_used = regions_->bytes_used();
      Store(to.data(), reply);
      bytes = sizeof(reply);
      break;
    }
    case MessageKind::kMove:
      if (migrations_ != nullptr) bytes = migrations_->ServeMove(call.peer, call.request, to);
      break;
    default:
      bytes = absl::InvalidArgumentError(fmt::format("unknown request of kind {}", static_cast<int>(kind)));
  }
  const absl::Status status = bytes.status();
  if (write && (status.ok() ? *bytes == 0 : Hold(call, kind, &status))) return;
  if (write && !status.ok()) bytes = Refusal(status, RegionOf(call));
  Answer(call, kind, std::move(bytes), to);
}

void RequestService::Answer(const IncomingCall& call, MessageKind kind, absl::StatusOr<size_t> bytes, MutableBytes to) {
  if (kind == MessageKind::kPut) {  // Its client sends the value once more if it tries again.
    const absl::StatusOr<Parsed<PutRequest>> put = ParsePutRequest(call.request);
    if (put.ok() && put->fixed.upload != 0) uploads_.Forget(call.peer, put->fixed.upload);
  }
  if (bytes.ok() && IsRoute({to.data(), *bytes})) {
    ++routed_;
  } else if (bytes.ok()) {
    ++served_[static_cast<size_t>(kind)];
  } else {
    ++refused_;
    bytes = WriteErrorReply(to, kind, bytes.status());
  }
  End(call, to, *bytes);
}

// ---- Writes that wait.

size_t RequestService::held(uint32_t region) const {
  return static_cast<size_t>(
      std::count_if(held_.begin(), held_.end(), [region](const Held& held) { return held.region == region; }));
}

HeldRegion* RequestService::RegionOf(const IncomingCall& call) const {
  // Both kinds of write name the meganode's root first.
  if (call.request.size() < sizeof(MessageHeader) + sizeof(Pointer)) return nullptr;
  return regions_->Find(Load<Pointer>(call.request.data() + sizeof(MessageHeader)).region());
}

bool RequestService::Mending(HeldRegion* region) const {
  // What is logged and not applied may have taken what is lacking.
  return !region->pending.empty() || (on_full_ && on_full_(region));
}

absl::Status RequestService::Refusal(const absl::Status& status, HeldRegion* region) const {
  const bool full = status.code() == absl::StatusCode::kResourceExhausted && region != nullptr;
  if (!full || region->ClaimedFor(ClaimPurpose::kRouteBlocked) || !Mending(region)) return status;
  return absl::UnavailableError(fmt::format(
      "region {} is full, and has not been split yet, or its disk is slow; nothing was written", region->region()));
}

bool RequestService::Hold(const IncomingCall& call, MessageKind kind, const absl::Status* outcome) {
  HeldRegion* const region = RegionOf(call);
  if (region == nullptr || held_.size() >= kHeldMax) return false;
  const uint32_t id = region->region();
  if (outcome == nullptr) {
    // Behind others of its region, in order.
    if (Writable(*region) && (held_.empty() || held(id) == 0)) return false;
  } else if (outcome->code() != absl::StatusCode::kResourceExhausted || !Mending(region)) {
    return false;
  }
  held_.push_back({call, std::string(AsText(call.request)), kind, id, fabric_->NowNs()});
  held_.back().call.request = {};
  ++held_ever_;
  return true;
}

// A client that begins an upload under the number of a put that waits has given that put up. Tried again, the put would
// take the other value, or take it away.
void RequestService::GiveUpHeld(ConnectionId peer, uint16_t upload) {
  for (Held& held : held_) {
    if (held.call.peer != peer || held.kind != MessageKind::kPut) continue;
    const absl::StatusOr<Parsed<PutRequest>> put = ParsePutRequest(AsBytes(held.request));
    held.given_up |= put.ok() && put->fixed.upload == upload;
  }
}

size_t RequestService::RetryHeld() {
  size_t answered = 0;
  if (!held_.empty() && !Mutated(Mutant::kHeldUnleased)) leased_ = Leased();
  std::vector<uint32_t> waiting;  // Whose first still has to wait: then the others have, too.
  for (auto it = held_.begin(); it != held_.end();) {
    if (std::find(waiting.begin(), waiting.end(), it->region) != waiting.end()) {
      ++it;
      continue;
    }
    if (it->given_up) {
      const MutableBytes to = fabric_->BeginReply(it->call);
      End(it->call, to, WriteErrorReply(to, it->kind, absl::CancelledError("its client has begun another upload")));
      it = held_.erase(it);
      ++answered;
      continue;
    }
    HeldRegion* const region = regions_->Find(it->region);
    const int64_t waited_ns = fabric_->NowNs() - it->since_ns;
    if (region != nullptr && !Writable(*region) && waited_ns < options_.held_max_ns) {
      waiting.push_back(it->region);
      ++it;
      continue;
    }
    it->call.request = AsBytes(it->request);
    const MutableBytes to = fabric_->BeginReply(it->call);
    absl::StatusOr<size_t> bytes = Write(it->call, it->kind, {}, to);
    if (bytes.status().code() == absl::StatusCode::kResourceExhausted && region != nullptr && Mending(region) &&
        waited_ns < options_.held_max_ns) {
      waiting.push_back(it->region);
      it->call.request = {};
      ++it;
      continue;
    }
    if (!bytes.ok()) bytes = Refusal(bytes.status(), region);
    held_longest_ns_ = std::max(held_longest_ns_, waited_ns);
    if (!bytes.ok() || *bytes != 0) Answer(it->call, it->kind, std::move(bytes), to);
    it = held_.erase(it);
    ++answered;
  }
  return answered;
}

absl::StatusOr<size_t> RequestService::Write(const IncomingCall& call, MessageKind kind, Pointer hint,
                                             MutableBytes to) {
  if (!leased_) {
    return absl::UnavailableError(
        fmt::format("{} cannot renew its session and acknowledges no writes; nothing was written", options_.name));
  }
  const HeldRegion* const region = RegionOf(call);
  if (region != nullptr && !Writable(*region)) {
    return absl::UnavailableError(fmt::format("region {} waits for {}, which takes too long; nothing was written",
                                              region->region(), region->late ? "its log's disk" : "its move"));
  }
  if (region != nullptr && region->log != nullptr && !region->log->status().ok()) {
    return absl::UnavailableError(
        fmt::format("the log of region {} has failed, and nothing is written to it any "
                    "more: {}",
                    region->region(), std::string(region->log->status().message())));
  }
  return kind == MessageKind::kPut ? Put(call, hint, to) : Delete(call, hint, to);
}

absl::StatusOr<size_t> RequestService::Put(const IncomingCall& call, Pointer hint, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<PutRequest> request, ParsePutRequest(call.request));
  const Found found = Find(request.fixed.root, request.key);
  if (found.store == nullptr) return WriteRoute(to, found);
  if (!request.fixed.hint.null()) hint = request.fixed.hint;
  auto reply = ReplyOf<WriteReply>(MessageKind::kPut);
  size_t bytes = sizeof(reply);
  const auto put = [&](std::string_view value) -> absl::Status {
    if (!found.region->log_first) {
      ASSIGN_OR_RETURN(reply.existed, found.store->Put(request.key, value, request.fixed.crc, hint));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const PairStore::Prepared prepared, Prepare(found, request, value));
    bytes = Log(call, MessageKind::kPut, found.region, request.key, value, prepared, hint);
    return absl::OkStatus();
  };
  if (request.fixed.upload == 0) {
    RETURN_IF_ERROR(put(request.value));
  } else {
    ASSIGN_OR_RETURN(const std::string_view value,
                     uploads_.Find(call.peer, request.fixed.upload, request.fixed.value_bytes));
    RETURN_IF_ERROR(put(value));
    if (bytes == 0) uploads_.Forget(call.peer, request.fixed.upload);  // It is in an extent, and in the log.
  }
  Store(to.data(), reply);
  return bytes;
}

bool RequestService::IsPending(const HeldRegion& region, std::string_view key) {
  return std::any_of(region.pending.begin(), region.pending.end(),
                     [key](const PendingWrite& write) { return write.key == key; });
}

absl::StatusOr<PairStore::Prepared> RequestService::Prepare(const Found& found, const Parsed<PutRequest>& request,
                                                            std::string_view value) const {
  PairStore::Ahead ahead{found.region->pending.size(), /*of_key=*/true};
  absl::StatusOr<PairStore::Prepared> prepared = found.store->Prepare(request.key, value, request.fixed.crc, ahead);
  if (prepared.status().code() != absl::StatusCode::kResourceExhausted || IsPending(*found.region, request.key)) {
    return prepared;
  }
  ahead.of_key = false;  // So that a region that is full takes what replaces a value, as it does without a log.
  return found.store->Prepare(request.key, value, request.fixed.crc, ahead);
}

size_t RequestService::Log(const IncomingCall& call, MessageKind kind, HeldRegion* region, std::string_view key,
                           std::string_view value, const PairStore::Prepared& prepared, Pointer hint) {
  const RecordKind record = kind == MessageKind::kPut ? RecordKind::kPut : RecordKind::kDelete;
  const uint64_t sequence = region->log->Append(record, key, value);
  region->pending.push_back({call, kind, sequence, std::string(key), prepared, hint});
  region->pending.back().call.request = {};
  ++pending_;
  return 0;
}

void RequestService::AnswerPending(const PendingWrite& write, absl::StatusOr<bool> existed) {
  if (write.call.reply_bytes_max == 0) return;  // Its client has gone.
  const MutableBytes to = fabric_->BeginReply(write.call);
  absl::StatusOr<size_t> bytes = size_t{0};
  if (!existed.ok()) {
    bytes = existed.status();
  } else {
    auto reply = ReplyOf<WriteReply>(write.kind);
    reply.existed = *existed;
    Store(to.data(), reply);
    bytes = sizeof(reply);
  }
  Answer(write.call, write.kind, std::move(bytes), to);
}

size_t RequestService::ApplyDurable() {
  if (pending_ == 0) return 0;
  const size_t before = pending_;
  regions_->ForEach([this](HeldRegion* region) {
    while (!region->pending.empty()) {
      const PendingWrite& write = region->pending.front();
      const absl::Status& failed = region->log->status();
      absl::StatusOr<bool> existed = false;
      if (write.sequence <= region->log->durable()) {
        region->logged_already = true;
        existed = write.kind == MessageKind::kPut ? region->store->Commit(write.prepared, write.key, write.hint)
                                                  : region->store->Delete(write.key, write.hint);
        region->logged_already = false;
      } else if (!failed.ok()) {
        if (write.kind == MessageKind::kPut) region->store->Abandon(write.prepared);
        // It may be on disk all the same.
        existed = absl::UnknownError(fmt::format("the log has failed: {}", std::string(failed.message())));
        if (Mutated(Mutant::kFailedPlainly)) existed = absl::UnavailableError(std::string(failed.message()));
      } else {
        break;
      }
      AnswerPending(write, std::move(existed));
      region->pending.pop_front();
      --pending_;
    }
  });
  return before - pending_;
}

void RequestService::Lose(HeldRegion* region) {
  for (const PendingWrite& write : region->pending) {
    AnswerPending(write, absl::UnknownError("the region is another server's by now"));
  }
  pending_ -= region->pending.size();
  region->pending.clear();
}

absl::StatusOr<size_t> RequestService::Delete(const IncomingCall& call, Pointer hint, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<KeyRequest> request, ParseKeyRequest(call.request));
  const Found found = Find(request.fixed.root, request.key);
  if (found.store == nullptr) return WriteRoute(to, found);
  if (!request.fixed.hint.null()) hint = request.fixed.hint;
  auto reply = ReplyOf<WriteReply>(MessageKind::kDelete);
  if (found.region->log_first) {
    RETURN_IF_ERROR(found.store->CheckKey(request.key));
    return Log(call, MessageKind::kDelete, found.region, request.key, {}, {}, hint);
  }
  ASSIGN_OR_RETURN(reply.existed, found.store->Delete(request.key, hint));
  Store(to.data(), reply);
  return sizeof(reply);
}

absl::StatusOr<size_t> RequestService::Scan(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<ScanRequest> request, ParseScanRequest(call.request));
  const Found found = Find(request.fixed.root, request.key);
  if (found.store == nullptr) return WriteRoute(to, found);
  const Meganode* const tree = found.region->tree;
  if (tree == nullptr) return NoMeganode(*found.region);
  const bool keys_only = request.fixed.keys_only != 0;
  ScanPosition position(request.fixed.down != 0, std::string(request.key),
                        request.fixed.has_to != 0 ? std::optional<std::string>(request.value) : std::nullopt,
                        tree->key_bytes_max());
  // Room for the key where the next scan starts is kept free.
  const size_t room = std::min<size_t>(to.size(), request.fixed.reply_bytes_max);
  if (room < sizeof(ScanReply) + 2 * tree->key_bytes_max() + sizeof(ScanEntry) + sizeof(ScanExtent)) {
    return absl::InvalidArgumentError("a scan with no room for one entry");
  }
  const size_t limit = room - tree->key_bytes_max();

  auto reply = ReplyOf<ScanReply>(MessageKind::kScan);
  size_t at = sizeof(reply);
  std::string key;
  ASSIGN_OR_RETURN(NodeView leaf, tree->LeafOf(position.at()));
  bool full = false;
  for (int leaves = 0;; ++leaves) {
    const int first = position.First(leaf);
    PrefetchForScan(*tree, leaf, first, position.down(), keys_only);
    for (int slot = first; ScanPosition::In(leaf, slot); slot += position.step()) {
      leaf.CopyKey(slot, &key);
      if (position.Past(key)) {
        reply.done = 1;
        full = true;
        break;
      }
      const LeafSlot found = leaf.leaf_slot(slot);
      const auto value_bytes = static_cast<uint32_t>(found.extent_bytes - key.size());
      const bool elsewhere = !keys_only && value_bytes > kInlineValueBytesMax;
      const size_t payload = keys_only ? 0 : elsewhere ? sizeof(ScanExtent) : value_bytes;
      if (reply.count == request.fixed.limit || at + sizeof(ScanEntry) + key.size() + payload > limit) {
        position.MoveTo(key);
        full = true;
        break;
      }
      Store(to.data() + at, ScanEntry{keys_only ? 0 : value_bytes, static_cast<uint16_t>(key.size()), elsewhere});
      at += sizeof(ScanEntry);
      if (elsewhere || keys_only) {
        std::memcpy(to.data() + at, key.data(), key.size());
        at += key.size();
        if (elsewhere) Store(to.data() + at, ScanExtent{found.extent, found.crc});
        at += payload;
      } else {  // The extent is key and value, just as the entry wants them.
        std::memcpy(to.data() + at, tree->Extent(found.extent), found.extent_bytes);
        at += found.extent_bytes;
      }
      ++reply.count;
    }
    if (full) break;
    if (position.EndsWith(leaf)) {
      reply.done = 1;
      break;
    }
    position.Pass(leaf);
    if (!tree->Covers(position.at())) {
      if (!position.down()) reply.next = leaf.right();
      break;
    }
    // Many empty leaves: go on in another call, so that others get their turn.
    if (leaves == kLeavesPerScan || reply.count == request.fixed.limit) break;
    if (position.down()) {
      ASSIGN_OR_RETURN(leaf, tree->LeafOf(position.at()));
    } else {
      leaf = tree->Node(leaf.right());
    }
  }
  if (reply.done == 0) {
    const std::string& next = position.at();
    std::memcpy(to.data() + at, next.data(), next.size());
    at += next.size();
    reply.next_key_bytes = static_cast<uint16_t>(next.size());
  }
  reply.header.bytes = static_cast<uint32_t>(at);
  Store(to.data(), reply);
  return at;
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
  const HeldRegion* region = regions_->Find(request.from.region());
  if (region != nullptr && (leased_ || region->log == nullptr) && region->readable() &&
      region->store->ExtentInBounds(request.from, request.bytes) && request.bytes <= to.size() - sizeof(ReplyHeader)) {
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
  if (request.fixed.offset == 0) GiveUpHeld(call.peer, request.fixed.upload);
  RETURN_IF_ERROR(
      uploads_.Add(call.peer, request.fixed.upload, request.fixed.offset, request.value, fabric_->NowNs()));
  return WriteTextReply(to, MessageKind::kUpload, "");
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
    return WriteRoute(to, Find(request.fixed.root, request.key));
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

}  // namespace cell
