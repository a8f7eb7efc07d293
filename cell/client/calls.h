// How a server is asked for one key, and what became of it. Internal to cell/client; one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cell/client/key_router.h"
#include "fmt/format.h"

namespace cell {

using Value = std::optional<std::string>;

// What a step of the search gave: the result, or that the search goes on elsewhere (it has been told).
template <typename T>
using Maybe = absl::StatusOr<std::optional<T>>;

// How often an operation reads again what has changed meanwhile, before it goes by a call.
inline constexpr int kReadAttemptsMax = 8;

// `takers`: says in the message who takes no longer ones.
absl::Status CheckKey(std::string_view key, size_t key_bytes_max, std::string_view takers);
// The status of a write whose value is too long, or ok.
absl::Status CheckValue(std::string_view key, std::string_view value);
// A connection lost during a read is no more than that.
absl::Status ReadOutcome(absl::Status status);
// Whether a read lost too often against writers, and is to go by a call.
inline bool KeptChanging(const absl::Status& status) { return status.code() == absl::StatusCode::kAborted; }
// Whether a status means that the worker asked is not there (any more): the region table may know a better one.
bool LostServer(const absl::Status& status);

Task<Maybe<Value>> GetByCall(Session* session, KeyRouter* router, std::string_view key, CallContext context);
Task<Maybe<bool>> ContainsByCall(Session* session, KeyRouter* router, std::string_view key, CallContext context);
// One try of a write at the region that the router is at: a put, or without `value` a delete. `hint`: the leaf, or
// null.
Task<Maybe<bool>> WriteHere(Session* session, KeyRouter* router, std::string_view key,
                            std::optional<std::string_view> value, Pointer hint, CallContext context);

}  // namespace cell
