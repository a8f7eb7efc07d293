// NodeView reads a node's bytes once they have been verified.
//
// Bytes from elsewhere are an untrusted image until Parse has accepted them. The writing thread of a region trusts its
// own memory (NodeView::Trusted).
//
// Invariants
//   1. Parse accepts only nodes that no accessor can read out of bounds.
//   2. Parse accepts only what one writer wrote in one go: equal even versions, and the body's CRC.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cell/base/bytes.h"
#include "cell/base/mutant.h"
#include "cell/layout/limits.h"
#include "cell/layout/node.h"

namespace cell {

enum class NodeFault {
  kNone,
  kTorn,       // A write was in progress, or the reads overlapped one: read again.
  kForeign,    // Whole, but not the requested node.
  kGone,       // Invalidated: its keys are in another meganode.
  kMalformed,  // The CRC is right, but this is not a node. The writer is at fault; such nodes are never followed.
};

// A pair as a leaf holds it. Made by NodeView::pair, or by Inline and Outside for a leaf that is being written.
struct LeafPair {
  uint64_t stamp = 0;
  uint32_t key_bytes = 0;  // Of the whole key. Set by NodeView::pair.
  uint32_t value_bytes = 0;
  bool is_inline = true;
  std::string_view value;  // If inline. Points into the node.
  uint16_t check = 0;      // If inline: PairCheck.
  PairExtent outside;      // If not inline.
  Expiry expiry = kNeverExpires;

  // `crc`: CRC64 of key and value.
  static LeafPair Inline(std::string_view value, uint64_t crc, uint64_t stamp) {
    return {stamp, 0, static_cast<uint32_t>(value.size()), true, value, PairCheck(crc), {}, kNeverExpires};
  }
  static LeafPair Outside(PairExtent extent, size_t value_bytes, uint64_t stamp) {
    return {stamp, 0, static_cast<uint32_t>(value_bytes), false, {}, 0, extent, kNeverExpires};
  }

  // Returns the size of key and value: of the extent if the pair is outside.
  uint32_t pair_bytes() const { return key_bytes + value_bytes; }
  // Returns whether key and value with this CRC64 can be those that were stored.
  bool Matches(uint64_t crc) const { return is_inline ? check == PairCheck(crc) : outside.crc == crc; }
  // Returns how many bytes the pair takes in the heap besides its key's tail.
  size_t payload_bytes() const { return ExpiryBytes(expiry) + (is_inline ? value_bytes : sizeof(PairExtent)); }
};

// Return the errors for a pair whose key and value do not match its check, and for a node that does not verify though
// no write is in progress.
absl::Status DamagedPair(uint32_t region, std::string_view key);
absl::Status DamagedNode(uint32_t region, Pointer node);

class NodeView {
 public:
  // Selects the protections that Parse applies. Anything but kFull is for tests that show what the others are for.
  enum class Checks { kFull, kVersionsOnly };

  // Verifies an image of a node. `image` is a private copy of the node's bytes and must outlive the view. Fills *view
  // on success.
  static NodeFault Parse(ConstBytes image, Pointer self, NodeView* view, Checks checks = Checks::kFull);

  static NodeView Trusted(const std::byte* node, uint32_t node_bytes) { return NodeView(node, node_bytes); }

  NodeView() = default;

  const std::byte* bytes() const { return bytes_; }
  uint32_t node_bytes() const { return node_bytes_; }

  uint8_t level() const { return header().level; }
  uint8_t tier() const { return header().tier; }
  bool holds_pairs() const { return HoldsPairs(header()); }
  bool gone() const { return header().head_version == kVersionGone && !Mutated(Mutant::kNoVersionCheck); }
  bool has_high() const { return (header().flags & kNodeHasHigh) != 0; }
  // Returns whether a transaction holds a key in the range of this leaf.
  bool locked() const { return (header().flags & kNodeLocked) != 0; }
  int count() const { return header().count; }
  Pointer self() const { return header().self; }
  NodeState state() const { return {header().head_version, header().crc, header().self}; }
  Pointer right() const { return header().right; }

  std::string_view prefix() const { return Text(low_key_offset(), header().prefix_bytes); }
  std::string_view low_key() const { return Text(low_key_offset(), header().low_key_bytes); }
  // Returns the high key's bytes after the prefix. REQUIRES: has_high().
  std::string_view high_key_rest() const {
    const size_t rest = header().high_key_bytes - header().prefix_bytes;
    return Text(low_key_offset() - rest, rest);
  }
  std::string high_key() const { return std::string(prefix()).append(high_key_rest()); }

  bool BelowLow(std::string_view key) const { return key < low_key(); }
  bool PastHigh(std::string_view key) const;
  bool Covers(std::string_view key) const { return !BelowLow(key) && !PastHigh(key); }

  // Returns the first slot whose key is not less than `key`, or count() if there is none. REQUIRES: the node covers
  // `key`.
  int LowerBound(std::string_view key) const;
  // Returns the slot that holds exactly `key`, or nullopt.
  std::optional<int> Find(std::string_view key) const;
  // Returns the slot of the child whose range holds `key`, or -1 if the node has no slots. For inner nodes.
  int ChildSlot(std::string_view key) const;

