// Whole clusters in virtual time, one for each seed, with faults (tests/simulation): until one is wrong, or all are
// right. A seed is a process of its own, so that one that crashes fails like any other.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

#include "CLI/CLI.hpp"
#include "cell/base/mutant.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"
#include "tests/simulation/simulation.h"

namespace cell {
namespace {

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
  std::string log_level = "off";
  std::string summary;
};

// What a seed's process tells.
nlohmann::json ToJson(const SimulationReport& report) {
  return {{"violations", report.violations},
          {"trace_hash", report.trace_hash},
          {"trace_end", report.trace_end},
          {"simulated_ns", report.simulated_ns},
          {"settled_ns", report.settled_ns},
          {"faults", report.faults},
          {"operations", report.operations},
          {"maybe", report.maybe},
          {"failed", report.failed},
          {"checked", report.checked},
          {"gave_up", report.gave_up},
          {"scans", report.scans},
          {"torn", report.torn},
          {"splits", report.splits},
          {"moves", report.moves},
          {"recovered", report.recovered},
          {"table_splits", report.table_splits},
          {"checkpoints", report.checkpoints}};
}

nlohmann::json RunSeed(const Flags& flags, uint64_t seed) {
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
  nlohmann::json report = ToJson(Simulate(SimulationPlan::Draw(seed), flags.mutant,
                                          trace == nullptr ? std::function<void(const std::string&)>() : line));
  if (trace != nullptr) std::fflush(trace);
  return report;
}

// A process that runs a seed, and writes its report.
struct Child {
  pid_t process;
  int from;
  uint64_t seed;
  bool again;  // It was run before: the traces must be the same.
  std::string text = {};
};

Child Begin(const Flags& flags, uint64_t seed, bool again) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  std::fflush(nullptr);
  const pid_t process = ::fork();
  if (process < 0) throw std::runtime_error("no process");
  if (process == 0) {
    ::close(ends[0]);
    const std::string text = RunSeed(flags, seed).dump();
    for (size_t at = 0; at < text.size();) {
      const ssize_t written = ::write(ends[1], text.data() + at, text.size() - at);
      if (written <= 0) ::_exit(3);
      at += static_cast<size_t>(written);
    }
    ::_exit(0);  // What it holds needs no tidying up.
  }
  ::close(ends[1]);
  return {process, ends[0], seed, again};
}

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
          children_.push_back(Begin(flags_, next++, false));
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
    std::vector<pollfd> ends;
    for (const Child& child : children_) ends.push_back({child.from, POLLIN, 0});
    (void)::poll(ends.data(), ends.size(), 1'000);
    for (size_t i = ends.size(); i-- > 0;) {
      if (ends[i].revents == 0) continue;
      char buffer[65536];
      const ssize_t got = ::read(children_[i].from, buffer, sizeof(buffer));
      if (got > 0) {
        children_[i].text.append(buffer, static_cast<size_t>(got));
        continue;
      }
      Child child = std::move(children_[i]);
      children_.erase(children_.begin() + static_cast<ptrdiff_t>(i));
      ::close(child.from);
      int status = 0;
      ::waitpid(child.process, &status, 0);
      End(child, status);
    }
  }
  void End(const Child& child, int status) {
    nlohmann::json report = nlohmann::json::parse(child.text, nullptr, false);
    if (status != 0 || report.is_discarded()) {
      Fail(child.seed,
           {fmt::format("the process ended with {} {}", WIFSIGNALED(status) ? "signal" : "status",
                        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status))},
           {});
      return;
    }
    const auto hash = report.at("trace_hash").get<uint64_t>();
    if (child.again) {
      ++twice_;
      const auto before = running_again_.extract(child.seed);
      if (before.mapped() != hash) Fail(child.seed, {"another trace the second time"}, {});
      return;
    }
    ++done_;
    const auto violations = report.at("violations").get<std::vector<std::string>>();
    if (!violations.empty()) {
      Fail(child.seed, violations, report.at("trace_end").get<std::vector<std::string>>());
    } else if (flags_.twice_every > 0 && child.seed % flags_.twice_every == 0 && flags_.trace.empty()) {
      again_.emplace(child.seed, hash);
    }
    for (const auto& [name, value] : report.items()) {
      if (value.is_number_unsigned() || value.is_number_integer()) sums_[name] += value.get<int64_t>();
    }
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
      fmt::print("its trace ended:\n");
      for (const std::string& line : trace_end) fmt::print("  {:.300}\n", line);
    }
    fmt::print("again, with all of its trace:\n  ./bazelw run {}//tools:sim -- --seed {}{} --trace -\n",
               kMutants ? "--config=mutants " : "", seed,
               flags_.mutant_name.empty() ? "" : fmt::format(" --mutant {}", flags_.mutant_name));
    std::fflush(stdout);
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
    fmt::print("  simulated {:.3f} s; after the faults all had settled within {:.1f} ms\n",
               static_cast<double>(sum("simulated_ns")) / 1e9, static_cast<double>(settled_max_ns_) / 1e6);
    fmt::print("  faults: {}\n", faults);
    fmt::print("  {} operations ({} failed, {} with an unknown outcome), {} scans, {} torn reads\n", sum("operations"),
               sum("failed"), sum("maybe"), sum("scans"), sum("torn"));
    fmt::print("  {} splits of meganodes, {} of tables, {} moves, {} regions recovered, {} checkpoints\n",
               sum("splits"), sum("table_splits"), sum("moves"), sum("recovered"), sum("checkpoints"));
    fmt::print("  {} operations checked in their keys' histories ({} histories undecided); {} seeds run twice\n",
               sum("checked"), sum("gave_up"), twice_);
    if (flags_.summary.empty()) return;
    nlohmann::json out(sums_);
    out["seeds"] = done_;
    out["seconds"] = seconds;
    out["twice"] = twice_;
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
  std::map<uint64_t, uint64_t> again_, running_again_;  // Trace hashes, by their seeds.
  std::map<uint64_t, std::vector<std::string>> failed_;
  std::map<std::string, int64_t> sums_;
  std::array<uint64_t, kFaults> faults_{};
  int64_t settled_max_ns_ = 0;
  uint64_t done_ = 0, twice_ = 0;
};

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Simulated clusters with faults, one for each seed: every answer is checked, and the end state. Exits "
      "with 1 when one is wrong, and says how to run it again.");
  auto* const seeds = app.add_option("--seeds", flags.seeds, "How many.")->check(CLI::PositiveNumber);
  auto* const seed = app.add_option("--seed", flags.first, "The first one; without --seeds, this one alone.");
  app.add_option("--jobs", flags.jobs, "How many at once.")->check(CLI::Range(1, 256))->capture_default_str();
  app.add_option("--twice-every", flags.twice_every,
                 "Of these seeds' multiples, run each twice and compare the traces; 0: of none.")
      ->capture_default_str();
  app.add_option("--failures", flags.failures_max, "End after so many wrong seeds.")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--trace", flags.trace, "Write the trace of one seed to this file; -: to the terminal.");
  app.add_option("--summary", flags.summary, "Write what came of it to this file, as JSON.");
  app.add_option("--log-level", flags.log_level, "The servers' log.")->capture_default_str();
  app.add_option("--mutant", flags.mutant_name, "Take this protection out: then a seed must be wrong.");
  bool list = false, plan = false;
  app.add_flag("--list-mutants", list, "Print the mutants that there are.");
  app.add_flag("--plan", plan, "Print what the seed draws, and do no more.");
  CLI11_PARSE(app, argc, argv);
  if (list) {
    for (const MutantName& one : kMutantNames) {
      fmt::print("{}{}\n", one.name, one.in_any_build || kMutants ? "" : "  (with --config=mutants)");
    }
    return 0;
  }
  if (seed->count() > 0 && seeds->count() == 0) flags.seeds = 1;
  if (plan) {
    fmt::print("{}\n", SimulationPlan::Draw(flags.first).ToString());
    return 0;
  }
  if (!flags.trace.empty() && flags.seeds != 1) {
    fmt::print(stderr, "sim: --trace is of one seed: say which with --seed\n");
    return 2;
  }
  if (!flags.mutant_name.empty()) {
    const auto known = std::find_if(kMutantNames.begin(), kMutantNames.end(),
                                    [&](const MutantName& one) { return one.name == flags.mutant_name; });
    if (known == kMutantNames.end()) {
      fmt::print(stderr, "sim: there is no mutant {}; --list-mutants prints them\n", flags.mutant_name);
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
