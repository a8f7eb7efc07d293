// ServerTime bounds the cluster time of a worker, by what that has answered when it was asked. Pure.
//
// A client reads leaves by itself, and must know whether a pair there has expired by the clock of the region's owner.
// The rates of the owner's clock and of this client's differ by at most an eighth (kRateError), which leases assume as
// well (docs/protocols.md). So an answer bounds the owner's time before and after it. If the bounds leave open whether
// a pair has expired, the client asks the owner for the pair.
//
// Not thread-safe.
#pragma once

#include <cmath>
#include <cstdint>

#include "cell/base/mutant.h"
#include "cell/layout/expiry.h"

namespace cell {

class ServerTime {
 public:
  enum class Life { kAlive, kExpired, kUndecided };

  // Takes what the worker has answered: cluster time at some moment from `sent_ns` to `received_ns` of this client's
  // clock. 0: the worker has no clock.
  void Set(uint64_t time_ns, int64_t sent_ns, int64_t received_ns) {
    known_ = true;
    time_ns_ = static_cast<double>(time_ns);
    sent_ns_ = sent_ns;
    received_ns_ = received_ns;
  }
  // Forgets the answer, because the worker's process may be another one.
  void Forget() { known_ = false; }

  // Returns whether a pair with this expiry had expired at `at_ns` of this client's clock.
  Life At(int64_t at_ns, Expiry expiry) const {
    if (expiry == kNeverExpires || Mutated(Mutant::kExpiredByReads)) return Life::kAlive;
    if (!known_) return Life::kUndecided;
    if (time_ns_ == 0) return Life::kAlive;
    const auto ends = static_cast<double>(expiry);
    if (ends > time_ns_ + Most(at_ns - sent_ns_)) return Life::kAlive;
    if (ends <= time_ns_ - Most(received_ns_ - at_ns)) return Life::kExpired;
    return Life::kUndecided;
  }

 private:
  static constexpr double kRateError = 1.0 / 8;
  // A double holds today's nanoseconds to within 256.
  static constexpr double kRounding = 1024;

  // Returns the most by which the worker's clock may have gone on while this client's has by `ns`.
  static double Most(int64_t ns) {
    const auto exact = static_cast<double>(ns);
    return exact + std::abs(exact) * kRateError + kRounding;
  }

  bool known_ = false;
  double time_ns_ = 0;
  int64_t sent_ns_ = 0;
  int64_t received_ns_ = 0;
};

}  // namespace cell
