#include "cell/tree/node_draft.h"

#include <algorithm>

namespace cell {
namespace {

size_t SharedPrefix(std::string_view a, std::string_view b) {
  const size_t limit = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + limit, b.begin()).first - a.begin());
}

}  // namespace

void NodeDraft::Begin(Pointer self, uint8_t level, std::string_view low_key, std::optional<std::string_view> high_key,
                      Pointer right, uint8_t tier) {
  std::fill_n(bytes_.begin(), node_bytes_, std::byte{0});
  NodeHeader& h = header();
  h.self = self;
  h.right = right;
  h.level = level;
  h.tier = tier;
  h.low_key_bytes = static_cast<uint16_t>(low_key.size());
  size_t at = node_bytes_ - kTailVersionBytes - low_key.size();
  std::memcpy(bytes_.data() + at, low_key.data(), low_key.size());
  if (high_key.has_value()) {
    h.flags |= kNodeHasHigh;
    h.prefix_bytes = static_cast<uint16_t>(SharedPrefix(low_key, *high_key));
    h.high_key_bytes = static_cast<uint16_t>(high_key->size());
    const std::string_view rest = high_key->substr(h.prefix_bytes);
    at -= rest.size();
    std::memcpy(bytes_.data() + at, rest.data(), rest.size());
  }
  h.heap_begin = static_cast<uint16_t>(at);
}

void NodeDraft::CopyOf(const NodeView& node) { std::memcpy(bytes_.data(), node.bytes(), node_bytes_); }

void NodeDraft::Move(Pointer self, Pointer right) {
  header().self = self;
  header().right = right;
}

size_t NodeDraft::FreeBytes() const {
  const NodeHeader& h = view().header();
  return h.heap_begin - sizeof(NodeHeader) - h.count * (kKeyHeadBytes + SlotBytes(h));
}

bool NodeDraft::InsertSlot(int i, std::string_view key, SlotKey* slot, size_t slot_bytes) {
  CELL_CHECK(slot_bytes == SlotBytes(header()) && key.size() >= header().prefix_bytes);
  const std::string_view suffix = key.substr(header().prefix_bytes);
  const size_t tail_bytes = suffix.size() - std::min(suffix.size(), kKeyHeadBytes);
  const size_t needed = kKeyHeadBytes + slot_bytes + tail_bytes;
  if (FreeBytes() < needed) {
    Compact();
    if (FreeBytes() < needed) return false;
  }
  NodeHeader& h = header();
  h.heap_begin = static_cast<uint16_t>(h.heap_begin - tail_bytes);
  slot->key_bytes = static_cast<uint16_t>(suffix.size());
  slot->tail_offset = tail_bytes == 0 ? uint16_t{0} : h.heap_begin;
  if (tail_bytes != 0) std::memcpy(bytes_.data() + h.heap_begin, suffix.data() + kKeyHeadBytes, tail_bytes);

  // Slots after i move by a slot and a head, slots before i by a head, heads after i by a head.
  std::byte* const heads = bytes_.data() + sizeof(NodeHeader);
  std::byte* const slots = heads + kKeyHeadBytes * h.count;
  const size_t before = slot_bytes * static_cast<size_t>(i);
  const size_t after = slot_bytes * static_cast<size_t>(h.count - i);
  std::memmove(slots + before + slot_bytes + kKeyHeadBytes, slots + before, after);
  std::memmove(slots + kKeyHeadBytes, slots, before);
  std::memmove(heads + kKeyHeadBytes * (i + 1), heads + kKeyHeadBytes * i, kKeyHeadBytes * (h.count - i));
  Store(heads + kKeyHeadBytes * i, KeyHead(suffix));
  std::memcpy(slots + kKeyHeadBytes + before, slot, slot_bytes);
  ++h.count;
  return true;
}

void NodeDraft::Remove(int i) {
  NodeHeader& h = header();
  CELL_CHECK(i >= 0 && i < h.count);
  const size_t slot_bytes = SlotBytes(h);
  std::byte* const heads = bytes_.data() + sizeof(NodeHeader);
  std::byte* const slots = heads + kKeyHeadBytes * h.count;
  const size_t before = slot_bytes * static_cast<size_t>(i);
  std::memmove(heads + kKeyHeadBytes * i, heads + kKeyHeadBytes * (i + 1), kKeyHeadBytes * (h.count - i - 1));
  std::memmove(slots - kKeyHeadBytes, slots, before);
  std::memmove(slots - kKeyHeadBytes + before, slots + before + slot_bytes,
               slot_bytes * static_cast<size_t>(h.count - i - 1));
  --h.count;
}

void NodeDraft::Repoint(int i, Pointer extent, uint32_t extent_bytes, uint64_t crc) {
  LeafSlot slot = view().leaf_slot(i);
  slot.extent = extent;
  slot.extent_bytes = extent_bytes;
  slot.crc = crc;
  Store(const_cast<std::byte*>(view().slot(i)), slot);
}

void NodeDraft::Compact() {
  NodeHeader& h = header();
  std::array<std::byte, kNodeBytesMax> old;
  std::memcpy(old.data(), bytes_.data(), node_bytes_);
  const NodeView before = NodeView::Trusted(old.data(), node_bytes_);
  const size_t slot_bytes = SlotBytes(h);
  size_t at = before.low_key_offset() - (before.has_high() ? before.high_key_rest().size() : 0);
  for (int i = 0; i < h.count; ++i) {
    SlotKey key = before.slot_key(i);
    const std::string_view tail = before.tail(key);
    if (tail.empty()) continue;
    at -= tail.size();
    std::memcpy(bytes_.data() + at, tail.data(), tail.size());
    key.tail_offset = static_cast<uint16_t>(at);
    Store(bytes_.data() + (before.slot(i) - old.data()), key);
  }
  h.heap_begin = static_cast<uint16_t>(at);
  // Clear leftovers of deletes, so that equal nodes have equal bytes.
  const size_t slots_end = sizeof(NodeHeader) + h.count * (kKeyHeadBytes + slot_bytes);
  std::memset(bytes_.data() + slots_end, 0, at - slots_end);
}

void NodeDraft::Publish(RegionMemory* memory, uint64_t offset) {
  const uint64_t tail_offset = offset + node_bytes_ - kTailVersionBytes;
  // Use the tail's version, because the head may say that the node was invalidated. The tail is odd in memory to which
  // a region was copied but never arrived whole.
  const uint64_t found = LoadWord(memory->at(tail_offset), std::memory_order_relaxed);
  const uint64_t version = found + found % 2;
  header().crc = NodeCrc(bytes_.data(), node_bytes_);
  memory->StoreWord(offset, version + 1, std::memory_order_relaxed);
  memory->StoreWord(tail_offset, version + 1, std::memory_order_relaxed);
  memory->AfterStep();
  memory->Store(offset + sizeof(uint64_t), bytes_.data() + sizeof(uint64_t),
                node_bytes_ - sizeof(uint64_t) - kTailVersionBytes);
  memory->StoreWord(tail_offset, version + 2);
  memory->AfterStep();
  memory->StoreWord(offset, version + 2);
  memory->AfterStep();
}

}  // namespace cell
