// Steward: looks after a worker's meganodes while the request service serves them.
//
// A meganode that fills up is split before writes can fail (the thesis, 4.2): its right part goes to a new meganode, a
// few entries a turn (MeganodeSplit), whose root then becomes known to the tier above, wherever that is; when there is
// none above, a meganode of routes is made, which is the new root.
//
// What takes long is a coroutine that goes on a little with each Step; the worker serves requests in between. One
// thread: the worker's.
#pragma once

#include <list>
#include <map>
#include <string>
#include <vector>

#include "cell/base/random.h"
#include "cell/base/task.h"
#include "cell/cluster/membership.h"
#include "cell/io/fabric.h"
#include "cell/server/regions.h"
#include "cell/server/request_service.h"
#include "cell/tree/meganode_split.h"

namespace cell {

struct StewardOptions {
  WorkerId self;
  double split_at = 0.75;       // Of its nodes or extents used, a meganode is split.
  size_t copied_per_turn = 64;  // Entries.
  size_t freed_per_turn = 16;   // Nodes.
  uint64_t seed = 1;
};

class Steward {
 public:
  using Options = StewardOptions;

  // All must outlive this.
  Steward(Fabric* fabric, Membership* membership, Regions* regions, RequestService* service, Options options);
  ~Steward();

  // Before the worker listens: makes the tree's first meganode if the cluster has none. Blocks for as long as the
  // membership takes. FailedPrecondition: the cluster's constants are not these.
  absl::Status Start();

  // Does a little of what is to be done. The number of things done.
  size_t Step();
  // When Step will have something to do by itself; INT64_MAX: not before requests change something.
  int64_t NextNs() const;

  // Ends what is going on, as far as it can be ended. Then only the destructor.
  void Stop();

  struct Counters {
    uint64_t splits = 0, splits_failed = 0, routes_added = 0, roots_made = 0;
    uint64_t longest_cut_ns = 0;  // Of the last step of a split, in which the worker does nothing else.
  };
  const Counters& counters() const { return counters_; }
  // Nothing is going on.
  bool idle() const { return tasks_.empty(); }

 private:
  struct TurnAwaiter {
    Steward* steward;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) { steward->turn_waiters_.push_back(awaiting); }
    void await_resume() const noexcept {}
  };
  struct SleepAwaiter {
    Steward* steward;
    int64_t until_ns;
    bool await_ready() const noexcept { return steward->stopping_; }
    void await_suspend(std::coroutine_handle<> awaiting) { steward->sleepers_.emplace(until_ns, awaiting); }
    void await_resume() const noexcept {}
  };
  TurnAwaiter NextTurn() { return {this}; }
  SleepAwaiter Sleep(int64_t ns) { return {this, fabric_->NowNs() + ns}; }

  void LookForWork();
  void Begin(Task<bool> task);

  // False: not now, it failed a moment ago.
  bool BeginSplit(HeldRegion* region);
  Task<bool> Split(HeldRegion* region);
  Task<absl::StatusOr<HeldRegion*>> NewRegion(Meganode::Range range);
  Task<bool> Abandon(uint32_t region);
  // Until it is done, or the steward stops.
  Task<bool> AddRoute(uint8_t tier, std::string key, Pointer child);
  Task<absl::Status> TryAddRoute(uint8_t tier, const std::string& key, Pointer child);
  Task<absl::Status> MakeRoot(uint32_t old_root, uint8_t tier, const std::string& key, Pointer child);

  // A request to the worker that holds `region`, and its reply.
  Task<absl::StatusOr<std::string>> AskOwner(uint32_t region, std::string request);
  Task<absl::StatusOr<std::string>> AskWorker(WorkerId worker, std::string request);

  struct Link {
    ConnectionId connection = 0;
    bool up = false;
  };

  Fabric* const fabric_;
  Membership* const membership_;
  Regions* const regions_;
  RequestService* const service_;
  const Options options_;
  Random random_;
  bool stopping_ = false;
  int64_t look_at_ns_ = 0;
  std::map<uint32_t, int64_t> not_before_ns_;  // Regions whose split failed: when to try again.
  std::map<WorkerId, Link> links_;
  std::vector<ConnectionId> lost_;  // To be disconnected in the next Step.
  std::list<Task<bool>> tasks_;
  std::vector<MeganodeSplit*> reclaiming_;  // Finished, their right parts not yet freed.
  std::vector<std::coroutine_handle<>> turn_waiters_;
  std::multimap<int64_t, std::coroutine_handle<>> sleepers_;
  Counters counters_;
};

}  // namespace cell
