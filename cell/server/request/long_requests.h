// LongRequests decides when requests are served that may take long: scans, counts, deletes of ranges, fetches, reports.
// Requests for single keys never wait for more than a turn's worth of them.
//
// In a turn of the worker they are served for at most turn_ns, or one of them. The others wait, in a queue for each
// peer. The next one is of the user for whom the worker has worked least among those that wait, and of that user's
// connections of the one for which it has worked least (start-time fair queueing: Goyal, Vin, Cheng, SIGCOMM 1996, in
// two levels). So nobody gets more by opening connections. Who begins to wait counts as the one that was served last,
// so nobody saves up time. Where only one asks, it gets everything.
//
// A user is an identity (cell/layout/identity.h).
//
// Invariants
//   1. Nothing is served at once while something waits.
//   2. At most per_peer_max requests of one peer wait, with at most bytes_per_peer_max bytes.
//   3. Of one peer they are served in their order.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "cell/base/clock.h"
#include "cell/io/fabric/fabric.h"

namespace cell {

class LongRequests {
 public:
  struct Limits {
    int64_t turn_ns = 20'000;
    size_t per_peer_max = 256;
    size_t bytes_per_peer_max = size_t{256} << 10;
  };

  // `clock` must outlive this.
  LongRequests(const Clock* clock, Limits limits) : clock_(clock), limits_(limits) {}

  // Serves a call at once, by serve(call), or keeps a copy of it for ServeWaiting. Returns ResourceExhausted if too
  // many of its peer wait already: then it does neither.
  template <typename ServeCall>
  absl::Status Serve(const IncomingCall& call, const ServeCall& serve) {
    if (!waiting_.empty() || used_ns_ >= limits_.turn_ns) return Keep(call);
    used_ns_ += TimeOf(call, serve);
    return absl::OkStatus();
  }
  // Begins a turn of the worker: serves calls that wait, by serve(call). Returns how many.
  template <typename ServeCall>
  size_t ServeWaiting(const ServeCall& serve) {
    used_ns_ = 0;
    size_t served = 0;
    for (; !waiting_.empty() && (served == 0 || used_ns_ < limits_.turn_ns); ++served) {
      const Kept next = Take();
      IncomingCall call = next.call;
      call.request = AsBytes(next.bytes);
      const int64_t took_ns = TimeOf(call, serve);
      used_ns_ += took_ns;
      Charge(call, took_ns);
    }
    return served;
  }
  // Forgets a peer's requests, which must not be answered any more.
  void Disconnected(ConnectionId peer);

  // Returns how many wait.
  size_t size() const { return size_; }
  uint64_t ever() const { return ever_; }
  uint64_t refused() const { return refused_; }

 private:
  struct Kept {
    IncomingCall call;  // Without the bytes of its request.
    std::string bytes;  // These bytes.
  };
  using PeerOrder = std::set<std::pair<int64_t, ConnectionId>>;  // By what each has used.
  struct User {
    int64_t used_ns = 0;       // What the worker has done for it, counted from where it began to wait.
    PeerOrder peers;           // Those of its connections that wait. Not empty.
    int64_t last_used_ns = 0;  // Of the one that was served last, before it was.
  };
  using Users = std::map<std::string, User>;
  struct Peer {
    Users::iterator user;
    std::deque<Kept> kept;
    size_t bytes = 0;
    int64_t used_ns = 0;  // As of its user.
  };

  template <typename ServeCall>
  int64_t TimeOf(const IncomingCall& call, const ServeCall& serve) const {
    const int64_t begin_ns = clock_->NowNs();
    serve(call);
    return clock_->NowNs() - begin_ns;
  }
  absl::Status Keep(const IncomingCall& call);
  // Takes the next one. REQUIRES: one waits.
  Kept Take();
  // Adds to what a peer and its user have used, if more of their requests wait.
  void Charge(const IncomingCall& call, int64_t ns);
  // Ends the waiting of a peer, and of its user if that has no others.
  void Leave(std::map<ConnectionId, Peer>::iterator peer);
  static std::string NameOf(const IncomingCall& call) {
    return call.from == nullptr ? std::string() : ToString(*call.from);
  }

  const Clock* const clock_;
  const Limits limits_;
  int64_t used_ns_ = 0;  // In this turn.
  std::map<ConnectionId, Peer> waiting_;
  Users users_;                                      // Those with peers that wait.
  std::set<std::pair<int64_t, std::string>> order_;  // By what each user has used.
  int64_t last_used_ns_ = 0;                         // Of the user that was served last, before it was.
  size_t size_ = 0;
  uint64_t ever_ = 0;
  uint64_t refused_ = 0;
};

}  // namespace cell
