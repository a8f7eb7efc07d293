// TableView holds a client's view of the region table and its age, which decides which reads it may trust. Internal to
// cell/client. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "cell/base/mutant.h"
#include "cell/base/task.h"
#include "cell/client/client.h"
#include "cell/client/session/client_loop.h"
#include "cell/client/session/connections.h"
#include "cell/client/session/table_asker.h"
#include "cell/client/session/table_fetcher.h"
#include "cell/cluster/membership.h"
#include "cell/layout/pointer.h"

namespace cell {

// The worker that holds a region, according to one version of this client's view of the region table.
struct Holder {
  uint32_t region = 0;
  uint64_t epoch = 0;
  WorkerConnection* worker = nullptr;  // Null if it is unknown or not connected.
  uint64_t revision = 0;               // Version of the view.
};

class TableView {
 public:
  // All arguments must outlive this. `metrics` shows whether the client reads, in which case it keeps its lease. `seed`
  // decides which server the client asks.
  TableView(ClientLoop* loop, Connections* connections, ClientMetrics* metrics, std::unique_ptr<Membership> membership,
            uint64_t seed);

  const ClusterState& cluster() const { return membership_->state(); }
  // Returns the root of the tree, where searches begin, according to the region table.
  Pointer root() const { return RootOf(cluster().table.root); }
  uint32_t node_bytes() const { return cluster().shape.node_bytes; }
  // Returns the connections to all workers that are members now.
  std::vector<WorkerConnection*> AllWorkers();

  // Returns the holder of `region`, with a null worker if that is unknown or not connected.
  Holder HolderOf(uint32_t region) {
    const Owner* const owner = OwnerOf(region);
    if (owner == nullptr || !owner->worker->up) return {region, 0, nullptr, revision_};
    return {region, owner->epoch, owner->worker, revision_};
  }
  // Connects to the holder of `region` unless that is up already. If that fails, returns Unavailable, or
  // PermissionDenied if this user may not connect, with the region and the server in the message. An attempt continues
  // after the deadline, for the benefit of other operations.
  Task<absl::StatusOr<WorkerConnection*>> Connect(uint32_t region, int64_t deadline_ns = INT64_MAX);

  // Reads the region table again, and waits until that has ended, the deadline, or the end of the loop. The caller
  // continues with what is known then, whether that succeeded or not.
  Task<bool> Refresh(int64_t deadline_ns);
  // Begins to read the region table again, without waiting. An old table costs extra steps, but not correctness.
  void RefreshSoon() { refresh_soon_ = true; }

  // Returns true if data that was read one-sided from `holder` until now can be trusted. It cannot be trusted once the
  // table's lease has lapsed: the region may have been recovered elsewhere, while the former owner's memory can still
  // be read. If a newer table has arrived since the read began, it must name the same holder: otherwise the read would
  // be trusted under a lease that it did not begin under.
  bool Leased(const Holder& holder) {
    return (loop_->NowNs() <= LeaseUntilNs() || Mutated(Mutant::kTableLeaseUnchecked)) && StillHolds(holder);
  }
  // Returns when the lease of the region table ends. Without durability it never does, because no region is recovered
  // elsewhere.
  int64_t LeaseUntilNs() const {
    return cluster().durability == Durability::kNone ? INT64_MAX : table_ns_ + cluster().table_lease_ns;
  }
  // Returns true if the view is so old that the regions that it names for a table may be parts of other tables by now,
  // because region ids are used again (RegionIds). Searches of the tree notice such a region.
  bool IsOld(int64_t now_ns) const { return now_ns - seen_ns_ > kOldAfterNs; }
  // Returns true if the last attempt to connect to the region's holder was neither answered nor refused: the worker may
  // be slow or stopped.
  bool IsSilent(uint32_t region) {
    const Owner* const owner = OwnerOf(region);
    return owner != nullptr && owner->worker->silent;
  }
  // Returns why the region table could not be read the last time, or OK. FailedPrecondition: the cluster was deleted,
  // and there is another one in its place.
  const absl::Status& failure() const { return failure_; }
  // Returns true if a region that no server serves now will be served again, because it is being recovered or other
  // servers can take it over.
  bool WillBeServed(uint32_t region) const;

