// MachineModel: how long a machine of a simulated cluster takes for what it does.
//
// The NIC. One-sided reads and calls queue apart, since a NIC does either at its own rate; and all of them pass one
// stage that both share, since together they do not reach the sum of both rates (the thesis, Table 2.3). A machine with
// many live connections is slower in all of it (Fig. 2.5). Latencies are those of one operation with nothing else going
// on, there and back, what the NIC's queues take included.
//
// The cores. A worker has one: calls queue for it. A client has one as well: what it is told costs it time before it
// can ask for more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace cell {

struct MachineModel {
  // The NIC: the least time between two...
  int64_t read_ns = 0;       // ...one-sided reads of others here,
  int64_t call_ns = 0;       // ...calls, request and reply together,
  int64_t operation_ns = 0;  // ...operations of either kind.
  double byte_ns = 0;        // Of what it sends.
  int64_t read_latency_ns = 0;
  int64_t call_latency_ns = 0;  // Without the server's core.
  // Each live connection beyond so many makes the NIC slower by that part of its time.
  int64_t connections_free = std::numeric_limits<int64_t>::max();
  double connection_loss = 0;

  // A core.
  int64_t request_ns = 0;     // Takes a request and sends its reply.
  int64_t visit_ns = 0;       // A node of a search.
  int64_t insert_ns = 0;      // A change, beside its search.
  int64_t entry_ns = 0;       // An entry of a scan.
  int64_t completion_ns = 0;  // A client takes an answer, checks it, and asks for the next thing.

  // The least time between two reads of so many bytes.
  uint32_t ReadNs(uint64_t bytes) const {
    return static_cast<uint32_t>(std::max(
        {static_cast<double>(read_ns), static_cast<double>(operation_ns), byte_ns * static_cast<double>(bytes)}));
  }
  double Slowdown(int64_t connections) const {
    return 1 + connection_loss * static_cast<double>(std::max<int64_t>(0, connections - connections_free));
  }
};

}  // namespace cell
