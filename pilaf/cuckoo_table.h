// CuckooTable: a region of a Pilaf table in slots (the thesis, 3.4).
//
// 3-way cuckoo hashing: a key is in one of three slots. When all are taken, a chain of moves that ends at a free slot
// is found first, breadth first, so that it is the shortest; then it is made from its end, so that each key on it is
// always in one or two slots, and never in none.
#pragma once

#include <array>
#include <vector>

#include "pilaf/hash_table.h"

namespace cell {

class CuckooTable : public HashTable {
 public:
  // How many keys a search for a free slot looks at; then the table is full.
  static constexpr size_t kKicksMax = 1024;

  explicit CuckooTable(RegionMemory* memory) : HashTable(memory) {}

  double fill() const override { return static_cast<double>(keys()) / place_.units; }
  void ForEach(const Visit& visit) const override;
  std::array<uint64_t, kProbes> KeysByPlace() const override;

 private:
  struct Found {
    uint32_t at;
    HashSlot slot;
  };

  absl::StatusOr<bool> PutPair(std::string_view key, const KeyHash& hash, std::string_view value,
                               uint64_t crc) override;
  bool DeleteKey(std::string_view key, const KeyHash& hash) override;
  std::optional<std::string_view> Find(std::string_view key, const KeyHash& hash) const override;
  absl::Status CheckUnit(uint32_t at, const std::function<absl::Status(const Held&)>& held) const override;

  HashSlot Slot(uint32_t at) const;
  std::array<uint32_t, kProbes> SlotsOf(const KeyHash& hash) const;
  std::optional<Found> FindSlot(std::string_view key, const KeyHash& hash) const;
  // The slots of a chain: what is in each is to be moved to the next; the last is free. Empty: there is none.
  std::vector<uint32_t> FindChain(const KeyHash& hash) const;
  void Kick(const std::vector<uint32_t>& chain);
  // Puts the slot there with the next version and its CRC.
  void Publish(uint32_t at, HashSlot slot);
};

}  // namespace cell
