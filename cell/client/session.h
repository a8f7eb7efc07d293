// Session: the state that a client's operations share: the fabric and its connections, caches, selectors, counters, and
// the awaitables that turn completions into coroutines. Internal to cell/client. Not thread-safe.
#pragma once

#include <algorithm>
#include <coroutine>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cell/base/mutant.h"
#include "cell/base/random.h"
#include "cell/client/client.h"
#include "cell/client/node_cache.h"
#include "cell/client/route_cache.h"
#include "cell/cluster/membership.h"
#include "cell/io/fabric/fabric_await.h"
#include "cell/layout/wire.h"
#include "cell/tree/walk.h"
#include "selector/selector.h"

namespace cell {

// Latency estimates that the selectors of all servers share.
struct Estimates {
  CommonEstimates searches, scans, lookups;
};

// This client's connection to one worker of a server. `address` changes when the server restarts elsewhere.
struct ServerConnection {
  WorkerId worker;
  std::string address;
  ConnectionId id = 0;
  bool up = false;
  bool connecting = false;
  int64_t last_attempt_ns = INT64_MIN;
  int failed_attempts = 0;  // Attempts to connect that failed since it was up last.
  absl::Status why_down;    // Why the last attempt failed, or why the connection was lost after it.
  bool silent = false;      // The last attempt failed because no answer came, not because it was refused.
  Selector searches;
  Selector scans;
  Selector lookups;                    // In Pilaf tables.
  std::vector<uint16_t> free_numbers;  // Numbers for uploads and copies that no operation uses.

  ServerConnection(WorkerId worker, std::string address, const SelectorOptions& selector, uint64_t seed,
                   Estimates* estimates)
      : worker(std::move(worker)),
        address(std::move(address)),
        searches(selector, seed, &estimates->searches),
        scans(selector, seed + 1, &estimates->scans),
        lookups(selector, seed + 2, &estimates->lookups),
        free_numbers({4, 3, 2, 1}) {}
};
static_assert(kUploadsMax == 4);

// The server that holds a region, according to one version of this client's view of the region table.
struct Holder {
  uint32_t region = 0;
  uint64_t epoch = 0;
  ServerConnection* server = nullptr;  // Null if it is unknown or not connected.
  uint64_t revision = 0;               // Version of the view.
};

// The options of a call after defaults are applied.
struct CallContext {
  Path path;
  int64_t started_ns;
  int64_t deadline_ns;
};

// Allocates buffers of kNodeBytesMax. Deletes itself once it is released and all buffers were given back, since buffers
// may outlive their session.
class NodePool {
 public:
  std::byte* Take();
  void Give(std::byte* buffer);
  // Called when the session ends.
  void Release();

 private:
  ~NodePool();

  std::vector<std::byte*> free_;
  size_t taken_ = 0;
  bool released_ = false;
};

class NodeBuffer;
struct WalkedLeaf;

// A task that may outlive the operation that started it. The session destroys it after it has ended.
class DetachedTask {
 public:
  virtual ~DetachedTask() = default;
  virtual bool ended() const = 0;
};

class Session {
 public:
  Session(const ClientOptions& options, std::unique_ptr<Fabric> fabric, std::unique_ptr<Membership> membership);
  ~Session();

  const ClientOptions& options() const { return options_; }
  int64_t refused_pause_ns() const { return options_.refused_pause_us * 1000; }
  Fabric* fabric() { return fabric_.get(); }
  NodeCache* cache() { return &cache_; }
  ClientMetrics* metrics() { return &metrics_; }
  RouteCache* routes() { return &routes_; }
  const ClusterState& cluster() const { return membership_->state(); }
  // Returns the root of the tree, where searches begin, according to the region table.
  Pointer root() const { return RootOf(cluster().table.root); }
  uint32_t node_bytes() const { return cluster().shape.node_bytes; }
  // Returns the connections to all workers that are members now.
  std::vector<ServerConnection*> AllServers();
  // Returns the fabric's time. Once the session is closed, it returns the time of that.
  int64_t NowNs() const { return closed_ ? now_ns_ : fabric_->NowNs(); }

  // Forgets where the server has the region's memory: the next read looks it up. Does nothing once the session is
  // closed.
  void ForgetRegion(ServerConnection* server, uint32_t region);

  // Ends all operations in flight with Cancelled; writes that were sent also report MaybeApplied. Operations that begin
  // afterwards end with Cancelled at once.
  void Close();
  bool closed() const { return closed_; }
  static absl::Status Closed() { return absl::CancelledError("the client was closed"); }

  // Returns the time of the last Poll. It costs nothing, and is exact enough for the latencies of what that Poll found.
  int64_t now_ns() const { return now_ns_; }
  CallContext Begin(const CallOptions& options);
  // Chooses the path of an operation, by its options or by the selector, and counts it.
  Path ChoosePath(Selector* selector, const CallContext& context);
  // Counts an operation that ends.
  void End(const CallContext& context, const absl::Status& status);

  // Returns the holder of `region`, with a null server if that is unknown or not connected.
  Holder HolderOf(uint32_t region) {
    const Owner* const owner = OwnerOf(region);
    if (owner == nullptr || !owner->server->up) return {region, 0, nullptr, revision_};
    return {region, owner->epoch, owner->server, revision_};
  }
  // Connects to the holder of `region` unless that is up already. Returns Unavailable, with the region and the server
  // in the message, if that fails. An attempt goes on after the deadline, for the benefit of other operations.
  Task<absl::StatusOr<ServerConnection*>> Connect(uint32_t region, int64_t deadline_ns = INT64_MAX);
  Task<absl::Status> Connect(ServerConnection* server, int64_t deadline_ns = INT64_MAX);
  // Reads the region table again, and waits for it until the deadline. The caller goes on with what is known then,
  // whether that succeeded or not.
  Task<bool> Refresh(int64_t deadline_ns);
  // Returns true if data that was read one-sided from `holder` until now can be trusted. It cannot once the table's
  // lease has run out: the region may have been recovered elsewhere, while the former owner's memory can still be read.
  // If a newer table has arrived since the read began, it must name the same holder: otherwise the read would be
  // trusted by a lease that it did not begin under.
  bool Leased(const Holder& holder) {
    return (NowNs() <= LeaseUntilNs() || Mutated(Mutant::kTableLeaseUnchecked)) && StillHolds(holder);
  }
  // Begins to read the region table again, without waiting. An old table costs extra steps, but not correctness.
  void RefreshSoon() { refresh_soon_ = true; }
  // Returns true if the last attempt to connect to the region's holder was neither answered nor refused: the server may
  // be slow or stopped.
  bool IsSilent(uint32_t region) {
    const Owner* const owner = OwnerOf(region);
    return owner != nullptr && owner->server->silent;
  }
  // Returns true if a region that no server serves now will be served again, because it is being recovered or other
  // servers can take it over.
  bool WillBeServed(uint32_t region) const;
  // Returns when the lease of the region table ends. Without durability it never does, since no region is recovered
  // elsewhere.
  int64_t LeaseUntilNs() const {
    return cluster().durability == Durability::kNone ? INT64_MAX : table_ns_ + cluster().table_lease_ns;
  }
  // Marks the connection as down if `status` says that it was lost, and returns `status`. Call it with every status
  // that the fabric returns for the connection.
  absl::Status Note(ServerConnection* server, absl::Status status);

  void Poll(int64_t until_ns);

  struct NotedRead : ReadAwaiter {
    Session* session;
    ServerConnection* server;
    NotedRead(Session* session, ServerConnection* server, absl::Span<const ReadPart> parts, int64_t deadline_ns)
        : ReadAwaiter(session->fabric(), server->id, parts, deadline_ns), session(session), server(server) {}
    bool await_ready() const { return session->closed(); }
    absl::Status await_resume() {
      return session->closed() ? Closed() : session->Note(server, ReadAwaiter::await_resume());
    }
  };
  // Reads one-sided. `parts` must live until the read ends.
  NotedRead Read(ServerConnection* server, absl::Span<const ReadPart> parts, int64_t deadline_ns) {
    return NotedRead(this, server, parts, deadline_ns);
  }

