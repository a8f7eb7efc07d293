#include "cell/cluster/region_table.h"

#include <algorithm>

#include "cell/base/bytes.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {

size_t RegionTable::CountOf(const WorkerId& worker) const {
  return static_cast<size_t>(
      std::count_if(regions.begin(), regions.end(), [&](const auto& region) { return region.second.owner == worker; }));
}

absl::StatusOr<uint32_t> RegionTable::Add(const WorkerId& owner, std::optional<uint32_t> made_for) {
  if (next_region > Pointer::kRegionMax) return absl::ResourceExhaustedError("all region ids were handed out");
  regions[next_region] = {owner, 1, made_for};
  return next_region++;
}

void RegionTable::Joined(uint32_t region) {
  const auto it = regions.find(region);
  if (it != regions.end()) it->second.made_for.reset();
}

absl::Status RegionTable::Move(uint32_t region, uint64_t epoch, const WorkerId& to) {
  const auto it = regions.find(region);
  if (it == regions.end() || (it->second.epoch != epoch && !Mutated(Mutant::kEpochUnchecked))) {
    return absl::AbortedError(fmt::format("region {} has changed hands meanwhile", region));
  }
  it->second.owner = to;
  it->second.epoch = epoch + 1;
  return absl::OkStatus();
}

absl::Status RegionTable::Claim(uint32_t region, uint64_t epoch, const WorkerId& to) {
  absl::Status status = Move(region, epoch, to);
  if (status.ok()) regions[region].recovering = true;
  return status;
}

absl::Status RegionTable::Recovered(uint32_t region, uint64_t epoch, const std::map<uint32_t, uint32_t>& cuts) {
  const auto it = regions.find(region);
  if (it == regions.end() || it->second.epoch != epoch) {
    return absl::AbortedError(fmt::format("region {} has changed hands meanwhile", region));
  }
  it->second.recovering = false;
  std::erase_if(regions, [&](const auto& one) { return one.second.made_for == region && !cuts.contains(one.first); });
  const bool of_table = TableOf(region) != tables.end();
  for (auto& [made, entry] : regions) {
    if (entry.made_for != region) continue;
    if (of_table) RETURN_IF_ERROR(SplitPart(region, cuts.at(made), made));
    entry.made_for.reset();
  }
  return absl::OkStatus();
}

absl::Status RegionTable::SetRoot(uint32_t from, uint32_t to) {
  if (root != from) return absl::AbortedError(fmt::format("the root is in region {} by now", root));
  root = to;
  Joined(to);
  return absl::OkStatus();
}

absl::Status RegionTable::Remove(uint32_t region) {
  if (region == root) return absl::FailedPreconditionError(fmt::format("region {} holds the root", region));
  if (TableOf(region) != tables.end()) {
    return absl::FailedPreconditionError(fmt::format("region {} is part of a table", region));
  }
  regions.erase(region);
  return absl::OkStatus();
}

absl::Status RegionTable::CheckTableName(std::string_view name) {
  const auto good = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  if (!name.empty() && name.size() <= kTableNameMax && std::all_of(name.begin(), name.end(), good)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      fmt::format("a table cannot be called {}: a name is 1 to {} letters, digits, '-', "
                  "'_', '.'",
                  ForMessage(name), kTableNameMax));
}

absl::Status RegionTable::CreateTable(const std::string& name, uint32_t bucket_bytes, uint32_t region) {
  RETURN_IF_ERROR(CheckTableName(name));
  if (tables.contains(name)) return absl::AlreadyExistsError(fmt::format("there is a table {} already", name));
  if (!regions.contains(region)) return absl::AbortedError(fmt::format("region {} is gone", region));
  tables[name] = {bucket_bytes, {{0, region}}};
  Joined(region);
  return absl::OkStatus();
}

absl::Status RegionTable::DropTable(const std::string& name) {
  const auto it = tables.find(name);
  if (it == tables.end()) return absl::NotFoundError(fmt::format("there is no table {}", ForMessage(name)));
  for (const auto& [first, region] : it->second.parts) {
    std::erase_if(regions, [region = region](const auto& one) { return one.second.made_for == region; });
    regions.erase(region);
  }
  tables.erase(it);
  return absl::OkStatus();
}

absl::Status RegionTable::SplitPart(uint32_t region, uint32_t first, uint32_t to) {
  const auto table = TableOf(region);
  if (table == tables.end() || !regions.contains(to)) {
    return absl::NotFoundError(fmt::format("region {} is part of no table (any more)", region));
  }
  tables.find(table->first)->second.parts.emplace(first, to);
  Joined(to);
  return absl::OkStatus();
}

std::map<std::string, RegionTable::HashParts, std::less<>>::const_iterator RegionTable::TableOf(uint32_t region) const {
  return std::find_if(tables.begin(), tables.end(), [region](const auto& table) {
    return std::any_of(table.second.parts.begin(), table.second.parts.end(),
                       [region](const auto& part) { return part.second == region; });
  });
}

void RegionTable::Made(const std::string& id) {
  made.push_back(id);
  if (made.size() > kMadeMax) made.pop_front();
}

bool RegionTable::WasMade(const std::string& id) const { return std::find(made.begin(), made.end(), id) != made.end(); }

std::string RegionTable::ToJson() const {
  nlohmann::json json = {{"version", version}, {"next_region", next_region}, {"root", root}};
  json["regions"] = nlohmann::json::array();
  for (const auto& [region, entry] : regions) {
    nlohmann::json one = {
        {"region", region}, {"server", entry.owner.server}, {"worker", entry.owner.worker}, {"epoch", entry.epoch}};
    if (entry.made_for.has_value()) one["made_for"] = *entry.made_for;
    if (entry.recovering) one["recovering"] = true;
    json["regions"].push_back(std::move(one));
  }
  for (const auto& [name, table] : tables) {
    nlohmann::json parts = nlohmann::json::array();
    for (const auto& [first, region] : table.parts) parts.push_back({first, region});
    json["tables"][name] = {{"bucket_bytes", table.bucket_bytes}, {"parts", std::move(parts)}};
  }
  json["draining"] = draining;
  json["made"] = made;
  return json.dump(1);
}

absl::StatusOr<RegionTable> RegionTable::Parse(const std::string& text) {
  const auto bad = [](const std::string& what) {
    return absl::InvalidArgumentError(fmt::format("not a region table: {}", what));
  };
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return bad("damaged");
  RegionTable table;
  try {
    table.version = json.at("version").get<uint64_t>();
    table.next_region = json.at("next_region").get<uint32_t>();
    table.root = json.at("root").get<uint32_t>();
    for (const auto& one : json.at("regions")) {
      const auto region = one.at("region").get<uint32_t>();
      Entry entry{{one.at("server").get<std::string>(), one.at("worker").get<uint32_t>()},
                  one.at("epoch").get<uint64_t>()};
      if (one.contains("made_for")) entry.made_for = one["made_for"].get<uint32_t>();
      entry.recovering = one.value("recovering", false);
      if (region == 0 || region >= table.next_region || !table.regions.emplace(region, std::move(entry)).second) {
        return bad(fmt::format("region {} is out of range or listed twice", region));
      }
    }
    const nlohmann::json tables = json.value("tables", nlohmann::json::object());
    for (const auto& [name, one] : tables.items()) {
      HashParts parts{one.at("bucket_bytes").get<uint32_t>(), {}};
      for (const auto& part : one.at("parts")) {
        const auto region = part.at(1).get<uint32_t>();
        if (!parts.parts.emplace(part.at(0).get<uint32_t>(), region).second || table.Find(region) == nullptr) {
          return bad(fmt::format("part {} of table {} is there twice, or its region is not listed", part.dump(), name));
        }
      }
      if (!CheckTableName(name).ok() || parts.parts.empty() || parts.parts.begin()->first != 0) {
        return bad(fmt::format("table {} has no name or no beginning", ForMessage(name)));
      }
      table.tables.emplace(name, std::move(parts));
    }
    table.made = json.value("made", std::deque<std::string>());
    table.draining = json.value("draining", std::set<std::string>());
  } catch (const nlohmann::json::exception& error) {
    return bad(error.what());
  }
  if (table.next_region == 0 || table.next_region > Pointer::kRegionMax + 1) return bad("next_region is out of range");
  if (table.root != 0 && table.Find(table.root) == nullptr) return bad("the root's region is not listed");
  return table;
}

}  // namespace cell
