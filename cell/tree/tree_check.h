// TreeCheck: every invariant of a region's structure, over any region image that nobody writes meanwhile.
//
//   nodes     versions, CRC, self pointer, valid, level; slots sorted, inside the fences
//   levels    start at no key, end without a high key, each low key is its left neighbour's high key
//   children  each slot's child is in the level below with the slot's key as low key; a node without a parent slot is
//             a half split (counted, not an error)
//   walk      a search for each leaf's low key ends at that leaf
//   extents   inside the area, CRC right, no two shared, none in use without a slot; free lists agree with the blocks
//   counts    the header's keys and bytes
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cell/layout/region.h"

namespace cell {

struct TreeReport {
  static constexpr size_t kErrorsMax = 100;  // More are counted and not kept.

  uint64_t keys = 0;
  uint64_t data_bytes = 0;
  uint64_t nodes = 0;       // Reached.
  uint64_t nodes_used = 0;  // Handed out; more than reached after an abandoned split.
  uint64_t leaves = 0;
  int levels = 0;
  uint64_t half_splits = 0;
  uint64_t extents = 0;
  uint64_t error_count = 0;
  std::vector<std::string> errors;

  bool ok() const { return error_count == 0; }
};

TreeReport CheckTree(const RegionMemory& memory);

}  // namespace cell
