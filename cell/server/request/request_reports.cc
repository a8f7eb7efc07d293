// RequestService's reports, as JSON: its state, its clients' own counters, the tree check.
#include <cstdio>

#include "cell/base/json.h"
#include "cell/server/region/region_state.h"
#include "cell/server/request/request_service.h"
#include "cell/tree/tree_check.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr size_t kClientReportsShown = 64;
constexpr size_t kReportBytesMax = 4096;
constexpr size_t kRegionsPerStatus = 60;
constexpr uint32_t kUnitsSampled = 256;  // Of a table's region, for its probes.

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const unsigned char c : bytes) hex += fmt::format("{:02x}", c);
  return hex;
}

std::string ReportJson(const TreeReport& report) {
  nlohmann::json json = {{"region", report.region},
                         {"tier", report.range.tier},
                         {"low", Hex(report.range.low)},
                         {"right", report.range.right.region()},
                         {"routes", report.routes.size()},
                         {"keys", report.keys},
                         {"data_bytes", report.data_bytes},
                         {"levels", report.levels},
                         {"nodes", report.nodes},
                         {"leaves", report.leaves},
                         {"half_splits", report.half_splits},
                         {"extents", report.extents},
                         {"error_count", report.error_count},
                         {"errors", report.errors}};
  if (report.range.high.has_value()) json["high"] = Hex(*report.range.high);
  return JsonText(json);
}

nlohmann::json RegionJson(const HeldRegion& region) {
  const RegionHeader& header = region.store->header();
  const ExtentAllocator::Usage extents = region.store->extents();
  nlohmann::json json = {{"region", header.region},
                         {"epoch", region.epoch},
                         {"keys", header.keys},
                         {"data_bytes", header.data_bytes},
                         {"node_bytes", header.node_bytes},
                         {"nodes", header.node_count},
                         {"fill", region.store->fill()},
                         {"extent_bytes_used", extents.bytes_used},
                         {"extent_bytes", extents.bytes_total},
                         {"largest_free_bytes", extents.largest_free_bytes},
                         {"fragmentation", extents.fragmentation()},
                         {"busy", region.claimed()},
                         {"state", StateOf(region)}};
  if (region.tree != nullptr) {
    json["tier"] = region.tree->tier();
    json["nodes_used"] = header.nodes_used;
    json["levels"] = region.tree->Node(region.tree->root()).level() + 1;
    return json;
  }
  const HashTable& table = *region.hash;
  const HashTable::Counters& counters = table.counters();
  json["hash"] = {{"first", table.range().first},
                  {"last", table.range().last},
                  {"bucket_bytes", table.place().bucket_bytes},
                  {"unit_fill", table.unit_fill()},
                  {"keys_by_place", table.KeysByPlace(std::max<uint32_t>(1, table.place().units / kUnitsSampled))},
                  {"puts", counters.puts},
                  {"deletes", counters.deletes},
                  {"kicked", counters.kicked},
                  {"longest_chain", counters.longest_chain},
                  {"full", counters.full}};
  return json;
}

// Of a part of a table: its check.
std::string HashReportJson(const HashTable& table) {
  const absl::Status status = table.Check();
  nlohmann::json json = {{"region", table.region()},
                         {"hash", {{"first", table.range().first}, {"last", table.range().last}}},
                         {"keys", table.keys()},
                         {"data_bytes", table.data_bytes()},
                         {"errors", nlohmann::json::array()}};
  if (!status.ok()) json["errors"].push_back(std::string(status.message()));
  return JsonText(json);
}

bool IsObject(std::string_view text) {
  const absl::StatusOr<nlohmann::json> json = ParseJson(text);
  return json.ok() && json->is_object();
}

}  // namespace

absl::StatusOr<size_t> RequestService::Report(const IncomingCall& call, MutableBytes to) {
  const std::string_view text = AsText(call.request.subspan(sizeof(MessageHeader)));
  if (text.size() > kReportBytesMax || !IsObject(text)) {
    return absl::InvalidArgumentError("a client's report is not a JSON object, or too long");
  }
  reports_[call.peer] = text;
  return WriteTextReply(to, MessageKind::kReport, "");
}

void RequestService::ForgetReport(ConnectionId peer) {
  const auto it = reports_.find(peer);
  if (it == reports_.end()) return;
  const absl::StatusOr<nlohmann::json> report = ParseJson(it->second);
  for (size_t i = 0; report.ok() && i < departed_.size(); ++i) {
    departed_[i] += JsonView(*report)[kClientCounters[i]].Or<uint64_t>(0);
  }
  reports_.erase(it);
}

