// The C API: tables, scans and snapshots.
#include <memory>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/c/objects.h"

namespace cell::c {

absl::StatusOr<ScanOptions> ScanOptionsOf(const cell_range* range, const cell_call* call) {
  ScanOptions options;
  ASSIGN_OR_RETURN(options.call, OptionsOf(call));
  if (range == nullptr) return options;
  if (range->size != sizeof(cell_range)) return absl::InvalidArgumentError("cell_range has a wrong size");
  RETURN_IF_ERROR(CheckBytes(range->from));
  RETURN_IF_ERROR(CheckBytes(range->to));
  options.from = std::string(View(range->from));
  if (range->to.data != nullptr) options.to = std::string(View(range->to));
  options.reverse = range->reverse != 0;
  options.keys_only = range->keys_only != 0;
  if (range->limit > 0) options.limit = range->limit;
  return options;
}

namespace {

absl::StatusOr<cell_scan*> MakeScan(cell_client* client, const cell_range* range, const cell_call* call) {
  RETURN_IF_ERROR(CheckOpen(client));
  ASSIGN_OR_RETURN(ScanOptions options, ScanOptionsOf(range, call));
  return new cell_scan(client, client->client->NewScan(std::move(options)), nullptr);
}

absl::StatusOr<cell_scan*> MakeSnapshotScan(cell_snapshot* snapshot, const cell_range* range, const cell_call* call) {
  RETURN_IF_ERROR(CheckOpen(static_cast<const CellObject*>(snapshot)));
  ASSIGN_OR_RETURN(ScanOptions options, ScanOptionsOf(range, call));
  return new cell_scan(snapshot->client, snapshot->object->NewScan(std::move(options)), snapshot->object);
}

// Returns the scan, or one whose batches are the error. `client` may be null.
cell_scan* ScanOrError(cell_client* client, const absl::StatusOr<cell_scan*>& made) {
  return made.ok() ? *made : new cell_scan(client, made.status());
}

absl::StatusOr<cell_future*> BeginBatch(cell_scan* scan) {
  if (scan == nullptr) return absl::InvalidArgumentError("the scan is NULL");
  RETURN_IF_ERROR(scan->status);
  RETURN_IF_ERROR(CheckOpen(static_cast<const CellObject*>(scan)));
  if (*scan->busy) return absl::FailedPreconditionError("the batch before is in flight: wait for it first");
  // The objects that a batch uses. The user may free the scan's handle while the batch is in flight.
  struct Kept {
    std::shared_ptr<Snapshot> snapshot;  // Destroyed after the scan.
    std::shared_ptr<Scan> scan;
  };
  const auto kept = std::make_shared<Kept>(Kept{scan->snapshot, scan->object});
  auto future = std::make_unique<cell_future>(scan->client);
  future->keeps = kept;
  *scan->busy = true;
  future->busy = scan->busy;
  return BeginOperation(
      std::move(future), [of = kept->scan.get()](cell_future*) { return of->AsyncNextBatch(); },
      [](cell_future* begun, absl::Span<const Scan::Entry> entries) {
        for (const Scan::Entry& entry : entries) begun->AddPair(entry.key, entry.value, true, entry.expiry_ns);
      });
}

absl::StatusOr<cell_future*> BeginSnapshot(cell_client* client, cell_bytes from, cell_bytes to, int64_t keep_us,
                                           const cell_call* call) {
  RETURN_IF_ERROR(CheckOpen(client));
  RETURN_IF_ERROR(CheckBytes(from));
  RETURN_IF_ERROR(CheckBytes(to));
  SnapshotOptions options;
  ASSIGN_OR_RETURN(options.call, OptionsOf(call));
  options.from = std::string(View(from));
  if (to.data != nullptr) options.to = std::string(View(to));
  if (keep_us != 0) options.keep_us = keep_us;
  return BeginOperation(
      std::make_unique<cell_future>(client),
      [client, options](cell_future*) { return client->client->AsyncTakeSnapshot(options); },
      [client](cell_future* begun, Snapshot snapshot) {
        begun->snapshot = std::make_unique<cell_snapshot>(client, std::move(snapshot));
      });
}

absl::StatusOr<cell_future*> BeginSnapshotGet(cell_snapshot* snapshot, cell_bytes key, const cell_call* call) {
  RETURN_IF_ERROR(CheckOpen(static_cast<const CellObject*>(snapshot)));
  RETURN_IF_ERROR(CheckBytes(key));
  ASSIGN_OR_RETURN(const CallOptions options, OptionsOf(call));
  auto future = std::make_unique<cell_future>(snapshot->client);
  future->key = std::string(View(key));
  future->keeps = snapshot->object;
  return BeginOperation(
      std::move(future),
      [of = snapshot->object.get(), options](cell_future* begun) { return of->AsyncGet(begun->key, options); },
      TakeValue);
}

// AsyncForget has no errors.
Task<absl::StatusOr<bool>> Forget(Snapshot* snapshot) {
  const bool all = co_await snapshot->AsyncForget();
  co_return all;
}

absl::StatusOr<cell_future*> BeginForget(cell_snapshot* snapshot) {
  RETURN_IF_ERROR(CheckOpen(static_cast<const CellObject*>(snapshot)));
  auto future = std::make_unique<cell_future>(snapshot->client);
  future->keeps = snapshot->object;
  return BeginOperation(
      std::move(future), [of = snapshot->object.get()](cell_future*) { return Forget(of); },
      [](cell_future* begun, bool all) { begun->found = all; });
}

absl::StatusOr<cell_future*> OpenTable(cell_client* client, const char* name) {
  RETURN_IF_ERROR(CheckOpen(client));
  if (name == nullptr) return absl::InvalidArgumentError("the table's name is NULL");
  ASSIGN_OR_RETURN(Table table, client->client->OpenTable(name));
  auto future = std::make_unique<cell_future>(client);
  future->table = std::make_unique<cell_table>(client, std::move(table));
  future->End(absl::OkStatus());
  return future.release();
}

cell_client* ClientOf(const CellObject* object) { return object == nullptr ? nullptr : object->client; }

}  // namespace
}  // namespace cell::c

using namespace cell::c;  // NOLINT(google-build-using-namespace)

extern "C" {

cell_future* cell_open_table(cell_client* client, const char* name) { return OrError(client, OpenTable(client, name)); }
cell_table* cell_future_table(cell_future* future) { return future == nullptr ? nullptr : future->table.release(); }
void cell_table_free(cell_table* table) { delete table; }

cell_scan* cell_scan_new(cell_client* client, const cell_range* range, const cell_call* call) {
  return ScanOrError(client, MakeScan(client, range, call));
}
cell_future* cell_scan_next(cell_scan* scan) { return OrError(ClientOf(scan), BeginBatch(scan)); }
void cell_scan_free(cell_scan* scan) { delete scan; }

cell_future* cell_take_snapshot(cell_client* client, cell_bytes from, cell_bytes to, int64_t keep_us,
                                const cell_call* call) {
  return OrError(client, BeginSnapshot(client, from, to, keep_us, call));
}
cell_snapshot* cell_future_snapshot(cell_future* future) {
  return future == nullptr ? nullptr : future->snapshot.release();
}
cell_future* cell_snapshot_get(cell_snapshot* snapshot, cell_bytes key, const cell_call* call) {
  return OrError(ClientOf(snapshot), BeginSnapshotGet(snapshot, key, call));
}
cell_scan* cell_snapshot_scan(cell_snapshot* snapshot, const cell_range* range, const cell_call* call) {
  return ScanOrError(ClientOf(snapshot), MakeSnapshotScan(snapshot, range, call));
}
cell_future* cell_snapshot_forget(cell_snapshot* snapshot) {
  return OrError(ClientOf(snapshot), BeginForget(snapshot));
}
void cell_snapshot_free(cell_snapshot* snapshot) { delete snapshot; }

}  // extern "C"
