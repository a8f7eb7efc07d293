#include "tests/simulation/plan_text.h"

#include <set>
#include <type_traits>
#include <utility>

#include "cell/base/status_macros.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

using Json = nlohmann::ordered_json;

// Visits every field of a plan once, for writing and for reading.
template <typename Plan, typename Visit>
void EachField(Plan& plan, Visit&& visit) {
  visit("seed", plan.seed);
  visit("servers", plan.servers);
  visit("joining", plan.joining);
  visit("node_bytes", plan.shape.node_bytes);
  visit("meganode_bytes", plan.shape.meganode_bytes);
  visit("extents_bytes", plan.shape.extents_bytes);
  visit("durability", plan.durability);
  visit("split_at", plan.split.split_at);
  visit("copied_per_turn", plan.split.pace.copied);
  visit("freed_per_turn", plan.split.pace.freed);
  visit("balance", plan.balance.enabled);
  visit("balance_every_ns", plan.balance.every_ns);
  visit("join", plan.join.enabled);
  visit("join_deleted_per_left", plan.join.deleted_per_left);
  visit("join_every_ns", plan.join.every_ns);
  visit("join_failed_pause_ns", plan.join.failed_pause_ns);
  visit("join_migrates_again_after_ns", plan.join.migrate_again_after_ns);
  visit("joined_per_turn", plan.join.copied);
  visit("membership_polls_max", plan.membership_polls_max);
  visit("clock_gain_ppm", plan.clock_gain_ppm);
  visit("latency_ns", plan.latency_ns);
  visit("line_ns", plan.line_ns);
  visit("writer_step_ns", plan.writer_step_ns);
  visit("disk_ns", plan.disk_ns);
  visit("checkpoint_bytes_min", plan.checkpoint_bytes_min);
  visit("disk_in_steps", plan.disk_in_steps);
  visit("disk_cached", plan.disk_cached);
  visit("encrypted", plan.encrypted);
  visit("objects", plan.objects);
  visit("learns", plan.learns);
  visit("regions_max", plan.regions_max);
  visit("region_ids", plan.region_ids);
  visit("keys", plan.keys);
  visit("hot_keys", plan.hot_keys);
  visit("hot_share", plan.hot_share);
  visit("table_share", plan.table_share);
  visit("bucket_bytes", plan.bucket_bytes);
  visit("value_bytes_max", plan.value_bytes_max);
  visit("large_share", plan.large_share);
  visit("large_bytes_max", plan.large_bytes_max);
  visit("cache_level_min", plan.cache_level_min);
  visit("weights", plan.weights);
  visit("paths", plan.paths);
  visit("one_path_each", plan.one_path_each);
  visit("queue_share", plan.queue_share);
  visit("condition_share", plan.condition_share);
  visit("function_share", plan.function_share);
  visit("transaction_share", plan.transaction_share);
  visit("transactions_in_table", plan.transactions_in_table);
  visit("snapshot_share", plan.snapshot_share);
  visit("snapshot_still_ns", plan.snapshot_still_ns);
  visit("snapshot_kept_ns", plan.snapshot_kept_ns);
  visit("snapshot_bytes", plan.snapshot_bytes);
  visit("expiry_share", plan.expiry_share);
  visit("expiry_ns_max", plan.expiry_ns_max);
  visit("sweep_every_ns", plan.sweep_every_ns);
  visit("compact_every_ns", plan.compact_every_ns);
  visit("compact_bytes", plan.compact_bytes);
  visit("evict", plan.evict);
  visit("range_share", plan.range_share);
  visit("tide_ns", plan.tide_ns);
  visit("short_share", plan.short_share);
  visit("late_ns_max", plan.late_ns_max);
  visit("scan_limits", plan.scan_limits);
  visit("scan_tries", plan.scan_tries);
  visit("users", plan.users);
  visit("grants_seed", plan.grants_seed);
  visit("restarts_after_disk", plan.restarts_after_disk);
  visit("files_account", plan.files_account);
  visit("duration_ns", plan.duration_ns);
  visit("clients", plan.clients);
  visit("faults", plan.faults);
}

