// Describes in words why a held region is not served in full, for `cellctl status` and `regions`.
#pragma once

#include <string>

#include "cell/server/region/regions.h"
#include "fmt/format.h"

namespace cell {

// Returns "" if it is served in full.
inline std::string StateOf(const HeldRegion& region) {
  if (region.lost()) return "taken over by another server";
  if (region.log != nullptr && !region.log->status().ok()) {
    return fmt::format("accepts no writes, its log failed: {}", std::string(region.log->status().message()));
  }
  if (region.state() == RegionState::kSealed) return "being migrated to another server";
  if (region.state() == RegionState::kFilling) return "being filled";
  if (region.state() == RegionState::kFrozen) return "writes are waiting for a migration or split";
  return "";
}

}  // namespace cell
