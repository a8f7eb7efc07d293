// Implements Get, Contains, Put and Delete in the tree. Internal to cell/client. Not thread-safe.
#pragma once

#include <optional>
#include <string_view>

#include "cell/client/call/calls.h"

namespace cell {

// `key` and `value` must live until the task has ended.
Task<absl::StatusOr<Value>> GetFromTree(Session* session, std::string_view key, CallOptions options);
Task<absl::StatusOr<bool>> ContainsInTree(Session* session, std::string_view key, CallOptions options);
// Executes a put, or a delete if there is no `value`. Returns true if the key was there before.
Task<absl::StatusOr<bool>> WriteToTree(Session* session, std::string_view key, std::optional<std::string_view> value,
                                       CallOptions options);

}  // namespace cell
