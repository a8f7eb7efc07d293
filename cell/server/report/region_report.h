// Reports the state of one region of a worker as JSON.
#pragma once

#include "cell/server/region/held_region.h"
#include "nlohmann/json_fwd.hpp"

namespace cell {

// Returns a region's entry in a status.
nlohmann::json RegionStatus(const HeldRegion& region);

}  // namespace cell
