// Defines a node, the unit of a one-sided read. Clients read these bytes raw, so these declarations are the protocol.
//
//   [NodeHeader][head 0 .. head n-1][slot 0 .. slot n-1][free][heap: entries, high fence, low fence][tail version]
//
// A key is stored without the prefix that the node's two fences share. Its first four bytes (zero-padded, big-endian)
// are its *head*. Heads are in an array of their own, so that a search touches few cache lines. The other bytes are the
// key's *tail*. Each slot has an entry in the heap: the key's tail, and in a leaf the *payload* directly behind it. The
// fences are at the end of the heap: the whole low key last, and before it the high key without the prefix.
//
// The payload of an *inline* pair is its value. The payload of an *outside* pair is a PairExtent, which says where key
// and value are. A leaf may hold both kinds, and a reader needs no setting to tell them apart. The payload of a pair
// with an expiry begins with that (expiry.h).
//
// Integers are little-endian. Everything between `crc` and the tail version is the *body*.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cell/layout/expiry.h"
#include "cell/layout/pointer.h"

namespace cell {

inline constexpr uint8_t kNodeHasHigh = 2;  // Clear: the node has no upper bound.
// A transaction that is prepared will perhaps write a key of this leaf's range. Only the owner knows which, so a reader
// asks it.
inline constexpr uint8_t kNodeLocked = 4;

// The head version of an invalidated node: its keys are in another meganode now. A reader that sees it restarts.
// Invalidating a node stores only this word, so that the right half of a meganode is invalidated quickly. The rest of
// the node keeps its content until the node is reused. (The thesis, 4.3.1, clears a valid flag instead.)
inline constexpr uint64_t kVersionGone = ~uint64_t{0};

struct NodeHeader {
  uint64_t head_version;   // Even: stable. Odd: a write is in progress. kVersionGone: invalidated.
  uint64_t crc;            // CRC64 of the body. Catches a torn image in any read order (thesis, 4.3.1, note 1).
  Pointer self;            // Catches a read of the wrong address, or a node that was reused.
  Pointer right;           // The next node of this level. At a meganode's right end: the next meganode's root, or null.
  uint8_t level;           // 0: leaf.
  uint8_t flags;           // kNodeHasHigh, kNodeLocked; other bits are zero.
  uint16_t count;          // Number of slots.
  uint16_t prefix_bytes;   // Shared by low and high key, and so by all keys here. 0 if there is no high key.
  uint16_t low_key_bytes;  // Inclusive lower fence, with the prefix.
  uint16_t high_key_bytes;  // Exclusive upper fence, with the prefix.
  uint16_t heap_begin;      // Offset of the heap from the node's start.
  uint8_t tier;  // Tier of the meganode. 0: leaves hold pairs. Above: they hold roots of meganodes one tier below.
  uint8_t reserved[3];  // Zero.
};
static_assert(sizeof(NodeHeader) == 48);
static_assert(std::has_unique_object_representations_v<NodeHeader>);

// The first fields of a NodeHeader. While a node is valid, no two states of it have the same ones in an epoch of its
// region: the version grows with each change.
struct NodeState {
  uint64_t head_version = 0;
  uint64_t crc = 0;
  Pointer self = {};

  bool operator==(const NodeState&) const = default;
};
static_assert(sizeof(NodeState) == offsetof(NodeHeader, right) && std::has_unique_object_representations_v<NodeState>);

inline constexpr size_t kNodeBodyOffset = 16;
inline constexpr size_t kTailVersionBytes = 8;
inline constexpr size_t kKeyHeadBytes = 4;

// Begins both kinds of slot.
struct SlotKey {
  uint16_t key_bytes;    // Without the prefix. The tail has key_bytes - 4 bytes, or is empty.
  uint16_t tail_offset;  // Of the entry in the heap, from the node's start. 0 if the entry is empty.
};

constexpr size_t TailBytes(SlotKey key) { return key.key_bytes <= kKeyHeadBytes ? 0 : key.key_bytes - kKeyHeadBytes; }

// Names the extent that holds the key and value of an outside pair. Not aligned.
struct PairExtent {
  Pointer extent;
  uint64_t crc;  // CRC64 of key and value, to verify the extent. The node's CRC covers inline pairs.

  bool operator==(const PairExtent&) const = default;
};
static_assert(sizeof(PairExtent) == 16);
static_assert(std::has_unique_object_representations_v<PairExtent>);

// In LeafSlot::value: the pair is in an extent.
inline constexpr uint32_t kValueOutside = uint32_t{1} << 31;
// In LeafSlot::value: the pair has an expiry.
inline constexpr uint32_t kValueExpires = uint32_t{1} << 30;
// In LeafSlot::value of an inline pair: where the check begins, above the size.
inline constexpr int kValueCheckShift = 14;

// Returns the *check* of an inline pair: the lowest 16 bits of the CRC64 of key and value. A server compares it when it
// reads the pair alone, without the rest of the node, whose CRC covers the pair as well.
constexpr uint16_t PairCheck(uint64_t crc) { return static_cast<uint16_t>(crc); }

// Describes one stored pair.
struct LeafSlot {
  SlotKey key;
  // Inline: size of the value in bits 0 to 13, check in bits 14 to 29. Outside: size, and kValueOutside. Both may have
  // kValueExpires.
  uint32_t value;
  // Grows with each put of the key, also with one that stores an equal value. No two puts of a key have the same, so a
  // reader that finds a stamp again knows that the key was not written in between.
  uint64_t stamp;

  constexpr bool outside() const { return (value & kValueOutside) != 0; }
  constexpr bool expires() const { return (value & kValueExpires) != 0; }
  constexpr uint32_t value_bytes() const {
    return value & (outside() ? ~(kValueOutside | kValueExpires) : (uint32_t{1} << kValueCheckShift) - 1);
  }
  constexpr uint16_t check() const { return static_cast<uint16_t>(value >> kValueCheckShift); }  // If inline.
  constexpr size_t payload_bytes() const {
    return (expires() ? sizeof(Expiry) : 0) + (outside() ? sizeof(PairExtent) : value_bytes());
  }
};
static_assert(sizeof(LeafSlot) == 16);
static_assert(std::has_unique_object_representations_v<LeafSlot>);

// Points at the child whose low key is this slot's key. Slot 0's key is the node's low key. At level 0 (of a tier above
// 0) the child is the root of a meganode, on any server.
struct InnerSlot {
  SlotKey key;
  uint32_t child_low;  // The child's pointer is stored in two halves, so that a slot takes 12 bytes instead of 16.
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
