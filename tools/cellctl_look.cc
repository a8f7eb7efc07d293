// cellctl: what servers and clients say of themselves.
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

#include "fmt/format.h"
#include "tools/cellctl_commands.h"

namespace cell {
namespace {

double Share(const nlohmann::json& region, const char* used, const char* total) {
  const double all = region.value(total, 0.0);
  return all == 0 ? 0 : 100 * region.value(used, 0.0) / all;
}

}  // namespace

int Status(Client* client, const CtlFlags& flags) {
  if (!flags.json()) {
    fmt::print("{:<12} {:>9} {:>8} {:>7} {:>5} {:>12} {:>14} {:>7} {:>8} {:>13}\n", "server", "uptime s", "clients",
               "region", "tier", "keys", "data bytes", "nodes", "extents", "fragmentation");
  }
  absl::Status failed;
  for (const absl::StatusOr<std::string>& text : client->ServerStatus()) {
    if (!text.ok()) {
      failed = text.status();
      continue;
    }
    if (flags.json()) {
      fmt::print("{}\n", *text);
      continue;
    }
    const auto json = nlohmann::json::parse(*text, nullptr, false);
    if (json.is_discarded()) return Fail(absl::DataLossError("the server's status is not JSON"));
    for (const auto& region : json["regions"]) {
      const bool hash = region.contains("hash");
      fmt::print("{:<12} {:>9.0f} {:>8} {:>7} {:>5} {:>12} {:>14} {:>6.1f}% {:>7.1f}% {:>12.1f}%\n",
                 json.value("server", ""), json.value("uptime_seconds", 0.0), json.value("connections", 0),
                 region.value("region", 0), hash ? "hash" : fmt::format("{}", region.value("tier", 0)),
                 region.value("keys", uint64_t{0}), region.value("data_bytes", uint64_t{0}),
                 hash ? 100 * region["hash"].value("unit_fill", 0.0) : Share(region, "nodes_used", "nodes"),
                 Share(region, "extent_bytes_used", "extent_bytes"), 100 * region.value("fragmentation", 0.0));
    }
  }
  return failed.ok() ? kDone : Fail(failed);
}

int Check(Client* client, const CtlFlags& flags) {
  const auto check = client->Check();
  if (!check.ok()) return Fail(check.status());
  for (const std::string& text : check->regions_json) {
    if (flags.json()) {
      fmt::print("{}\n", text);
      continue;
    }
    const auto region = nlohmann::json::parse(text, nullptr, false);
    if (region.contains("hash")) {
      fmt::print("region {}: {} keys of a table: {}\n", region.value("region", 0), region.value("keys", uint64_t{0}),
                 region["errors"].empty() ? "no errors" : "DAMAGED");
      continue;
    }
    fmt::print("region {}: {} {} in {} leaves, {} nodes, {} levels, {} half splits: {}\n", region.value("region", 0),
               region.value("keys", uint64_t{0}), region.value("tier", 0) == 0 ? "keys" : "routes",
               region.value("leaves", uint64_t{0}), region.value("nodes", uint64_t{0}), region.value("levels", 0),
               region.value("half_splits", uint64_t{0}),
               region.value("error_count", uint64_t{0}) == 0 ? "no errors" : "DAMAGED");
  }
  for (const std::string& error : check->errors) fmt::print("  {}\n", error);
  if (!check->errors.empty()) {
    return Fail(absl::DataLossError(fmt::format("{} errors", check->errors.size())));
  }
  if (!flags.json()) {
    fmt::print("{} keys{} in {} regions, {} routes still missing: no errors\n", check->keys,
               check->table_keys == 0 ? "" : fmt::format(", and {} in tables,", check->table_keys),
               check->regions_json.size(), check->missing_routes);
  }
  return kDone;
}

// What all clients have done, by their own reports to the servers.
int Top(Client* client, const CtlFlags& flags) {
  struct Totals {
    double operations = 0, server = 0, client = 0, retries = 0;
    double lookups = 0, lookup_reads = 0, torn = 0, replaced = 0, moved = 0;  // Of tables, by reads.
  };
  Totals last;
  double last_uptime = 0;
  for (int i = 0; flags.count == 0 || i <= flags.count; ++i) {
    Totals now;
    double uptime = 0, p50 = 0, p99 = 0, weight = 0;
    size_t clients = 0;
    for (const absl::StatusOr<std::string>& text : client->ServerStatus()) {
      if (!text.ok()) return Fail(text.status());
      const auto json = nlohmann::json::parse(*text, nullptr, false);
      if (json.is_discarded()) return Fail(absl::DataLossError("the server's status is not JSON"));
      uptime = std::max(uptime, json.value("uptime_seconds", 0.0));
      const auto add = [&now](const nlohmann::json& report) {
        now.operations += report.value("operations", 0.0);
        now.server += report.value("server_path", 0.0);
        now.client += report.value("client_path", 0.0);
        now.retries += report.value("retries", 0.0);
        now.lookups += report.value("lookups", 0.0);
        now.lookup_reads += report.value("lookup_reads", 0.0);
        now.torn += report.value("lookup_torn", 0.0);
        now.replaced += report.value("lookup_extents", 0.0);
        now.moved += report.value("lookup_moved", 0.0);
      };
      add(json["departed_clients"]);
      for (const auto& report : json["clients"]) {
        add(report);
        ++clients;
        const double operations = report.value("operations", 0.0);
        p50 += operations * report.value("p50_us", 0.0);
        p99 = std::max(p99, report.value("p99_us", 0.0));
        weight += operations;
      }
    }
    if (i > 0) {
      const double seconds = std::max(uptime - last_uptime, 1e-3);
      const double walked = now.server + now.client - last.server - last.client;
      const double lookups = now.lookups - last.lookups;
      const nlohmann::json row = {
          {"operations_per_second", (now.operations - last.operations) / seconds},
          {"p50_us", weight == 0 ? 0 : p50 / weight},
          {"p99_us", p99},
          {"server_share", walked == 0 ? 0 : (now.server - last.server) / walked},
          {"retries_per_second", (now.retries - last.retries) / seconds},
          {"table_lookups_per_second", lookups / seconds},
          {"reads_per_lookup", lookups == 0 ? 0 : (now.lookup_reads - last.lookup_reads) / lookups},
          {"lookups_torn_per_second", (now.torn - last.torn) / seconds},
          {"lookups_replaced_per_second", (now.replaced - last.replaced) / seconds},
          {"lookups_moved_per_second", (now.moved - last.moved) / seconds},
          {"clients", clients}};
      if (flags.json()) {
        fmt::print("{}\n", row.dump());
      } else {
        if (i % 20 == 1) {
          fmt::print("{:>14} {:>10} {:>10} {:>8} {:>8} {:>11} {:>8}   {}\n", "operations/s", "p50 us", "p99 us",
                     "server", "client", "retries/s", "clients",
                     "tables: lookups/s, reads each, torn/s, replaced/s, moved/s");
        }
        const double share = row["server_share"].get<double>();
        const std::string tables =
            lookups == 0 ? "-"
                         : fmt::format("{:.0f}, {:.2f}, {:.1f}, {:.1f}, {:.1f}", lookups / seconds,
                                       row["reads_per_lookup"].get<double>(), (now.torn - last.torn) / seconds,
                                       (now.replaced - last.replaced) / seconds, (now.moved - last.moved) / seconds);
        fmt::print("{:>14.0f} {:>10.1f} {:>10.1f} {:>7.1f}% {:>7.1f}% {:>11.1f} {:>8}   {}\n",
                   row["operations_per_second"].get<double>(), row["p50_us"].get<double>(), p99, 100 * share,
                   walked == 0 ? 0 : 100 * (1 - share), row["retries_per_second"].get<double>(), clients, tables);
      }
      std::fflush(stdout);
      if (i == flags.count) break;
    }
    last = now;
    last_uptime = uptime;
    std::this_thread::sleep_for(std::chrono::duration<double>(flags.interval));
  }
  return kDone;
}

}  // namespace cell
