// KeyHash: where a key belongs, in the cluster and in its table. 128 bits of XXH3, cut into four.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#define XXH_INLINE_ALL
#include "xxhash.h"

namespace cell {

inline constexpr int kProbes = 3;  // The thesis, 3.4: two fill little of a table, four bring little more.

struct KeyHash {
  uint32_t place;                        // Which region of its table has the key (HashRange).
  std::array<uint32_t, kProbes> probes;  // Which slots there (SlotOf).

  // What a slot tells of its key, so that few extents of other keys are read. Regions share the upper bits of `place`.
  uint16_t tag() const { return static_cast<uint16_t>(place); }
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
