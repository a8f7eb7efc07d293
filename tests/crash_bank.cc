// Moves money between accounts by transactions for some seconds, whatever happens to the servers. Records in a file
// which transfers were begun, and which were acknowledged. Before that it compares the store with the file of the last
// run.
//
// Half of the accounts are at the low end of the keys. Of the others, a third is at the high end, and the rest in two
// Pilaf tables, named by --tables. A transfer is from one half to the other. So its accounts are in two regions as soon
// as the tree has several. A transfer is on disk in both before it is acknowledged, with async, too. In the same
// transaction each transfer puts a record of its own. So the records tell
// exactly what each account must have. Meanwhile it takes snapshots of the tree. In each of them, too, the accounts of
// the tree must have what the records in it tell.
//
// The exit status is 0 if every account has what it must have, no money is lost or made, and every transfer that was
// acknowledged is there. Otherwise it is 1, and one line tells each thing that is wrong.
#include <array>
#include <fstream>
#include <map>
#include <sstream>

#include "CLI/CLI.hpp"
#include "cell/base/check.h"
#include "cell/base/random.h"
#include "cell/base/status_macros.h"
#include "cell/client/snapshot.h"
#include "cell/client/transaction.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr int kInHalf = 6;
constexpr int64_t kInitial = 1000;  // In each account.
constexpr size_t kTasks = 8;
constexpr int64_t kTimeoutUs = 20'000'000;
constexpr int64_t kPauseNs = 10'000'000;           // Of a task before its next transfer.
constexpr int64_t kSnapshotPauseNs = 100'000'000;  // After each snapshot.
constexpr int64_t kSnapshotKeptUs = 20'000'000;    // Longer than it takes to read one.

struct Flags {
  std::string cluster, state;
  std::vector<std::string> tables;
  double seconds = 1;
  uint64_t seed = 1;  // Number of the run, which is in the keys of its records.
};

// Where accounts are.
struct Bank {
  Client* client;
  std::vector<Table> tables;

  // Returns null for one in the tree.
  const Table* TableOf(const std::string& account) const {
    const size_t which = account.starts_with("zbank") ? static_cast<size_t>(account.back() - '0') / 2 : 0;
    return which == 0 ? nullptr : &tables[which - 1];
  }
  absl::Status Put(Transaction* transaction, const std::string& account, int64_t balance) const {
    const Table* const table = TableOf(account);
    const std::string text = std::to_string(balance);
    return table == nullptr ? transaction->Put(account, text) : transaction->Put(*table, account, text);
  }
};

struct Transfer {
  enum class Outcome { kUnknown, kAcknowledged, kFailed };
  std::string from, to;
  int64_t amount = 0;
  Outcome outcome = Outcome::kUnknown;
};

// Reads the record of a transfer.
std::optional<Transfer> Parse(const std::string& record) {
  Transfer transfer;
  std::istringstream words(record);
  if (words >> transfer.from >> transfer.to >> transfer.amount) return transfer;
  return std::nullopt;
}

// The state that the last run has written to its file.
struct State {
  uint64_t run = 0;
  std::map<std::string, int64_t> balances;
  std::map<std::string, Transfer> transfers;  // By the keys of their records.
};

// Keys of crash_writer.cc are between the two halves.
std::string Account(bool high, int i) { return fmt::format("{}/{}", high ? "zbank" : "abank", i); }
std::string Records(uint64_t run) { return fmt::format("ztransfer/{}/", run); }
std::string Describe(const Transfer& transfer) {
  return fmt::format("{} {} {}", transfer.from, transfer.to, transfer.amount);
}

State Read(const std::string& path) {
  State state;
  std::ifstream file(path);
  std::string kind, key;
  while (file >> kind >> key) {
    if (kind == "run") {
      state.run = std::stoull(key);
    } else if (kind == "account") {
      file >> state.balances[key];
    } else {
      Transfer& transfer = state.transfers[key];
      int outcome = 0;
      file >> transfer.from >> transfer.to >> transfer.amount >> outcome;
      transfer.outcome = static_cast<Transfer::Outcome>(outcome);
    }
  }
  return state;
}

