// Client is the client of a Cell cluster: a sorted map from keys to values, in other machines' memory.
//
//   auto client = cell::Client::Open({.cluster = "/run/cell"});
//   if (!client.ok()) ...                                        // its message says what to do
//   (*client)->Put("libboost-dev", "1.74");                      // StatusOr<bool>: was it there before?
//   auto value = (*client)->Get("libboost-dev");                 // StatusOr<optional<string>>
//   cell::Scan scan = (*client)->NewScan({.from = "libboost", .to = "libc"});
//   for (auto more = scan.Next(); more.ok() && *more; more = scan.Next()) use(scan.key(), scan.value());
//
// Paths. Each request is served either by the server's CPU (one RPC), or by this client, which reads the tree's nodes
// one-sided (several reads, no server CPU). With kHybrid, the default, the selector chooses each time by the latencies
// that it sees (thesis, 4.4). Results are the same on all paths.
//
// Calls. Every operation exists as a blocking call and as a coroutine (Async...). Many coroutines can be in flight on
// one thread: start them, then Poll until they are done. Keys and values that are passed to a coroutine must live until
// it ends. Coroutines that are in flight when the client is destroyed end with Cancelled; they must still exist then.
//
// Guarantees. Get, Put, Delete, PutIf, DeleteIf, Apply, Evaluate and Contains are linearizable per key. A scan returns
// keys in order, each at most once, and every key that was there throughout; it is not a snapshot (TakeSnapshot makes
// one), and neither is a count. A range is deleted key by key. See docs/guarantees.md.
//
// Limits. Keys have 1 to key_bytes_max() bytes (226 at 1 KB nodes), of any value. Values have 0 to 1 MB.
//
// Expiry. A pair can be put with an expiry: from that moment on it is as if it was deleted. The moment is one of the
// clock of the key's server, which removes the pair some time afterwards. Whatever path a read takes, it finds the pair
// if it began before that moment, and not if it began afterwards (docs/guarantees.md).
//
// Errors
//   InvalidArgument     a key or value of a wrong size, an expiry that is past, or an invalid option
//   NotFound            the cluster (Open) or the table does not exist
//   PermissionDenied    Open is not allowed to read the cluster's directory or its znodes, or a server's socket belongs
//                       to another user; nothing was done
//   FailedPrecondition  Open found a cluster of another format, or no RDMA device that is up; a function does not fit a
//                       value; a transaction has ended; IsSnapshotTooOld(s): a snapshot is not there any more
//   Aborted             a transaction has found what it has read changed, or keys held: begin it again
//   ResourceExhausted   the store is full, or too many large values are being uploaded; nothing was changed
//   Unavailable         no server answers, or the tree gave no answer within the retry budget
//   DeadlineExceeded    the call's time was over before anything was written
//   IsMaybeApplied(s)   a write was sent and its answer was lost or malformed: it may or may not have happened
//   Cancelled           the client was destroyed; IsMaybeApplied tells whether a write was sent. Or a caller's
//                       RangeOptions::progress has stopped the call
//   DataLoss            bytes that verify as nothing that Cell writes
//
// Not thread-safe: use one Client per thread.
//
// Forks. A client belongs to the process that opened it. In a child its operations end with Cancelled, destroying it
// does nothing, and those that were in flight do not end. A child opens clients of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cell/base/task.h"
#include "cell/client/client_metrics.h"

