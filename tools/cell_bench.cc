// cell_bench loads a cluster and measures it. See --help, and docs/results/one-server.md for the meaning of the
// figures.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <system_error>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "cell/base/status_macros.h"
#include "cell/client/client.h"
#include "cell/cmd/help_text.h"
#include "cell/cmd/number_flags.h"
#include "cell/control/control_client.h"
#include "cell/io/exec/invocation.h"
#include "cell/tree/meganode.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tools/bench_data.h"
#include "tools/bench_local.h"
#include "tools/bench_thread.h"
#include "tools/client_flags.h"
#include "tools/command_line.h"

namespace cell {
namespace {

// A client's cache that lets more nodes go for others than this, per operation, is too small.
constexpr double kEvictionsWorthANote = 0.01;

// Puts keys 0 to N - 1 that are not stored, 64 at once.
Task<bool> LoadLane(PairMap* map, uint64_t* next, const BenchFlags& flags, absl::Status* status) {
  std::string key, value;
  while (*next < flags.keys && status->ok()) {
    const uint64_t i = (*next)++;
    MakeKey(i, &key, flags.shape);
    MakeValue(i, 0, &value, flags.shape);
    const absl::StatusOr<bool> put = co_await map->AsyncPut(key, value);
    if (!put.ok()) *status = put.status();
  }
  co_return true;
}

// Creates the table if it is requested and does not exist.
absl::Status MakeTable(Client* client, const BenchFlags& flags) {
  if (flags.table_asked().empty()) return absl::OkStatus();
  for (const Client::TableInfo& table : client->Tables()) {
    if (table.name == flags.table) return absl::OkStatus();
  }
  for (const Client::ServerInfo& server : client->Servers()) {
    if (server.control.empty()) continue;
    ASSIGN_OR_RETURN(const std::unique_ptr<ControlClient> control,
                     ControlClient::Open(server.name, server.control, {}));
    return control->CreateTable(flags.table, flags.layout.wanted(), 0);
  }
  return absl::UnavailableError(fmt::format(
      "no server has a reachable control plane: create the table with cellctl hash create {}", flags.table));
}

absl::Status Load(const BenchFlags& flags, nlohmann::json* json) {
  ClientOptions options = flags.client;
  options.path = Path::kServer;
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Open(options));
  RETURN_IF_ERROR(MakeTable(client.get(), flags));
  ASSIGN_OR_RETURN(PairMap map, PairMap::Open(client.get(), flags.table_asked()));
  std::string key;
  MakeKey(flags.keys - 1, &key, flags.shape);  // Keys are loaded in order, so if the last one is there, all are.
  ASSIGN_OR_RETURN(const bool loaded, client->Run(map.AsyncContains(key)));
  if (loaded) return absl::OkStatus();
  const bool progress = ::isatty(STDERR_FILENO) != 0;
  uint64_t next = 0;
  absl::Status status;
  std::vector<Task<bool>> lanes;
  lanes.reserve(64);
  for (int i = 0; i < 64; ++i) lanes.push_back(LoadLane(&map, &next, flags, &status));
  const int64_t begun_ns = client->NowNs();
  client->ResetMetrics();
  for (Task<bool>& lane : lanes) lane.Start();
  uint64_t shown = 0;
  for (const Task<bool>& lane : lanes) {
    while (!lane.done()) {
      client->Poll(INT64_MAX);
      if (progress && next - shown >= 50'000) fmt::print(stderr, "\rloading {} of {} keys", shown = next, flags.keys);
    }
  }
  if (progress) fmt::print(stderr, "\r{:60}\r", "");
  const double seconds = static_cast<double>(client->NowNs() - begun_ns) / 1e9;
  const Histogram& latency_ns = client->metrics().latency_ns;
  (*json)["load_keys_per_second"] = static_cast<double>(flags.keys) / seconds;
  (*json)["load_longest_put_ms"] = static_cast<double>(latency_ns.max()) / 1e6;
  (*json)["load_p999_ms"] = static_cast<double>(latency_ns.Quantile(0.999)) / 1e6;
  return status;
}

// Deletes all keys with the prefix, or the table. Returns the number of keys, or 0 for a table.
absl::StatusOr<uint64_t> CleanUp(const BenchFlags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Open(flags.client));
  if (!flags.table_asked().empty()) {
    for (const Client::ServerInfo& server : client->Servers()) {
      if (server.control.empty()) continue;
      ASSIGN_OR_RETURN(const std::unique_ptr<ControlClient> control,
                       ControlClient::Open(server.name, server.control, {}));
      RETURN_IF_ERROR(control->DropTable(flags.table));
      return 0;
    }
    return absl::UnavailableError("no server has a reachable control plane, so the table was not dropped");
  }
  ScanOptions options = PrefixScan(flags.shape.prefix);
  options.keys_only = true;
  Scan scan = client->NewScan(std::move(options));
  uint64_t deleted = 0;
  for (;;) {
    auto next = scan.AsyncNextBatch();
    ASSIGN_OR_RETURN(const absl::Span<const Scan::Entry> batch, client->Run(std::move(next)));
    if (batch.empty()) return deleted;
    std::vector<std::string> keys;
    for (const Scan::Entry& entry : batch) keys.emplace_back(entry.key);
    std::vector<Task<absl::StatusOr<bool>>> deletes;
    deletes.reserve(keys.size());
    for (const std::string& key : keys) deletes.push_back(client->AsyncDelete(key));
    for (auto& one : deletes) one.Start();
    absl::Status status;
    for (auto& one : deletes) {
      while (!one.done()) client->Poll(INT64_MAX);
      if (absl::StatusOr<bool> done = one.Take(); !done.ok() && status.ok()) status = done.status();
    }
    RETURN_IF_ERROR(status);
    deleted += keys.size();
  }
}

std::string Shell(const std::string& command) {
  std::string output;
  if (FILE* pipe = ::popen(command.c_str(), "r")) {
    std::array<char, 256> buffer;
    while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) output += buffer.data();
    ::pclose(pipe);
  }
  while (!output.empty() && output.back() == '\n') output.pop_back();
  return output;
}

