#include "cell/server/report/region_report.h"

#include <algorithm>

#include "cell/server/region/region_state.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr uint32_t kUnitsSampled = 256;  // Units of a table's region that are sampled for its probes.

}  // namespace

nlohmann::json RegionStatus(const HeldRegion& region) {
  const RegionHeader& header = region.store->header();
  const ExtentAllocator::Usage extents = region.store->extents();
  nlohmann::json json = {{"region", header.region},
                         {"epoch", region.epoch()},
                         {"keys", header.keys},
                         {"data_bytes", header.data_bytes},
                         {"expiring", header.expiring},
                         {"node_bytes", header.node_bytes},
                         {"nodes", header.node_count},
                         {"fill", region.store->fill()},
                         {"extent_bytes_used", extents.bytes_used},
                         {"extent_bytes", extents.bytes_total},
                         {"largest_free_bytes", extents.largest_free_bytes},
                         {"fragmentation", extents.fragmentation()},
                         {"extents_damaged", region.store->extents_damaged()},
                         {"busy", region.claimed()},
                         {"fills_up", FillsUp(region)},
                         {"state", StateOf(region)}};
  if (region.tree != nullptr) {
    json["tier"] = region.tree->tier();
    json["nodes_used"] = header.nodes_used;
    json["node_merges"] = region.tree->merges();
    json["levels"] = region.tree->Node(region.tree->root()).level() + 1;
    return json;
  }
  const HashTable& table = *region.hash;
  const HashTable::Counters& counters = table.counters();
  json["hash"] = {{"first", table.range().first},
                  {"last", table.range().last},
                  {"bucket_bytes", table.geometry().bucket_bytes},
                  {"unit_fill", table.unit_fill()},
                  {"keys_by_place", table.KeysByProbe(std::max<uint32_t>(1, table.geometry().units / kUnitsSampled))},
                  {"puts", counters.puts},
                  {"deletes", counters.deletes},
                  {"kicked", counters.kicked},
                  {"longest_chain", counters.longest_chain},
                  {"full", counters.full}};
  return json;
}

}  // namespace cell
