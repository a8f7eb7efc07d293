// TreeCheck verifies every invariant of a region's structure, over a region image that nobody writes meanwhile.
//
//   nodes     versions, CRC, self pointer, valid, level; slots sorted, inside the fences
//   levels    begin at the root's low key, end at its high key with its right link; each low key is the left
//             neighbour's high key
//   children  each slot's child is in the level below with the slot's key as low key; a node without a parent slot is
//             a half split (counted, not an error)
//   walk      a search for each leaf's low key ends at that leaf
//   extents   inside the area, CRC right, no two shared, none in use without a slot; free lists agree with the blocks
//   counts    the header's keys and bytes
//
// CheckNeighbours checks the meganodes of a cluster together: each tier covers all keys, in order, each link leads to
// the next meganode, and each route leads to a meganode that begins with its key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cell/region/region_memory.h"
#include "cell/tree/meganode.h"

namespace cell {

struct TreeReport {
  static constexpr size_t kErrorsMax = 100;  // Further errors are counted but not kept.

  uint64_t keys = 0;
  uint64_t data_bytes = 0;
  uint32_t region = 0;
  Meganode::Range range;
  std::vector<std::pair<std::string, Pointer>> routes;  // Above tier 0.
  uint64_t nodes = 0;                                   // Nodes that were reached.
  uint64_t nodes_used = 0;  // Allocated and not freed. More than were reached after an abandoned split.
  uint64_t leaves = 0;
  int levels = 0;
  uint64_t half_splits = 0;
  uint64_t extents = 0;
  uint64_t error_count = 0;
  std::vector<std::string> errors;

  bool ok() const { return error_count == 0; }
};

TreeReport CheckTree(const RegionMemory& memory);

struct ClusterReport {
  std::vector<std::string> errors;
  uint64_t keys = 0;
  uint64_t missing_routes = 0;  // Meganodes that are reached only from their left neighbour.
};

// Checks the reports of all regions of a cluster, in any order.
ClusterReport CheckNeighbours(const std::vector<TreeReport>& regions);

}  // namespace cell
