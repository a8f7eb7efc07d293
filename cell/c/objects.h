// The objects behind the handles of cell.h. Internal to cell/c. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/forks.h"
#include "cell/base/task.h"
#include "cell/c/cell.h"
#include "cell/client/client.h"
#include "cell/client/snapshot.h"
#include "cell/client/transaction.h"

struct cell_client {
  // Returns true in a child of the process that has opened it.
  bool inherited() const { return forks != cell::Forks(); }
  // Calls the callbacks of the futures that have ended until now. Does nothing within a callback. Returns whether there
  // were any such futures.
  bool Deliver();
  // Makes the futures those of no client.
  void LoseFutures();

  const int forks = cell::Forks();  // When it was opened.
  absl::Status status;
  std::string message = {};  // Of the status.
  std::unique_ptr<cell::Client> client = {};
  cell_future* futures = nullptr;             // All that are not freed, or in flight: the first one of a list.
  std::deque<cell_future*> ended = {};        // That Deliver has not seen.
  std::set<struct CellObject*> objects = {};  // All that are not freed.
  bool delivering = false;                    // A callback runs.
  bool closing = false;                       // Operations are refused.
  std::string text = {};                      // What cell_metrics_json has returned.
};

// A handle of an object that belongs to a client. The handle may outlive the client, the object may not.
struct CellObject {
  // `its_client` is null if that is closed, or was never there.
  explicit CellObject(cell_client* its_client) : client(its_client) {
    if (client != nullptr) client->objects.insert(this);
  }
  CellObject(const CellObject&) = delete;
  CellObject& operator=(const CellObject&) = delete;
  virtual ~CellObject() {
    if (client != nullptr) client->objects.erase(this);
  }
  // Destroys what cannot outlive the client.
  virtual void Close() = 0;

  cell_client* client;  // Null: it is closed.
};

// `T` is the C++ object. Operations in flight keep it.
template <typename T>
struct CellHandle : CellObject {
  explicit CellHandle(cell_client* its_client) : CellObject(its_client) {}
  CellHandle(cell_client* its_client, T its_object)
      : CellObject(its_client), object(std::make_shared<T>(std::move(its_object))) {}
  void Close() override { object.reset(); }

  std::shared_ptr<T> object = {};
};

struct cell_table final : CellHandle<cell::Table> {
  using CellHandle::CellHandle;
};
struct cell_snapshot final : CellHandle<cell::Snapshot> {
  using CellHandle::CellHandle;
};
struct cell_transaction final : CellHandle<cell::Transaction> {
  // A transaction all of whose operations are this error.
  cell_transaction(cell_client* its_client, absl::Status error) : CellHandle(its_client), status(std::move(error)) {}
  cell_transaction(cell_client* its_client, cell::Transaction its_object)
      : CellHandle(its_client, std::move(its_object)) {}

  absl::Status status = {};
  std::string id = {};       // What cell_transaction_id has returned.
  std::string refusal = {};  // Of the last put or delete.
};
struct cell_scan final : CellHandle<cell::Scan> {
  // A scan all of whose batches are this error.
  cell_scan(cell_client* its_client, absl::Status error) : CellHandle(its_client), status(std::move(error)) {}
  // `from`: the snapshot that it reads, or null.
  cell_scan(cell_client* its_client, cell::Scan scan, std::shared_ptr<cell::Snapshot> from)
      : CellHandle(its_client, std::move(scan)), snapshot(std::move(from)) {}
  void Close() override {
    CellHandle::Close();
    snapshot.reset();
  }

  absl::Status status = {};
  std::shared_ptr<cell::Snapshot> snapshot = {};
  std::shared_ptr<bool> busy = std::make_shared<bool>(false);  // A batch is in flight.
};

