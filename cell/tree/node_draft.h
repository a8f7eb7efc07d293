// NodeDraft composes a node in private memory and publishes it whole.
//
// Every change of a node is made on a draft and published by Publish, so that readers see the node before or after the
// change, and never between. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cell/base/check.h"
#include "cell/region/region_memory.h"
#include "cell/tree/node_view.h"

namespace cell {

// Returns the shortest key s with left < s <= right, which separates two leaves.
inline std::string_view ShortestSeparator(std::string_view left, std::string_view right) {
  size_t shared = 0;
  while (shared < left.size() && shared < right.size() && left[shared] == right[shared]) ++shared;
  return right.substr(0, shared + 1);
}

class NodeDraft {
 public:
  explicit NodeDraft(uint32_t node_bytes) : node_bytes_(node_bytes) { CELL_CHECK(ValidNodeBytes(node_bytes)); }

  // Begins an empty node. Without a high key it is the rightmost node of its level.
  void Begin(Pointer self, uint8_t level, std::string_view low_key, std::optional<std::string_view> high_key,
             Pointer right, uint8_t tier = 0);
  void CopyOf(const NodeView& node);
  // Turns the draft into another node with the same range and slots.
  void Move(Pointer self, Pointer right);

  // Inserts a slot before slot i. `key` is whole (with the prefix); the slot's `key` field is filled in here. Returns
  // false, and changes nothing, if it does not fit even after the heap was compacted.
  bool Insert(int i, std::string_view key, LeafSlot slot) { return InsertSlot(i, key, &slot.key, sizeof(slot)); }
  bool Insert(int i, std::string_view key, InnerSlot slot) { return InsertSlot(i, key, &slot.key, sizeof(slot)); }
  void Remove(int i);
  // Makes leaf slot i point at another extent. Its key stays.
  void Repoint(int i, Pointer extent, uint32_t extent_bytes, uint64_t crc);

  NodeView view() const { return NodeView::Trusted(bytes_.data(), node_bytes_); }

  // Writes the draft over the node at `offset`: first odd versions, then the body, then even versions (thesis, 4.3.1),
  // each step ordered before the next. The CRC protects readers that read in any order.
  void Publish(RegionMemory* memory, uint64_t offset);

 private:
  bool InsertSlot(int i, std::string_view key, SlotKey* slot, size_t slot_bytes);
  size_t FreeBytes() const;
  void Compact();
  NodeHeader& header() { return *reinterpret_cast<NodeHeader*>(bytes_.data()); }

  uint32_t node_bytes_;
  alignas(64) std::array<std::byte, kNodeBytesMax> bytes_;
};

}  // namespace cell
