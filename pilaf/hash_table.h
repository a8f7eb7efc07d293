// HashTable gives a region's writing thread access to one region of a Pilaf table, in either layout.
//
// Thread-safety: one thread calls it. Others may read the region's header page, slots or buckets, and extents at any
// time (Lookup).
//
// Invariants
//   1. At every moment a stored key is in one or two of the units where a reader looks for it.
//   2. An operation that fails has changed nothing.
//   3. An extent is complete before anything points at it, and freed only after nothing does.
//
// When a table is formatted in memory that is not all zeros, the magic of the header there shows this (region.h).
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "cell/region/pair_store.h"
#include "cell/region/region_memory.h"
#include "pilaf/hash_layout.h"

namespace cell {

class HashTable : public PairStore {
 public:
  static constexpr size_t kKeyBytesMax = kHashKeyBytesMax;

  // Makes an empty table in `memory`, which is at least shape.region_bytes() long and holds zeros or a former region.
  // bucket_bytes 0 makes slots.
  static absl::Status Format(RegionMemory* memory, uint32_t region, const RegionShape& shape, const HashRange& range,
                             uint32_t bucket_bytes);
  // Opens a formatted region. `memory` must outlive the table. For `cluster_time` see PairStore::set_cluster_time.
  static std::unique_ptr<HashTable> Open(RegionMemory* memory, std::function<int64_t()> cluster_time = nullptr);
  // Returns whether a region's memory holds a table.
  static bool IsIn(const RegionMemory& memory) { return memory.header().magic == kHashMagic; }
  // Checks that the two headers belong to a region of this shape and are consistent, before a copy is trusted.
  static absl::Status CheckHeader(const RegionMemory& memory, uint32_t region, const RegionShape& shape);

  const HashGeometry& geometry() const { return geometry_; }
  HashHeader hash_header() const;
  HashRange range() const { return hash_header().range; }

  absl::Status CheckKey(std::string_view key) const override;
  // None of these uses `hint`.
  absl::StatusOr<bool> Put(std::string_view key, std::string_view value, uint64_t crc, Pointer hint = {},
                           Expiry expiry = kNeverExpires) override;
  absl::StatusOr<bool> Delete(std::string_view key, Pointer hint = {}) override;
  absl::StatusOr<bool> CommitDelete(std::string_view key, Pointer hint = {}) override;
  absl::StatusOr<uint64_t> DeleteAll(absl::Span<const std::string> keys) override;
  absl::StatusOr<uint64_t> CommitDeleteAll(absl::Span<const std::string> keys) override;

  Place FirstPlace() const override { return {}; }
  absl::StatusOr<Expiries> ExpiriesAt(const Place& place) const override;
  absl::StatusOr<Prepared> Prepare(std::string_view key, std::string_view value, uint64_t crc, const Ahead& ahead,
                                   Expiry expiry = kNeverExpires) override;
  bool Commit(const Prepared& prepared, std::string_view key, Pointer hint = {}) override;
  void Discard(const Prepared& prepared) override;

  absl::Status MoveExtents(ExtentMoves* moves) override;

  // Marks the slots or buckets in which a held key is or may come to be (HashSlot::held). Each key that is held must be
  // released once.
  void ShowHeld(std::string_view key, bool held) override;

  // Makes all slots or buckets invalid, so that readers find nothing whole.
  void Invalidate() override;
  void Restore() override;

  // Returns the value in place; it is valid until the next change. Returns nullopt if the key is not stored, or its
  // pair has expired.
  absl::StatusOr<std::optional<std::string_view>> Get(std::string_view key) const;
  // Works like Get. REQUIRES: the key is in the region's range.
  struct Located {
    std::string_view value;
    std::optional<uint64_t> crc;  // Covers key and value, in this order. nullopt for a pair that is not in an extent.
    Expiry expiry = kNeverExpires;
  };
  std::optional<Located> Locate(std::string_view key, const KeyHash& hash) const;
  // Returns the beginning of the pair whose value Locate found in an extent.
  Pointer ExtentOf(std::string_view key, std::string_view value) const {
    return Pointer(region(), static_cast<uint64_t>(AsBytes(value).data() - memory_->base()) - key.size());
  }
  // Returns the slots or buckets in which a key of this hash may be. One may be named twice.
  using Units = absl::InlinedVector<uint32_t, kProbes>;
  virtual Units UnitsOf(const KeyHash& hash) const = 0;
  // Returns how many slots or buckets make a kilobyte, at least 1: what a sweep or a sample looks at in one piece.
  uint32_t UnitsAtOnce() const { return std::max(1u, 1024 / geometry_.unit_bytes()); }
  // Prefetches what Get of the key reads first.
  virtual void PrefetchUnits(const KeyHash& hash) const = 0;
  // Prefetches what Get reads last. REQUIRES: the units were prefetched and have arrived.
  virtual void PrefetchPair(const KeyHash& hash) const = 0;

  // Visit the pairs of a unit, or all pairs, in an arbitrary order, also those that have expired. Return DataLoss if a
  // unit, or one of its extents, was damaged in memory: its pairs are not visited, and no others after it.
  using Visit = std::function<void(const HashPair& pair)>;
  virtual absl::Status VisitUnit(uint32_t at, const Visit& visit) const = 0;
  absl::Status ForEach(const Visit& visit) const {
    for (uint32_t at = 0; at < geometry_.units; ++at) RETURN_IF_ERROR(VisitUnit(at, visit));
    return absl::OkStatus();
  }
  // Returns how many pairs were deleted since this was opened, or last split.
  uint64_t deleted() const { return deleted_; }
  // Counts the keys that are in the first, second and third of their possible units. Samples only every `every`th unit.
  virtual std::array<uint64_t, kProbes> KeysByProbe(uint32_t every = 1) const = 0;
  // Checks all invariants and CRCs. Returns DataLoss with what is wrong. `reserved`: the offsets of extents that writes
  // have reserved which are not applied yet. Nothing points at them.
  absl::Status Check(const absl::flat_hash_set<uint64_t>& reserved = {}) const;

  struct Counters {
    uint64_t puts = 0, deletes = 0, kicked = 0, longest_chain = 0, full = 0;
  };
  const Counters& counters() const { return counters_; }

  // For tests: chains of moves start at their front, so that a key is temporarily nowhere.
  void set_kick_from_front(bool from_front) { kick_from_front_ = from_front; }
  // Makes searches for room exhaustive, however long they take. Used to rebuild a region (Rebuild). With slots, keys
  // that fitted once then fit again in any order, because an augmenting path is found if there is one. With buckets,
  // where pairs have sizes, they almost always do.
  void set_thorough(bool thorough) { thorough_ = thorough; }

 protected:
  friend class HashCheck;
  friend class HashCleaning;
  friend class HashJoin;
  friend class HashSplit;
  friend class HashWalk;

  HashTable(RegionMemory* memory, std::function<int64_t()> cluster_time);

  // Says when a prepared pair will be committed.
  enum class When {
    kNow,    // In the next call.
    kNext,   // Before any other write of its key. The key's current pair stays until then, though it may be moved.
    kLater,  // After other writes, which may delete the key.
  };
  static constexpr uint32_t kNoUnit = UINT32_MAX;  // Value of Prepared::unit: the pair goes where its key is.
  // `crc` is that of key and value.
  virtual absl::StatusOr<Prepared> PreparePair(const HashPair& pair, const KeyHash& hash, uint64_t crc, When when) = 0;
  // Returns the expiry of the pair that was replaced. Returns nullopt if the key was not stored.
  virtual std::optional<Expiry> CommitPair(const Prepared& prepared, std::string_view key, const KeyHash& hash) = 0;
  // Releases what was reserved for a prepared pair.
  virtual void Release(const Prepared& prepared) = 0;
  // Returns the expiry of the pair that was deleted. Returns nullopt if the key was not stored.
  virtual std::optional<Expiry> DeleteKey(std::string_view key, const KeyHash& hash) = 0;
  // Finds a key's pair, whether or not it has expired.
  virtual std::optional<Located> LocateAny(std::string_view key, const KeyHash& hash) const = 0;
  // Checks one unit. Passes each pair that the unit holds to `held`, with its extent if it has one.
  struct Held {
    std::string_view key;
    Expiry expiry;
    const HashSlot* slot;  // Null: the pair is inline.
    bool away = false;     // Buckets: it is not in the first of its key's buckets.
  };
  // `settled`: the unit has the table's range. It may still have a former one until all that was split off is removed.
  virtual absl::Status CheckUnit(uint32_t at, bool settled,
                                 const std::function<absl::Status(const Held&)>& held) const = 0;
  // Returns how many keys whose first bucket this is are in another one, as it says.
  virtual uint64_t AwayCount(uint32_t) const { return 0; }

  // Visits those pairs of a unit that have an expiry. Returns DataLoss instead if the unit, or one of their extents,
  // was damaged in memory.
  virtual absl::Status VisitExpiring(uint32_t at, const Visit& visit) const = 0;
  // Finds a key's pair, and returns DataLoss if its unit or its extent was damaged in memory. For what copies it: a
  // copy has a new CRC.
  virtual absl::StatusOr<std::optional<HashPair>> FindVerified(std::string_view key, const KeyHash& hash) const = 0;
  // Removes the pairs outside of the header's range from a unit, without notifications. Used after a range was cut.
  virtual void CleanUnit(uint32_t at) = 0;
  // Removes the traces of a key that belongs to another region now, so that no reader finds them. Used after a range
  // was cut.
  virtual void CleanKey(std::string_view key, const KeyHash& hash) = 0;
  // Moves the extents of a unit for MoveExtents. Returns whether it has come to all of them. A unit that was damaged in
  // memory stays as it is.
  virtual bool MoveExtentsOf(uint32_t at, ExtentMoves* moves) = 0;
  // Returns whether readers that come to a unit must ask the owner.
  bool IsHeld(uint32_t at) const { return !held_.empty() && held_.contains(at); }
  // Writes a unit again as it is, with what IsHeld says. One that was damaged in memory stays as it is.
  virtual void Republish(uint32_t at) = 0;
  // Writes unit_range() to a unit, if units hold a range and it has another one.
  virtual void WriteRange(uint32_t /*at*/) {}
  // Returns the range that units hold. A join makes it wider than the header's range before it is finished.
  HashRange unit_range() const { return joined_range_.value_or(range()); }
  void SetHeader(HashHeader header);

  using PairStore::Extent;
  std::string_view Extent(const HashSlot& slot) const;
  std::string_view KeyOf(const HashSlot& slot) const { return Extent(slot).substr(0, slot.key_bytes); }
  HashPair PairOf(const HashSlot& slot) const { return PairIn(slot, Extent(slot)); }
  Expiry ExpiryOf(const HashSlot& slot) const { return slot.expires != 0 ? PairOf(slot).expiry : kNeverExpires; }
  // Returns nullopt if the pair was damaged in memory.
  std::optional<HashPair> VerifiedPairOf(const HashSlot& slot) const {
    return geometry_.InBounds(slot) ? ParseExtent(slot, Extent(slot)) : std::nullopt;
  }
  // Describes a slot's pair for LocateAny.
  Located LocatedAt(const HashSlot& slot) const {
    const HashPair pair = PairOf(slot);
    return {pair.value, slot.extent_crc ^ ExtentCrc(0, pair.expiry), pair.expiry};
  }
  // Stores a pair in an extent. Does not set version and tag.
  absl::StatusOr<HashSlot> StoreExtent(const HashPair& pair, uint64_t crc);
  // Returns the offset of an extent as slots have it.
  uint32_t WordOf(uint64_t offset) const {
    return static_cast<uint32_t>((offset - geometry_.extents_offset) / kWordBytes);
  }
  HashSlot SlotFor(const Prepared& prepared, size_t key_bytes) const;
  // Makes an extent invalid (thesis, Lemma 3.1): a reader that knows its position does not find the pair any more.
  void SpoilExtent(const HashSlot& slot);
  void FreeExtent(const HashSlot& slot) { extents_.Free(geometry_.ExtentOf(slot)); }
  absl::Status Full(std::string_view key);
  absl::Status Damaged(const std::string& what) const;

  // Reports that a record of `key` was moved from one unit to another.
  void Moved(std::string_view key, Expiry expiry, uint32_t from, uint32_t to) {
    NoteExpiry(expiry);  // A sweep may have passed `to`.
    if (on_move_) on_move_(key, from, to);
  }

  const HashGeometry geometry_;
  Counters counters_;
  bool kick_from_front_ = false;
  bool thorough_ = false;

 private:
  void SpoilUnits();
  // Deletes a key, and does not call on_write. Returns the expiry of the pair that was deleted. Returns nullopt if the
  // key was not stored.
  absl::StatusOr<std::optional<Expiry>> Remove(std::string_view key);
  absl::Status CheckRange(std::string_view key, const KeyHash& hash) const;
  // Works like Put, for a pair that was checked. Its key may be outside of the range.
  absl::StatusOr<bool> PutChecked(const HashPair& pair, const KeyHash& hash, uint64_t crc);
  absl::Status CheckPut(std::string_view key, const KeyHash& hash, std::string_view value, uint64_t crc) const;

  absl::flat_hash_map<uint32_t, uint32_t> held_;  // How many held keys may be in each unit.
  uint64_t deleted_ = 0;
  std::optional<HashRange> joined_range_;  // What units get while a join is about to be finished.
  std::function<void(std::string_view key, uint32_t from, uint32_t to)> on_move_;
  // Called before a key is changed, as long as readers of another region may find the key there.
  std::function<void(std::string_view key, const KeyHash& hash)> before_change_;
};

}  // namespace cell
