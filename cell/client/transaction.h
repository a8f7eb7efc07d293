// Transaction reads and writes several keys of the tree, and of Pilaf tables, at one moment, whichever servers have
// them.
//
//   const auto move = [](cell::Transaction* tx) -> absl::Status {
//     const absl::StatusOr<std::optional<std::string>> from = tx->Get("account/a");
//     if (!from.ok()) return from.status();
//     ...
//     if (const absl::Status put = tx->Put("account/a", less); !put.ok()) return put;
//     return tx->Put("account/b", more);
//   };
//   const absl::StatusOr<cell::Committed> moved = client->RunTransaction(move);
//
// Transactions are strictly serializable, with each other and with all other reads and writes of the tree and of
// tables: there is an order in which each of them happens at once, and one that begins after another has ended comes
// after it. That includes scans: no key appears in a range that a transaction has read before it commits
// (docs/transactions.md).
//
// Nothing is locked before Commit. What a transaction has read is checked then, and if it has changed, nothing is
// written and Commit returns Aborted: begin again, or let Client::RunTransaction do so. Until Commit has returned OK,
// what was read may be of different moments: do not act upon it, and do not rely on it to be consistent.
//
// After a commit in several regions, the client tells them in the background. A program that ends calls
// Client::FinishTransactions first.
//
// Not thread-safe, like Client. A transaction must not outlive its client, nor be moved while one of its tasks runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cell/base/task.h"
#include "cell/client/client.h"

namespace cell {

struct TransactionSet;

// A transaction that has committed.
struct Committed {
  uint64_t stamp = 0;  // Of all pairs that it has put. 0: it has written nothing.
};

// Names a transaction whose outcome is unknown. It can be asked for within a minute.
struct TransactionId {
  uint64_t client = 0;
  uint64_t number = 0;
  uint64_t until = 0;
  uint16_t slot = 0;
  std::string key = {};    // One that its primary region has.
  std::string table = {};  // The table of the key; empty: it is one of the tree.
};

class Transaction {
 public:
  // Limits: 2,048 keys and ranges together, read or written; 1 MB for them and the values that are written, with 24
  // bytes for each, so a value of nearly 1 MB is too large; writes to 17 regions; in each region, ranges with 16,384
  // pairs. Regions whose stamps are more than nine minutes apart can take no part in one transaction: each takeover
  // puts a region ten seconds ahead.
  Transaction(Transaction&&) noexcept;
  Transaction& operator=(Transaction&&) noexcept;
  ~Transaction();  // Gives the transaction up unless it was committed. Nothing has to be undone.

  // Return what the transaction has written itself, and otherwise what is stored. Return Aborted if a key was read
  // before and has changed since.
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key, const CallOptions& options = {});
  absl::StatusOr<std::vector<std::optional<std::string>>> MultiGet(absl::Span<const std::string_view> keys,
                                                                   const CallOptions& options = {});
  // Work like these for keys of a table, which must outlive the call. Return NotFound if it was dropped.
  absl::StatusOr<std::optional<std::string>> Get(const Table& table, std::string_view key,
                                                 const CallOptions& options = {});
  absl::StatusOr<std::vector<std::optional<std::string>>> MultiGet(const Table& table,
                                                                   absl::Span<const std::string_view> keys,
                                                                   const CallOptions& options = {});
  // Returns the pairs of a range, in the order of the scan. `options.keys_only` is not for transactions.
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  absl::StatusOr<Pairs> Scan(const ScanOptions& options);
  // Note what is to be written. The last write of a key counts. Return InvalidArgument for a key or a value that cannot
  // be stored, and for more than a transaction can write; then Commit returns the same, and writes nothing. Commit also
  // returns InvalidArgument for an expiry that cannot be.
  absl::Status Put(std::string_view key, std::string_view value, Expires expires = Expires::Never());
  absl::Status Delete(std::string_view key);
  absl::Status Put(const Table& table, std::string_view key, std::string_view value,
                   Expires expires = Expires::Never());
  absl::Status Delete(const Table& table, std::string_view key);

  // Commits, and ends the transaction. Returns Aborted if something that was read has changed, or another transaction
  // holds a key: nothing was written. If IsMaybeApplied, all of it was written, or nothing, or will be: Client::Outcome
  // tells. A user with grants needs the right to read to find a key's region, and the right to scan for ranges.
  absl::StatusOr<Committed> Commit(const CallOptions& options = {});
  // Returns the id of the commit that was tried last.
  const TransactionId& id() const;

  Task<absl::StatusOr<std::optional<std::string>>> AsyncGet(std::string_view key, CallOptions options = {});
  Task<absl::StatusOr<std::optional<std::string>>> AsyncGet(const Table& table, std::string_view key,
                                                            CallOptions options = {});
  Task<absl::StatusOr<Pairs>> AsyncScan(ScanOptions options);
  Task<absl::StatusOr<Committed>> AsyncCommit(CallOptions options = {});

 private:
  friend class Client;  // Client::Begin makes them.
  explicit Transaction(Client* client);
  absl::Status CheckOpen() const;
  // `table` is the name of the table, or empty.
  absl::Status CheckNewWrite(std::string_view table, std::string_view key, std::string_view value) const;
  absl::Status NoteWrite(std::string_view table, std::string_view key, std::optional<std::string_view> value,
                         uint64_t expires);

  Client* client_;
  std::unique_ptr<TransactionSet> set_;
};

}  // namespace cell
