// Runs clients against a ModelledCluster for some virtual time, and prints the results as one JSON object.
// tools/experiments/experiment.py builds the experiments on it.
#include <cmath>
#include <cstdio>
#include <fstream>

#include "CLI/CLI.hpp"
#include "cell/base/histogram.h"
#include "cell/client/client_testing.h"
#include "cell/cmd/help_text.h"
#include "cell/cmd/number_flags.h"
#include "cell/layout/limits.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"
#include "tools/experiments/modelled_cluster.h"

namespace cell {
namespace {

using nlohmann::json;

struct Flags {
  std::string testbed;
  ModelledClusterOptions cluster;
  int clients = 5;
  int in_flight = 3;
  std::string path = "hybrid";  // Or server, client, fixed, raw-read, raw-call.
  double server_share = 0.5;    // With fixed.
  std::string selector = "cell";
  double get_share = 1;  // The others are puts.
  std::string read = "contains";
  int scan_entries = 100;
  double zipf = 0;  // 0: uniform.
  bool cache = true;
  bool node_cache = true;
  int cache_level_min = 4;  // As in the thesis (5.3).
  bool warm = false;
  double begin_within_ms = 0;
  double warmup_ms = 3, measure_ms = 10;
  // Open loop.
  double interval_us = 0;  // Between a client's requests; 0: closed loop.
  int spike_clients = 0;   // Additional clients, for a while.
  double spike_from_ms = 0, spike_ms = 0;
  double slowdown = 1;  // Slowdown of all servers' cores during the spike.
  double bucket_ms = 50;
};

// Reads the testbed's file: published rates and latencies, from which a model is made
// (docs/results/simulated-experiments.md).
MachineModel ReadTestbed(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(fmt::format("{} cannot be read", path));
  const json bed = json::parse(file, nullptr, true, /*ignore_comments=*/true);
  const auto between = [&](const char* rate) {
    return static_cast<int64_t>(std::llround(1e9 / bed.at(rate).get<double>()));
  };
  MachineModel machine;
  machine.read_ns = between("reads_per_s");
  machine.call_ns = between("calls_per_s");
  machine.operation_ns = between("mixed_per_s");
  machine.byte_ns = 8 / bed.at("gbit_per_s").get<double>();
  machine.read_latency_ns = static_cast<int64_t>(1e3 * bed.at("read_latency_us").get<double>());
  machine.call_latency_ns = static_cast<int64_t>(1e3 * bed.at("call_latency_us").get<double>());
  machine.connections_free = bed.at("connections_free").get<int64_t>();
  machine.connection_loss = bed.at("connection_loss").get<double>();
  // One figure is fitted: searches of one core. The part that is not the call's own is spread over the nodes. If
  // nothing else is known, a core takes and answers a call at the rate of a ping-pong.
  machine.request_ns =
      bed.contains("request_us") ? static_cast<int64_t>(1e3 * bed["request_us"].get<double>()) : machine.call_ns;
  const double search_ns = 1e9 / bed.at("searches_per_core_per_s").get<double>();
  machine.visit_ns =
      static_cast<int64_t>((search_ns - static_cast<double>(machine.request_ns)) / bed.at("levels").get<int>());
  machine.insert_ns = machine.visit_ns;
  machine.entry_ns = machine.visit_ns / 8;
  const double completion_us = bed.at("client_completion_us").get<double>();
  machine.call_completion_ns = static_cast<int64_t>(1e3 * completion_us);
  machine.read_completion_ns = static_cast<int64_t>(1e3 * bed.value("client_read_us", completion_us));
  machine.read_part_ns = static_cast<int64_t>(1e3 * bed.value("client_part_us", 0.0));
  return machine;
}

// Draws ranks by Zipf's law, by inversion over a table.
class Zipf {
 public:
  Zipf(uint64_t count, double exponent) {
    double sum = 0;
    for (uint64_t i = 0; i < count; ++i) below_.push_back(sum += std::pow(static_cast<double>(i + 1), -exponent));
  }
  uint64_t Draw(Random* random) const {
    const double at = random->Unit() * below_.back();
    return static_cast<uint64_t>(std::lower_bound(below_.begin(), below_.end(), at) - below_.begin());
  }

 private:
  std::vector<double> below_;
};

struct Bucket {
  Histogram latency_ns;
  uint64_t server = 0, client = 0;  // Meganodes searched by each.
};

class Run {
 public:
  explicit Run(const Flags& flags) : flags_(flags), cluster_(flags.cluster), random_(flags.cluster.seed + 17) {
    if (flags.zipf > 0) zipf_.emplace(cluster_.keys(), flags.zipf);
    buckets_.resize(flags.interval_us > 0 ? static_cast<size_t>(std::ceil(flags.measure_ms / flags.bucket_ms)) : 0);
  }

