// The client of a Cell cluster: a sorted map from keys to values, in other machines' memory.
//
//   auto client = cell::Client::Open({.cluster = "/run/cell"});
//   if (!client.ok()) ...                                        // its message says what to do
//   (*client)->Put("libboost-dev", "1.74");                      // StatusOr<bool>: was it there before?
//   auto value = (*client)->Get("libboost-dev");                 // StatusOr<optional<string>>
//   cell::Scan scan = (*client)->NewScan({.from = "libboost", .to = "libc"});
//   for (auto more = scan.Next(); more.ok() && *more; more = scan.Next()) use(scan.key(), scan.value());
//
// Paths. Each request is served either by the server's CPU (one RPC), or by this client reading the tree's nodes
// one-sided (several reads, no server CPU). kHybrid, the default, lets the selector choose each time by the latencies
// it sees (the thesis, 4.4). Results are the same on all paths.
//
// Calls. Every operation comes as a blocking call and as a coroutine (Async...). Many coroutines can be in flight on
// one thread: start them, then Poll until they are done. Keys and values passed to a coroutine must live until it ends.
// Those that are in flight when the client is destroyed end then, with Cancelled. They must not have been destroyed.
//
// Promises. Get, Put, Delete and Contains are linearizable per key. A scan returns keys in order, each at most once,
// and every key that was there throughout; it is not a snapshot. See README.md.
//
// Limits. Keys have 1 byte to key_bytes_max() (226 at 1 KB nodes), any bytes; values 0 to 1 MB.
//
// Errors
//   InvalidArgument     a key or value of a wrong size
//   ResourceExhausted   the store is full; nothing was changed
//   Unavailable         no server answers, or the tree gave no answer within the retry budget
//   DeadlineExceeded    the call's time was over before anything was written
//   IsMaybeApplied(s)   a write was sent and its answer was lost: it may or may not have happened
//   Cancelled           the client was destroyed; of a write that was sent IsMaybeApplied says so
//   DataLoss            bytes that verify as nothing Cell writes
//
// Thread-safety: none. One Client per thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cell/base/histogram.h"
#include "cell/base/task.h"

namespace cell {

class Client;
class Fabric;
class Session;
class Membership;

enum class Path { kServer, kClient, kHybrid };

// "server", "client", "hybrid".
std::string_view ToString(Path path);
std::optional<Path> ParsePath(std::string_view text);

struct ClientOptions {
  std::string cluster = {};           // The cluster's directory, or zk://HOST:PORT[,HOST:PORT...]/NAME.
  std::string zookeeper_digest = {};  // USER:PASSWORD, if the cluster's znodes are kept from others.
  std::string fabric = "auto";        // "shm", "tcp", "verbs": that alone. "auto": of those, the best that leads there.
  std::string secret_file = {};       // The cluster's secret (cell_server --secret-file); empty: it has none.
  std::string rdma_device = {};       // For verbs; empty: the route decides.
  int rdma_gid_index = -1;            // Which of its GIDs; -1: the first of an address.
  uint32_t rdma_mtu = 0;              // Bytes; 0: as large as the port takes.
  Path path = Path::kHybrid;
  // Of Open, and of a call that sets none. INT64_MAX: none. Longer than a takeover (docs/operations/failures.md).
  int64_t timeout_us = 15'000'000;
  int64_t reconnect_us = 100'000;  // Until a server that did not answer is tried again; it doubles, three times.
  // Until a write is tried again that its server refused for something that passes: its region moves, or its lease
  // lapsed.
  int64_t refused_pause_us = 5'000;
  size_t cache_bytes = size_t{128} << 20;  // For nodes near the root (the thesis, 5.3); 0: no cache.
  int cache_level_min = 4;                 // Only nodes at least so far above the leaves: they change seldom.
  size_t route_ranges = 4096;              // Key ranges whose meganode is remembered (the thesis, 5.3); 0: none.
  // What kHybrid chooses by: "cell", "unpriced" (for itself alone), or "thesis" (selector/selector.h).
  std::string selector = "cell";
  uint64_t seed = 1;       // Of the selector's chances.
  bool busy_poll = false;  // Never sleep while waiting: for a core of its own.
  bool report = true;      // Tell the server this client's counters once a second, for `cellctl top`.
  bool connect = true;     // Open connects to the tree's root. Off: for those who use no tree, until they call Connect.
};

struct CallOptions {
  std::optional<Path> path = {};           // Else the client's.
  std::optional<int64_t> timeout_us = {};  // Else the client's.
};

struct ScanOptions {
  std::string from = {};               // Inclusive; empty: the first key.
  std::optional<std::string> to = {};  // Exclusive; none: to the end.
  bool reverse = false;                // From the last key of the range down to the first.
  uint64_t limit = UINT64_MAX;
  bool keys_only = false;
  uint32_t batch = 128;    // Entries fetched at once, and per choice of path; at most 4096.
  bool read_ahead = true;  // The next batch is under way while one is used, from the second on, or over a border.
  CallOptions call = {};   // Its deadline is each batch's.
};

// ScanOptions for all keys that begin with `prefix`.
ScanOptions PrefixScan(std::string_view prefix);

// What this client did, ever.
struct ClientMetrics {
  uint64_t operations = 0;    // Get, Put, Delete, Contains, and batches of scans.
  uint64_t server_path = 0;   // Meganodes on their ways that were walked by a server...
  uint64_t client_path = 0;   // ...and by this client.
  uint64_t route_hits = 0;    // Operations that began at a remembered meganode...
  uint64_t route_misses = 0;  // ...and at the root of the tree.
  uint64_t lost = 0;          // Ways that had to begin anew: a meganode had moved, or a cache was too old.
  uint64_t node_reads = 0;
  uint64_t extent_reads = 0;
  uint64_t cache_hits = 0;  // Nodes that need not be read.
  uint64_t calls = 0;
  uint64_t scanned = 0;         // Entries.
  uint64_t torn = 0;            // Nodes read again because a write overlapped.
  uint64_t extent_retries = 0;  // Gets and scans that went back to the leaf because its extent had changed.
  uint64_t moved_right = 0;     // Right links followed.
  uint64_t errors = 0;
  // Of tables, by reads.
  uint64_t lookups = 0;
  uint64_t lookup_reads = 0;
  uint64_t lookup_torn = 0;     // Slots or buckets that were being written...
  uint64_t lookup_extents = 0;  // ...pairs that were replaced meanwhile...
  uint64_t lookup_moved = 0;    // ...and keys that may have been moved: read again.
  Histogram latency_ns;         // Of operations.

  uint64_t retries() const { return torn + extent_retries + lookup_torn + lookup_extents + lookup_moved; }
};

// Whether a write's outcome is unknown. Such a status is no failure: reading tells.
bool IsMaybeApplied(const absl::Status& status);

// An iterator over a range, made by Client::NewScan. Must not be used when its client is gone.
class Scan {
 public:
  struct Entry {
    std::string_view key;
    std::string_view value;  // Empty with keys_only.
  };

  Scan(Scan&&) noexcept;
  Scan& operator=(Scan&&) noexcept;
  ~Scan();

  // Goes to the next entry; false at the end. key() and value() are valid until the next call. After an error it can be
  // called again: no entry is lost, and the scan goes on from where it has come to.
  absl::StatusOr<bool> Next();
  std::string_view key() const { return batch_[at_].key; }
  std::string_view value() const { return batch_[at_].value; }

  // The next entries, at least one; none at the end. Valid until the next call.
  Task<absl::StatusOr<absl::Span<const Entry>>> AsyncNextBatch();

 private:
  friend class Client;
  class Cursor;
  struct CursorDeleter {
    void operator()(Cursor* cursor) const;  // Not while it reads ahead: then its session keeps it so long.
  };
  Scan(Session* session, ScanOptions options);

  Session* session_;
  std::unique_ptr<Cursor, CursorDeleter> cursor_;
  absl::Span<const Entry> batch_;
  size_t at_ = 0;
};

// A Pilaf table: a map without order, spread over all servers, whose gets take one or two rounds of reads at once
// (pilaf/README.md). Over Path::kServer gets are messages, too (the thesis's Pilaf-VO); writes always are. Made by
// Client::OpenTable; must not outlive its client, and operations that are in flight must not outlive it.
//
// Keys have 1 to 4096 bytes, values 0 to 1 MB. Get, Put, Delete and Contains are linearizable per key.
class Table {
 public:
  const std::string& name() const { return name_; }

  // As of Client. NotFound: the table was dropped.
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key, const CallOptions& options = {});
  absl::StatusOr<bool> Contains(std::string_view key, const CallOptions& options = {});
  absl::StatusOr<bool> Put(std::string_view key, std::string_view value, const CallOptions& options = {});
  absl::StatusOr<bool> Delete(std::string_view key, const CallOptions& options = {});

  Task<absl::StatusOr<std::optional<std::string>>> AsyncGet(std::string_view key, CallOptions options = {});
  Task<absl::StatusOr<bool>> AsyncContains(std::string_view key, CallOptions options = {});
  Task<absl::StatusOr<bool>> AsyncPut(std::string_view key, std::string_view value, CallOptions options = {});
  Task<absl::StatusOr<bool>> AsyncDelete(std::string_view key, CallOptions options = {});

  // Before a key is called absent, what was read is looked at once more. Off: as in the thesis's Pilaf, a key that is
  // moved meanwhile may be missed.
  void set_serializable(bool serializable) { serializable_ = serializable; }

 private:
  friend class Client;
  Table(Client* client, std::string name) : client_(client), name_(std::move(name)) {}

  Client* client_;
  std::string name_;
  bool serializable_ = true;
};

class Client {
 public:
  // Connects to the cluster in options.cluster. NotFound: there is none. Unavailable: its servers do not answer. Waits,
  // as long as its timeout, for a server that is slow to answer, and for others to take over from one that is gone.
  static absl::StatusOr<std::unique_ptr<Client>> Open(const ClientOptions& options);
  ~Client();

  // Connects to the root of the tree, with the errors and the patience of Open; once it has succeeded, does nothing.
  // For ClientOptions::connect = false: such a client can ask servers and use tables while nobody serves the root.
  absl::Status Connect();

  // The value, or nothing if the key is not stored.
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key, const CallOptions& options = {});
  // Many at once, over all their servers: the values in the order of the keys. Each is read as by Get; together they
  // are no snapshot. An error of any is the error of all.
  absl::StatusOr<std::vector<std::optional<std::string>>> MultiGet(absl::Span<const std::string_view> keys,
                                                                   const CallOptions& options = {});
  absl::StatusOr<bool> Contains(std::string_view key, const CallOptions& options = {});
  // Inserts or replaces. True: the key was there before.
  absl::StatusOr<bool> Put(std::string_view key, std::string_view value, const CallOptions& options = {});
  // True: the key was there.
  absl::StatusOr<bool> Delete(std::string_view key, const CallOptions& options = {});
  Scan NewScan(ScanOptions options);

  // A table that was made by `cellctl hash create` or Control.CreateTable. NotFound: there is none of this name.
  absl::StatusOr<Table> OpenTable(const std::string& name);
  struct TableInfo {
    std::string name;
    uint32_t bucket_bytes = 0;  // 0: in slots.
    struct Part {
      uint32_t first;  // Place in the hash space.
      uint32_t region;
      std::string server;
    };
    std::vector<Part> parts;
  };
  // As the region table has them now.
  std::vector<TableInfo> Tables();

  Task<absl::StatusOr<std::optional<std::string>>> AsyncGet(std::string_view key, CallOptions options = {});
  Task<absl::StatusOr<std::vector<std::optional<std::string>>>> AsyncMultiGet(absl::Span<const std::string_view> keys,
                                                                              CallOptions options = {});
  Task<absl::StatusOr<bool>> AsyncContains(std::string_view key, CallOptions options = {});
  Task<absl::StatusOr<bool>> AsyncPut(std::string_view key, std::string_view value, CallOptions options = {});
  Task<absl::StatusOr<bool>> AsyncDelete(std::string_view key, CallOptions options = {});
  // Ends at `at_ns` of NowNs: for pacing.
  Task<bool> AsyncSleepUntil(int64_t at_ns);

  // Does what can be done now; waits when there is nothing, but not beyond `until_ns`.
  void Poll(int64_t until_ns);
  int64_t NowNs() const;

  // Runs a coroutine to its end, and the others in flight meanwhile.
  template <typename T>
  T Run(Task<T> task) {
    task.Start();
    while (!task.done()) Poll(INT64_MAX);
    return task.Take();
  }

  // Of each worker: its state, as JSON; or why it does not answer.
  std::vector<absl::StatusOr<std::string>> ServerStatus();

  // Each region's tree check, one after the other, and what is wrong between them. The check of a region stops its
  // server for as long as it takes (about a second per GB). Splits and moves that go on meanwhile show up as errors
  // between regions: check a quiet cluster.
  struct ClusterCheck {
    std::vector<std::string> regions_json;
    std::vector<std::string> errors;  // Of all regions, and between them.
    uint64_t keys = 0;                // Of the tree.
    uint64_t table_keys = 0;          // Of all tables.
    uint64_t missing_routes = 0;      // Meganodes that only their left neighbour leads to.
  };
  absl::StatusOr<ClusterCheck> Check();

  // Who is in the cluster, as far as is known.
  struct ServerInfo {
    std::string name;
    std::string control;  // HOST:PORT of its control plane, or empty.
  };
  std::vector<ServerInfo> Servers() const;

  // All regions, by the region table as it is now; and which of them has the root of the tree.
  struct RegionInfo {
    uint32_t region = 0;
    uint64_t epoch = 0;
    std::string server;       // Its owner.
    bool recovering = false;  // The owner reads its log, and does not serve it yet.
    bool in_making = false;   // It is being split from another, or is to be the root.
  };
  struct RegionList {
    std::vector<RegionInfo> regions;
    uint32_t root = 0;  // 0: none yet.
  };
  RegionList Regions();

  size_t key_bytes_max() const;
  const ClientMetrics& metrics() const;
  // Counts from zero again: after a warm-up.
  void ResetMetrics();

 private:
  friend class ClientTesting;
  friend class Table;
  explicit Client(std::unique_ptr<Session> session);
  static absl::StatusOr<std::unique_ptr<Client>> Over(const ClientOptions& options, std::unique_ptr<Fabric> fabric,
                                                      std::unique_ptr<Membership> membership);

  std::unique_ptr<Session> session_;
  bool connected_ = false;  // To the root of the tree, at least once.
};

}  // namespace cell
