// Serves one scan request: as many entries of a meganode, from a key on, as fit into the reply. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "cell/cluster/grants.h"
#include "cell/layout/wire.h"
#include "cell/region/key_locks.h"
#include "cell/tree/meganode.h"

namespace cell {

// Writes the reply to `to` and returns its size. If `seen` is not null, it is the keys that the scan may see: it has
// request.key. The reply then has pairs of them alone, and continues behind them if the request does. Returns
// InvalidArgument if there is no room for one entry, and DataLoss if the first entry, or its leaf, was damaged in
// memory. A reply ends before such an entry.
//
// A reply ends before a key that a transaction will perhaps write (`locks`). If that is the first one, the reply asks
// the client to come again.
absl::StatusOr<size_t> ServeScan(const Meganode& tree, const KeyLocks& locks, const Parsed<ScanRequest>& request,
                                 const KeySpan* seen, MutableBytes to);

}  // namespace cell