struct cell_future {
  explicit cell_future(cell_client* its_client) : client(its_client) {
    if (client == nullptr) return;
    next = std::exchange(client->futures, this);
    if (next != nullptr) next->before = this;
  }
  cell_future(const cell_future&) = delete;
  cell_future& operator=(const cell_future&) = delete;
  ~cell_future() {
    if (client == nullptr) return;
    (before == nullptr ? client->futures : before->next) = next;
    if (next != nullptr) next->before = before;
  }
  // Notes the outcome. The client delivers it later.
  void End(const absl::Status& status);
  // Deletes it if its user has freed it and nothing else needs it.
  void DeleteIfFreed();
  void AddPair(std::string_view key, std::string_view value, bool was_found, uint64_t expiry_ns);

  cell_client* client;                             // Null: it is closed.
  cell_future *before = nullptr, *next = nullptr;  // In the client's list.
  bool freed = false;                              // By its user, while something else still needed it.
  bool done = false;
  bool queued = false;  // It is among the client's `ended`.
  int waits = 0;        // Calls of cell_wait that wait for it: callbacks may wait, too.
  void (*callback)(cell_future* future, void* context) = nullptr;
  void* context = nullptr;

  // Arguments, which live as long as the operation.
  std::string key = {}, value = {}, expected = {};
  std::vector<std::string> keys = {};
  std::vector<std::string_view> key_views = {};
  cell::FunctionCall function = {};
  std::shared_ptr<void> keeps = {};  // What the operation uses, until its callback is called.
  std::shared_ptr<bool> busy = {};   // If not null, it is set to false when the operation ends.

  // The outcome.
  cell_code code = CELL_OK;
  std::string message = {};
  bool found = false, applied = false;
  std::string result = {};
  uint64_t stamp = 0, number = 0;
  std::unique_ptr<std::deque<std::string>> texts = {};  // Of the pairs.
  std::vector<cell_pair> pairs = {};
  std::unique_ptr<cell_table> table = {};
  std::unique_ptr<cell_snapshot> snapshot = {};

  std::optional<cell::Task<bool>> task = {};
};

namespace cell::c {

cell_code CodeOf(const absl::Status& status);
// Returns the error of an operation that cannot begin: there is no such object, or it is closed.
absl::Status CheckOpen(const cell_client* client);
inline absl::Status CheckOpen(const CellObject* object) {
  return object == nullptr ? absl::InvalidArgumentError("the object is NULL") : CheckOpen(object->client);
}
// Returns an error if the bytes have a size and no data, or are larger than anything that can be stored.
absl::Status CheckBytes(cell_bytes bytes);
inline std::string_view View(cell_bytes bytes) { return {static_cast<const char*>(bytes.data), bytes.size}; }

// Returns an error for options of an unknown size, or that cannot be.
absl::StatusOr<CallOptions> OptionsOf(const cell_call* call);
absl::Status CheckWrite(const cell_write* write);
absl::StatusOr<Expires> ExpiresOf(const cell_write* write);
absl::StatusOr<ScanOptions> ScanOptionsOf(const cell_range* range, const cell_call* call);

inline void TakeValue(cell_future* future, std::optional<std::string> value) {
  future->found = value.has_value();
  if (value.has_value()) future->result = *std::move(value);
}

// Returns the future, or one that has ended with the error. `client` may be null.
cell_future* OrError(cell_client* client, const absl::StatusOr<cell_future*>& begun);

// Runs an operation to its end: `make` makes its task, which may refer to the future's arguments, and `take` puts its
// result into the future.
template <typename Make, typename Take>
Task<bool> RunOperation(cell_future* future, Make make, Take take) {
  auto operation = make(future);
  auto result = co_await std::move(operation);
  absl::Status status = result.status();
  if (result.ok()) take(future, *std::move(result));
  future->End(status);
  co_return true;
}

// Begins an operation whose arguments the future has.
template <typename Make, typename Take>
cell_future* BeginOperation(std::unique_ptr<cell_future> future, Make make, Take take) {
  cell_future* const begun = future.release();
  begun->task.emplace(RunOperation(begun, std::move(make), std::move(take)));
  begun->task->Start();
  return begun;
}

}  // namespace cell::c
