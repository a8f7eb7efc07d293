// The C API of Cell, a sorted map from keys to values in other machines' memory.
//
//   cell_options* options = cell_options_new();
//   cell_options_set(options, "cluster", "/run/cell");
//   cell_client* client = cell_open(options);                     // cell_client_code says whether it is connected
//   cell_options_free(options);
//   cell_future* found = cell_get(client, NULL, cell_text("key"), NULL);
//   if (cell_wait(found) == CELL_OK && cell_found(found)) use(cell_value(found));
//   cell_future_free(found);
//   cell_close(client);
//
// Each operation promises the same as the C++ function of its name, with the same limits and errors. Their manual is
// cell/client/client.h, transaction.h, snapshot.h and functions.h; this page says what is different in C.
//
// Futures. Each operation returns a future at once, which is never NULL, and begins. cell_wait waits for one, and lets
// all others of the client go on meanwhile. So many can be in flight on one thread: begin them, then wait for each. Or
// set callbacks, and call cell_poll in a loop, or use an event loop (cell_wait_fd).
//
// Memory. Arguments are copied: they need to live only during the call. The results that accessors return belong to the
// future, and are valid until it is freed. A future is freed by cell_future_free, a client by cell_close, and options,
// tables, scans, snapshots and transactions by the function that is named so: cell_scan_free and so on. These do
// nothing with NULL. A future that has opened a table or taken a snapshot owns that until cell_future_table or
// cell_future_snapshot is called. What belongs to a client can be freed before or after cell_close, in any order.
//
// Wrong use. NULL where an object is needed, the code of a future that is not done, a client in a child process: the
// code is CELL_INVALID_ARGUMENT or CELL_CANCELLED, or the result is empty. No function throws. As in most libraries,
// the process ends if there is no memory left.
//
// Threads. A client, and all that belongs to it, is used by one thread at a time. Different clients are independent.
//
// Logs. Lines go to spdlog's default logger, by which programs that use spdlog choose where. Others have them on
// standard output, or after cell_log_to_standard_error there.
//
// Versions. The names have the symbol version CELL_1, and the library is libcell.so.1. Functions are added, and none is
// changed or removed, while that is its name. Structs that callers fill begin with their size, so that they can grow;
// fields that are called `reserved` are 0. Fill what you do not use with zeros, as initializers do.
#ifndef CELL_C_CELL_H_
#define CELL_C_CELL_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CELL_API __attribute__((visibility("default")))
#else
#define CELL_API
#endif

// ---- Codes.

// The numbers of gRPC, and from 100 on those of Cell.
typedef enum cell_code {
  CELL_OK = 0,
  CELL_CANCELLED = 1,            // The client was closed, or belongs to the parent process.
  CELL_INVALID_ARGUMENT = 3,     // A key, a value or an option cannot be.
  CELL_DEADLINE_EXCEEDED = 4,    // The time was over before anything was written.
  CELL_NOT_FOUND = 5,            // There is no such cluster or table.
  CELL_PERMISSION_DENIED = 7,    // The user has no grant for this.
  CELL_RESOURCE_EXHAUSTED = 8,   // The store is full.
  CELL_FAILED_PRECONDITION = 9,  // The value, or the state of the object, does not allow it.
  CELL_ABORTED = 10,             // A transaction met a change, or another one: begin it again.
  CELL_OUT_OF_RANGE = 11,        // A key is not in the snapshot's range, or a result cannot be stored.
  CELL_INTERNAL = 13,
  CELL_UNAVAILABLE = 14,       // No server answers.
  CELL_DATA_LOSS = 15,         // Bytes that nobody has written.
  CELL_MAYBE_APPLIED = 100,    // A write was sent, and its answer was lost.
  CELL_SNAPSHOT_TOO_OLD = 101  // The snapshot is not there any more.
} cell_code;

// Returns the name of a code, such as "UNAVAILABLE". Never NULL.
CELL_API const char* cell_code_name(cell_code code);

// ---- Bytes.

typedef struct cell_bytes {
  const void* data;  // May be NULL if `size` is 0.
  size_t size;
} cell_bytes;

static inline cell_bytes cell_make_bytes(const void* data, size_t size) {
  cell_bytes bytes = {data, size};
  return bytes;
}
// Returns the bytes of a string that ends with NUL, without the NUL.
static inline cell_bytes cell_text(const char* text) { return cell_make_bytes(text, text == NULL ? 0 : strlen(text)); }

