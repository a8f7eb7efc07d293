#include "cell/tree/node_view.h"

#include <algorithm>

#include "cell/base/crc64.h"
#include "cell/base/mutant.h"
#include "fmt/format.h"

namespace cell {

absl::Status DamagedPair(uint32_t region, std::string_view key) {
  return absl::DataLossError(fmt::format(
      "region {}: the pair of key {} was damaged in its server's memory: its check is wrong", region, ForMessage(key)));
}

absl::Status DamagedNode(uint32_t region, Pointer node) {
  return absl::DataLossError(
      fmt::format("region {}: node {} was damaged in its server's memory", region, ToString(node)));
}

namespace {

struct Bounds {
  int below = 0;      // How many heads are less than the wanted one.
  int not_above = 0;  // How many are less or equal.
};

// Compares all heads without branches, four at once, in the vector types of gcc and clang: g++ 12 vectorizes no such
// loop with -O2.
Bounds CountHeads(const uint32_t* heads, int count, uint32_t wanted) {
  using Block = uint32_t __attribute__((vector_size(16)));
  constexpr int kBlock = sizeof(Block) / sizeof(uint32_t);
  const Block all_wanted = Block{} + wanted;
  Block below{};  // Each comparison that holds gives ~0, which is -1.
  Block above{};
  int i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    Block block;
    std::memcpy(&block, heads + i, sizeof(block));
    below -= static_cast<Block>(block < all_wanted);
    above -= static_cast<Block>(block > all_wanted);
  }
  Bounds bounds;
  bounds.not_above = i;
  for (int lane = 0; lane < kBlock; ++lane) {
    bounds.below += static_cast<int>(below[lane]);
    bounds.not_above -= static_cast<int>(above[lane]);
  }
  for (; i < count; ++i) {
    bounds.below += heads[i] < wanted;
    bounds.not_above += heads[i] <= wanted;
  }
  return bounds;
}

}  // namespace

uint32_t KeyHead(std::string_view suffix) {
  uint32_t head = 0;
  if (suffix.size() >= kKeyHeadBytes) [[likely]] {
    std::memcpy(&head, suffix.data(), kKeyHeadBytes);
  } else {
    std::memcpy(&head, suffix.data(), suffix.size());
  }
  return __builtin_bswap32(head);
}

uint64_t NodeCrc(const std::byte* node, uint32_t node_bytes) {
  return Crc64(ConstBytes(node + kNodeBodyOffset, node_bytes - kNodeBodyOffset - kTailVersionBytes));
}

NodeFault NodeView::Parse(ConstBytes image, Pointer self, NodeView* view, Checks checks) {
  if (!ValidNodeBytes(image.size())) return NodeFault::kMalformed;
  const NodeView candidate(image.data(), static_cast<uint32_t>(image.size()));
  if (candidate.gone()) return NodeFault::kGone;
  const bool whole = candidate.head_version() == candidate.tail_version() && candidate.head_version() % 2 == 0;
  if (!whole && !Mutated(Mutant::kNoVersionCheck)) return NodeFault::kTorn;
  if (checks == Checks::kFull && !Mutated(Mutant::kNoNodeCrc) &&
      candidate.header().crc != NodeCrc(image.data(), candidate.node_bytes_)) {
    return NodeFault::kTorn;
  }
  if (candidate.self() != self) return NodeFault::kForeign;
  if (!candidate.WellFormed()) return NodeFault::kMalformed;
  *view = candidate;
  return NodeFault::kNone;
}

bool NodeView::WellFormed() const {
  const NodeHeader& h = header();
  if ((h.flags & ~(kNodeHasHigh | kNodeLocked)) != 0 || (locked() && !HoldsPairs(h)) || h.level >= kLevelsMax ||
      h.tier >= kTiersMax)
    return false;
  if ((h.reserved[0] | h.reserved[1] | h.reserved[2]) != 0) return false;
  if (!has_high() && (h.high_key_bytes != 0 || h.prefix_bytes != 0)) return false;
  if (h.prefix_bytes > h.low_key_bytes || (has_high() && h.prefix_bytes > h.high_key_bytes)) return false;
  const size_t fences = size_t{h.low_key_bytes} + h.high_key_bytes - h.prefix_bytes * size_t{has_high()};
  const size_t slots_end = sizeof(NodeHeader) + h.count * (kKeyHeadBytes + SlotBytes(h));
  const size_t end = node_bytes_ - kTailVersionBytes;
  if (fences > end || h.heap_begin < slots_end || h.heap_begin > end - fences) return false;
  for (int i = 0; i < h.count; ++i) {
    const SlotKey key = slot_key(i);
    size_t bytes = TailBytes(key);
    if (HoldsPairs(h)) {
      const LeafSlot slot = leaf_slot(i);
      if (slot.value_bytes() > kValueBytesMax) return false;
      bytes += slot.payload_bytes();
    }
    if (bytes == 0 ? key.tail_offset != 0 : key.tail_offset < h.heap_begin || key.tail_offset + bytes > end - fences) {
      return false;
    }
  }
  return true;
}

bool NodeView::InOrder() const {
  for (int i = 1; i < count(); ++i) {
    if (heads()[i - 1] < heads()[i]) [[likely]]
      continue;
    if (heads()[i - 1] > heads()[i]) return false;
    const SlotKey low = slot_key(i - 1);
    const SlotKey high = slot_key(i);
    const bool short_key = std::min(low.key_bytes, high.key_bytes) <= kKeyHeadBytes;
    if (short_key ? low.key_bytes >= high.key_bytes : tail(low) >= tail(high)) return false;
  }
  return true;
}

bool NodeView::PastHigh(std::string_view key) const {
  if (!has_high()) return false;
  const std::string_view shared = prefix();
  const std::string_view start = key.substr(0, shared.size());
  if (const int order = start.compare(shared); order != 0) return order > 0;
  return key.substr(shared.size()) >= high_key_rest();
}

int NodeView::CompareEqualHeads(std::string_view probe, int i) const {
  const SlotKey key = slot_key(i);
  // One of them ends within the head. They differ by trailing zero bytes at most, and the shorter one comes first.
  if (std::min<size_t>(probe.size(), key.key_bytes) <= kKeyHeadBytes) {
    return static_cast<int>(probe.size()) - static_cast<int>(key.key_bytes);
  }
  return probe.substr(kKeyHeadBytes).compare(tail(key));
}

int NodeView::LowerBound(std::string_view key) const {
  const std::string_view probe = key.substr(std::min<size_t>(header().prefix_bytes, key.size()));
  auto [below, not_above] = CountHeads(heads(), count(), KeyHead(probe));
  while (below < not_above) {  // Binary search among the slots with this head.
    const int middle = (below + not_above) / 2;
    if (CompareEqualHeads(probe, middle) > 0) {
      below = middle + 1;
    } else {
      not_above = middle;
    }
  }
  return below;
}

std::optional<int> NodeView::Find(std::string_view key) const {
  const int i = LowerBound(key);
  if (i == count()) return std::nullopt;
  const std::string_view probe = key.substr(std::min<size_t>(header().prefix_bytes, key.size()));
  if (heads()[i] != KeyHead(probe) || CompareEqualHeads(probe, i) != 0) return std::nullopt;
  return i;
}

int NodeView::ChildSlot(std::string_view key) const {
  const int i = LowerBound(key);
  if (i < count()) {
    const std::string_view probe = key.substr(std::min<size_t>(header().prefix_bytes, key.size()));
    if (heads()[i] == KeyHead(probe) && CompareEqualHeads(probe, i) == 0) return i;
  }
  return std::max(i - 1, std::min(count(), 1) - 1);
}

void NodeView::CopyKey(int i, std::string* key) const {
  const SlotKey at = slot_key(i);
  const uint32_t head = __builtin_bswap32(heads()[i]);
  key->assign(prefix());
  key->append(reinterpret_cast<const char*>(&head), std::min<size_t>(at.key_bytes, kKeyHeadBytes));
  key->append(tail(at));
}

}  // namespace cell
