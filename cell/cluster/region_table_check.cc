#include "cell/cluster/region_table_check.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr uint32_t kWorkerMax = 1024;             // Per server.
constexpr uint64_t kVersionMax = UINT64_MAX / 2;  // No cluster changes its table so often.

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

absl::Status CheckIds(RegionIds* ids) {
  if (ids->max == 0 || ids->max > Pointer::kRegionMax) return Bad("the highest region id is out of range");
  if (ids->next == 0 || ids->next > ids->max) return Bad("next_region is out of range");
  if (ids->epoch == 0 || ids->epoch >= RegionIds::kEpochEnd || ids->removed_epoch + 1 >= RegionIds::kEpochEnd) {
    return Bad("an epoch of \"ids\" is out of range");
  }
  std::sort(ids->resting.begin(), ids->resting.end());
  if (!ids->resting.empty() && (ids->resting.front() == 0 || ids->resting.back() > ids->max)) {
    return Bad("\"resting\" contains something that is not a region");
  }
  return absl::OkStatus();
}

// Checks that no region is a split parent of itself, directly or through others. Takes one step for each region, also
// if they are one long chain.
absl::Status CheckSplitParents(const RegionTable& table) {
  std::map<uint32_t, uint32_t> seen_from;  // From which region each one was come by first.
  absl::Status status;
  table.regions.ForEachSplitChild([&](uint32_t region, const RegionEntry& entry) {
    if (entry.split_parent.value_or(0) != 0 && !table.ids.Given(*entry.split_parent)) {
      status = Bad(fmt::format("region {} has a split parent that is out of range", region));
    }
    uint32_t at = region;
    for (const RegionEntry* one = &entry; one != nullptr; one = table.Find(at)) {
      const auto [seen, first] = seen_from.try_emplace(at, region);
      if (!first && seen->second == region) status = Bad(fmt::format("region {} is its own split parent", region));
      if (!first || one->split_parent.value_or(0) == 0) break;
      at = *one->split_parent;
    }
  });
  return status;
}

absl::Status CollectParts(RegionTable* table) {
  std::map<std::string, HashPartMap::Map> found;
  absl::Status status;
  table->regions.ForEachPart([&](uint32_t region, const RegionEntry& entry) {
    if (region == table->root || entry.split_parent.has_value() ||
        !found[entry.table].emplace(entry.first_position, region).second) {
      status =
          Bad(fmt::format("region {} is a part of table {} twice, or cannot be one", region, ForMessage(entry.table)));
    }
  });
  RETURN_IF_ERROR(status);
  for (auto& [name, hash_parts] : table->tables) {
    HashPartMap::Map parts = std::move(found[name]);
    if (!RegionTable::CheckTableName(name).ok() || parts.empty() || parts.begin()->first != 0) {
      return Bad(fmt::format("table {} has no name or no first part", ForMessage(name)));
    }
    hash_parts.parts = HashPartMap(std::move(parts));
  }
  if (found.size() == table->tables.size()) return absl::OkStatus();
  return Bad("a region is part of a table that is not listed");
}

}  // namespace

absl::Status CheckEntry(uint32_t region, const RegionEntry& entry) {
  if (region == 0 || region > Pointer::kRegionMax) return Bad(fmt::format("region {} is out of range", region));
  if (!IsServerName(entry.owner.server) || entry.owner.worker > kWorkerMax) {
    return Bad(fmt::format("region {} has an invalid owner", region));
  }
  if (entry.epoch == 0 || entry.epoch >= RegionIds::kEpochEnd) {
    return Bad(fmt::format("region {} has an invalid epoch", region));
  }
  if (entry.first_epoch == 0 || entry.first_epoch > entry.epoch) {
    return Bad(fmt::format("region {} has an invalid first epoch", region));
  }
  return absl::OkStatus();
}

absl::Status FinishChecked(RegionTable* table) {
  if (table->version > kVersionMax) return Bad("its version is out of range");
  RETURN_IF_ERROR(CheckIds(&table->ids));
  if (!table->regions.empty()) {
    const uint32_t last = table->regions.shards().back().entries->back().first;
    if (last > table->ids.max || !table->ids.Given(last)) return Bad(fmt::format("region {} is out of range", last));
  }
  RETURN_IF_ERROR(CheckSplitParents(*table));
  const RegionEntry* const root = table->Find(table->root);
  if (table->root != 0 && root == nullptr) return Bad("the root's region is not listed");
  // The root would be removed together with its split parent, and the remaining table could not be parsed.
  if (root != nullptr && root->split_parent.has_value()) return Bad("the root is incomplete");
  if (!std::all_of(table->draining.begin(), table->draining.end(), IsServerName)) {
    return Bad("\"draining\" lists no server's name");
  }
  return CollectParts(table);
}

absl::Status FinishParsed(RegionTable* table) {
  for (const auto& [region, entry] : table->regions) RETURN_IF_ERROR(CheckEntry(region, entry));
  return FinishChecked(table);
}

}  // namespace cell
