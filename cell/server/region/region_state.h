// Describes in words why a held region is not served in full, or soon will not be, for `cellctl status` and `regions`.
#pragma once

#include <string>

#include "cell/server/region/regions.h"
#include "fmt/format.h"

namespace cell {

// A region that is this full and could not be split is reported, before it is full and refuses writes.
inline constexpr double kFillReported = 0.8;

inline bool FillsUp(const HeldRegion& region) {
  return !region.split_error.empty() && region.store->fill() >= kFillReported;
}

// Returns "" if it is served in full and will be.
inline std::string StateOf(const HeldRegion& region) {
  if (region.lost()) return "taken over by another server";
  if (region.log != nullptr && !region.log->status().ok()) {
    return fmt::format("accepts no writes, its log failed: {}", std::string(region.log->status().message()));
  }
  if (region.state() == RegionState::kSealed) return "being migrated to another server";
  if (region.state() == RegionState::kFilling) return "being filled";
  if (region.state() == RegionState::kFrozen) return "writes are waiting for a migration, split or join";
  if (FillsUp(region)) {
    return fmt::format("{:.0f} % full, and could not be split: {}", 100 * region.store->fill(), region.split_error);
  }
  return "";
}

}  // namespace cell
