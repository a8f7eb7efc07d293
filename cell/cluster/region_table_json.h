// Writes and reads region tables as JSON: embedded clusters have the whole table in a file, and ZooKeeper has all but
// the regions in a znode (table_shards.h). Pure. Internal to cell/cluster; see also RegionTable::ToJson and Parse.
#pragma once

#include "absl/status/status.h"
#include "cell/base/json.h"
#include "cell/cluster/region_table.h"
#include "nlohmann/json.hpp"

namespace cell {

// Returns all of a table but its regions and the parts of its Pilaf tables.
nlohmann::json JsonWithoutRegions(const RegionTable& table);

// Reads what JsonWithoutRegions wrote. Returns InvalidArgument if something is missing or has a wrong type. The caller
// adds the regions, and then calls FinishParsed (region_table_check.h), which checks the values.
absl::Status ParseWithoutRegions(JsonView json, RegionTable* table);

}  // namespace cell
