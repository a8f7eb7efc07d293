// TableRefresher keeps what a worker knows of the region table from growing old.
//
//   without clients   if its membership does not follow the cluster by itself (Membership::watches), so that a change
//                     of grants or rules that another server has made counts here, too
//   asked by clients  so that they can renew their leases on the table by what this worker knows, instead of asking the
//                     coordinator themselves (TableAsker)
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "cell/base/clock.h"
#include "cell/base/mutant.h"
#include "cell/cluster/membership.h"
#include "cell/server/context/worker_context.h"

namespace cell {

class TableRefresher {
 public:
  // `every_ns`: kNever, or the pause between two looks without clients.
  static constexpr int64_t kNever = INT64_MAX;
  TableRefresher(const WorkerContext& context, int64_t every_ns)
      : clock_(context.clock),
        membership_(context.membership),
        every_ns_(every_ns),
        at_ns_(every_ns == kNever ? kNever : INT64_MIN) {}

  // Returns how long ago the region table of membership->state() was the newest one, at most. Nullopt: unknown. From
  // now on Step keeps it young, for as long as clients go on asking. If it is older than `wanted_ns`, Step reads it as
  // soon as it may.
  std::optional<int64_t> Age(uint64_t wanted_ns) {
    const int64_t now_ns = clock_->NowNs();
    asked_until_ns_ = now_ns + lease_ns();
    const std::optional<int64_t> age_ns =
        newest_ns_.has_value() ? std::optional<int64_t>(now_ns - *newest_ns_) : std::nullopt;
    constexpr uint64_t kAnyNs = INT64_MAX / 2;
    wanted_as_of_ns_ = std::max(wanted_as_of_ns_, now_ns - static_cast<int64_t>(std::min(wanted_ns, kAnyNs)));
    return age_ns;
  }

  // Begins to read the region table if it is time to.
  void Step() {
    const int64_t now_ns = clock_->NowNs();
    if (now_ns < NextNs()) return;
    if (at_ns_ != kNever) at_ns_ = now_ns + every_ns_;
    began_ns_ = now_ns;
    reading_ = true;
    membership_->Refresh([this](const absl::Status& status) {
      reading_ = false;
      // It was read after the request, however long the answer took.
      if (status.ok()) newest_ns_ = Mutated(Mutant::kTableAgeFromAnswer) ? clock_->NowNs() : began_ns_;
    });
  }
  // Returns when Step has something to do.
  int64_t NextNs() const {
    if (reading_) return kNever;
    const int64_t for_itself_ns = membership_->watches() ? kNever : at_ns_;
    if (!asked_until_ns_.has_value()) return for_itself_ns;
    const int64_t reads = wanted() ? kWantedReadsALease : kReadsALease;
    const int64_t for_clients_ns = began_ns_.has_value() ? *began_ns_ + lease_ns() / reads : INT64_MIN;
    return for_clients_ns <= *asked_until_ns_ ? std::min(for_itself_ns, for_clients_ns) : for_itself_ns;
  }

 private:
  static constexpr int64_t kReadsALease = 4;         // While clients ask...
  static constexpr int64_t kWantedReadsALease = 50;  // ...and while they ask for what is newer. At most.

  bool wanted() const { return !newest_ns_.has_value() || *newest_ns_ < wanted_as_of_ns_; }
  int64_t lease_ns() const { return membership_->state().table_lease_ns; }

  const Clock* const clock_;
  Membership* const membership_;
  const int64_t every_ns_;
  int64_t at_ns_;
  bool reading_ = false;
  int64_t wanted_as_of_ns_ = INT64_MIN;    // The newest that a client wants.
  std::optional<int64_t> began_ns_;        // When the last reading began...
  std::optional<int64_t> newest_ns_;       // ...and when the last one that succeeded.
  std::optional<int64_t> asked_until_ns_;  // Clients that have asked are expected to ask again until then.
};

}  // namespace cell
