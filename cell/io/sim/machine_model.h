// MachineModel says how long the operations of a simulated cluster's machine take.
//
// The NIC: one-sided reads and calls have separate queues, because a NIC handles each at its own rate. All of them also
// pass one shared stage, because together they do not reach the sum of both rates (thesis, Table 2.3). Many live
// connections slow all of these stages down (Fig. 2.5). Latencies are those of one operation without other load, for
// the round trip, and include the time in the NIC's queues.
//
// The cores: a worker has one, for which calls queue. A client has one as well: handling an answer takes time before
// the client can make the next request.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace cell {

struct MachineModel {
  // The NIC: the minimum time between two...
  int64_t read_ns = 0;       // ...one-sided reads by others here,
  int64_t call_ns = 0;       // ...calls, request and reply together,
  int64_t operation_ns = 0;  // ...operations of either kind.
  double byte_ns = 0;        // Time per byte that it sends.
  int64_t read_latency_ns = 0;
  int64_t call_latency_ns = 0;  // Without the time of the server's core.
  // Each live connection beyond connections_free slows the NIC by this fraction.
  int64_t connections_free = std::numeric_limits<int64_t>::max();
  double connection_loss = 0;

  // A core.
  int64_t request_ns = 0;  // To take a request and send its reply.
  int64_t visit_ns = 0;    // For a node of a search.
  int64_t insert_ns = 0;   // For a change, in addition to its search.
  int64_t entry_ns = 0;    // For an entry of a scan.
  // A client takes an answer, checks it and makes the next request. This takes call_completion_ns for a call, and
  // read_completion_ns for a read of one node or extent. A read of several takes read_part_ns more for each further
  // one.
  int64_t call_completion_ns = 0, read_completion_ns = 0, read_part_ns = 0;

  // Returns how long a client's core works on the result of a read of `parts` nodes and extents. REQUIRES: `parts` > 0.
  int64_t ReadWorkNs(size_t parts) const { return read_completion_ns + read_part_ns * static_cast<int64_t>(parts - 1); }

  // Returns the minimum time between two reads of `bytes` bytes.
  uint32_t ReadNs(uint64_t bytes) const {
    return static_cast<uint32_t>(std::max(
        {static_cast<double>(read_ns), static_cast<double>(operation_ns), byte_ns * static_cast<double>(bytes)}));
  }
  double Slowdown(int64_t connections) const {
    return 1 + connection_loss * static_cast<double>(std::max<int64_t>(0, connections - connections_free));
  }
};

}  // namespace cell
