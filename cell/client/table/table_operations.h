// Implements Get, Contains, Put, Delete, their conditional forms, and TimeLeft in a Pilaf table. The steps of a lookup
// by reads are in pilaf/lookup.h. Internal to cell/client. Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cell/client/call/calls.h"

namespace cell {

// `table` is the table's name. It, `key` and `value` must live until the task has ended. `serializable`: see
// Table::set_serializable.
Task<absl::StatusOr<Value>> GetFromTable(Session* session, const std::string* table, std::string_view key,
                                         bool serializable, CallOptions options);
Task<absl::StatusOr<bool>> ContainsInTable(Session* session, const std::string* table, std::string_view key,
                                           bool serializable, CallOptions options);
// Result: see WriteHere.
template <typename Result>
Task<absl::StatusOr<Result>> WriteToTable(Session* session, const std::string* table, KeyWrite write,
                                          CallOptions options);
// Asks the key's server how long its pair is there.
Task<absl::StatusOr<TimeLeft>> TimeLeftInTable(Session* session, const std::string* table, std::string_view key,
                                               CallOptions options);

}  // namespace cell
