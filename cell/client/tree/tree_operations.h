// Implements Get, Contains, Put, Delete, their conditional forms, and TimeLeft in the tree. Internal to cell/client.
// Not thread-safe.
#pragma once

#include <optional>
#include <string_view>

#include "cell/client/call/calls.h"
#include "cell/client/session/leaf_tokens.h"

namespace cell {

// `key` and `value` must live until the task has ended. So must `token`; if that is not null, sets it to that of the
// leaf in which the pair was, or was not, if the client read the leaf and the pair does not expire.
Task<absl::StatusOr<Value>> GetFromTree(Session* session, std::string_view key, CallOptions options,
                                        LeafToken* token = nullptr);
Task<absl::StatusOr<std::optional<StampedValue>>> GetStampedFromTree(Session* session, std::string_view key,
                                                                     CallOptions options);
Task<absl::StatusOr<bool>> ContainsInTree(Session* session, std::string_view key, CallOptions options);
// Result: see WriteHere.
template <typename Result>
Task<absl::StatusOr<Result>> WriteToTree(Session* session, KeyWrite write, CallOptions options);
// Asks the key's server how long its pair is there.
Task<absl::StatusOr<TimeLeft>> TimeLeftInTree(Session* session, std::string_view key, CallOptions options);

}  // namespace cell