  // Takes over what the membership has learned. Returns the number of callbacks that it ran.
  size_t Poll();
  // Does what is due: reads the table again if RefreshSoon was called, and renews the lease if the client reads and the
  // lease ends soon. A server renews it, if one can say that this table is still the newest, or sends what is newer.
  // While a server owes an answer for long, looks whether it has left the cluster; if so, it will not give one.
  void RefreshIfDue();
  // Returns true if the membership still has to answer and its answer does not end a Wait of the loop.
  bool must_poll() const { return !membership_wakes_ && membership_->pending(); }
  // Makes the membership's threads leave the loop alone. Call it before the loop is closed, which destroys the fabric
  // that they wake.
  void StopWaking() { membership_->SetWake(nullptr); }

 private:
  // A region's owner in the table at `revision`. If `known` is false, the region has no owner now, and had this one
  // before.
  struct Owner {
    WorkerConnection* worker = nullptr;
    uint64_t epoch = 0;
    uint64_t revision = 0;
    bool known = false;
  };

  static constexpr int64_t kOldAfterNs = 600'000'000'000;
  // How often a client of a cluster that was made again reads its region table.
  static constexpr int64_t kAskedAgainNs = 1'000'000'000;
  // A server that owes an answer for so long may have left the cluster. Also the time between two looks for that.
  static constexpr int64_t kQuietNs = 1'000'000'000;
  // How often at most a server is asked, for a renewal. An answer that has not come by then is given up.
  static constexpr int64_t kQuestionsALease = 6;

  // Questions to a server: a renewal of the lease, or a refresh.
  class Question : public DetachedTask {
   public:
    explicit Question(Task<bool> task) : task_(std::move(task)) { task_.Start(); }
    bool ended() const override { return task_.done(); }

   private:
    Task<bool> task_;
  };

  void BeginRefresh();
  void EndRefresh(absl::Status status);
  // Reads the table from the coordinator, unless that is under way. Its answer ends the refresh that it was begun for.
  void BeginReading();
  // Refreshes by what a server knows. If that does not succeed, reads the table, and asks servers further until one of
  // them or the coordinator has answered, which may be cut off for long.
  Task<bool> RefreshByServer();
  // Renews the lease by a server's word that this table is the newest. Without that, refreshes.
  Task<bool> AskServer();
  // Asks a server until it says that a table was the newest one at `since_ns` or later, and takes that table over.
  // Returns false if it does not before the deadline.
  Task<bool> FollowServer(int64_t since_ns, int64_t deadline_ns);
  // Takes over what a server knows that is newer. Returns false if that fails.
  Task<bool> CatchUp(const TableAsker::Answer* answer, int64_t deadline_ns);
  int64_t QuestionEndsNs() const { return loop_->NowNs() + cluster().table_lease_ns / kQuestionsALease; }
  // Returns null if no owner is known.
  const Owner* OwnerOf(uint32_t region) {
    const auto it = owners_.find(region);
    if (it != owners_.end() && it->second.revision == revision_) return it->second.known ? &it->second : nullptr;
    return LookUpOwner(region);
  }
  const Owner* LookUpOwner(uint32_t region);
  bool StillHolds(const Holder& holder);
  uint64_t reads() const { return metrics_->node_reads + metrics_->lookup_reads; }

  ClientLoop* const loop_;
  Connections* const connections_;
  ClientMetrics* const metrics_;
  const std::unique_ptr<Membership> membership_;
  const bool membership_wakes_;
  TableAsker asker_;
  TableFetcher fetcher_;
  absl::flat_hash_map<uint32_t, Owner> owners_;  // Keyed by region; holds those that operations asked for.
  uint64_t revision_ = 0;                        // Revision of the region table at the last Poll.
  bool refresh_soon_ = false;
  bool refreshing_ = false;
  bool reading_ = false;  // The coordinator has not answered yet.
  bool asking_ = false;
  int64_t asked_ns_ = INT64_MIN / 2;  // When a server was last asked.
  uint64_t refreshes_ = 0;            // Number of refreshes that have ended. Also the event of that.
  absl::Status failure_;              // Of the last one.
  int64_t refreshed_ns_ = 0;          // When the last one began.
  int64_t looked_ns_ = 0;             // When it was last looked for servers that owe answers.
  uint64_t reads_at_refresh_ = 0;     // This client's one-sided reads until the last refresh or question.
  int64_t table_ns_ = 0;              // As of when the table is known to be the newest; the lease counts from here.
  int64_t seen_ns_ = 0;               // The same, or when this was made.
};

}  // namespace cell
