// CuckooTable: one region of a Pilaf table, as the region's writing thread works on it (the thesis, 3.4).
//
// 3-way cuckoo hashing: a key is in one of three slots. When all are taken, a chain of moves that ends at a free slot
// is found first, breadth first, so that it is the shortest; then it is made from its end, so that each key on it is
// always in one or two slots, and never in none.
//
// Thread-safety: one thread calls it; others may read the region's header page, slots and extents at any time.
//
// Invariants
//   1. Each slot that is in use is one of its key's three, and no key is in two, but for the time of a move.
//   2. An operation that fails has changed nothing.
//   3. An extent is complete before a slot points at it, and freed only after no slot does.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/tree/extent_allocator.h"
#include "pilaf/hash_layout.h"

namespace cell {

class CuckooTable {
 public:
  // How many keys a search for a free slot looks at; then the table is full.
  static constexpr size_t kKicksMax = 1024;
  static constexpr size_t kKeyBytesMax = UINT16_MAX;

  // Makes an empty table in `memory`, at least shape.region_bytes() long, all zeros.
  static absl::Status Format(RegionMemory* memory, uint32_t region, const RegionShape& shape, const HashRange& range);

  // A formatted region; `memory` must outlive this.
  explicit CuckooTable(RegionMemory* memory);

  const HashPlace& place() const { return place_; }
  HashHeader header() const;
  uint64_t keys() const { return memory_->header().keys; }
  uint64_t data_bytes() const { return memory_->header().data_bytes; }
  // How many of the slots are in use, of 1.
  double fill() const { return static_cast<double>(keys()) / place_.slots; }
  ExtentAllocator::Usage extents() const { return extents_.usage(); }

  // Inserts or replaces. `crc` is Crc64 of key and value, computed by the client. True: the key was there before.
  // InvalidArgument: a size or the CRC is wrong. OutOfRange: the key is another region's. ResourceExhausted: there is
  // no way to a free slot, or no room for an extent.
  absl::StatusOr<bool> Put(std::string_view key, std::string_view value, uint64_t crc);
  // True: the key was there.
  absl::StatusOr<bool> Delete(std::string_view key);
  // The value, where it lies; valid until the next change. Nothing: the key is not there.
  absl::StatusOr<std::optional<std::string_view>> Get(std::string_view key) const;

  // All pairs, in the order of their slots.
  void ForEach(const std::function<void(std::string_view key, std::string_view value)>& visit) const;
  // How many keys are in the first, second and third of their slots: what a reader that looks at one after the other
  // needs.
  std::array<uint64_t, kProbes> KeysByProbe() const;
  // DataLoss, with what is wrong: an invariant does not hold, or a CRC does not match.
  absl::Status Check() const;

  struct Counters {
    uint64_t puts = 0, deletes = 0, kicked = 0, longest_chain = 0, full = 0;
  };
  const Counters& counters() const { return counters_; }

  // For tests: moves are made from the chain's front, so that a key is in no slot for a time.
  void set_kick_from_front(bool from_front) { kick_from_front_ = from_front; }

 private:
  struct Found {
    uint32_t at;
    HashSlot slot;
  };

  HashSlot Slot(uint32_t at) const;
  std::string_view Extent(const HashSlot& slot) const;
  std::string_view KeyOf(const HashSlot& slot) const { return Extent(slot).substr(0, slot.key_bytes); }
  std::array<uint32_t, kProbes> SlotsOf(const KeyHash& hash) const;
  absl::Status CheckKey(std::string_view key, const KeyHash& hash) const;
  std::optional<Found> Find(std::string_view key, const KeyHash& hash) const;
  // The slots of a chain: what is in each is to be moved to the next; the last is free. Empty: there is none.
  std::vector<uint32_t> FindChain(const KeyHash& hash) const;
  void Kick(const std::vector<uint32_t>& chain);
  // Puts the slot there with the next version and its CRC.
  void Publish(uint32_t at, HashSlot slot);

  RegionMemory* memory_;
  ExtentAllocator extents_;
  HashPlace place_;
  Counters counters_;
  bool kick_from_front_ = false;
};

}  // namespace cell
