// MemoryMembership keeps a membership in one process's memory, for simulations and tests. All members of a cluster
// share one MemoryCluster, and each may have a thread of its own. An answer takes a number of Polls that the cluster's
// random source chooses.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/random.h"
#include "cell/base/thread_checker.h"
#include "cell/cluster/membership.h"

namespace cell {

struct MemoryCluster {
  explicit MemoryCluster(ClusterState state, uint64_t seed = 1, int polls_max = 1)
      : state(std::move(state)), random(seed), polls_max(polls_max) {}

  std::atomic<uint64_t> changes = 0;   // Counts changes of the members below, for members that watch.
  std::atomic<uint64_t> requests = 0;  // Counts what members have asked for.
  std::mutex mutex;                    // Guards the members below.
  ClusterState state;
  Random random;
  int polls_max;
  // Changes of more regions are refused, as too large.
  size_t regions_at_once = SIZE_MAX;
  // Returns the state, whose servers tests change as they like. REQUIRES: the mutex is held.
  const ClusterState& Current() {
    if (state.servers != servers_seen || state.servers_version == 0) ++state.servers_version;
    servers_seen = state.servers;
    return state;
  }
  std::vector<ClusterState::Server> servers_seen;  // At the last call of Current.
  // Called with each new region table, while the mutex is held; or null.
  std::function<void(const RegionTable&)> on_table = nullptr;
};

class MemoryMembership : public Membership {
 public:
  explicit MemoryMembership(std::shared_ptr<MemoryCluster> cluster) : cluster_(std::move(cluster)) {
    const std::lock_guard lock(cluster_->mutex);
    state_ = cluster_->Current();
  }

  const ClusterState& state() const override {
    CELL_CHECK(ThreadScope::own());  // A change, which runs in another thread, must not call this.
    return state_;
  }
  // Simulates the member's death: it changes nothing any more, and its callbacks do not run.
  void Crash() { crashed_ = true; }
  // Makes the member see others' changes by itself, some Polls later.
  void Watch() { watching_ = true; }
  // Makes the member learn from workers, as clients of a cluster in ZooKeeper do.
  void SetLearns() { learns_ = true; }
  // Makes the cluster unreachable: nothing is seen, and requests fail or seem to fail; a change may have been made.
  void set_unreachable(bool unreachable) {
    set_failing(unreachable ? absl::UnavailableError("the coordinator cannot be reached") : absl::OkStatus());
  }
  // Does the same with any error. OK makes the cluster reachable again.
  void set_failing(absl::Status failing) { failing_ = std::move(failing); }
  // Makes later requests fail with this error without effect, until it is set to OK. A membership may have many kinds
  // of errors, such as a full disk or an unreadable table.
  void set_failure(absl::Status failure) { failure_ = std::move(failure); }
  // Simulates a session that could not be renewed beyond `until_ns`.
  void set_lease_until_ns(int64_t until_ns) { lease_until_ns_ = until_ns; }

  void Refresh(Done done) override { Tell(std::move(done), absl::OkStatus()); }
  void Change(TableChange change, Done done) override {
    if (crashed_) return;
    absl::Status status;
    if (failure_.ok()) {
      const std::lock_guard lock(cluster_->mutex);
      const bool arrives = failing_.ok() || cluster_->random.Below(2) == 0;
      RegionTable table = cluster_->state.table;
      if (arrives) {
        const ThreadScope elsewhere(ThreadScope::Which::kOther);  // Other memberships run changes in another thread,
                                                                  // too.
        status = change(&table);
        if (status.ok() && Changed(table) > cluster_->regions_at_once)
          status = absl::OutOfRangeError("too many regions");
      } else {
        status = failing_;
      }
      if (status.ok()) {
        ++table.version;
        table.regions.Stored(table.version);
        cluster_->state.table = std::move(table);
        ++cluster_->changes;
        if (cluster_->on_table) cluster_->on_table(cluster_->state.table);
      }
    }
    Tell(std::move(done), status);
  }
  size_t Poll() override {
    if (watching_ && failing_.ok() && !crashed_ && cluster_->changes != seen_changes_) LookAround();
    std::vector<Told> now;
    for (size_t i = 0; i < told_.size();) {
      if (--told_[i].polls_left > 0) {
        ++i;
        continue;
      }
      now.push_back(std::move(told_[i]));
      told_.erase(told_.begin() + static_cast<ptrdiff_t>(i));
    }
    for (Told& told : now) {
      if (told.seen && learns_) {
        state_.TakeNewer(told.state);
      } else if (told.seen && told.state.table.version >= state_.table.version) {
        const uint64_t revision = state_.revision;
        state_ = std::move(told.state);
        state_.revision = revision + 1;
      }
      told.done(told.status);
    }
    return now.size();
  }
  bool pending() const override { return !told_.empty(); }
  int64_t LeaseUntilNs() const override { return lease_until_ns_; }
  uint64_t session() const override { return session_; }
  bool learns() const override { return learns_; }
  void Learn(std::shared_ptr<const ClusterState> state) override { state_.TakeNewer(*state); }
  bool watches() const override { return true; }  // Members that change the cluster notify the others.
  // Simulates that the session has expired and was replaced by a new one: the member sees the current state.
  void Rejoin() {
    const std::lock_guard lock(cluster_->mutex);
    const uint64_t revision = state_.revision;
    state_ = cluster_->Current();
    state_.revision = revision + 1;
    ++session_;
  }

 private:
  // Returns how many regions are other than in the cluster's table. REQUIRES: the mutex is held.
  size_t Changed(const RegionTable& table) const {
    if (cluster_->regions_at_once == SIZE_MAX) return 0;
    return static_cast<size_t>(std::count_if(table.regions.begin(), table.regions.end(), [this](const auto& one) {
      const RegionTable::Entry* const before = cluster_->state.table.Find(one.first);
      return before == nullptr || *before != one.second;
    }));
  }
  struct Told {
    Done done;
    absl::Status status;
    ClusterState state;
    int polls_left;
    bool seen;  // The member learns `state` with this answer.
  };

  void LookAround() {
    const std::lock_guard lock(cluster_->mutex);
    if (cluster_->random.Below(static_cast<uint64_t>(cluster_->polls_max)) != 0) return;
    seen_changes_ = cluster_->changes;
    const uint64_t revision = state_.revision;
    state_ = cluster_->Current();
    state_.revision = revision + 1;
  }
  void Tell(Done done, absl::Status status) {
    if (crashed_) return;
    ++cluster_->requests;
    if (!failing_.ok()) status = failing_;
    if (!failure_.ok()) status = failure_;
    const std::lock_guard lock(cluster_->mutex);
    const int polls = 1 + static_cast<int>(cluster_->random.Below(static_cast<uint64_t>(cluster_->polls_max)));
    told_.push_back({std::move(done), std::move(status), cluster_->Current(), polls, failing_.ok() && failure_.ok()});
  }

  bool crashed_ = false;
  absl::Status failing_;
  absl::Status failure_;
  bool watching_ = false;
  bool learns_ = false;
  uint64_t seen_changes_ = 0;
  uint64_t session_ = 1;
  int64_t lease_until_ns_ = INT64_MAX;
  const std::shared_ptr<MemoryCluster> cluster_;
  ClusterState state_;
  std::vector<Told> told_;
};

}  // namespace cell
