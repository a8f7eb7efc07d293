#include "cell/server/request_service.h"

#include <algorithm>

#include "cell/base/status_macros.h"
#include "cell/tree/tree_check.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr size_t kClientReportsShown = 64;
constexpr size_t kReportBytesMax = 4096;
constexpr int kLeavesPerScan = 4096;

template <typename Reply>
Reply ReplyOf(MessageKind kind, size_t bytes = sizeof(Reply)) {
  Reply reply{};
  reply.header = {kind, 0, static_cast<uint32_t>(bytes)};
  return reply;
}

uint64_t Counter(const nlohmann::json& report, const char* name) {
  const auto it = report.find(name);
  return it != report.end() && it->is_number_unsigned() ? it->get<uint64_t>() : 0;
}

}  // namespace

RequestService::RequestService(Fabric* fabric, std::vector<RegionMemory*> memory, Options options)
    : fabric_(fabric), options_(std::move(options)), started_ns_(fabric->NowNs()) {
  for (RegionMemory* one : memory) regions_.push_back(std::make_unique<Region>(one));
}

absl::StatusOr<Meganode*> RequestService::Find(Pointer root) {
  for (const auto& region : regions_) {
    if (region->meganode.root() == root) return &region->meganode;
  }
  return absl::FailedPreconditionError(
      fmt::format("{} holds no meganode with its root at {}", options_.name, ToString(root)));
}

void RequestService::Serve(absl::Span<const IncomingCall> calls) {
  ++batches_;
  ServeLookups(calls);
  for (const IncomingCall& call : calls) ServeOne(call);
}

void RequestService::AnswerError(const IncomingCall& call, MessageKind kind, const absl::Status& status) {
  ++refused_;
  fabric_->EndReply(call, WriteErrorReply(fabric_->BeginReply(call), kind, status));
}

// All searches and gets among the calls, meganode by meganode.
void RequestService::ServeLookups(absl::Span<const IncomingCall> calls) {
  for (const auto& region : regions_) {
    lookups_.clear();
    lookup_calls_.clear();
    bool gets = false;
    for (const IncomingCall& call : calls) {
      const absl::StatusOr<MessageHeader> header = ParseHeader(call.request);
      if (!header.ok() || (header->kind != MessageKind::kSearch && header->kind != MessageKind::kGet)) continue;
      const absl::StatusOr<Parsed<KeyRequest>> request = ParseKeyRequest(call.request);
      if (!request.ok() || request->fixed.root != region->meganode.root()) continue;
      gets |= header->kind == MessageKind::kGet;
      lookups_.push_back({request->key, absl::OkStatus(), {}});
      lookup_calls_.push_back(&call);
    }
    if (lookups_.empty()) continue;
    if (options_.batching) {
      region->meganode.FindBatch(absl::MakeSpan(lookups_), gets);
    } else {
      for (Meganode::Lookup& lookup : lookups_) region->meganode.FindBatch({&lookup, 1}, false);
    }
    for (size_t i = 0; i < lookups_.size(); ++i) {
      const MessageKind kind = Load<MessageHeader>(lookup_calls_[i]->request.data()).kind;
      ++served_[static_cast<size_t>(kind)];
      AnswerLookup(*lookup_calls_[i], kind, region->meganode, lookups_[i]);
    }
  }
}

