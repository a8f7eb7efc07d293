// ClientMetrics counts what a client does: Client::metrics.
#pragma once

#include <cstdint>

#include "cell/base/histogram.h"

namespace cell {

// Counts what a client has ever done.
struct ClientMetrics {
  uint64_t operations = 0;    // Get, Put, Delete, Contains, each key of MultiGet, batches of scans, slices of ranges.
  uint64_t server_path = 0;   // Meganodes that a server searched for it...
  uint64_t client_path = 0;   // ...and those that this client searched.
  uint64_t route_hits = 0;    // Operations that began at a cached meganode...
  uint64_t route_misses = 0;  // ...and at the root of the tree.
  uint64_t restarts = 0;      // Searches that had to start over: a meganode had moved, or a cache was out of date.
  uint64_t node_reads = 0;
  uint64_t extent_reads = 0;
  // Rounds of one-sided reads of nodes, extents and hash tables. The reads of a round are sent and waited for together.
  // Each key of a MultiGet has rounds of its own, as an operation, although keys wait for theirs at the same time. So
  // round_trips() / operations says how many round trips an operation waits for, one after the other.
  uint64_t read_rounds = 0;
  uint64_t cache_hits = 0;       // Nodes that were in the cache.
  uint64_t cache_evictions = 0;  // Nodes that made room for others: ClientOptions::cache_bytes holds less than is used.
  uint64_t calls = 0;
  uint64_t scanned = 0;         // Entries.
  uint64_t torn = 0;            // Nodes that were read again because a write overlapped.
  uint64_t extent_retries = 0;  // Gets and scans that went back to the leaf because its extent had changed.
  uint64_t moved_right = 0;     // Right links that were followed.
  uint64_t reads_denied = 0;    // Reads that a server did not allow, because this client may not scan everything.
  // Questions to servers whether this client's view of the region table is the newest, pieces of it that servers have
  // sent, and readings of the table from the coordinator. They belong to no operation.
  uint64_t table_questions = 0;
  uint64_t table_parts = 0;
  uint64_t table_readings = 0;
  uint64_t errors = 0;
  // Lookups in hash tables by remote reads. The last three count repeated reads:
  uint64_t lookups = 0;
  uint64_t lookup_reads = 0;
  uint64_t lookup_torn = 0;     // slots or buckets that were being written,
  uint64_t lookup_extents = 0;  // pairs that were replaced meanwhile,
  uint64_t lookup_moved = 0;    // and keys that may have been moved.
  Histogram latency_ns;         // Latency of operations.

  uint64_t reads() const { return node_reads + extent_reads + lookup_reads; }
  uint64_t round_trips() const { return calls + read_rounds; }
  uint64_t retries() const { return torn + extent_retries + lookup_torn + lookup_extents + lookup_moved; }
};

}  // namespace cell
