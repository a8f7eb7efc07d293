// Simulates whole clusters in virtual time, one for each seed, with faults (tests/simulation), until one fails or all
// succeed. Each seed runs in a process of its own, so that a crash counts as a failure.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include "CLI/CLI.hpp"
#include "cell/base/mutant.h"
#include "cell/io/exec/invocation.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"
#include "tests/simulation/adya_history.h"
#include "tests/simulation/plan_text.h"
#include "tests/simulation/shrink.h"
#include "tests/simulation/simulation.h"
#include "tools/sim_process.h"

namespace cell {
namespace {

// A simulation takes seconds, or tens of seconds with sanitizers. One that takes longer never ends.
constexpr unsigned kCpuSecondsMax = 600;
constexpr unsigned kShrinkCpuSecondsMax = 60;
constexpr int kShrinkRoundsMax = 1'000;

struct Flags {
  uint64_t seeds = 100;
  uint64_t first = 1;
  bool one = false;  // --seed was given, --seeds was not.
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  uint64_t twice_every = 20;
  uint64_t failures_max = 1;
  std::string mutant_name;
  Mutant mutant = Mutant::kNone;
  std::string trace;
  std::string history;
  std::string log_level = "off";
  std::string summary;
  std::string plan_file;
  int64_t shrink_seconds = 60;

  // Returns the plan of `seed`: the one that it draws, or that of --plan-file.
  std::optional<SimulationPlan> plan;
  Draws draws;
  std::string draws_said;
  SimulationPlan PlanOf(uint64_t seed) const { return plan.has_value() ? *plan : SimulationPlan::Draw(seed, draws); }
};

// Returns what a seed's process reports.
nlohmann::json ToJson(const SimulationReport& report) {
  return {
      {"violations", report.violations},
      {"trace_hash", report.trace_hash},
      {"trace_end", report.trace_end},
      {"simulated_ns", report.simulated_ns},
      {"settled_ns", report.settled_ns},
      {"faults", report.faults},
      {"operations", report.operations},
      {"maybe", report.maybe},
      {"failed", report.failed},
      {"denied", report.denied},
      {"checked", report.checked},
      {"gave_up", report.gave_up},
      {"scans", report.scans},
      {"ranges", report.ranges},
      {"torn", report.torn},
      {"splits", report.splits},
      {"joins", report.joins},
      {"roots_removed", report.roots_removed},
      {"cleared", report.cleared},
      {"expired", report.expired},
      {"evicted", report.evicted},
      {"moved_extents", report.moved_extents},
      {"moves", report.moves},
      {"ids_around", report.ids_around},
      {"recovered", report.recovered},
      {"table_splits", report.table_splits},
      {"table_joins", report.table_joins},
      {"checkpoints", report.checkpoints},
      {"clients", report.clients},
      {"latest_ns", report.latest_ns},
      {"snapshots", report.snapshots},
      {"snapshot_reads", report.snapshot_reads},
      {"snapshots_too_old", report.snapshots_too_old},
  };
}

bool WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file.good()) fmt::print(stderr, "sim: {} cannot be written\n", path);
  return file.good();
}

// Writes what --history wants. The files are empty if there is no history.
void WriteHistory(const std::string& path, const SimulationPlan& plan, const SimulationReport& report) {
  const std::vector<TransactionRecord>& history = report.transaction_history;
  AdyaHistory text;
  if (!history.empty()) {
    const std::vector<size_t>& order = report.transaction_order;
    text = WriteForAdya(history, order.empty() ? CertainAbsences(history) : AbsencesInOrder(history, order));
  } else if (plan.transaction_share == 0) {
    fmt::print(stderr, "sim: {} is empty: seed {} has no transactions; with --with transactions a third of them have\n",
               path, plan.seed);
  } else {
    fmt::print(
        stderr,
        "sim: {} is empty: the transactions of seed {} are not checked, since some may be lost or their outcomes "
        "are forgotten, or since it failed before\n",
        path, plan.seed);
  }
  if (WriteFile(path, text.operations)) WriteFile(path + ".order", text.order);
}

