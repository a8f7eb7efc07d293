// cellctl: looks at a Cell cluster and changes what is in it. With a command, runs it; without, gives a prompt.

#include <histedit.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "cell/base/status_macros.h"
#include "cell/client/client.h"
#include "cell/control/control_client.h"
#include "cell/layout/limits.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr int kDone = 0, kAbsent = 1, kError = 2;

struct Flags {
  std::string cluster;
  std::string zookeeper_digest;
  ControlTls tls;
  uint32_t region = 0;
  std::string server;
  std::string level;
  bool cancel = false;
  std::string path = "hybrid";
  std::string output = "text";
  double timeout = 5;

  std::string key, value, from, to, prefix, file;
  bool has_to = false, has_prefix = false, keys_only = false;
  uint64_t limit = UINT64_MAX;
  double interval = 1;
  int count = 0;

  bool json() const { return output == "json"; }
};

int Fail(const absl::Status& status) {
  std::fflush(stdout);
  fmt::print(stderr, "cellctl: {}\n", std::string(status.message()));
  return kError;
}

bool IsUtf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const auto c = static_cast<unsigned char>(bytes[i]);
    const int more = c < 0x80                ? 0
                     : c >= 0xc2 && c < 0xe0 ? 1
                     : c >= 0xe0 && c < 0xf0 ? 2
                     : c >= 0xf0 && c < 0xf5 ? 3
                                             : -1;
    if (more < 0 || i + static_cast<size_t>(more) >= bytes.size()) return false;
    uint32_t point = more == 0 ? c : c & (0x3f >> more);
    for (int k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(bytes[i + static_cast<size_t>(k)]);
      if ((next & 0xc0) != 0x80) return false;
      point = point << 6 | (next & 0x3f);
    }
    if ((more == 2 && (point < 0x800 || (point >= 0xd800 && point < 0xe000))) ||
        (more == 3 && (point < 0x10000 || point > 0x10ffff))) {
      return false;
    }
    i += static_cast<size_t>(more) + 1;
  }
  return true;
}

// Text as a JSON string; bytes that are not UTF-8 as {"hex": "..."}.
nlohmann::json BytesAsJson(std::string_view bytes) {
  if (IsUtf8(bytes)) return std::string(bytes);
  std::string hex;
  for (unsigned char c : bytes) hex += fmt::format("{:02x}", c);
  return {{"hex", hex}};
}

absl::StatusOr<std::string> ReadAll(std::istream& in) {
  std::string value;
  std::vector<char> piece(1 << 16);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) || in.gcount() > 0) {
    value.append(piece.data(), static_cast<size_t>(in.gcount()));
    if (value.size() > kValueBytesMax) {
      return absl::InvalidArgumentError(
          fmt::format("the value on standard input is larger than {} bytes", kValueBytesMax));
    }
  }
  return value;
}

// ---- The commands. Each gives an exit status.

int Put(Client* client, const Flags& flags) {
  std::string value = flags.value;
  if (value == "-") {
    absl::StatusOr<std::string> read = ReadAll(std::cin);
    if (!read.ok()) return Fail(read.status());
    value = *std::move(read);
  }
  const absl::StatusOr<bool> existed = client->Put(flags.key, value);
  if (!existed.ok()) return Fail(existed.status());
  if (flags.json()) fmt::print("{}\n", nlohmann::json{{"replaced", *existed}}.dump());
  return kDone;
}

int Get(Client* client, const Flags& flags) {
  const auto value = client->Get(flags.key);
  if (!value.ok()) return Fail(value.status());
  if (flags.json()) {
    nlohmann::json json = {{"key", BytesAsJson(flags.key)}, {"found", value->has_value()}};
    if (value->has_value()) json["value"] = BytesAsJson(**value);
    fmt::print("{}\n", json.dump());
  } else if (value->has_value()) {
    std::fwrite((*value)->data(), 1, (*value)->size(), stdout);
    if (::isatty(STDOUT_FILENO) != 0) fmt::print("\n");
  }
  return value->has_value() ? kDone : kAbsent;
}

