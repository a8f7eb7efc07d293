// ToldStates: what the thread that asks the coordinator tells the thread that owns a membership: answers, and the
// cluster as it was read last.
//
// The owner may not look for a long time, as an idle client does. Of states that answer nothing only the newest is kept;
// so at most one more state waits than answers do, however often the cluster changes.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cell/cluster/membership.h"

namespace cell {

class ToldStates {
 public:
  struct Told {
    Membership::Done done;  // Null: it answers nothing.
    absl::Status status;
    ClusterState state;
    uint64_t session = 0;  // In which it was read.
  };

  void Tell(Told told) {
    const std::lock_guard lock(mutex_);
    Told* const last = told_.empty() ? nullptr : &told_.back();
    if (last != nullptr && !last->done && !told.done) {
      last->session = told.session;
      // A follower that lags may have told an older one.
      if (told.state.table.version >= last->state.table.version) last->state = std::move(told.state);
    } else {
      told_.push_back(std::move(told));
    }
    any_.store(true, std::memory_order_release);
  }

  // All that was told since the last call, the oldest first. Cheap when nothing was.
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
