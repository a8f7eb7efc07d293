// Implements Apply and Evaluate, in the tree and in Pilaf tables. Internal to cell/client. Not thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "cell/client/client.h"
#include "cell/client/session/session.h"

namespace cell {

// `table` is the table's name, or null for the tree. It, `key` and `function` must live until the task has ended.
Task<absl::StatusOr<ApplyResult>> ApplyToKey(Session* session, const std::string* table, std::string_view key,
                                             const FunctionCall& function, CallOptions options);
Task<absl::StatusOr<std::string>> EvaluateKey(Session* session, const std::string* table, std::string_view key,
                                              const FunctionCall& function, CallOptions options);

}  // namespace cell
