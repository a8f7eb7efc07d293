// HashTable: one region of a Pilaf table, as the region's writing thread works on it, in either layout.
//
// Thread-safety: one thread calls it; others may read the region's header page, slots or buckets, and extents at any
// time (Lookup).
//
// Invariants
//   1. A key that is stored is at every moment in one or two of the places where a reader looks for it.
//   2. An operation that fails has changed nothing.
//   3. An extent is complete before anything points at it, and freed only after nothing does.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/tree/extent_allocator.h"
#include "pilaf/hash_layout.h"

namespace cell {

class HashTable {
 public:
  static constexpr size_t kKeyBytesMax = UINT16_MAX;

  // Makes an empty table in `memory`, at least shape.region_bytes() long, all zeros. bucket_bytes 0: of slots.
  static absl::Status Format(RegionMemory* memory, uint32_t region, const RegionShape& shape, const HashRange& range,
                             uint32_t bucket_bytes);
  // Of a formatted region; `memory` must outlive it.
  static std::unique_ptr<HashTable> Open(RegionMemory* memory);
  virtual ~HashTable() = default;

  const HashPlace& place() const { return place_; }
  HashHeader header() const;
  uint64_t keys() const { return memory_->header().keys; }
  uint64_t data_bytes() const { return memory_->header().data_bytes; }
  // How much of the slots or buckets is in use, of 1.
  virtual double fill() const = 0;
  ExtentAllocator::Usage extents() const { return extents_.usage(); }

  // Inserts or replaces. `crc` is Crc64 of key and value, computed by the client. True: the key was there before.
  // InvalidArgument: a size or the CRC is wrong. OutOfRange: the key is another region's. ResourceExhausted: there is
  // no place for the key, or no room for an extent.
  absl::StatusOr<bool> Put(std::string_view key, std::string_view value, uint64_t crc);
  // True: the key was there.
  absl::StatusOr<bool> Delete(std::string_view key);
  // The value, where it lies; valid until the next change. Nothing: the key is not there.
  absl::StatusOr<std::optional<std::string_view>> Get(std::string_view key) const;

  // All pairs, in no order that means anything.
  using Visit = std::function<void(std::string_view key, std::string_view value)>;
  virtual void ForEach(const Visit& visit) const = 0;
  // How many keys are in the first, second and third of the places where they may be.
  virtual std::array<uint64_t, kProbes> KeysByPlace() const = 0;
  // DataLoss, with what is wrong: an invariant does not hold, or a CRC does not match.
  absl::Status Check() const;

  struct Counters {
    uint64_t puts = 0, deletes = 0, kicked = 0, longest_chain = 0, full = 0;
  };
  const Counters& counters() const { return counters_; }

  // For tests: moves are made from the chain's front, so that a key is in no place for a time.
  void set_kick_from_front(bool from_front) { kick_from_front_ = from_front; }

 protected:
  explicit HashTable(RegionMemory* memory);

  virtual absl::StatusOr<bool> PutPair(std::string_view key, const KeyHash& hash, std::string_view value,
                                       uint64_t crc) = 0;
  virtual bool DeleteKey(std::string_view key, const KeyHash& hash) = 0;
  virtual std::optional<std::string_view> Find(std::string_view key, const KeyHash& hash) const = 0;
  // That all of one unit is as it must be: tells each pair that it holds, and its extent if it has one.
  struct Held {
    std::string_view key;
    const HashSlot* slot;  // Null: the pair is inline.
  };
  virtual absl::Status CheckUnit(uint32_t at, const std::function<absl::Status(const Held&)>& held) const = 0;
  // After that, of all units: that what they say of each other is true.
  virtual absl::Status CheckCounts() const { return absl::OkStatus(); }

  std::string_view Extent(const HashSlot& slot) const;
  std::string_view KeyOf(const HashSlot& slot) const { return Extent(slot).substr(0, slot.key_bytes); }
  // Puts key and value into an extent; version and tag are not set.
  absl::StatusOr<HashSlot> StoreExtent(std::string_view key, std::string_view value, uint64_t crc);
  // The thesis, Lemma 3.1: a reader that knows where it is does not find the pair any more either.
  void SpoilExtent(const HashSlot& slot);
  void FreeExtent(const HashSlot& slot) { extents_.Free(place_.ExtentOf(slot)); }
  absl::Status Full(std::string_view key);
  absl::Status Damaged(const std::string& what) const;

  RegionMemory* const memory_;
  ExtentAllocator extents_;
  const HashPlace place_;
  Counters counters_;
  bool kick_from_front_ = false;

 private:
  absl::Status CheckKey(std::string_view key, const KeyHash& hash) const;
};

}  // namespace cell
