// HashTable: one region of a Pilaf table, as the region's writing thread works on it, in either layout.
//
// Thread-safety: one thread calls it; others may read the region's header page, slots or buckets, and extents at any
// time (Lookup).
//
// Invariants
//   1. A key that is stored is at every moment in one or two of the places where a reader looks for it.
//   2. An operation that fails has changed nothing.
//   3. An extent is complete before anything points at it, and freed only after nothing does.
//
// Memory that is not all zeros when a table is formatted there says so by its header's magic (region.h).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/tree/pair_store.h"
#include "pilaf/hash_layout.h"

namespace cell {

class HashTable : public PairStore {
 public:
  static constexpr size_t kKeyBytesMax = kHashKeyBytesMax;

  // Makes an empty table in `memory`, at least shape.region_bytes() long: zeros, or what was a region before.
  // bucket_bytes 0: of slots.
  static absl::Status Format(RegionMemory* memory, uint32_t region, const RegionShape& shape, const HashRange& range,
                             uint32_t bucket_bytes);
  // Of a formatted region; `memory` must outlive it.
  static std::unique_ptr<HashTable> Open(RegionMemory* memory);
  // Whether a region's memory holds a table.
  static bool IsIn(const RegionMemory& memory) { return memory.header().magic == kHashMagic; }
  // Whether the two headers are those of a region of this shape, and their numbers make sense: before a copy is
  // trusted.
  static absl::Status CheckHeader(const RegionMemory& memory, uint32_t region, const RegionShape& shape);

  const HashPlace& place() const { return place_; }
  HashHeader hash_header() const;
  HashRange range() const { return hash_header().range; }

  absl::Status CheckKey(std::string_view key) const override;
  // `hint` is not used, of any.
  absl::StatusOr<bool> Put(std::string_view key, std::string_view value, uint64_t crc, Pointer hint = {}) override;
  absl::StatusOr<bool> Delete(std::string_view key, Pointer hint = {}) override;
  absl::StatusOr<bool> CommitDelete(std::string_view key, Pointer hint = {}) override;
  absl::StatusOr<Prepared> Prepare(std::string_view key, std::string_view value, uint64_t crc,
                                   const Ahead& ahead) override;
  bool Commit(const Prepared& prepared, std::string_view key, Pointer hint = {}) override;
  void Discard(const Prepared& prepared) override;

  // Spoils all slots or buckets, so that readers find nothing that is whole.
  void Invalidate() override;
  void Restore() override;

  // The value, where it lies; valid until the next change. Nothing: the key is not there.
  absl::StatusOr<std::optional<std::string_view>> Get(std::string_view key) const;
  // The same, of a key that is known to be in the region's range.
  struct Located {
    std::string_view value;
    std::optional<uint64_t> crc;  // Of key and value, in this order; of a pair that is not in an extent: none.
  };
  virtual std::optional<Located> Locate(std::string_view key, const KeyHash& hash) const = 0;
  // Where the pair begins, of a value that Locate found in an extent.
  Pointer ExtentOf(std::string_view key, std::string_view value) const {
    return Pointer(region(), static_cast<uint64_t>(AsBytes(value).data() - memory_->base()) - key.size());
  }
  // Fetches what Get of the key will look at first.
  virtual void PrefetchUnits(const KeyHash& hash) const = 0;
  // And, when that is there, at last.
  virtual void PrefetchPair(const KeyHash& hash) const = 0;

  // All pairs, in no order that means anything.
  using Visit = std::function<void(std::string_view key, std::string_view value)>;
  void ForEach(const Visit& visit) const {
    for (uint32_t at = 0; at < place_.units; ++at) VisitUnit(at, visit);
  }
  // How many keys are in the first, second and third of the places where they may be; of every `every`th unit alone.
  virtual std::array<uint64_t, kProbes> KeysByPlace(uint32_t every = 1) const = 0;
  // DataLoss, with what is wrong: an invariant does not hold, or a CRC does not match.
  absl::Status Check() const;

  struct Counters {
    uint64_t puts = 0, deletes = 0, kicked = 0, longest_chain = 0, full = 0;
  };
  const Counters& counters() const { return counters_; }

  // For tests: moves are made from the chain's front, so that a key is in no place for a time.
  void set_kick_from_front(bool from_front) { kick_from_front_ = from_front; }
  // A search for a free place ends when it has looked at all, however long that takes: for who builds a region anew
  // (Rebuild). In slots keys that had places find places again then, put in any order (an augmenting path is found if
  // there is one); in buckets, where pairs have sizes, all but always.
  void set_thorough(bool thorough) { thorough_ = thorough; }

 protected:
  friend class HashSplit;
  friend class HashWalk;

  explicit HashTable(RegionMemory* memory);

  // When a pair that is prepared will be committed.
  enum class When {
    kNow,    // By the next call.
    kNext,   // Before any other write of its key: what is there of the key stays until then, though it may be moved.
    kLater,  // After others, which may delete the key.
  };
  static constexpr uint32_t kNoUnit = UINT32_MAX;  // Prepared::unit: it goes where its key is.
  virtual absl::StatusOr<Prepared> PreparePair(std::string_view key, const KeyHash& hash, std::string_view value,
                                               uint64_t crc, When when) = 0;
  virtual bool CommitPair(const Prepared& prepared, std::string_view key, const KeyHash& hash) = 0;
  // What was kept for it is free again.
  virtual void Release(const Prepared& prepared) = 0;
  virtual bool DeleteKey(std::string_view key, const KeyHash& hash) = 0;
  std::optional<std::string_view> Find(std::string_view key, const KeyHash& hash) const {
    const std::optional<Located> located = Locate(key, hash);
    return located.has_value() ? std::optional(located->value) : std::nullopt;
  }
  // That all of one unit is as it must be: tells each pair that it holds, and its extent if it has one.
  struct Held {
    std::string_view key;
    const HashSlot* slot;  // Null: the pair is inline.
  };
  virtual absl::Status CheckUnit(uint32_t at, const std::function<absl::Status(const Held&)>& held) const = 0;
  // After that, of all units: that what they say of each other is true.
  virtual absl::Status CheckCounts() const { return absl::OkStatus(); }

  virtual void VisitUnit(uint32_t at, const Visit& visit) const = 0;
  // Takes out of a unit what the header's range has not; nobody is told. After a range was cut.
  virtual void CleanUnit(uint32_t at) = 0;
  // After a range was cut: where a reader would find what became of a key that is another region's now is cleaned, so
  // that it does not.
  virtual void CleanKey(std::string_view key, const KeyHash& hash) = 0;
  void SetHeader(HashHeader header);

  using PairStore::Extent;
  std::string_view Extent(const HashSlot& slot) const;
  std::string_view KeyOf(const HashSlot& slot) const { return Extent(slot).substr(0, slot.key_bytes); }
  // Puts key and value into an extent; version and tag are not set.
  absl::StatusOr<HashSlot> StoreExtent(std::string_view key, std::string_view value, uint64_t crc);
  HashSlot SlotOfExtent(uint64_t offset, size_t bytes, uint64_t crc, size_t key_bytes) const;
  // The thesis, Lemma 3.1: a reader that knows where it is does not find the pair any more either.
  void SpoilExtent(const HashSlot& slot);
  void FreeExtent(const HashSlot& slot) { extents_.Free(place_.ExtentOf(slot)); }
  absl::Status Full(std::string_view key);
  absl::Status Damaged(const std::string& what) const;

  // A record of `key` has gone from one unit to another.
  void Moved(std::string_view key, uint32_t from, uint32_t to) {
    if (on_move_) on_move_(key, from, to);
  }

  const HashPlace place_;
  Counters counters_;
  bool kick_from_front_ = false;
  bool thorough_ = false;

 private:
  void SpoilUnits();
  absl::Status CheckRange(std::string_view key, const KeyHash& hash) const;
  absl::Status CheckPut(std::string_view key, const KeyHash& hash, std::string_view value, uint64_t crc) const;

  std::function<void(std::string_view key, uint32_t from, uint32_t to)> on_move_;
  // Before a key is changed: as long as another region's readers may find it there.
  std::function<void(std::string_view key, const KeyHash& hash)> before_change_;
};

}  // namespace cell
