#include "cell/cluster/region_table.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "cell/base/bytes.h"
#include "cell/base/json.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {

bool IsServerName(std::string_view name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f && c != '/'; });
  return !name.empty() && name.size() <= kServerNameMax && plain;
}

size_t RegionTable::CountOf(const WorkerId& worker) const {
  return static_cast<size_t>(
      std::count_if(regions.begin(), regions.end(), [&](const auto& region) { return region.second.owner == worker; }));
}

absl::StatusOr<uint32_t> RegionTable::Add(const WorkerId& owner, std::optional<uint32_t> split_parent) {
  ASSIGN_OR_RETURN(const uint32_t region, ids.Take([this](uint32_t id) { return regions.contains(id); }));
  regions[region] = {owner, ids.epoch, split_parent, /*recovering=*/false, ids.epoch};
  return region;
}

void RegionTable::Erase(uint32_t region) {
  const auto it = regions.find(region);
  if (it == regions.end()) return;
  ids.GiveBack(region, it->second.epoch);
  regions.erase(it);
}

void RegionTable::EraseIf(const std::function<bool(uint32_t, const Entry&)>& condition) {
  for (auto it = regions.begin(); it != regions.end();) {
    const uint32_t region = it->first;
    const bool erase = condition(region, it->second);
    ++it;
    if (erase) Erase(region);
  }
}