// "FIRST", or nothing for 0: with the regions from the FIRST on, as many as fit into a message for sure.
absl::StatusOr<size_t> RequestService::Status(std::string_view text, MutableBytes to) const {
  unsigned first = 0;
  if (!text.empty() && std::sscanf(std::string(text).c_str(), "%u", &first) != 1) {
    return absl::InvalidArgumentError("a status asks for \"FIRST\" or nothing");
  }
  return WriteTextReply(to, MessageKind::kStatus, StatusJson(first, kRegionsPerStatus));
}

std::string RequestService::StatusJson(size_t first, size_t regions_max) const {
  nlohmann::json json;
  json["server"] = options_.name;
  json["uptime_seconds"] = static_cast<double>(fabric_->NowNs() - started_ns_) / 1e9;
  json["connections"] = fabric_->peers();
  json["batches"] = batches_;
  json["refused"] = replies_.refused();
  const std::pair<const char*, MessageKind> kinds[] = {
      {"search", MessageKind::kSearch}, {"get", MessageKind::kGet},       {"put", MessageKind::kPut},
      {"delete", MessageKind::kDelete}, {"scan", MessageKind::kScan},     {"fetch", MessageKind::kFetch},
      {"upload", MessageKind::kUpload}, {"status", MessageKind::kStatus}, {"add_route", MessageKind::kAddRoute}};
  for (const auto& [name, kind] : kinds) json["served"][name] = replies_.served(kind);
  json["routed"] = replies_.routed();
  json["held_writes"] = {{"now", writes_.held()},
                         {"ever", writes_.held_ever()},
                         {"longest_us", static_cast<double>(writes_.held_longest_ns()) / 1e3}};
  json["uploads"] = {{"bytes", uploads_.bytes()}, {"dropped", uploads_.dropped()}};
  json["regions_max"] = regions_->regions_max();
  json["regions_ready"] = regions_->free();
  const std::vector<HeldRegion*> held = regions_->all();
  json["regions_held"] = held.size();
  json["regions"] = nlohmann::json::array();
  for (size_t i = first; i < held.size() && i - first < regions_max; ++i) {
    const HeldRegion* const region = held[i];
    json["regions"].push_back(RegionJson(*region));
  }
  if (more_status_) more_status_(&json);
  for (size_t i = 0; i < departed_.size(); ++i) json["departed_clients"][kClientCounters[i]] = departed_[i];
  json["clients"] = nlohmann::json::array();
  for (const auto& [id, text] : reports_) {
    absl::StatusOr<nlohmann::json> report = ParseJson(text);  // It was, when it came (Report).
    if (!report.ok()) continue;
    json["clients"].push_back(*std::move(report));
    json["clients"].back()["connection"] = id;
    if (json["clients"].size() == kClientReportsShown) break;
  }
  return JsonText(json);
}

// "REGION": its report. "REGION FIRST": its routes from the FIRST on, as many as fit.
absl::StatusOr<size_t> RequestService::Check(std::string_view text, MutableBytes to) {
  unsigned id = 0, first = 0;
  const int numbers = std::sscanf(std::string(text).c_str(), "%u %u", &id, &first);
  if (numbers < 1) return absl::InvalidArgumentError("a check asks for \"REGION\" or \"REGION FIRST\"");
  const HeldRegion* region = regions_->Find(id);
  if (region == nullptr || !region->readable()) {
    return absl::NotFoundError(fmt::format("{} does not hold region {}", options_.name, id));
  }
  if (region->state() == RegionState::kFilling) return absl::FailedPreconditionError(fmt::format("region {} is being filled", id));
  if (before_check_) before_check_();
  if (region->hash != nullptr) return WriteTextReply(to, MessageKind::kCheck, HashReportJson(*region->hash));
  const TreeReport report = CheckTree(*region->memory);
  if (numbers == 1) return WriteTextReply(to, MessageKind::kCheck, ReportJson(report));
  nlohmann::json json = nlohmann::json::array();
  size_t bytes = 0;
  for (size_t i = first; i < report.routes.size() && bytes < kMessageBytesMax / 2; ++i) {
    const auto& [key, child] = report.routes[i];
    json.push_back({Hex(key), child.region()});
    bytes += 2 * key.size() + 16;
  }
  return WriteTextReply(to, MessageKind::kCheck, JsonText(json));
}

}  // namespace cell