int Has(Client* client, const Flags& flags) {
  const absl::StatusOr<bool> found = client->Contains(flags.key);
  if (!found.ok()) return Fail(found.status());
  if (flags.json()) fmt::print("{}\n", nlohmann::json{{"found", *found}}.dump());
  return *found ? kDone : kAbsent;
}

int Del(Client* client, const Flags& flags) {
  const absl::StatusOr<bool> existed = client->Delete(flags.key);
  if (!existed.ok()) return Fail(existed.status());
  if (flags.json()) fmt::print("{}\n", nlohmann::json{{"deleted", *existed}}.dump());
  return *existed ? kDone : kAbsent;
}

int RunScan(Client* client, const Flags& flags) {
  ScanOptions options;
  if (flags.has_prefix) {
    options = PrefixScan(flags.prefix);
  } else {
    options.from = flags.from;
    if (flags.has_to) options.to = flags.to;
  }
  options.limit = flags.limit;
  options.keys_only = flags.keys_only;
  Scan scan = client->NewScan(std::move(options));
  absl::StatusOr<bool> more = scan.Next();
  for (; more.ok() && *more; more = scan.Next()) {
    if (flags.json()) {
      nlohmann::json json = {{"key", BytesAsJson(scan.key())}};
      if (!flags.keys_only) json["value"] = BytesAsJson(scan.value());
      fmt::print("{}\n", json.dump());
      continue;
    }
    std::fwrite(scan.key().data(), 1, scan.key().size(), stdout);
    if (!flags.keys_only) {
      std::fputc('\t', stdout);
      std::fwrite(scan.value().data(), 1, scan.value().size(), stdout);
    }
    std::fputc('\n', stdout);
    if (std::ferror(stdout) != 0) return kError;  // Nobody reads any more.
  }
  return more.ok() ? kDone : Fail(more.status());
}

// A bar on a terminal, from bytes read so far of a known number (0: unknown).
class Progress {
 public:
  explicit Progress(uint64_t total) : total_(total), shown_(::isatty(STDERR_FILENO) != 0) {}
  ~Progress() {
    if (shown_) fmt::print(stderr, "\r{:79}\r", "");
  }
  void Show(uint64_t bytes, uint64_t records) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    if (total_ == 0) {
      fmt::print(stderr, "\r{} records", records);
      return;
    }
    constexpr size_t kWidth = 40;
    const auto filled = static_cast<size_t>(kWidth * std::min(bytes, total_) / total_);
    fmt::print(stderr, "\r[{:<{}}] {:3}%  {} records", std::string(filled, '#'), kWidth, 100 * bytes / total_, records);
  }

 private:
  const uint64_t total_;
  const bool shown_;
  std::chrono::steady_clock::time_point last_;
};

struct Loading {
  std::istream* in;
  Client* client;
  Progress* progress;
  uint64_t lines = 0, records = 0, bytes = 0;
  absl::Status status;
};

Task<bool> LoadLane(Loading* loading) {
  std::string line;
  while (loading->status.ok() && std::getline(*loading->in, line)) {
    const uint64_t number = ++loading->lines;
    loading->bytes += line.size() + 1;
    if (line.empty()) continue;
    const size_t tab = line.find('\t');
    if (tab == std::string::npos || tab == 0) {
      loading->status = absl::InvalidArgumentError(fmt::format("line {} is not \"key TAB value\"", number));
      break;
    }
    const std::string_view text = line;
    const absl::StatusOr<bool> put = co_await loading->client->AsyncPut(text.substr(0, tab), text.substr(tab + 1));
    if (!put.ok()) {
      if (loading->status.ok()) {
        loading->status =
            absl::Status(put.status().code(), fmt::format("line {}: {}", number, std::string(put.status().message())));
      }
      break;
    }
    ++loading->records;
  }
  co_return true;
}