void RegionTable::Joined(uint32_t region) {
  const auto it = regions.find(region);
  if (it != regions.end()) it->second.split_parent.reset();
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
  const auto it = regions.find(region);
  if (it->second.epoch + 1 >= RegionIds::kEpochEnd) {
    return absl::ResourceExhaustedError(fmt::format("region {} has used all its epochs", region));
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
  RETURN_IF_ERROR(CheckEpoch(region, epoch));
  regions.at(region).recovering = false;
  EraseIf([&](uint32_t child, const Entry& entry) { return entry.split_parent == region && !cuts.contains(child); });
  const bool of_table = TableOf(region) != tables.end();
  for (auto& [made, entry] : regions) {
    if (entry.split_parent != region) continue;
    if (of_table) RETURN_IF_ERROR(SplitPart(region, cuts.at(made), made));
    entry.split_parent.reset();
  }
  return absl::OkStatus();
}

absl::Status RegionTable::CheckNotSplit(uint32_t region) const {
  for (const auto& [child, entry] : regions) {
    if (entry.split_parent == region) return absl::AbortedError(fmt::format("region {} is being split", region));
  }
  return absl::OkStatus();
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
  auto& parts = tables.find(table->first)->second.parts;
  const auto part = std::find_if(parts.begin(), parts.end(), [right](const auto& one) { return one.second == right; });
  if (part == parts.begin() || std::prev(part)->second != left) {
    return absl::FailedPreconditionError(fmt::format("region {} is not the part above region {}", right, left));
  }
  parts.erase(part);
  return Remove(right);
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
  tables[name] = {bucket_bytes, {{0, region}}, parts_min};
  Joined(region);
  return absl::OkStatus();
}

void RegionTable::Clear() {
  for (const auto& [name, parts] : tables) {
    evictions.SetTable(name, std::nullopt);
    grants.DropTable(name);
  }
  tables.clear();
  EraseIf([](uint32_t, const Entry&) { return true; });
  root = 0;
}

absl::Status RegionTable::DropTable(const std::string& name) {
  const auto it = tables.find(name);
  if (it == tables.end()) return absl::NotFoundError(fmt::format("there is no table {}", ForMessage(name)));
  for (const auto& [first, region] : it->second.parts) {
    EraseIf([region = region](uint32_t, const Entry& entry) { return entry.split_parent == region; });
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
  tables.find(table->first)->second.parts.emplace(first, to);
  Joined(to);
  return absl::OkStatus();
}

absl::Status RegionTable::ChangeGrant(const std::string& user, const GrantScope& scope, Rights rights, bool give) {
  if (!give) return grants.Take(user, scope, rights);
  if (scope.kind == GrantScope::Kind::kTable && !tables.contains(scope.name)) {
    return absl::NotFoundError(fmt::format("there is no table {}", ForMessage(scope.name)));
  }
  return grants.Give(user, scope, rights);
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

namespace {

nlohmann::json JsonOf(const Grants& grants) {
  nlohmann::json json = {{"version", grants.version()}, {"enforced", grants.enforced()}};
  json["given"] = nlohmann::json::array();
  for (const auto& [user, its] : grants.by_user()) {
    for (const auto& [scope, rights] : its) {
      nlohmann::json one = {{"user", user}, {"rights", rights.ToText()}};
      if (scope.kind == GrantScope::Kind::kTable) one["table"] = scope.name;
      if (scope.kind == GrantScope::Kind::kPrefix) one["prefix"] = absl::Base64Escape(scope.name);
      json["given"].push_back(std::move(one));
    }
  }
  return json;
}

}  // namespace

std::string RegionTable::ToJson() const {
  nlohmann::json json = {{"version", version}, {"next_region", ids.next}, {"root", root}};
  json["ids"] = {{"epoch", ids.epoch}, {"removed_epoch", ids.removed_epoch}};
  if (ids.around) json["ids"]["around"] = true;
  if (!ids.resting.empty()) json["ids"]["resting"] = ids.resting;
  if (ids.max != Pointer::kRegionMax) json["ids"]["max"] = ids.max;
  json["regions"] = nlohmann::json::array();
  for (const auto& [region, entry] : regions) {
    nlohmann::json one = {
        {"region", region}, {"server", entry.owner.server}, {"worker", entry.owner.worker}, {"epoch", entry.epoch}};
    if (entry.split_parent.has_value()) one["made_for"] = *entry.split_parent;
    if (entry.recovering) one["recovering"] = true;
    if (entry.first_epoch != 1) one["first_epoch"] = entry.first_epoch;
    json["regions"].push_back(std::move(one));
  }
  for (const auto& [name, table] : tables) {
    nlohmann::json parts = nlohmann::json::array();
    for (const auto& [first, region] : table.parts) parts.push_back({first, region});
    json["tables"][name] = {{"bucket_bytes", table.bucket_bytes}, {"parts", std::move(parts)}};
    if (const auto rule = evictions.by_table().find(name); rule != evictions.by_table().end()) {
      json["tables"][name]["evict"] = ToString(rule->second);
    }
    if (table.parts_min != 1) json["tables"][name]["parts_min"] = table.parts_min;
  }
  json["draining"] = draining;
  for (const auto& [prefix, eviction] : evictions.by_prefix()) {
    json["evictions"].push_back({absl::Base64Escape(prefix), ToString(eviction)});
  }
  if (grants.version() > 0) json["grants"] = JsonOf(grants);
  json["made"] = made;
  return JsonText(json, 1);
}

namespace {

constexpr uint32_t kWorkerMax = 1024;  // Per server.

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

constexpr uint64_t kVersionMax = UINT64_MAX / 2;  // No cluster changes its table so often.

// Tables of releases that did not use ids again do not say which epochs removed regions had. No region had more.
constexpr uint64_t kEpochsOfOldTables = uint64_t{1} << 24;

absl::Status ParseIds(JsonView json, RegionIds* ids) {
  ASSIGN_OR_RETURN(ids->next, json.Get<uint32_t>("next_region"));
  ids->removed_epoch = kEpochsOfOldTables;
  const JsonView more = json["ids"];
  if (more.there()) {
    if (!more.is_object()) return Bad("\"ids\" is not an object");
    ASSIGN_OR_RETURN(ids->epoch, more.Get<uint64_t>("epoch"));
    ASSIGN_OR_RETURN(ids->removed_epoch, more.Get<uint64_t>("removed_epoch"));
    ASSIGN_OR_RETURN(ids->around, more.Get<bool>("around", false));
    ASSIGN_OR_RETURN(ids->max, more.Get<uint32_t>("max", Pointer::kRegionMax));
    if (more["resting"].there() && !more["resting"].is_array()) return Bad("\"resting\" is not a list");
    for (const JsonView one : more["resting"].elements()) {
      const std::optional<uint32_t> region = one.As<uint32_t>();
      if (!region.has_value() || *region == 0 || *region > ids->max) {
        return Bad("\"resting\" contains something that is not a region");
      }
      ids->resting.push_back(*region);
    }
    std::sort(ids->resting.begin(), ids->resting.end());
  } else if (ids->next == Pointer::kRegionMax + 1) {  // All ids had been used.
    ids->next = 1;
    ids->around = true;
    ids->epoch = ids->removed_epoch + 1;
  }
  if (ids->max == 0 || ids->max > Pointer::kRegionMax) return Bad("the highest region id is out of range");
  if (ids->next == 0 || ids->next > ids->max) return Bad("next_region is out of range");
  if (ids->epoch == 0 || ids->epoch >= RegionIds::kEpochEnd || ids->removed_epoch + 1 >= RegionIds::kEpochEnd) {
    return Bad("an epoch of \"ids\" is out of range");
  }
  return absl::OkStatus();
}

// Checks that no region is a split parent of itself, directly or through others. Takes one step for each region, also
// if they are one long chain.
absl::Status CheckSplitParents(const RegionTable& table) {
  std::map<uint32_t, uint32_t> seen_from;  // From which region each one was come by first.
  for (const auto& [region, entry] : table.regions) {
    uint32_t at = region;
    for (const RegionTable::Entry* one = &entry; one != nullptr; one = table.Find(at)) {
      const auto [seen, first] = seen_from.try_emplace(at, region);
      if (!first && seen->second == region) return Bad(fmt::format("region {} is its own split parent", region));
      if (!first || one->split_parent.value_or(0) == 0) break;
      at = *one->split_parent;
    }
  }
  return absl::OkStatus();
}

absl::Status ParseRegion(JsonView one, RegionTable* table) {
  RegionTable::Entry entry;
  ASSIGN_OR_RETURN(const auto region, one.Get<uint32_t>("region"));
  ASSIGN_OR_RETURN(entry.owner.server, one.Get<std::string>("server"));
  ASSIGN_OR_RETURN(entry.owner.worker, one.Get<uint32_t>("worker"));
  ASSIGN_OR_RETURN(entry.epoch, one.Get<uint64_t>("epoch"));
  ASSIGN_OR_RETURN(entry.recovering, one.Get<bool>("recovering", false));
  ASSIGN_OR_RETURN(entry.first_epoch, one.Get<uint64_t>("first_epoch", 1));
  if (one["made_for"].there()) {
    ASSIGN_OR_RETURN(entry.split_parent, one.Get<uint32_t>("made_for"));
  }
  if (!IsServerName(entry.owner.server) || entry.owner.worker > kWorkerMax) {
    return Bad(fmt::format("region {} has an invalid owner", region));
  }
  if (entry.epoch == 0 || entry.epoch >= RegionIds::kEpochEnd)
    return Bad(fmt::format("region {} has an invalid epoch", region));
  if (entry.first_epoch == 0 || entry.first_epoch > entry.epoch) {
    return Bad(fmt::format("region {} has an invalid first epoch", region));
  }
  if (entry.split_parent.value_or(0) != 0 && !table->ids.Given(*entry.split_parent)) {
    return Bad(fmt::format("region {} has a split parent that is out of range", region));
  }
  if (region == 0 || region > table->ids.max || !table->ids.Given(region) ||
      !table->regions.emplace(region, std::move(entry)).second) {
    return Bad(fmt::format("region {} is out of range or listed twice", region));
  }
  return absl::OkStatus();
}

// Collects the regions that are parts of tables in *taken.
absl::Status ParseParts(const std::string& name, JsonView one, std::set<uint32_t>* taken, RegionTable* table) {
  RegionTable::HashParts parts;
  ASSIGN_OR_RETURN(parts.bucket_bytes, one.Get<uint32_t>("bucket_bytes"));
  ASSIGN_OR_RETURN(parts.parts_min, one.Get<uint32_t>("parts_min", 1));
  for (const JsonView part : one["parts"].elements()) {
    const std::vector<JsonView> pair = part.elements();
    const std::optional<uint32_t> first = pair.size() == 2 ? pair[0].As<uint32_t>() : std::nullopt;
    const std::optional<uint32_t> region = pair.size() == 2 ? pair[1].As<uint32_t>() : std::nullopt;
    if (!first.has_value() || !region.has_value() || table->Find(*region) == nullptr || *region == table->root ||
        table->Find(*region)->split_parent.has_value() || !taken->insert(*region).second ||
        !parts.parts.emplace(*first, *region).second) {
      return Bad(
          fmt::format("table {} lists a part twice, or a part whose region is missing or not part of the table yet",
                      ForMessage(name)));
    }
  }
  if (!RegionTable::CheckTableName(name).ok() || parts.parts.empty() || parts.parts.begin()->first != 0) {
    return Bad(fmt::format("table {} has no name or no first part", ForMessage(name)));
  }
  if (one["evict"].there()) {
    const std::optional<std::string> rule = one["evict"].As<std::string>();
    const std::optional<Eviction> eviction = rule.has_value() ? ParseEviction(*rule) : std::nullopt;
    if (!eviction.has_value()) return Bad(fmt::format("table {} evicts something unknown", ForMessage(name)));
    table->evictions.SetTable(name, *eviction);
  }
  table->tables.emplace(name, std::move(parts));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ParseTexts(JsonView json, const char* name) {
  std::vector<std::string> texts;
  if (json[name].there() && !json[name].is_array()) return Bad(fmt::format("\"{}\" is not a list", name));
  for (const JsonView one : json[name].elements()) {
    std::optional<std::string> text = one.As<std::string>();
    if (!text.has_value()) return Bad(fmt::format("\"{}\" contains something that is not a string", name));
    texts.push_back(*std::move(text));
  }
  return texts;
}

// Reads a rule: the prefix in Base64, and the name of what is evicted.
absl::Status ParseEvictionRule(JsonView one, EvictionRules* rules) {
  const std::vector<JsonView> pair = one.elements();
  const std::optional<std::string> encoded = pair.size() == 2 ? pair[0].As<std::string>() : std::nullopt;
  const std::optional<std::string> name = pair.size() == 2 ? pair[1].As<std::string>() : std::nullopt;
  const std::optional<Eviction> eviction = name.has_value() ? ParseEviction(*name) : std::nullopt;
  std::string prefix;
  if (!encoded.has_value() || !eviction.has_value() || !absl::Base64Unescape(*encoded, &prefix)) {
    return Bad("a rule of \"evictions\" has no valid prefix, or evicts something unknown");
  }
  return rules->Set(prefix, *eviction);
}

absl::Status ParseGrant(JsonView one, Grants* grants) {
  ASSIGN_OR_RETURN(const std::string user, one.Get<std::string>("user"));
  ASSIGN_OR_RETURN(const std::string text, one.Get<std::string>("rights"));
  const std::optional<Rights> rights = Rights::Parse(text);
  GrantScope scope;
  if (one["table"].there()) {
    scope.kind = GrantScope::Kind::kTable;
    ASSIGN_OR_RETURN(scope.name, one.Get<std::string>("table"));
  } else if (one["prefix"].there()) {
    scope.kind = GrantScope::Kind::kPrefix;
    ASSIGN_OR_RETURN(const std::string encoded, one.Get<std::string>("prefix"));
    if (!absl::Base64Unescape(encoded, &scope.name)) return Bad("a grant has no valid prefix");
  }
  if (!rights.has_value()) return Bad("a grant gives something unknown");
  return grants->Give(user, scope, *rights);
}

// A table whose grants cannot be read is not used: without them, everybody might do everything.
absl::Status ParseGrants(JsonView json, Grants* grants) {
  if (!json.there()) return absl::OkStatus();
  if (!json.is_object() || !json["given"].is_array()) return Bad("\"grants\" is not an object with a list");
  for (const JsonView one : json["given"].elements()) RETURN_IF_ERROR(ParseGrant(one, grants));
  ASSIGN_OR_RETURN(const bool enforced, json.Get<bool>("enforced"));
  grants->Enforce(enforced);
  ASSIGN_OR_RETURN(const uint64_t version, json.Get<uint64_t>("version"));
  grants->SetVersion(version);
  return absl::OkStatus();
}

absl::Status ParseTable(JsonView json, RegionTable* table) {
  ASSIGN_OR_RETURN(table->version, json.Get<uint64_t>("version"));
  RETURN_IF_ERROR(ParseIds(json, &table->ids));
  ASSIGN_OR_RETURN(table->root, json.Get<uint32_t>("root"));
  if (table->version > kVersionMax) return Bad("its version is out of range");
  if (!json["regions"].is_array()) return Bad("it has no list of regions");
  for (const JsonView one : json["regions"].elements()) RETURN_IF_ERROR(ParseRegion(one, table));
  RETURN_IF_ERROR(CheckSplitParents(*table));
  if (table->root != 0 && table->Find(table->root) == nullptr) return Bad("the root's region is not listed");
  // The root would be removed together with its split parent, and the remaining table could not be parsed.
  if (table->root != 0 && table->Find(table->root)->split_parent.has_value()) return Bad("the root is incomplete");
  if (json["tables"].there() && !json["tables"].is_object()) return Bad("\"tables\" is not an object");
  std::set<uint32_t> taken;
  for (const auto& [name, one] : json["tables"].members()) RETURN_IF_ERROR(ParseParts(name, one, &taken, table));
  ASSIGN_OR_RETURN(const std::vector<std::string> made, ParseTexts(json, "made"));
  table->made.assign(made.begin(), made.end());
  ASSIGN_OR_RETURN(const std::vector<std::string> draining, ParseTexts(json, "draining"));
  if (!std::all_of(draining.begin(), draining.end(), IsServerName)) return Bad("\"draining\" lists no server's name");
  table->draining.insert(draining.begin(), draining.end());
  if (json["evictions"].there() && !json["evictions"].is_array()) return Bad("\"evictions\" is not a list");
  for (const JsonView one : json["evictions"].elements()) RETURN_IF_ERROR(ParseEvictionRule(one, &table->evictions));
  return ParseGrants(json["grants"], &table->grants);
}

}  // namespace

absl::StatusOr<RegionTable> RegionTable::Parse(const std::string& text) {
  const absl::StatusOr<nlohmann::json> json = ParseJson(text);
  RegionTable table;
  const absl::Status status = json.ok() ? ParseTable(*json, &table) : json.status();
  if (status.ok()) return table;
  return absl::InvalidArgumentError(fmt::format("not a region table: {}", std::string(status.message())));
}

}  // namespace cell