// ---- Options.

typedef struct cell_options cell_options;

CELL_API cell_options* cell_options_new(void);
// Sets one of ClientOptions by its name: "cluster", "fabric", "path" ("server", "client", "hybrid"), "timeout_us",
// "secret_file", "tls_authority", "tls_certificate", "tls_key", "cache_bytes", "busy_poll" ("0" or "1") and so on.
// Returns CELL_NOT_FOUND for a name that there is not, and CELL_INVALID_ARGUMENT for a value that it cannot have.
CELL_API cell_code cell_options_set(cell_options* options, const char* name, const char* value);
CELL_API void cell_options_free(cell_options* options);

// How one call is made. NULL, or a field of 0: as the client's options say.
typedef struct cell_call {
  size_t size;         // sizeof(cell_call).
  int64_t timeout_us;  // Above 0.
  int32_t path;        // cell_path.
  int32_t reserved;
} cell_call;
typedef enum cell_path {
  CELL_PATH_DEFAULT = 0,
  CELL_PATH_SERVER = 1,
  CELL_PATH_CLIENT = 2,
  CELL_PATH_HYBRID = 3
} cell_path;

// ---- Clients.

typedef struct cell_client cell_client;
typedef struct cell_future cell_future;
typedef struct cell_table cell_table;
typedef struct cell_scan cell_scan;
typedef struct cell_snapshot cell_snapshot;
typedef struct cell_transaction cell_transaction;

// Connects to a cluster; blocks until that is done. Never returns NULL: cell_client_code is CELL_OK if it is connected.
// Otherwise each operation of the client returns that error, and it has to be closed all the same.
CELL_API cell_client* cell_open(const cell_options* options);
// Makes a logger to standard error spdlog's default logger. Call it before other threads log, and at most once.
CELL_API void cell_log_to_standard_error(void);
CELL_API cell_code cell_client_code(const cell_client* client);
CELL_API const char* cell_client_message(const cell_client* client);
// Ends the operations in flight, with CELL_CANCELLED, or CELL_MAYBE_APPLIED for a write that was sent; calls their
// callbacks, and closes the client. What belongs to it can only be freed from then on. So wait before for what matters,
// and for cell_finish_transactions. In a child of the process that has opened the client, it closes nothing. A callback
// cannot close its client: that does nothing.
CELL_API void cell_close(cell_client* client);

// The longest key that the cluster's tree can hold, in bytes.
CELL_API size_t cell_key_bytes_max(const cell_client* client);
// Returns the client's counters (ClientMetrics) as a JSON object. It is valid until the next call with this client.
CELL_API const char* cell_metrics_json(cell_client* client);

// ---- Futures.

// Waits until the future is done, and calls the callbacks of those that are. Returns its code.
CELL_API cell_code cell_wait(cell_future* future);
// Returns 1 if it is done.
CELL_API int cell_done(const cell_future* future);
// Calls `callback` once the future is done, from the next cell_wait, cell_poll or cell_close of its client that finds
// it so. The callback may begin operations, wait for others, and free the future. A second callback replaces the first,
// and NULL removes it. A future that is freed before calls none, and neither does one of a client that is closed, or
// was being closed when the operation began: it is done already (cell_done).
CELL_API void cell_on_done(cell_future* future, void (*callback)(cell_future* future, void* context), void* context);
// Frees it. If the operation is in flight, it goes on, and nobody hears of its result.
CELL_API void cell_future_free(cell_future* future);

// Returns CELL_INVALID_ARGUMENT if it is not done.
CELL_API cell_code cell_future_code(const cell_future* future);
CELL_API const char* cell_message(const cell_future* future);  // "" if there is no error.
// Returns 1 if a read has found its key; for a write, and a function, if it was there before.
CELL_API int cell_found(const cell_future* future);
// Returns 1 if a write took effect: its condition held, or it had none. For a function, if it has put a new value.
CELL_API int cell_applied(const cell_future* future);
CELL_API cell_bytes cell_value(const cell_future* future);  // Of a get; or what a function has returned.
CELL_API uint64_t cell_stamp(const cell_future* future);    // Of the pair, or the transaction. 0: it has none.
CELL_API uint64_t cell_number(const cell_future* future);   // Of a count, a deleted range, or the ns to an expiry.

// A pair that a multi-get or a scan returns.
typedef struct cell_pair {
  cell_bytes key;
  cell_bytes value;
  int found;           // 0: multi-get has found nothing under this key.
  uint64_t expiry_ns;  // Of a scan: since the Unix epoch, by its server's clock. 0: it does not expire.
} cell_pair;
CELL_API size_t cell_pairs(const cell_future* future);
// Returns an empty pair if the index is too large.
CELL_API cell_pair cell_pair_at(const cell_future* future, size_t index);

// ---- Keys.

// `table` is NULL for keys of the tree.
CELL_API cell_future* cell_get(cell_client* client, cell_table* table, cell_bytes key, const cell_call* call);
// Works like cell_get, for a key of the tree; the future has the pair's stamp as well.
CELL_API cell_future* cell_get_with_stamp(cell_client* client, cell_bytes key, const cell_call* call);
// Reads keys of the tree. The future has a pair for each key, in their order.
CELL_API cell_future* cell_multi_get(cell_client* client, const cell_bytes* keys, size_t count, const cell_call* call);
CELL_API cell_future* cell_has(cell_client* client, cell_table* table, cell_bytes key, const cell_call* call);
// cell_number: INT64_MAX for a pair that does not expire.
CELL_API cell_future* cell_time_left(cell_client* client, cell_table* table, cell_bytes key, const cell_call* call);

typedef enum cell_condition {
  CELL_ALWAYS = 0,
  CELL_IF_ABSENT = 1,
  CELL_IF_PRESENT = 2,
  CELL_IF_VALUE = 3,  // The value is `expected_value`.
  CELL_IF_STAMP = 4   // The stamp is `expected_stamp`. Of the tree alone.
} cell_condition;
// How a pair is written. NULL: always, and for ever.
typedef struct cell_write {
  size_t size;        // sizeof(cell_write).
  int32_t condition;  // cell_condition.
  int32_t reserved;
  cell_bytes expected_value;
  uint64_t expected_stamp;
  int64_t expires_after_us;  // Above 0: by the clock of its server. Not for deletes.
  uint64_t expires_at_ns;    // Above 0: since the Unix epoch. At most one of the two.
} cell_write;
CELL_API cell_future* cell_put(cell_client* client, cell_table* table, cell_bytes key, cell_bytes value,
                               const cell_write* write, const cell_call* call);
CELL_API cell_future* cell_delete(cell_client* client, cell_table* table, cell_bytes key, const cell_write* write,
                                  const cell_call* call);

// Functions of the servers, which `cellctl functions` lists. The argument of those for numbers is a byte that says
// their type, and the numbers, little-endian (cell/functions/elements.h); cell/functions/arguments.h has the others.
CELL_API cell_future* cell_apply(cell_client* client, cell_table* table, cell_bytes key, const char* function,
                                 cell_bytes argument, const cell_call* call);
CELL_API cell_future* cell_evaluate(cell_client* client, cell_table* table, cell_bytes key, const char* function,
                                    cell_bytes argument, const cell_call* call);

// ---- Ranges of the tree, from `from` (inclusive) to `to` (exclusive). `to.data` is NULL: to the end.

// These have no timeout unless `call` has one, and no path: servers do it, slice by slice. After an error the message
// says how far they came.
CELL_API cell_future* cell_count(cell_client* client, cell_bytes from, cell_bytes to, const cell_call* call);
CELL_API cell_future* cell_delete_range(cell_client* client, cell_bytes from, cell_bytes to, const cell_call* call);

// The range that a scan reads. NULL: everything, upwards.
typedef struct cell_range {
  size_t size;  // sizeof(cell_range).
  cell_bytes from;
  cell_bytes to;
  int32_t reverse;    // 1: from the end of the range downwards.
  int32_t keys_only;  // 1: without values. Not in transactions.
  uint64_t limit;     // Of pairs. 0: none.
} cell_range;
CELL_API cell_scan* cell_scan_new(cell_client* client, const cell_range* range, const cell_call* call);
// The future has the next pairs, at least one, or none at the end. One at a time: wait for each before the next.
CELL_API cell_future* cell_scan_next(cell_scan* scan);
CELL_API void cell_scan_free(cell_scan* scan);

// ---- Tables.

// Opens a table. This blocks, if it has to ask a server.
CELL_API cell_future* cell_open_table(cell_client* client, const char* name);
// Moves the table out of a future of cell_open_table. Returns NULL if the future has no table (any more).
CELL_API cell_table* cell_future_table(cell_future* future);
CELL_API void cell_table_free(cell_table* table);

// ---- Snapshots of the tree.

// `keep_us`: how long servers keep it. 0: ten minutes.
CELL_API cell_future* cell_take_snapshot(cell_client* client, cell_bytes from, cell_bytes to, int64_t keep_us,
                                         const cell_call* call);
// Moves the snapshot out of a future of cell_take_snapshot. Returns NULL if the future has no snapshot (any more).
CELL_API cell_snapshot* cell_future_snapshot(cell_future* future);
CELL_API cell_future* cell_snapshot_get(cell_snapshot* snapshot, cell_bytes key, const cell_call* call);
CELL_API cell_scan* cell_snapshot_scan(cell_snapshot* snapshot, const cell_range* range, const cell_call* call);
// Tells the servers that it is not needed any more. cell_found: 1 if all know. For a program that ends.
CELL_API cell_future* cell_snapshot_forget(cell_snapshot* snapshot);
CELL_API void cell_snapshot_free(cell_snapshot* snapshot);

// ---- Transactions.

CELL_API cell_transaction* cell_transaction_begin(cell_client* client);
CELL_API cell_future* cell_transaction_get(cell_transaction* transaction, cell_table* table, cell_bytes key,
                                           const cell_call* call);
// The future has all pairs of the range.
CELL_API cell_future* cell_transaction_scan(cell_transaction* transaction, const cell_range* range,
                                            const cell_call* call);
// Note what is to be written. A wrong key or value is said at once, and then the commit fails, too. Of `write`, only
// the expiry counts.
CELL_API cell_code cell_transaction_put(cell_transaction* transaction, cell_table* table, cell_bytes key,
                                        cell_bytes value, const cell_write* write);
CELL_API cell_code cell_transaction_delete(cell_transaction* transaction, cell_table* table, cell_bytes key);
// Returns why the last put or delete was refused; "" if it was not. It is valid until the next one.
CELL_API const char* cell_transaction_message(const cell_transaction* transaction);
// Commits it. CELL_ABORTED: nothing was written; begin another one, after a pause that grows with each attempt.
// CELL_MAYBE_APPLIED: cell_outcome tells.
CELL_API cell_future* cell_transaction_commit(cell_transaction* transaction, const cell_call* call);
// Returns the id of the commit, for cell_outcome. It is valid until the next call with this transaction.
CELL_API cell_bytes cell_transaction_id(cell_transaction* transaction);
CELL_API void cell_transaction_free(cell_transaction* transaction);
// cell_found: 1 if the transaction with this id has committed, with cell_stamp; 0: it has not, and never will.
CELL_API cell_future* cell_outcome(cell_client* client, cell_bytes id, const cell_call* call);
// Waits, for at most a second, until all servers know of this client's transactions that have committed. Returns 1 if
// they do. For a program that ends: without it, keys that it has written in several regions may not be readable for
// about a second.
CELL_API int cell_finish_transactions(cell_client* client);

// ---- Loops.

// Calls callbacks, and does what can be done now. If there is nothing, waits for something, for up to `timeout_us`
// (below 0: no limit). It may return earlier with nothing done: call it in a loop.
CELL_API void cell_poll(cell_client* client, int64_t timeout_us);

// For a thread that waits by an event loop of its own (epoll, libuv, ...), instead of cell_poll's waiting. After all
// operations have begun, before each wait of the loop:
//
//   int64_t us = 0;
//   for (int turns = 0; turns < 8 && (us = cell_begin_wait(client)) == 0; ++turns) cell_poll(client, 0);
//
// Then it waits until cell_wait_fd is readable, or `us` microseconds have passed, and calls cell_poll(client, 0). If
// there was always something to do, `us` is 0: the loop looks at its other descriptors, and comes back at once.

// Returns a descriptor that poll, select and epoll take. It is the client's: do not read or close it, and take it out
// of the loop before cell_close. -1: the client is not connected, or there are no descriptors left.
CELL_API int cell_wait_fd(cell_client* client);
// Makes the descriptor readable once there is something to do. Returns after how many microseconds there is, even if it
// is not readable by then. 0: at once. INT64_MAX: the client is not connected.
CELL_API int64_t cell_begin_wait(cell_client* client);
// Ends the wait. cell_poll and cell_wait do so, too.
CELL_API void cell_end_wait(cell_client* client);

#ifdef __cplusplus
}
#endif

#endif  // CELL_C_CELL_H_
