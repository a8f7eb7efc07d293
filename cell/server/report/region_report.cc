#include "cell/server/report/region_report.h"

#include <algorithm>
#include <string_view>

#include "cell/base/json.h"
#include "cell/server/region/region_state.h"
#include "cell/tree/tree_check.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr uint32_t kUnitsSampled = 256;  // Units of a table's region that are sampled for its probes.

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const unsigned char c : bytes) hex += fmt::format("{:02x}", c);
  return hex;
}

std::string TreeReportJson(const TreeReport& report) {
  nlohmann::json json = {{"region", report.region},         {"tier", report.range.tier},
                         {"low", Hex(report.range.low)},    {"right", report.range.right.region()},
                         {"routes", report.routes.size()},  {"keys", report.keys},
                         {"data_bytes", report.data_bytes}, {"expiring", report.expiring},
                         {"levels", report.levels},         {"nodes", report.nodes},
                         {"leaves", report.leaves},         {"half_splits", report.half_splits},
                         {"extents", report.extents},       {"error_count", report.error_count},
                         {"errors", report.errors}};
  if (report.range.high.has_value()) json["high"] = Hex(*report.range.high);
  return JsonText(json);
}

std::string HashReportJson(const HashTable& table, const absl::flat_hash_set<uint64_t>& reserved) {
  const absl::Status status = table.Check(reserved);
  nlohmann::json json = {{"region", table.region()},
                         {"hash", {{"first", table.range().first}, {"last", table.range().last}}},
                         {"keys", table.keys()},
                         {"data_bytes", table.data_bytes()},
                         {"errors", nlohmann::json::array()}};
  if (!status.ok()) json["errors"].push_back(std::string(status.message()));
  return JsonText(json);
}

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

std::string CheckReport(const HeldRegion& region) {
  absl::flat_hash_set<uint64_t> reserved;
  for (const PendingWrite& write : region.pending) reserved.insert(write.prepared.extent);
  if (region.hash != nullptr) return HashReportJson(*region.hash, reserved);
  return TreeReportJson(CheckTree(*region.memory, reserved));
}

std::string RoutesReport(const HeldRegion& region, size_t first) {
  const TreeReport report = CheckTree(*region.memory);
  nlohmann::json json = nlohmann::json::array();
  size_t bytes = 0;
  for (size_t i = first; i < report.routes.size() && bytes < kMessageBytesMax / 2; ++i) {
    const auto& [key, child] = report.routes[i];
    json.push_back({Hex(key), child.region()});
    bytes += 2 * key.size() + 16;
  }
  return JsonText(json);
}

}  // namespace cell
