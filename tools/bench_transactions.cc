#include "tools/bench_transactions.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "cell/client/snapshot.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr int64_t kPauseNs = 50'000;
constexpr int kPauseDoublings = 8;
constexpr uint64_t kItems = 10'000, kDistricts = 10, kCustomers = 3'000;

uint64_t NumberOf(const std::string& value) {
  uint64_t number = 0;
  std::memcpy(&number, value.data(), std::min(sizeof(number), value.size()));
  return number;
}

// Returns the value with another number.
std::string WithNumber(std::string value, uint64_t number) {
  std::memcpy(value.data(), &number, std::min(sizeof(number), value.size()));
  return value;
}

}  // namespace

std::string BenchTransactions::Key(uint64_t i) const {
  std::string key;
  MakeKey(i, &key, shape_);
  return key;
}

std::string BenchTransactions::Fresh(const std::string& key, uint64_t number) const {
  std::string value;
  MakeValue(std::hash<std::string>()(key), 0, &value, shape_);
  return WithNumber(std::move(value), number);
}

Task<absl::Status> BenchTransactions::Run(BenchTransaction kind) {
  Drawn drawn{kind, {}, Random(random_->Next())};
  const size_t wanted = std::min<uint64_t>(4, keys_);
  drawn.numbers.reserve(wanted);
  while (drawn.numbers.size() < wanted) {
    const uint64_t number = chooser_->Next();
    if (std::find(drawn.numbers.begin(), drawn.numbers.end(), number) == drawn.numbers.end()) {
      drawn.numbers.push_back(number);
    }
  }
  if (kind == BenchTransaction::kSnapshot) {
    std::string key = Key(drawn.numbers[0]);
    co_return co_await ReadSnapshot(std::move(key));
  }
  for (int tries = 0;; ++tries) {
    Transaction tx = client_->Begin();
    absl::Status status = co_await Body(&tx, &drawn);
    if (absl::IsCancelled(status)) co_return absl::OkStatus();
    if (status.ok()) {
      const absl::StatusOr<Committed> committed = co_await tx.AsyncCommit();
      status = committed.status();
    }
    if (!absl::IsAborted(status)) co_return status;
    ++aborted_;
    const int64_t longest_ns = kPauseNs << std::min(tries, kPauseDoublings);
    const int64_t until_ns = client_->NowNs() + static_cast<int64_t>(random_->Below(static_cast<uint64_t>(longest_ns)));
    co_await client_->AsyncSleepUntil(until_ns);
  }
}

Task<absl::Status> BenchTransactions::ReadSnapshot(std::string key) {
  SnapshotOptions options;
  absl::StatusOr<Snapshot> snapshot = co_await client_->AsyncTakeSnapshot(std::move(options));
  if (!snapshot.ok()) co_return snapshot.status();
  const absl::StatusOr<std::optional<std::string>> value = co_await snapshot->AsyncGet(key);
  if (!value.ok()) co_return value.status();
  if (co_await snapshot->AsyncForget()) co_return absl::OkStatus();
  co_return absl::UnavailableError("the servers could not be told that a snapshot is not needed any more");
}

Task<absl::Status> BenchTransactions::Body(Transaction* tx, const Drawn* drawn) {
  std::vector<std::string> keys;
  for (const uint64_t number : drawn->numbers) keys.push_back(Key(number));
  Random random = drawn->random;
  switch (drawn->kind) {
    case BenchTransaction::kTwo:
      if (keys.size() > 1) {
        std::string value = Fresh(keys[1], random.Next());
        if (const absl::Status put = tx->Put(keys[1], value); !put.ok()) co_return put;
      }
      [[fallthrough]];
    case BenchTransaction::kPut: {
      std::string value = Fresh(keys[0], random.Next());
      co_return tx->Put(keys[0], value);
    }
    case BenchTransaction::kRead:
      co_return co_await GetAll(tx, std::move(keys));
    case BenchTransaction::kRewrite: {
      std::string key = keys[0];
      keys.resize(1);
      const auto rows = co_await Rows(tx, std::move(keys));
      if (!rows.ok()) co_return rows.status();
      co_return tx->Put(key, WithNumber((*rows)[0], NumberOf((*rows)[0]) + 1));
    }
    case BenchTransaction::kSmallBank:
      co_return co_await SmallBank(tx, drawn);
    case BenchTransaction::kTatp:
      co_return co_await Tatp(tx, drawn);
    case BenchTransaction::kSnapshot:
      break;
    case BenchTransaction::kNewOrder:
      co_return co_await NewOrder(tx, drawn);
  }
  co_return absl::InternalError("no such transaction");
}

Task<absl::Status> BenchTransactions::GetAll(Transaction* tx, std::vector<std::string> keys) {
  std::vector<Task<absl::StatusOr<std::optional<std::string>>>> gets;
  gets.reserve(keys.size());
  for (const std::string& key : keys) gets.push_back(tx->AsyncGet(key));
  for (auto& get : gets) get.Start();
  absl::Status status;
  for (auto& get : gets) {
    const absl::StatusOr<std::optional<std::string>> got = co_await get.Join();
    status.Update(got.status());
  }
  co_return status;
}

Task<absl::StatusOr<std::vector<std::string>>> BenchTransactions::Rows(Transaction* tx, std::vector<std::string> keys) {
  std::vector<Task<absl::StatusOr<std::optional<std::string>>>> gets;
  gets.reserve(keys.size());
  for (const std::string& key : keys) gets.push_back(tx->AsyncGet(key));
  for (auto& get : gets) get.Start();
  std::vector<std::string> rows;
  absl::Status status;
  for (size_t i = 0; i < keys.size(); ++i) {
    absl::StatusOr<std::optional<std::string>> got = co_await gets[i].Join();
    status.Update(got.status());
    if (!got.ok()) continue;
    rows.push_back(got->has_value() ? **std::move(got) : Fresh(keys[i], 0));
  }
  if (!status.ok()) co_return status;
  co_return rows;
}

// H-Store's frequencies: Balance, DepositChecking, TransactSavings, WriteCheck and Amalgamate 15 % each, and
// SendPayment 25 %.
Task<absl::Status> BenchTransactions::SmallBank(Transaction* tx, const Drawn* drawn) {
  Random random = drawn->random;
  const uint64_t choice = random.Below(100), amount = 1 + random.Below(100);
  const uint64_t first = drawn->numbers[0] / 2 * 2, second = drawn->numbers.back() / 2 * 2;
  const std::string checking = Key(first), savings = Key(first + 1), other = Key(second);
  std::vector<std::string> keys;
  if (choice < 15 || choice >= 45) keys.push_back(checking);
  if (choice < 15 || (choice >= 30 && choice < 75)) keys.push_back(savings);
  if (choice >= 15 && choice < 30) keys.push_back(checking);
  if (choice >= 60 && second != first) keys.push_back(other);
  const std::vector<std::string> read = keys;
  const auto rows = co_await Rows(tx, std::move(keys));
  if (!rows.ok()) co_return rows.status();
  const auto change = [&](const std::string& key, uint64_t by, bool to = false) -> absl::Status {
    const auto at = std::find(read.begin(), read.end(), key);
    if (at == read.end()) return absl::OkStatus();
    const std::string& value = (*rows)[static_cast<size_t>(at - read.begin())];
    return tx->Put(key, WithNumber(value, to ? by : NumberOf(value) + by));
  };
  absl::Status status;
  if (choice < 15) co_return status;                        // Balance.
  if (choice < 30) co_return change(checking, amount);      // DepositChecking.
  if (choice < 45) co_return change(savings, amount);       // TransactSavings.
  if (choice < 60) co_return change(checking, 0 - amount);  // WriteCheck.
  if (choice < 75) {                                        // Amalgamate.
    const uint64_t all = NumberOf((*rows)[0]) + NumberOf((*rows)[1]);
    status.Update(change(checking, 0, true));
    status.Update(change(savings, 0, true));
    status.Update(change(other, all));
    co_return status;
  }
  status.Update(change(checking, 0 - amount));  // SendPayment.
  status.Update(change(other, amount));
  co_return status;
}

// GET_SUBSCRIBER_DATA 35 %, GET_ACCESS_DATA 35 %, GET_NEW_DESTINATION 10 %, UPDATE_LOCATION 14 %,
// UPDATE_SUBSCRIBER_DATA 2 %, INSERT_CALL_FORWARDING 2 %, DELETE_CALL_FORWARDING 2 %.
Task<absl::Status> BenchTransactions::Tatp(Transaction* tx, const Drawn* drawn) {
  Random random = drawn->random;
  const uint64_t choice = random.Below(100), first = drawn->numbers[0] / 4 * 4;
  const std::string subscriber = Key(first), access = Key(first + 1), facility = Key(first + 2);
  const std::string forwarding = Key(first + 3);
  std::vector<std::string> keys;
  if (choice < 35 || choice >= 80) keys.push_back(subscriber);
  if (choice >= 35 && choice < 70) keys.push_back(access);
  if ((choice >= 70 && choice < 80) || choice >= 94) keys.push_back(facility);
  if (choice >= 70 && choice < 80) keys.push_back(forwarding);
  const auto rows = co_await Rows(tx, std::move(keys));
  if (!rows.ok()) co_return rows.status();
  if (choice < 80) co_return absl::OkStatus();
  if (choice >= 96 && choice < 98) {
    std::string value = Fresh(forwarding, random.Next());
    co_return tx->Put(forwarding, value);
  }
  if (choice >= 98) co_return tx->Delete(forwarding);
  absl::Status status = tx->Put(subscriber, WithNumber((*rows)[0], random.Next()));
  if (choice >= 94) status.Update(tx->Put(facility, WithNumber((*rows)[1], random.Next())));
  co_return status;
}

Task<absl::Status> BenchTransactions::NewOrder(Transaction* tx, const Drawn* drawn) {
  Random random = drawn->random;
  const uint64_t warehouses = std::max<uint64_t>(1, keys_ / 10'000);
  const uint64_t w = random.Below(warehouses), d = random.Below(kDistricts), c = random.Below(kCustomers);
  const uint64_t lines = 5 + random.Below(11);
  const bool gives_up = random.Below(100) == 0;
  const std::string warehouse = fmt::format("{}w{:05}/", shape_.prefix, w);
  const std::string district = fmt::format("{}d{:02}/", warehouse, d);
  std::vector<std::string> keys = {warehouse, district, fmt::format("{}c{:04}", district, c)};
  std::vector<uint64_t> ordered;
  while (ordered.size() < lines) {
    const uint64_t item = random.Below(kItems);
    if (std::find(ordered.begin(), ordered.end(), item) == ordered.end()) ordered.push_back(item);
  }
  for (const uint64_t item : ordered) {
    // One item in 100 comes from another warehouse.
    const uint64_t from = random.Below(100) == 0 ? random.Below(warehouses) : w;
    keys.push_back(fmt::format("{}item/{:05}", shape_.prefix, item));
    keys.push_back(fmt::format("{}w{:05}/s/{:05}", shape_.prefix, from, item));
  }
  const std::vector<std::string> read = keys;
  const auto rows = co_await Rows(tx, std::move(keys));
  if (!rows.ok()) co_return rows.status();
  if (gives_up) co_return absl::CancelledError("an item of the order does not exist");
  const uint64_t number = NumberOf((*rows)[1]);
  const std::string order = fmt::format("{}o{:08}/", district, number);
  absl::Status status = tx->Put(district, WithNumber((*rows)[1], number + 1));
  status.Update(tx->Put(order, Fresh(order, lines)));
  const std::string waiting = fmt::format("{}n{:08}", district, number);
  status.Update(tx->Put(waiting, Fresh(waiting, 0)));
  for (size_t i = 0; i < lines; ++i) {
    const size_t at = 4 + 2 * i;
    const uint64_t quantity = 1 + random.Below(10), stock = NumberOf((*rows)[at]);
    status.Update(tx->Put(read[at], WithNumber((*rows)[at], stock - quantity + (stock >= quantity + 10 ? 0 : 91))));
    const std::string line = fmt::format("{}{:02}", order, i);
    status.Update(tx->Put(line, Fresh(line, quantity)));
  }
  co_return status;
}

}  // namespace cell
