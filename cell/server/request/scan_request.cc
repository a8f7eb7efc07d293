#include "cell/server/request/scan_request.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "cell/base/status_macros.h"
#include "cell/tree/scan_position.h"

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

}  // namespace

absl::StatusOr<size_t> ServeScan(const Meganode& tree, const Parsed<ScanRequest>& request, MutableBytes to) {
  const bool keys_only = request.fixed.keys_only != 0;
  ScanPosition position(request.fixed.down != 0, std::string(request.key),
                        request.fixed.has_to != 0 ? std::optional<std::string>(request.value) : std::nullopt,
                        tree.key_bytes_max());
  // Room for the key where the next scan starts is kept free.
  const size_t room = std::min<size_t>(to.size(), request.fixed.reply_bytes_max);
  if (room < sizeof(ScanReply) + 2 * tree.key_bytes_max() + sizeof(ScanEntry) + sizeof(ScanExtent)) {
    return absl::InvalidArgumentError("a scan with no room for one entry");
  }
  const size_t limit = room - tree.key_bytes_max();

  auto reply = ReplyOf<ScanReply>(MessageKind::kScan);
  size_t at = sizeof(reply);
  std::string key;
  ASSIGN_OR_RETURN(NodeView leaf, tree.LeafOf(position.at()));
  bool full = false;
  for (int leaves = 0;; ++leaves) {
    const int first = position.First(leaf);
    PrefetchForScan(tree, leaf, first, position.down(), keys_only);
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
        std::memcpy(to.data() + at, tree.Extent(found.extent), found.extent_bytes);
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
    if (!tree.Covers(position.at())) {
      if (!position.down()) reply.next = leaf.right();
      break;
    }
    // Many empty leaves: go on in another call, so that others get their turn.
    if (leaves == kLeavesPerScan || reply.count == request.fixed.limit) break;
    if (position.down()) {
      ASSIGN_OR_RETURN(leaf, tree.LeafOf(position.at()));
    } else {
      leaf = tree.Node(leaf.right());
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

}  // namespace cell
