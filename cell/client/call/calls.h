// Sends requests about one key, or about a range, to a worker, and interprets the replies. Internal to cell/client. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cell/client/route/key_router.h"
#include "cell/client/session/leaf_tokens.h"
#include "cell/client/session/session.h"
#include "cell/layout/outcome.h"
#include "cell/layout/wire_snapshot.h"

namespace cell {

using Value = std::optional<std::string>;

// The outcome of one step of a search: an error, a result, or nullopt if the search continues at the region that the
// router names now.
template <typename T>
using Attempt = absl::StatusOr<std::optional<T>>;

// How many times an operation repeats a one-sided read that writers have interfered with, before it calls the worker.
inline constexpr int kReadAttemptsMax = 8;

// Returns InvalidArgument if the key is empty or too long. `takers` names in the message what limits the length.
absl::Status CheckKey(std::string_view key, size_t key_bytes_max, std::string_view takers);
// Converts the status of a failed read: a read changes nothing, so a lost connection is plain Unavailable.
absl::Status ReadOutcome(absl::Status status);
// Returns true if a read was interfered with by writers too often.
inline bool KeptChanging(const absl::Status& status) { return status.code() == absl::StatusCode::kAborted; }
// Returns whether an operation whose reads have failed calls the worker instead: they were interfered with too often,
// or this client may not read memory, and its user did not insist on it.
inline bool AsksServer(const absl::Status& status, const CallContext& context) {
  return KeptChanging(status) || (absl::IsPermissionDenied(status) && context.path == Path::kHybrid);
}
// Returns true if the worker could not be reached or does not hold the region any more, so that the region table may
// name another one.
bool MayHaveMoved(const absl::Status& status);

// Fetches the bytes of an extent from `from` on, in pieces. If `copy` is not 0, fetches those of the copy with that
// number instead. Returns false if they are not there any more (the region has moved, or the copy is gone), and if this
// client may not read memory: it has to get the pair as a copy.
Task<absl::StatusOr<bool>> FetchBytes(Session* session, WorkerConnection* worker, Pointer from, uint16_t copy,
                                      MutableBytes to, int64_t deadline_ns);

// Decides whether a pair that was read by `context`'s operation had expired when that began: asks the worker for its
// time if what is known of that leaves it open. Returns kUndecided if it stays open, or the worker does not answer; the
// worker itself can tell.
Task<ServerTime::Life> LifeAt(Session* session, WorkerConnection* worker, Expiry expiry, CallContext context);

// Uploads a large value in pieces. Returns the upload's number, which the caller gives back (Connections::GiveNumber).
Task<absl::StatusOr<uint16_t>> Upload(Session* session, WorkerConnection* worker, std::string_view value,
                                      int64_t deadline_ns);

// The expiry and the stamp of a pair that a get has found.
struct PairFacts {
  Expiry expiry = kNeverExpires;
  uint64_t stamp = 0;  // 0: it has none.
};
// Sets *facts, if that is not null, to those of the found pair. With `snapshot`, gets what that has. Sets *token, if
// that is not null and the server sends one, to that of the key's leaf.
Task<Attempt<Value>> GetByCall(Session* session, KeyRouter* router, std::string_view key, CallContext context,
                               PairFacts* facts = nullptr, std::optional<SnapshotId> snapshot = {},
                               LeafToken* token = nullptr);
Task<Attempt<bool>> ContainsByCall(Session* session, KeyRouter* router, std::string_view key, CallContext context);
// A put, a delete if there is no `value`, or an application of a function.
struct KeyWrite {
  std::string_view key;
  std::optional<std::string_view> value = {};
  uint64_t expires = kNeverExpires;  // Of a put (PutRequest).
  std::optional<WriteCondition> condition = {};
  std::optional<std::string_view> function = {};  // Its name. Its argument is `value`.
  RequestId id = {};                              // Of a function that must be applied only once.
  bool again = false;                             // A request with this id was sent before.
};
// The outcome of a function that was applied, or, if `untimely`, that was not because of RequestId::until. Its stamp is
// then one from which on that is right.
struct Applied : ApplyResult {
  bool untimely = false;
};
// Return InvalidArgument if the value, that of the condition, or the function's name or argument, is too long.
absl::Status CheckWrite(const KeyWrite& write);
absl::Status CheckEvaluation(const FunctionCall& function);
// Tries a write once at the region that the router is at. `hint` is the key's leaf, or null. Its result is a
// WriteIfResult if it has a condition, Applied if it has a function, and otherwise a bool, whether the key was there
// before.
template <typename Result>
Task<Attempt<Result>> WriteHere(Session* session, KeyRouter* router, KeyWrite write, Pointer hint, CallContext context);
// Evaluates a function once at the region that the router is at.
Task<Attempt<std::string>> EvaluateByCall(Session* session, KeyRouter* router, std::string_view key,
                                          const FunctionCall& function, CallContext context);
// How long a pair is there from when its server answers: nullopt if it is not, INT64_MAX if it has no expiry.
using TimeLeft = std::optional<int64_t>;
Task<Attempt<TimeLeft>> TimeLeftByCall(Session* session, KeyRouter* router, std::string_view key, CallContext context);

// The answer of a region to a step of a snapshot.
struct SnapshotAnswer {
  SnapshotState state{};
  std::string end = {};  // From this key on it has no keys. Empty: it has all to the end of the tree.
};
// Tries a step once at the region that the router is at. The keys of `request` are those of the snapshot there.
struct SnapshotCall {
  SnapshotStep step{};
  SnapshotId id = {};
  std::string_view from;
  std::string_view to;
  uint32_t kept_ms = 0;
};
Task<Attempt<SnapshotAnswer>> SnapshotHere(Session* session, KeyRouter* router, SnapshotCall request,
                                           CallContext context);

// The part of a range that one request has done.
struct RangeSlice {
  uint64_t pairs = 0;
  std::string next = {};  // Where the next slice begins. Empty: the range ends with this one.
};
// Try once to count, or to delete, the first pairs of [from, to) at the region that the router is at. An empty `to` is
// the end of the tree.
Task<Attempt<RangeSlice>> CountHere(Session* session, KeyRouter* router, std::string_view from, std::string_view to,
                                    CallContext context);
Task<Attempt<RangeSlice>> DeleteRangeHere(Session* session, KeyRouter* router, std::string_view from,
                                          std::string_view to, CallContext context);

}  // namespace cell
