// Tells whether leaves have changed since they were read, by reads of their first bytes. Internal to cell/client. Not
// thread-safe.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "cell/base/task.h"
#include "cell/client/session/session.h"
#include "cell/layout/node.h"

namespace cell {

// The state of a leaf in which a key was read, by the client or its server. A null worker: there is none.
struct LeafToken {
  Holder holder;  // Who had its region when the read began.
  NodeState leaf;
  uint64_t pair_crc = 0;  // CRC64 of the key and the value that was found.
};

// Returns true if all leaves are as they were. Then there is a moment, after this was called, at which all of them
// were. Returns false if one has changed, or that cannot be told. `tokens` must live until the task has ended.
Task<bool> LeavesUnchanged(Session* session, absl::Span<const LeafToken> tokens, int64_t deadline_ns);

}  // namespace cell
