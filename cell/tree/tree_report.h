// TreeReport is what the check of one meganode found (tree_check.h). A server may send it to a client.
//
// CheckNeighbours checks the meganodes of a cluster together, from their reports: each tier covers all keys, in order,
// each link leads to the next meganode, and each route leads to a meganode that begins with its key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cell/layout/pointer.h"
#include "cell/layout/region.h"

namespace cell {

struct TreeReport {
  static constexpr size_t kErrorsMax = 100;  // Further errors are counted but not kept.

  uint64_t keys = 0;
  uint64_t data_bytes = 0;
  uint64_t expiring = 0;  // Pairs that have an expiry.
  uint32_t region = 0;
  MeganodeRange range;
  std::vector<std::pair<std::string, Pointer>> routes;  // Above tier 0.
  uint64_t nodes = 0;                                   // Nodes that were reached.
  uint64_t nodes_used = 0;  // Allocated and not freed. More than were reached after an abandoned split.
  uint64_t leaves = 0;
  int levels = 0;
  uint64_t half_splits = 0;
  uint64_t inline_pairs = 0;
  uint64_t extents = 0;
  uint64_t error_count = 0;
  std::vector<std::string> errors;

  bool ok() const { return error_count == 0; }
};

struct ClusterReport {
  std::vector<std::string> errors;
  uint64_t keys = 0;
  uint64_t missing_routes = 0;  // Meganodes that are reached only from their left neighbour.
};

// Checks the reports of all regions of a cluster, in any order.
ClusterReport CheckNeighbours(const std::vector<TreeReport>& regions);

}  // namespace cell
