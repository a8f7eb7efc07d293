#include "cell/server/request/scan_request.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "cell/base/status_macros.h"
#include "cell/server/request/served_regions.h"
#include "cell/server/request/sound_leaves.h"
#include "cell/tree/scan_position.h"

namespace cell {
namespace {

constexpr int kLeavesPerScan = 64;

// Prefetches what a scan of `leaf` from slot `first` on will read: extents, and the leaf to the right.
void PrefetchForScan(const Meganode& tree, const NodeView& leaf, int first, bool down, bool keys_only) {
  if (!down && leaf.right().region() == tree.region()) {
    Prefetch(tree.Node(leaf.right()).bytes(), leaf.node_bytes());
  }
  if (keys_only) return;
  for (int slot = first; ScanPosition::In(leaf, slot); slot += down ? -1 : 1) {
    const LeafPair pair = leaf.pair(slot);
    if (!pair.is_inline) Prefetch(tree.Extent(pair.outside.extent), std::min<size_t>(pair.pair_bytes(), 512));
  }
}

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

// Returns the least key of at most `bytes_max` bytes above `key`, or "" if there is none.
std::string LeastAbove(std::string_view key, size_t bytes_max) {
  std::string above(key);
  if (above.size() < bytes_max) return above + '\0';
  while (!above.empty() && above.back() == '\xff') above.pop_back();
  if (!above.empty()) ++above.back();
  return above;
}

// The keys that a scan has not passed yet, as far as transactions hold them to be written.
class Unpassed {
 public:
  Unpassed(const KeyLocks& locks, const ScanPosition& position, size_t key_bytes_max)
      : locks_(locks), position_(position), key_bytes_max_(key_bytes_max) {
    last_ = position.at();
  }
  // Returns whether one is held up to this one, inclusive.
  bool HiddenTo(std::string_view key) const {
    return position_.down() ? locks_.HidesAny(key, Upper()) : locks_.HidesAny(Lower(), std::string(key) + '\0');
  }
  // Returns whether one is held of those that the leaf has, and the scan wants.
  bool HiddenIn(const NodeView& leaf) const {
    const std::optional<std::string>& end = position_.end();
    if (position_.down()) {
      const std::string low(leaf.low_key());
      return locks_.HidesAny(end.has_value() ? std::max(*end, low) : low, Upper());
    }
    if (!leaf.has_high()) return end.has_value() ? locks_.HidesAny(Lower(), *end) : locks_.HidesAny(Lower());
    const std::string high(leaf.high_key());
    return locks_.HidesAny(Lower(), end.has_value() ? std::min(*end, high) : high);
  }
  void Pass(std::string_view key) {
    last_ = key;
    passed_ = true;
  }
  // Returns where the scan goes on: "" if there are no more keys.
  std::string next() const {
    if (!passed_) return last_;
    return position_.down() ? GreatestBelow(last_, key_bytes_max_) : LeastAbove(last_, key_bytes_max_);
  }

 private:
  std::string Lower() const { return passed_ ? last_ + '\0' : last_; }
  std::string Upper() const { return passed_ ? last_ : last_ + '\0'; }

  const KeyLocks& locks_;
  const ScanPosition& position_;
  const size_t key_bytes_max_;
  std::string last_;  // The key that was passed last, or where the scan began in this leaf.
  bool passed_ = false;
};

// Composes the reply: its entries, and then the key where the next scan starts, for which room is reserved.
class ScanWriter {
 public:
  // `behind`: where the scan continues when it has come to the end of what it may see.
  ScanWriter(MutableBytes to, size_t room, uint32_t limit, bool keys_only, std::optional<std::string> behind)
      : to_(to), room_(room), limit_(limit), keys_only_(keys_only), behind_(std::move(behind)) {}

  bool full() const { return reply_.count == limit_; }
  bool empty() const { return reply_.count == 0; }
  // Appends an entry. Returns false if it does not fit, and DataLoss if the pair was damaged in memory.
  absl::StatusOr<bool> Add(const Meganode& tree, std::string_view key, const LeafPair& pair) {
    const bool elsewhere = !keys_only_ && pair.value_bytes > kInlineValueBytesMax;
    const size_t payload = keys_only_ ? 0 : elsewhere ? sizeof(ScanExtent) : pair.value_bytes;
    const size_t expiry_bytes = ExpiryBytes(pair.expiry);
    if (full() || at_ + sizeof(ScanEntry) + key.size() + expiry_bytes + payload > room_) return false;
    // Read the pair where it is stored, and not in the reply, whose cache lines may still be with the client.
    std::string_view value;
    if (!keys_only_ && !elsewhere) {
      ASSIGN_OR_RETURN(value, tree.VerifiedValueOf(key, pair));
    }
    const int flags = (elsewhere ? kScanElsewhere : 0) | (expiry_bytes > 0 ? kScanExpires : 0);
    const ScanEntry entry{keys_only_ ? 0 : pair.value_bytes, static_cast<uint16_t>(key.size()),
                          static_cast<uint16_t>(flags)};
    Append(&entry, sizeof(entry));
    Append(&pair.expiry, expiry_bytes);
    Append(key.data(), key.size());
    if (elsewhere) {
      const ScanExtent extent{pair.outside.extent, pair.outside.crc};
      Append(&extent, sizeof(extent));
    } else {
      Append(value.data(), value.size());
    }
    ++reply_.count;
    return true;
  }
  // Ends the reply of a scan that has come to a key that a transaction holds.
  size_t Locked(const Unpassed& unpassed) { return empty() ? WriteLocked(to_) : GoOn(unpassed.next(), {}); }
  // Ends the reply of a scan that has reached its end.
  size_t Done() {
    if (behind_.has_value()) return GoOn(*behind_, {});
    reply_.done = 1;
    return End();
  }
  // Ends the reply of a scan that continues at `key`: in the meganode `next`, or in this one if that is null.
  size_t GoOn(const std::string& key, Pointer next) {
    reply_.next = next;
    reply_.next_key_bytes = static_cast<uint16_t>(key.size());
    Append(key.data(), key.size());
    return End();
  }

 private:
  void Append(const void* bytes, size_t count) {
    if (count == 0) return;
    std::memcpy(to_.data() + at_, bytes, count);
    at_ += count;
  }
  size_t End() {
    reply_.header.bytes = static_cast<uint32_t>(at_);
    Store(to_.data(), reply_);
    return at_;
  }

  const MutableBytes to_;
  const size_t room_;
  const uint32_t limit_;
  const bool keys_only_;
  const std::optional<std::string> behind_;
  ScanReply reply_ = ReplyOf<ScanReply>(MessageKind::kScan);
  size_t at_ = sizeof(ScanReply);
};

// Adds what the scan wants of its leaves to the reply, from the position on. Returns DataLoss if something was damaged
// in memory: the position is there, behind all entries that were added.
absl::StatusOr<size_t> AddEntries(const Meganode& tree, const KeyLocks& locks, bool keys_only, ScanPosition* position,
                                  ScanWriter* writer) {
  std::string key;
  const uint64_t now = tree.ClusterTime();
  ASSIGN_OR_RETURN(NodeView leaf, SoundLeaf(tree, position->at()));
  for (int leaves = 0;; ++leaves) {
    const bool locked = leaf.locked();
    Unpassed unpassed(locks, *position, tree.key_bytes_max());
    const int first = position->First(leaf);
    PrefetchForScan(tree, leaf, first, position->down(), keys_only);
    for (int slot = first; ScanPosition::In(leaf, slot); slot += position->step()) {
      leaf.CopyKey(slot, &key);
      const bool past = position->Past(key);
      if (locked && (past ? unpassed.HiddenIn(leaf) : unpassed.HiddenTo(key))) return writer->Locked(unpassed);
      if (past) return writer->Done();
      const LeafPair pair = leaf.pair(slot);
      if (HasExpired(pair.expiry, now)) continue;
      const absl::StatusOr<bool> added = writer->Add(tree, key, pair);
      if (added.ok() && *added) {
        if (locked) unpassed.Pass(key);
        continue;
      }
      position->MoveTo(key);
      if (!added.ok()) return added.status();
      return writer->GoOn(position->at(), {});
    }
    if (locked && unpassed.HiddenIn(leaf)) return writer->Locked(unpassed);
    if (position->EndsWith(leaf)) return writer->Done();
    position->Pass(leaf);
    if (!tree.Covers(position->at())) return writer->GoOn(position->at(), position->down() ? Pointer() : leaf.right());
    // After many empty leaves the scan continues in another call, so that other requests are served.
    if (leaves == kLeavesPerScan || writer->full()) return writer->GoOn(position->at(), {});
    if (position->down()) {
      ASSIGN_OR_RETURN(leaf, SoundLeaf(tree, position->at()));
    } else {
      ASSIGN_OR_RETURN(leaf, SoundRight(tree, leaf));
    }
  }
}

}  // namespace

absl::StatusOr<size_t> ServeScan(const Meganode& tree, const KeyLocks& locks, const Parsed<ScanRequest>& request,
                                 const KeySpan* seen, MutableBytes to) {
  const ScanRequest& fixed = request.fixed;
  const bool keys_only = fixed.keys_only != 0;
  const bool down = fixed.down != 0;
  std::optional<std::string> end;
  if (fixed.has_to != 0) end = request.value;
  const std::optional<std::string> border = BorderOf(seen, down, end);
  if (border.has_value()) end = border;
  ScanPosition position(down, std::string(request.key), end, tree.key_bytes_max());
  const size_t room = std::min<size_t>(to.size(), fixed.reply_bytes_max);
  if (room < sizeof(ScanReply) + 2 * tree.key_bytes_max() + sizeof(ScanEntry) + sizeof(Expiry) + sizeof(ScanExtent)) {
    return absl::InvalidArgumentError("a scan request must leave room for at least one entry");
  }
  std::optional<std::string> behind = border;
  if (border.has_value() && down) behind = GreatestBelow(*border, tree.key_bytes_max());
  if (behind.has_value() && behind->empty()) behind.reset();  // There are no such keys.
  ScanWriter writer(to, room - tree.key_bytes_max(), fixed.limit, keys_only, std::move(behind));
  absl::StatusOr<size_t> bytes = AddEntries(tree, locks, keys_only, &position, &writer);
  // The reply has the entries before the damage. The next call begins at the damage and returns the error.
  if (absl::IsDataLoss(bytes.status()) && !writer.empty()) return writer.GoOn(position.at(), {});
  return bytes;
}

}  // namespace cell
