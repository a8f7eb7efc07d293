// The C API: transactions.
#include <cstring>
#include <memory>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/c/objects.h"

namespace cell::c {
namespace {

// The id of a transaction, as cell_transaction_id returns it: these fields, then the key, then the table's name.
struct EncodedId {
  uint64_t client, number, until;
  uint32_t slot, key_bytes;
};

std::string Encode(const TransactionId& id) {
  const EncodedId fixed{id.client, id.number, id.until, id.slot, static_cast<uint32_t>(id.key.size())};
  return std::string(reinterpret_cast<const char*>(&fixed), sizeof(fixed)) + id.key + id.table;
}

absl::StatusOr<TransactionId> Decode(cell_bytes bytes) {
  RETURN_IF_ERROR(CheckBytes(bytes));
  const std::string_view text = View(bytes);
  EncodedId fixed{};
  if (text.size() < sizeof(fixed)) return absl::InvalidArgumentError("this is not the id of a transaction");
  std::memcpy(&fixed, text.data(), sizeof(fixed));
  const std::string_view rest = text.substr(sizeof(fixed));
  if (fixed.slot > UINT16_MAX || fixed.key_bytes == 0 || fixed.key_bytes > rest.size()) {
    return absl::InvalidArgumentError("this is not the id of a transaction");
  }
  return TransactionId{fixed.client,
                       fixed.number,
                       fixed.until,
                       static_cast<uint16_t>(fixed.slot),
                       std::string(rest.substr(0, fixed.key_bytes)),
                       std::string(rest.substr(fixed.key_bytes))};
}

absl::Status Check(const cell_transaction* transaction, const cell_table* table) {
  if (transaction != nullptr) RETURN_IF_ERROR(transaction->status);
  RETURN_IF_ERROR(CheckOpen(static_cast<const CellObject*>(transaction)));
  if (table == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(CheckOpen(static_cast<const CellObject*>(table)));
  if (table->client == transaction->client) return absl::OkStatus();
  return absl::InvalidArgumentError("the table belongs to another client");
}

// The objects that an operation uses. The user may free their handles while the operation is in flight.
struct Kept {
  std::shared_ptr<Transaction> transaction;
  std::shared_ptr<Table> table;
};

std::unique_ptr<cell_future> MakeFor(const cell_transaction* transaction, const cell_table* table) {
  auto future = std::make_unique<cell_future>(transaction->client);
  future->keeps = std::make_shared<Kept>(Kept{transaction->object, table == nullptr ? nullptr : table->object});
  return future;
}

absl::StatusOr<cell_future*> BeginGet(cell_transaction* transaction, cell_table* table, cell_bytes key,
                                      const cell_call* call) {
  RETURN_IF_ERROR(Check(transaction, table));
  RETURN_IF_ERROR(CheckBytes(key));
  ASSIGN_OR_RETURN(const CallOptions options, OptionsOf(call));
  std::unique_ptr<cell_future> future = MakeFor(transaction, table);
  future->key = std::string(View(key));
  Transaction* const of = transaction->object.get();
  const Table* const in = table == nullptr ? nullptr : table->object.get();
  return BeginOperation(
      std::move(future),
      [of, in, options](cell_future* begun) {
        return in == nullptr ? of->AsyncGet(begun->key, options) : of->AsyncGet(*in, begun->key, options);
      },
      TakeValue);
}

absl::StatusOr<cell_future*> BeginScan(cell_transaction* transaction, const cell_range* range, const cell_call* call) {
  RETURN_IF_ERROR(Check(transaction, nullptr));
  ASSIGN_OR_RETURN(const ScanOptions options, ScanOptionsOf(range, call));
  return BeginOperation(
      MakeFor(transaction, nullptr),
      [of = transaction->object.get(), options](cell_future*) { return of->AsyncScan(options); },
      [](cell_future* begun, const Transaction::Pairs& pairs) {
        for (const auto& [key, value] : pairs) begun->AddPair(key, value, true, 0);
      });
}

absl::Status Put(cell_transaction* transaction, cell_table* table, cell_bytes key, cell_bytes value,
                 const cell_write* write) {
  RETURN_IF_ERROR(Check(transaction, table));
  RETURN_IF_ERROR(CheckBytes(key));
  RETURN_IF_ERROR(CheckBytes(value));
  ASSIGN_OR_RETURN(const Expires expires, ExpiresOf(write));
  if (write != nullptr && write->condition != CELL_ALWAYS) {
    return absl::InvalidArgumentError("writes of transactions have no conditions: read the key");
  }
  Transaction* const of = transaction->object.get();
  return table == nullptr ? of->Put(View(key), View(value), expires)
                          : of->Put(*table->object, View(key), View(value), expires);
}

absl::Status Delete(cell_transaction* transaction, cell_table* table, cell_bytes key) {
  RETURN_IF_ERROR(Check(transaction, table));
  RETURN_IF_ERROR(CheckBytes(key));
  Transaction* const of = transaction->object.get();
  return table == nullptr ? of->Delete(View(key)) : of->Delete(*table->object, View(key));
}

absl::StatusOr<cell_future*> BeginCommit(cell_transaction* transaction, const cell_call* call) {
  RETURN_IF_ERROR(Check(transaction, nullptr));
  ASSIGN_OR_RETURN(const CallOptions options, OptionsOf(call));
  return BeginOperation(
      MakeFor(transaction, nullptr),
      [of = transaction->object.get(), options](cell_future*) { return of->AsyncCommit(options); },
      [](cell_future* begun, const Committed& committed) {
        begun->applied = true;
        begun->stamp = committed.stamp;
      });
}

absl::StatusOr<cell_future*> BeginOutcome(cell_client* client, cell_bytes bytes, const cell_call* call) {
  RETURN_IF_ERROR(CheckOpen(client));
  ASSIGN_OR_RETURN(const TransactionId id, Decode(bytes));
  ASSIGN_OR_RETURN(const CallOptions options, OptionsOf(call));
  return BeginOperation(
      std::make_unique<cell_future>(client),
      [client, id, options](cell_future*) { return client->client->AsyncOutcome(id, options); },
      [](cell_future* begun, const std::optional<Committed>& committed) {
        begun->found = begun->applied = committed.has_value();
        begun->stamp = committed.value_or(Committed()).stamp;
      });
}

cell_code Note(cell_transaction* transaction, const absl::Status& status) {
  if (transaction != nullptr) transaction->refusal = std::string(status.message());
  return CodeOf(status);
}

cell_client* ClientOf(const cell_transaction* transaction) {
  return transaction == nullptr ? nullptr : transaction->client;
}

}  // namespace
}  // namespace cell::c

using namespace cell::c;  // NOLINT(google-build-using-namespace)

extern "C" {

cell_transaction* cell_transaction_begin(cell_client* client) {
  if (absl::Status status = CheckOpen(client); !status.ok()) return new cell_transaction(nullptr, std::move(status));
  return new cell_transaction(client, client->client->Begin());
}

cell_future* cell_transaction_get(cell_transaction* transaction, cell_table* table, cell_bytes key,
                                  const cell_call* call) {
  return OrError(ClientOf(transaction), BeginGet(transaction, table, key, call));
}

cell_future* cell_transaction_scan(cell_transaction* transaction, const cell_range* range, const cell_call* call) {
  return OrError(ClientOf(transaction), BeginScan(transaction, range, call));
}

cell_code cell_transaction_put(cell_transaction* transaction, cell_table* table, cell_bytes key, cell_bytes value,
                               const cell_write* write) {
  return Note(transaction, Put(transaction, table, key, value, write));
}

cell_code cell_transaction_delete(cell_transaction* transaction, cell_table* table, cell_bytes key) {
  return Note(transaction, Delete(transaction, table, key));
}

const char* cell_transaction_message(const cell_transaction* transaction) {
  return transaction == nullptr ? "the transaction is NULL" : transaction->refusal.c_str();
}

cell_future* cell_transaction_commit(cell_transaction* transaction, const cell_call* call) {
  return OrError(ClientOf(transaction), BeginCommit(transaction, call));
}

cell_bytes cell_transaction_id(cell_transaction* transaction) {
  if (transaction == nullptr || transaction->object == nullptr) return {};
  transaction->id = Encode(transaction->object->id());
  return cell_make_bytes(transaction->id.data(), transaction->id.size());
}

void cell_transaction_free(cell_transaction* transaction) { delete transaction; }

cell_future* cell_outcome(cell_client* client, cell_bytes id, const cell_call* call) {
  return OrError(client, BeginOutcome(client, id, call));
}

int cell_finish_transactions(cell_client* client) {
  return CheckOpen(client).ok() && client->client->FinishTransactions() ? 1 : 0;
}

}  // extern "C"
