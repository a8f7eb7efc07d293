// cellctl: reports of servers and clients.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "cell/base/json.h"
#include "cell/io/exec/invocation.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tools/cellctl_commands.h"

namespace cell {
namespace {

double Share(JsonView region, const char* used, const char* total) {
  const double all = region[total].Or(0.0);
  return all == 0 ? 0 : 100 * region[used].Or(0.0) / all;
}

// Sums up the reports of a server's workers.
struct ServerSum {
  size_t workers = 0, regions = 0, regions_max = 0, connections = 0, failed_logs = 0;
  size_t not_served = 0;  // Regions that it owns according to the region table, and neither serves nor recovers.
  size_t not_begun = 0;   // Regions that it is to recover, and of which it has nothing in memory yet.
  uint64_t keys = 0, data_bytes = 0;
  uint32_t fullest = 0;  // Of the regions that fill up.
  size_t fill_up = 0;    // Regions that are nearly full and could not be split.
  double fullest_fill = 0;
  uint64_t evicted = 0;
  double uptime_seconds = 0;
  bool draining = false, lapsed = false;

  void Add(JsonView json) {
    ++workers;
    connections += json["connections"].Or<uint64_t>(0);
    regions_max += json["regions_max"].Or<uint64_t>(0);
    evicted += json["evicted"].Or<uint64_t>(0);
    uptime_seconds = std::max(uptime_seconds, json["uptime_seconds"].Or(0.0));
    draining |= json["draining"].Or(false);
    lapsed |= json["lease_lapsed"].Or(false);
    for (const JsonView region : json["regions"].elements()) {
      ++regions;
      keys += region["tier"].Or<uint32_t>(0) == 0 ? region["keys"].Or<uint64_t>(0) : 0;
      data_bytes += region["data_bytes"].Or<uint64_t>(0);
      if (region["fills_up"].Or(false)) {
        ++fill_up;
        const double fill = region["fill"].Or(0.0);
        if (fill >= fullest_fill) fullest = region["region"].Or<uint32_t>(0);
        fullest_fill = std::max(fullest_fill, fill);
      }
      failed_logs += region["state"].Or<std::string>("").find("log failed") != std::string::npos;
    }
  }
  std::string State() const {
    if (workers == 0) return "no answer";
    if (lapsed) return "no lease";
    return draining ? "draining" : "serving";
  }
  bool HasRoom() const { return regions < regions_max && !draining; }
  // It recovers no more regions, because it holds as many as it may.
  bool LacksRoom() const { return workers > 0 && not_begun > 0 && regions >= regions_max; }
  // Returns what is wrong, or "". `has_room`: some server may hold one more region.
  std::string Wrong(bool has_room) const {
    std::vector<std::string> wrong;
    if (workers == 0) wrong.push_back("it has ended, is suspended, or cannot be reached");
    if (not_served > 0) wrong.push_back(fmt::format("{} of its regions are not served", not_served));
    if (workers == 0) return fmt::format("{}", fmt::join(wrong, "; "));
    if (lapsed) wrong.push_back("it cannot renew its session, and accepts no writes");
    if (failed_logs > 0) {
      wrong.push_back(fmt::format("the logs of {} regions have failed: these regions accept no writes", failed_logs));
    }
    if (fill_up > 0) {
      wrong.push_back(fmt::format(
          "{} nearly full and could not be split: region {} is {:.0f} % full{}",
          fill_up == 1 ? "1 region is" : fmt::format("{} regions are", fill_up), fullest, 100 * fullest_fill,
          evicted == 0 ? "" : fmt::format(" (the server has evicted {} pairs so far)", evicted)));
    }
    if (LacksRoom()) {
      wrong.push_back(fmt::format(
          "it holds its maximum number of regions, so {} of its regions cannot be recovered: raise --regions-max",
          not_begun));
    } else if (!has_room) {
      wrong.push_back("no server may hold one more region (--regions-max)");
    }
    return fmt::format("{}", fmt::join(wrong, "; "));
  }
};

// Parses the workers' answers to ServerStatus (`texts`). A region that migrates meanwhile may be in two of them. It is
// kept in the answer with the newer epoch.
std::vector<nlohmann::json> Answers(const std::vector<absl::StatusOr<std::string>>& texts) {
  std::vector<nlohmann::json> answers;
  std::map<uint32_t, uint64_t> epochs;
  const auto epoch_of = [](JsonView region) { return region["epoch"].Or<uint64_t>(0); };
  for (const auto& text : texts) {
    absl::StatusOr<nlohmann::json> json = text.ok() ? ParseJson(*text) : text.status();
    if (!json.ok()) continue;
    answers.push_back(*std::move(json));
    for (const JsonView region : JsonView(answers.back())["regions"].elements()) {
      uint64_t& newest = epochs[region["region"].Or<uint32_t>(0)];
      newest = std::max(newest, epoch_of(region));
    }
  }
  for (nlohmann::json& answer : answers) {
    const auto regions = answer.find("regions");
    if (regions == answer.end() || !regions->is_array()) continue;
    nlohmann::json kept = nlohmann::json::array();
    for (const nlohmann::json& region : *regions) {
      const JsonView view(region);
      if (epoch_of(view) == epochs[view["region"].Or<uint32_t>(0)]) kept.push_back(region);
    }
    *regions = std::move(kept);
  }
  return answers;
}

// Returns all servers of the cluster by name, including those that do not answer.
std::map<std::string, ServerSum> SumUp(Client* client, const std::vector<nlohmann::json>& answers) {
  std::map<std::string, ServerSum> servers;
  for (const auto& server : client->Servers()) servers[server.name];
  for (const nlohmann::json& answer : answers) servers[JsonView(answer)["server"].Or<std::string>("")].Add(answer);
  return servers;
}

// A region that its owner does not serve.
struct NotServed {
  Client::RegionInfo region;
  std::string why;
  bool failed;     // It is not being recovered, because that has failed.
  bool in_memory;  // A server has it, or what is recovered of it so far.
};

// Combines the servers' own reports with the region table.
struct Overview {
  std::vector<absl::StatusOr<std::string>> texts;  // One per worker.
  std::vector<nlohmann::json> answers;             // Those that could be parsed.
  std::map<std::string, ServerSum> servers;        // Keyed by name, including those that do not answer.
  std::vector<NotServed> not_served;               // One per region.
  absl::Status wrong;                              // OK: everything that should be there is.
  std::string table;                               // "N of M" regions are in the region table.
  bool table_nearly_full = false;
};

absl::Status FirstError(const std::vector<absl::StatusOr<std::string>>& texts) {
  for (const auto& text : texts) {
    if (!text.ok()) return text.status();
  }
  return absl::OkStatus();
}

// Returns the regions whose recovery has failed, and why.
std::map<uint32_t, std::string> FailedRecoveries(const std::vector<nlohmann::json>& answers) {
  std::map<uint32_t, std::string> failed;
  for (const nlohmann::json& answer : answers) {
    for (const JsonView one : JsonView(answer)["recovery_failures"].elements()) {
      failed[one["region"].Or<uint32_t>(0)] = one["why"].Or<std::string>("");
    }
  }
  return failed;
}

std::string WhyNotServed(const Client::RegionInfo& region, const std::map<std::string, ServerSum>& servers) {
  if (region.recovering) return "being recovered from its log";
  const auto owner = servers.find(region.server);
  if (owner == servers.end()) return "not served: its server is gone";
  if (owner->second.workers == 0) return "not served: its server does not answer";
  return "not served: its server does not serve it yet";
}

// Makes an overview once. Ignores regions that are not part of the tree yet. A region that migrates meanwhile may seem
// to have no server.
Overview LookOnce(Client* client, Client::RegionList* table) {
  Overview overview;
  overview.texts = client->ServerStatus();
  overview.answers = Answers(overview.texts);
  overview.servers = SumUp(client, overview.answers);
  std::set<uint32_t> held;
  for (const nlohmann::json& answer : overview.answers) {
    for (const JsonView region : JsonView(answer)["regions"].elements()) held.insert(region["region"].Or<uint32_t>(0));
  }
  *table = client->Regions();
  const std::map<uint32_t, std::string> failures = FailedRecoveries(overview.answers);
  for (const Client::RegionInfo& region : table->regions) {
    if (region.in_making || (held.contains(region.region) && !region.recovering)) continue;
    const auto failure = failures.find(region.region);
    const bool failed = failure != failures.end();
    std::string why =
        failed ? fmt::format("its recovery failed: {}", failure->second) : WhyNotServed(region, overview.servers);
    overview.not_served.push_back({region, std::move(why), failed, held.contains(region.region)});
  }
  return overview;
}

constexpr int kLooksMax = 4;

// Makes an overview. A region that migrates while servers are asked one after the other may be missed at both. If its
// owner answers, it counts as not served only if it is repeatedly not found with the same owner.
Overview Look(Client* client) {
  Client::RegionList table;
  Overview overview = LookOnce(client, &table);
  const auto may_move = [&overview](const NotServed& one) {
    const auto owner = overview.servers.find(one.region.server);
    return !one.region.recovering && owner != overview.servers.end() && owner->second.workers > 0;
  };
  for (int looks = 1; looks < kLooksMax; ++looks) {
    if (std::none_of(overview.not_served.begin(), overview.not_served.end(), may_move)) break;
    std::map<uint32_t, uint64_t> before;
    for (const NotServed& one : overview.not_served) before[one.region.region] = one.region.epoch;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    overview = LookOnce(client, &table);
    std::erase_if(overview.not_served, [&](const NotServed& one) {
      const auto it = before.find(one.region.region);
      return may_move(one) && (it == before.end() || it->second != one.region.epoch);
    });
  }
  overview.wrong = FirstError(overview.texts);
  for (const NotServed& one : overview.not_served) {
    ServerSum& owner = overview.servers[one.region.server];
    if (!one.region.recovering || one.failed) ++owner.not_served;
    if (one.region.recovering && !one.in_memory) ++owner.not_begun;
    const bool fails = !one.region.recovering || one.region.region == table.root;
    if (!fails || !overview.wrong.ok()) continue;
    overview.wrong = absl::UnavailableError(fmt::format("region {}{} of {}: {}", one.region.region,
                                                        one.region.region == table.root ? ", the tree's root," : "",
                                                        one.region.server, one.why));
  }
  for (const auto& [name, sum] : overview.servers) {
    if (sum.LacksRoom()) overview.wrong = absl::UnavailableError(fmt::format("{}: {}", name, sum.Wrong(true)));
  }
  if (overview.wrong.ok() && table.root == 0) {
    overview.wrong = absl::UnavailableError(
        overview.answers.empty() ? "the cluster has no root yet: no server has started"
                                 : "the cluster has no root yet: its first server is about to create it");
  }
  overview.table = fmt::format("{} of {}", table.regions.size(), table.regions_max);
  overview.table_nearly_full = table.regions.size() * 10 >= table.regions_max * 9;
  return overview;
}

bool HasRoom(const std::map<std::string, ServerSum>& servers) {
  return std::any_of(servers.begin(), servers.end(), [](const auto& one) { return one.second.HasRoom(); });
}

// Returns the entry of a server that does not answer.
nlohmann::json SilentJson(const std::string& name, const Overview& overview) {
  nlohmann::json json = {{"server", name},
                         {"error", overview.servers.at(name).Wrong(HasRoom(overview.servers))},
                         {"regions", nlohmann::json::array()},
                         {"regions_not_served", nlohmann::json::array()}};
  for (const NotServed& one : overview.not_served) {
    if (one.region.server != name) continue;
    json["regions_not_served"].push_back({{"region", one.region.region}, {"state", one.why}});
  }
  return json;
}

}  // namespace

int Status(Client* client, const CtlFlags& flags) {
  const Overview overview = Look(client);
  const auto& [texts, answers, servers, not_served, wrong, table, table_nearly_full] = overview;
  if (flags.json()) {
    for (const auto& text : texts) {
      if (text.ok()) fmt::print("{}\n", *text);
    }
    for (const auto& [name, sum] : servers) {
      if (sum.workers == 0) fmt::print("{}\n", JsonText(SilentJson(name, overview)));
    }
    return wrong.ok() ? kDone : Fail(wrong);
  }
  fmt::print("{:<12} {:<10} {:>9} {:>8} {:>9} {:>12} {:>14}  {}\n", "server", "state", "uptime s", "clients", "regions",
             "keys", "data bytes", "what is wrong");
  const bool has_room = HasRoom(servers);
  ServerSum all;
  for (const auto& [name, sum] : servers) {
    const std::string what = sum.Wrong(has_room);
    fmt::print("{:<12} {:<10} {:>9.0f} {:>8} {:>9} {:>12} {:>14}  {}\n", name, sum.State(), sum.uptime_seconds,
               sum.connections, fmt::format("{}/{}", sum.regions, sum.regions_max), sum.keys, sum.data_bytes,
               what.empty() ? "-" : what);
    all.regions += sum.regions;
    all.regions_max += sum.regions_max;
    all.keys += sum.keys;
    all.data_bytes += sum.data_bytes;
  }
  if (servers.size() > 1) {
    fmt::print("{:<12} {:<10} {:>9} {:>8} {:>9} {:>12} {:>14}\n", "all", "", "", "",
               fmt::format("{}/{}", all.regions, all.regions_max), all.keys, all.data_bytes);
  }
  fmt::print("\n{:<12} {:>7} {:>5} {:>12} {:>14} {:>7} {:>8} {:>13}  {}\n", "server", "region", "tier", "keys",
             "data bytes", "nodes", "extents", "fragmentation", "state");
  for (const nlohmann::json& answer : answers) {
    const JsonView json(answer);
    for (const JsonView region : json["regions"].elements()) {
      const bool hash = region["hash"].there();
      fmt::print("{:<12} {:>7} {:>5} {:>12} {:>14} {:>6.1f}% {:>7.1f}% {:>12.1f}%  {}\n",
                 json["server"].Or<std::string>(""), region["region"].Or<uint32_t>(0),
                 hash ? "hash" : fmt::format("{}", region["tier"].Or<uint32_t>(0)), region["keys"].Or<uint64_t>(0),
                 region["data_bytes"].Or<uint64_t>(0),
                 hash ? 100 * region["hash"]["unit_fill"].Or(0.0) : Share(region, "nodes_used", "nodes"),
                 Share(region, "extent_bytes_used", "extent_bytes"), 100 * region["fragmentation"].Or(0.0),
                 region["state"].Or<std::string>(""));
    }
  }
  if (overview.table_nearly_full) {
    fmt::print(stderr, "warning: the region table is nearly full ({} regions): no region can be split once it is\n",
               overview.table);
  }
  for (const auto& [region, why, failed, in_memory] : not_served) {
    fmt::print("{:<12} {:>7} {:>5} {:>12} {:>14} {:>7} {:>8} {:>13}  {}\n", region.server, region.region, "-", "-", "-",
               "-", "-", "-", why);
  }
  return wrong.ok() ? kDone : Fail(wrong);
}

namespace {

// Waits until no region is being recovered, but not longer than an operation may take. After a start of the cluster and
// during takeovers, a check would end at the first region that is not served yet.
absl::Status AwaitRecoveries(Client* client, const CtlFlags& flags) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(flags.timeout);
  for (bool told = false;; told = true) {
    std::vector<uint32_t> left;
    for (const Client::RegionInfo& region : client->Regions().regions) {
      if (region.recovering) left.push_back(region.region);
    }
    if (left.empty()) return absl::OkStatus();
    const std::string what = fmt::format("{} region{}", left.size(), left.size() == 1 ? "" : "s");
    if (std::chrono::steady_clock::now() >= end) {
      return absl::UnavailableError(fmt::format(
          "nothing was checked, because the recovery of {} from the logs has not ended (the first is region {}): try "
          "again, or wait longer (--timeout); the server's messages say what is wrong with a log",
          what, left.front()));
    }
    if (!told) fmt::print(stderr, "cellctl: waiting for the recovery of {} from the logs\n", what);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace

int Check(Client* client, const CtlFlags& flags) {
  if (const absl::Status recovered = AwaitRecoveries(client, flags); !recovered.ok()) return Fail(recovered);
  if (const absl::Status connected = client->Connect(); !connected.ok()) return Fail(connected);
  const auto check = client->Check();
  if (!check.ok()) return Fail(check.status());
  size_t written = 0;
  for (const std::string& text : check->regions_json) {
    if (flags.json()) {
      fmt::print("{}\n", text);
      continue;
    }
    const absl::StatusOr<nlohmann::json> parsed = ParseJson(text);
    if (!parsed.ok()) return Fail(parsed.status());
    const JsonView region(*parsed);
    const auto count = [region](const char* name) { return region[name].Or<uint64_t>(0); };
    const bool whole = region["whole"].Or<bool>(true);
    written += whole ? 0 : 1;
    const std::string_view meanwhile = whole ? "" : " (written meanwhile)";
    if (region["hash"].there()) {
      fmt::print("region {}: {} keys of a table: {}{}\n", count("region"), count("keys"),
                 region["errors"].elements().empty() ? "no errors" : "DAMAGED", meanwhile);
      continue;
    }
    fmt::print("region {}: {} {} in {} leaves, {} nodes, {} levels, {} half splits: {}{}\n", count("region"),
               count("keys"), count("tier") == 0 ? "keys" : "routes", count("leaves"), count("nodes"), count("levels"),
               count("half_splits"), count("error_count") == 0 ? "no errors" : "DAMAGED", meanwhile);
  }
  for (const std::string& error : check->errors) fmt::print("  {}\n", error);
  if (!check->errors.empty()) {
    return Fail(absl::DataLossError(fmt::format("{} errors", check->errors.size())));
  }
  if (!flags.json()) {
    fmt::print("{} keys{} in {} regions, {} routes not added yet: no errors\n", check->keys,
               check->table_keys == 0 ? "" : fmt::format(", and {} in tables,", check->table_keys),
               check->regions_json.size(), check->missing_routes);
    if (written > 0) {
      fmt::print(
          "{} of the regions were written, split or moved meanwhile: every pair was checked, but not whether all "
          "space is accounted for; for that, check again when nobody writes\n",
          written);
    }
  }
  return kDone;
}

// Shows what all clients have done, by their own reports to the servers.
int Top(Client* client, const CtlFlags& flags) {
  struct Totals {
    double operations = 0, server = 0, client = 0, retries = 0, reads = 0, round_trips = 0;
    double lookups = 0, lookup_reads = 0, torn = 0, replaced = 0, moved = 0;  // Lookups by remote reads.
    double splits = 0, joins = 0, expired = 0, evicted = 0;
  };
  Totals last;
  double last_uptime = 0;
  std::string said;  // The problems that were reported last.
  for (int i = 0; flags.count == 0 || i <= flags.count; ++i) {
    Totals now;
    double uptime = 0, p50 = 0, p99 = 0, weight = 0;
    size_t clients = 0;
    const std::vector<absl::StatusOr<std::string>> texts = client->ServerStatus();
    const std::vector<nlohmann::json> answers = Answers(texts);
    const std::map<std::string, ServerSum> servers = SumUp(client, answers);
    size_t serving = 0;
    std::string wrong;
    for (const auto& [name, sum] : servers) {
      serving += sum.workers > 0;
      const std::string what = sum.Wrong(HasRoom(servers));
      if (!what.empty()) wrong += fmt::format("{}{}: {}", wrong.empty() ? "" : "; ", name, what);
    }
    if (serving == 0) return Fail(FirstError(texts));
    for (const nlohmann::json& answer : answers) {
      const JsonView json(answer);
      uptime = std::max(uptime, json["uptime_seconds"].Or(0.0));
      const auto add = [&now](JsonView report) {
        now.operations += report["operations"].Or(0.0);
        now.server += report["server_path"].Or(0.0);
        now.client += report["client_path"].Or(0.0);
        now.retries += report["retries"].Or(0.0);
        for (const char* const kind : {"node_reads", "extent_reads", "lookup_reads"}) now.reads += report[kind].Or(0.0);
        now.round_trips += report["calls"].Or(0.0) + report["read_rounds"].Or(0.0);
        now.lookups += report["lookups"].Or(0.0);
        now.lookup_reads += report["lookup_reads"].Or(0.0);
        now.torn += report["lookup_torn"].Or(0.0);
        now.replaced += report["lookup_extents"].Or(0.0);
        now.moved += report["lookup_moved"].Or(0.0);
      };
      now.splits += json["splitter"]["meganodes"]["splits"].Or(0.0);
      now.joins += json["joiner"]["joins"].Or(0.0);
      now.expired += json["expired"].Or(0.0);
      now.evicted += json["evicted"].Or(0.0);
      add(json["departed_clients"]);
      add(json["other_clients"]);
      clients += json["other_clients"]["clients"].Or<uint64_t>(0);
      for (const JsonView report : json["clients"].elements()) {
        add(report);
        ++clients;
        const double operations = report["operations"].Or(0.0);
        p50 += operations * report["p50_us"].Or(0.0);
        p99 = std::max(p99, report["p99_us"].Or(0.0));
        weight += operations;
      }
    }
    if (i > 0) {
      const double seconds = std::max(uptime - last_uptime, 1e-3);
      const double walked = now.server + now.client - last.server - last.client;
      const double lookups = now.lookups - last.lookups;
      const double operations = std::max(0.0, now.operations - last.operations);
      const auto each = [operations](double count) { return operations == 0 ? 0 : std::max(0.0, count) / operations; };
      const nlohmann::json row = {
          {"operations_per_second", operations / seconds},
          {"p50_us", weight == 0 ? 0 : p50 / weight},
          {"p99_us", p99},
          {"reads_per_operation", each(now.reads - last.reads)},
          {"round_trips_per_operation", each(now.round_trips - last.round_trips)},
          {"server_share", walked == 0 ? 0 : (now.server - last.server) / walked},
          {"retries_per_second", (now.retries - last.retries) / seconds},
          {"table_lookups_per_second", lookups / seconds},
          {"reads_per_lookup", lookups == 0 ? 0 : (now.lookup_reads - last.lookup_reads) / lookups},
          {"lookups_torn_per_second", (now.torn - last.torn) / seconds},
          {"lookups_replaced_per_second", (now.replaced - last.replaced) / seconds},
          {"lookups_moved_per_second", (now.moved - last.moved) / seconds},
          {"splits_per_second", (now.splits - last.splits) / seconds},
          {"joins_per_second", (now.joins - last.joins) / seconds},
          {"expired_per_second", (now.expired - last.expired) / seconds},
          {"evicted_per_second", (now.evicted - last.evicted) / seconds},
          {"clients", clients},
          {"servers", servers.size()},
          {"servers_answering", serving},
          {"wrong", wrong}};
      if (flags.json()) {
        fmt::print("{}\n", JsonText(row));
      } else {
        if (i % 20 == 1) {
          fmt::print("{:>14} {:>10} {:>10} {:>9} {:>9} {:>8} {:>8} {:>11} {:>8} {:>8}   {:<36}   {}\n", "operations/s",
                     "p50 us", "p99 us", "reads/op", "trips/op", "server", "client", "retries/s", "clients", "servers",
                     "splits/s, joins/s, gone/s, evicted/s",
                     "tables: lookups/s, reads each, torn/s, replaced/s, moved/s");
        }
        const double share = row["server_share"].get<double>();
        const std::string tables =
            lookups == 0 ? "-"
                         : fmt::format("{:.0f}, {:.2f}, {:.1f}, {:.1f}, {:.1f}", lookups / seconds,
                                       row["reads_per_lookup"].get<double>(), (now.torn - last.torn) / seconds,
                                       (now.replaced - last.replaced) / seconds, (now.moved - last.moved) / seconds);
        const auto rate = [&row](const char* name) { return row[name].get<double>(); };
        const std::string space =
            fmt::format("{:.1f}, {:.1f}, {:.0f}, {:.0f}", rate("splits_per_second"), rate("joins_per_second"),
                        rate("expired_per_second"), rate("evicted_per_second"));
        if (wrong != said) fmt::print("{}\n", wrong.empty() ? "all problems are resolved" : wrong);
        said = wrong;
        fmt::print(
            "{:>14.0f} {:>10.1f} {:>10.1f} {:>9.2f} {:>9.2f} {:>7.1f}% {:>7.1f}% {:>11.1f} {:>8} {:>8}   {:<36}   {}\n",
            row["operations_per_second"].get<double>(), row["p50_us"].get<double>(), p99,
            row["reads_per_operation"].get<double>(), row["round_trips_per_operation"].get<double>(), 100 * share,
            walked == 0 ? 0 : 100 * (1 - share), row["retries_per_second"].get<double>(), clients,
            fmt::format("{}/{}", serving, servers.size()), space, tables);
      }
      if (const absl::Status written = FlushOutput(); !written.ok()) return Fail(written);
      if (i == flags.count) break;
    }
    last = now;
    last_uptime = uptime;
    std::this_thread::sleep_for(std::chrono::duration<double>(flags.interval));
  }
  return kDone;
}

}  // namespace cell