namespace cell {

class Client;
class Fabric;
class Session;
class Membership;
class Snapshot;
class Transaction;
struct Committed;
struct SnapshotId;
struct SnapshotOptions;
struct TransactionId;

enum class Path { kServer, kClient, kHybrid };

// Returns "server", "client" or "hybrid".
std::string_view ToString(Path path);
std::optional<Path> ParsePath(std::string_view text);

struct ClientOptions {
  std::string cluster = {};           // The cluster's directory, or zk://HOST:PORT[,HOST:PORT...]/NAME.
  std::string zookeeper_digest = {};  // USER:PASSWORD, if the cluster's znodes are protected.
  std::string fabric = "auto";        // "shm", "tcp" or "verbs": only that. "auto": the best one that works.
  // These files prove who this client is, over tcp and verbs: a secret (cellctl secret), or for tcp a certificate with
  // the URI cell://client/NAME or cell://operator/NAME. Files that change are read again. If all of them
  // are empty, the client uses the file `secret` in the cluster's directory if that exists, and else proves nothing.
  std::string secret_file = {};
  std::string tls_authority = {};  // PEM files. The authority signs the servers' certificates, and this client's.
  std::string tls_certificate = {};
  std::string tls_key = {};
  std::string rdma_device = {};  // For verbs; empty: the route decides.
  int rdma_gid_index = -1;       // Index of its GID; -1: the first with an address.
  uint32_t rdma_mtu = 0;         // In bytes; 0: as large as the port allows.
  Path path = Path::kHybrid;
  // Timeout of Open, and of calls that set none. INT64_MAX: none. Longer than a takeover (docs/operations/failures.md).
  int64_t timeout_us = 15'000'000;
  int64_t reconnect_us = 100'000;  // Pause before a server that did not answer is tried again. It doubles up to three
                                   // times.
  // Pause before a write is repeated that its server refused for a temporary reason: its region is migrating, or the
  // server's lease has lapsed.
  int64_t refused_pause_us = 5'000;
  size_t cache_bytes = size_t{128} << 20;  // For inner nodes (thesis, 5.3); 0: no cache.
  int cache_level_min = 1;                 // Only nodes at least this far above the leaves; 1: all that are not leaves.
  size_t route_ranges = 4096;              // Key ranges whose meganode is cached (thesis, 5.3); 0: none.
  // Rule of kHybrid: "cell", "unpriced" (optimizes for this client alone), or "thesis" (selector/selector.h).
  std::string selector = "cell";
  uint64_t seed = 1;       // Seed of the selector's random choices.
  bool busy_poll = false;  // Never sleep while waiting: for a core of its own.
  bool report = true;      // Report this client's counters to the server once a second, for `cellctl top`.
  bool connect = true;  // Open connects to the tree's root. If off, the client can use no tree until it calls Connect.
};

struct CallOptions {
  std::optional<Path> path = {};           // Default: the client's.
  std::optional<int64_t> timeout_us = {};  // Default: the client's.
};

// When a pair expires that is put.
class Expires {
 public:
  static Expires Never() { return Expires(0); }
  // So long after its server has taken the put. At most until the year 2262.
  static Expires AfterUs(int64_t us);
  // At a moment of its server's clock, in nanoseconds since the Unix epoch: as Scan::Entry::expiry_ns has it.
  static Expires AtNs(uint64_t unix_ns);

  // Returns PutRequest::expires, for a put.
  uint64_t on_wire() const { return on_wire_; }

 private:
  explicit Expires(uint64_t on_wire) : on_wire_(on_wire) {}
  uint64_t on_wire_;
};

// The condition of a conditional write: its key is absent, its key is present, or its pair has a certain stamp or a
// certain value. The value is not copied, and has at most 4,096 bytes: compare larger ones by stamp.
class Condition {
 public:
  enum class Kind : uint8_t { kAbsent, kPresent, kStamp, kValue };

  static Condition Absent() { return Condition(Kind::kAbsent, 0, {}); }
  static Condition Present() { return Condition(Kind::kPresent, 0, {}); }
  static Condition StampIs(uint64_t stamp) { return Condition(Kind::kStamp, stamp, {}); }
  static Condition ValueIs(std::string_view value) { return Condition(Kind::kValue, 0, value); }

  Kind kind() const { return kind_; }
  uint64_t stamp() const { return stamp_; }
  std::string_view value() const { return value_; }

 private:
  Condition(Kind kind, uint64_t stamp, std::string_view value) : kind_(kind), stamp_(stamp), value_(value) {}
  Kind kind_;
  uint64_t stamp_;
  std::string_view value_;
};

// The outcome of a conditional write.
struct WriteIfResult {
  bool applied = false;  // The condition held, and the write took effect.
  bool existed = false;  // The key was there before.
  uint64_t stamp = 0;    // Of the pair that the key has now: that which was put, or the one that did not meet the
                         // condition. 0: it has none, or one of a table, which have no stamps.
};

// A value and the *stamp* of its pair, which names this version of it: each put of a key gives its pair a greater one,
// also if it puts the same value, and no stamp of a key is ever used again.
struct StampedValue {
  std::string value;
  uint64_t stamp = 0;
};

// A function of the servers, and its argument. functions.h makes those that every server has, and
// cell/functions/README.md tells how a server gets others.
struct FunctionCall {
  std::string name;
  std::string argument = {};
};

// The outcome of a function that was applied.
struct ApplyResult {
  bool changed = false;     // It has put a new value.
  bool existed = false;     // The key was there before.
  uint64_t stamp = 0;       // Of the pair that the key has now. 0: it has none, or one of a table.
  std::string result = {};  // What the function returned.
};

struct ScanOptions {
  std::string from = {};               // Inclusive; empty: the first key.
  std::optional<std::string> to = {};  // Exclusive; nullopt: to the end.
  bool reverse = false;                // From the last key of the range down to the first.
  uint64_t limit = UINT64_MAX;
  bool keys_only = false;
  uint32_t batch = 128;    // Entries per fetch and per choice of path. 0 counts as 1, and more than 4,096 as 4,096. A
                           // batch of large values ends early, once it has 4 MB.
  bool read_ahead = true;  // Fetches the next batch while one is used, from the second on, or across a border.
  CallOptions call = {};   // Its timeout applies to each batch.
};

// How far Count or DeleteRange has come.
struct RangeProgress {
  uint64_t pairs = 0;             // Pairs that were counted or deleted.
  std::string_view reached = {};  // The keys of the range below this one are done.
};

struct RangeOptions {
  // Called after each slice but the last. If it returns false, the call ends with Cancelled. It must not use the
  // client.
  std::function<bool(const RangeProgress&)> progress = nullptr;
  // Timeout of the whole call. Default: none. Each slice takes no longer than ClientOptions::timeout_us anyway.
  std::optional<int64_t> timeout_us = {};
};

// Returns ScanOptions for all keys that begin with `prefix`.
ScanOptions PrefixScan(std::string_view prefix);

// Returns whether a write's outcome is unknown. Such a status is not a failure: reading the key tells the outcome.
bool IsMaybeApplied(const absl::Status& status);

// Returns whether a read failed because its snapshot is not there any more. Take another one.
bool IsSnapshotTooOld(const absl::Status& status);

// An iterator over a range, made by Client::NewScan or Snapshot::NewScan. Must not be used after its client is
// destroyed.
class Scan {
 public:
  struct Entry {
    std::string_view key;
    std::string_view value;  // Empty with keys_only.
    uint64_t expiry_ns = 0;  // Expires::AtNs; 0: never.
  };

  Scan(Scan&&) noexcept;
  Scan& operator=(Scan&&) noexcept;
  ~Scan();

  // Moves to the next entry. Returns false at the end. key() and value() are valid until the next call. After an error
  // it can be called again: no entry is lost, and the scan continues where it was.
  absl::StatusOr<bool> Next();
  std::string_view key() const { return batch_[at_].key; }
  std::string_view value() const { return batch_[at_].value; }
  uint64_t expiry_ns() const { return batch_[at_].expiry_ns; }

  // Returns the next entries, at least one, or none at the end. They are valid until the next call.
  Task<absl::StatusOr<absl::Span<const Entry>>> AsyncNextBatch();

 private:
  friend class Client;
  class Cursor;
  struct CursorDeleter {
    void operator()(Cursor* cursor) const;  // While it reads ahead, the session keeps it instead.
  };
  friend class Snapshot;
  Scan(Session* session, ScanOptions options);
  Scan(Session* session, ScanOptions options, const SnapshotId* snapshot);  // Null: scans what is there now.

  Session* session_;
  std::unique_ptr<Cursor, CursorDeleter> cursor_;
  absl::Span<const Entry> batch_;
  size_t at_ = 0;
};

// A Pilaf table: an unordered map, spread over all servers, whose gets take one or two rounds of concurrent reads
// (pilaf/README.md). With Path::kServer gets are messages, too (the thesis's Pilaf-VO); writes always are. Made by
// Client::OpenTable. It must not outlive its client, and operations in flight must not outlive it.
//
// Keys have 1 to 4096 bytes, values 0 to 1 MB. Get, Put, Delete and Contains are linearizable per key.
class Table {
 public:
  const std::string& name() const { return name_; }

  // Work like those of Client. Return NotFound if the table was dropped.
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key, const CallOptions& options = {});
  absl::StatusOr<bool> Contains(std::string_view key, const CallOptions& options = {});
  absl::StatusOr<bool> Put(std::string_view key, std::string_view value, const CallOptions& options = {});
  absl::StatusOr<bool> Put(std::string_view key, std::string_view value, Expires expires,
                           const CallOptions& options = {});
  absl::StatusOr<bool> Delete(std::string_view key, const CallOptions& options = {});
  // Return InvalidArgument for a condition on the stamp of a pair that is there.
  absl::StatusOr<WriteIfResult> PutIf(std::string_view key, std::string_view value, Condition condition,
                                      const CallOptions& options = {});
  absl::StatusOr<WriteIfResult> PutIf(std::string_view key, std::string_view value, Expires expires,
                                      Condition condition, const CallOptions& options = {});
  absl::StatusOr<WriteIfResult> DeleteIf(std::string_view key, Condition condition, const CallOptions& options = {});
  absl::StatusOr<ApplyResult> Apply(std::string_view key, const FunctionCall& function,
                                    const CallOptions& options = {});
  absl::StatusOr<std::string> Evaluate(std::string_view key, const FunctionCall& function,
                                       const CallOptions& options = {});
  absl::StatusOr<std::optional<int64_t>> TimeLeftNs(std::string_view key, const CallOptions& options = {});

  Task<absl::StatusOr<ApplyResult>> AsyncApply(std::string_view key, const FunctionCall& function,
                                               CallOptions options = {});
  Task<absl::StatusOr<std::string>> AsyncEvaluate(std::string_view key, const FunctionCall& function,
                                                  CallOptions options = {});
  Task<absl::StatusOr<WriteIfResult>> AsyncPutIf(std::string_view key, std::string_view value, Expires expires,
                                                 Condition condition, CallOptions options = {});
  Task<absl::StatusOr<WriteIfResult>> AsyncDeleteIf(std::string_view key, Condition condition,
                                                    CallOptions options = {});
  Task<absl::StatusOr<std::optional<std::string>>> AsyncGet(std::string_view key, CallOptions options = {});
  Task<absl::StatusOr<bool>> AsyncContains(std::string_view key, CallOptions options = {});
  Task<absl::StatusOr<bool>> AsyncPut(std::string_view key, std::string_view value, CallOptions options = {});
  Task<absl::StatusOr<bool>> AsyncPut(std::string_view key, std::string_view value, Expires expires,
                                      CallOptions options = {});
  Task<absl::StatusOr<bool>> AsyncDelete(std::string_view key, CallOptions options = {});
  Task<absl::StatusOr<std::optional<int64_t>>> AsyncTimeLeftNs(std::string_view key, CallOptions options = {});

  // If on, what was read is checked again before a key is reported as absent. If off, a key that is moved meanwhile may
  // be missed, as in the thesis's Pilaf.
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
  // Connects to the cluster in options.cluster. Returns NotFound if there is none, and Unavailable if its servers do
  // not answer. Waits up to its timeout for a server that is slow to answer, or for others to take over from a dead
  // one.
  static absl::StatusOr<std::unique_ptr<Client>> Open(const ClientOptions& options);
  ~Client();

  // Ends all operations in flight with Cancelled, and writes that were sent with an error that IsMaybeApplied. The
  // destructor does this, too. In between, nothing may be called; what was made by the client can be destroyed. Does
  // nothing in a process that was forked from the one that has opened the client.
  void Close();

  // Connects to the root of the tree, with the errors and timeout of Open. Does nothing once it has succeeded. For
  // ClientOptions::connect = false: such a client can query servers and use tables while nobody serves the root.
  absl::Status Connect();

  // Returns the value, or nullopt if the key is not stored.
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key, const CallOptions& options = {});
  // Reads many keys at once, from all their servers, and returns the values in the order of the keys. Each is read as
  // by Get; together they are not a snapshot. Any error is returned for all of them.
  absl::StatusOr<std::vector<std::optional<std::string>>> MultiGet(absl::Span<const std::string_view> keys,
                                                                   const CallOptions& options = {});
  // Works like Get, and returns the pair's stamp as well.
  absl::StatusOr<std::optional<StampedValue>> GetWithStamp(std::string_view key, const CallOptions& options = {});
  absl::StatusOr<bool> Contains(std::string_view key, const CallOptions& options = {});
  // Inserts or replaces. Returns true if the key was there before.
  absl::StatusOr<bool> Put(std::string_view key, std::string_view value, const CallOptions& options = {});
  // Puts a pair that expires. In the tree, the longest key of such a pair is 8 bytes shorter than others. Returns
  // InvalidArgument if the moment is not in the future, or too far.
  absl::StatusOr<bool> Put(std::string_view key, std::string_view value, Expires expires,
                           const CallOptions& options = {});
  // Returns true if the key was there.
  absl::StatusOr<bool> Delete(std::string_view key, const CallOptions& options = {});
  // Put and delete if the condition holds. The key's server decides that and writes at one moment. That it does not
  // hold is no error, but a result. To change a value by what it is:
  //
  //   auto now = client->GetWithStamp("counter");                             // say, it is there: {"41", 1764...}
  //   client->PutIf("counter", "42", Condition::StampIs((*now)->stamp));      // if not `applied`, begin again
  //
  // If IsMaybeApplied, the write may have taken effect, or may still; GetWithStamp and the value tell.
  absl::StatusOr<WriteIfResult> PutIf(std::string_view key, std::string_view value, Condition condition,
                                      const CallOptions& options = {});
  absl::StatusOr<WriteIfResult> PutIf(std::string_view key, std::string_view value, Expires expires,
                                      Condition condition, const CallOptions& options = {});
  absl::StatusOr<WriteIfResult> DeleteIf(std::string_view key, Condition condition, const CallOptions& options = {});
  // Applies a function to the key's value: its server reads the value, puts what the function makes of it, and returns
  // the function's result, at one moment. The pair keeps its expiry. Returns InvalidArgument for a function that the
  // server does not have, that only reads, or whose argument makes no sense; FailedPrecondition if the value is not one
  // for this function; OutOfRange for a result that cannot be stored. Nothing was written then.
  //
  //   client->Apply("visits", functions::Add<int64_t>(1));      // 8 bytes, little-endian; `result` has the new ones
  //   client->Apply("weights", functions::Add<float>(deltas));   // element by element
  //
  // The function is applied exactly once: if an answer is lost, it is sent again, and a server that has applied it, or
  // the one that has taken its regions over, answers as before. Only if there is no answer within the call's timeout,
  // or within a minute, is the outcome unknown (IsMaybeApplied). It was then applied once, or is not, or will be.
  // Tables do not remember what was applied: there, each answer that is lost is such an outcome.
  absl::StatusOr<ApplyResult> Apply(std::string_view key, const FunctionCall& function,
                                    const CallOptions& options = {});
  // Returns what a function that only reads finds in the key's value, up to 1 MB. Its server reads the value at one
  // moment, and sends only the result. Has the errors of Apply. Arguments have at most 4,096 bytes.
  //
  //   client->Evaluate("weights", functions::Sum<float>());      // ElementsOf<double>(*result)
  absl::StatusOr<std::string> Evaluate(std::string_view key, const FunctionCall& function,
                                       const CallOptions& options = {});
  // Returns how many nanoseconds are left until the key's pair expires, by its server's clock: at least 1, INT64_MAX if
  // it never does, and nullopt if the key is not stored. Always asks the server.
  absl::StatusOr<std::optional<int64_t>> TimeLeftNs(std::string_view key, const CallOptions& options = {});
  Scan NewScan(ScanOptions options);

  // Begins a transaction over the tree and tables (transaction.h).
  Transaction Begin();
  // Runs `body` in a transaction, and commits it. While it is aborted, begins again, after a pause that grows, until
  // the timeout. Any other error ends it, and is returned; so `body` can give up by returning one. `body` must do
  // nothing else than read and write by its argument, since it may run several times.
  absl::StatusOr<Committed> RunTransaction(const std::function<absl::Status(Transaction*)>& body,
                                           const CallOptions& options = {});
  // Returns what became of a transaction whose Commit returned a status that IsMaybeApplied: what it has committed as,
  // or nullopt if it did not commit, and never will. Can be asked within a minute, also by another client; returns
  // FailedPrecondition if that is too late.
  absl::StatusOr<std::optional<Committed>> Outcome(const TransactionId& id, const CallOptions& options = {});

  // Waits until this client has told all servers that its transactions have committed, or has given that up, for at
  // most a second. Returns false if it still tries. For a program that ends: what it has written where nobody has said
  // so cannot be read for about a second.
  bool FinishTransactions();

  // Takes a snapshot: what the tree, or a range of it, has at one moment (snapshot.h). Writes to the regions that have
  // the range wait meanwhile, for some round trips, and at most for 200 ms. Tries again while a region has writes under
  // way for too long, or changes. Returns DeadlineExceeded if none was taken in time, ResourceExhausted if there are
  // too many snapshots of a region, and PermissionDenied if the user may not scan the whole range.
  absl::StatusOr<Snapshot> TakeSnapshot(const SnapshotOptions& options);
  Task<absl::StatusOr<Snapshot>> AsyncTakeSnapshot(SnapshotOptions options);

  // Counts the keys from `from` (inclusive) to `to` (exclusive; nullopt: to the end). The servers count them, region by
  // region, in slices of some leaves. Like a scan this is no snapshot: a key that was there throughout the call is
  // counted once, one that never was is not counted, and any other at most once. Returns InvalidArgument if `from` is
  // above `to`, or a bound is longer than a key can be. Every error's message says how far the count came.
  absl::StatusOr<uint64_t> Count(std::string_view from, std::optional<std::string_view> to,
                                 const RangeOptions& options = {});
  // Deletes these keys, in the same slices, and returns how many pairs it has deleted. Each key of the range is deleted
  // as if by Delete, at some moment of the call. A key that is put meanwhile may stay, or be deleted. Those of one leaf
  // go together: one read of the leaf finds all of them, or none. A region that is in the range as a whole is one
  // slice, whatever it has. With `sync` each slice is on disk before it is acknowledged, and before it is seen.
  //
  // After an error, the keys below the one in the message (RangeProgress::reached) were deleted, and those from it on
  // were not. If IsMaybeApplied, those of one slice from it on may have been deleted, or may still be. Begin again
  // there: a request whose answer was lost is never sent a second time by itself, because it could then delete what was
  // put after the call had ended.
  absl::StatusOr<uint64_t> DeleteRange(std::string_view from, std::optional<std::string_view> to,
                                       const RangeOptions& options = {});

  // Opens a table that was made by `cellctl hash create` or Control.CreateTable. Returns NotFound if there is none of
  // this name.
  absl::StatusOr<Table> OpenTable(const std::string& name);
  struct TableInfo {
    std::string name;
    uint32_t bucket_bytes = 0;  // 0: the table has slots.
    struct Part {
      uint32_t first;  // First hash position.
      uint32_t region;
      std::string server;
    };
    std::vector<Part> parts;
  };
  // Returns all tables in the current region table.
  std::vector<TableInfo> Tables();

  // Returns the rules by which pairs are evicted when there is no room, "none", "ttl" or "lru-sampled" (cellctl evict).
  struct EvictionInfo {
    std::map<std::string, std::string> by_prefix;  // For keys of the tree.
    std::map<std::string, std::string> by_table;
  };
  EvictionInfo Evictions();

  // Returns who may do what (cellctl grant). Grants that are not enforced do not count: every client may do everything.
  struct GrantInfo {
    std::string user;    // The name of a client, or * for every client.
    std::string rights;  // A list of read, scan, write, admin. Scan includes read, and admin all others.
    enum Scope { kEverything, kTree, kTable } scope;
    std::string of;  // The prefix of keys of the tree, or the table's name.
  };
  struct GrantsInfo {
    bool enforced = false;
    std::vector<GrantInfo> grants;
  };
  GrantsInfo Grants();

  Task<absl::StatusOr<std::optional<std::string>>> AsyncGet(std::string_view key, CallOptions options = {});
  Task<absl::StatusOr<std::vector<std::optional<std::string>>>> AsyncMultiGet(absl::Span<const std::string_view> keys,
                                                                              CallOptions options = {});
  Task<absl::StatusOr<bool>> AsyncContains(std::string_view key, CallOptions options = {});
  Task<absl::StatusOr<bool>> AsyncPut(std::string_view key, std::string_view value, CallOptions options = {});
  Task<absl::StatusOr<bool>> AsyncPut(std::string_view key, std::string_view value, Expires expires,
                                      CallOptions options = {});
  Task<absl::StatusOr<bool>> AsyncDelete(std::string_view key, CallOptions options = {});
  Task<absl::StatusOr<std::optional<StampedValue>>> AsyncGetWithStamp(std::string_view key, CallOptions options = {});
  Task<absl::StatusOr<WriteIfResult>> AsyncPutIf(std::string_view key, std::string_view value, Expires expires,
                                                 Condition condition, CallOptions options = {});
  Task<absl::StatusOr<WriteIfResult>> AsyncDeleteIf(std::string_view key, Condition condition,
                                                    CallOptions options = {});
  Task<absl::StatusOr<ApplyResult>> AsyncApply(std::string_view key, const FunctionCall& function,
                                               CallOptions options = {});
  Task<absl::StatusOr<std::string>> AsyncEvaluate(std::string_view key, const FunctionCall& function,
                                                  CallOptions options = {});
  Task<absl::StatusOr<std::optional<int64_t>>> AsyncTimeLeftNs(std::string_view key, CallOptions options = {});
  Task<absl::StatusOr<std::optional<Committed>>> AsyncOutcome(TransactionId id, CallOptions options = {});
  Task<absl::StatusOr<uint64_t>> AsyncCount(std::string_view from, std::optional<std::string_view> to,
                                            RangeOptions options = {});
  Task<absl::StatusOr<uint64_t>> AsyncDeleteRange(std::string_view from, std::optional<std::string_view> to,
                                                  RangeOptions options = {});
  // Ends at `at_ns` of NowNs: for pacing.
  Task<bool> AsyncSleepUntil(int64_t at_ns);

  // Does what can be done now. If there is nothing, waits, but not beyond `until_ns`.
  void Poll(int64_t until_ns);
  int64_t NowNs() const;

  // For a thread that waits by an event loop of its own, such as epoll or libuv, instead of Poll: BeginWait, after all
  // operations have begun; then until WaitFd() is readable or the time that BeginWait has returned; then Poll(0), again
  // and again while BeginWait returns 0. Poll ends the wait, as EndWait alone does.
  // Returns a descriptor that poll, select and epoll take; it is the client's. -1: there is none, as in a closed
  // client.
  int WaitFd();
  // Returns until when to wait, of NowNs; 0: Poll has something to do already.
  int64_t BeginWait();
  void EndWait();

  // Runs a coroutine to its end, and those in flight meanwhile.
  template <typename T>
  T Run(Task<T> task) {
    task.Start();
    while (!task.done()) Poll(INT64_MAX);
    return task.Take();
  }

  // Runs coroutines to their ends, all at once. Returns their results, or the first error.
  template <typename T>
  absl::StatusOr<std::vector<T>> RunAll(std::vector<Task<absl::StatusOr<T>>>* tasks) {
    for (Task<absl::StatusOr<T>>& task : *tasks) task.Start();
    std::vector<T> results;
    absl::Status status;
    for (Task<absl::StatusOr<T>>& task : *tasks) {
      while (!task.done()) Poll(INT64_MAX);
      absl::StatusOr<T> result = task.Take();
      status.Update(result.status());
      if (result.ok()) results.push_back(*std::move(result));
    }
    if (!status.ok()) return status;
    return results;
  }

  // Returns for each worker its state, as JSON, or why it does not answer.
  std::vector<absl::StatusOr<std::string>> ServerStatus();

  // Checks each region's tree, one after the other, and the consistency between regions. Checking a region blocks its
  // server (about a second per GB). Concurrent splits and migrations show up as errors between regions, so check a
  // quiet cluster.
  struct ClusterCheck {
    std::vector<std::string> regions_json;
    std::vector<std::string> errors;  // Errors within regions, and between them.
    uint64_t keys = 0;                // Keys in the tree.
    uint64_t table_keys = 0;          // Keys in all tables.
    uint64_t missing_routes = 0;      // Meganodes that are reached only from their left neighbour.
  };
  absl::StatusOr<ClusterCheck> Check();

  // Returns the known servers of the cluster.
  struct ServerInfo {
    std::string name;
    std::string control;  // HOST:PORT of its control plane, or empty.
  };
  std::vector<ServerInfo> Servers();

  // Returns all regions in the current region table, and which of them has the root of the tree.
  struct RegionInfo {
    uint32_t region = 0;
    uint64_t epoch = 0;
    std::string server;       // Its owner.
    bool recovering = false;  // The owner is reading its log, and does not serve it yet.
    bool in_making = false;   // It is being split from another, or will be the root.
  };
  struct RegionList {
    std::vector<RegionInfo> regions;
    uint32_t root = 0;       // 0: none yet.
    size_t regions_max = 0;  // How many regions the table may have.
  };
  RegionList Regions();

  size_t key_bytes_max() const;
  const ClientMetrics& metrics() const;
  // Resets the counters, for example after a warm-up.
  void ResetMetrics();

 private:
  friend class ClientTesting;
  friend class Snapshot;
  friend class Table;
  friend class Transaction;
  explicit Client(std::unique_ptr<Session> session);
  static absl::StatusOr<std::unique_ptr<Client>> Over(const ClientOptions& options, std::unique_ptr<Fabric> fabric,
                                                      std::unique_ptr<Membership> membership);

  std::unique_ptr<Session> session_;
  bool connected_ = false;  // To the root of the tree, at least once.
};

}  // namespace cell
