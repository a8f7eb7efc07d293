#include "cell/server/request/scan_writer.h"

#include <algorithm>
#include <cstring>

#include "cell/base/status_macros.h"

namespace cell {
namespace {

// Returns the end of what a scan to `end` may see, in its direction, unless the scan ends before.
std::optional<std::string> BorderOf(const KeySpan* seen, bool down, const std::optional<std::string>& end) {
  if (seen == nullptr) return std::nullopt;
  if (down) {
    if (seen->from.empty() || (end.has_value() && *end >= seen->from)) return std::nullopt;
    return seen->from;
  }
  if (!seen->to.has_value() || (end.has_value() && *end <= *seen->to)) return std::nullopt;
  return seen->to;
}

}  // namespace

bool ScanWriter::Fits(std::string_view key, uint32_t value_bytes, Expiry expiry) const {
  const size_t payload = keys_only_ ? 0 : IsElsewhere(value_bytes) ? sizeof(ScanExtent) : value_bytes;
  return !full() && at_ + sizeof(ScanEntry) + key.size() + ExpiryBytes(expiry) + payload <= room_;
}

void ScanWriter::AppendEntry(std::string_view key, uint32_t value_bytes, Expiry expiry) {
  const size_t expiry_bytes = ExpiryBytes(expiry);
  const int flags = (IsElsewhere(value_bytes) ? kScanElsewhere : 0) | (expiry_bytes > 0 ? kScanExpires : 0);
  const ScanEntry entry{keys_only_ ? 0 : value_bytes, static_cast<uint16_t>(key.size()), static_cast<uint16_t>(flags)};
  Append(&entry, sizeof(entry));
  Append(&expiry, expiry_bytes);
  Append(key.data(), key.size());
  ++reply_.count;
}

absl::StatusOr<bool> ScanWriter::AddPair(const Meganode& tree, std::string_view key, const LeafPair& pair) {
  if (!Fits(key, pair.value_bytes, pair.expiry)) return false;
  const bool elsewhere = IsElsewhere(pair.value_bytes);
  // Read the pair where it is stored, and not in the reply, whose cache lines may still be with the client.
  std::string_view value;
  if (!keys_only_ && !elsewhere) {
    ASSIGN_OR_RETURN(value, tree.VerifiedValueOf(key, pair));
  }
  AppendEntry(key, pair.value_bytes, pair.expiry);
  if (elsewhere && reply_.header.kind == MessageKind::kScan) {
    AppendExtent({pair.outside.extent, pair.outside.crc});
  } else if (elsewhere) {
    AppendExtent({});
  } else {
    Append(value.data(), value.size());
  }
  return true;
}

bool ScanWriter::AddValue(std::string_view key, std::string_view value, Expiry expiry) {
  const auto value_bytes = static_cast<uint32_t>(value.size());
  if (!Fits(key, value_bytes, expiry)) return false;
  AppendEntry(key, value_bytes, expiry);
  if (IsElsewhere(value_bytes)) {
    AppendExtent({});
  } else if (!keys_only_) {
    Append(value.data(), value.size());
  }
  return true;
}

size_t ScanWriter::Done() {
  if (behind_.has_value()) return GoOn(*behind_, {});
  reply_.done = 1;
  return End();
}

size_t ScanWriter::GoOn(const std::string& key, Pointer next) {
  reply_.next = next;
  reply_.next_key_bytes = static_cast<uint16_t>(key.size());
  Append(key.data(), key.size());
  return End();
}

void ScanWriter::Append(const void* bytes, size_t count) {
  if (count == 0) return;
  std::memcpy(to_.data() + at_, bytes, count);
  at_ += count;
}

size_t ScanWriter::End() {
  reply_.header.bytes = static_cast<uint32_t>(at_);
  Store(to_.data(), reply_);
  return at_;
}

absl::StatusOr<ScanTarget> ScanTarget::Of(MessageKind kind, const Meganode& tree, const Parsed<ScanRequest>& request,
                                          const KeySpan* seen, MutableBytes to) {
  const ScanRequest& fixed = request.fixed;
  const bool down = fixed.down != 0;
  std::optional<std::string> end;
  if (fixed.has_to != 0) end = request.value;
  const std::optional<std::string> border = BorderOf(seen, down, end);
  if (border.has_value()) end = border;
  const size_t room = std::min<size_t>(to.size(), fixed.reply_bytes_max);
  if (room < sizeof(ScanReply) + 2 * tree.key_bytes_max() + sizeof(ScanEntry) + sizeof(Expiry) + sizeof(ScanExtent)) {
    return absl::InvalidArgumentError("a scan request must leave room for at least one entry");
  }
  std::optional<std::string> behind = border;
  if (border.has_value() && down) behind = GreatestBelow(*border, tree.key_bytes_max());
  if (behind.has_value() && behind->empty()) behind.reset();  // There are no such keys.
  return ScanTarget{ScanPosition(down, std::string(request.key), end, tree.key_bytes_max()),
                    ScanWriter(kind, to, room - tree.key_bytes_max(), fixed.limit, fixed.keys_only != 0, behind)};
}

}  // namespace cell
