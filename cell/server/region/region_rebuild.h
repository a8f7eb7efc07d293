// Rebuilds a region from its log and checkpoint.
#pragma once

#include "absl/status/status.h"
#include "cell/log/log_replay.h"
#include "cell/server/region/regions.h"

namespace cell {

// Formats `memory`, which has room for a region of `shape`, and puts all into it that `replay`, which is open, gives back.
// *content: what the region covers. DataLoss: files that are whole say what no region can hold. After an error the memory
// is of no use. Blocks.
absl::Status RebuildRegion(const LogReplay& replay, uint32_t region, const RegionShape& shape, RegionMemory* memory,
                           RegionContent* content);

}  // namespace cell