  json Do() {
    for (int i = 0; i < flags_.clients + flags_.spike_clients; ++i) {
      ClientOptions options;
      options.report = false;
      options.path = flags_.path == "server" ? Path::kServer : flags_.path == "client" ? Path::kClient : Path::kHybrid;
      options.selector = flags_.selector;
      options.seed = random_.Next();
      options.cache_bytes = flags_.cache && flags_.node_cache ? options.cache_bytes : 0;
      options.cache_level_min = flags_.cache_level_min;
      options.route_ranges = flags_.cache ? options.route_ranges : 0;
      users_.push_back(cluster_.NewClient(options, flags_.warm));
    }
    begin_ns_ = cluster_.now_ns() + static_cast<int64_t>(flags_.warmup_ms * 1e6);
    end_ns_ = begin_ns_ + static_cast<int64_t>(flags_.measure_ms * 1e6);
    const int64_t spike_ns = begin_ns_ + static_cast<int64_t>(flags_.spike_from_ms * 1e6);
    const int64_t spike_end_ns = spike_ns + static_cast<int64_t>(flags_.spike_ms * 1e6);
    for (int i = 0; i < flags_.clients + flags_.spike_clients; ++i) {
      const bool in_spike = i >= flags_.clients;
      seeds_.push_back(random_.Next());
      for (int task = 0; task < flags_.in_flight; ++task) {
        tasks_.push_back(flags_.interval_us > 0
                             ? UseOnTime(static_cast<size_t>(i), in_spike ? spike_ns : 0,
                                         in_spike ? spike_end_ns : end_ns_, random_.Next())
                             : Use(users_[static_cast<size_t>(i)]->client.get(), seeds_.back(), random_.Next()));
      }
    }
    arrivals_.resize(users_.size());
    for (size_t i = 0; i < arrivals_.size(); ++i) {
      arrivals_[i] = cluster_.now_ns() + static_cast<int64_t>(Random(seeds_[i]).Unit() * flags_.interval_us * 1e3);
    }
    for (Task<bool>& task : tasks_) task.Start();
    for (const auto& user : users_) user->fabric->Drive([client = user->client.get()] { client->Poll(INT64_MAX); });
    bool measuring = false, slow = false;
    ClientMetrics before;
    int64_t busy_before_ns = 0;
    while (cluster_.now_ns() < end_ns_) {
      if (!measuring && cluster_.now_ns() >= begin_ns_) {
        measuring = true;
        before = Sum();
        busy_before_ns = cluster_.busy_ns();
      }
      const bool slow_now = flags_.slowdown != 1 && cluster_.now_ns() >= spike_ns && cluster_.now_ns() < spike_end_ns;
      if (slow_now != slow) {
        slow = slow_now;
        for (int i = 0; i < flags_.cluster.servers; ++i) {
          cluster_.SlowServer(static_cast<size_t>(i), slow ? flags_.slowdown : 1);
        }
      }
      cluster_.network()->Step();
    }
    const ClientMetrics after = Sum();
    stop_ = true;
    const auto walked = [](const ClientMetrics& metrics) { return metrics.server_path + metrics.client_path; };
    const double seconds = flags_.measure_ms / 1e3;
    const double workers = flags_.cluster.servers * flags_.cluster.cores;
    json out = {{"operations_per_s", static_cast<double>(latency_ns_.count()) / seconds},
                {"p50_us", static_cast<double>(latency_ns_.Quantile(0.5)) / 1e3},
                {"p90_us", static_cast<double>(latency_ns_.Quantile(0.9)) / 1e3},
                {"p99_us", static_cast<double>(latency_ns_.Quantile(0.99)) / 1e3},
                {"mean_us", latency_ns_.mean() / 1e3},
                {"server_share", static_cast<double>(after.server_path - before.server_path) /
                                     static_cast<double>(std::max<uint64_t>(1, walked(after) - walked(before)))},
                {"reads_per_s", static_cast<double>(after.node_reads - before.node_reads) / seconds},
                {"cores_busy", static_cast<double>(cluster_.busy_ns() - busy_before_ns) / (seconds * 1e9 * workers)},
                {"errors", after.errors},
                {"levels", cluster_.levels()},
                {"keys", cluster_.keys()}};
    for (size_t i = 0; i < buckets_.size(); ++i) {
      const Bucket& bucket = buckets_[i];
      out["timeline"].push_back(
          {{"ms", static_cast<double>(i) * flags_.bucket_ms},
           {"operations", bucket.latency_ns.count()},
           {"p50_us", static_cast<double>(bucket.latency_ns.Quantile(0.5)) / 1e3},
           {"p90_us", static_cast<double>(bucket.latency_ns.Quantile(0.9)) / 1e3},
           {"server_share", static_cast<double>(bucket.server) /
                                static_cast<double>(std::max<uint64_t>(1, bucket.server + bucket.client))}});
    }
    return out;
  }