int Load(Client* client, const Flags& flags) {
  std::ifstream file;
  uint64_t total = 0;
  if (flags.file != "-") {
    file.open(flags.file, std::ios::binary);
    if (!file) return Fail(absl::NotFoundError(fmt::format("cannot read \"{}\"", flags.file)));
    struct stat info;
    if (::stat(flags.file.c_str(), &info) == 0) total = static_cast<uint64_t>(info.st_size);
  }
  absl::Status status;
  uint64_t records = 0;
  const int64_t start_ns = client->NowNs();
  {
    Progress progress(total);
    Loading loading{flags.file == "-" ? &std::cin : &file, client, &progress, 0, 0, 0, {}};
    std::vector<Task<bool>> lanes;
    for (int i = 0; i < 32; ++i) lanes.push_back(LoadLane(&loading));
    for (Task<bool>& lane : lanes) lane.Start();
    for (const Task<bool>& lane : lanes) {
      while (!lane.done()) {
        client->Poll(INT64_MAX);
        progress.Show(loading.bytes, loading.records);
      }
    }
    status = loading.status;
    records = loading.records;
  }
  const double seconds = static_cast<double>(client->NowNs() - start_ns) / 1e9;
  if (!status.ok()) {
    fmt::print(stderr, "cellctl: {} records were loaded before the error\n", records);
    return Fail(status);
  }
  if (flags.json()) {
    fmt::print("{}\n", nlohmann::json{{"records", records}, {"seconds", seconds}}.dump());
  } else {
    fmt::print("{} records loaded in {:.2f} s\n", records, seconds);
  }
  return kDone;
}

double Share(const nlohmann::json& region, const char* used, const char* total) {
  const double all = region.value(total, 0.0);
  return all == 0 ? 0 : 100 * region.value(used, 0.0) / all;
}

int Status(Client* client, const Flags& flags) {
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
      fmt::print("{:<12} {:>9.0f} {:>8} {:>7} {:>5} {:>12} {:>14} {:>6.1f}% {:>7.1f}% {:>12.1f}%\n",
                 json.value("server", ""), json.value("uptime_seconds", 0.0), json.value("connections", 0),
                 region.value("region", 0), region.value("tier", 0), region.value("keys", uint64_t{0}),
                 region.value("data_bytes", uint64_t{0}), Share(region, "nodes_used", "nodes"),
                 Share(region, "extent_bytes_used", "extent_bytes"), 100 * region.value("fragmentation", 0.0));
    }
  }
  return failed.ok() ? kDone : Fail(failed);
}

int Check(Client* client, const Flags& flags) {
  const auto check = client->Check();
  if (!check.ok()) return Fail(check.status());
  for (const std::string& text : check->regions_json) {
    if (flags.json()) {
      fmt::print("{}\n", text);
      continue;
    }
    const auto region = nlohmann::json::parse(text, nullptr, false);
    fmt::print("region {}: {} {} in {} leaves, {} nodes, {} levels, {} half splits: {}\n", region.value("region", 0),
               region.value("keys", uint64_t{0}), region.value("tier", 0) == 0 ? "keys" : "routes",
               region.value("leaves", uint64_t{0}), region.value("nodes", uint64_t{0}), region.value("levels", 0),
               region.value("half_splits", uint64_t{0}),
               region.value("error_count", uint64_t{0}) == 0 ? "no errors" : "DAMAGED");
  }
  for (const std::string& error : check->errors) fmt::print("  {}\n", error);
  if (!check->errors.empty()) {
    return Fail(absl::DataLossError(fmt::format("{} errors in the tree", check->errors.size())));
  }
  if (!flags.json()) {
    fmt::print("{} keys in {} regions, {} routes still missing: no errors\n", check->keys, check->regions_json.size(),
               check->missing_routes);
  }
  return kDone;
}