  // Accessors of slot i. REQUIRES: 0 <= i < count().
  SlotKey slot_key(int i) const { return Load<SlotKey>(slot(i)); }
  LeafSlot leaf_slot(int i) const { return Load<LeafSlot>(slot(i)); }
  // For leaves of pairs.
  LeafPair pair(int i) const;
  InnerSlot inner_slot(int i) const { return Load<InnerSlot>(slot(i)); }
  size_t key_bytes(int i) const { return header().prefix_bytes + slot_key(i).key_bytes; }
  void CopyKey(int i, std::string* key) const;
  std::string key(int i) const {
    std::string key;
    CopyKey(i, &key);
    return key;
  }

  // Returns whether the keys grow from slot to slot. A scan of other leaves would miss entries, or return them twice.
  // REQUIRES: WellFormed().
  bool InOrder() const;
  // Returns whether the counts and offsets agree, so that no accessor reads out of bounds. Parse refuses other nodes.
  bool WellFormed() const;
  // Returns whether the header's counts and sizes are possible, and costs little. No accessor then reads before the
  // node, or more than 192 KB behind it, whatever the slots say. WellFormed() implies it for nodes of this cluster's
  // writers.
  bool InBounds() const;

  const NodeHeader& header() const { return *reinterpret_cast<const NodeHeader*>(bytes_); }
  const std::byte* slot(int i) const {
    return bytes_ + sizeof(NodeHeader) + kKeyHeadBytes * static_cast<size_t>(count()) +
           SlotBytes(header()) * static_cast<size_t>(i);
  }
  uint32_t head(int i) const { return heads()[i]; }
  std::string_view tail(SlotKey key) const { return Text(key.tail_offset, TailBytes(key)); }
  // Returns the heap's entry of slot i: the key's tail, and behind it the payload of a pair.
  std::string_view entry(int i) const {
    const SlotKey key = slot_key(i);
    return Text(key.tail_offset, TailBytes(key) + (holds_pairs() ? leaf_slot(i).payload_bytes() : 0));
  }
  uint64_t head_version() const { return header().head_version; }
  uint64_t tail_version() const { return Load<uint64_t>(bytes_ + node_bytes_ - kTailVersionBytes); }
  size_t low_key_offset() const { return node_bytes_ - kTailVersionBytes - header().low_key_bytes; }
  // Returns the offset of the fences, where the entries in the heap end.
  size_t fences_offset() const {
    return low_key_offset() - (has_high() ? header().high_key_bytes - header().prefix_bytes : 0);
  }

 private:
  NodeView(const std::byte* bytes, uint32_t node_bytes) : bytes_(bytes), node_bytes_(node_bytes) {}

  const uint32_t* heads() const { return reinterpret_cast<const uint32_t*>(bytes_ + sizeof(NodeHeader)); }
  std::string_view Text(size_t offset, size_t bytes) const {
    return {reinterpret_cast<const char*>(bytes_) + offset, bytes};
  }
  // Returns <0, 0 or >0: compares the probe (without prefix, its head computed) with slot i, whose head equals the
  // probe's.
  int CompareEqualHeads(std::string_view probe, int i) const;

  const std::byte* bytes_ = nullptr;
  uint32_t node_bytes_ = 0;
};

inline LeafPair NodeView::pair(int i) const {
  const LeafSlot slot = leaf_slot(i);
  size_t payload = slot.key.tail_offset + TailBytes(slot.key);
  LeafPair pair;
  if (slot.expires()) {
    pair.expiry = Load<Expiry>(bytes_ + payload);
    payload += sizeof(Expiry);
  }
  pair.stamp = slot.stamp;
  pair.key_bytes = header().prefix_bytes + uint32_t{slot.key.key_bytes};
  pair.value_bytes = slot.value_bytes();
  pair.is_inline = !slot.outside();
  if (pair.is_inline) {
    pair.value = Text(payload, pair.value_bytes);
    pair.check = slot.check();
  } else {
    pair.outside = Load<PairExtent>(bytes_ + payload);
  }
  return pair;
}

inline bool NodeView::InBounds() const {
  const NodeHeader& h = header();
  const uint32_t fences = uint32_t{h.low_key_bytes} + h.high_key_bytes;
  const uint32_t slots = h.count * uint32_t{kKeyHeadBytes + sizeof(InnerSlot)};
  return ((h.prefix_bytes <= h.low_key_bytes) & (h.prefix_bytes <= h.high_key_bytes) &
          (fences <= node_bytes_ - sizeof(NodeHeader)) & (slots <= node_bytes_) & (h.level < kLevelsMax)) !=
         0;  // In one branch: each step of a walk calls it.
}

// Returns the first four bytes of a key without its prefix, zero-padded, as a number that orders like the bytes.
uint32_t KeyHead(std::string_view suffix);

// Returns the CRC64 that a node's header must carry.
uint64_t NodeCrc(const std::byte* node, uint32_t node_bytes);

}  // namespace cell
