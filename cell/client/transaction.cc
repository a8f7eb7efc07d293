#include "cell/client/transaction.h"

#include <algorithm>

#include "cell/base/random.h"
#include "cell/base/status_macros.h"
#include "cell/client/call/calls.h"
#include "cell/client/call/transact.h"
#include "cell/client/session/session.h"
#include "cell/client/table/table_operations.h"
#include "cell/client/tree/tree_operations.h"
#include "fmt/format.h"

namespace cell {
namespace {

using Value = std::optional<std::string>;

constexpr int64_t kPauseNs = 50'000;
constexpr int kPauseDoublings = 8;  // Up to 13 ms.
constexpr int64_t kFinishNs = 1'000'000'000;

absl::Status Changed(std::string_view key) {
  return absl::AbortedError(
      fmt::format("key {} has changed since the transaction has read it; nothing was written", ForMessage(key)));
}

}  // namespace

Transaction::Transaction(Client* client) : client_(client), set_(std::make_unique<TransactionSet>()) {}
Transaction::Transaction(Transaction&&) noexcept = default;
Transaction& Transaction::operator=(Transaction&&) noexcept = default;
Transaction::~Transaction() = default;

const TransactionId& Transaction::id() const { return set_->id; }

absl::Status Transaction::CheckOpen() const {
  if (set_ != nullptr && !set_->ended) return absl::OkStatus();
  return absl::FailedPreconditionError("the transaction has ended");
}

Task<absl::StatusOr<Value>> Transaction::AsyncGet(std::string_view key, CallOptions options) {
  if (const absl::Status open = CheckOpen(); !open.ok()) co_return open;
  if (const Value* const own = set_->Own({{}, key}); own != nullptr) co_return *own;
  LeafToken token;
  const absl::StatusOr<Value> value = co_await GetFromTree(client_->session_.get(), key, options, &token);
  if (!value.ok()) co_return value.status();
  if (const absl::Status open = CheckOpen(); !open.ok()) co_return open;
  if (!set_->NoteRead({{}, key}, *value, token)) co_return Changed(key);
  co_return *value;
}

Task<absl::StatusOr<Value>> Transaction::AsyncGet(const Table& table, std::string_view key, CallOptions options) {
  if (const absl::Status open = CheckOpen(); !open.ok()) co_return open;
  if (const Value* const own = set_->Own({table.name(), key}); own != nullptr) co_return *own;
  const absl::StatusOr<Value> value =
      co_await GetFromTable(client_->session_.get(), &table.name(), key, /*serializable=*/true, options);
  if (!value.ok()) co_return value.status();
  if (const absl::Status open = CheckOpen(); !open.ok()) co_return open;
  if (!set_->NoteRead({table.name(), key}, *value, {})) co_return Changed(key);
  co_return *value;
}

Task<absl::StatusOr<Transaction::Pairs>> Transaction::AsyncScan(ScanOptions options) {
  if (const absl::Status open = CheckOpen(); !open.ok()) co_return open;
  if (options.keys_only) co_return absl::InvalidArgumentError("a transaction's scan reads values as well");
  const std::string first(1, '\0');
  if (options.from.empty()) options.from = first;
  TransactionSet::Range range{options.from, options.to.value_or(""), {}};
  if (options.to.has_value() && *options.to <= options.from) co_return Pairs();
  // The transaction's own writes may hide pairs, or come between them.
  const uint64_t limit = options.limit;
  if (limit == 0) co_return Pairs();
  const bool reverse = options.reverse;
  if (limit != UINT64_MAX) options.limit = limit + std::min(set_->writes.size(), UINT64_MAX - 1 - limit);
  cell::Scan scan = client_->NewScan(options);
  Pairs stored;
  while (true) {
    const absl::StatusOr<absl::Span<const cell::Scan::Entry>> batch = co_await scan.AsyncNextBatch();
    if (!batch.ok()) co_return batch.status();
    if (batch->empty()) break;
    for (const cell::Scan::Entry& entry : *batch) {
      stored.emplace_back(entry.key, entry.value);
      if (stored.size() <= kTransactionRangePairsMax * kTransactionRegionsMax) continue;
      co_return absl::InvalidArgumentError("a transaction's scan has read too many pairs: give it a limit");
    }
  }
  const bool cut = limit != UINT64_MAX && stored.size() >= options.limit;
  if (reverse) std::reverse(stored.begin(), stored.end());
  // The limit has ended the scan: nothing behind the last pair was read.
  if (cut && !reverse) range.to = stored.empty() ? range.from + '\0' : stored.back().first + '\0';
  if (cut && reverse && !stored.empty()) range.from = stored.front().first;
  for (const auto& [key, value] : stored) range.pairs.emplace_back(key, PairDigest(key, value));

  Pairs seen;
  auto pair = stored.begin();
  auto write = set_->writes.lower_bound(TransactionSet::PlaceView({}, range.from));
  const auto writes_end = range.to.empty() ? set_->EndOfTree() : set_->writes.lower_bound({{}, range.to});
  while (pair != stored.end() || write != writes_end) {
    const bool own = write != writes_end && (pair == stored.end() || write->first.second <= pair->first);
    if (!own) {
      seen.push_back(std::move(*pair++));
      continue;
    }
    if (pair != stored.end() && write->first.second == pair->first) ++pair;
    if (write->second.value.has_value()) seen.emplace_back(write->first.second, *write->second.value);
    ++write;
  }
  if (seen.size() > limit) {
    if (reverse) seen.erase(seen.begin(), seen.end() - static_cast<ptrdiff_t>(limit));
    seen.resize(limit);
  }
  if (reverse) std::reverse(seen.begin(), seen.end());
  if (const absl::Status open = CheckOpen(); !open.ok()) co_return open;
  set_->ranges.push_back(std::move(range));
  co_return seen;
}

Task<absl::StatusOr<Committed>> Transaction::AsyncCommit(CallOptions options) {
  if (const absl::Status open = CheckOpen(); !open.ok()) co_return open;
  set_->ended = true;
  if (!set_->refused.ok()) co_return set_->refused;
  const absl::StatusOr<uint64_t> stamp = co_await CommitTransaction(client_->session_.get(), set_.get(), options);
  if (!stamp.ok()) co_return stamp.status();
  co_return Committed{set_->writes.empty() ? 0 : *stamp};
}

absl::StatusOr<Value> Transaction::Get(std::string_view key, const CallOptions& options) {
  return client_->Run(AsyncGet(key, options));
}

absl::StatusOr<std::vector<Value>> Transaction::MultiGet(absl::Span<const std::string_view> keys,
                                                         const CallOptions& options) {
  std::vector<Task<absl::StatusOr<Value>>> gets;
  for (const std::string_view key : keys) gets.push_back(AsyncGet(key, options));
  return client_->RunAll(&gets);
}

absl::StatusOr<Value> Transaction::Get(const Table& table, std::string_view key, const CallOptions& options) {
  return client_->Run(AsyncGet(table, key, options));
}

absl::StatusOr<std::vector<Value>> Transaction::MultiGet(const Table& table, absl::Span<const std::string_view> keys,
                                                         const CallOptions& options) {
  std::vector<Task<absl::StatusOr<Value>>> gets;
  for (const std::string_view key : keys) gets.push_back(AsyncGet(table, key, options));
  return client_->RunAll(&gets);
}

absl::StatusOr<Transaction::Pairs> Transaction::Scan(const ScanOptions& options) {
  return client_->Run(AsyncScan(options));
}

absl::Status Transaction::CheckNewWrite(std::string_view table, std::string_view key, std::string_view value) const {
  RETURN_IF_ERROR(CheckRoomFor(*set_, {table, key}, value));
  RETURN_IF_ERROR(table.empty() ? CheckKey(key, client_->key_bytes_max(), "this cluster's nodes")
                                : CheckKey(key, kHashKeyBytesMax, "Pilaf tables"));
  return CheckWrite({key, value});
}

absl::Status Transaction::NoteWrite(std::string_view table, std::string_view key, std::optional<std::string_view> value,
                                    uint64_t expires) {
  RETURN_IF_ERROR(CheckOpen());
  if (absl::Status checked = CheckNewWrite(table, key, value.value_or("")); !checked.ok()) {
    set_->refused.Update(checked);
    return checked;
  }
  TransactionSet::Write write{std::nullopt, expires};
  if (value.has_value()) write.value = std::string(*value);
  set_->NoteWrite({table, key}, std::move(write));
  return absl::OkStatus();
}

absl::Status Transaction::Put(std::string_view key, std::string_view value, Expires expires) {
  return NoteWrite({}, key, value, expires.on_wire());
}

absl::Status Transaction::Delete(std::string_view key) { return NoteWrite({}, key, std::nullopt, 0); }

absl::Status Transaction::Put(const Table& table, std::string_view key, std::string_view value, Expires expires) {
  return NoteWrite(table.name(), key, value, expires.on_wire());
}

absl::Status Transaction::Delete(const Table& table, std::string_view key) {
  return NoteWrite(table.name(), key, std::nullopt, 0);
}

absl::StatusOr<Committed> Transaction::Commit(const CallOptions& options) { return client_->Run(AsyncCommit(options)); }

Transaction Client::Begin() { return Transaction(this); }

absl::StatusOr<std::optional<Committed>> Client::Outcome(const TransactionId& id, const CallOptions& options) {
  return Run(AsyncOutcome(id, options));
}

bool Client::FinishTransactions() {
  const size_t* const finishing = session_->finishing();
  const int64_t until_ns = NowNs() + kFinishNs;
  while (*finishing > 0 && !session_->closed() && NowNs() < until_ns) Poll(until_ns);
  return *finishing == 0;
}

Task<absl::StatusOr<std::optional<Committed>>> Client::AsyncOutcome(TransactionId id, CallOptions options) {
  const absl::StatusOr<std::optional<uint64_t>> stamp = co_await OutcomeOf(session_.get(), id, options);
  if (!stamp.ok()) co_return stamp.status();
  std::optional<Committed> committed;
  if (stamp->has_value()) committed = Committed{**stamp};
  co_return committed;
}

absl::StatusOr<Committed> Client::RunTransaction(const std::function<absl::Status(Transaction*)>& body,
                                                 const CallOptions& options) {
  const int64_t deadline_ns = session_->ContextOf(options).deadline_ns;
  Random random(static_cast<uint64_t>(NowNs()));
  for (int tries = 0;; ++tries) {
    Transaction transaction(this);
    absl::Status status = body(&transaction);
    if (status.ok()) {
      const auto rest = [&] {
        CallOptions its = options;
        if (deadline_ns != INT64_MAX) its.timeout_us = std::max<int64_t>(1, (deadline_ns - NowNs()) / 1000);
        return its;
      };
      absl::StatusOr<Committed> committed = transaction.Commit(rest());
      if (committed.ok()) return committed;
      status = committed.status();
      // `body` cannot ask, because the id is that of one try.
      if (IsMaybeApplied(status)) {
        if (NowNs() >= deadline_ns) return status;
        const absl::StatusOr<std::optional<Committed>> outcome = Outcome(transaction.id(), rest());
        if (!outcome.ok()) return status;
        if (outcome->has_value()) return **outcome;
        status = absl::AbortedError("the transaction did not commit, because its answer was lost");
      }
    }
    if (!absl::IsAborted(status)) return status;
    const int64_t longest_ns = kPauseNs << std::min(tries, kPauseDoublings);
    const int64_t until_ns = NowNs() + 1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(longest_ns)));
    if (until_ns >= deadline_ns) return status;
    Run(AsyncSleepUntil(until_ns));
  }
}

}  // namespace cell
