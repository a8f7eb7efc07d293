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
#include "cell/base/mutant.h"
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
  void set_locked(bool locked) {
    header().flags = static_cast<uint8_t>((header().flags & ~kNodeLocked) | (locked ? kNodeLocked : 0));
  }

  // Inserts a pair before slot i. `key` is whole (with the prefix). Returns false, and leaves all pairs as they are, if
  // it does not fit even after the heap was compacted. REQUIRES: an inline value is not in this draft.
  bool Insert(int i, std::string_view key, const LeafPair& pair);
  // Inserts a child in the same way. The slot's `key` field is filled in here.
  bool Insert(int i, std::string_view key, InnerSlot slot) {
    return InsertSlot(i, key, &slot.key, sizeof(slot), 0) != nullptr;
  }
  void Remove(int i);
  // Gives slot i of a leaf another value and stamp, whatever their sizes. Its key stays. Returns false, and leaves all
  // pairs as they are, if that does not fit even after the heap was compacted. REQUIRES: an inline value is not in this
  // draft.
  bool Replace(int i, const LeafPair& pair);
  // Makes the outside pair in slot i point at another extent with the same content. Its stamp stays.
  void Repoint(int i, Pointer extent);

  NodeView view() const { return NodeView::Trusted(bytes_.data(), node_bytes_); }

  // Writes the draft over the node at `offset`: first odd versions, then the body, then even versions (thesis, 4.3.1),
  // each step ordered before the next. The CRC protects readers that read in any order.
  void Publish(RegionMemory* memory, uint64_t offset) { PublishAs(memory, offset, /*hidden=*/false); }
  // Writes the draft there as an invalidated node. Readers that come to it go back, until Reveal makes it valid. A
  // location that was used before may have such readers before any node points at it.
  void PublishHidden(RegionMemory* memory, uint64_t offset) {
    PublishAs(memory, offset, /*hidden=*/!Mutated(Mutant::kReusedNodeVisible));
  }
  static void Reveal(RegionMemory* memory, uint64_t offset, uint32_t node_bytes);

 private:
  void PublishAs(RegionMemory* memory, uint64_t offset, bool hidden);
  // Returns where the payload of `payload_bytes` goes, or null if the slot does not fit.
  std::byte* InsertSlot(int i, std::string_view key, SlotKey* slot, size_t slot_bytes, size_t payload_bytes);
  // Allocates an entry in the heap, of a tail and a payload, and returns its offset. REQUIRES: it fits.
  size_t AddEntry(std::string_view tail, size_t payload_bytes);
  void StorePayload(std::byte* to, const LeafPair& pair);
  size_t FreeBytes() const;
  // Moves the entries in the heap together, except that of slot `without`, which loses it.
  void Compact(int without = -1);
  NodeHeader& header() { return *reinterpret_cast<NodeHeader*>(bytes_.data()); }
  std::byte* slot(int i) { return const_cast<std::byte*>(view().slot(i)); }

  uint32_t node_bytes_;
  alignas(64) std::array<std::byte, kNodeBytesMax> bytes_;
};

}  // namespace cell
