// Connections holds a client's connections to the workers of its cluster, and sends reads and requests over them.
// Internal to cell/client. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/task.h"
#include "cell/client/client.h"
#include "cell/client/session/client_loop.h"
#include "cell/client/session/request_slots.h"
#include "cell/client/session/server_time.h"
#include "cell/cluster/membership.h"
#include "cell/io/fabric/fabric_await.h"
#include "cell/layout/wire.h"
#include "selector/selector.h"

namespace cell {

// Estimates that the selectors of all workers share, by kind of operation.
using Estimates = std::array<CommonEstimates, kOperationKinds>;

// This client's connection to one worker, and what it has learned of that worker. `address` changes when the worker's
// server restarts elsewhere.
struct WorkerConnection {
  WorkerId worker_id;
  std::string address;
  ConnectionId id = 0;
  bool up = false;
  bool connecting = false;
  int64_t last_attempt_ns = INT64_MIN;
  int failed_attempts = 0;             // Attempts to connect that failed since it was last up.
  absl::Status why_down;               // Why the last attempt failed, or why the connection was lost after it.
  bool silent = false;                 // The last attempt failed because no answer came, not because it was refused.
  int unanswered = 0;                  // Reads and calls in flight...
  int64_t quiet_since_ns = 0;          // ...and when the last one was answered, or the first of these began.
  std::vector<uint16_t> free_numbers;  // Numbers for uploads and copies that no operation uses.
  ServerTime time;                     // Of the process that it was last connected to, and...
  KnownStamp stamp;                    // ...so is this.

  // `selector` and `estimates` must outlive it.
  WorkerConnection(WorkerId worker_id, std::string address, const SelectorOptions& selector, uint64_t seed,
                   Estimates* estimates)
      : worker_id(std::move(worker_id)),
        address(std::move(address)),
        free_numbers({4, 3, 2, 1}),
        options_(selector),
        seed_(seed),
        estimates_(estimates) {}

  // Returns the selector of a kind of operation. It is made when it is first asked for, because most connections of a
  // client with thousands of them are used for few kinds. Valid as long as this.
  Selector* selector(OperationKind kind) {
    const auto i = static_cast<size_t>(kind);
    if (selectors_[i] == nullptr) {
      selectors_[i] = std::make_unique<Selector>(options_, seed_ + i, &(*estimates_)[i]);
    }
    return selectors_[i].get();
  }

 private:
  const SelectorOptions& options_;
  const uint64_t seed_;
  Estimates* const estimates_;
  std::array<std::unique_ptr<Selector>, kOperationKinds> selectors_;
};
static_assert(kUploadsMax == 4);

// Says what an operation's selector learns from a request.
struct Feedback {
  enum Learn {
    kNothing,
    kCost,  // The time of the server path: the selector waits for the answer.
    kTime,  // The same, for an answer that is not a route. A server that owes this answer can still be asked.
    kRest,  // The time of a call that follows a client-side search, for an answer that is not a route.
  };
  Selector* selector = nullptr;
  Learn learn = kNothing;

  bool learns() const { return selector != nullptr && learn != kNothing; }
};

// Tells a selector of one search by one-sided reads: the time of each round of reads, and their number at the end.
class SearchReads {
 public:
  // `selector` must outlive it.
  explicit SearchReads(Selector* selector) : selector_(selector) {}

  // Returns the number of rounds that began.
  int rounds() const { return rounds_; }
  // Reports the number of rounds. Must be called once, and only if the search came to its end, because a search that
  // was broken off says nothing about the next one. `extents`: see Selector::ObserveReads.
  void End(int extents = 0) { selector_->ObserveReads(std::max(1, rounds_ - cached_), extents); }
  // Does not count the last round, because it brought a node that is cached from now on.
  void Cached() { ++cached_; }

 private:
  friend class Connections;

  Selector* const selector_;
  int rounds_ = 0;
  int cached_ = 0;  // How many of them brought a node that is cached from now on.
};

class Connections {
 public:
  // Both must outlive this. `reconnect_us`: see ClientOptions.
  Connections(ClientLoop* loop, ClientMetrics* metrics, const ClientOptions& options);

  // From now on connects to no server that says that it belongs to another cluster than that whose uuid has this CRC64.
  // An address may have been taken over by such a server, and a client that was idle does not know.
  void set_cluster(uint64_t cluster) { cluster_ = cluster; }

  // Returns the connection to a worker, which may not be up. If the worker's address has changed, closes a connection
  // that was up. Valid as long as this.
  WorkerConnection* To(const WorkerId& worker_id, const std::string& address);
  // Returns a connection that is up, or null.
  WorkerConnection* AnyUp() const;

  // Connects unless the connection is up already. Returns Unavailable if that fails, PermissionDenied if this user may
  // not connect, or FailedPrecondition if the server belongs to another cluster. If an attempt failed a moment ago,
  // returns its status without another one. An attempt continues after the deadline, for the benefit of other
  // operations.
  Task<absl::Status> Connect(WorkerConnection* worker, int64_t deadline_ns = INT64_MAX);
  // Marks the connection as down if `status`, which the fabric returned for it, says that it was lost.
  void Note(WorkerConnection* worker, const absl::Status& status);
  // Closes connections that were lost. Call it outside of completions.
  void CloseBroken();
  // Returns whether a worker that owes an answer has given none for `ns`.
  bool AnyIsQuiet(int64_t ns) const;
  // Closes the connections to such workers if the cluster does not have them any more. What they owe is then
  // Unavailable.
  void CloseGone(const ClusterState& cluster, int64_t ns);
  // Forgets the location of the region's memory at the worker: the next read looks it up. Does nothing once the loop is
  // closed.
  void ForgetRegion(const WorkerConnection& worker, uint32_t region);

  // Reads one-sided. `parts` must live until the read ends. If the read is a round of a search, counts it in `search`,
  // and reports its time to the search's selector if it succeeds. If it is not, but belongs to what the selector chose,
  // only the work that follows on it is reported.
  class ReadOp : public ReadAwaiter {
   public:
    ReadOp(Connections* connections, WorkerConnection* worker, absl::Span<const ReadPart> parts, int64_t deadline_ns,
           Selector* selector, bool is_round)
        : ReadAwaiter(connections->loop_->fabric(), worker->id, parts, deadline_ns),
          connections_(connections),
          worker_(worker),
          selector_(selector),
          is_round_(is_round),
          asked_ns_(connections->loop_->now_ns()) {
      connections->Asked(worker);
    }
    bool await_ready() const { return connections_->loop_->closed(); }
    absl::Status await_resume();

   private:
    Connections* const connections_;
    WorkerConnection* const worker_;
    Selector* const selector_;  // Null: it belongs to no choice.
    const bool is_round_;
    const int64_t asked_ns_;
  };
  ReadOp Read(WorkerConnection* worker, absl::Span<const ReadPart> parts, int64_t deadline_ns,
              SearchReads* search = nullptr) {
    if (search == nullptr) return ReadExtent(worker, parts, deadline_ns, nullptr);
    ++search->rounds_;
    ++metrics_->read_rounds;
    return ReadOp(this, worker, parts, deadline_ns, search->selector_, /*is_round=*/true);
  }
  ReadOp ReadExtent(WorkerConnection* worker, absl::Span<const ReadPart> parts, int64_t deadline_ns,
                    Selector* selector) {
    ++metrics_->read_rounds;
    return ReadOp(this, worker, parts, deadline_ns, selector, /*is_round=*/false);
  }

  // Returns whether servers let this client read no memory, as far as is known: one has said so a moment ago. The
  // hybrid path uses servers alone then.
  bool reads_denied() const { return loop_->now_ns() < denied_until_ns_; }
  // Takes note of the outcome of a read, or of a call that stands for one.
  void NoteRead(const absl::Status& status) {
    if (!absl::IsPermissionDenied(status)) return;
    ++metrics_->reads_denied;
    denied_until_ns_ = loop_->now_ns() + kDeniedNs;
  }

  // Sends a request. The reply's bytes are valid until the awaiting coroutine suspends again.
  class CallOp : public CallAwaiter {
   public:
    CallOp(Connections* connections, WorkerConnection* worker, const OutgoingCall& call, Feedback feedback);
    bool await_ready() const { return connections_->loop_->closed(); }
    absl::StatusOr<ConstBytes> await_resume();

   private:
    Connections* const connections_;
    WorkerConnection* const worker_;
    const Feedback feedback_;
    const int64_t asked_ns_;
  };
  CallOp Call(WorkerConnection* worker, const OutgoingCall& call, Feedback feedback = {}) {
    ++metrics_->calls;
    return CallOp(this, worker, call, feedback);
  }

  // Waits for a free number for an upload to the worker or a copy there. Returns 0 if none was free before the
  // deadline. The caller returns the number with GiveNumber.
  Task<uint16_t> TakeNumber(WorkerConnection* worker, int64_t deadline_ns);
  void GiveNumber(WorkerConnection* worker, uint16_t number);

 private:
  // An attempt to connect. It may outlive the operation that began it.
  class Attempt : public DetachedTask {
   public:
    Attempt(Connections* connections, WorkerConnection* worker) : task_(connections->TryConnect(worker)) {
      task_.Start();
    }
    bool ended() const override { return task_.done(); }

   private:
    Task<bool> task_;
  };

  Task<bool> TryConnect(WorkerConnection* worker);
  // Asks the server that was just connected to which cluster it belongs to. `address` is for messages.
  Task<absl::Status> CheckCluster(ConnectionId id, const std::string* address);
  void Asked(WorkerConnection* worker) {
    if (worker->unanswered++ == 0) worker->quiet_since_ns = loop_->now_ns();
  }
  void Answered(WorkerConnection* worker) {
    --worker->unanswered;
    worker->quiet_since_ns = loop_->now_ns();
  }
  bool IsQuiet(const WorkerConnection& worker, int64_t ns) const {
    return worker.up && worker.unanswered > 0 && loop_->now_ns() - worker.quiet_since_ns > ns;
  }
  // Begins the work of a completion for the meter of this client's core.
  void MeterWork(Selector* selector, CpuMeter::Work work) {
    if (CpuMeter* cpu = loop_->cpu(); cpu->sampled()) cpu->Begin(selector, work, loop_->WorkNs());
  }

  // After this the next read finds out whether it has been allowed since.
  static constexpr int64_t kDeniedNs = 5'000'000'000;

  ClientLoop* const loop_;
  ClientMetrics* const metrics_;
  int64_t denied_until_ns_ = INT64_MIN;
  std::optional<uint64_t> cluster_;  // Nullopt: any.
  const int64_t reconnect_ns_;
  const uint64_t seed_;
  const SelectorOptions selector_;
  Estimates estimates_;
  // Connections are made when they are first needed, because a client of a large cluster may need few. They are never
  // removed: there is one for each worker that this client has ever used.
  std::vector<std::unique_ptr<WorkerConnection>> workers_;
  std::map<WorkerId, WorkerConnection*> by_worker_;
  std::vector<ConnectionId> to_close_;  // Closed by CloseBroken.
};

}  // namespace cell
