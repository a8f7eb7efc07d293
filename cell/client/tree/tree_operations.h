// Implements Get, Contains, Put, Delete and TimeLeft in the tree. Internal to cell/client. Not thread-safe.
#pragma once

#include <optional>
#include <string_view>

#include "cell/client/call/calls.h"

namespace cell {

// `key` and `value` must live until the task has ended.
Task<absl::StatusOr<Value>> GetFromTree(Session* session, std::string_view key, CallOptions options);
Task<absl::StatusOr<bool>> ContainsInTree(Session* session, std::string_view key, CallOptions options);
// Executes a put, or a delete if there is no `value`. Returns true if the key was there before. `expires`: see
// PutRequest.
Task<absl::StatusOr<bool>> WriteToTree(Session* session, std::string_view key, std::optional<std::string_view> value,
                                       CallOptions options, uint64_t expires = 0);
// Asks the key's server how long its pair is there.
Task<absl::StatusOr<TimeLeft>> TimeLeftInTree(Session* session, std::string_view key, CallOptions options);

}  // namespace cell
