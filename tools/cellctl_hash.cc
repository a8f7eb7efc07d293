// cellctl hash: Pilaf tables.
#include <map>

#include "cell/base/json.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tools/cellctl_commands.h"

namespace cell {

absl::StatusOr<std::unique_ptr<ControlClient>> AnyControl(Client* client, const CtlFlags& flags, uint32_t regions) {
  absl::Status failed = absl::UnavailableError("no server has a reachable control plane");
  std::unique_ptr<ControlClient> roomiest;
  uint32_t most = 0;
  for (const auto& server : client->Servers()) {
    if (server.control.empty()) continue;
    auto control = OpenControl(server, flags);
    if (!control.ok()) return control.status();
    const absl::StatusOr<ControlClient::Regions> its = (*control)->ListRegions();
    // Only operators may ask this. A client with a grant of admin may ask for other things, and needs no room.
    if (absl::IsPermissionDenied(its.status()) && regions == 0) return control;
    if (!its.ok()) {
      failed = its.status();
      continue;
    }
    if (its->free >= regions) return control;
    if (roomiest != nullptr && its->free <= most) continue;
    most = its->free;
    roomiest = *std::move(control);
  }
  if (roomiest == nullptr) return failed;
  return roomiest;
}

namespace {

std::string LayoutName(uint32_t bucket_bytes) {
  return bucket_bytes == 0 ? "slots" : fmt::format("buckets of {}", bucket_bytes);
}

// Returns the states of the parts by region, as their servers report them. If `lookups` is not null, adds what clients
// report to have done in all tables.
absl::StatusOr<std::map<uint32_t, nlohmann::json>> PartStates(Client* client, nlohmann::json* lookups = nullptr) {
  std::map<uint32_t, nlohmann::json> states;
  for (const absl::StatusOr<std::string>& text : client->ServerStatus()) {
    if (!text.ok()) continue;
    absl::StatusOr<nlohmann::json> json = ParseJson(*text);
    if (!json.ok()) return absl::DataLossError("the server's status is not JSON");
    const JsonView view(*json);
    std::vector<JsonView> reports = view["clients"].elements();
    reports.push_back(view["other_clients"]);
    reports.push_back(view["departed_clients"]);
    for (const JsonView report : reports) {
      if (lookups == nullptr) break;
      for (const char* name : {"lookups", "lookup_reads", "lookup_torn", "lookup_extents", "lookup_moved"}) {
        (*lookups)[name] = JsonView(*lookups)[name].Or<uint64_t>(0) + report[name].Or<uint64_t>(0);
      }
    }
    if (!view["regions"].is_array()) continue;
    for (nlohmann::json& region : (*json)["regions"]) {
      const auto id = JsonView(region)["region"].Or<uint32_t>(0);
      if (JsonView(region)["hash"].there()) states[id] = std::move(region);
    }
  }
  return states;
}

struct TableStats {
  uint64_t keys = 0, data_bytes = 0, parts = 0, missing = 0, kicked = 0, longest_chain = 0, full = 0;
  double unit_fill = 0, extent_fill = 0;  // Sums over parts.
  double by_probe[3] = {0, 0, 0};         // From a sample.

