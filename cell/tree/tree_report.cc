#include "cell/tree/tree_report.h"

#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "cell/base/bytes.h"
#include "fmt/format.h"

namespace cell {

ClusterReport CheckNeighbours(const std::vector<TreeReport>& regions) {
  ClusterReport report;
  std::map<uint8_t, std::map<std::string, const TreeReport*>> tiers;  // Keyed by low key.
  std::map<uint8_t, std::set<std::string>> routed;
  const auto error = [&](uint32_t region, std::string what) {
    report.errors.push_back(fmt::format("region {}: {}", region, what));
  };
  for (const TreeReport& region : regions) {
    if (region.range.tier == 0) report.keys += region.keys;
    const auto [it, fresh] = tiers[region.range.tier].emplace(region.range.low, &region);
    if (!fresh) error(region.region, fmt::format("begins at the same key as region {}", it->second->region));
  }
  for (const auto& [tier, by_low] : tiers) {
    if (!by_low.begin()->first.empty())
      error(by_low.begin()->second->region, "is the first of its tier, but keys exist below it");
    for (auto it = by_low.begin(); it != by_low.end(); ++it) {
      const TreeReport& region = *it->second;
      const auto next = std::next(it);
      const bool last = next == by_low.end();
      if (last != !region.range.high.has_value() || (!last && *region.range.high != next->first)) {
        error(region.region, "does not end where its tier's next meganode begins");
      } else if (region.range.right != (last ? Pointer() : RootOf(next->second->region))) {
        error(region.region, "its right link is not to its tier's next meganode");
      }
      for (const auto& [key, child] : region.routes) {
        const auto below = tiers.find(static_cast<uint8_t>(tier - 1));
        const auto found =
            below == tiers.end() ? std::map<std::string, const TreeReport*>::const_iterator() : below->second.find(key);
        if (below == tiers.end() || found == below->second.end() || RootOf(found->second->region) != child) {
          error(region.region, fmt::format("route {} does not lead to a meganode that begins there", ForMessage(key)));
        }
        routed[static_cast<uint8_t>(tier - 1)].insert(key);
      }
    }
  }
  const uint8_t top = tiers.empty() ? 0 : tiers.rbegin()->first;
  for (const auto& [tier, by_low] : tiers) {
    if (tier == top) continue;
    for (const auto& [low, region] : by_low) report.missing_routes += !routed[tier].contains(low);
  }
  return report;
}

}  // namespace cell
