// A node: the unit of a one-sided read. Clients read these bytes raw, so these declarations are the protocol.
//
//   [NodeHeader][head 0 .. head n-1][slot 0 .. slot n-1][free][heap: key tails, high fence, low fence][tail version]
//
// A key is stored without the prefix that the node's two fences share. Its first four bytes (zero-padded, big-endian)
// are its *head*, in an array of their own so that a search touches few cache lines; what is left is its *tail*, in
// the heap. The fences stand at the heap's end: the low key whole, before it the high key without the prefix.
//
// Integers are little-endian. Everything between `crc` and the tail version is the *body*.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cell/layout/pointer.h"

namespace cell {

inline constexpr uint8_t kNodeHasHigh = 2;  // Clear: the high key is above all keys.

// The head version of a node that was invalidated: its keys are in another meganode now. A reader that sees it
// restarts. One word is all that is stored, so that the right half of a meganode is invalidated in a moment; the rest
// of the node stays as it was until the node is reused. (The thesis, 4.3.1, clears a valid flag instead.)
inline constexpr uint64_t kVersionGone = ~uint64_t{0};

struct NodeHeader {
  uint64_t head_version;   // Even: stable. Odd: the writer is inside. kVersionGone: invalidated.
  uint64_t crc;            // CRC64 of the body. Catches a torn image in any read order (the thesis, 4.3.1, note 1).
  Pointer self;            // Catches a read that went astray, or a node that was reused.
  Pointer right;           // The next node of this level; at a meganode's right end, the next meganode's root, or null.
  uint8_t level;           // 0: leaf.
  uint8_t flags;           // kNodeHasHigh; other bits zero.
  uint16_t count;          // Slots.
  uint16_t prefix_bytes;   // Shared by low and high key, and so by all keys here. 0 without a high key.
  uint16_t low_key_bytes;  // Inclusive lower fence, with the prefix.
  uint16_t high_key_bytes;  // Exclusive upper fence, with the prefix.
  uint16_t heap_begin;      // Where the heap begins, from the node's start.
  uint8_t tier;         // Of its meganode. 0: leaves hold pairs. Above: they hold roots of meganodes one tier below.
  uint8_t reserved[3];  // Zero.
};
static_assert(sizeof(NodeHeader) == 48);
static_assert(std::has_unique_object_representations_v<NodeHeader>);

inline constexpr size_t kNodeBodyOffset = 16;
inline constexpr size_t kTailVersionBytes = 8;
inline constexpr size_t kKeyHeadBytes = 4;

// What both kinds of slot begin with.
struct SlotKey {
  uint16_t key_bytes;    // Without the prefix; the tail has key_bytes - 4 bytes, or none.
  uint16_t tail_offset;  // From the node's start.
};

// One stored pair.
struct LeafSlot {
  SlotKey key;
  uint32_t extent_bytes;  // Key and value.
  Pointer extent;
  uint64_t crc;  // CRC64 of key and value: what the extent must hold.
};
static_assert(sizeof(LeafSlot) == 24);
static_assert(std::has_unique_object_representations_v<LeafSlot>);

// The child whose low key is this slot's key. Slot 0's key is the node's low key. At level 0 (of a tier above 0) the
// child is the root of a meganode, on any server.
struct InnerSlot {
  SlotKey key;
  uint32_t child_low;  // The child's pointer in two halves: 12 bytes a slot instead of 16.
  uint32_t child_high;

  Pointer child() const { return Pointer::FromRaw(uint64_t{child_high} << 32 | child_low); }
};
static_assert(sizeof(InnerSlot) == 12);
static_assert(std::has_unique_object_representations_v<InnerSlot>);

constexpr bool HoldsPairs(const NodeHeader& node) { return node.level == 0 && node.tier == 0; }
constexpr size_t SlotBytes(const NodeHeader& node) { return HoldsPairs(node) ? sizeof(LeafSlot) : sizeof(InnerSlot); }

constexpr InnerSlot SlotOf(Pointer child) {
  return {{}, static_cast<uint32_t>(child.raw()), static_cast<uint32_t>(child.raw() >> 32)};
}

}  // namespace cell