bool Write(const std::string& path, const State& state) {
  std::ofstream file(path, std::ios::trunc);
  file << "run " << state.run << '\n';
  for (const auto& [key, balance] : state.balances) file << "account " << key << ' ' << balance << '\n';
  for (const auto& [key, transfer] : state.transfers) {
    file << "transfer " << key << ' ' << Describe(transfer) << ' ' << static_cast<int>(transfer.outcome) << '\n';
  }
  return file.good();
}

// Balances and records of transfers in the store, read at one moment.
struct Found {
  std::map<std::string, int64_t> balances;
  std::map<std::string, std::string> records;
};

absl::StatusOr<Found> Find(const Bank& bank, uint64_t run) {
  Found found;
  const absl::StatusOr<Committed> read =
      bank.client->RunTransaction([&bank, &found, run](Transaction* transaction) -> absl::Status {
        found = {};
        for (const bool high : {false, true}) {
          for (int i = 0; i < kInHalf; ++i) {
            const std::string key = Account(high, i);
            const Table* const table = bank.TableOf(key);
            ASSIGN_OR_RETURN(const std::optional<std::string> value,
                             table == nullptr ? transaction->Get(key) : transaction->Get(*table, key));
            if (value.has_value()) found.balances[key] = std::stoll(*value);
          }
        }
        ASSIGN_OR_RETURN(const Transaction::Pairs records, transaction->Scan(PrefixScan(Records(run))));
        found.records = {records.begin(), records.end()};
        return absl::OkStatus();
      });
  if (!read.ok()) return read.status();
  return found;
}

// Returns how many things are wrong. What was found becomes the new initial state.
int Verify(const Found& found, State* state) {
  int wrong = 0;
  const auto complain = [&wrong](const std::string& what) {
    fmt::print("{}\n", what);
    ++wrong;
  };
  size_t acknowledged = 0;
  std::map<std::string, int64_t> expected = state->balances;
  for (const auto& [key, text] : found.records) {
    const auto transfer = state->transfers.find(key);
    if (transfer == state->transfers.end() || transfer->second.outcome == Transfer::Outcome::kFailed ||
        Describe(transfer->second) != text) {
      complain(fmt::format("{} is there, \"{}\", but no such transfer was begun, or it has failed", key, text));
      continue;
    }
    expected[transfer->second.from] -= transfer->second.amount;
    expected[transfer->second.to] += transfer->second.amount;
  }
  for (const auto& [key, transfer] : state->transfers) {
    if (transfer.outcome != Transfer::Outcome::kAcknowledged) continue;
    ++acknowledged;
    if (!found.records.contains(key)) complain(fmt::format("{} was acknowledged, and is lost", key));
  }
  int64_t sum = 0;
  for (const auto& [key, balance] : found.balances) sum += balance;
  if (sum != kInitial * static_cast<int64_t>(found.balances.size())) complain(fmt::format("the sum is {}", sum));
  if (found.balances.size() != expected.size()) complain(fmt::format("{} accounts are there", found.balances.size()));
  for (const auto& [key, balance] : expected) {
    const auto it = found.balances.find(key);
    const int64_t is = it == found.balances.end() ? 0 : it->second;
    if (is != balance) complain(fmt::format("{} has {}, but by the records of transfers it has {}", key, is, balance));
  }
  fmt::print("verified; {} transfers acknowledged, {} there, {} things wrong\n", acknowledged, found.records.size(),
             wrong);
  std::fflush(stdout);
  *state = {state->run, found.balances, {}};
  return wrong;
}

absl::Status MakeAccounts(const Bank& bank, State* state) {
  absl::Status status;
  // A try whose outcome is unknown is repeated: nobody else uses the accounts yet.
  for (int tries = 0; tries == 0 || (tries < 10 && IsMaybeApplied(status)); ++tries) {
    status = bank.client
                 ->RunTransaction([&bank, state](Transaction* transaction) -> absl::Status {
                   for (const bool high : {false, true}) {
                     for (int i = 0; i < kInHalf; ++i) {
                       state->balances[Account(high, i)] = kInitial;
                       RETURN_IF_ERROR(bank.Put(transaction, Account(high, i), kInitial));
                     }
                   }
                   return absl::OkStatus();
                 })
                 .status();
  }
  return status;
}