  // Returns how many units a sequential lookup of a stored key would read. Returns null if the sample has no key.
  nlohmann::json probes() const {
    const double keys_seen = by_probe[0] + by_probe[1] + by_probe[2];
    if (keys_seen == 0) return nullptr;
    return (by_probe[0] + 2 * by_probe[1] + 3 * by_probe[2]) / keys_seen;
  }
};

TableStats Sum(const Client::TableInfo& table, const std::map<uint32_t, nlohmann::json>& states) {
  TableStats sum;
  for (const Client::TableInfo::Part& part : table.parts) {
    const auto state = states.find(part.region);
    if (state == states.end()) {
      ++sum.missing;
      continue;
    }
    const JsonView region(state->second);
    const JsonView hash = region["hash"];
    ++sum.parts;
    sum.keys += region["keys"].Or<uint64_t>(0);
    sum.data_bytes += region["data_bytes"].Or<uint64_t>(0);
    sum.unit_fill += hash["unit_fill"].Or(0.0);
    const double extents = region["extent_bytes"].Or(0.0);
    sum.extent_fill += extents == 0 ? 0 : region["extent_bytes_used"].Or(0.0) / extents;
    sum.kicked += hash["kicked"].Or<uint64_t>(0);
    sum.longest_chain = std::max(sum.longest_chain, hash["longest_chain"].Or<uint64_t>(0));
    sum.full += hash["full"].Or<uint64_t>(0);
    const std::vector<JsonView> places = hash["keys_by_place"].elements();
    for (size_t i = 0; i < 3 && i < places.size(); ++i) sum.by_probe[i] += places[i].Or(0.0);
  }
  return sum;
}

nlohmann::json StatsJson(const Client::TableInfo& table, const TableStats& sum) {
  const double parts = std::max<double>(1, static_cast<double>(sum.parts));
  return {{"table", table.name},
          {"layout", table.bucket_bytes == 0 ? "slots" : "buckets"},
          {"bucket_bytes", table.bucket_bytes},
          {"parts", table.parts.size()},
          {"parts_missing", sum.missing},
          {"keys", sum.keys},
          {"data_bytes", sum.data_bytes},
          {"fill", sum.unit_fill / parts},
          {"extent_fill", sum.extent_fill / parts},
          {"probes_per_lookup", sum.probes()},
          {"keys_kicked", sum.kicked},
          {"longest_chain", sum.longest_chain},
          {"puts_refused", sum.full}};
}

}  // namespace

int HashCreate(Client* client, const CtlFlags& flags) {
  const auto control = AnyControl(client, flags, flags.parts == 1 ? 1 : 2);
  const absl::Status status =
      control.ok() ? (*control)->CreateTable(flags.table, flags.layout.wanted(), flags.parts) : control.status();
  return status.ok() ? kDone : Fail(status);
}

int HashDrop(Client* client, const CtlFlags& flags) {
  const auto control = AnyControl(client, flags, 0);
  const absl::Status status = control.ok() ? (*control)->DropTable(flags.table) : control.status();
  return status.ok() ? kDone : Fail(status);
}

int HashList(Client* client, const CtlFlags& flags) {
  const auto states = PartStates(client);
  if (!states.ok()) return Fail(states.status());
  if (!flags.json()) fmt::print("{:<20} {:<16} {:>6} {:>12} {:>7}\n", "table", "layout", "parts", "keys", "fill");
  for (const Client::TableInfo& table : client->Tables()) {
    const nlohmann::json json = StatsJson(table, Sum(table, *states));
    if (flags.json()) {
      fmt::print("{}\n", JsonText(json));
    } else {
      fmt::print("{:<20} {:<16} {:>6} {:>12} {:>6.1f}%\n", table.name, LayoutName(table.bucket_bytes),
                 table.parts.size(), json["keys"].get<uint64_t>(), 100 * json["fill"].get<double>());
    }
  }
  return kDone;
}

int HashStats(Client* client, const CtlFlags& flags) {
  nlohmann::json lookups = nlohmann::json::object();
  const auto states = PartStates(client, &lookups);
  if (!states.ok()) return Fail(states.status());
  for (const Client::TableInfo& table : client->Tables()) {
    if (table.name != flags.table) continue;
    nlohmann::json json = StatsJson(table, Sum(table, *states));
    json["all_tables_by_reads"] = {{"lookups", lookups.value("lookups", uint64_t{0})},
                                   {"reads", lookups.value("lookup_reads", uint64_t{0})},
                                   {"again_torn", lookups.value("lookup_torn", uint64_t{0})},
                                   {"again_replaced", lookups.value("lookup_extents", uint64_t{0})},
                                   {"again_moved", lookups.value("lookup_moved", uint64_t{0})}};
    if (flags.json()) {
      fmt::print("{}\n", JsonText(json));
      return kDone;
    }
    for (const auto& [name, value] : json.items()) {
      fmt::print("{:<20} {}\n", name,
                 value.is_number_float() ? fmt::format("{:.3f}", value.get<double>())
                 : value.is_string()     ? value.get<std::string>()
                                         : value.dump());
    }
    fmt::print("\n{:<12} {:>8} {:>12} {:>12} {:>10} {:>7}\n", "server", "region", "from hash", "keys", "data bytes",
               "fill");
    for (const Client::TableInfo::Part& part : table.parts) {
      const auto state = states->find(part.region);
      if (state == states->end()) {
        fmt::print("{:<12} {:>8} {:>#12x} not there\n", part.server, part.region, part.first);
        continue;
      }
      fmt::print("{:<12} {:>8} {:>#12x} {:>12} {:>10} {:>6.1f}%\n", part.server, part.region, part.first,
                 JsonView(state->second)["keys"].Or<uint64_t>(0), JsonView(state->second)["data_bytes"].Or<uint64_t>(0),
                 100 * JsonView(state->second)["hash"]["unit_fill"].Or(0.0));
    }
    return kDone;
  }
  return Fail(absl::NotFoundError(fmt::format("there is no table {}", flags.table)));
}

}  // namespace cell
