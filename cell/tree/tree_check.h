// TreeCheck verifies every invariant of a region's structure, over a region image that nobody writes meanwhile.
//
//   nodes     versions, CRC, self pointer, valid, level; slots sorted, inside the fences
//   levels    begin at the root's low key, end at its high key with its right link; each low key is the left
//             neighbour's high key
//   children  each slot's child is in the level below with the slot's key as low key; a node without a parent slot is
//             a half split (counted, not an error)
//   walk      a search for each leaf's low key ends at that leaf
//   extents   inside the area, CRC right, no two shared, none in use without a slot; free lists agree with the blocks
//   stamps    none is 0 or above the header's last stamp
//   counts    the header's keys and bytes
#pragma once

#include "absl/container/flat_hash_set.h"
#include "cell/region/region_memory.h"
#include "cell/tree/tree_report.h"

namespace cell {

// `reserved`: the offsets of extents that writes have reserved which are not applied yet. Nothing points at them.
TreeReport CheckTree(const RegionMemory& memory, const absl::flat_hash_set<uint64_t>& reserved = {});

}  // namespace cell