template <typename Client, typename Visit>
void EachClientField(Client& client, Visit&& visit) {
  visit("seed", client.seed);
  visit("tasks", client.tasks);
  visit("reads_only", client.reads_only);
  visit("user", client.user);
  visit("operations_max", client.operations_max);
  visit("comes_ns", client.comes_ns);
  visit("goes_ns", client.goes_ns);
  visit("idle_at_ns", client.idle_at_ns);
  visit("idle_ns", client.idle_ns);
  visit("dies", client.dies);
  visit("closes", client.closes);
}

template <typename Number>
Json ToJson(const Number& value) {
  return value;
}
Json ToJson(const Durability& durability) { return ToString(durability); }
Json ToJson(const Eviction& eviction) { return ToString(eviction); }
Json ToJson(const ClientPlan& client) {
  Json json = Json::object();
  EachClientField(client, [&json](const char* name, const auto& value) { json[name] = value; });
  return json;
}
Json ToJson(const FaultPlan& fault) {
  return {{"at_ns", fault.at_ns}, {"fault", ToString(fault.fault)}, {"lasts_ns", fault.lasts_ns}, {"seed", fault.seed}};
}

// These throw the exceptions of nlohmann::json, or std::invalid_argument.
template <typename Number>
void FromJson(const Json& json, Number* value) {
  if constexpr (std::is_same_v<Number, bool>) {
    if (!json.is_boolean()) throw std::invalid_argument("is to be true or false");
  } else if constexpr (std::is_arithmetic_v<Number>) {
    if (!json.is_number()) throw std::invalid_argument("is to be a number");
  }
  *value = json.get<Number>();
}
void FromJson(const Json& json, Eviction* eviction) {
  const std::optional<Eviction> parsed = ParseEviction(json.get<std::string>());
  if (!parsed.has_value()) throw std::invalid_argument("is to be none, ttl or lru-sampled");
  *eviction = *parsed;
}
void FromJson(const Json& json, Durability* durability) {
  const std::optional<Durability> parsed = ParseDurability(json.get<std::string>());
  if (!parsed.has_value()) throw std::invalid_argument("is to be none, async or sync");
  *durability = *parsed;
}
void FromJson(const Json& json, ClientPlan* client) {
  EachClientField(*client, [&json](const char* name, auto& value) {
    if (json.contains(name)) FromJson(json.at(name), &value);
  });
}
void FromJson(const Json& json, FaultPlan* fault) {
  fault->at_ns = json.at("at_ns").get<int64_t>();
  fault->lasts_ns = json.at("lasts_ns").get<int64_t>();
  fault->seed = json.at("seed").get<uint64_t>();
  const auto name = json.at("fault").get<std::string>();
  for (size_t i = 0; i < kFaults; ++i) {
    fault->fault = static_cast<Fault>(i);
    if (ToString(fault->fault) == name) return;
  }
  throw std::invalid_argument(fmt::format("names a fault that there is not: {}", name));
}
template <typename Item>
requires std::is_same_v<Item, ClientPlan> || std::is_same_v<Item, FaultPlan>
void FromJson(const Json& json, std::vector<Item>* items) {
  if (!json.is_array()) throw std::invalid_argument("is to be a list");
  for (const Json& item : json) FromJson(item, &items->emplace_back());
}

// Refuses plans that would fail a CHECK, or never end.
absl::Status CheckPlan(const SimulationPlan& plan) {
  int weight = 0, path = 0;
  for (const int one : plan.weights) weight += one;
  for (const int one : plan.paths) path += one;
  bool users = plan.users >= 0;
  for (const ClientPlan& client : plan.clients) users &= client.user >= 0 && client.user <= plan.users;
  const bool right = users && plan.servers >= 1 && plan.joining >= 0 && plan.regions_max >= 1 &&
                     plan.large_bytes_max <= static_cast<int>(kValueBytesMax) &&
                     ValidNodeBytes(plan.shape.node_bytes) && plan.shape.meganode_bytes % plan.shape.node_bytes == 0 &&
                     plan.shape.meganode_bytes > 0 && plan.shape.extents_bytes % 4096 == 0 && plan.keys >= 1 &&
                     plan.hot_keys >= 1 && weight >= 1 && path >= 1 && plan.table_share >= 0 && plan.table_share <= 1 &&
                     plan.snapshot_still_ns >= 1 && plan.snapshot_kept_ns >= plan.snapshot_still_ns &&
                     plan.latency_ns >= 1 && plan.line_ns >= 1 && plan.writer_step_ns >= 1 && plan.disk_ns >= 1;
  return right ? absl::OkStatus() : absl::InvalidArgumentError("the plan has an impossible size, share or weight");
}

}  // namespace

std::string PlanText(const SimulationPlan& plan) {
  std::string text;
  EachField(plan, [&text](const char* name, const auto& value) {
    text += fmt::format("{}\"{}\": ", text.empty() ? "{\n" : ",\n", name);
    if constexpr (requires { value.front().seed; }) {
      std::string items;
      for (const auto& item : value) items += fmt::format("{}\n  {}", items.empty() ? "" : ",", ToJson(item).dump());
      text += fmt::format("[{}]", items);
    } else {
      text += ToJson(value).dump();
    }
  });
  return text + "\n}\n";
}

absl::StatusOr<SimulationPlan> ParsePlan(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("a plan is a JSON object");
  SimulationPlan plan;
  std::set<std::string> known;
  std::string wrong;
  EachField(plan, [&](const char* name, auto& value) {
    known.insert(name);
    if (!json.contains(name)) return;
    try {
      FromJson(json.at(name), &value);
    } catch (const std::exception& error) {
      wrong = fmt::format("\"{}\" {}", name, error.what());
    }
  });
  for (const auto& [name, value] : json.items()) {
    if (!known.contains(name)) wrong = fmt::format("there is no field \"{}\"", name);
  }
  if (!wrong.empty()) return absl::InvalidArgumentError(wrong);
  RETURN_IF_ERROR(CheckPlan(plan));
  return plan;
}

std::string SimulationPlan::Summary() const {
  std::map<Fault, int> kinds;
  for (const FaultPlan& one : faults) ++kinds[one.fault];
  std::vector<std::string> names;
  names.reserve(kinds.size());
  for (const auto& [fault, count] : kinds) names.push_back(fmt::format("{} {}", count, ToString(fault)));
  int tasks = 0;
  for (const ClientPlan& client : clients) tasks += client.tasks;
  std::string snapshots;
  if (snapshot_share > 0) {
    snapshots = fmt::format(
        "; {:.0f} % of operations take snapshots, of regions that are still for {} us at most and "
        "keep {} KB for {} us",
        snapshot_share * 100, snapshot_still_ns / 1000, snapshot_bytes >> 10, snapshot_kept_ns / 1000);
  }
  return fmt::format(
      "{} servers and {} to come, durability {}{}{}, nodes of {} B, meganodes of {} KB, {} region ids; {} clients with "
      "{} operations in flight on {} keys ({} hot, {:.0f} % in a queue, {:.0f} % of ranges, tides of {} us, {:.0f} % "
      "of writes with conditions, {:.0f} % by functions, {:.0f} % in transactions{}, {:.0f} % expire within {} us), {} "
      "users with grants, evict "
      "{}, {:.0f} % of values up to {} KB, {:.0f} % in a table ({} B buckets), clocks "
      "within {} ppm; {} us; "
      "faults: {}{}",
      servers, joining, cell::ToString(durability), objects ? " in objects" : "",
      learns ? ", clients that learn from workers" : "", shape.node_bytes, shape.meganode_bytes >> 10, region_ids,
      clients.size(), tasks, keys, hot_keys, queue_share * 100, range_share * 100, tide_ns / 1000,
      condition_share * 100, function_share * 100, transaction_share * 100,
      transactions_in_table ? " over the table, too" : "", expiry_share * 100, expiry_ns_max / 1000, users,
      cell::ToString(evict), large_share * 100, large_bytes_max >> 10, table_share * 100, bucket_bytes, clock_gain_ppm,
      duration_ns / 1000, fmt::join(names, ", "), snapshots);
}

}  // namespace cell
