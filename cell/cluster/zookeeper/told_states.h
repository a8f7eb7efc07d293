// ToldStates passes data from the thread that talks to the coordinator to the thread that owns a membership: answers,
// and the state of the cluster as last read, unless the owner was told that one already.
//
// The owner may not look for a long time, for example in an idle client. Of the states without an answer only the
// newest is kept. So at most one more state than answers is waiting, however often the cluster changes.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cell/cluster/membership.h"
#include "cell/cluster/wake_function.h"

namespace cell {

class ToldStates {
 public:
  struct Told {
    Membership::Done done;  // Null: this is not an answer.
    absl::Status status;
    std::shared_ptr<const ClusterState> state;  // Null: there is nothing new.
    uint64_t session = 0;                       // Session in which the state was read.
  };

  // Sets the function that Tell calls (WakeFunction).
  void SetWake(std::function<void()> wake) { wake_.Set(std::move(wake)); }

  // Passes an answer, a state, or both to the owner, and wakes it.
  void Tell(Told told) {
    Add(std::move(told));
    wake_.Call();
  }

  // Returns everything since the last call, oldest first. Cheap if there is nothing.
  std::vector<Told> Take() {
    if (!any_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(mutex_);
    any_ = false;
    return std::exchange(told_, {});
  }

 private:
  void Add(Told told) {
    const std::lock_guard lock(mutex_);
    if (told.state == knows_) told.state = nullptr;
    if (told.state != nullptr) knows_ = told.state;
    Told* const last = told_.empty() ? nullptr : &told_.back();
    if (last != nullptr && !last->done && !told.done) {
      last->session = told.session;
      if (last->state == nullptr) {
        last->state = std::move(told.state);
      } else if (told.state != nullptr) {  // A lagging follower may have returned an older one.
        auto both = std::make_shared<ClusterState>(*last->state);
        if (both->TakeNewer(*told.state)) last->state = std::move(both);
      }
    } else {
      told_.push_back(std::move(told));
    }
    any_.store(true, std::memory_order_release);
  }

  WakeFunction wake_;
  std::atomic<bool> any_ = false;
  std::mutex mutex_;                           // Guards the members below.
  std::shared_ptr<const ClusterState> knows_;  // The state that was told last.
  std::vector<Told> told_;
};

}  // namespace cell
