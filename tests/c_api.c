// Uses every function of the C API with a cluster, and checks what it returns. A C program: tests/c_api_test.py runs it.
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cell/c/cell.h"

// Programs that were built before are loaded with later libraries: the layout of what they pass stays.
_Static_assert(sizeof(cell_bytes) == 16 && sizeof(cell_call) == 24 && sizeof(cell_write) == 56, "layout");
_Static_assert(sizeof(cell_range) == 56 && sizeof(cell_pair) == 48, "layout");
_Static_assert(offsetof(cell_call, reserved) == 20 && offsetof(cell_write, expires_at_ns) == 48, "layout");
_Static_assert(offsetof(cell_range, limit) == 48 && offsetof(cell_pair, expiry_ns) == 40, "layout");

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      fprintf(stderr, "%s:%d: %s is not so\n", __FILE__, __LINE__, #condition);           \
      exit(1);                                                                           \
    }                                                                                    \
  } while (0)

static const char* cluster;

// Waits for a future, which must end with this code, and frees it.
static void expect(cell_future* future, cell_code code) {
  if (cell_wait(future) != code) {
    fprintf(stderr, "%s instead of %s: %s\n", cell_code_name(cell_future_code(future)), cell_code_name(code),
            cell_message(future));
    exit(1);
  }
  cell_future_free(future);
}

static int is(cell_bytes bytes, const char* text) {
  return bytes.size == strlen(text) && (bytes.size == 0 || memcmp(bytes.data, text, bytes.size) == 0);
}

static cell_client* open_client(void) {
  cell_options* const options = cell_options_new();
  CHECK(cell_options_set(options, "cluster", cluster) == CELL_OK);
  CHECK(cell_options_set(options, "report", "0") == CELL_OK);
  cell_client* const client = cell_open(options);
  cell_options_free(options);
  if (cell_client_code(client) != CELL_OK) fprintf(stderr, "%s\n", cell_client_message(client));
  CHECK(cell_client_code(client) == CELL_OK);
  return client;
}

static void put(cell_client* client, const char* key, const char* value) {
  expect(cell_put(client, NULL, cell_text(key), cell_text(value), NULL, NULL), CELL_OK);
}

static void check_options(void) {
  cell_options* const options = cell_options_new();
  CHECK(cell_options_set(options, "no such option", "1") == CELL_NOT_FOUND);
  CHECK(cell_options_set(options, "timeout_us", "soon") == CELL_INVALID_ARGUMENT);
  CHECK(cell_options_set(options, "timeout_us", "0") == CELL_INVALID_ARGUMENT);
  CHECK(cell_options_set(options, "timeout_us", "12x") == CELL_INVALID_ARGUMENT);
  CHECK(cell_options_set(options, "busy_poll", "yes") == CELL_INVALID_ARGUMENT);
  CHECK(cell_options_set(options, "path", "sideways") == CELL_INVALID_ARGUMENT);
  CHECK(cell_options_set(options, "path", "client") == CELL_OK);
  CHECK(cell_options_set(options, NULL, NULL) == CELL_INVALID_ARGUMENT);
  CHECK(cell_options_set(options, "cluster", "/no/such/cluster") == CELL_OK);
  cell_client* const client = cell_open(options);
  CHECK(cell_client_code(client) == CELL_NOT_FOUND);
  CHECK(strstr(cell_client_message(client), "/no/such/cluster") != NULL);
  expect(cell_get(client, NULL, cell_text("key"), NULL), CELL_NOT_FOUND);
  CHECK(cell_key_bytes_max(client) == 0);
  cell_close(client);
  cell_options_free(options);
  cell_client* const none = cell_open(NULL);
  CHECK(cell_client_code(none) == CELL_INVALID_ARGUMENT);
  cell_close(none);
}

static void check_keys(cell_client* client) {
  cell_future* future = cell_get(client, NULL, cell_text("absent"), NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_done(future) && !cell_found(future) && cell_value(future).size == 0);
  CHECK(strcmp(cell_message(future), "") == 0);
  cell_future_free(future);
  put(client, "key", "value");
  future = cell_put(client, NULL, cell_text("key"), cell_text("new"), NULL, NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_found(future) && cell_applied(future));
  cell_future_free(future);
  const cell_call by_server = {.size = sizeof(by_server), .timeout_us = 5000000, .path = CELL_PATH_SERVER};
  const cell_call by_client = {.size = sizeof(by_client), .path = CELL_PATH_CLIENT};
  const cell_call* const calls[] = {NULL, &by_server, &by_client};
  for (int i = 0; i < 3; ++i) {
    future = cell_get(client, NULL, cell_text("key"), calls[i]);
    CHECK(cell_wait(future) == CELL_OK && cell_found(future) && is(cell_value(future), "new"));
    cell_future_free(future);
  }
  future = cell_has(client, NULL, cell_text("key"), NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_found(future));
  cell_future_free(future);

  const cell_bytes keys[] = {cell_text("key"), cell_text("absent"), cell_make_bytes("a\0b", 3)};
  expect(cell_put(client, NULL, keys[2], cell_make_bytes("\0", 1), NULL, NULL), CELL_OK);
  future = cell_multi_get(client, keys, 3, NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_pairs(future) == 3);
  CHECK(is(cell_pair_at(future, 0).value, "new") && is(cell_pair_at(future, 0).key, "key"));
  CHECK(!cell_pair_at(future, 1).found && cell_pair_at(future, 2).found && cell_pair_at(future, 2).value.size == 1);
  CHECK(cell_pair_at(future, 3).key.size == 0);
  cell_future_free(future);

  // Conditional writes, stamps and expiries.
  future = cell_get_with_stamp(client, cell_text("key"), NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_stamp(future) > 0);
  cell_write write = {.size = sizeof(write), .condition = CELL_IF_STAMP, .expected_stamp = cell_stamp(future)};
  cell_future_free(future);
  future = cell_put(client, NULL, cell_text("key"), cell_text("newer"), &write, NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_applied(future) && cell_stamp(future) > write.expected_stamp);
  cell_future_free(future);
  future = cell_put(client, NULL, cell_text("key"), cell_text("newest"), &write, NULL);
  CHECK(cell_wait(future) == CELL_OK && !cell_applied(future) && cell_found(future));
  cell_future_free(future);
  write.condition = CELL_IF_VALUE;
  write.expected_value = cell_text("newer");
  write.expires_after_us = 3600000000;
  future = cell_put(client, NULL, cell_text("key"), cell_text("mortal"), &write, NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_applied(future));
  cell_future_free(future);
  future = cell_time_left(client, NULL, cell_text("key"), NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_found(future) && cell_number(future) > 0 && cell_number(future) < 3600000000000);
  cell_future_free(future);
  expect(cell_delete(client, NULL, cell_text("key"), &write, NULL), CELL_INVALID_ARGUMENT);
  write.expires_after_us = 0;
  future = cell_delete(client, NULL, cell_text("key"), &write, NULL);
  CHECK(cell_wait(future) == CELL_OK && !cell_applied(future));
  cell_future_free(future);
  future = cell_delete(client, NULL, cell_text("key"), NULL, NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_found(future));
  cell_future_free(future);

  // Functions.
  expect(cell_delete(client, NULL, cell_text("count"), NULL, NULL), CELL_OK);
  future = cell_apply(client, NULL, cell_text("count"), "add-decimal", cell_text("41"), NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_applied(future) && is(cell_value(future), "41"));
  cell_future_free(future);
  future = cell_apply(client, NULL, cell_text("count"), "add-decimal", cell_text("1"), NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_found(future) && is(cell_value(future), "42"));
  cell_future_free(future);
  expect(cell_apply(client, NULL, cell_text("count"), "no-such-function", cell_text(""), NULL), CELL_INVALID_ARGUMENT);
  expect(cell_apply(client, NULL, cell_text("count"), NULL, cell_text(""), NULL), CELL_INVALID_ARGUMENT);
  expect(cell_evaluate(client, NULL, cell_text("count"), "no-such-function", cell_text(""), NULL), CELL_INVALID_ARGUMENT);
  const unsigned char seven[] = {7, 7, 0, 0, 0, 0, 0, 0, 0}, any[] = {7};  // 7: of type i64.
  expect(cell_delete(client, NULL, cell_text("number"), NULL, NULL), CELL_OK);
  expect(cell_apply(client, NULL, cell_text("number"), "add", cell_make_bytes(seven, 9), NULL), CELL_OK);
  future = cell_evaluate(client, NULL, cell_text("number"), "sum", cell_make_bytes(any, 1), NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_value(future).size == 8 && memcmp(cell_value(future).data, seven + 1, 8) == 0);
  cell_future_free(future);
  CHECK(strstr(cell_metrics_json(client), "\"operations\"") != NULL);
  CHECK(cell_key_bytes_max(client) > 100);
}

static void check_ranges(cell_client* client) {
  char key[16];
  for (int i = 0; i < 1000; ++i) {
    snprintf(key, sizeof(key), "r/%04d", i);
    put(client, key, key);
  }
  cell_future* future = cell_count(client, cell_text("r/"), cell_text("r0"), NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_number(future) == 1000);
  cell_future_free(future);

  cell_range range = {sizeof(cell_range), cell_text("r/"), cell_text("r0"), 0, 0, 0};
  cell_scan* scan = cell_scan_new(client, &range, NULL);
  size_t seen = 0;
  for (size_t got = 1; got > 0;) {
    future = cell_scan_next(scan);
    CHECK(cell_wait(future) == CELL_OK);
    got = cell_pairs(future);
    for (size_t i = 0; i < got; ++i, ++seen) {
      snprintf(key, sizeof(key), "r/%04d", (int)seen);
      CHECK(is(cell_pair_at(future, i).key, key) && is(cell_pair_at(future, i).value, key));
    }
    cell_future_free(future);
  }
  CHECK(seen == 1000);
  cell_scan_free(scan);
  range.reverse = range.keys_only = 1;
  range.limit = 3;
  const cell_call asks = {.size = sizeof(asks), .path = CELL_PATH_SERVER};
  scan = cell_scan_new(client, &range, &asks);
  future = cell_scan_next(scan);
  cell_future* const early = cell_scan_next(scan);  // The one before is in flight.
  CHECK(cell_wait(future) == CELL_OK && cell_pairs(future) == 3 && is(cell_pair_at(future, 0).key, "r/0999"));
  CHECK(cell_pair_at(future, 0).value.size == 0);
  CHECK(cell_wait(early) == CELL_FAILED_PRECONDITION);
  cell_future_free(future);
  cell_future_free(early);
  cell_scan_free(scan);
  range.size = 1;
  scan = cell_scan_new(client, &range, NULL);
  expect(cell_scan_next(scan), CELL_INVALID_ARGUMENT);
  cell_scan_free(scan);
  // A scan whose handle is freed while a batch is in flight.
  scan = cell_scan_new(client, NULL, NULL);
  future = cell_scan_next(scan);
  cell_scan_free(scan);
  CHECK(cell_wait(future) == CELL_OK && cell_pairs(future) > 0);
  cell_future_free(future);

  // A snapshot, while the range is deleted.
  future = cell_take_snapshot(client, cell_text("r/"), cell_text("r0"), 0, NULL);
  CHECK(cell_wait(future) == CELL_OK);
  cell_snapshot* const snapshot = cell_future_snapshot(future);
  CHECK(snapshot != NULL && cell_future_snapshot(future) == NULL);
  cell_future_free(future);
  future = cell_delete_range(client, cell_text("r/"), cell_text("r0"), NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_number(future) == 1000);
  cell_future_free(future);
  future = cell_snapshot_get(snapshot, cell_text("r/0007"), NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_found(future) && is(cell_value(future), "r/0007"));
  cell_future_free(future);
  expect(cell_snapshot_get(snapshot, cell_text("elsewhere"), NULL), CELL_OUT_OF_RANGE);
  scan = cell_snapshot_scan(snapshot, NULL, NULL);
  future = cell_scan_next(scan);
  CHECK(cell_wait(future) == CELL_OK && cell_pairs(future) > 0 && is(cell_pair_at(future, 0).key, "r/0000"));
  cell_future_free(future);
  cell_scan_free(scan);
  future = cell_snapshot_forget(snapshot);
  CHECK(cell_wait(future) == CELL_OK && cell_found(future));
  cell_future_free(future);
  expect(cell_snapshot_get(snapshot, cell_text("r/0007"), NULL), CELL_SNAPSHOT_TOO_OLD);
  cell_snapshot_free(snapshot);
}

static void check_tables(cell_client* client, cell_client* other) {
  expect(cell_open_table(client, "no-such-table"), CELL_NOT_FOUND);
  cell_future* future = cell_open_table(client, "users");
  CHECK(cell_wait(future) == CELL_OK);
  cell_table* const table = cell_future_table(future);
  CHECK(table != NULL && cell_future_table(future) == NULL);
  cell_future_free(future);
  expect(cell_put(client, table, cell_text("alice"), cell_text("1"), NULL, NULL), CELL_OK);
  future = cell_get(client, table, cell_text("alice"), NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_found(future) && is(cell_value(future), "1"));
  cell_future_free(future);
  expect(cell_get(other, table, cell_text("alice"), NULL), CELL_INVALID_ARGUMENT);
  const cell_write write = {.size = sizeof(write), .condition = CELL_IF_ABSENT};
  future = cell_put(client, table, cell_text("alice"), cell_text("2"), &write, NULL);
  CHECK(cell_wait(future) == CELL_OK && !cell_applied(future));
  cell_future_free(future);

  // A transaction over the tree and the table.
  cell_transaction* transaction = cell_transaction_begin(client);
  future = cell_transaction_get(transaction, table, cell_text("alice"), NULL);
  CHECK(cell_wait(future) == CELL_OK && is(cell_value(future), "1"));
  cell_future_free(future);
  CHECK(cell_transaction_put(transaction, table, cell_text("alice"), cell_text("2"), NULL) == CELL_OK);
  CHECK(cell_transaction_put(transaction, NULL, cell_text("log"), cell_text("alice is 2"), NULL) == CELL_OK);
  future = cell_transaction_commit(transaction, NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_stamp(future) > 0);
  const uint64_t stamp = cell_stamp(future);
  cell_future_free(future);
  future = cell_outcome(client, cell_transaction_id(transaction), NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_found(future) && cell_stamp(future) == stamp);
  cell_future_free(future);
  expect(cell_outcome(client, cell_text("no id"), NULL), CELL_INVALID_ARGUMENT);
  expect(cell_transaction_commit(transaction, NULL), CELL_FAILED_PRECONDITION);
  cell_transaction_free(transaction);
  CHECK(cell_finish_transactions(client) == 1);

  // One that meets a change, and one that scans.
  transaction = cell_transaction_begin(client);
  expect(cell_transaction_get(transaction, NULL, cell_text("log"), NULL), CELL_OK);
  put(other, "log", "changed");
  CHECK(cell_transaction_delete(transaction, NULL, cell_text("log")) == CELL_OK);
  expect(cell_transaction_commit(transaction, NULL), CELL_ABORTED);
  cell_transaction_free(transaction);
  transaction = cell_transaction_begin(client);
  const cell_range range = {sizeof(cell_range), cell_text("log"), cell_text("log0"), 0, 0, 0};
  future = cell_transaction_scan(transaction, &range, NULL);
  CHECK(cell_wait(future) == CELL_OK && cell_pairs(future) == 1 && is(cell_pair_at(future, 0).value, "changed"));
  cell_future_free(future);
  CHECK(cell_transaction_put(transaction, NULL, cell_text(""), cell_text("x"), NULL) == CELL_INVALID_ARGUMENT);
  CHECK(strlen(cell_transaction_message(transaction)) > 0 && strlen(cell_transaction_message(NULL)) > 0);
  expect(cell_transaction_commit(transaction, NULL), CELL_INVALID_ARGUMENT);
  cell_transaction_free(transaction);
  cell_table_free(table);
}

static int called;
static void on_done(cell_future* future, void* context) {
  CHECK(cell_done(future) && cell_future_code(future) == CELL_OK);
  called += *(int*)context;
  cell_future_free(future);
}

static void check_many(cell_client* client) {
  int one = 1;
  char key[16];
  for (int i = 0; i < 500; ++i) {
    snprintf(key, sizeof(key), "m/%04d", i);
    cell_on_done(cell_put(client, NULL, cell_text(key), cell_text("v"), NULL, NULL), on_done, &one);
  }
  while (called < 500) cell_poll(client, 100000);
  cell_future* const future = cell_get(client, NULL, cell_text("m/0001"), NULL);
  CHECK(cell_wait(future) == CELL_OK);
  cell_on_done(future, on_done, &one);  // It is done already.
  CHECK(called == 500);
  cell_poll(client, -1);
  CHECK(called == 501);
  // One that is removed is not called, nor is that of a future that is freed.
  cell_future* const removed = cell_get(client, NULL, cell_text("m/0001"), NULL);
  cell_on_done(removed, on_done, &one);
  cell_on_done(removed, NULL, NULL);
  cell_future* const freed = cell_get(client, NULL, cell_text("m/0001"), NULL);
  cell_on_done(freed, on_done, &one);
  cell_future_free(freed);
  CHECK(cell_wait(removed) == CELL_OK);
  cell_future_free(removed);
  CHECK(called == 501);
  // Nobody waits for these.
  for (int i = 0; i < 100; ++i) cell_future_free(cell_get(client, NULL, cell_text("m/0001"), NULL));
  cell_poll(client, 0);
}

// Waits by poll, as an event loop does, until as many callbacks were called. What comes makes the descriptor readable: a
// time that passes with nothing on it is for the client's own business, which comes about once a second.
static void loop_until(cell_client* client, int calls) {
  int overdue = 0;
  for (int turns = 0; called < calls; ++turns) {
    CHECK(turns < 100000);
    const int64_t us = cell_begin_wait(client);
    struct pollfd ready = {cell_wait_fd(client), POLLIN, 0};
    CHECK(ready.fd >= 0 && us >= 0 && us < 10000000);
    if (us > 0 && poll(&ready, 1, (int)(us / 1000 + 1)) == 0 && us > 100000) ++overdue;
    cell_poll(client, 0);
  }
  CHECK(overdue < 3);
}

// Callbacks that wait for others, that begin others, and whose futures are freed by others.
static cell_client* in_use;
static cell_future* waited;
static void on_done_wait(cell_future* future, void* context) {
  cell_future* const other = cell_get(in_use, NULL, cell_text("m/0001"), NULL);
  CHECK(cell_wait(other) == CELL_OK);
  cell_future_free(other);
  cell_close(in_use);  // Does nothing here.
  on_done(future, context);
}
static void on_done_free(cell_future* future, void* context) {
  called += *(int*)context;
  if (waited == future) waited = NULL;
  cell_future_free(future);
}
static void on_done_begin(cell_future* future, void* context) {
  cell_on_done(future, on_done_begin, context);  // Not again.
  cell_future* const next = cell_get(in_use, NULL, cell_text("m/0001"), NULL);
  CHECK(cell_done(next) && cell_future_code(next) == CELL_CANCELLED);
  cell_on_done(next, on_done_begin, context);  // Never: it was refused.
  called += *(int*)context;
  waited = next;
  cell_future_free(future);
}

static void check_callbacks(void) {
  int one = 1;
  called = 0;
  in_use = open_client();
  for (int round = 0; round < 20; ++round) {
    called = 0;
    cell_on_done(cell_get(in_use, NULL, cell_text("m/0001"), NULL), on_done_wait, &one);
    waited = cell_get(in_use, NULL, cell_text("m/0001"), NULL);
    cell_on_done(waited, on_done_free, &one);
    CHECK(cell_wait(waited) == CELL_OK);
    while (called < 2) cell_poll(in_use, 10000);
    CHECK(called == 2 && waited == NULL);
  }
  // A callback is due when the client is closed, and begins an operation, which is refused.
  called = 0;
  cell_future* const last = cell_put(in_use, NULL, cell_text("m/0001"), cell_text("v"), NULL, NULL);
  CHECK(cell_wait(last) == CELL_OK);
  cell_on_done(last, on_done_begin, &one);
  cell_close(in_use);
  CHECK(called == 1);
  cell_future_free(waited);
}

static void check_loop(cell_client* client) {
  int one = 1;
  for (int in_flight = 1; in_flight <= 100; in_flight += 33) {
    called = 0;
    for (int i = 0; i < in_flight; ++i) cell_on_done(cell_get(client, NULL, cell_text("m/0001"), NULL), on_done, &one);
    loop_until(client, in_flight);
  }
  // A callback that is due is something to do, though nothing comes.
  cell_future* const done = cell_get(client, NULL, cell_text("m/0001"), NULL);
  CHECK(cell_wait(done) == CELL_OK);
  while (cell_begin_wait(client) == 0) cell_poll(client, 0);
  called = 0;
  cell_on_done(done, on_done, &one);
  CHECK(cell_begin_wait(client) == 0);
  cell_poll(client, 0);
  CHECK(called == 1);
  // Other calls, and waiting for a future, end the wait that has begun.
  cell_begin_wait(client);
  put(client, "m/0001", "v");
  cell_begin_wait(client);
  cell_end_wait(client);
  cell_end_wait(client);
  called = 0;
  cell_on_done(cell_get(client, NULL, cell_text("m/0001"), NULL), on_done, &one);
  loop_until(client, 1);
}

static void check_wrong_use(void) {
  const cell_bytes nowhere = {NULL, 5};
  cell_client* const client = open_client();
  expect(cell_get(NULL, NULL, cell_text("key"), NULL), CELL_CANCELLED);
  expect(cell_get(client, NULL, nowhere, NULL), CELL_INVALID_ARGUMENT);
  expect(cell_get(client, NULL, cell_text(""), NULL), CELL_INVALID_ARGUMENT);
  expect(cell_put(client, NULL, cell_text("key"), nowhere, NULL, NULL), CELL_INVALID_ARGUMENT);
  expect(cell_multi_get(client, NULL, 3, NULL), CELL_INVALID_ARGUMENT);
  expect(cell_scan_next(NULL), CELL_INVALID_ARGUMENT);
  expect(cell_snapshot_get(NULL, cell_text("key"), NULL), CELL_INVALID_ARGUMENT);
  expect(cell_transaction_commit(NULL, NULL), CELL_INVALID_ARGUMENT);
  const cell_call wrong_call = {1, 0, 0, 0}, wrong_path = {sizeof(cell_call), 0, 9, 0};
  const cell_call wrong_rest = {sizeof(cell_call), 0, 0, 1}, by_client = {sizeof(cell_call), 0, CELL_PATH_CLIENT, 0};
  expect(cell_get(client, NULL, cell_text("key"), &wrong_rest), CELL_INVALID_ARGUMENT);
  expect(cell_count(client, cell_text(""), cell_make_bytes(NULL, 0), &by_client), CELL_INVALID_ARGUMENT);
  expect(cell_get(client, NULL, cell_make_bytes("key", (size_t)-1), NULL), CELL_INVALID_ARGUMENT);
  expect(cell_get(client, NULL, cell_text("key"), &wrong_call), CELL_INVALID_ARGUMENT);
  expect(cell_get(client, NULL, cell_text("key"), &wrong_path), CELL_INVALID_ARGUMENT);
  const cell_write wrong_write = {.size = sizeof(wrong_write), .condition = 17};
  expect(cell_put(client, NULL, cell_text("key"), cell_text("v"), &wrong_write, NULL), CELL_INVALID_ARGUMENT);
  size_t* const small = malloc(sizeof(size_t));  // Of an older program, say: nothing behind its size may be read.
  *small = sizeof(size_t);
  expect(cell_delete(client, NULL, cell_text("key"), (const cell_write*)(const void*)small, NULL), CELL_INVALID_ARGUMENT);
  free(small);
  const cell_write wrong_reserved = {.size = sizeof(wrong_reserved), .reserved = 1};
  expect(cell_delete(client, NULL, cell_text("key"), &wrong_reserved, NULL), CELL_INVALID_ARGUMENT);
  CHECK(cell_wait(NULL) == CELL_INVALID_ARGUMENT && !cell_done(NULL) && cell_value(NULL).size == 0);
  CHECK(cell_client_code(NULL) == CELL_INVALID_ARGUMENT && cell_finish_transactions(NULL) == 0);
  CHECK(strcmp(cell_code_name((cell_code)77), "unknown") == 0);
  cell_poll(NULL, 0);
  CHECK(cell_wait_fd(NULL) == -1 && cell_begin_wait(NULL) == INT64_MAX);
  cell_end_wait(NULL);
  cell_close(NULL);
  cell_future_free(NULL);
  cell_scan_free(NULL);
  cell_table_free(NULL);
  cell_snapshot_free(NULL);
  cell_transaction_free(NULL);

  // What belongs to a client that is closed can be freed, and nothing else.
  put(client, "key", "value");
  cell_scan* const scan = cell_scan_new(client, NULL, NULL);
  cell_transaction* const transaction = cell_transaction_begin(client);
  cell_future* const taken = cell_take_snapshot(client, cell_text(""), cell_make_bytes(NULL, 0), 0, NULL);
  CHECK(cell_wait(taken) == CELL_OK);
  cell_snapshot* const snapshot = cell_future_snapshot(taken);

  // A child can use nothing of its parent's client.
  const pid_t child = fork();
  if (child == 0) {
    expect(cell_get(client, NULL, cell_text("key"), NULL), CELL_CANCELLED);
    CHECK(cell_wait_fd(client) == -1);
    cell_close(client);
    _exit(0);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);

  const cell_call by_server = {.size = sizeof(by_server), .path = CELL_PATH_SERVER};
  cell_future* const in_flight = cell_get(client, NULL, cell_text("key"), &by_server);
  CHECK(!cell_done(in_flight) && cell_future_code(in_flight) == CELL_INVALID_ARGUMENT);
  cell_close(client);
  CHECK(cell_wait(in_flight) == CELL_CANCELLED);
  cell_future_free(in_flight);
  cell_future_free(taken);
  expect(cell_scan_next(scan), CELL_CANCELLED);
  expect(cell_snapshot_get(snapshot, cell_text("key"), NULL), CELL_CANCELLED);
  expect(cell_transaction_commit(transaction, NULL), CELL_CANCELLED);
  cell_scan_free(scan);
  cell_snapshot_free(snapshot);
  cell_transaction_free(transaction);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  cell_log_to_standard_error();
  cluster = argv[1];
  check_options();
  cell_client* const client = open_client();
  cell_client* const other = open_client();
  check_keys(client);
  check_ranges(client);
  check_tables(client, other);
  check_many(client);
  check_loop(client);
  check_callbacks();
  cell_close(other);
  cell_close(client);
  check_wrong_use();
  puts("all is right");
  return 0;
}
