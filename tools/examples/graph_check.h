// Checks the invariants of a graph (graph_store.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/client/client.h"

namespace cell {

struct GraphFindings {
  uint64_t nodes = 0;
  uint64_t links = 0;
  std::vector<std::string> wrong = {};  // A line for each.
};

// Reads some nodes at a time, each with its links and counts in one transaction. Others may change the graph meanwhile,
// because the invariants are about one node each: what is read of it is of one moment.
absl::StatusOr<GraphFindings> CheckGraph(Client* client);

}  // namespace cell
