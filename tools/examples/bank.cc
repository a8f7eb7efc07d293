// Moves money between accounts from many threads, and audits the accounts at the same time.
//
// Shows that a transaction moves an amount as a whole or not at all, whichever servers have the two accounts, and that
// a transaction reads a whole range at one moment.
//
// Keys: account/00042 has the balance of account 42, in decimal. Every account begins with 1,000.
//
// Why transactions:
// - With single gets and puts two transfers could read the same balance, and one of them would be lost.
// - A program that ends between its two puts would leave money that is nowhere.
// - Without a transaction the auditor could read one account before a transfer, and the other one after it. It would
//   find a sum that was never there.
//
// What to look at: Transfer, which decides by what it has read, Audit, which reads a range, and RunUntilKnown, which
// asks Client::Outcome whether a transfer was made if the answer to its commit was lost.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cell/base/random.h"
#include "cell/base/status_macros.h"
#include "cell/client/transaction.h"
#include "cell/cmd/number_flags.h"
#include "fmt/format.h"
#include "tools/examples/example.h"
#include "tools/examples/run_until_known.h"

namespace cell {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr char kPrefix[] = "account/";
constexpr uint64_t kOpeningBalance = 1000;

struct Flags {
  ClientOptions client;
  uint64_t accounts = 100;
  uint64_t clients = 4;
  double seconds = 5;
};

std::string KeyOf(uint64_t account) { return fmt::format("{}{:05}", kPrefix, account); }

// Creates the accounts, all of them or none. Keeps those that are there. The transaction has read the whole range, so
// of two programs that do this at the same time one finds the accounts of the other.
absl::Status CreateAccounts(Client* client, uint64_t accounts) {
  size_t found = 0;
  const auto body = [&](Transaction* tx) -> absl::Status {
    ASSIGN_OR_RETURN(const Transaction::Pairs pairs, tx->Scan(PrefixScan(kPrefix)));
    found = pairs.size();
    if (found > 0) return absl::OkStatus();
    for (uint64_t i = 0; i < accounts; ++i) RETURN_IF_ERROR(tx->Put(KeyOf(i), std::to_string(kOpeningBalance)));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RunUntilKnown(client, body).status());
  if (found == 0 || found == accounts) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("the cluster has {} accounts: use --accounts {}", found, found));
}

absl::StatusOr<uint64_t> BalanceOf(Transaction* tx, const std::string& key) {
  ASSIGN_OR_RETURN(const std::optional<std::string> balance, tx->Get(key));
  if (!balance.has_value()) return absl::NotFoundError(fmt::format("there is no {}", key));
  return NumberIn(key, *balance);
}

// Moves an amount. Returns false if the balance is too small. REQUIRES: `from` and `to` are not the same.
absl::StatusOr<bool> Transfer(Client* client, const std::string& from, const std::string& to, uint64_t amount) {
  bool enough = false;
  const auto body = [&](Transaction* tx) -> absl::Status {
    ASSIGN_OR_RETURN(const uint64_t less, BalanceOf(tx, from));
    ASSIGN_OR_RETURN(const uint64_t more, BalanceOf(tx, to));
    enough = less >= amount;
    // A refusal is committed as well: only the commit makes sure that the balance was as low as it looked.
    if (!enough) return absl::OkStatus();
    RETURN_IF_ERROR(tx->Put(from, std::to_string(less - amount)));
    return tx->Put(to, std::to_string(more + amount));
  };
  RETURN_IF_ERROR(RunUntilKnown(client, body).status());
  return enough;
}

