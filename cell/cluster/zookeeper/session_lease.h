// SessionLease tracks until when a worker can rely on its session with the coordinator.
//
// Only ZooKeeper's leader ends sessions. A follower answers reads by itself, even if the leader has not heard from it
// for long, so only answers of the leader renew the lease. A follower forwards requests at once, but tells the leader
// only every half tick which sessions are alive (a tick is at most half of a session). When the leader answers, it may
// therefore have last heard of the session a quarter of the session's time, and the time between two requests, earlier.
// So the lease is half of the session's time, counted from before the request was sent.
//
// Thread-safety: any thread may call until_ns(); all other functions belong to one thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "cell/base/clock.h"

namespace cell {

class SessionLease {
 public:
  // REQUIRES: `clock` outlives this, is the clock that callers compare until_ns() with, and goes on while the machine
  // is suspended.
  explicit SessionLease(const Clock* clock) : clock_(clock) {}

  // Returns how long a session of that length can be relied on, counted from before its renewal was requested.
  static constexpr int64_t LastsNs(int64_t session_ns) { return session_ns / 2; }

  // Calls `request`, which the leader answers, and returns its result. If confirms(result) is true, the leader had not
  // ended the session yet, and the lease counts from before the call.
  template <typename Request, typename Confirms>
  auto Renew(int64_t session_ns, const Request& request, const Confirms& confirms) {
    const int64_t asked_ns = clock_->NowNs();
    const auto result = request();
    if (confirms(result)) until_ns_ = asked_ns + LastsNs(session_ns);
    return result;
  }
  int64_t until_ns() const { return until_ns_; }

 private:
  const Clock* const clock_;
  std::atomic<int64_t> until_ns_ = 0;
};

}  // namespace cell
