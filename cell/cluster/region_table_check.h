// Checks region tables that were read from a file or from ZooKeeper: whoever can write there may have written anything.
// Pure. Internal to cell/cluster.
#pragma once

#include "absl/status/status.h"
#include "cell/cluster/region_map.h"
#include "cell/cluster/region_table.h"

namespace cell {

// Checks what can be said of a region without the rest of the table. Returns InvalidArgument with what is wrong.
absl::Status CheckEntry(uint32_t region, const RegionEntry& entry);

// Completes a table that has been read, and checks it: collects the parts of its Pilaf tables from its regions, whose
// entries were checked. Returns InvalidArgument with what is wrong. Takes steps for shards rather than for regions,
// except for regions that are split children or parts: a member calls this for each change of the table that it sees.
absl::Status FinishChecked(RegionTable* table);

// Calls CheckEntry for all regions, and FinishChecked.
absl::Status FinishParsed(RegionTable* table);

}  // namespace cell
