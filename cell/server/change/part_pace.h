// Says how much of a part of a table a worker copies or frees in one step of its loop.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "pilaf/hash_table.h"

namespace cell {

// Returns the number of slots or buckets that take about as long as `entries` entries of a meganode.
inline uint32_t UnitsPerStep(const HashTable& table, size_t entries) {
  constexpr size_t kSlotsPerEntry = 4;  // A slot takes less time.
  const size_t slots = table.geometry().unit_bytes() / sizeof(HashSlot);
  return static_cast<uint32_t>(std::max<size_t>(1, kSlotsPerEntry * entries / slots));
}

}  // namespace cell