  struct NotedCall : CallAwaiter {
    Session* session;
    ServerConnection* server;
    NotedCall(Session* session, ServerConnection* server, std::string_view head, std::string_view body,
              size_t reply_bytes_max, int64_t deadline_ns)
        : CallAwaiter(session->fabric(), server->id, head, body, reply_bytes_max, deadline_ns),
          session(session),
          server(server) {}
    bool await_ready() const { return session->closed(); }
    absl::StatusOr<ConstBytes> await_resume() {
      if (session->closed()) return Closed();
      if (!reply.ok()) (void)session->Note(server, reply.status());
      return CallAwaiter::await_resume();
    }
  };
  // Sends a request. The reply's bytes are valid until the awaiting coroutine suspends again.
  NotedCall Call(ServerConnection* server, std::string_view head, std::string_view body, size_t reply_bytes_max,
                 int64_t deadline_ns) {
    ++metrics_.calls;
    return NotedCall(this, server, head, body, reply_bytes_max, deadline_ns);
  }

  struct SleepAwaiter {
    Session* session;
    int64_t at_ns;
    bool await_ready() const { return session->closed() || session->NowNs() >= at_ns; }
    void await_suspend(std::coroutine_handle<> awaiting) { session->timers_.push({at_ns, awaiting}); }
    void await_resume() const {}
  };
  SleepAwaiter SleepUntil(int64_t at_ns) { return {this, at_ns}; }

  // Waits until Wake(event), the deadline, or Close.
  struct EventAwaiter {
    Session* session;
    const void* event;
    int64_t deadline_ns;
    std::coroutine_handle<> handle = {};
    bool await_ready() const { return session->closed(); }
    void await_suspend(std::coroutine_handle<> awaiting) {
      handle = awaiting;
      session->waiting_.push_back(this);
    }
    void await_resume() const {}
  };
  EventAwaiter WaitFor(const void* event, int64_t deadline_ns) { return {this, event, deadline_ns}; }
  // Resumes all coroutines that wait for `event`, in the order in which they began to wait.
  void Wake(const void* event);

  // Waits for a free number for an upload to the server or a copy there. Returns 0 if none was free until the deadline.
  // The caller gives the number back with GiveNumber.
  Task<uint16_t> TakeNumber(ServerConnection* server, int64_t deadline_ns);
  void GiveNumber(ServerConnection* server, uint16_t number);

  // Walks to the leaf of walk->key() by one-sided reads, beginning at walk->wants(). On kArrived the leaf is in *to;
  // kElsewhere and kLost are as in Walk. Returns Aborted if nodes kept changing while they were read. Reports each
  // read's latency to `selector`, and adds the number of reads to *reads.
  Task<absl::StatusOr<Walk::Step>> WalkToLeaf(ServerConnection* server, Walk* walk, bool use_cache, WalkedLeaf* to,
                                              int64_t deadline_ns, Selector* selector, int* reads);

  // Takes ownership of `task` until it has ended.
  void Keep(std::unique_ptr<DetachedTask> task) { detached_.push_back(std::move(task)); }

 private:
  friend class NodeBuffer;

  struct Timer {
    int64_t at_ns;
    std::coroutine_handle<> handle;
    bool operator>(const Timer& other) const { return at_ns > other.at_ns; }
  };
  class ReportCompletion : public Completion {
   public:
    void Done(const absl::Status&, ConstBytes) override { in_flight = false; }
    bool in_flight = false;
  };

  // A region's owner in the table at `revision`. If `known` is false, the region has no owner now, and had this one
  // before.
  struct Owner {
    ServerConnection* server = nullptr;
    uint64_t epoch = 0;
    uint64_t revision = 0;
    bool known = false;
  };

  // An attempt to connect. It may outlive the operation that began it.
  class Attempt : public DetachedTask {
   public:
    Attempt(Session* session, ServerConnection* server) : task_(session->TryConnect(server)) { task_.Start(); }
    bool ended() const override { return task_.done(); }

   private:
    Task<bool> task_;
  };

  Task<bool> TryConnect(ServerConnection* server);
  // Resumes the waiting coroutines that `is` selects. Returns how many those were.
  template <typename Is>
  size_t WakeIf(const Is& is);
  void BeginRefresh();
  void SendReport();
  ServerConnection* ConnectionTo(const WorkerId& worker, const std::string& address);
  // Returns null if no owner is known.
  const Owner* OwnerOf(uint32_t region) {
    const auto it = owners_.find(region);
    if (it != owners_.end() && it->second.revision == revision_) return it->second.known ? &it->second : nullptr;
    return LookUpOwner(region);
  }
  const Owner* LookUpOwner(uint32_t region);
  // Stores the route that slot `slot` of a leaf of an upper tier holds.
  void KeepRoute(const NodeView& leaf, int slot);
  bool StillHolds(const Holder& holder);

  const ClientOptions options_;
  SelectorOptions selector_;
  Estimates estimates_;
  std::unique_ptr<Membership> membership_;
  std::unique_ptr<Fabric> fabric_;
  // Connections are made when they are first needed, since a client of a large cluster may need few. They are never
  // removed: there is one for each worker that this client has ever met.
  std::vector<std::unique_ptr<ServerConnection>> servers_;
  std::map<WorkerId, ServerConnection*> by_worker_;
  absl::flat_hash_map<uint32_t, Owner> owners_;  // By region, for the regions that operations asked for.
  uint64_t revision_ = 0;                        // Of the region table at the last Poll.
  bool refresh_soon_ = false;
  bool refreshing_ = false;
  uint64_t refreshes_ = 0;    // Number of reads of the table that have ended.
  int64_t refreshed_ns_ = 0;  // When the last one began.
  int64_t table_ns_ = 0;      // When the last one that succeeded began; the lease counts from here.
  uint64_t reads_at_refresh_ = 0;
  std::vector<ConnectionId> lost_;  // The next Poll disconnects these.
  NodeCache cache_;
  RouteCache routes_;
  ClientMetrics metrics_;
  bool closed_ = false;
  int64_t now_ns_ = 0;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::vector<EventAwaiter*> waiting_;  // Ordered by when they began to wait.
  NodePool* const nodes_ = new NodePool;
  std::vector<std::unique_ptr<DetachedTask>> detached_;

  ReportCompletion reporting_;
  int64_t reported_ns_ = 0;
  Histogram since_report_ns_;
};

// A buffer for one node, from the session's pool. The destructor gives it back.
class NodeBuffer {
 public:
  explicit NodeBuffer(Session* session) : pool_(session->nodes_), bytes_(pool_->Take()) {}
  ~NodeBuffer() { pool_->Give(bytes_); }
  NodeBuffer(const NodeBuffer&) = delete;
  NodeBuffer& operator=(const NodeBuffer&) = delete;

  std::byte* data() { return bytes_; }
  static constexpr size_t size() { return kNodeBytesMax; }
  // Exchanges the contents of two buffers.
  void Swap(NodeBuffer* other) { std::swap(bytes_, other->bytes_); }

 private:
  NodePool* const pool_;
  std::byte* bytes_;
};

// The nodes that a walk to a leaf has read last.
struct WalkedLeaf {
  explicit WalkedLeaf(Session* session) : buffer(session), parent_buffer(session) {}

  NodeBuffer buffer;
  NodeView leaf;  // The leaf, in `buffer`, after kArrived.
  NodeBuffer parent_buffer;
  NodeView parent;      // The leaf's parent, in `parent_buffer`. Empty if it came from the cache or does not exist.
  bool cached = false;  // True if the last node came from the cache.
};

}  // namespace cell