void RequestService::AnswerLookup(const IncomingCall& call, MessageKind kind, const Meganode& tree,
                                  const Meganode::Lookup& lookup) {
  absl::Status status = lookup.status;
  if (status.ok()) status = tree.CheckKey(lookup.key);
  if (!status.ok()) return AnswerError(call, kind, status);
  const MutableBytes to = fabric_->BeginReply(call);
  if (kind == MessageKind::kSearch) {
    auto reply = ReplyOf<SearchReply>(kind);
    reply.leaf = lookup.place.leaf;
    reply.found = lookup.place.slot.has_value();
    Store(to.data(), reply);
    return fabric_->EndReply(call, sizeof(reply));
  }
  auto reply = ReplyOf<GetReply>(kind);
  if (lookup.place.slot.has_value()) {
    const LeafSlot& slot = *lookup.place.slot;
    reply.found = 1;
    reply.extent = slot.extent;
    reply.crc = slot.crc;
    reply.value_bytes = static_cast<uint32_t>(slot.extent_bytes - lookup.key.size());
    if (reply.value_bytes <= kInlineValueBytesMax && sizeof(reply) + reply.value_bytes <= to.size()) {
      reply.inlined = 1;
      reply.header.bytes += reply.value_bytes;
      std::memcpy(to.data() + sizeof(reply), tree.Extent(slot.extent) + lookup.key.size(), reply.value_bytes);
    }
  }
  Store(to.data(), reply);
  fabric_->EndReply(call, reply.header.bytes);
}

void RequestService::ServeOne(const IncomingCall& call) {
  const absl::StatusOr<MessageHeader> header = ParseHeader(call.request);
  if (!header.ok()) return AnswerError(call, MessageKind{}, header.status());
  const MessageKind kind = header->kind;
  if (kind == MessageKind::kSearch || kind == MessageKind::kGet) {
    const absl::StatusOr<Parsed<KeyRequest>> request = ParseKeyRequest(call.request);
    if (!request.ok()) return AnswerError(call, kind, request.status());
    const absl::Status owner = Find(request->fixed.root).status();
    if (!owner.ok()) AnswerError(call, kind, owner);
    return;  // Else ServeLookups has answered it.
  }
  // The handlers compose their reply in place; the room is taken before they run.
  const MutableBytes to = fabric_->BeginReply(call);
  absl::StatusOr<size_t> bytes = absl::InvalidArgumentError("");
  switch (kind) {
    case MessageKind::kPut:
      bytes = Put(call, to);
      break;
    case MessageKind::kDelete:
      bytes = Delete(call, to);
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
      bytes = WriteTextReply(to, kind, StatusJson());
      break;
    case MessageKind::kCheck:
      bytes = WriteTextReply(to, kind, CheckJson());
      break;
    case MessageKind::kReport:
      bytes = Report(call, to);
      break;
    default:
      bytes = absl::InvalidArgumentError(fmt::format("unknown request of kind {}", static_cast<int>(kind)));
  }
  if (bytes.ok()) {
    ++served_[static_cast<size_t>(kind)];
  } else {
    ++refused_;
    bytes = WriteErrorReply(to, kind, bytes.status());
  }
  fabric_->EndReply(call, *bytes);
}

absl::StatusOr<size_t> RequestService::Put(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<PutRequest> request, ParsePutRequest(call.request));
  ASSIGN_OR_RETURN(Meganode * tree, Find(request.fixed.root));
  auto reply = ReplyOf<WriteReply>(MessageKind::kPut);
  if (request.fixed.upload == 0) {
    ASSIGN_OR_RETURN(reply.existed, tree->Put(request.key, request.value, request.fixed.crc, request.fixed.hint));
  } else {
    std::string& upload = peers_[call.peer].uploads[request.fixed.upload - 1];
    upload_bytes_ -= upload.size();
    const std::string value = std::exchange(upload, {});
    if (value.size() != request.fixed.value_bytes) {
      return absl::InvalidArgumentError(
          fmt::format("{} of {} bytes of the value were uploaded", value.size(), request.fixed.value_bytes));
    }
    ASSIGN_OR_RETURN(reply.existed, tree->Put(request.key, value, request.fixed.crc, request.fixed.hint));
  }
  Store(to.data(), reply);
  return sizeof(reply);
}

absl::StatusOr<size_t> RequestService::Delete(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<KeyRequest> request, ParseKeyRequest(call.request));
  ASSIGN_OR_RETURN(Meganode * tree, Find(request.fixed.root));
  auto reply = ReplyOf<WriteReply>(MessageKind::kDelete);
  ASSIGN_OR_RETURN(reply.existed, tree->Delete(request.key, request.fixed.hint));
  Store(to.data(), reply);
  return sizeof(reply);
}

