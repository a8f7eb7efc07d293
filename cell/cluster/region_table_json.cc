#include "cell/cluster/region_table_json.h"

#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "cell/cluster/region_table_check.h"
#include "fmt/format.h"

namespace cell {
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

nlohmann::json JsonWithoutRegions(const RegionTable& table) {
  const RegionIds& ids = table.ids;
  nlohmann::json json = {{"version", table.version}, {"next_region", ids.next}, {"root", table.root}};
  json["ids"] = {{"epoch", ids.epoch}, {"removed_epoch", ids.removed_epoch}};
  if (ids.around) json["ids"]["around"] = true;
  if (!ids.resting.empty()) json["ids"]["resting"] = ids.resting;
  if (ids.max != Pointer::kRegionMax) json["ids"]["max"] = ids.max;
  if (table.regions_max != RegionTable::kRegionsMax) json["regions_max"] = table.regions_max;
  for (const auto& [name, parts] : table.tables) {
    json["tables"][name] = {{"bucket_bytes", parts.bucket_bytes}};
    const auto& rules = table.evictions.by_table();
    if (const auto rule = rules.find(name); rule != rules.end()) json["tables"][name]["evict"] = ToString(rule->second);
    if (parts.parts_min != 1) json["tables"][name]["parts_min"] = parts.parts_min;
  }
  json["draining"] = table.draining;
  for (const auto& [prefix, eviction] : table.evictions.by_prefix()) {
    json["evictions"].push_back({absl::Base64Escape(prefix), ToString(eviction)});
  }
  if (table.grants.version() > 0) json["grants"] = JsonOf(table.grants);
  json["made"] = table.made;
  return json;
}

std::string RegionTable::ToJson() const {
  nlohmann::json json = JsonWithoutRegions(*this);
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
    nlohmann::json& parts = json["tables"][name]["parts"] = nlohmann::json::array();
    for (const auto& [first, region] : table.parts) parts.push_back({first, region});
  }
  return JsonText(json, 1);
}

namespace {

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

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
      if (!region.has_value()) return Bad("\"resting\" contains something that is not a region");
      ids->resting.push_back(*region);
    }
    std::sort(ids->resting.begin(), ids->resting.end());
  } else if (ids->next == Pointer::kRegionMax + 1) {  // All ids had been used.
    ids->next = 1;
    ids->around = true;
    ids->epoch = ids->removed_epoch + 1;
  }
  return absl::OkStatus();
}

absl::Status ParseRegion(JsonView one, std::map<uint32_t, RegionEntry>* regions) {
  RegionEntry entry;
  ASSIGN_OR_RETURN(const auto region, one.Get<uint32_t>("region"));
  ASSIGN_OR_RETURN(entry.owner.server, one.Get<std::string>("server"));
  ASSIGN_OR_RETURN(entry.owner.worker, one.Get<uint32_t>("worker"));
  ASSIGN_OR_RETURN(entry.epoch, one.Get<uint64_t>("epoch"));
  ASSIGN_OR_RETURN(entry.recovering, one.Get<bool>("recovering", false));
  ASSIGN_OR_RETURN(entry.first_epoch, one.Get<uint64_t>("first_epoch", 1));
  if (one["made_for"].there()) {
    ASSIGN_OR_RETURN(entry.split_parent, one.Get<uint32_t>("made_for"));
  }
  if (regions->emplace(region, std::move(entry)).second) return absl::OkStatus();
  return Bad(fmt::format("region {} is out of range or listed twice", region));
}

absl::Status ParseParts(const std::string& name, JsonView one, std::map<uint32_t, RegionEntry>* regions) {
  for (const JsonView part : one["parts"].elements()) {
    const std::vector<JsonView> pair = part.elements();
    const std::optional<uint32_t> first = pair.size() == 2 ? pair[0].As<uint32_t>() : std::nullopt;
    const std::optional<uint32_t> region = pair.size() == 2 ? pair[1].As<uint32_t>() : std::nullopt;
    const auto entry = region.has_value() ? regions->find(*region) : regions->end();
    if (!first.has_value() || entry == regions->end() || !entry->second.table.empty()) {
      return Bad(fmt::format("table {} lists a part twice, or a part whose region is missing", ForMessage(name)));
    }
    entry->second.table = name;
    entry->second.first_position = *first;
  }
  return absl::OkStatus();
}

absl::Status ParseRegions(JsonView json, RegionMap* parsed) {
  if (!json["regions"].is_array()) return Bad("it has no list of regions");
  std::map<uint32_t, RegionEntry> regions;
  for (const JsonView one : json["regions"].elements()) RETURN_IF_ERROR(ParseRegion(one, &regions));
  for (const auto& [name, one] : json["tables"].members()) RETURN_IF_ERROR(ParseParts(name, one, &regions));
  *parsed = RegionMap::Of({std::make_move_iterator(regions.begin()), std::make_move_iterator(regions.end())});
  return absl::OkStatus();
}

absl::Status ParseHashTable(const std::string& name, JsonView one, RegionTable* table) {
  HashParts parts;
  ASSIGN_OR_RETURN(parts.bucket_bytes, one.Get<uint32_t>("bucket_bytes"));
  ASSIGN_OR_RETURN(parts.parts_min, one.Get<uint32_t>("parts_min", 1));
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

}  // namespace

absl::Status ParseWithoutRegions(JsonView json, RegionTable* table) {
  ASSIGN_OR_RETURN(table->version, json.Get<uint64_t>("version"));
  RETURN_IF_ERROR(ParseIds(json, &table->ids));
  ASSIGN_OR_RETURN(table->root, json.Get<uint32_t>("root"));
  ASSIGN_OR_RETURN(table->regions_max, json.Get<uint32_t>("regions_max", RegionTable::kRegionsMax));
  if (json["tables"].there() && !json["tables"].is_object()) return Bad("\"tables\" is not an object");
  for (const auto& [name, one] : json["tables"].members()) RETURN_IF_ERROR(ParseHashTable(name, one, table));
  ASSIGN_OR_RETURN(const std::vector<std::string> made, ParseTexts(json, "made"));
  table->made.assign(made.begin(), made.end());
  ASSIGN_OR_RETURN(const std::vector<std::string> draining, ParseTexts(json, "draining"));
  table->draining.insert(draining.begin(), draining.end());
  if (json["evictions"].there() && !json["evictions"].is_array()) return Bad("\"evictions\" is not a list");
  for (const JsonView one : json["evictions"].elements()) RETURN_IF_ERROR(ParseEvictionRule(one, &table->evictions));
  return ParseGrants(json["grants"], &table->grants);
}

absl::StatusOr<RegionTable> RegionTable::Parse(const std::string& text) {
  const absl::StatusOr<nlohmann::json> json = ParseJson(text);
  RegionTable table;
  absl::Status status = json.ok() ? ParseWithoutRegions(*json, &table) : json.status();
  if (status.ok()) status = ParseRegions(*json, &table.regions);
  if (status.ok()) status = FinishParsed(&table);
  if (status.ok()) return table;
  return absl::InvalidArgumentError(fmt::format("not a region table: {}", std::string(status.message())));
}

}  // namespace cell
