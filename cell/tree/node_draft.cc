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

size_t NodeDraft::AddEntry(std::string_view tail, size_t payload_bytes) {
  NodeHeader& h = header();
  if (tail.size() + payload_bytes == 0) return 0;
  h.heap_begin = static_cast<uint16_t>(h.heap_begin - tail.size() - payload_bytes);
  if (!tail.empty()) std::memcpy(bytes_.data() + h.heap_begin, tail.data(), tail.size());
  return h.heap_begin;
}

void NodeDraft::StorePayload(std::byte* to, const LeafPair& pair) {
  if (pair.expiry != kNeverExpires) {
    Store(to, pair.expiry);
    to += sizeof(pair.expiry);
  }
  if (!pair.is_inline) {
    Store(to, pair.outside);
  } else if (!pair.value.empty()) {
    std::memcpy(to, pair.value.data(), pair.value.size());
  }
}

namespace {

// Returns LeafSlot::value.
uint32_t ValueOf(const LeafPair& pair) {
  return pair.value_bytes | (pair.is_inline ? uint32_t{pair.check} << kValueCheckShift : kValueOutside) |
         (pair.expiry == kNeverExpires ? 0 : kValueExpires);
}

}  // namespace

bool NodeDraft::Insert(int i, std::string_view key, const LeafPair& pair) {
  LeafSlot slot{{}, ValueOf(pair), pair.stamp};
  std::byte* const payload = InsertSlot(i, key, &slot.key, sizeof(slot), pair.payload_bytes());
  if (payload == nullptr) return false;
  StorePayload(payload, pair);
  return true;
}

std::byte* NodeDraft::InsertSlot(int i, std::string_view key, SlotKey* slot, size_t slot_bytes, size_t payload_bytes) {
  CELL_CHECK(slot_bytes == SlotBytes(header()) && key.size() >= header().prefix_bytes);
  const std::string_view suffix = key.substr(header().prefix_bytes);
  const std::string_view tail = suffix.substr(std::min(suffix.size(), kKeyHeadBytes));
  const size_t needed = kKeyHeadBytes + slot_bytes + tail.size() + payload_bytes;
  if (FreeBytes() < needed) {
    Compact();
    if (FreeBytes() < needed) return nullptr;
  }
  slot->key_bytes = static_cast<uint16_t>(suffix.size());
  slot->tail_offset = static_cast<uint16_t>(AddEntry(tail, payload_bytes));
  NodeHeader& h = header();

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
  return bytes_.data() + slot->tail_offset + tail.size();
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

bool NodeDraft::Replace(int i, const LeafPair& pair) {
  CELL_CHECK(i >= 0 && i < view().count());
  LeafSlot slot = view().leaf_slot(i);
  const std::string_view entry = view().entry(i);
  const std::string_view tail = view().tail(slot.key);
  const size_t needed = tail.size() + pair.payload_bytes();
  if (needed > entry.size()) {
    if (FreeBytes() < needed) {
      size_t others = 0;
      for (int other = 0; other < view().count(); ++other) others += other == i ? 0 : view().entry(other).size();
      const size_t slots_end = sizeof(NodeHeader) + header().count * (kKeyHeadBytes + sizeof(LeafSlot));
      if (slots_end + others + needed > view().fences_offset()) return false;
      const std::string kept(tail);  // Its bytes in the heap are given up.
      Compact(i);
      slot.key.tail_offset = static_cast<uint16_t>(AddEntry(kept, pair.payload_bytes()));
    } else {
      slot.key.tail_offset = static_cast<uint16_t>(AddEntry(tail, pair.payload_bytes()));
    }
  } else if (needed == 0) {
    slot.key.tail_offset = 0;
  }
  slot.value = ValueOf(pair);
  slot.stamp = pair.stamp;
  Store(this->slot(i), slot);
  StorePayload(bytes_.data() + slot.key.tail_offset + tail.size(), pair);
  return true;
}

void NodeDraft::Repoint(int i, Pointer extent) {
  const LeafSlot slot = view().leaf_slot(i);
  CELL_CHECK(slot.outside());
  std::byte* const payload =
      bytes_.data() + slot.key.tail_offset + TailBytes(slot.key) + (slot.expires() ? sizeof(Expiry) : 0);
  Store(payload, PairExtent{extent, Load<PairExtent>(payload).crc});
}

void NodeDraft::Compact(int without) {
  NodeHeader& h = header();
  std::array<std::byte, kNodeBytesMax> old;
  std::memcpy(old.data(), bytes_.data(), node_bytes_);
  const NodeView before = NodeView::Trusted(old.data(), node_bytes_);
  const size_t slot_bytes = SlotBytes(h);
  size_t at = before.fences_offset();
  for (int i = 0; i < h.count; ++i) {
    const std::string_view entry = before.entry(i);
    if (entry.empty() || i == without) continue;
    at -= entry.size();
    std::memcpy(bytes_.data() + at, entry.data(), entry.size());
    SlotKey key = before.slot_key(i);
    key.tail_offset = static_cast<uint16_t>(at);
    Store(slot(i), key);
  }
  h.heap_begin = static_cast<uint16_t>(at);
  // Clear leftovers of deletes, so that equal nodes have equal bytes.
  const size_t slots_end = sizeof(NodeHeader) + h.count * (kKeyHeadBytes + slot_bytes);
  std::memset(bytes_.data() + slots_end, 0, at - slots_end);
}

void NodeDraft::PublishAs(RegionMemory* memory, uint64_t offset, bool hidden) {
  const uint64_t tail_offset = offset + node_bytes_ - kTailVersionBytes;
  // Use the tail's version, because the head may say that the node was invalidated. The tail is odd in memory to which
  // a region was copied but never arrived whole.
  const uint64_t found = LoadWord(memory->at(tail_offset), std::memory_order_relaxed);
  const uint64_t version = found + found % 2;
  if (memory->zero_freed()) Compact();  // Leaves nothing of what was deleted.
  header().crc = NodeCrc(bytes_.data(), node_bytes_);
  memory->StoreWord(offset, hidden ? kVersionGone : version + 1, std::memory_order_relaxed);
  memory->StoreWord(tail_offset, version + 1, std::memory_order_relaxed);
  memory->AfterStep();
  memory->Store(offset + sizeof(uint64_t), bytes_.data() + sizeof(uint64_t),
                node_bytes_ - sizeof(uint64_t) - kTailVersionBytes);
  memory->StoreWord(tail_offset, version + 2);
  memory->AfterStep();
  if (!hidden) Reveal(memory, offset, node_bytes_);
}

void NodeDraft::Reveal(RegionMemory* memory, uint64_t offset, uint32_t node_bytes) {
  memory->StoreWord(offset, LoadWord(memory->at(offset + node_bytes - kTailVersionBytes), std::memory_order_relaxed));
  memory->AfterStep();
}

}  // namespace cell
