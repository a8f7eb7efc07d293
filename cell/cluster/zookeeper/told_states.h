// ToldStates passes data from the thread that talks to the coordinator to the thread that owns a membership: answers,
// and the state of the cluster as last read.
//
// The owner may not look for a long time, for example in an idle client. Of the states without an answer only the
// newest is kept. So at most one more state than answers is waiting, however often the cluster changes.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cell/cluster/membership.h"

namespace cell {

class ToldStates {
 public:
  struct Told {
    Membership::Done done;  // Null: this is not an answer.
    absl::Status status;
    std::shared_ptr<const ClusterState> state;  // Null: there is nothing new.
    uint64_t session = 0;                       // Session in which the state was read.
  };

  void Tell(Told told) {
    const std::lock_guard lock(mutex_);
    Told* const last = told_.empty() ? nullptr : &told_.back();
    if (last != nullptr && !last->done && !told.done) {
      last->session = told.session;
      // A lagging follower may have returned an older state.
      const bool newer =
          told.state != nullptr && (last->state == nullptr || told.state->table.version >= last->state->table.version);
      if (newer) last->state = std::move(told.state);
    } else {
      told_.push_back(std::move(told));
    }
    any_.store(true, std::memory_order_release);
  }

  // Returns everything since the last call, oldest first. Cheap if there is nothing.
  std::vector<Told> Take() {
    if (!any_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(mutex_);
    any_ = false;
    return std::exchange(told_, {});
  }

 private:
  std::atomic<bool> any_ = false;
  std::mutex mutex_;
  std::vector<Told> told_;  // Guarded by mutex_.
};

}  // namespace cell