 private:
  ClientMetrics Sum() const {
    ClientMetrics sum;
    for (const auto& user : users_) {
      const ClientMetrics& metrics = user->client->metrics();
      sum.server_path += metrics.server_path;
      sum.client_path += metrics.client_path;
      sum.node_reads += metrics.node_reads;
      sum.errors += metrics.errors;
    }
    return sum;
  }

  Task<bool> Operate(Client* client, Random* random) {
    uint64_t key = zipf_.has_value() ? zipf_->Draw(random) : random->Below(cluster_.keys());
    // Spread popular keys over the whole tree.
    if (zipf_.has_value()) key = Mix64(key) % cluster_.keys();
    const std::string name = ModelledCluster::Key(key);
    CallOptions call;
    if (flags_.path == "fixed") call.path = random->Unit() < flags_.server_share ? Path::kServer : Path::kClient;
    if (flags_.path == "raw-read") {
      const absl::StatusOr<bool> read = co_await ClientTesting::RawRead(client, random->Next());
      co_return read.ok();
    }
    if (flags_.path == "raw-call") {
      const absl::StatusOr<bool> called = co_await ClientTesting::RawCall(client);
      co_return called.ok();
    }
    if (flags_.get_share < 1 && random->Unit() >= flags_.get_share) {
      const std::string value(32, 'w');
      const absl::StatusOr<bool> put = co_await client->AsyncPut(name, value, call);
      co_return put.ok();
    }
    if (flags_.read == "scan") {
      ScanOptions options;
      options.from = name;
      options.limit = options.batch = static_cast<uint32_t>(flags_.scan_entries);
      options.call = call;
      Scan scan = client->NewScan(options);
      uint64_t got = 0;
      for (;;) {
        const auto batch = co_await scan.AsyncNextBatch();
        if (!batch.ok()) co_return false;
        if (batch->empty()) break;
        got += batch->size();
      }
      co_return got > 0;
    }
    if (flags_.read == "get") {
      const absl::StatusOr<std::optional<std::string>> value = co_await client->AsyncGet(name, call);
      co_return value.ok() && value->has_value();
    }
    const absl::StatusOr<bool> found = co_await client->AsyncContains(name, call);
    co_return found.ok() && *found;
  }
  void Record(int64_t since_ns) {
    const int64_t now_ns = cluster_.now_ns();
    if (now_ns >= begin_ns_ && now_ns < end_ns_) latency_ns_.Record(static_cast<uint64_t>(now_ns - since_ns));
  }

  // Makes requests one after the other.
  Task<bool> Use(Client* client, uint64_t client_seed, uint64_t seed) {
    Random random(seed);
    const double begins_ms = Random(client_seed).Unit() * flags_.begin_within_ms;
    if (begins_ms > 0) co_await client->AsyncSleepUntil(cluster_.now_ns() + static_cast<int64_t>(begins_ms * 1e6));
    while (!stop_) {
      const int64_t since_ns = cluster_.now_ns();
      const bool right = co_await Operate(client, &random);
      if (!right) throw std::runtime_error("an operation returned a wrong result");
      Record(since_ns);
    }
    co_return true;
  }
  // Makes requests when they are due, whether the one before has ended or not. Latencies count from then on. The tasks
  // of a client take its requests in turn.
  Task<bool> UseOnTime(size_t user, int64_t from_ns, int64_t until_ns, uint64_t seed) {
    Client* const client = users_[user]->client.get();
    Random random(seed);
    if (from_ns > 0) {
      co_await client->AsyncSleepUntil(from_ns);
      arrivals_[user] = std::max(
          arrivals_[user], from_ns + static_cast<int64_t>(Random(seeds_[user]).Unit() * flags_.interval_us * 1e3));
    }
    for (;;) {
      const int64_t due_ns = arrivals_[user];
      // Independent users: the intervals are exponential.
      arrivals_[user] += static_cast<int64_t>(-std::log(1 - random.Unit()) * flags_.interval_us * 1e3);
      if (due_ns >= until_ns) break;
      co_await client->AsyncSleepUntil(due_ns);
      const ClientMetrics& metrics = client->metrics();
      const uint64_t server = metrics.server_path;
      const bool right = co_await Operate(client, &random);
      if (!right) throw std::runtime_error("an operation returned a wrong result");
      Record(due_ns);
      if (due_ns < begin_ns_ || due_ns >= end_ns_) continue;
      Bucket& bucket =
          buckets_[static_cast<size_t>(static_cast<double>(due_ns - begin_ns_) / (flags_.bucket_ms * 1e6))];
      bucket.latency_ns.Record(static_cast<uint64_t>(cluster_.now_ns() - due_ns));
      ++(client->metrics().server_path > server ? bucket.server : bucket.client);
    }
    co_return true;
  }

  const Flags flags_;
  ModelledCluster cluster_;
  Random random_;
  std::optional<Zipf> zipf_;
  std::vector<std::unique_ptr<ModelledCluster::DrivenClient>> users_;
  std::vector<Task<bool>> tasks_;
  std::vector<uint64_t> seeds_;
  std::vector<int64_t> arrivals_;  // Time of each user's next request.
  std::vector<Bucket> buckets_;
  Histogram latency_ns_;
  int64_t begin_ns_ = 0, end_ns_ = 0;
  bool stop_ = false;
};

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Run simulated clients against a simulated cluster of real servers; prints JSON.");
  app.formatter(HelpText());
  app.add_option("--testbed", flags.testbed, "File of the testbed (tools/experiments/testbeds).")->required();
  app.add_option("--servers", flags.cluster.servers)->check(CLI::Range(1, 4'000))->capture_default_str();
  app.add_option("--cores", flags.cluster.cores, "Number of workers per server.")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--keys", flags.cluster.keys_each, "Number of keys per worker.")
      ->check(CLI::Range(10, 10'000'000))
      ->capture_default_str();
  app.add_option("--node-bytes", flags.cluster.node_bytes)
      ->check(CLI::IsMember({512, 1024, 2048, 4096}))
      ->capture_default_str();
  app.add_option("--inline-max", flags.cluster.inline_max,
                 "Pairs of at most this many bytes, key and value together, are in the leaves.")
      ->check(WholeNumber(0, InlineBytesMax(kNodeBytesMin)))
      ->capture_default_str();
  app.add_option("--clients", flags.clients)->check(CLI::Range(0, 100'000))->capture_default_str();
  app.add_option("--in-flight", flags.in_flight, "Number of operations that a client has in flight.")
      ->check(CLI::Range(1, 1'000))
      ->capture_default_str();
  app.add_option("--path", flags.path)
      ->check(CLI::IsMember({"server", "client", "hybrid", "fixed", "raw-read", "raw-call"}))
      ->capture_default_str();
  app.add_option("--server-share", flags.server_share, "Share of searches by the server, with --path fixed.")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--selector", flags.selector)
      ->check(CLI::IsMember({"cell", "unpriced", "thesis"}))
      ->capture_default_str();
  app.add_option("--get-share", flags.get_share, "Share of gets; the other operations are puts.")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--read", flags.read)->check(CLI::IsMember({"contains", "get", "scan"}))->capture_default_str();
  app.add_option("--scan-entries", flags.scan_entries)->check(CLI::Range(1, 4'096))->capture_default_str();
  app.add_option("--zipf", flags.zipf, "Zipf exponent; 0: all keys are equally popular.")
      ->check(CLI::Range(0.0, 3.0))
      ->capture_default_str();
  app.add_flag("--cache,!--no-cache", flags.cache, "Clients remember routes and upper nodes (default: yes).");
  app.add_option("--begin-within-ms", flags.begin_within_ms,
                 "Closed loop: milliseconds over which the clients start, one by one.")
      ->capture_default_str();
  app.add_option("--warmup-ms", flags.warmup_ms)->capture_default_str();
  app.add_option("--measure-ms", flags.measure_ms)->capture_default_str();
  app.add_option("--interval-us", flags.interval_us,
                 "Open loop: mean number of microseconds between two requests of a client.")
      ->capture_default_str();
  app.add_option("--spike-clients", flags.spike_clients, "Number of additional clients during the spike.")
      ->capture_default_str();
  app.add_option("--spike-from-ms", flags.spike_from_ms)->capture_default_str();
  app.add_option("--spike-ms", flags.spike_ms)->capture_default_str();
  app.add_flag("--node-cache,!--no-node-cache", flags.node_cache, "Clients cache nodes (default: yes).");
  app.add_option("--cache-level-min", flags.cache_level_min, "They cache nodes at least this far above the leaves.")
      ->check(WholeNumber(1, kLevelsMax))
      ->capture_default_str();
  app.add_flag("--warm", flags.warm, "Clients know from the start which meganode has which keys.");
  app.add_option("--slowdown", flags.slowdown, "Factor by which the servers' cores are slower during the spike.")
      ->capture_default_str();
  app.add_option("--bucket-ms", flags.bucket_ms, "Length of an interval of the timeline in milliseconds.")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seed", flags.cluster.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(spdlog::level::off);
  try {
    flags.cluster.machine = ReadTestbed(flags.testbed);
    const auto run = new Run(flags);  // Its objects need no cleanup.
    fmt::print("{}\n", run->Do().dump());
  } catch (const std::exception& error) {
    fmt::print(stderr, "run_model: {}\n", error.what());
    return 1;
  }
  std::fflush(stdout);
  std::_Exit(0);
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }
