// Checks whether the operation logs of a soak's clients (operation_log.h) are an allowed history: linearizable per key,
// or, if faults may lose acknowledged writes (async), without losses of writes acknowledged before them. Checks the
// logs of transactions (transaction_log.h), too: they are strictly serializable, or have lost nothing that they must
// not.
//
// Prints what is wrong, a line each, then a summary. The exit status is 0 if nothing is wrong, 1 if something is, and 2
// if it could not be decided whether the transactions are strictly serializable.
#include <algorithm>
#include <fstream>
#include <sstream>
#include <unordered_map>

#include "CLI/CLI.hpp"
#include "fmt/format.h"
#include "tests/simulation/history.h"
#include "tests/soak/operation_log.h"
#include "tests/soak/transaction_check.h"

namespace cell {
namespace {

constexpr size_t kViolationsShown = 10;

struct Flags {
  std::vector<std::string> logs, transactions;
  size_t keys = 0;
  std::vector<int64_t> lost_ns;      // Pairs: from when to when acknowledged writes may be lost.
  int64_t slack_ms = 0;              // Writes that were acknowledged this long before may be lost, too.
  uint64_t steps_max = 500'000'000;  // For the transactions.
};

// Adds a process's operations. Returns its violations. Ignores a last line without an end, which was never passed to
// the system completely.
std::vector<std::string> ReadLog(const std::string& path, std::vector<std::vector<KeyOperation>>* operations) {
  std::vector<std::string> violations;
  std::unordered_map<uint64_t, std::pair<size_t, KeyOperation>> begun;
  std::ifstream file(path);
  if (!file.is_open()) violations.push_back(fmt::format("{} cannot be read", path));
  std::string line;
  while (std::getline(file, line)) {
    if (file.eof()) break;
    std::istringstream fields(line);
    char what = 0;
    fields >> what;
    uint64_t operation = 0;
    size_t key = 0;
    int kind = 0;
    KeyOperation of{};
    if (what == 'B') {
      fields >> operation >> key >> kind >> of.value >> of.begin_ns;
      of.kind = static_cast<KeyOperation::Kind>(kind);
      of.end_ns = KeyOperation::kNever;
      begun[operation] = {key, of};
    } else if (what == 'E') {
      fields >> operation;
      auto& [its_key, its] = begun.at(operation);
      fields >> its.existed >> its.end_ns;
      (*operations)[its_key].push_back(its);
      begun.erase(operation);
    } else if (what == 'F') {
      fields >> operation;
      begun.erase(operation);
    } else if (what == 'R') {
      fields >> key >> kind >> of.value >> of.begin_ns >> of.end_ns;
      of.kind = static_cast<KeyOperation::Kind>(kind);
      (*operations)[key].push_back(of);
    } else {
      violations.push_back(fmt::format("{}: {}", path, line));
    }
  }
  for (const auto& [operation, of] : begun) (*operations)[of.first].push_back(of.second);
  return violations;
}

// Checks the transactions. Returns the end of the summary.
std::string CheckTransactions(const Flags& flags, std::vector<std::string>* violations, bool* undecided) {
  const LoggedHistory history = ReadTransactionLogs(flags.transactions);
  std::vector<TimeSpan> lossy;
  for (size_t i = 0; i + 1 < flags.lost_ns.size(); i += 2) lossy.push_back({flags.lost_ns[i], flags.lost_ns[i + 1]});
  const TransactionVerdict verdict = lossy.empty() ? CheckStrictlySerializable(history, flags.steps_max)
                                                   : CheckNotLost(history, lossy, flags.slack_ms * 1'000'000);
  violations->insert(violations->end(), verdict.violations.begin(), verdict.violations.end());
  *undecided = !verdict.undecided.empty();
  return fmt::format("; {} transactions of {} processes checked{}, {} of unknown outcome, {} left out{}",
                     verdict.checked, flags.transactions.size(), lossy.empty() ? "" : " for losses", history.unknown,
                     verdict.left_out, *undecided ? ", NOT DECIDED: " + verdict.undecided : "");
}

int Run(const Flags& flags) {
  std::vector<std::vector<KeyOperation>> operations(flags.keys);
  std::vector<std::string> violations;
  for (const std::string& log : flags.logs) {
    for (std::string& violation : ReadLog(log, &operations)) violations.push_back(std::move(violation));
  }
  History history(flags.keys);
  size_t unknown = 0;
  for (size_t key = 0; key < flags.keys; ++key) {
    // The last operation is a read at the end. Of puts of the same value (all empty ones are equal) the first comes
    // before the others.
    std::sort(operations[key].begin(), operations[key].end(),
              [](const KeyOperation& a, const KeyOperation& b) { return a.begin_ns < b.begin_ns; });
    for (const KeyOperation& operation : operations[key]) {
      unknown += operation.end_ns == KeyOperation::kNever;
      history.Add(key, operation);
    }
  }
  for (size_t i = 0; i + 1 < flags.lost_ns.size(); i += 2) history.MayLose(flags.lost_ns[i], flags.lost_ns[i + 1]);
  const History::Verdict verdict = history.Check(!flags.lost_ns.empty(), flags.slack_ms * 1'000'000, kViolationsShown);
  violations.insert(violations.end(), verdict.violations.begin(), verdict.violations.end());
  bool undecided = false;
  const std::string transactions = flags.transactions.empty() ? "" : CheckTransactions(flags, &violations, &undecided);
  for (size_t i = 0; i < std::min(violations.size(), kViolationsShown); ++i) fmt::print("{}\n", violations[i]);
  fmt::print("{} operations of {} processes checked, {} of unknown outcome, {} keys undecided{}; {} violations\n",
             verdict.checked, flags.logs.size(), unknown, verdict.gave_up, transactions, violations.size());
  if (!violations.empty()) return 1;
  return undecided ? 2 : 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"Check the histories of a soak test (tests/soak/soak.py)."};
  app.add_option("logs", flags.logs);
  app.add_option("--transactions", flags.transactions);
  app.add_option("--steps-max", flags.steps_max);
  app.add_option("--keys", flags.keys)->required();
  app.add_option("--lost-ns", flags.lost_ns)->allow_extra_args(false);
  app.add_option("--slack-ms", flags.slack_ms);
  CLI11_PARSE(app, argc, argv);
  return Run(flags);
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }
