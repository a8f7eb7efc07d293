// BucketTable stores a region of a Pilaf table in buckets (bucket.h).
//
// A key goes to its first bucket if there is room, otherwise to its second. If that is full too, records are moved to
// their other buckets, by the shortest chain of moves, which starts at its end. A pair that takes more than an eighth
// of a bucket goes to an extent, and its record holds the position.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cell/region/region_memory.h"
#include "pilaf/bucket_draft.h"
#include "pilaf/hash_table.h"

namespace cell {

class BucketTable : public HashTable {
 public:
  // Limits how many buckets a search for room looks at. After that the table is full.
  static constexpr size_t kKicksMax = 128;
  // Above this fill, new keys are refused. The same pairs then fit when they are put in another order (Rebuild).
  static constexpr double kFillMax = 0.93;

  BucketTable(RegionMemory* memory, std::function<int64_t()> cluster_time);

  double unit_fill() const override;
  Units UnitsOf(const KeyHash& hash) const override;
  absl::Status VisitUnit(uint32_t at, const Visit& visit) const override;
  void PrefetchUnits(const KeyHash& hash) const override;
  void PrefetchPair(const KeyHash&) const override {}  // Most pairs are in the bucket.
  std::array<uint64_t, kProbes> KeysByProbe(uint32_t every) const override;

  // Returns the size of the largest pair that is stored inline.
  size_t inline_bytes_max() const { return BucketInlineMax(geometry_.bucket_bytes); }

 private:
  struct Found {
    int which;  // Index among the key's buckets.
    uint32_t at;
    BucketRecord record;
  };
  // Describes a record's move to another bucket.
  struct Move {
    std::string record;
    std::string key;
    KeyHash hash;
    uint32_t from, to;
    Expiry expiry;
  };

  absl::StatusOr<Prepared> PreparePair(const HashPair& pair, const KeyHash& hash, uint64_t crc, When when) override;
  std::optional<Expiry> CommitPair(const Prepared& prepared, std::string_view key, const KeyHash& hash) override;
  void Release(const Prepared& prepared) override;
  std::optional<Expiry> DeleteKey(std::string_view key, const KeyHash& hash) override;
  std::optional<Located> LocateAny(std::string_view key, const KeyHash& hash) const override;
  absl::Status VisitExpiring(uint32_t at, const Visit& visit) const override;
  absl::StatusOr<std::optional<HashPair>> FindVerified(std::string_view key, const KeyHash& hash) const override;
  bool MoveExtentsOf(uint32_t at, ExtentMoves* moves) override;
  void CleanUnit(uint32_t at) override;
  void CleanKey(std::string_view key, const KeyHash& hash) override;
  void WriteRange(uint32_t at) override;
  void Republish(uint32_t at) override;
  absl::Status CheckUnit(uint32_t at, bool settled,
                         const std::function<absl::Status(const Held&)>& held) const override;
  uint64_t AwayCount(uint32_t at) const override { return View(at).header().away; }

  BucketView View(uint32_t at) const { return BucketView(memory_->at(geometry_.OffsetOf(at))); }
  // Works like View, and returns DataLoss if the bucket was damaged in memory.
  absl::StatusOr<BucketView> VerifiedBucket(uint32_t at) const;
  // Returns DataLoss if the record's pair is in an extent that was damaged in memory.
  absl::Status CheckExtent(uint32_t at, const BucketRecord& record) const;
  // Visits the pairs of a unit that `is_wanted` says. Returns DataLoss instead if the unit, or one of their extents,
  // was damaged in memory.
  template <typename IsWanted>
  absl::Status VisitRecords(uint32_t at, const Visit& visit, IsWanted is_wanted) const;
  size_t FreeBytes(uint32_t at) const;
  std::string_view KeyOfRecord(const BucketRecord& record) const {
    return record.in_extent ? KeyOf(record.slot) : record.key;
  }
  HashPair PairOfRecord(const BucketRecord& record) const {
    return record.in_extent ? PairOf(record.slot) : HashPair{record.key, record.value, record.expiry, false};
  }
  static bool Expires(const BucketRecord& record) {
    return record.in_extent ? record.slot.expires != 0 : record.expiry != kNeverExpires;
  }
  // Returns the size of the record's pair, key and value.
  static size_t DataBytes(const BucketRecord& record) {
    return record.in_extent ? record.slot.pair_bytes() : record.key.size() + record.value.size();
  }
  std::optional<Found> FindRecord(std::string_view key, const KeyHash& hash) const;
  // Makes room for `bytes` bytes in one of `roots`, without moving `keep`. Returns the bucket, or nullopt if there is
  // no way.
  std::optional<uint32_t> MakeRoom(const std::vector<uint32_t>& roots, size_t bytes, std::string_view keep);
  // Makes the room by moving one record to its other bucket, where another may have to be moved first, and so on. Uses
  // the shortest such chain. Moves nothing to `closed`.
  std::optional<uint32_t> MoveOne(const std::vector<uint32_t>& roots, size_t bytes, std::string_view keep,
                                  std::optional<uint32_t> closed = {});
  void Apply(const Move& move);
  void Remove(const Found& found, const KeyHash& hash);
  bool Full() const { return !thorough_ && unit_fill() > kFillMax; }
  // Applies `edit` to a bucket and publishes it with unit_range() and IsHeld().
  template <typename Edit>
  void Change(uint32_t at, Edit edit);

  uint64_t used_bytes_ = 0;                       // Bytes of all records.
  absl::flat_hash_map<uint32_t, uint32_t> kept_;  // Bytes of each bucket that are reserved for prepared pairs.
};

}  // namespace cell
