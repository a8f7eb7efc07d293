// What serving a call has taken, and a one-sided read takes: what others wait for behind them.
#pragma once

#include <cstdint>

namespace cell {

// Nanoseconds; 0: not known, or nothing that others wait for.
struct ServiceTimes {
  uint32_t call_ns = 0;  // Of the worker's core, this call.
  uint32_t read_ns = 0;  // Of the server's NIC, a read of one node.
};

}  // namespace cell
