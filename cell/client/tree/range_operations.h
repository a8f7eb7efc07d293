// Implements Count and DeleteRange, slice by slice. Internal to cell/client. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "cell/client/session/session.h"

namespace cell {

// The bounds must live until the task has ended.
Task<absl::StatusOr<uint64_t>> CountInTree(Session* session, std::string_view from, std::optional<std::string_view> to,
                                           RangeOptions options);
Task<absl::StatusOr<uint64_t>> DeleteRangeInTree(Session* session, std::string_view from,
                                                 std::optional<std::string_view> to, RangeOptions options);

}  // namespace cell
