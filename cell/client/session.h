// Session: what a client's operations share. The fabric and its connections, the caches, the selectors, the counters,
// and the awaitables that turn completions into coroutines. Internal to cell/client; one thread.
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

// What a client's selectors have seen together.
struct Estimates {
  CommonEstimates searches, scans, lookups;
};

// One worker of a server, as this client knows it. Its address changes when the server comes back elsewhere.
struct ServerConnection {
  WorkerId worker;
  std::string address;
  ConnectionId id = 0;
  bool up = false;
  bool connecting = false;
  int64_t last_attempt_ns = INT64_MIN;
  int failed_attempts = 0;  // Since it was up last.
  absl::Status why_down;    // Of the last attempt that failed, or of the loss of a connection since.
  bool silent = false;      // It failed because no answer came.
  Selector searches;
  Selector scans;
  Selector lookups;  // Of tables.
  std::vector<uint16_t> free_numbers;  // Of uploads and copies.

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

// Who holds a region, by a client's view of the region table.
struct Holder {
  uint32_t region = 0;
  uint64_t epoch = 0;
  ServerConnection* server = nullptr;  // Null: not known, or not connected.
  uint64_t revision = 0;               // Of the view.
};

// A call's options, resolved.
struct CallContext {
  Path path;
  int64_t started_ns;
  int64_t deadline_ns;
};

// Memory for nodes. It lives as long as its session, and as the last of its buffers.
class NodePool {
 public:
  std::byte* Take();
  void Give(std::byte* buffer);
  // The session ends.
  void Release();

 private:
  ~NodePool();

  std::vector<std::byte*> free_;
  size_t taken_ = 0;
  bool released_ = false;
};

// Memory for one node, from the session's pool; given back by the destructor.
class NodeBuffer;
struct WalkedLeaf;

// Something that still runs when its owner is gone, and is destroyed when it has ended.
class Leftover {
 public:
  virtual ~Leftover() = default;
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
  // Where searches begin: the root of the tree, as the region table had it last.
  Pointer root() const { return RootOf(cluster().table.root); }
  uint32_t node_bytes() const { return cluster().shape.node_bytes; }
  // Those of all workers that there are.
  std::vector<ServerConnection*> AllServers();
  // The fabric's clock; once the session is closed, it stands still.
  int64_t NowNs() const { return closed_ ? now_ns_ : fabric_->NowNs(); }

  // Reads of the region go to where the server has it by then, and not where it was. Once the session is closed, nothing
  // is done.
  void ForgetRegion(ServerConnection* server, uint32_t region);

  // Ends all that is in flight, with Cancelled (a write that was sent: MaybeApplied as well). What is asked for from
  // then on ends so at once.
  void Close();
  bool closed() const { return closed_; }
  static absl::Status Closed() { return absl::CancelledError("the client was closed"); }

  // The clock as of the last Poll: good enough for latencies of what Poll finds, and free.
  int64_t now_ns() const { return now_ns_; }
  CallContext Begin(const CallOptions& options);
  // Which way this operation goes, by its options or by the selector; counts it.
  Path ChoosePath(Selector* selector, const CallContext& context);
  // Counts an operation that ends.
  void End(const CallContext& context, const absl::Status& status);

  // Whoever holds `region`, as far as is known.
  Holder HolderOf(uint32_t region) {
    const Owner* const owner = OwnerOf(region);
    if (owner == nullptr || !owner->server->up) return {region, 0, nullptr, revision_};
    return {region, owner->epoch, owner->server, revision_};
  }
  // The same, connected if need be. Unavailable: names the region and the server. An attempt to connect goes on beyond
  // the deadline, for others.
  Task<absl::StatusOr<ServerConnection*>> Connect(uint32_t region, int64_t deadline_ns = INT64_MAX);
  Task<absl::Status> Connect(ServerConnection* server, int64_t deadline_ns = INT64_MAX);
  // Asks for the region table again, and waits for the answer, but not beyond the deadline. Whatever came of it, what
  // is known then must do.
  Task<bool> Refresh(int64_t deadline_ns);
  // Whether what was read from `holder` one-sided until now is to be trusted: until the table is so old that the region
  // may have been recovered elsewhere meanwhile, while its former owner's memory can still be read. A table that has
  // come since must still name it: else a read that began by an old table would be trusted by the lease of a new one.
  bool Leased(const Holder& holder) {
    return (NowNs() <= LeaseUntilNs() || Mutated(Mutant::kTableLeaseUnchecked)) && StillHolds(holder);
  }
  // The table seems to be old, which costs steps and no more: asks again, without waiting for it.
  void RefreshSoon() { refresh_soon_ = true; }
  // Whether the region's worker did not answer the last attempt to connect, nor refuse it: it may be slow, or stopped.
  bool IsSilent(uint32_t region) {
    const Owner* const owner = OwnerOf(region);
    return owner != nullptr && owner->server->silent;
  }
  // Whether a region that nobody serves now will be served: its log is being read, or others take it over.
  bool WillBeServed(uint32_t region) const;
  // Without durability nothing is recovered elsewhere.
  int64_t LeaseUntilNs() const {
    return cluster().durability == Durability::kNone ? INT64_MAX : table_ns_ + cluster().table_lease_ns;
  }
  // To be told every status that the fabric gave for this connection.
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
  // `parts` must live until it ends.
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
  // The reply's bytes are valid until the awaiting coroutine suspends again.
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

  // Until Wake(event), or the deadline, or until the session is closed.
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
  // Resumes all that wait for `event`, in their order.
  void Wake(const void* event);

  // A number for an upload to the server, or for a copy there, once one is free; 0: none was until the deadline. To be
  // given back by GiveNumber.
  Task<uint16_t> TakeNumber(ServerConnection* server, int64_t deadline_ns);
  void GiveNumber(ServerConnection* server, uint16_t number);

  // Walks to the leaf of walk->key() by one-sided reads, beginning at walk->wants(). kArrived: the leaf is in *to.
  // kElsewhere, kLost: as the walk says. Aborted: its nodes kept changing while they were read. Tells
  // `selector` of each read's latency, and adds their number to *reads.
  Task<absl::StatusOr<Walk::Step>> WalkToLeaf(ServerConnection* server, Walk* walk, bool use_cache, WalkedLeaf* to,
                                              int64_t deadline_ns, Selector* selector, int* reads);

  // Keeps `leftover` until it has ended.
  void Keep(std::unique_ptr<Leftover> leftover) { leftovers_.push_back(std::move(leftover)); }

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

  // Of a region, by the table as of `revision`; not `known`: it had this one before, and has none now.
  struct Owner {
    ServerConnection* server = nullptr;
    uint64_t epoch = 0;
    uint64_t revision = 0;
    bool known = false;
  };

  // An attempt to connect, which may outlive the call that began it.
  class Attempt : public Leftover {
   public:
    Attempt(Session* session, ServerConnection* server) : task_(session->TryConnect(server)) { task_.Start(); }
    bool ended() const override { return task_.done(); }

   private:
    Task<bool> task_;
  };

  Task<bool> TryConnect(ServerConnection* server);
  // Resumes those for which is(waiting). Their number.
  template <typename Is>
  size_t WakeIf(const Is& is);
  void BeginRefresh();
  void SendReport();
  ServerConnection* ConnectionTo(const WorkerId& worker, const std::string& address);
  // Null: nobody, as far as is known.
  const Owner* OwnerOf(uint32_t region) {
    const auto it = owners_.find(region);
    if (it != owners_.end() && it->second.revision == revision_) return it->second.known ? &it->second : nullptr;
    return LookUpOwner(region);
  }
  const Owner* LookUpOwner(uint32_t region);
  // What a leaf of routes says at this slot.
  void KeepRoute(const NodeView& leaf, int slot);
  bool StillHolds(const Holder& holder);

  const ClientOptions options_;
  SelectorOptions selector_;
  Estimates estimates_;
  std::unique_ptr<Membership> membership_;
  std::unique_ptr<Fabric> fabric_;
  // Made when they are first needed: a client of a large cluster may need few. None ever goes: there is one for each
  // worker that there ever was, wherever it was.
  std::vector<std::unique_ptr<ServerConnection>> servers_;
  std::map<WorkerId, ServerConnection*> by_worker_;
  absl::flat_hash_map<uint32_t, Owner> owners_;  // By region; of those that were asked for.
  uint64_t revision_ = 0;                        // Of the table, as of the last Poll.
  bool refresh_soon_ = false;
  bool refreshing_ = false;
  uint64_t refreshes_ = 0;    // That have ended.
  int64_t refreshed_ns_ = 0;  // When the last one was asked for...
  int64_t table_ns_ = 0;      // ...and the last one that succeeded.
  uint64_t reads_at_refresh_ = 0;
  std::vector<ConnectionId> lost_;  // To be disconnected by the next Poll.
  NodeCache cache_;
  RouteCache routes_;
  ClientMetrics metrics_;
  bool closed_ = false;
  int64_t now_ns_ = 0;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::vector<EventAwaiter*> waiting_;  // The first has waited longest.
  NodePool* const nodes_ = new NodePool;
  std::vector<std::unique_ptr<Leftover>> leftovers_;

  ReportCompletion reporting_;
  int64_t reported_ns_ = 0;
  Histogram since_report_ns_;
};

class NodeBuffer {
 public:
  explicit NodeBuffer(Session* session) : pool_(session->nodes_), bytes_(pool_->Take()) {}
  ~NodeBuffer() { pool_->Give(bytes_); }
  NodeBuffer(const NodeBuffer&) = delete;
  NodeBuffer& operator=(const NodeBuffer&) = delete;

  std::byte* data() { return bytes_; }
  static constexpr size_t size() { return kNodeBytesMax; }
  // The buffers' contents change places.
  void Swap(NodeBuffer* other) { std::swap(bytes_, other->bytes_); }

 private:
  NodePool* const pool_;
  std::byte* bytes_;
};

// What a walk to a leaf has read last.
struct WalkedLeaf {
  explicit WalkedLeaf(Session* session) : buffer(session), parent_buffer(session) {}

  NodeBuffer buffer;
  NodeView leaf;  // In `buffer`, after kArrived.
  NodeBuffer parent_buffer;
  NodeView parent;  // In `parent_buffer`: the node above, unless it was in the cache or there is none; then no bytes.
  bool cached = false;  // The last node was not read: the cache had it.
};

}  // namespace cell