// Adds the commit of the workspace in which `bazel run` was called, and the machine.
void Describe(const BenchFlags& flags, nlohmann::json* json) {
  const char* workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  std::string commit =
      Shell(fmt::format("git -C '{}' describe --always --dirty 2>/dev/null", workspace == nullptr ? "." : workspace));
  (*json)["commit"] = commit.empty() ? "unknown" : commit;
  (*json)["machine"] = fmt::format("{} cores, {}", std::thread::hardware_concurrency(),
                                   Shell("sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1"));
  (*json)["seed"] = flags.seed;
  (*json)["seconds"] = flags.seconds;
  (*json)["distribution"] = flags.distribution;
  (*json)["keys"] = flags.keys;
  (*json)["workload"] = flags.workload;
}

absl::StatusOr<nlohmann::json> RunCluster(const BenchFlags& flags, const Mix& mix) {
  nlohmann::json json;
  if (flags.load) RETURN_IF_ERROR(Load(flags, &json));
  std::vector<Measured> all(static_cast<size_t>(flags.threads));
  std::vector<std::thread> threads;
  threads.reserve(all.size());
  for (int i = 0; i < flags.threads; ++i) {
    threads.emplace_back([&, i] { all[static_cast<size_t>(i)] = BenchThread(flags, mix, i).Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  Histogram latency_ns;
  ClientMetrics sum;
  double per_second = 0, node_reads_per_second = 0, entries_per_second = 0;
  uint64_t operations = 0, absent = 0, aborted = 0, not_begun = 0;
  for (const Measured& one : all) {
    RETURN_IF_ERROR(one.status);
    latency_ns.Merge(one.latency_ns);
    per_second += static_cast<double>(one.operations) / one.seconds;
    node_reads_per_second += static_cast<double>(one.metrics.node_reads) / one.seconds;
    entries_per_second += static_cast<double>(one.metrics.scanned) / one.seconds;
    operations += one.operations;
    absent += one.absent;
    aborted += one.aborted;
    not_begun += one.not_begun;
    sum.server_path += one.metrics.server_path;
    sum.client_path += one.metrics.client_path;
    sum.node_reads += one.metrics.node_reads;
    sum.extent_reads += one.metrics.extent_reads;
    sum.read_rounds += one.metrics.read_rounds;
    sum.cache_hits += one.metrics.cache_hits;
    sum.cache_evictions += one.metrics.cache_evictions;
    sum.calls += one.metrics.calls;
    sum.route_hits += one.metrics.route_hits;
    sum.torn += one.metrics.torn;
    sum.extent_retries += one.metrics.extent_retries;
    sum.lookups += one.metrics.lookups;
    sum.lookup_reads += one.metrics.lookup_reads;
    sum.lookup_torn += one.metrics.lookup_torn;
    sum.lookup_extents += one.metrics.lookup_extents;
    sum.lookup_moved += one.metrics.lookup_moved;
    sum.table_questions += one.metrics.table_questions;
    sum.table_parts += one.metrics.table_parts;
    sum.table_readings += one.metrics.table_readings;
    sum.errors += one.metrics.errors;
  }
  const auto share = [](uint64_t part, uint64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  const auto us = [&](double quantile) { return static_cast<double>(latency_ns.Quantile(quantile)) / 1e3; };
  json["path"] = flags.path;
  json["fabric"] = flags.client.fabric;
  json["selector"] = flags.client.selector;
  json["prefix"] = flags.shape.prefix;
  json["rate"] = flags.rate;
  if (flags.pause_us > 0) json["pause_us"] = flags.pause_us;
  if (flags.rate > 0) {
    json["not_begun"] = not_begun;
    json["kept_rate"] = not_begun == 0;
  }
  if (not_begun > 0) {
    fmt::print(
        stderr,
        "cell_bench: the rate of {:.0f} was not kept: {:.0f} operations per second were done, and {} operations that "
        "were due never began, so the latencies are too low. Use more --depth or --threads, or a lower --rate\n",
        flags.rate, per_second, not_begun);
  }
  if (const double evictions = share(sum.cache_evictions, operations); evictions > kEvictionsWorthANote) {
    fmt::print(stderr,
               "cell_bench: the clients' caches of {} bytes are too small for the inner nodes that they use: {:.2f} of "
               "them an operation had to go for another. Use more --cache-bytes\n",
               flags.cache_bytes, evictions);
  }
  json["tier"] = flags.tier;
  if (flags.tier == "pilaf") {
    json["lookups"] = sum.lookups;
    json["reads_per_lookup"] = share(sum.lookup_reads, sum.lookups);
    json["lookup_retries"] = {{"torn", static_cast<double>(sum.lookup_torn)},
                              {"replaced", static_cast<double>(sum.lookup_extents)},
                              {"moved", static_cast<double>(sum.lookup_moved)}};
  }
  json["threads"] = flags.threads;
  json["depth"] = flags.depth;
  json["ops_per_second"] = per_second;
  json["latency_us"] = {{"p50", us(0.5)}, {"p90", us(0.9)}, {"p99", us(0.99)}, {"p999", us(0.999)}, {"max", us(1)}};
  json["latency_from"] = flags.rate > 0 ? "intended start" : "start";
  json["server_share"] = share(sum.server_path, sum.server_path + sum.client_path);
  json["calls_per_op"] = share(sum.calls, operations);
  json["round_trips_per_op"] = share(sum.round_trips(), operations);
  json["route_hits_per_op"] = share(sum.route_hits, operations);
  json["node_reads_per_op"] = share(sum.node_reads, operations);
  json["extent_reads_per_op"] = share(sum.extent_reads, operations);
  json["node_reads_per_second"] = node_reads_per_second;
  json["cache_hits_per_op"] = share(sum.cache_hits, operations);
  json["cache_evictions_per_op"] = share(sum.cache_evictions, operations);
  json["entries_per_second"] = entries_per_second;
  if (flags.timeline_ms > 0) {
    Timeline timeline = *std::move(all[0].timeline);
    for (size_t i = 1; i < all.size(); ++i) timeline.Merge(*all[i].timeline);
    json["timeline"] = timeline.ToJson();
    json["began_ns"] = all[0].began_ns;
  }
  if (flags.cleanup) {
    ASSIGN_OR_RETURN(const uint64_t deleted, CleanUp(flags));
    json["deleted"] = deleted;
  }
  json["table_questions"] = sum.table_questions;
  json["table_parts"] = sum.table_parts;
  json["table_readings"] = sum.table_readings;
  json["retries"] = sum.retries();
  json["errors"] = sum.errors;
  json["absent"] = absent;
  if (mix.transacts()) json["aborts_per_op"] = share(aborted, operations);
  return json;
}

absl::StatusOr<nlohmann::json> RunInProcess(const BenchFlags& flags) {
  LocalBench bench;
  bench.operation = flags.operation;
  bench.keys = flags.keys;
  bench.shape = flags.shape;
  bench.seed = flags.seed;
  bench.seconds = flags.seconds;
  bench.zipfian = flags.distribution == "zipfian";
  bench.depth = static_cast<size_t>(flags.depth);
  bench.scan_length = flags.scan_length;
  bench.node_bytes = flags.node_bytes;
  bench.inline_max = flags.inline_max.value_or(std::min(kInlineMaxDefault, InlineBytesMax(flags.node_bytes)));
  bench.lmdb_dir = "/dev/shm";
  ASSIGN_OR_RETURN(const LocalResult result, flags.workload == "lmdb" ? RunLmdb(bench) : RunLocal(bench));
  nlohmann::json json;
  json["operation"] = flags.operation;
  json["depth"] = flags.workload == "lmdb" ? 1 : flags.depth;
  json["ops_per_second"] = static_cast<double>(result.operations) / result.seconds;
  json["entries_per_second"] = static_cast<double>(result.entries) / result.seconds;
  json["load_keys_per_second"] = static_cast<double>(flags.keys) / result.load_seconds;
  json["data_bytes_per_key"] = static_cast<double>(result.data_bytes) / static_cast<double>(flags.keys);
  json["stored_bytes_per_key"] = static_cast<double>(result.stored_bytes) / static_cast<double>(flags.keys);
  return json;
}

void Print(const nlohmann::json& json) {
  fmt::print("{:<24} {}\n", "workload", json["workload"].get<std::string>());
  for (const auto& [name, value] : json.items()) {
    if (name == "workload") continue;
    if (name == "timeline") {
      fmt::print("{:<24} {} buckets, with --json\n", name, value.size());
    } else if (value.is_object()) {
      std::string line;
      for (const auto& [part, number] : value.items()) line += fmt::format("{} {:.1f}  ", part, number.get<double>());
      fmt::print("{:<24} {}\n", name, line);
    } else if (value.is_number_float()) {
      fmt::print("{:<24} {:.3f}\n", name, value.get<double>());
    } else {
      fmt::print("{:<24} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
}

// Refuses flags that would change nothing, so that nobody takes the result for that of the flag.
absl::Status CheckThatFlagsApply(const CLI::App& app, const BenchFlags& flags) {
  const bool local = flags.workload == "local", lmdb = flags.workload == "lmdb";
  const auto refuse = [&](const char* who, std::initializer_list<const char*> names) -> absl::Status {
    for (const char* name : names) {
      if (app.get_option(name)->count() == 0) continue;
      return absl::InvalidArgumentError(
          fmt::format("{} is not for the workload {}: it is for {}", name, flags.workload, who));
    }
    return absl::OkStatus();
  };
  if (!local) RETURN_IF_ERROR(refuse("the workload local", {"--node-bytes", "--inline-max"}));
  if (!local && !lmdb) RETURN_IF_ERROR(refuse("the workloads local and lmdb", {"--operation"}));
  return absl::OkStatus();
}

// Checks the flags before the run.
absl::Status CheckFlags(const BenchFlags& flags) {
  const bool cluster = flags.workload != "local" && flags.workload != "lmdb";
  if (cluster && flags.client.cluster.empty()) {
    return absl::InvalidArgumentError("this workload needs --cluster DIR (or CELL_CLUSTER)");
  }
  if (flags.inline_max.has_value()) RETURN_IF_ERROR(CheckInlineMax(*flags.inline_max, flags.node_bytes));
  if (flags.shape.key_bytes != 0 && flags.shape.key_bytes < flags.shape.prefix.size() + kNumberBytes) {
    return absl::InvalidArgumentError(
        fmt::format("--key-bytes must be at least {}: 8 to distinguish keys, and the {} of --prefix",
                    flags.shape.prefix.size() + kNumberBytes, flags.shape.prefix.size()));
  }
  if (flags.workload == "apply" && (flags.shape.value_bytes == 0 || flags.shape.value_bytes % sizeof(uint64_t) != 0)) {
    return absl::InvalidArgumentError(
        "the workload apply needs --value-bytes, a multiple of 8: values are vectors of u64");
  }
  if (flags.workload.starts_with("tx-") && flags.shape.value_bytes != 0 && flags.shape.value_bytes < sizeof(uint64_t)) {
    return absl::InvalidArgumentError(
        "the workloads tx-... need --value-bytes of at least 8, because values begin with a number");
  }
  if (flags.pause_us > 0 && flags.rate > 0)
    return absl::InvalidArgumentError("--pause-us and --rate exclude each other");
  if (flags.spike_factor > 1 && flags.rate == 0) return absl::InvalidArgumentError("--spike-factor needs --rate");
  if (flags.timeline_ms > 0 && flags.seconds * 1e3 / flags.timeline_ms > static_cast<double>(Timeline::kBucketsMax)) {
    return absl::InvalidArgumentError(fmt::format("{} s are more than {} intervals of {} ms: increase --timeline-ms",
                                                  flags.seconds, Timeline::kBucketsMax, flags.timeline_ms));
  }
  if (flags.cleanup && flags.shape.prefix.empty() && flags.table_asked().empty()) {
    return absl::InvalidArgumentError("--cleanup deletes the keys that begin with --prefix, which must not be empty");
  }
  if (!flags.json.empty() && flags.json != "-") {
    std::ofstream file(flags.json, std::ios::app);
    if (!file) return absl::InvalidArgumentError(fmt::format("cannot write {}", flags.json));
  }
  return absl::OkStatus();
}

absl::Status Run(const BenchFlags& flags) {
  RETURN_IF_ERROR(CheckFlags(flags));
  absl::StatusOr<nlohmann::json> json = absl::InvalidArgumentError("");
  if (flags.workload == "local" || flags.workload == "lmdb") {
    json = RunInProcess(flags);
  } else {
    for (const Mix& mix : Mixes()) {
      const bool scans =
          std::any_of(mix.parts.begin(), mix.parts.end(), [](const auto& p) { return p.first == Op::kScan; });
      if (flags.workload == mix.workload && scans && flags.tier == "pilaf") {
        return absl::InvalidArgumentError(
            fmt::format("{} is a scan workload, but Pilaf tables have no order and cannot be scanned", flags.workload));
      }
      if (flags.workload == mix.workload && mix.transacts() && flags.tier == "pilaf") {
        return absl::InvalidArgumentError(
            fmt::format("{} is a workload of transactions in the tree: it is not for Pilaf tables", flags.workload));
      }
      if (flags.workload == mix.workload) json = RunCluster(flags, mix);
    }
  }
  RETURN_IF_ERROR(json.status());
  Describe(flags, &*json);
  if (flags.json.empty()) {
    Print(*json);
  } else if (flags.json == "-") {
    fmt::print("{}\n", json->dump(2));
  } else {
    std::ofstream file(flags.json);
    file << json->dump(2) << "\n";
    file.flush();
    if (!file) return absl::InvalidArgumentError(fmt::format("cannot write {}", flags.json));
  }
  return FlushOutput();
}

// Calls Run. fmt::print throws if a write to standard output fails.
absl::Status RunAndWrite(const BenchFlags& flags) {
  try {
    return Run(flags);
  } catch (const std::system_error& error) {
    return std::ferror(stdout) != 0 ? OutputError(error.code().value()) : absl::InternalError(error.what());
  }
}

int Main(int argc, char** argv) {
  HoldStandardStreams();
  EnterCallersDirectory();
  BenchFlags flags;
  std::vector<std::string> workloads = {"local", "lmdb"};
  for (const Mix& mix : Mixes()) workloads.emplace_back(mix.workload);
  CLI::App app{"Measure a Cell cluster. Keys have 8 to 64 bytes, values 8 to 256; missing keys are loaded first."};
  app.formatter(HelpText());
  AddClientFlags(&app, &flags.client);
  app.add_option(
         "--workload", flags.workload,
         "Workload to run. queue: each operation puts the next key and deletes the oldest; apply: the server adds 1 to "
         "each u64 of a value; rewrite: a get and a put; multi-get: four gets at once; tx-...: transactions, namely "
         "one "
         "put, two puts, four gets, a get and a put of one key, SmallBank, TATP, and the new orders of TPC-C; raw-read "
         "and raw-call: only the fabric; local: the tree in "
         "this process; lmdb: LMDB, for comparison")
      ->check(CLI::IsMember(workloads))
      ->capture_default_str();
  app.add_option("--operation", flags.operation, "Operation of the workloads local and lmdb")
      ->check(CLI::IsMember({"get", "search", "scan", "put"}))
      ->capture_default_str();
  app.add_option("--path", flags.path, "Search path: by the server's CPU, by one-sided reads of the client, or hybrid")
      ->check(CLI::IsMember({"server", "client", "hybrid"}))
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "Number of client threads")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--depth", flags.depth, "Number of operations in flight per thread")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--seconds", flags.seconds, "Seconds to measure, after half a second of warm-up")
      ->check(Between(0.1, 86400))
      ->capture_default_str();
  app.add_option("--operations", flags.operations, "Begin at most this many operations, those of the warm-up included")
      ->check(Count())
      ->default_str("no limit");
  app.add_option("--keys", flags.keys, "Number of keys in the store; with the workload queue, in all threads' queues")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--distribution", flags.distribution, "Distribution of the requested keys; zipfian has theta 0.99")
      ->check(CLI::IsMember({"uniform", "zipfian"}))
      ->capture_default_str();
  app.add_flag("--reverse", flags.reverse, "Scan from the start key downwards");
  app.add_option("--scan-length", flags.scan_length, "Number of entries per scan")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--rate", flags.rate,
                 "Operations per second of all threads together, each begun when it is due; 0: as many as possible")
      ->check(Between(0, 1e12))
      ->capture_default_str();
  app.add_option("--pause-us", flags.pause_us,
                 "Microseconds between the end of an operation and the next one, for each of --depth; not with --rate")
      ->check(Between(0, 1e9))
      ->capture_default_str();
  app.add_option("--spike-from", flags.spike_from, "Seconds from the end of the warm-up until the rate rises")
      ->check(Between(0, 1e12))
      ->capture_default_str();
  app.add_option("--spike-seconds", flags.spike_seconds, "Seconds for which the rate is higher")
      ->check(Between(0, 1e12))
      ->capture_default_str();
  app.add_option("--spike-factor", flags.spike_factor, "Factor by which the rate is higher; needs --rate")
      ->check(Between(1, 1e6))
      ->capture_default_str();
  app.add_option("--timeline-ms", flags.timeline_ms,
                 "Also report latencies and paths as JSON for each interval of this many milliseconds; 0: do not")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "Seed of all random choices")->check(Count())->capture_default_str();
  app.add_option("--json", flags.json, "File to which the result is written as JSON; -: standard output");
  app.add_flag("--load,!--no-load", flags.load, "Load the keys first if the last key is missing (default: yes)");
  app.add_flag("--busy-poll", flags.busy_poll, "Never sleep while waiting");
  app.add_option("--cache-bytes", flags.cache_bytes, "Memory of each thread's client for inner nodes; 0: no cache")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--cache-level-min", flags.cache_level_min,
                 "Cache only nodes at least this many levels above the leaves")
      ->check(WholeNumber(1, kLevelsMax))
      ->capture_default_str();
  app.add_option("--node-bytes", flags.node_bytes, "Size of a tree node in bytes, for the workload local")
      ->check(CLI::IsMember({512, 1024, 2048, 4096}))
      ->capture_default_str();
  app.add_option(
         "--inline-max", flags.inline_max,
         "Store pairs of at most this many bytes, key and value together, in the tree's leaves, for the workload "
         "local. 0: none. At most 218 with nodes of 1 KB, 90 with 512 B")
      ->check(WholeNumber(0, InlineBytesMax(kNodeBytesMax)))
      ->default_str(fmt::format("{}, or less if the nodes are too small for that", kInlineMaxDefault));
  app.add_option("--tier", flags.tier,
                 "What to measure: the sorted tree, or a Pilaf table, which is created if it does not exist")
      ->check(CLI::IsMember({"tree", "pilaf"}))
      ->capture_default_str();
  app.add_option("--table", flags.table, "Name of the table for --tier pilaf")->capture_default_str();
  AddHashLayoutFlags(&app, &flags.layout);
  app.add_flag("--serializable,!--no-serializable", flags.serializable,
               "Look up a key of a table a second time before reporting it as absent (default: yes)");
  app.add_option("--key-bytes", flags.shape.key_bytes,
                 "Size of each key in bytes, including the prefix; 0: 8 to 64 bytes after the prefix")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("--value-bytes", flags.shape.value_bytes, "Size of each value in bytes; 0: 8 to 256")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--prefix", flags.shape.prefix, "Prefix of all keys; not used by local and lmdb")
      ->capture_default_str();
  app.add_flag("--cleanup", flags.cleanup,
               "Delete all keys that begin with the prefix afterwards; with --tier pilaf, drop the table");
  app.footer(
      "Output\n"
      "  ops_per_second      finished operations of all threads; entries_per_second: pairs returned by scans\n"
      "  latency_us          microseconds from an operation's start (latency_from), with --rate from when it was due\n"
      "  kept_rate           whether all operations that were due began before the end; not_begun: how many did not\n"
      "  server_share        share of tree searches done by the server (1: all)\n"
      "  calls_per_op        RPCs; node_reads_per_op: one-sided reads of nodes; cache_hits_per_op: nodes from the\n"
      "                      cache, cache_evictions_per_op: nodes that had to go from it to make room for others;\n"
      "                      route_hits_per_op: searches that began at a known meganode\n"
      "  round_trips_per_op  RPCs and rounds of reads; extent_reads_per_op: one-sided reads of pairs outside of nodes\n"
      "  retries             repeated reads and searches; errors: operations that failed; absent: keys that\n"
      "                      did not exist; aborts_per_op: tries of transactions that were aborted\n"
      "  lookups, reads_per_lookup, lookup_retries    lookups of a table's keys by reads, and why they were repeated\n"
      "  load_...            figures of loading the keys; deleted: keys that --cleanup deleted\n"
      "  node_reads_per_second    one-sided reads of nodes, of all threads\n"
      "  data_bytes_per_key  for local and lmdb: bytes of a key and its value; stored_bytes_per_key: memory used\n"
      "  commit              the commit of the source tree in which cell_bench was called");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return EndOfParse("cell_bench", app, error);
  }
  if (flags.workload == "local" || flags.workload == "lmdb") flags.shape.prefix.clear();
  if (flags.workload == "queue") {
    flags.shape.ordered = true;
    flags.load = false;
  }
  absl::Status status = CheckThatFlagsApply(app, flags);
  if (status.ok()) status = RunAndWrite(flags);
  if (!status.ok()) {
    std::fputs(fmt::format("cell_bench: {}\n", std::string(status.message())).c_str(), stderr);
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }
