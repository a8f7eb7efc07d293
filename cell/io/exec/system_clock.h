// SystemClock tells the time of this machine, by which leases and deadlines are measured.
#pragma once

#include <ctime>

#include "cell/base/clock.h"

namespace cell {

class SystemClock : public Clock {
 public:
  // Returns the one clock of this kind. It has no state.
  static const SystemClock* Get() {
    static const SystemClock clock;
    return &clock;
  }

  // Returns the time since the machine was started, CLOCK_BOOTTIME. CLOCK_MONOTONIC stands still while a machine is
  // suspended, so a lease measured by it would seem to hold although another server has taken the region over meanwhile
  // (docs/protocols.md).
  int64_t NowNs() const override {
    timespec now;
    ::clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
  }
};

// Returns the time of day of this machine in nanoseconds since 1970. It may be wrong, and may go back: use it only
// where nothing depends on that, and SystemClock elsewhere. Thread-safe.
inline int64_t TimeOfDayNs() {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// Returns cluster time (cell/layout/expiry.h): the time of day when this was first called, and the time that has passed
// since. It does not jump, or go back, when the machine's time of day is set. Thread-safe.
inline int64_t ClusterTimeNs() {
  static const int64_t offset_ns = TimeOfDayNs() - SystemClock::Get()->NowNs();
  return SystemClock::Get()->NowNs() + offset_ns;
}

}  // namespace cell
