// RequestService serves the calls that a worker's fabric delivers. It refuses what the peer's role may not send
// (cell/layout/roles.h), and what its grants do not allow (Permissions). It parses each request once and passes it on:
// lookups to Lookups, writes to WritePipeline, uploads and fetches to LargeValues, requests about the worker
// to WorkerReports, steps of migrations to a MigrationHandler, what is about snapshots to SnapshotRequests.
//
// Searches and gets are answered before Serve returns. Requests that may take long may wait for later turns of the
// worker (LongRequests), checks take many turns (RegionChecks), and writes wait until they can be applied
// (WritePipeline). Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cell/io/fabric/fabric.h"
#include "cell/layout/wire.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/request/compactor.h"
#include "cell/server/request/evictor.h"
#include "cell/server/request/expiry_sweeper.h"
#include "cell/server/request/large_values.h"
#include "cell/server/request/long_requests.h"
#include "cell/server/request/lookups.h"
#include "cell/server/request/migration_handler.h"
#include "cell/server/request/permissions.h"
#include "cell/server/request/region_checks.h"
#include "cell/server/request/replies.h"
#include "cell/server/request/served_regions.h"
#include "cell/server/request/snapshot_requests.h"
#include "cell/server/request/table_refresher.h"
#include "cell/server/request/table_requests.h"
#include "cell/server/request/uploads.h"
#include "cell/server/request/worker_reports.h"
#include "cell/server/request/write_pipeline.h"
#include "nlohmann/json_fwd.hpp"

namespace cell {

class RequestService : public Service {
 public:
  struct Options {
    std::string name;                     // Name of the server, for its status.
    bool batching = true;                 // If off, each search runs by itself, to measure the gain of batching.
    int64_t held_max_ns = 1'000'000'000;  // How long a write waits until its region has room, or has migrated.
    Uploads::Limits uploads = {};
    LongRequests::Limits long_requests = {};
    ExpirySweeper::Options sweeper = {};
    Evictor::Options evictor = {};
    Compactor::Options compactor = {};
  };

  // Serve the requests that this class does not serve itself.
  struct Handlers {
    MigrationHandler* migrations = nullptr;  // Null if regions never migrate.
    RoomMaker* room = nullptr;               // Null if regions are never split.
    TableRefresher* table = nullptr;         // Null if clients ask the coordinator alone for the region table.
  };

  // All arguments must outlive this.
  RequestService(const WorkerContext& context, ServedRegions* served, HeldWrites* held, Handlers handlers,
                 const Options& options);

  void Serve(absl::Span<const IncomingCall> calls) override;
  void Disconnected(ConnectionId peer) override;
  // Drops what nobody needs any more: uploads, copies, and pairs that have expired. Compacts extents.
  void Step() {
    permissions_.Step();
    large_values_.Step();
    sweeper_.Step();
    compactor_.Step();
    snapshots_.Step();
  }

  // Applies the grants of the region table as they are now. Step does, too.
  void FollowGrants() { permissions_.Step(); }
  // Serves requests that wait because they may take long, and checks regions, both for a bounded time. Called once in
  // each turn of the worker. Returns how much was done. Nobody may be composing a reply.
  size_t ServeWaiting();
  // Returns how many batches of calls were served.
  uint64_t batches() const { return batches_; }
  // Returns the pipeline of writes. The worker calls its RetryHeld and ApplyDurable in Poll, after everything that may
  // have made room. Nobody else may call them, because they compose replies, and another reply may be half
  // composed.
  WritePipeline* writes() { return &writes_; }
  const WritePipeline& writes() const { return writes_; }
  const Compactor& compactor() const { return compactor_; }
  const Uploads& uploads() const { return *large_values_.uploads(); }
  const WorkerReports& reports() const { return reports_; }
  const RegionChecks& checks() const { return checks_; }
  const LongRequests& long_requests() const { return long_requests_; }

 private:
  void Parse(const IncomingCall& call, BatchedRequest* request);
  void ServeOne(const BatchedRequest& request);
  // Returns whether a request may take so long that it must not be served in any number with others.
  static bool MayTakeLong(const BatchedRequest& request);
  // Serves a call by itself.
  void ServeAlone(const IncomingCall& call);
  // These write a reply to `to` and return its size.
  absl::StatusOr<size_t> ServeInPlace(MessageKind kind, const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Scan(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> CountRange(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Fetch(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Upload(const IncomingCall& call, MutableBytes to);
  size_t Time(MutableBytes to) const;
  // Adds what requests have come, and what waits, to the worker's status.
  void AddTo(nlohmann::json* status) const;

  MigrationHandler* const migrations_;
  const Regions* const regions_;
  ServedRegions* const served_;
  Permissions permissions_;
  Replies replies_;
  LargeValues large_values_;
  Evictor evictor_;
  Compactor compactor_;
  Lookups lookups_;
  WritePipeline writes_;
  ExpirySweeper sweeper_;
  WorkerReports reports_;
  RegionChecks checks_;
  LongRequests long_requests_;
  TableRequests table_requests_;
  SnapshotRequests snapshots_;
  uint64_t batches_ = 0;
  uint64_t not_allowed_ = 0;  // Requests that the peer's role may not send.
  // Scratch space of Serve: the requests that are served together, and those that may take long.
  std::vector<BatchedRequest> batch_;
  std::vector<BatchedRequest> long_batch_;
};

}  // namespace cell
