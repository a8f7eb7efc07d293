// Rebuilds a region from its log and checkpoint.
#pragma once

#include "absl/status/status.h"
#include "cell/log/log_replay.h"
#include "cell/region/region_memory.h"
#include "cell/server/region/regions.h"

namespace cell {

// Formats `memory`, which has room for a region of `shape`, and fills it with the pairs of `replay`, which is open.
// Sets *content to what the region covers. Pairs are stored by `pairs`, unless the region fits only with more or fewer
// of them inline. Pairs that have expired are left out. Returns DataLoss if intact files have content that no region
// can hold. After an error the memory must not be used. Blocks.
absl::Status RebuildRegion(const LogReplay& replay, uint32_t region, const RegionShape& shape, RegionMemory* memory,
                           RegionContent* content, const PairSettings& pairs = {});

}  // namespace cell
