#include "cell/layout/wire.h"

#include <algorithm>
#include <cstring>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/layout/limits.h"
#include "cell/layout/region.h"
#include "cell/layout/wire_parts.h"
#include "fmt/format.h"

namespace cell {
namespace {

size_t WriteAnyReply(MutableBytes to, MessageKind kind, absl::StatusCode code, std::string_view text) {
  text = text.substr(0, to.size() - sizeof(ReplyHeader));
  const size_t bytes = sizeof(ReplyHeader) + text.size();
  Store(to.data(), ReplyHeader{kind, static_cast<uint16_t>(code), static_cast<uint32_t>(bytes), {}});
  std::memcpy(to.data() + sizeof(ReplyHeader), text.data(), text.size());
  return bytes;
}

}  // namespace

ServiceTimes TimesOf(ConstBytes message) {
  return message.size() < sizeof(ReplyHeader) ? ServiceTimes{} : Load<ReplyHeader>(message.data()).times;
}

void SetTimes(MutableBytes reply, const ServiceTimes& times) {
  Store(reply.data() + offsetof(ReplyHeader, times), times);
}

absl::StatusOr<MessageHeader> ParseHeader(ConstBytes message) {
  if (message.size() < sizeof(MessageHeader) || message.size() > kMessageBytesMax) {
    return absl::InvalidArgumentError(fmt::format("a message of {} bytes has an invalid size", message.size()));
  }
  const auto header = Load<MessageHeader>(message.data());
  if (header.version != kWireVersion) {
    return absl::InvalidArgumentError(fmt::format(
        "a message has protocol version {}, and its receiver has version {}: use clients and servers of one "
        "release",
        header.version, kWireVersion));
  }
  if (header.bytes != message.size()) return BadRequest(header.kind, message.size());
  return header;
}

std::string MakeTextRequest(MessageKind kind, std::string_view text) {
  struct {
    MessageHeader header;
  } fixed{};
  fixed.header.kind = kind;
  return WithFixed(fixed, 0, {text});
}

size_t WriteTextReply(MutableBytes to, MessageKind kind, std::string_view text) {
  return WriteAnyReply(to, kind, absl::StatusCode::kOk, text);
}

absl::StatusOr<ConstBytes> ParseBytesReply(ConstBytes message, MessageKind kind) {
  RETURN_IF_ERROR(CheckReply(message, kind));
  return message.subspan(sizeof(ReplyHeader));
}

bool IsErrorReply(ConstBytes message, MessageKind kind) {
  return FitsReply(message, kind) && Load<ReplyHeader>(message.data()).code != 0;
}

size_t WriteErrorReply(MutableBytes to, MessageKind kind, const absl::Status& status) {
  return WriteAnyReply(to, kind, status.code(), std::string(status.message()));
}

std::string MakeKeyRequest(MessageKind kind, Pointer root, Pointer hint, std::string_view key, uint16_t copy,
                           bool wants_leaf) {
  KeyRequest fixed{};
  fixed.header.kind = kind;
  fixed.root = root;
  fixed.hint = hint;
  fixed.key_bytes = static_cast<uint16_t>(key.size());
  fixed.copy = copy;
  fixed.wants_leaf = wants_leaf ? 1 : 0;
  return WithFixed(fixed, 0, {key});
}

absl::StatusOr<Parsed<KeyRequest>> ParseKeyRequest(ConstBytes message) {
  Cursor cursor(message);
  Parsed<KeyRequest> parsed{cursor.Take<KeyRequest>(), {}, {}};
  parsed.key = cursor.TakeText(parsed.fixed.key_bytes);
  if (!cursor.ended() || parsed.fixed.copy > kCopiesMax) {
    return BadRequest(parsed.fixed.header.kind, message.size());
  }
  return parsed;
}

absl::StatusOr<SearchResult> ParseSearchReply(ConstBytes message) {
  RETURN_IF_ERROR(CheckReply(message, MessageKind::kSearch));
  Cursor cursor(message);
  SearchResult result{cursor.Take<SearchReply>().found != 0};
  if (result.found && !cursor.ended()) result.life = cursor.Take<PairLife>();
  if (!cursor.ended()) return BadReply(MessageKind::kSearch, message.size());
  return result;
}

absl::StatusOr<GetResult> ParseGetReply(ConstBytes message, MessageKind kind) {
  RETURN_IF_ERROR(CheckReply(message, kind));
  Cursor cursor(message);
  GetResult parsed;
  parsed.fixed = cursor.Take<GetReply>();
  const uint8_t follows = parsed.fixed.follows;
  if ((follows & kFollowsValue) != 0) parsed.value = cursor.TakeText(parsed.fixed.value_bytes);
  if ((follows & kFollowsExpiry) != 0) parsed.expiry = cursor.Take<Expiry>();
  if ((follows & kFollowsLeaf) != 0) parsed.leaf = cursor.Take<NodeState>();
  if (!cursor.ended() || parsed.fixed.value_bytes > kValueBytesMax) return BadReply(kind, message.size());
  return parsed;
}

absl::StatusOr<WriteReply> ParseWriteReply(ConstBytes message, MessageKind kind) {
  RETURN_IF_ERROR(CheckReply(message, kind));
  Cursor cursor(message);
  const auto reply = cursor.Take<WriteReply>();
  if (!cursor.ended()) return BadReply(kind, message.size());
  return reply;
}

std::string MakePutRequest(Pointer root, Pointer hint, uint64_t crc, std::string_view key, uint32_t value_bytes,
                           uint16_t upload, uint64_t expires) {
  PutRequest fixed{};
  fixed.header.kind = MessageKind::kPut;
  fixed.root = root;
  fixed.hint = hint;
  fixed.crc = crc;
  fixed.expires = expires;
  fixed.value_bytes = value_bytes;
  fixed.key_bytes = static_cast<uint16_t>(key.size());
  fixed.upload = upload;
  return WithFixed(fixed, upload == 0 ? value_bytes : 0, {key});
}

absl::StatusOr<Expiry> ExpiryOf(uint64_t expires, uint64_t now_ns) {
  if (expires == kNeverExpires) return kNeverExpires;
  const uint64_t after_ns = expires & ~kExpiresAfter;
  if (after_ns == expires) {
    if (expires > now_ns) return expires;
    return absl::InvalidArgumentError(
        fmt::format("the pair would have expired {:.3f} s ago by its server's clock; nothing was written",
                    static_cast<double>(now_ns - expires) / 1e9));
  }
  if (after_ns == 0) return absl::InvalidArgumentError("a time to live must be above 0; nothing was written");
  if (now_ns < kExpiryMax && after_ns <= kExpiryMax - now_ns) return now_ns + after_ns;
  return absl::InvalidArgumentError(
      "the pair would expire after the year 2262, the end of its server's clock; nothing was written");
}

absl::StatusOr<Parsed<PutRequest>> ParsePutRequest(ConstBytes message) {
  Cursor cursor(message);
  Parsed<PutRequest> parsed{cursor.Take<PutRequest>(), {}, {}};
  parsed.key = cursor.TakeText(parsed.fixed.key_bytes);
  if (parsed.fixed.upload == 0) parsed.value = cursor.TakeText(parsed.fixed.value_bytes);
  if (!cursor.ended() || parsed.fixed.upload > kUploadsMax) return BadRequest(MessageKind::kPut, message.size());
  return parsed;
}

std::string MakeWriteIfRequest(Pointer root, Pointer hint, const ConditionalWrite& write) {
  WriteIfRequest fixed{};
  fixed.header.kind = MessageKind::kWriteIf;
  fixed.root = root;
  fixed.hint = hint;
  fixed.crc = write.crc;
  fixed.expires = write.expires;
  fixed.stamp = write.condition.stamp;
  fixed.value_bytes = write.value_bytes.value_or(0);
  fixed.condition_bytes = static_cast<uint32_t>(write.condition.value.size());
  fixed.key_bytes = static_cast<uint16_t>(write.key.size());
  fixed.upload = write.upload;
  fixed.condition = write.condition.kind;
  fixed.deletes = !write.value_bytes.has_value();
  return WithFixed(fixed, write.upload == 0 ? fixed.value_bytes : 0, {write.key, write.condition.value});
}

absl::StatusOr<ParsedWriteIf> ParseWriteIfRequest(ConstBytes message) {
  Cursor cursor(message);
  ParsedWriteIf parsed;
  parsed.fixed = cursor.Take<WriteIfRequest>();
  const WriteIfRequest& fixed = parsed.fixed;
  parsed.key = cursor.TakeText(fixed.key_bytes);
  parsed.condition_value = cursor.TakeText(fixed.condition_bytes);
  if (fixed.upload == 0) parsed.value = cursor.TakeText(fixed.value_bytes);
  const bool known = fixed.condition >= ConditionKind::kAbsent && fixed.condition <= ConditionKind::kValue;
  const bool empty = fixed.value_bytes == 0 && fixed.upload == 0 && fixed.expires == kNeverExpires;
  if (!cursor.ended() || fixed.upload > kUploadsMax || !known || fixed.deletes > 1 || (fixed.deletes != 0 && !empty) ||
      fixed.condition_bytes > (fixed.condition == ConditionKind::kValue ? kConditionValueBytesMax : 0)) {
    return BadRequest(MessageKind::kWriteIf, message.size());
  }
  return parsed;
}

absl::StatusOr<WriteIfReply> ParseWriteIfReply(ConstBytes message) {
  RETURN_IF_ERROR(CheckReply(message, MessageKind::kWriteIf));
  Cursor cursor(message);
  const auto reply = cursor.Take<WriteIfReply>();
  if (!cursor.ended()) return BadReply(MessageKind::kWriteIf, message.size());
  return reply;
}

absl::StatusOr<Parsed<OutcomesReply>> ParseOutcomesReply(ConstBytes message) {
  RETURN_IF_ERROR(CheckReply(message, MessageKind::kMigration));
  Cursor cursor(message);
  Parsed<OutcomesReply> parsed{cursor.Take<OutcomesReply>(), {}, {}};
  parsed.value = cursor.TakeText(cursor.left());
  if (!cursor.ended()) return BadReply(MessageKind::kMigration, message.size());
  return parsed;
}

size_t WriteOutcomesReply(MutableBytes to, std::string_view bytes) {
  const std::string_view sent = bytes.substr(0, to.size() - sizeof(OutcomesReply));
  auto reply = ReplyOf<OutcomesReply>(MessageKind::kMigration, sizeof(OutcomesReply) + sent.size());
  reply.left = static_cast<uint32_t>(bytes.size() - sent.size());
  Store(to.data(), reply);
  if (!sent.empty()) std::memcpy(to.data() + sizeof(reply), sent.data(), sent.size());
  return sizeof(reply) + sent.size();
}

std::string MakeUploadRequest(uint16_t upload, uint32_t offset, uint32_t bytes) {
  UploadRequest fixed{};
  fixed.header.kind = MessageKind::kUpload;
  fixed.offset = offset;
  fixed.upload = upload;
  return WithFixed(fixed, bytes, {});
}

absl::StatusOr<Parsed<UploadRequest>> ParseUploadRequest(ConstBytes message) {
  Cursor cursor(message);
  Parsed<UploadRequest> parsed{cursor.Take<UploadRequest>(), {}, {}};
  parsed.value = cursor.TakeText(cursor.left());
  if (!cursor.ended() || parsed.fixed.upload == 0 || parsed.fixed.upload > kUploadsMax ||
      parsed.fixed.offset > kValueBytesMax || parsed.value.size() > kValueBytesMax - parsed.fixed.offset) {
    return BadRequest(MessageKind::kUpload, message.size());
  }
  return parsed;
}

std::string MakeFetchRequest(Pointer from, uint32_t bytes, uint16_t copy) {
  FetchRequest fixed{};
  fixed.header.kind = MessageKind::kFetch;
  fixed.from = from;
  fixed.bytes = bytes;
  fixed.copy = copy;
  return WithFixed(fixed, 0, {});
}

absl::StatusOr<FetchRequest> ParseFetchRequest(ConstBytes message) {
  Cursor cursor(message);
  const auto request = cursor.Take<FetchRequest>();
  if (!cursor.ended() || request.bytes > kMessageBytesMax - sizeof(ReplyHeader) || request.copy > kCopiesMax) {
    return BadRequest(MessageKind::kFetch, message.size());
  }
  return request;
}

std::string MakeScanRequest(Pointer root, std::string_view from, const std::optional<std::string>& to,
                            const ScanTerms& terms) {
  ScanRequest fixed{};
  fixed.header.kind = MessageKind::kScan;
  fixed.root = root;
  fixed.limit = terms.limit;
  fixed.reply_bytes_max = terms.reply_bytes_max;
  fixed.from_bytes = static_cast<uint16_t>(from.size());
  fixed.to_bytes = to.has_value() ? static_cast<uint16_t>(to->size()) : uint16_t{0};
  fixed.has_to = to.has_value();
  fixed.keys_only = terms.keys_only;
  fixed.down = terms.down;
  return WithFixed(fixed, 0, {from, to.has_value() ? std::string_view(*to) : std::string_view()});
}

absl::StatusOr<Parsed<ScanRequest>> ParseScanRequest(ConstBytes message) {
  Cursor cursor(message);
  Parsed<ScanRequest> parsed{cursor.Take<ScanRequest>(), {}, {}};
  parsed.key = cursor.TakeText(parsed.fixed.from_bytes);
  parsed.value = cursor.TakeText(parsed.fixed.to_bytes);
  if (!cursor.ended() || parsed.fixed.limit == 0 || parsed.fixed.limit > kScanLimitMax ||
      parsed.fixed.reply_bytes_max > kMessageBytesMax) {
    return BadRequest(MessageKind::kScan, message.size());
  }
  return parsed;
}

absl::StatusOr<ScanResult> ParseScanReply(ConstBytes message, std::vector<ScanItem>* items, MessageKind kind) {
  items->clear();
  RETURN_IF_ERROR(CheckReply(message, kind));
  Cursor cursor(message);
  const auto reply = cursor.Take<ScanReply>();
  for (uint32_t i = 0; i < reply.count && cursor.ok(); ++i) {
    const auto entry = cursor.Take<ScanEntry>();
    if ((entry.flags & ~(kScanElsewhere | kScanExpires)) != 0) return BadReply(kind, message.size());
    const Expiry expiry = (entry.flags & kScanExpires) != 0 ? cursor.Take<Expiry>() : kNeverExpires;
    ScanItem item{cursor.TakeText(entry.key_bytes),    {}, entry.value_bytes,
                  (entry.flags & kScanElsewhere) != 0, {}, expiry};
    if (item.elsewhere) {
      item.extent = cursor.Take<ScanExtent>();
      if (item.value_bytes > kValueBytesMax) return BadReply(kind, message.size());
    } else {
      item.value = cursor.TakeText(entry.value_bytes);
    }
    items->push_back(item);
  }
  const ScanResult result{reply.done != 0, cursor.TakeText(reply.next_key_bytes), reply.next};
  if (!cursor.ended()) return BadReply(kind, message.size());
  return result;
}

std::string MakeRangeRequest(MessageKind kind, Pointer root, std::string_view from, std::string_view to) {
  RangeRequest fixed{};
  fixed.header.kind = kind;
  fixed.root = root;
  fixed.from_bytes = static_cast<uint16_t>(from.size());
  fixed.to_bytes = static_cast<uint16_t>(to.size());
  return WithFixed(fixed, 0, {from, to});
}

absl::StatusOr<Parsed<RangeRequest>> ParseRangeRequest(ConstBytes message) {
  Cursor cursor(message);
  Parsed<RangeRequest> parsed{cursor.Take<RangeRequest>(), {}, {}};
  parsed.key = cursor.TakeText(parsed.fixed.from_bytes);
  parsed.value = cursor.TakeText(parsed.fixed.to_bytes);
  if (!cursor.ended()) return BadRequest(parsed.fixed.header.kind, message.size());
  return parsed;
}

absl::StatusOr<RangeResult> ParseRangeReply(ConstBytes message, MessageKind kind) {
  RETURN_IF_ERROR(CheckReply(message, kind));
  Cursor cursor(message);
  const auto reply = cursor.Take<RangeReply>();
  const RangeResult result{reply.pairs, reply.done != 0, cursor.TakeText(reply.next_key_bytes)};
  if (!cursor.ended() || result.done != result.next_key.empty()) return BadReply(kind, message.size());
  return result;
}

size_t WriteRangeReply(MutableBytes to, MessageKind kind, const RangeResult& result) {
  const size_t bytes = RangeReplyBytes(result.next_key.size());
  CELL_CHECK_LE(bytes, to.size());
  auto reply = ReplyOf<RangeReply>(kind, bytes);
  reply.pairs = result.pairs;
  reply.next_key_bytes = static_cast<uint16_t>(result.next_key.size());
  reply.done = result.done;
  Store(to.data(), reply);
  if (!result.next_key.empty()) std::memcpy(to.data() + sizeof(reply), result.next_key.data(), result.next_key.size());
  return bytes;
}

bool IsRoute(ConstBytes message) {
  return message.size() >= sizeof(ReplyHeader) && Load<ReplyHeader>(message.data()).kind == MessageKind::kRoute;
}

absl::StatusOr<RouteView> ParseRouteReply(ConstBytes message) {
  RETURN_IF_ERROR(CheckReply(message, MessageKind::kRoute));
  Cursor cursor(message);
  const auto fixed = cursor.Take<RouteReply>();
  RouteView route{fixed.route, fixed.next, {}, {}, fixed.has_range != 0, fixed.has_high != 0};
  route.low_key = cursor.TakeText(fixed.low_key_bytes);
  route.high_key = cursor.TakeText(fixed.high_key_bytes);
  const bool goes_on = route.kind == RouteKind::kChild || route.kind == RouteKind::kRight;
  if (!cursor.ended() || fixed.route < RouteKind::kChild || fixed.route > RouteKind::kLocked ||
      (goes_on && route.next != RootOf(route.next.region()))) {
    return BadReply(MessageKind::kRoute, message.size());
  }
  return route;
}

size_t WriteRouteReply(MutableBytes to, const RouteView& route) {
  RouteReply reply{};
  reply.next = route.next;
  reply.route = route.kind;
  size_t bytes = sizeof(reply);
  if (route.has_range && bytes + route.low_key.size() + route.high_key.size() <= to.size()) {
    reply.has_range = 1;
    reply.has_high = route.has_high;
    reply.low_key_bytes = static_cast<uint16_t>(route.low_key.size());
    reply.high_key_bytes = static_cast<uint16_t>(route.high_key.size());
    for (const std::string_view key : {route.low_key, route.high_key}) {
      if (key.empty()) continue;  // The key's data may be null, which must not be passed to memcpy.
      std::memcpy(to.data() + bytes, key.data(), key.size());
      bytes += key.size();
    }
  }
  reply.header = {MessageKind::kRoute, 0, static_cast<uint32_t>(bytes)};
  Store(to.data(), reply);
  return bytes;
}

std::string MakeRouteRequest(MessageKind kind, Pointer root, uint8_t tier, std::string_view key, Pointer child,
                             uint64_t order) {
  RouteRequest fixed{};
  fixed.header.kind = kind;
  fixed.root = root;
  fixed.child = child;
  fixed.order = order;
  fixed.key_bytes = static_cast<uint16_t>(key.size());
  fixed.tier = tier;
  return WithFixed(fixed, 0, {key});
}

absl::StatusOr<Parsed<RouteRequest>> ParseRouteRequest(ConstBytes message) {
  Cursor cursor(message);
  Parsed<RouteRequest> parsed{cursor.Take<RouteRequest>(), {}, {}};
  parsed.key = cursor.TakeText(parsed.fixed.key_bytes);
  const Pointer root = parsed.fixed.root, child = parsed.fixed.child;
  if (!cursor.ended() || parsed.fixed.tier == 0 || parsed.fixed.tier >= kTiersMax || child.region() == 0 ||
      child != RootOf(child.region()) || root != RootOf(root.region())) {
    return BadRequest(parsed.fixed.header.kind, message.size());
  }
  return parsed;
}

std::string MakeMigrationRequest(MigrationStep step, uint32_t region, uint64_t epoch, uint32_t worker,
                                 std::string_view server) {
  MigrationRequest fixed{};
  fixed.header.kind = MessageKind::kMigration;
  fixed.epoch = epoch;
  fixed.region = region;
  fixed.worker = worker;
  fixed.step = step;
  return WithFixed(fixed, 0, {server});
}

absl::StatusOr<Parsed<MigrationRequest>> ParseMigrationRequest(ConstBytes message) {
  Cursor cursor(message);
  Parsed<MigrationRequest> parsed{cursor.Take<MigrationRequest>(), {}, {}};
  parsed.key = cursor.TakeText(cursor.left());
  if (!cursor.ended() || parsed.fixed.step < MigrationStep::kOffer || parsed.fixed.step > MigrationStep::kOutcomes ||
      parsed.fixed.region == 0 || parsed.fixed.region > Pointer::kRegionMax) {
    return BadRequest(MessageKind::kMigration, message.size());
  }
  return parsed;
}

absl::StatusOr<MigrationReply> ParseMigrationReply(ConstBytes message, std::vector<PageRun>* runs) {
  runs->clear();
  RETURN_IF_ERROR(CheckReply(message, MessageKind::kMigration));
  Cursor cursor(message);
  const auto reply = cursor.Take<MigrationReply>();
  for (uint32_t i = 0; i < reply.runs && cursor.ok(); ++i) runs->push_back(cursor.Take<PageRun>());
  if (!cursor.ended()) return BadReply(MessageKind::kMigration, message.size());
  return reply;
}

absl::StatusOr<TimeReply> ParseTimeReply(ConstBytes message) {
  RETURN_IF_ERROR(CheckReply(message, MessageKind::kTime));
  Cursor cursor(message);
  const auto reply = cursor.Take<TimeReply>();
  if (!cursor.ended()) return BadReply(MessageKind::kTime, message.size());
  return reply;
}

std::string MakeTableVersionRequest(uint64_t age_ns) {
  TableVersionRequest fixed{};
  fixed.header.kind = MessageKind::kTableVersion;
  fixed.age_ns = age_ns;
  return WithFixed(fixed, 0, {});
}

absl::StatusOr<TableVersionRequest> ParseTableVersionRequest(ConstBytes message) {
  Cursor cursor(message);
  const auto request = cursor.Take<TableVersionRequest>();
  if (!cursor.ended()) return BadRequest(MessageKind::kTableVersion, message.size());
  return request;
}

absl::StatusOr<TableVersionReply> ParseTableVersionReply(ConstBytes message) {
  RETURN_IF_ERROR(CheckReply(message, MessageKind::kTableVersion));
  Cursor cursor(message);
  const auto reply = cursor.Take<TableVersionReply>();
  if (!cursor.ended()) return BadReply(MessageKind::kTableVersion, message.size());
  return reply;
}

std::string MakeTablePartRequest(const TablePart& part, uint64_t offset) {
  TablePartRequest fixed{};
  fixed.header.kind = MessageKind::kTablePart;
  fixed.part = part;
  fixed.offset = offset;
  return WithFixed(fixed, 0, {});
}

absl::StatusOr<TablePartRequest> ParseTablePartRequest(ConstBytes message) {
  Cursor cursor(message);
  const auto request = cursor.Take<TablePartRequest>();
  if (!cursor.ended() || request.part.kind > TablePartKind::kShard) {
    return BadRequest(MessageKind::kTablePart, message.size());
  }
  return request;
}

absl::StatusOr<Parsed<TablePartReply>> ParseTablePartReply(ConstBytes message) {
  RETURN_IF_ERROR(CheckReply(message, MessageKind::kTablePart));
  Cursor cursor(message);
  Parsed<TablePartReply> parsed{cursor.Take<TablePartReply>(), {}, {}};
  parsed.value = cursor.TakeText(cursor.left());
  if (!cursor.ended() || parsed.value.size() > parsed.fixed.bytes) {
    return BadReply(MessageKind::kTablePart, message.size());
  }
  return parsed;
}

absl::StatusOr<WeighReply> ParseWeighReply(ConstBytes message) {
  RETURN_IF_ERROR(CheckReply(message, MessageKind::kWeigh));
  Cursor cursor(message);
  const auto reply = cursor.Take<WeighReply>();
  if (!cursor.ended()) return BadReply(MessageKind::kWeigh, message.size());
  return reply;
}

}  // namespace cell