nlohmann::json RunPlan(const Flags& flags, const SimulationPlan& plan) {
  std::FILE* trace = nullptr;
  if (flags.trace == "-") {
    trace = stdout;
  } else if (!flags.trace.empty()) {
    trace = std::fopen(flags.trace.c_str(), "w");
    if (trace == nullptr) fmt::print(stderr, "sim: {} cannot be written\n", flags.trace);
  }
#ifdef CELL_MUTANTS
  mutant_at_work = flags.mutant;
#endif
  const auto line = [trace](const std::string& text) { fmt::print(trace, "{}\n", text); };
  const SimulationReport report =
      Simulate(plan, flags.mutant, trace == nullptr ? std::function<void(const std::string&)>() : line);
  if (trace != nullptr) std::fflush(trace);
  if (!flags.history.empty()) WriteHistory(flags.history, plan, report);
  return ToJson(report);
}

std::string RunToText(const Flags& flags, const SimulationPlan& plan) {
  return RunPlan(flags, plan).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A seed's process.
struct Child {
  SimProcess process;
  uint64_t seed;
  bool again;  // It was run before: the traces must be equal.
};

Child Begin(const Flags& flags, uint64_t seed, bool again) {
  const auto run = [&flags, seed] { return RunToText(flags, flags.PlanOf(seed)); };
  return {SimProcess::Begin(run, kCpuSecondsMax), seed, again};
}

// Runs plans that are smaller than one that fails, some at the same time. Returns the first of them that fails.
class SmallerRuns {
 public:
  explicit SmallerRuns(const Flags& flags)
      : flags_(flags), until_(std::chrono::steady_clock::now() + std::chrono::seconds(flags.shrink_seconds)) {}

  std::optional<size_t> operator()(const std::vector<SimulationPlan>& plans) {
    struct Try {
      SimProcess process;
      size_t plan;
    };
    std::vector<Try> tries;
    std::optional<size_t> first;
    for (size_t next = 0; !tries.empty() || (next < plans.size() && !first.has_value());) {
      if (std::chrono::steady_clock::now() > until_) break;
      if (tries.size() < flags_.jobs && next < plans.size() && !first.has_value()) {
        const auto run = [&] { return RunToText(flags_, plans[next]); };
        tries.push_back({SimProcess::Begin(run, kShrinkCpuSecondsMax), next});
        ++next;
        continue;
      }
      for (const size_t i : WaitForAny(tries, [](const Try& one) -> const SimProcess& { return one.process; })) {
        const std::optional<SimProcess::Outcome> outcome = tries[i].process.Hear();
        if (!outcome.has_value()) continue;
        if (Fails(*outcome)) first = std::min(first.value_or(plans.size()), tries[i].plan);
        tries.erase(tries.begin() + static_cast<ptrdiff_t>(i));
        ++ran_;
      }
    }
    for (Try& one : tries) one.process.End();
    return first;
  }
  int ran() const { return ran_; }

 private:
  static bool Fails(const SimProcess::Outcome& outcome) {
    if (!outcome.text.has_value()) return !outcome.stopped;
    const auto report = nlohmann::json::parse(*outcome.text, nullptr, false);
    return report.is_discarded() || !report.at("violations").empty();
  }

  const Flags& flags_;
  const std::chrono::steady_clock::time_point until_;
  int ran_ = 0;
};

class Runs {
 public:
  explicit Runs(const Flags& flags) : flags_(flags), shown_(::isatty(STDERR_FILENO) != 0) {}

  int Run() {
    uint64_t next = flags_.first;
    const uint64_t end = flags_.first + flags_.seeds;
    while ((next < end && failed_.size() < flags_.failures_max) || !children_.empty() || !again_.empty()) {
      while (children_.size() < flags_.jobs) {
        if (!again_.empty()) {
          children_.push_back(Begin(flags_, again_.begin()->first, true));
          running_again_.insert(again_.extract(again_.begin()));
        } else if (next < end && failed_.size() < flags_.failures_max) {
          children_.push_back(Begin(flags_, next, false));
          ++next;
        } else {
          break;
        }
      }
      Hear();
      Show(false);
    }
    Show(true);
    Tell();
    return failed_.empty() ? 0 : 1;
  }

 private:
  void Hear() {
    for (const size_t i : WaitForAny(children_, [](const Child& one) -> const SimProcess& { return one.process; })) {
      const std::optional<SimProcess::Outcome> outcome = children_[i].process.Hear();
      if (!outcome.has_value()) continue;
      const Child child = std::move(children_[i]);
      children_.erase(children_.begin() + static_cast<ptrdiff_t>(i));
      End(child, *outcome);
    }
  }
  void End(const Child& child, const SimProcess::Outcome& outcome) {
    if (!outcome.text.has_value()) return Fail(child.seed, {outcome.died}, {});
    const nlohmann::json report = nlohmann::json::parse(*outcome.text, nullptr, false);
    if (report.is_discarded()) return Fail(child.seed, {"its report is not JSON"}, {});
    const auto hash = report.at("trace_hash").get<uint64_t>();
    if (child.again) {
      ++twice_;
      const auto before = running_again_.extract(child.seed);
      if (before.mapped() != hash) Fail(child.seed, {"the second run had a different trace"}, {});
      return;
    }
    ++done_;
    const auto violations = report.at("violations").get<std::vector<std::string>>();
    if (!violations.empty()) {
      Fail(child.seed, violations, report.at("trace_end").get<std::vector<std::string>>());
    } else if (flags_.twice_every > 0 && child.seed % flags_.twice_every == 0 && flags_.trace.empty() &&
               flags_.history.empty()) {
      again_.emplace(child.seed, hash);
    }
    for (const auto& [name, value] : report.items()) {
      // Their sum would be meaningless, and overflow.
      if (name == "trace_hash" || name == "latest_ns" || name == "settled_ns") continue;
      if (value.is_number_unsigned() || value.is_number_integer()) sums_[name] += value.get<int64_t>();
    }
    latest_max_ns_ = std::max(latest_max_ns_, report.at("latest_ns").get<int64_t>());
    settled_max_ns_ = std::max(settled_max_ns_, report.at("settled_ns").get<int64_t>());
    const auto faults = report.at("faults").get<std::vector<uint64_t>>();
    for (size_t i = 0; i < kFaults; ++i) faults_[i] += faults[i];
  }
  void Fail(uint64_t seed, const std::vector<std::string>& violations, const std::vector<std::string>& trace_end) {
    failed_[seed] = violations;
    if (shown_) fmt::print(stderr, "\r{:79}\r", "");
    fmt::print("seed {} is wrong\n", seed);
    for (const std::string& violation : violations) fmt::print("  {}\n", violation);
    if (!trace_end.empty()) {
      fmt::print("the end of its trace:\n");
      for (const std::string& line : trace_end) fmt::print("  {:.300}\n", line);
    }
    fmt::print(
        "to run it again with its whole trace:\n  {} {} --trace -\n", Program(),
        flags_.plan.has_value() ? fmt::format("--plan-file {}", flags_.plan_file) : fmt::format("--seed {}", seed));
    std::fflush(stdout);
    if (flags_.shrink_seconds > 0 && failed_.size() == 1) Shrink(seed);
  }
  std::string Program() const {
    return fmt::format("./bazelw run {}//tools:sim --{}", kMutants ? "--config=mutants " : "",
                       flags_.mutant_name.empty() ? "" : fmt::format(" --mutant {}", flags_.mutant_name)) +
           flags_.draws_said;
  }
  void Shrink(uint64_t seed) {
    fmt::print("looking for a smaller plan that fails, for at most {} s...\n", flags_.shrink_seconds);
    std::fflush(stdout);
    Flags quiet = flags_;
    quiet.trace.clear();
    quiet.history.clear();
    SmallerRuns runs(quiet);
    const SimulationPlan plan = cell::Shrink(flags_.PlanOf(seed), std::ref(runs), kShrinkRoundsMax);
    const std::string path = PlanPath(seed);
    std::FILE* const file = std::fopen(path.c_str(), "w");
    const std::string text = PlanText(plan);
    fmt::print("after {} attempts, {} faults and {} clients remain: {}\n{}", runs.ran(), plan.faults.size(),
               plan.clients.size(), plan.Summary(), text);
    if (file == nullptr) return fmt::print("the plan could not be written to {}\n", path);
    fmt::print(file, "{}", text);
    std::fclose(file);
    fmt::print("the plan is in {}; to run it:\n  {} --plan-file {} --trace -\n", path, Program(), path);
    std::fflush(stdout);
  }
  // Returns where the caller will look for it: a test's outputs, or the directory where `bazel run` was called.
  static std::string PlanPath(uint64_t seed) {
    std::string directory = ".";
    for (const char* const name : {"TEST_UNDECLARED_OUTPUTS_DIR", "BUILD_WORKING_DIRECTORY"}) {
      if (const char* const value = std::getenv(name)) {
        directory = value;
        break;
      }
    }
    return fmt::format("{}/sim-seed-{}.json", directory, seed);
  }
  double Seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count(); }
  void Show(bool last) {
    if (!shown_) return;
    if (last) {
      fmt::print(stderr, "\r{:79}\r", "");
    } else {
      fmt::print(stderr, "\r{} of {} seeds, {:.1f} seeds/s, {} operations, {} wrong ", done_, flags_.seeds,
                 static_cast<double>(done_) / std::max(Seconds(), 0.001), sums_["operations"], failed_.size());
    }
  }
  void Tell() {
    const double seconds = std::max(Seconds(), 0.001);
    const auto sum = [this](const char* name) { return sums_[name]; };
    std::string faults;
    for (size_t i = 0; i < kFaults; ++i) {
      faults += fmt::format("{}{} {}", i == 0 ? "" : ", ", faults_[i], ToString(static_cast<Fault>(i)));
    }
    fmt::print("{} seeds in {:.0f} s ({:.1f} a second, {:.0f} a minute): {} wrong\n", done_, seconds,
               static_cast<double>(done_) / seconds, 60 * static_cast<double>(done_) / seconds, failed_.size());
    fmt::print("  simulated {:.3f} s; after the faults, all clusters settled within {:.1f} ms\n",
               static_cast<double>(sum("simulated_ns")) / 1e9, static_cast<double>(settled_max_ns_) / 1e6);
    fmt::print("  faults: {}\n", faults);
    fmt::print(
        "  {} operations ({} failed, {} of them refused for want of a grant, {} with an unknown outcome), {} scans, {} "
        "ranges, {} torn reads\n",
        sum("operations"), sum("failed"), sum("denied"), sum("maybe"), sum("scans"), sum("ranges"), sum("torn"));
    fmt::print("  {} clients; no call ended later than {:.1f} us after its deadline\n", sum("clients"),
               static_cast<double>(latest_max_ns_) / 1e3);
    fmt::print(
        "  {} splits of meganodes, {} of tables, {} joins of meganodes, {} of tables, {} roots removed, {} regions "
        "cleared, {} expired pairs removed, {} evicted, {} extents moved\n",
        sum("splits"), sum("table_splits"), sum("joins"), sum("table_joins"), sum("roots_removed"), sum("cleared"),
        sum("expired"), sum("evicted"), sum("moved_extents"));
    fmt::print("  {} migrations, {} regions recovered, {} checkpoints; {} clusters used ids of regions again\n",
               sum("moves"), sum("recovered"), sum("checkpoints"), sum("ids_around"));
    if (sum("snapshots") > 0) {
      fmt::print("  {} snapshots; {} gets and scans of them, and {} that came too late\n", sum("snapshots"),
                 sum("snapshot_reads"), sum("snapshots_too_old"));
    }
    fmt::print("  {} operations checked in the histories of their keys ({} histories undecided); {} seeds run twice\n",
               sum("checked"), sum("gave_up"), twice_);
    if (flags_.summary.empty()) return;
    nlohmann::json out(sums_);
    out["seeds"] = done_;
    out["seconds"] = seconds;
    out["twice"] = twice_;
    out["latest_max_ns"] = latest_max_ns_;
    out["settled_max_ns"] = settled_max_ns_;
    for (const auto& [seed, violations] : failed_) out["wrong"][std::to_string(seed)] = violations;
    std::FILE* const file = std::fopen(flags_.summary.c_str(), "w");
    if (file == nullptr) {
      fmt::print(stderr, "sim: {} cannot be written\n", flags_.summary);
      return;
    }
    fmt::print(file, "{}\n", out.dump(2));
    std::fclose(file);
  }

  const Flags& flags_;
  const bool shown_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::vector<Child> children_;
  std::map<uint64_t, uint64_t> again_, running_again_;  // Trace hashes by seed.
  std::map<uint64_t, std::vector<std::string>> failed_;
  std::map<std::string, int64_t> sums_;
  std::array<uint64_t, kFaults> faults_{};
  int64_t settled_max_ns_ = 0, latest_max_ns_ = INT64_MIN;
  uint64_t done_ = 0, twice_ = 0;
};

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Run simulated clusters with faults, one for each seed, and check every answer and the final state. Exits with 1 "
      "if a seed fails, and says how to run it again.");
  auto* const seeds = app.add_option("--seeds", flags.seeds, "Number of seeds.")->check(CLI::PositiveNumber);
  auto* const seed = app.add_option("--seed", flags.first, "First seed; without --seeds, the only one.");
  app.add_option("--jobs", flags.jobs, "Number of seeds to run at the same time.")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--twice-every", flags.twice_every,
                 "Run each seed that is a multiple of this number twice, and compare the traces; 0: none.")
      ->capture_default_str();
  app.add_option("--failures", flags.failures_max, "Stop after this many failed seeds.")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--trace", flags.trace, "File to which the trace of one seed is written; -: the terminal.");
  app.add_option("--history", flags.history,
                 "File to which the history of one seed's transactions is written, in the format of the checker adya "
                 "(docs/testing.md). Their order goes to a file of this name with .order at its end. Needs --with "
                 "transactions, and a seed that has some.");
  app.add_option("--summary", flags.summary, "File to which a summary is written as JSON.");
  app.add_option("--log-level", flags.log_level, "Log level of the servers.")->capture_default_str();
  app.add_option("--mutant", flags.mutant_name, "Disable this protection; a seed must then fail.");
  app.add_option(
      "--plan-file", flags.plan_file,
      "Run the plan in this file instead of one drawn from a seed; in the format that --plan and a failed seed print.");
  app.add_option("--shrink-seconds", flags.shrink_seconds,
                 "Seconds for which faults, clients and operations are removed from the first failed seed while it "
                 "still fails; prints the smaller plan. 0: do not.")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  std::vector<std::string> with, without;
  app.add_option("--with", with, "Allow seeds to draw this, which they do not by default.");
  app.add_option("--without", without, "Do not allow seeds to draw this.");
  bool list = false, plan = false;
  app.add_flag("--list-mutants", list, "List the mutants.");
  app.add_flag("--plan", plan, "Print the plan that the seed draws, and exit.");
  EnterCallersDirectory();
  CLI11_PARSE(app, argc, argv);
  if (list) {
    for (const MutantName& one : kMutantNames) {
      fmt::print("{}{}\n", one.name, one.in_any_build || kMutants ? "" : "  (with --config=mutants)");
    }
    return 0;
  }
  if (seed->count() > 0 && seeds->count() == 0) flags.seeds = 1;
  for (const auto& [names, on] : {std::pair(&with, true), std::pair(&without, false)}) {
    for (const std::string& name : *names) {
      flags.draws_said += fmt::format(" --with{} '{}'", on ? "" : "out", name);
      if (flags.draws.Set(name, on)) continue;
      fmt::print(stderr, "sim: unknown draw \"{}\"\n", name);
      return 2;
    }
  }
  if (!flags.plan_file.empty()) {
    std::ifstream file(flags.plan_file);
    std::stringstream text;
    text << file.rdbuf();
    absl::StatusOr<SimulationPlan> read =
        file.good() || !text.str().empty() ? ParsePlan(text.str()) : absl::NotFoundError("the file cannot be read");
    if (!read.ok()) {
      fmt::print(stderr, "sim: {}: {}\n", flags.plan_file, std::string(read.status().message()));
      return 2;
    }
    flags.plan = *std::move(read);
    flags.first = flags.plan->seed;
    flags.seeds = 1;
  }
  if (plan) {
    const SimulationPlan drawn = flags.PlanOf(flags.first);
    fmt::print(stderr, "{}\n", drawn.Summary());
    fmt::print("{}", PlanText(drawn));
    return 0;
  }
  for (const auto& [name, path] : {std::pair("--trace", &flags.trace), {"--history", &flags.history}}) {
    if (path->empty() || flags.seeds == 1) continue;
    fmt::print(stderr, "sim: {} needs exactly one seed: give it with --seed\n", name);
    return 2;
  }
  if (!flags.mutant_name.empty()) {
    const auto known = std::find_if(kMutantNames.begin(), kMutantNames.end(),
                                    [&](const MutantName& one) { return one.name == flags.mutant_name; });
    if (known == kMutantNames.end()) {
      fmt::print(stderr, "sim: unknown mutant {}: --list-mutants lists them\n", flags.mutant_name);
      return 2;
    }
    if (!known->in_any_build && !kMutants) {
      fmt::print(stderr, "sim: this program has no mutant {}: ./bazelw run --config=mutants //tools:sim -- ...\n",
                 flags.mutant_name);
      return 2;
    }
    flags.mutant = known->mutant;
  }
  spdlog::set_level(spdlog::level::from_str(flags.log_level));
  return Runs(flags).Run();
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }
