// Rebuilds a region from its log and checkpoint.
#pragma once

#include "absl/status/status.h"
#include "cell/log/log_replay.h"
#include "cell/server/regions.h"

namespace cell {

// Formats `memory`, which has room for a region of `shape`, and puts all into it that `replay`, which is open, gives back.
// *content: what the region covers. Returns an error when a log that is sound says what no region can hold; the memory is
// of no use then. Blocks.
absl::Status RebuildRegion(const LogReplay& replay, uint32_t region, const RegionShape& shape, RegionMemory* memory,
                           RegionContent* content);

}  // namespace cell