// Makes one transfer. Its outcome stays unknown if nobody tells it.
Task<bool> Move(const Bank* bank, const std::string* record, Transfer* transfer) {
  Transaction transaction = bank->client->Begin();
  std::array<int64_t, 2> balances{};
  const std::array<std::string, 2> keys = {transfer->from, transfer->to};
  for (size_t i = 0; i < 2; ++i) {
    const Table* const table = bank->TableOf(keys[i]);
    absl::StatusOr<std::optional<std::string>> value;
    if (table == nullptr) {
      value = co_await transaction.AsyncGet(keys[i]);
    } else {
      value = co_await transaction.AsyncGet(*table, keys[i]);
    }
    if (!value.ok() || !value->has_value()) {
      transfer->outcome = Transfer::Outcome::kFailed;
      co_return false;
    }
    balances[i] = std::stoll(**value);
  }
  absl::Status noted = bank->Put(&transaction, keys[0], balances[0] - transfer->amount);
  noted.Update(bank->Put(&transaction, keys[1], balances[1] + transfer->amount));
  noted.Update(transaction.Put(*record, Describe(*transfer)));
  CELL_CHECK(noted.ok());
  const absl::StatusOr<Committed> committed = co_await transaction.AsyncCommit();
  if (committed.ok()) {
    transfer->outcome = Transfer::Outcome::kAcknowledged;
  } else if (!IsMaybeApplied(committed.status())) {
    transfer->outcome = Transfer::Outcome::kFailed;
  } else {
    Task<absl::StatusOr<std::optional<Committed>>> ask = bank->client->AsyncOutcome(transaction.id());
    const absl::StatusOr<std::optional<Committed>> outcome = co_await std::move(ask);
    if (!outcome.ok()) co_return false;
    transfer->outcome = outcome->has_value() ? Transfer::Outcome::kAcknowledged : Transfer::Outcome::kFailed;
  }
  co_return transfer->outcome == Transfer::Outcome::kAcknowledged;
}

Task<bool> MoveRepeatedly(const Bank* bank, State* state, int64_t until_ns, uint64_t task) {
  Random random(state->run * kTasks + task);
  const auto any = [&random] { return static_cast<int>(random.Below(kInHalf)); };
  for (uint64_t number = task; bank->client->NowNs() < until_ns; number += kTasks) {
    const bool up = random.Below(2) == 0;
    const std::string record = Records(state->run) + std::to_string(number);
    Transfer* const transfer = &state->transfers[record];
    transfer->from = Account(!up, any());
    transfer->to = Account(up, any());
    transfer->amount = 1 + static_cast<int64_t>(random.Below(100));
    co_await Move(bank, &record, transfer);
    co_await bank->client->AsyncSleepUntil(bank->client->NowNs() + kPauseNs);
  }
  co_return true;
}

// Counts the snapshots that were compared, and the mistakes in them.
struct Seen {
  int snapshots = 0;
  int wrong = 0;

  void Complain(const std::string& what) {
    ++wrong;
    fmt::print("{}\n", what);
  }
};

// Reads from a snapshot what the tree has of the bank.
Task<absl::Status> ReadSnapshot(const Bank* bank, Snapshot* snapshot, uint64_t run, Found* found) {
  for (const bool high : {false, true}) {
    for (int i = 0; i < kInHalf; ++i) {
      const std::string account = Account(high, i);
      if (bank->TableOf(account) != nullptr) continue;
      const absl::StatusOr<std::optional<std::string>> value = co_await snapshot->AsyncGet(account);
      if (!value.ok()) co_return value.status();
      if (value->has_value()) found->balances[account] = std::stoll(**value);
    }
  }
  Scan scan = snapshot->NewScan(PrefixScan(Records(run)));
  for (;;) {
    const absl::StatusOr<absl::Span<const Scan::Entry>> batch = co_await scan.AsyncNextBatch();
    if (!batch.ok()) co_return batch.status();
    if (batch->empty()) co_return absl::OkStatus();
    for (const Scan::Entry& entry : *batch) found->records.emplace(entry.key, entry.value);
  }
}

