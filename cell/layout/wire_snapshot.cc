#include "cell/layout/wire_snapshot.h"

#include <cstring>

#include "cell/base/status_macros.h"
#include "cell/layout/wire_parts.h"

namespace cell {
namespace {

// Returns a request that was made without a snapshot with one: its fixed part, `Whole`, begins with that of the other,
// and goes on with the snapshot's id.
template <typename Whole, typename Part>
std::string WithSnapshot(MessageKind kind, const std::string& request, const SnapshotId& id) {
  Whole whole{Load<Part>(reinterpret_cast<const std::byte*>(request.data())), id};
  auto* const header = reinterpret_cast<MessageHeader*>(&whole);
  header->kind = kind;
  header->bytes += sizeof(Whole) - sizeof(Part);
  std::string made(reinterpret_cast<const char*>(&whole), sizeof(whole));
  made.append(request, sizeof(Part));
  return made;
}

}  // namespace

std::string MakeSnapshotRequest(Pointer root, SnapshotStep step, const SnapshotId& id, std::string_view from,
                                std::string_view to, uint32_t kept_ms) {
  SnapshotRequest fixed{};
  fixed.header.kind = MessageKind::kSnapshot;
  fixed.root = root;
  fixed.id = id;
  fixed.kept_ms = kept_ms;
  fixed.from_bytes = static_cast<uint16_t>(from.size());
  fixed.to_bytes = static_cast<uint16_t>(to.size());
  fixed.step = step;
  return WithFixed(fixed, 0, {from, to});
}

absl::StatusOr<Parsed<SnapshotRequest>> ParseSnapshotRequest(ConstBytes message) {
  Cursor cursor(message);
  Parsed<SnapshotRequest> parsed{cursor.Take<SnapshotRequest>(), {}, {}};
  const SnapshotRequest& fixed = parsed.fixed;
  parsed.key = cursor.TakeText(fixed.from_bytes);
  parsed.value = cursor.TakeText(fixed.to_bytes);
  if (!cursor.ended() || fixed.id.client == 0 || fixed.step < SnapshotStep::kLook ||
      fixed.step > SnapshotStep::kForget || int64_t{fixed.kept_ms} * 1'000'000 > kSnapshotKeptNsMax) {
    return BadRequest(MessageKind::kSnapshot, message.size());
  }
  return parsed;
}

absl::StatusOr<Parsed<SnapshotReply>> ParseSnapshotReply(ConstBytes message) {
  RETURN_IF_ERROR(CheckReply(message, MessageKind::kSnapshot));
  Cursor cursor(message);
  Parsed<SnapshotReply> parsed{cursor.Take<SnapshotReply>(), {}, {}};
  parsed.key = cursor.TakeText(parsed.fixed.end_bytes);
  if (!cursor.ended() || parsed.fixed.state < SnapshotState::kWaits || parsed.fixed.state > SnapshotState::kGone) {
    return BadReply(MessageKind::kSnapshot, message.size());
  }
  return parsed;
}

size_t WriteSnapshotReply(MutableBytes to, SnapshotState state, std::string_view end) {
  auto reply = ReplyOf<SnapshotReply>(MessageKind::kSnapshot, sizeof(SnapshotReply) + end.size());
  reply.state = state;
  reply.end_bytes = static_cast<uint16_t>(end.size());
  Store(to.data(), reply);
  if (!end.empty()) std::memcpy(to.data() + sizeof(reply), end.data(), end.size());
  return sizeof(reply) + end.size();
}

std::string MakeGetSnapshotRequest(Pointer root, const SnapshotId& id, std::string_view key, uint16_t copy) {
  return WithSnapshot<GetSnapshotRequest, KeyRequest>(MessageKind::kGetSnapshot,
                                                      MakeKeyRequest(MessageKind::kGet, root, {}, key, copy), id);
}

absl::StatusOr<Parsed<GetSnapshotRequest>> ParseGetSnapshotRequest(ConstBytes message) {
  Cursor cursor(message);
  Parsed<GetSnapshotRequest> parsed{cursor.Take<GetSnapshotRequest>(), {}, {}};
  parsed.key = cursor.TakeText(parsed.fixed.get.key_bytes);
  if (!cursor.ended() || parsed.fixed.get.copy > kCopiesMax) {
    return BadRequest(MessageKind::kGetSnapshot, message.size());
  }
  return parsed;
}

std::string MakeScanSnapshotRequest(Pointer root, const SnapshotId& id, std::string_view from,
                                    const std::optional<std::string>& to, const ScanTerms& terms) {
  return WithSnapshot<ScanSnapshotRequest, ScanRequest>(MessageKind::kScanSnapshot,
                                                        MakeScanRequest(root, from, to, terms), id);
}

absl::StatusOr<ParsedScanSnapshot> ParseScanSnapshotRequest(ConstBytes message) {
  Cursor cursor(message);
  const auto fixed = cursor.Take<ScanSnapshotRequest>();
  ParsedScanSnapshot parsed{fixed.id, {fixed.scan, {}, {}}};
  parsed.scan.key = cursor.TakeText(fixed.scan.from_bytes);
  parsed.scan.value = cursor.TakeText(fixed.scan.to_bytes);
  if (!cursor.ended() || fixed.scan.limit == 0 || fixed.scan.limit > kScanLimitMax ||
      fixed.scan.reply_bytes_max > kMessageBytesMax) {
    return BadRequest(MessageKind::kScanSnapshot, message.size());
  }
  return parsed;
}

}  // namespace cell
