// CuckooTable stores a region of a Pilaf table in slots (thesis, 3.4).
//
// It uses 3-way cuckoo hashing: a key is in one of three slots. If all are taken, a breadth-first search finds the
// shortest chain of moves that ends at a free slot. The moves are then made from its end, so that each key on the chain
// is always in one or two slots, and never in none.
#pragma once

#include <array>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "cell/region/region_memory.h"
#include "pilaf/hash_table.h"

namespace cell {

class CuckooTable : public HashTable {
 public:
  // Limits how many keys a search for a free slot looks at. After that the table is full.
  static constexpr size_t kKicksMax = 1024;

  CuckooTable(RegionMemory* memory, std::function<int64_t()> cluster_time)
      : HashTable(memory, std::move(cluster_time)) {}

  double unit_fill() const override { return static_cast<double>(keys()) / geometry_.units; }
  Units UnitsOf(const KeyHash& hash) const override;
  absl::Status VisitUnit(uint32_t at, const Visit& visit) const override;
  void PrefetchUnits(const KeyHash& hash) const override;
  void PrefetchPair(const KeyHash& hash) const override;
  std::array<uint64_t, kProbes> KeysByProbe(uint32_t every) const override;

 private:
  struct Found {
    uint32_t at;
    HashSlot slot;
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
  void Republish(uint32_t at) override;
  absl::Status CheckUnit(uint32_t at, bool settled,
                         const std::function<absl::Status(const Held&)>& held) const override;

  HashSlot Slot(uint32_t at) const;
  // Works like Slot, and returns DataLoss if the slot or its extent was damaged in memory.
  absl::StatusOr<HashSlot> VerifiedSlot(uint32_t at) const;
  std::array<uint32_t, kProbes> SlotsOf(const KeyHash& hash) const;
  std::optional<Found> FindSlot(std::string_view key, const KeyHash& hash) const;
  bool Kept(uint32_t at) const { return !kept_.empty() && kept_.contains(at); }
  // Returns the slots of a chain: the content of each is to be moved to the next, and the last is free. Returns an
  // empty vector if there is no chain.
  std::vector<uint32_t> FindChain(const KeyHash& hash) const;
  void Kick(const std::vector<uint32_t>& chain);
  // Writes the slot there with the next version, what IsHeld says of it, and its CRC.
  void Publish(uint32_t at, HashSlot slot);
  void Clear(uint32_t at);

  absl::flat_hash_set<uint32_t> kept_;  // Free slots that are reserved for prepared pairs.
};

}  // namespace cell