// Compares the accounts in a snapshot with the records in it. `initial`: what accounts had before all of these.
void CompareSnapshot(const Bank& bank, const std::map<std::string, int64_t>& initial, const Found& found, Seen* seen) {
  ++seen->snapshots;
  std::map<std::string, int64_t> expected;
  for (const auto& [account, balance] : initial) {
    if (bank.TableOf(account) == nullptr) expected[account] = balance;
  }
  for (const auto& [key, text] : found.records) {
    const std::optional<Transfer> transfer = Parse(text);
    if (!transfer.has_value()) {
      seen->Complain(fmt::format("{} in a snapshot is \"{}\"", key, text));
      continue;
    }
    if (expected.contains(transfer->from)) expected[transfer->from] -= transfer->amount;
    if (expected.contains(transfer->to)) expected[transfer->to] += transfer->amount;
  }
  for (const auto& [account, balance] : expected) {
    const auto it = found.balances.find(account);
    if (it != found.balances.end() && it->second == balance) continue;
    seen->Complain(fmt::format("in a snapshot {} has {}, but by the records of transfers in it {}", account,
                               it == found.balances.end() ? "nothing" : std::to_string(it->second), balance));
  }
}

// Takes snapshots, and compares what is in each. Servers may end meanwhile.
Task<bool> VerifySnapshots(const Bank* bank, const std::map<std::string, int64_t>* initial, uint64_t run,
                           int64_t until_ns, Seen* seen) {
  while (bank->client->NowNs() < until_ns) {
    SnapshotOptions options;
    options.keep_us = kSnapshotKeptUs;
    Task<absl::StatusOr<Snapshot>> take = bank->client->AsyncTakeSnapshot(std::move(options));
    absl::StatusOr<Snapshot> snapshot = co_await std::move(take);
    Found found;
    absl::Status read = snapshot.status();
    if (read.ok()) read = co_await ReadSnapshot(bank, &*snapshot, run, &found);
    if (read.ok()) {
      CompareSnapshot(*bank, *initial, found, seen);
    } else if (!IsSnapshotTooOld(read) && !absl::IsUnavailable(read) && !absl::IsDeadlineExceeded(read)) {
      seen->Complain(fmt::format("a snapshot could not be read: {}", read.ToString()));
    }
    if (snapshot.ok()) (void)co_await snapshot->AsyncForget();
    co_await bank->client->AsyncSleepUntil(bank->client->NowNs() + kSnapshotPauseNs);
  }
  co_return true;
}

absl::StatusOr<bool> Run(const Flags& flags) {
  ClientOptions options;
  options.cluster = flags.cluster;
  options.timeout_us = kTimeoutUs;
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Open(options));
  Bank bank{client.get(), {}};
  for (const std::string& name : flags.tables) {
    ASSIGN_OR_RETURN(Table table, client->OpenTable(name));
    bank.tables.push_back(std::move(table));
  }
  State state = Read(flags.state);
  ASSIGN_OR_RETURN(const Found found, Find(bank, state.run));
  if (Verify(found, &state) > 0) return false;
  if (state.balances.empty()) RETURN_IF_ERROR(MakeAccounts(bank, &state));
  (void)client->DeleteRange("ztransfer/", "ztransfer0");  // Those that stay are never looked at again.
  state.run = flags.seed;
  const int64_t until_ns = client->NowNs() + static_cast<int64_t>(flags.seconds * 1e9);
  std::vector<Task<bool>> tasks;
  for (uint64_t task = 0; task < kTasks; ++task) {
    tasks.push_back(MoveRepeatedly(&bank, &state, until_ns, task));
    tasks.back().Start();
  }
  const std::map<std::string, int64_t> initial = state.balances;
  Seen seen;
  if (!initial.empty()) tasks.push_back(VerifySnapshots(&bank, &initial, state.run, until_ns, &seen));
  tasks.back().Start();
  for (const Task<bool>& task : tasks) {
    while (!task.done()) client->Poll(client->NowNs() + 1'000'000);
  }
  fmt::print("{} snapshots, {} things wrong in them\n", seen.snapshots, seen.wrong);
  return Write(flags.state, state) && seen.wrong == 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"Move and verify money for tests/crash_loop.py."};
  app.add_option("--cluster", flags.cluster)->required();
  app.add_option("--state", flags.state)->required();
  app.add_option("--tables", flags.tables)->expected(2)->required();
  app.add_option("--seconds", flags.seconds);
  app.add_option("--seed", flags.seed);
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<bool> right = Run(flags);
  if (!right.ok()) fmt::print("{}\n", right.status().ToString());
  return right.ok() && *right ? 0 : 1;
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }
