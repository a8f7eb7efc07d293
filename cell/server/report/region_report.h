// Reports the state of one region of a worker as JSON.
#pragma once

#include <cstddef>
#include <string>

#include "cell/server/region/held_region.h"
#include "nlohmann/json_fwd.hpp"

namespace cell {

// Returns a region's entry in a status.
nlohmann::json RegionStatus(const HeldRegion& region);

// Checks a region and returns the result: a meganode's TreeReport without its routes, or a summary of a part of a
// table. Takes time proportional to the region's content.
std::string CheckReport(const HeldRegion& region);
// Checks a meganode and returns its routes from number `first` on, as many as fit into a message: [[key, region], ...].
// REQUIRES: region.tree is not null.
std::string RoutesReport(const HeldRegion& region, size_t first);

}  // namespace cell