// What all clients have done, by their own reports to the servers.
int Top(Client* client, const Flags& flags) {
  struct Totals {
    double operations = 0, server = 0, client = 0, retries = 0;
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
      const nlohmann::json row = {{"operations_per_second", (now.operations - last.operations) / seconds},
                                  {"p50_us", weight == 0 ? 0 : p50 / weight},
                                  {"p99_us", p99},
                                  {"server_share", walked == 0 ? 0 : (now.server - last.server) / walked},
                                  {"retries_per_second", (now.retries - last.retries) / seconds},
                                  {"clients", clients}};
      if (flags.json()) {
        fmt::print("{}\n", row.dump());
      } else {
        if (i % 20 == 1) {
          fmt::print("{:>14} {:>10} {:>10} {:>8} {:>8} {:>11} {:>8}\n", "operations/s", "p50 us", "p99 us", "server",
                     "client", "retries/s", "clients");
        }
        const double share = row["server_share"].get<double>();
        fmt::print("{:>14.0f} {:>10.1f} {:>10.1f} {:>7.1f}% {:>7.1f}% {:>11.1f} {:>8}\n",
                   row["operations_per_second"].get<double>(), row["p50_us"].get<double>(), p99, 100 * share,
                   walked == 0 ? 0 : 100 * (1 - share), row["retries_per_second"].get<double>(), clients);
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

// ---- The control plane, of one server or of all.

absl::StatusOr<std::unique_ptr<ControlClient>> ControlOf(Client* client, const Flags& flags, const std::string& name) {
  for (const auto& server : client->Servers()) {
    if (server.name != name) continue;
    if (server.control.empty()) return absl::UnavailableError(fmt::format("{} tells of no control plane", name));
    return ControlClient::Open(server.control, flags.tls);
  }
  return absl::NotFoundError(fmt::format("no server named {} is in the cluster", name));
}

// The server that holds a region, by the servers' own word.
absl::StatusOr<std::unique_ptr<ControlClient>> ControlOfRegion(Client* client, const Flags& flags) {
  for (const auto& server : client->Servers()) {
    ASSIGN_OR_RETURN(std::unique_ptr<ControlClient> control, ControlOf(client, flags, server.name));
    const absl::StatusOr<ControlClient::Regions> regions = control->ListRegions();
    if (!regions.ok()) continue;
    for (const auto& region : regions->regions) {
      if (region.region == flags.region) return control;
    }
  }
  return absl::NotFoundError(fmt::format("no server holds region {}", flags.region));
}

int Regions(Client* client, const Flags& flags) {
  absl::Status failed;
  if (!flags.json()) {
    fmt::print("{:<12} {:>6} {:>8} {:>6} {:>5} {:>12} {:>7}\n", "server", "worker", "region", "epoch", "tier", "keys",
               "fill");
  }
  for (const auto& server : client->Servers()) {
    const auto control = ControlOf(client, flags, server.name);
    const auto regions = control.ok() ? (*control)->ListRegions() : control.status();
    if (!regions.ok()) {
      failed = regions.status();
      continue;
    }
    for (const auto& r : regions->regions) {
      if (flags.json()) {
        fmt::print("{}\n", nlohmann::json{{"server", server.name},
                                          {"worker", r.worker},
                                          {"region", r.region},
                                          {"epoch", r.epoch},
                                          {"tier", r.tier},
                                          {"keys", r.keys},
                                          {"fill", r.fill},
                                          {"busy", r.busy}}
                               .dump());
      } else {
        fmt::print("{:<12} {:>6} {:>8} {:>6} {:>5} {:>12} {:>6.1f}%{}\n", server.name, r.worker, r.region, r.epoch,
                   r.tier, r.keys, 100 * r.fill, r.busy ? "  busy" : "");
      }
    }
  }
  return failed.ok() ? kDone : Fail(failed);
}

int Split(Client* client, const Flags& flags) {
  const auto control = ControlOfRegion(client, flags);
  const absl::Status status = control.ok() ? (*control)->Split(flags.region) : control.status();
  return status.ok() ? kDone : Fail(status);
}

int Move(Client* client, const Flags& flags) {
  const auto control = ControlOfRegion(client, flags);
  const absl::Status status = control.ok() ? (*control)->Move(flags.region, flags.server, 0) : control.status();
  return status.ok() ? kDone : Fail(status);
}

int Drain(Client* client, const Flags& flags) {
  const auto control = ControlOf(client, flags, flags.server);
  const absl::Status status = control.ok() ? (*control)->Drain(flags.cancel) : control.status();
  return status.ok() ? kDone : Fail(status);
}

int Rebalance(Client* client, const Flags& flags) {
  uint64_t moved = 0;
  for (const auto& server : client->Servers()) {
    const auto control = ControlOf(client, flags, server.name);
    const auto its = control.ok() ? (*control)->Rebalance() : control.status();
    if (!its.ok()) return Fail(its.status());
    moved += *its;
  }
  if (flags.json()) {
    fmt::print("{}\n", nlohmann::json{{"moved", moved}}.dump());
  } else {
    fmt::print("{} regions moved\n", moved);
  }
  return kDone;
}

int LogLevel(Client* client, const Flags& flags) {
  const auto control = ControlOf(client, flags, flags.server);
  const absl::Status status = control.ok() ? (*control)->SetLogLevel(flags.level) : control.status();
  return status.ok() ? kDone : Fail(status);
}

using Command = std::function<int(Client*, const Flags&)>;

// Declares the commands on `app`; the one that is parsed is left in *chosen.
void Declare(CLI::App* app, Flags* flags, Command* chosen) {
  app->require_subcommand(0, 1);
  const auto add = [&](const char* name, const char* what, Command command) {
    CLI::App* sub = app->add_subcommand(name, what);
    sub->callback([chosen, command] { *chosen = command; });
    return sub;
  };
  CLI::App* put = add("put", "Store VALUE under KEY; VALUE - reads standard input", Put);
  put->add_option("key", flags->key)->required();
  put->add_option("value", flags->value)->required();
  add("get", "Write KEY's value to standard output", Get)->add_option("key", flags->key)->required();
  add("del", "Delete KEY", Del)->add_option("key", flags->key)->required();
  add("has", "Is KEY stored? By the exit status", Has)->add_option("key", flags->key)->required();
  CLI::App* scan = add("scan", "List key TAB value from FROM (inclusive) to TO (exclusive)", RunScan);
  scan->add_option("from", flags->from);
  CLI::Option* to = scan->add_option("to", flags->to);
  CLI::Option* prefix = scan->add_option("--prefix", flags->prefix, "All keys that begin with this");
  scan->add_option("--limit", flags->limit, "At most so many");
  scan->add_flag("--keys-only", flags->keys_only, "Keys without values");
  scan->parse_complete_callback([flags, to, prefix] {
    flags->has_to = to->count() > 0;
    flags->has_prefix = prefix->count() > 0;
    if (flags->has_prefix && !flags->from.empty()) throw CLI::ValidationError("--prefix", "cannot go with FROM");
  });
  add("load", "Store the lines \"key TAB value\" of FILE, or of standard input (-)", Load)
      ->add_option("file", flags->file)
      ->required();
  add("status", "Each server's regions, keys and fill", Status);
  add("check", "Check every invariant of every tree; stops each server meanwhile (about a second per GB)", Check);
  add("regions", "The regions of all servers, with epoch, tier and fill", Regions);
  add("split", "Split a region's meganode now", Split)->add_option("region", flags->region)->required();
  CLI::App* move = add("move", "Move REGION to SERVER", Move);
  move->add_option("region", flags->region)->required();
  move->add_option("server", flags->server)->required();
  CLI::App* drain = add("drain", "Move all regions away from SERVER, and give it no more", Drain);
  drain->add_option("server", flags->server)->required();
  drain->add_flag("--cancel", flags->cancel, "Give it regions again");
  add("rebalance", "Move regions to servers that hold fewer, until that would not help", Rebalance);
  CLI::App* log_level = add("log-level", "Set what SERVER logs: trace, debug, info, warning, error", LogLevel);
  log_level->add_option("server", flags->server)->required();
  log_level->add_option("level", flags->level)->required();
  CLI::App* top = add("top", "What clients do, line by line: rate, latency, paths, retries", Top);
  top->add_option("--interval", flags->interval, "Seconds between lines")->check(CLI::Range(0.1, 3600.0));
  top->add_option("--count", flags->count, "End after so many lines; 0: never")->check(CLI::NonNegativeNumber);
}

absl::StatusOr<std::unique_ptr<Client>> Open(const Flags& flags) {
  if (flags.cluster.empty()) return absl::InvalidArgumentError("say which cluster: --cluster DIR, or CELL_CLUSTER=DIR");
  ClientOptions options;
  options.cluster = flags.cluster;
  options.zookeeper_digest = flags.zookeeper_digest;
  options.path = *ParsePath(flags.path);
  options.timeout_us = static_cast<int64_t>(flags.timeout * 1e6);
  options.report = false;  // `top` shows the others.
  return Client::Open(options);
}

int Prompt(const Flags& given) {
  absl::StatusOr<std::unique_ptr<Client>> client = Open(given);
  if (!client.ok()) return Fail(client.status());
  const bool terminal = ::isatty(STDIN_FILENO) != 0;
  EditLine* edit = terminal ? el_init("cellctl", stdin, stdout, stderr) : nullptr;
  History* lines = history_init();
  HistEvent event;
  history(lines, &event, H_SETSIZE, 1000);
  const char* home = std::getenv("HOME");
  const std::string history_file = home == nullptr ? "" : std::string(home) + "/.cellctl_history";
  if (edit != nullptr) {
    el_set(
        edit, EL_PROMPT, +[](EditLine*) { return const_cast<char*>("cell> "); });
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_HIST, ::history, lines);
    if (!history_file.empty()) history(lines, &event, H_LOAD, history_file.c_str());
    fmt::print(
        "Commands: put get del has scan load status check top regions split move drain rebalance log-level. help, "
        "exit.\n");
  }
  int last = kDone;
  for (;;) {
    std::string line;
    if (edit != nullptr) {
      int bytes = 0;
      const char* text = el_gets(edit, &bytes);
      if (text == nullptr || bytes <= 0) break;
      line = text;
      history(lines, &event, H_ENTER, text);
    } else if (!std::getline(std::cin, line)) {
      break;
    }
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
    if (line.empty()) continue;
    if (line == "exit" || line == "quit") break;
    Flags flags = given;
    Command command;
    CLI::App app{"", "cell>"};
    Declare(&app, &flags, &command);
    try {
      app.parse(line == "help" ? "--help" : line, false);
      last = command ? command(client->get(), flags) : kError;
      if (!command) fmt::print(stderr, "cellctl: no such command: {}\n", line);
    } catch (const CLI::ParseError& error) {
      last = app.exit(error) == 0 ? kDone : kError;
    }
    std::fflush(stdout);
  }
  if (edit != nullptr) {
    if (!history_file.empty()) history(lines, &event, H_SAVE, history_file.c_str());
    el_end(edit);
  }
  history_end(lines);
  return last;
}

int Main(int argc, char** argv) {
  Flags flags;
  Command command;
  CLI::App app{
      "Looks at a Cell cluster and changes what is in it. Without a command: a prompt.\n"
      "Exit status: 0 found or done, 1 absent, 2 error (one line on standard error)."};
  app.add_option("--cluster", flags.cluster, "The cluster: its directory, or zk://HOST:PORT/NAME")
      ->envname("CELL_CLUSTER");
  app.add_option("--zookeeper-digest", flags.zookeeper_digest, "USER:PASSWORD, if the cluster's znodes need it")
      ->envname("CELL_ZOOKEEPER_DIGEST");
  app.add_option("--tls-authority", flags.tls.authority, "PEM: who signs the control planes' certificates");
  app.add_option("--tls-certificate", flags.tls.certificate, "PEM: ours, if they ask for one");
  app.add_option("--tls-key", flags.tls.key, "PEM: its key");
  app.add_option("--path", flags.path, "Who walks the tree")
      ->check(CLI::IsMember({"server", "client", "hybrid"}))
      ->capture_default_str();
  app.add_option("-o,--output", flags.output, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--timeout", flags.timeout, "Seconds that one operation may take")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  app.fallthrough();
  Declare(&app, &flags, &command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kError;
  }
  ::signal(SIGPIPE, SIG_DFL);
  if (!command) return Prompt(flags);
  absl::StatusOr<std::unique_ptr<Client>> client = Open(flags);
  if (!client.ok()) return Fail(client.status());
  const int result = command(client->get(), flags);
  return std::fflush(stdout) == 0 ? result : kError;
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }
