#include "cell/cluster/region_table.h"

#include <algorithm>

#include "cell/base/bytes.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {

size_t RegionTable::CountOf(const WorkerId& worker) const {
  return static_cast<size_t>(
      std::count_if(regions.begin(), regions.end(), [&](const auto& region) { return region.second.owner == worker; }));
}

absl::StatusOr<uint32_t> RegionTable::Add(const WorkerId& owner, std::optional<uint32_t> split_parent) {
  if (regions.size() >= regions_max) {
    return absl::ResourceExhaustedError(
        fmt::format("the region table is full ({} of {} regions)", regions.size(), regions_max));
  }
  ASSIGN_OR_RETURN(const uint32_t region, ids.Take([this](uint32_t id) { return regions.contains(id); }));
  regions.Set(region, {owner, ids.epoch, split_parent, /*recovering=*/false, ids.epoch});
  return region;
}

void RegionTable::Erase(uint32_t region) {
  const Entry* const entry = Find(region);
  if (entry == nullptr) return;
  ids.GiveBack(region, entry->epoch);
  regions.Erase(region);
}

void RegionTable::EraseIf(const std::function<bool(uint32_t, const Entry&)>& condition) {
  std::vector<uint32_t> gone;
  for (const auto& [region, entry] : regions) {
    if (condition(region, entry)) gone.push_back(region);
  }
  for (const uint32_t region : gone) Erase(region);
}

void RegionTable::Joined(uint32_t region) {
  const Entry* const entry = Find(region);
  if (entry == nullptr || !entry->split_parent.has_value()) return;
  regions.Change(region, [](Entry* joined) { joined->split_parent.reset(); });
}

absl::Status RegionTable::CheckEpoch(uint32_t region, uint64_t epoch) const {
  const Entry* entry = Find(region);
  if (entry == nullptr) return absl::AbortedError(fmt::format("region {} is not in the table any more", region));
  if (entry->epoch != epoch) return absl::AbortedError(fmt::format("region {} now belongs to another worker", region));
  return absl::OkStatus();
}

absl::Status RegionTable::Move(uint32_t region, uint64_t epoch, const WorkerId& to) {
  if (absl::Status status = CheckEpoch(region, epoch);
      !status.ok() && !(Mutated(Mutant::kEpochUnchecked) && regions.contains(region))) {
    return status;
  }
  if (regions.at(region).epoch + 1 >= RegionIds::kEpochEnd) {
    return absl::ResourceExhaustedError(fmt::format("region {} has used all its epochs", region));
  }
  regions.Change(region, [&](Entry* entry) {
    entry->owner = to;
    entry->epoch = epoch + 1;
  });
  return absl::OkStatus();
}

absl::Status RegionTable::Claim(uint32_t region, uint64_t epoch, const WorkerId& to) {
  RETURN_IF_ERROR(Move(region, epoch, to));
  regions.Change(region, [](Entry* entry) { entry->recovering = true; });
  return absl::OkStatus();
}

absl::Status RegionTable::Recovered(uint32_t region, uint64_t epoch, const std::map<uint32_t, uint32_t>& cuts) {
  RETURN_IF_ERROR(CheckEpoch(region, epoch));
  regions.Change(region, [](Entry* entry) { entry->recovering = false; });
  const bool of_table = TableOf(region) != tables.end();
  for (const uint32_t child : regions.SplitChildrenOf(region)) {
    const auto cut = cuts.find(child);
    if (cut == cuts.end()) {
      Erase(child);
    } else if (of_table) {
      RETURN_IF_ERROR(SplitPart(region, cut->second, child));
    } else {
      Joined(child);
    }
  }
  return absl::OkStatus();
}

absl::Status RegionTable::CheckNotSplit(uint32_t region) const {
  if (regions.SplitChildrenOf(region).empty()) return absl::OkStatus();
  return absl::AbortedError(fmt::format("region {} is being split", region));
}

absl::Status RegionTable::Join(uint32_t left, uint64_t left_epoch, uint32_t right, uint64_t right_epoch) {
  if (IsGone(right, right_epoch)) return absl::OkStatus();
  RETURN_IF_ERROR(CheckEpoch(left, left_epoch));
  RETURN_IF_ERROR(CheckEpoch(right, right_epoch));
  RETURN_IF_ERROR(CheckNotSplit(left));
  RETURN_IF_ERROR(CheckNotSplit(right));
  const auto table = TableOf(right);
  if (table != TableOf(left)) return absl::FailedPreconditionError("the two regions are not of one table");
  if (table == tables.end()) return Remove(right);
  HashPartMap& parts = tables.find(table->first)->second.parts;
  const uint32_t first = regions.at(right).first_position;
  const auto part = parts.find(first);
  if (part == parts.begin() || std::prev(part)->second != left) {
    return absl::FailedPreconditionError(fmt::format("region {} is not the part above region {}", right, left));
  }
  parts.Erase(first);
  Erase(right);
  return absl::OkStatus();
}

absl::Status RegionTable::LowerRoot(uint32_t from, uint64_t epoch, uint32_t child) {
  if (IsGone(from, epoch)) return absl::OkStatus();
  RETURN_IF_ERROR(CheckEpoch(from, epoch));
  RETURN_IF_ERROR(CheckNotSplit(from));
  RETURN_IF_ERROR(SetRoot(from, child));
  return Remove(from);
}

absl::Status RegionTable::RaiseRoot(uint32_t from, uint32_t to, uint32_t child, uint64_t epoch) {
  if (root == to) return absl::OkStatus();
  RETURN_IF_ERROR(CheckEpoch(child, epoch));
  return SetRoot(from, to);
}

absl::Status RegionTable::SetRoot(uint32_t from, uint32_t to) {
  if (root != from) return absl::AbortedError(fmt::format("the root is now in region {}", root));
  if (!regions.contains(to)) return absl::AbortedError(fmt::format("region {} no longer exists", to));
  root = to;
  Joined(to);
  return absl::OkStatus();
}

absl::Status RegionTable::Remove(uint32_t region) {
  if (region == root) return absl::FailedPreconditionError(fmt::format("region {} holds the root", region));
  if (TableOf(region) != tables.end()) {
    return absl::FailedPreconditionError(fmt::format("region {} is part of a Pilaf table", region));
  }
  Erase(region);
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
      fmt::format("{} is not a valid table name: a name has 1 to {} letters, digits, '-', '_' or '.'", ForMessage(name),
                  kTableNameMax));
}

absl::Status RegionTable::CreateTable(const std::string& name, uint32_t bucket_bytes, uint32_t region,
                                      uint32_t parts_min) {
  RETURN_IF_ERROR(CheckTableName(name));
  if (tables.contains(name)) return absl::AlreadyExistsError(fmt::format("a table {} already exists", name));
  if (!regions.contains(region)) return absl::AbortedError(fmt::format("region {} no longer exists", region));
  if (tables.size() >= kTablesMax) {
    return absl::ResourceExhaustedError(fmt::format("there are {} tables, the limit: drop one", kTablesMax));
  }
  tables[name] = {bucket_bytes, {}, parts_min};
  AddPart(name, 0, region);
  return absl::OkStatus();
}

void RegionTable::AddPart(const std::string& name, uint32_t first, uint32_t region) {
  tables.at(name).parts.Set(first, region);
  regions.Change(region, [&](Entry* entry) {
    entry->table = name;
    entry->first_position = first;
    entry->split_parent.reset();
  });
}

void RegionTable::Clear() {
  for (const auto& [name, parts] : tables) {
    evictions.SetTable(name, std::nullopt);
    grants.DropTable(name);
  }
  tables.clear();
  for (const auto& [region, entry] : regions) ids.GiveBack(region, entry.epoch);
  regions.Clear();
  root = 0;
}

absl::Status RegionTable::DropTable(const std::string& name) {
  const auto it = tables.find(name);
  if (it == tables.end()) return absl::NotFoundError(fmt::format("there is no table {}", ForMessage(name)));
  for (const auto& [first, region] : it->second.parts) {
    for (const uint32_t child : regions.SplitChildrenOf(region)) Erase(child);
    Erase(region);
  }
  evictions.SetTable(name, std::nullopt);
  grants.DropTable(name);
  tables.erase(it);
  return absl::OkStatus();
}

absl::Status RegionTable::SetEviction(const std::string& of, const std::string& prefix,
                                      std::optional<Eviction> eviction) {
  if (of.empty()) return evictions.Set(prefix, eviction);
  if (!tables.contains(of)) return absl::NotFoundError(fmt::format("there is no table {}", ForMessage(of)));
  if (!prefix.empty()) return absl::InvalidArgumentError("a rule of a table is for all its keys: give no prefix");
  evictions.SetTable(of, eviction);
  return absl::OkStatus();
}

absl::Status RegionTable::SplitPart(uint32_t region, uint32_t first, uint32_t to) {
  const auto table = TableOf(region);
  if (table == tables.end() || !regions.contains(to)) {
    return absl::NotFoundError(fmt::format("region {} is not part of a table, or no longer", region));
  }
  const auto there = table->second.parts.find(first);
  if (there != table->second.parts.end() && there->second != to) {
    return absl::AbortedError(fmt::format("region {} already has the part from {} on", there->second, first));
  }
  AddPart(table->first, first, to);
  return absl::OkStatus();
}

absl::Status RegionTable::Drain(const std::string& server) {
  if (draining.size() >= kDrainingMax && !draining.contains(server)) {
    return absl::ResourceExhaustedError(
        fmt::format("{} servers are being drained, the limit: undrain those that are gone", kDrainingMax));
  }
  draining.insert(server);
  return absl::OkStatus();
}

absl::Status RegionTable::ChangeGrant(const std::string& user, const GrantScope& scope, Rights rights, bool give) {
  if (!give) return grants.Take(user, scope, rights);
  if (scope.kind == GrantScope::Kind::kTable && !tables.contains(scope.name)) {
    return absl::NotFoundError(fmt::format("there is no table {}", ForMessage(scope.name)));
  }
  return grants.Give(user, scope, rights);
}

std::map<std::string, HashParts, std::less<>>::const_iterator RegionTable::TableOf(uint32_t region) const {
  const Entry* const entry = Find(region);
  return entry == nullptr || entry->table.empty() ? tables.end() : tables.find(entry->table);
}

void RegionTable::Made(const std::string& id) {
  made.push_back(id);
  if (made.size() > kMadeMax) made.pop_front();
}

bool RegionTable::WasMade(const std::string& id) const { return std::find(made.begin(), made.end(), id) != made.end(); }

}  // namespace cell
