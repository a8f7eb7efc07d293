// KeyHash decides where a key belongs, in the cluster and in its table. It is 128 bits of XXH3, divided into four.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#define XXH_INLINE_ALL
#include "xxhash.h"

namespace cell {

inline constexpr int kProbes = 3;  // Thesis, 3.4: two fill little of a table, four bring little more.

struct KeyHash {
  uint32_t position;                     // Chooses the table's region that has the key (HashRange).
  std::array<uint32_t, kProbes> probes;  // Choose the slots there (SlotOf).

  // Returns what a slot stores about its key, so that few extents of other keys are read. It takes the lower bits of
  // `position`, because keys of a region share the upper bits.
  uint16_t tag() const { return static_cast<uint16_t>(position); }
};

inline KeyHash HashKey(std::string_view key) {
  const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
  return {static_cast<uint32_t>(hash.low64),
          {static_cast<uint32_t>(hash.low64 >> 32), static_cast<uint32_t>(hash.high64),
           static_cast<uint32_t>(hash.high64 >> 32)}};
}

constexpr uint32_t SlotOf(uint32_t probe, uint32_t slots) {
  return static_cast<uint32_t>(uint64_t{probe} * slots >> 32);
}

}  // namespace cell
