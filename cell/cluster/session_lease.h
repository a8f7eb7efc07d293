// SessionLease: until when a worker can rely on its session with the coordinator.
//
// ZooKeeper's leader alone ends sessions. A follower answers reads by itself, also when the leader has not heard from it
// for long: so only what the leader has answered renews the lease. And a follower forwards requests at once, but tells
// the leader which sessions are alive only every half of a tick (a tick is at most half of a session): when the leader
// answers, it has heard of the session at least from a quarter of the session's time, and the time between two requests,
// before. So the lease is half of the session's time, counted from before the request was sent.
//
// until_ns: any thread; the rest is one thread's.
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

  // How long a session of that time can be relied on, counted from before its renewal was asked for.
  static constexpr int64_t LastsNs(int64_t session_ns) { return session_ns / 2; }

  // Calls `request`, which the leader answers, and returns its result. If that is one of which confirms() is true, the
  // leader had not ended the session by then: the lease counts from before the call.
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
