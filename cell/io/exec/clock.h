// The clock of leases and deadlines.
#pragma once

#include <cstdint>
#include <ctime>

namespace cell {

// Returns the time since the machine was started, from CLOCK_BOOTTIME. CLOCK_MONOTONIC stands still while a machine is
// suspended: by that clock a lease would still be valid after another worker got the region (docs/protocols.md).
inline int64_t LeaseClockNs() {
  timespec now;
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace cell
