// Tells whether leaves have changed since they were read, by reads of their first bytes. Internal to cell/client. Not
// thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "cell/base/task.h"
#include "cell/client/session/session.h"
#include "cell/tree/node_view.h"

namespace cell {

// The state of a leaf that was read. Its version grows with each change, and no two states of a leaf have the same in
// an epoch of its region.
struct LeafToken {
  // The first fields of NodeHeader: head_version, crc, self.
  static constexpr size_t kBytes = offsetof(NodeHeader, right);

  LeafToken() = default;
  LeafToken(const Holder& its_holder, const NodeView& leaf);

  Holder holder;  // Who had its region. A null worker: there is no token.
  Pointer leaf;
  std::array<std::byte, kBytes> begins{};
};

// Returns true if all leaves are as they were. Then there is a moment, after this was called, at which all of them
// were. Returns false if one has changed, or that cannot be told. `tokens` must live until the task has ended.
Task<bool> LeavesUnchanged(Session* session, absl::Span<const LeafToken> tokens, int64_t deadline_ns);

}  // namespace cell