absl::StatusOr<size_t> RequestService::Scan(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<ScanRequest> request, ParseScanRequest(call.request));
  ASSIGN_OR_RETURN(Meganode * tree, Find(request.fixed.root));
  const bool has_to = request.fixed.has_to != 0;
  const bool keys_only = request.fixed.keys_only != 0;
  const std::string_view end = request.value;
  // Room for the key where the next scan starts is kept free.
  const size_t room = std::min<size_t>(to.size(), request.fixed.reply_bytes_max);
  if (room < sizeof(ScanReply) + 2 * tree->key_bytes_max() + sizeof(ScanEntry) + sizeof(ScanExtent)) {
    return absl::InvalidArgumentError("a scan with no room for one entry");
  }
  const size_t limit = room - tree->key_bytes_max();

  auto reply = ReplyOf<ScanReply>(MessageKind::kScan);
  size_t at = sizeof(reply);
  std::string next;
  std::string key;
  ASSIGN_OR_RETURN(NodeView leaf, tree->LeafOf(request.key));
  int slot = leaf.LowerBound(request.key);
  bool full = false;
  for (int leaves = 0; !full; ++leaves) {
    if (leaf.has_high()) Prefetch(tree->Node(leaf.right()).bytes(), leaf.node_bytes());
    if (!keys_only) {
      for (int i = slot; i < leaf.count(); ++i) {
        const LeafSlot one = leaf.leaf_slot(i);
        Prefetch(tree->Extent(one.extent), std::min<size_t>(one.extent_bytes, 512));
      }
    }
    for (; slot < leaf.count(); ++slot) {
      leaf.CopyKey(slot, &key);
      if (has_to && key >= end) {
        reply.done = 1;
        full = true;
        break;
      }
      const LeafSlot found = leaf.leaf_slot(slot);
      const auto value_bytes = static_cast<uint32_t>(found.extent_bytes - key.size());
      const bool elsewhere = !keys_only && value_bytes > kInlineValueBytesMax;
      const size_t payload = keys_only ? 0 : elsewhere ? sizeof(ScanExtent) : value_bytes;
      if (reply.count == request.fixed.limit || at + sizeof(ScanEntry) + key.size() + payload > limit) {
        next = key;
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
    if (!leaf.has_high()) {
      reply.done = 1;
      break;
    }
    next = leaf.high_key();
    if (has_to && next >= end) {
      reply.done = 1;
      break;
    }
    // Many empty leaves: go on in another call, so that others get their turn.
    if (leaves == kLeavesPerScan || reply.count == request.fixed.limit) break;
    leaf = tree->Node(leaf.right());
    slot = 0;
  }
  if (reply.done == 0) {
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
  for (const auto& region : regions_) {
    if (region->meganode.region() != request.from.region()) continue;
    if (!region->meganode.ExtentInBounds(request.from, request.bytes) ||
        request.bytes > to.size() - sizeof(ReplyHeader)) {
      break;
    }
    Store(to.data(), ReplyHeader{MessageKind::kFetch, 0, static_cast<uint32_t>(sizeof(ReplyHeader) + request.bytes)});
    std::memcpy(to.data() + sizeof(ReplyHeader), region->meganode.Extent(request.from), request.bytes);
    return sizeof(ReplyHeader) + request.bytes;
  }
  return absl::OutOfRangeError(
      fmt::format("no extent of {} bytes at {} on {}", request.bytes, ToString(request.from), options_.name));
}

absl::StatusOr<size_t> RequestService::Upload(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<UploadRequest> request, ParseUploadRequest(call.request));
  std::string& upload = peers_[call.peer].uploads[request.fixed.upload - 1];
  if (request.fixed.offset == 0) {
    upload_bytes_ -= upload.size();
    upload.clear();
  }
  if (request.fixed.offset != upload.size()) {
    return absl::InvalidArgumentError(
        fmt::format("an upload goes on at {}, not at {}", upload.size(), request.fixed.offset));
  }
  if (upload_bytes_ + request.value.size() > kUploadBytesMax) {
    return absl::ResourceExhaustedError("too many large values are on their way to this server: try again");
  }
  upload.append(request.value);
  upload_bytes_ += request.value.size();
  return WriteTextReply(to, MessageKind::kUpload, "");
}

absl::StatusOr<size_t> RequestService::Report(const IncomingCall& call, MutableBytes to) {
  const std::string_view text = AsText(call.request.subspan(sizeof(MessageHeader)));
  if (text.size() > kReportBytesMax || !nlohmann::json::parse(text, nullptr, false).is_object()) {
    return absl::InvalidArgumentError("a client's report is not a JSON object, or too long");
  }
  peers_[call.peer].report = text;
  return WriteTextReply(to, MessageKind::kReport, "");
}

void RequestService::Disconnected(ConnectionId peer) {
  const auto it = peers_.find(peer);
  if (it == peers_.end()) return;
  for (const std::string& upload : it->second.uploads) upload_bytes_ -= upload.size();
  if (!it->second.report.empty()) {
    const auto report = nlohmann::json::parse(it->second.report, nullptr, false);
    departed_.operations += Counter(report, "operations");
    departed_.server_path += Counter(report, "server_path");
    departed_.client_path += Counter(report, "client_path");
    departed_.retries += Counter(report, "retries");
  }
  peers_.erase(it);
}

std::string RequestService::StatusJson() const {
  nlohmann::json json;
  json["server"] = options_.name;
  json["uptime_seconds"] = static_cast<double>(fabric_->NowNs() - started_ns_) / 1e9;
  json["connections"] = fabric_->peers();
  json["batches"] = batches_;
  json["refused"] = refused_;
  const std::pair<const char*, MessageKind> kinds[] = {
      {"search", MessageKind::kSearch}, {"get", MessageKind::kGet},      {"put", MessageKind::kPut},
      {"delete", MessageKind::kDelete}, {"scan", MessageKind::kScan},    {"fetch", MessageKind::kFetch},
      {"upload", MessageKind::kUpload}, {"status", MessageKind::kStatus}};
  for (const auto& [name, kind] : kinds) json["served"][name] = served_[static_cast<size_t>(kind)];
  for (const auto& region : regions_) {
    const RegionHeader& header = region->meganode.header();
    const ExtentAllocator::Usage extents = region->meganode.extents();
    json["regions"].push_back({{"region", header.region},
                               {"keys", header.keys},
                               {"data_bytes", header.data_bytes},
                               {"node_bytes", header.node_bytes},
                               {"nodes_used", header.nodes_used},
                               {"nodes", header.node_count},
                               {"levels", region->meganode.Node(region->meganode.root()).level() + 1},
                               {"extent_bytes_used", extents.bytes_used},
                               {"extent_bytes", extents.bytes_total},
                               {"largest_free_bytes", extents.largest_free_bytes},
                               {"fragmentation", extents.fragmentation()}});
  }
  json["departed_clients"] = {{"operations", departed_.operations},
                              {"server_path", departed_.server_path},
                              {"client_path", departed_.client_path},
                              {"retries", departed_.retries}};
  json["clients"] = nlohmann::json::array();
  for (const auto& [id, peer] : peers_) {
    if (peer.report.empty()) continue;
    json["clients"].push_back(nlohmann::json::parse(peer.report, nullptr, false));
    json["clients"].back()["connection"] = id;
    if (json["clients"].size() == kClientReportsShown) break;
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string RequestService::CheckJson() const {
  nlohmann::json json = nlohmann::json::array();
  for (const auto& region : regions_) {
    const TreeReport report = CheckTree(*region->memory);
    json.push_back({{"region", region->meganode.region()},
                    {"keys", report.keys},
                    {"data_bytes", report.data_bytes},
                    {"levels", report.levels},
                    {"nodes", report.nodes},
                    {"leaves", report.leaves},
                    {"half_splits", report.half_splits},
                    {"extents", report.extents},
                    {"error_count", report.error_count},
                    {"errors", report.errors}});
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace cell
