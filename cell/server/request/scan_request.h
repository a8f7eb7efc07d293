// Serves one scan request: as many entries of a meganode, from a key on, as fit into the reply. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "cell/layout/wire.h"
#include "cell/tree/meganode.h"

namespace cell {

// Writes the reply to `to` and returns its size. Returns InvalidArgument if there is no room for one entry, and
// DataLoss if the first entry, or its leaf, was damaged in memory. A reply ends before such an entry.
absl::StatusOr<size_t> ServeScan(const Meganode& tree, const Parsed<ScanRequest>& request, MutableBytes to);

}  // namespace cell
