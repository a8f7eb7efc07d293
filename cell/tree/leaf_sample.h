// SampleLeaf returns a leaf of a meganode at random, for estimates over all its pairs. Pure.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cell/base/random.h"
#include "cell/tree/meganode.h"
#include "cell/tree/node_view.h"

namespace cell {

// Goes down from the root to a leaf with keys from `low` on that are below `high` (nullopt: no bound), and chooses a
// child at random in each node. So a leaf below a node with few children is more likely than others: by a factor of two
// for each level after splits, and of four after deletes, because nodes of which less than a quarter is used are
// merged. Returns nullopt if this meganode has no keys of the range, and DataLoss if the leaf was damaged in memory.
// The leaf is valid until the next change.
absl::StatusOr<std::optional<NodeView>> SampleLeaf(const Meganode& tree, const std::string& low,
                                                   const std::optional<std::string>& high, Random* random);

}  // namespace cell
