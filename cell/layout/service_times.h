// Reports how long serving a call, or a one-sided read, occupied the server. Later requests wait for that time.
#pragma once

#include <cstdint>

namespace cell {

// In nanoseconds. 0 if unknown, or if nothing waits for it.
struct ServiceTimes {
  uint32_t call_ns = 0;  // Time of this call on the worker's core.
  uint32_t read_ns = 0;  // Time of reading one node on the server's NIC.
};

}  // namespace cell
