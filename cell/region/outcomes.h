// Outcomes remembers what became of a region's last requests that must take effect only once (layout/outcome.h).
//
// It holds the last outcome of each slot of each client. Those that may be forgotten are dropped when many have come.
// It goes with its region: in a migration, to both parts of a split, to what a join leaves, and through the log.
//
// Not thread-safe: used only on the worker's thread, or by the one that replays a log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/layout/outcome.h"

namespace cell {

class Outcomes {
 public:
  static constexpr size_t kMax = 65'536;  // In one region: about 10 MB. One user may have half of them.

  explicit Outcomes(size_t max = kMax) : max_(max) {}

  // Returns the outcome of the request, or null if it has none here. Returns FailedPrecondition if a later request of
  // its slot has one, and InvalidArgument if the one with its id was another request.
  absl::StatusOr<const Outcome*> Find(const RequestId& id, uint32_t fingerprint) const;
  // Returns the outcome of the request with this id, or null if it has none here.
  const Outcome* Find(const RequestId& id) const;
  // Returns Unavailable if the outcome of one more request of this user, in this slot, cannot be remembered. Forgets
  // first those that were to be tried until a stamp before `last_stamp`.
  absl::Status MakeRoom(const RequestId& id, uint32_t user, uint64_t last_stamp);
  // Remembers an outcome, unless a later one of its slot is there.
  void Remember(Outcome outcome);
  // Remembers those of another region. REQUIRES: they are on disk there.
  void Remember(const Outcomes& others);
  // Forgets those that were to be tried until a stamp before this one, and are not open.
  void Forget(uint64_t last_stamp);

  size_t size() const { return by_slot_.size(); }
  // Returns how many are open.
  size_t open() const { return open_; }
  void ForEach(const std::function<void(const Outcome&)>& visit) const {
    for (const auto& [slot, outcome] : by_slot_) visit(outcome);
  }

 private:
  using Slot = std::pair<uint64_t, uint16_t>;
  static Slot SlotOf(const RequestId& id) { return {id.client, id.slot}; }

  size_t max_;
  std::map<Slot, Outcome> by_slot_;
  std::map<uint32_t, size_t> by_user_;
  size_t open_ = 0;
  // MakeRoom calls Forget once there are this many outcomes, and the region's last stamp is at least this one.
  size_t forget_at_size_ = 256;
  uint64_t forget_at_stamp_ = 0;
};

}  // namespace cell