// Returns the sum of all balances at one moment. Each transfer that commits between the scan and the commit aborts the
// transaction, so it may take some tries.
absl::StatusOr<uint64_t> Audit(Client* client) {
  uint64_t sum = 0;
  const auto body = [&](Transaction* tx) -> absl::Status {
    sum = 0;  // An earlier try has left its own sum here.
    ASSIGN_OR_RETURN(const Transaction::Pairs pairs, tx->Scan(PrefixScan(kPrefix)));
    for (const auto& [key, value] : pairs) {
      ASSIGN_OR_RETURN(const uint64_t balance, NumberIn(key, value));
      sum += balance;
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RunUntilKnown(client, body).status());
  return sum;
}

struct Transfers {
  uint64_t made = 0;
  uint64_t refused = 0;
};

// Makes transfers until the time is over, or `stopped`. Runs in a thread with a client of its own.
absl::StatusOr<Transfers> MakeTransfers(const Flags& flags, uint64_t seed, SteadyClock::time_point until,
                                        const std::atomic<bool>& stopped) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, OpenClient(flags.client));
  Random random(seed);
  Transfers transfers;
  do {
    const uint64_t from = random.Below(flags.accounts);
    const uint64_t to = (from + 1 + random.Below(flags.accounts - 1)) % flags.accounts;  // Another one.
    const uint64_t amount = 1 + random.Below(kOpeningBalance);
    ASSIGN_OR_RETURN(const bool moved, Transfer(client.get(), KeyOf(from), KeyOf(to), amount));
    ++(moved ? transfers.made : transfers.refused);
  } while (!stopped && SteadyClock::now() < until);
  return transfers;
}

absl::StatusOr<int> Run(const Flags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> auditor, OpenClient(flags.client));
  RETURN_IF_ERROR(CreateAccounts(auditor.get(), flags.accounts));

  std::random_device seeds;
  const auto until = SteadyClock::now() +
                     std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(flags.seconds));
  std::atomic<uint64_t> running = flags.clients;
  std::atomic<bool> stopped = false;
  std::vector<std::future<absl::StatusOr<Transfers>>> threads;
  for (uint64_t i = 0; i < flags.clients; ++i) {
    threads.push_back(std::async(std::launch::async, [&flags, &running, &stopped, seed = seeds(), until] {
      absl::StatusOr<Transfers> transfers = MakeTransfers(flags, seed, until, stopped);
      --running;
      return transfers;
    }));
  }

  // This thread is the auditor. Its last audit begins after the last transfer.
  const uint64_t right = flags.accounts * kOpeningBalance;
  uint64_t audits = 0;
  absl::StatusOr<uint64_t> sum = right;
  for (bool last = false; !last && sum.ok() && *sum == right;) {
    last = running == 0;
    sum = Audit(auditor.get());
    // Many transfers may abort it for longer than it tries.
    if (absl::IsAborted(sum.status()) && !last) {
      sum = right;
    } else {
      ++audits;
    }
  }
  stopped = true;
  Transfers all;
  absl::Status status = sum.status();
  for (auto& thread : threads) {
    const absl::StatusOr<Transfers> transfers = thread.get();
    status.Update(transfers.status());
    if (!transfers.ok()) continue;
    all.made += transfers->made;
    all.refused += transfers->refused;
  }
  RETURN_IF_ERROR(status);
  fmt::print("transfers  {}\nrefused    {}\naudits     {}\n", all.made, all.refused, audits);
  if (*sum != right) {
    fmt::print("the sum was {} in the last audit, and not {}\n", *sum, right);
    return kWrong;
  }
  fmt::print("the sum was right in every audit\n");
  return kDone;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Move money between accounts from several clients, and check the sum of all balances meanwhile");
  DeclareCluster(&app, &flags.client);
  app.add_option("--accounts", flags.accounts, "Number of accounts, which are created if there are none")
      ->check(WholeNumber(2, 2000))
      ->capture_default_str();
  app.add_option("--clients", flags.clients, "Number of threads that make transfers")
      ->check(WholeNumber(1, 64))
      ->capture_default_str();
  app.add_option("--seconds", flags.seconds, "How long to make transfers")
      ->check(Between(0.1, 86'400))
      ->capture_default_str();
  return RunExample("bank", &app, argc, argv, [&flags] { return Run(flags); });
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }
