// Worker is one thread's part of a server. It has one fabric endpoint, the regions that it holds with their logs, the
// service that answers requests, and the parts that split, migrate and recover regions.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cell/base/sync_points.h"
#include "cell/region/snapshot_memory.h"
#include "cell/server/change/joiner.h"
#include "cell/server/change/migrator.h"
#include "cell/server/change/peers.h"
#include "cell/server/change/rebalancer.h"
#include "cell/server/change/recoverer.h"
#include "cell/server/change/route_publisher.h"
#include "cell/server/change/splitter.h"
#include "cell/server/change/table_keeper.h"
#include "cell/server/change/transaction_resolver.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/region/checkpointer.h"
#include "cell/server/region/log_collector.h"
#include "cell/server/region/log_flusher.h"
#include "cell/server/region/region_allocator.h"
#include "cell/server/report/lease_watch.h"
#include "cell/server/report/status_report.h"
#include "cell/server/request/request_service.h"
#include "cell/server/request/table_refresher.h"
#include "cell/server/sched/scheduler.h"

namespace cell {

class Worker {
 public:
  struct Options {
    WorkerId self;
    uint64_t seed = 1;
    RequestService::Options service;
    SplitterOptions split;
    JoinerOptions join;
    RebalancerOptions balance;
    size_t regions_max = 16;
    PairSettings pairs;                                        // Of the meganodes that it owns.
    size_t snapshot_bytes = SnapshotMemory::kBytesMaxDefault;  // What all snapshots may keep.
    MigratorOptions migrator;
    SyncPoints sync_points;
    LogFlusherOptions logs;
    CheckpointerOptions checkpoints;
    RecovererOptions recoverer;
    TransactionResolverOptions transactions;
    LogCollectorOptions collector;
    int64_t refresh_every_ns = 1'000'000'000;  // TableRefresher
    int64_t start_pause_ns = 1'000'000;        // Pause in Start between two checks whether the first region is created.
  };
  // The store of its regions' logs, and the thread pools that write them; null without durability.
  struct Logs {
    std::shared_ptr<LogStore> store;
    std::unique_ptr<ThreadPool> disk;    // Flushes and checkpoints.
    std::unique_ptr<ThreadPool> replay;  // Recoveries, which take long; no flush may wait for them.
  };

  Worker(std::unique_ptr<Fabric> fabric, std::unique_ptr<Membership> membership, const Options& options)
      : Worker(std::move(fabric), std::move(membership), {}, options) {}
  Worker(std::unique_ptr<Fabric> fabric, std::unique_ptr<Membership> membership, Logs logs, const Options& options);

  // Creates the tree's first meganode if the cluster has none (first_region.h), and starts to serve at `address`; Poll
  // does the serving. Another thread may call Poll. Blocks until the first region is there. Returns FailedPrecondition
  // if the tree's root was lost.
  absl::Status Start(const std::string& address);
  // Allows another thread to take over the calls that only one thread may make. REQUIRES: the current one has finished
  // its work.
  void HandOver() { regions_.HandOver(); }

  // Executes `work` on the worker's thread, in its next Poll. Ends a Wait that is in progress. Thread-safe.
  void Post(std::function<void(Worker*)> work) {
    {
      const std::lock_guard lock(posted_mutex_);
      posted_.push_back(std::move(work));
      has_posted_.store(true, std::memory_order_release);
    }
    fabric_->Wake();
  }

  // Makes a change of the region table that no other part of the worker makes. Returns like Membership::Change.
  Task<absl::Status> ChangeTable(Membership::TableChange change);
  // Sets in the region table what is evicted. See RegionTable::SetEviction.
  Task<absl::Status> SetEviction(std::string table, std::string prefix, std::optional<Eviction> eviction);

  // Does what can be done now. Returns how much was done.
  size_t Poll();
  // Waits until Poll has something to do, or until `until_ns`.
  void Wait(int64_t until_ns);
  // Ends everything in progress as far as possible. All acknowledged writes are on disk then, and only the destructor
  // may be called. Returns DeadlineExceeded if a disk, or the membership, has not answered for
  // `LogFlusherOptions::finish_patience_ns`. Work that waits for it still refers to this worker, which must not be
  // destroyed: the process must end.
  absl::Status Stop();

  Fabric* fabric() { return fabric_.get(); }
  const Membership* membership() const { return membership_.get(); }
  Regions* regions() { return &regions_; }
  RequestService* service() { return &service_; }
  RegionAllocator* allocator() { return &allocator_; }
  Splitter* splitter() { return &splitter_; }
  Joiner* joiner() { return &joiner_; }
  const RoutePublisher* routes() const { return &routes_; }
  Rebalancer* rebalancer() { return &rebalancer_; }
  TableKeeper* tables() { return &tables_; }
  Migrator* migrator() { return &migrator_; }
  LogFlusher* logs() { return &logs_; }
  Checkpointer* checkpointer() { return &checkpointer_; }
  Recoverer* recoverer() { return &recoverer_; }
  const LogCollector* collector() const { return &collector_; }
  Scheduler* scheduler() { return &scheduler_; }
  SyncPoints* sync_points() { return &sync_points_; }

 private:
  absl::Status MakeFirst();
  // Executes what was posted. Returns how much.
  size_t DoPosted();
  // Retries held writes if one of them may go on by now. `done` is what this Poll has done so far. Returns how many
  // were answered.
  size_t RetryHeld(size_t done);

  std::mutex posted_mutex_;
  std::vector<std::function<void(Worker*)>> posted_;
  std::atomic<bool> has_posted_ = false;

  const int64_t finish_patience_ns_;
  const int64_t start_pause_ns_;
  SyncPoints sync_points_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Membership> membership_;  // Wakes the fabric until it is destroyed, so the fabric must outlive it.
  const bool membership_wakes_;
  std::shared_ptr<LogStore> store_;
  std::unique_ptr<ThreadPool> disk_;
  std::unique_ptr<ThreadPool> replay_;
  Scheduler scheduler_;
  Regions regions_;
  Peers peers_;
  LogFlusher logs_;
  StatusReport status_;
  const WorkerContext context_;
  Checkpointer checkpointer_;
  LeaseWatch lease_;
  ServedRegions served_;
  HeldWrites held_;
  RegionAllocator allocator_;
  RoutePublisher routes_;
  Splitter splitter_;
  Migrator migrator_;
  TableRefresher refresher_;
  RequestService service_;
  TableKeeper tables_;
  Rebalancer rebalancer_;
  Joiner joiner_;
  Recoverer recoverer_;
  TransactionResolver resolver_;
  LogCollector collector_;

  bool changed_ = false;       // The last Poll had done something when it came to the held writes.
  uint64_t batches_seen_ = 0;  // Batches of calls that were served until then.
  int64_t retry_held_ns_ = 0;  // When held writes are retried even if nothing was done.
};

}  // namespace cell
