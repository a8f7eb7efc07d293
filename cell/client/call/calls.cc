#include "cell/client/call/calls.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "absl/strings/match.h"
#include "cell/base/crc64.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/layout/wire_function.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr char kMaybeApplied[] = "MaybeApplied";

absl::Status MaybeApplied(absl::StatusCode code, std::string_view key, std::string_view what, const absl::Status& why) {
  return absl::Status(code, fmt::format("{}: the write of {} was sent, {}; it may or may not have been applied ({})",
                                        kMaybeApplied, ForMessage(key), what, std::string(why.message())));
}

// Returns the status of a write without an answer.
absl::Status WriteOutcome(const absl::Status& status, std::string_view key) {
  const bool closed = absl::IsCancelled(status);
  if (closed && Mutated(Mutant::kCancelledPlainly)) return status;
  if (!closed && !absl::IsUnknown(status) && !absl::IsDeadlineExceeded(status)) return status;
  return MaybeApplied(closed ? absl::StatusCode::kCancelled : absl::StatusCode::kUnknown, key, "but no answer arrived",
                      status);
}

// Returns the status of a write whose answer is no message of this protocol.
absl::Status MalformedOutcome(const absl::Status& status, std::string_view key) {
  return MaybeApplied(absl::StatusCode::kUnknown, key, "but its answer could not be read", status);
}

// Returns the room that a short reply needs if it is a route.
size_t ReplyRoom(Session* session) {
  return std::max(kReplyBytesMin, RouteReplyBytes(KeyBytesMax(session->node_bytes())));
}

// Sends a request that names the router's meganode. Returns nullopt if the search continues elsewhere. The reply is
// valid until the caller suspends.
Task<Attempt<ConstBytes>> CallOnce(Session* session, KeyRouter* router, std::string_view head, std::string_view body,
                                   size_t reply_bytes_max, CallContext context,
                                   Feedback::Learn learn = Feedback::kCost) {
  const OutgoingCall call{
      .head = head, .body = body, .reply_bytes_max = reply_bytes_max, .deadline_ns = context.deadline_ns};
  const absl::StatusOr<ConstBytes> reply =
      co_await session->connections()->Call(router->worker(), call, {router->selector(), learn});
  if (!reply.ok()) co_return reply.status();
  if (!IsRoute(*reply)) co_return *reply;
  const absl::StatusOr<RouteView> route = ParseRouteReply(*reply);
  if (!route.ok()) co_return route.status();
  if (absl::Status status = router->Follow(*route); !status.ok()) co_return status;
  co_return std::nullopt;
}

// Handles a failed read: if the connection was lost, the region is looked up again.
template <typename T>
Attempt<T> ReadFailed(KeyRouter* router, const absl::Status& status) {
  if (!MayHaveMoved(status)) return status;
  (void)router->Restart();
  return std::nullopt;
}

// Takes the answer to a write of `key`, of one key or from that key on. `parse` reads a reply that is no route. Sets
// *refused, and returns nullopt, if the server has refused the write for a temporary reason.
template <typename T, typename Parse>
Attempt<T> TakeAnswer(KeyRouter* router, std::string_view key, MessageKind kind,
                      const absl::StatusOr<ConstBytes>& reply, Parse parse, absl::Status* refused) {
  if (!reply.ok()) {
    // Unavailable means that it was never sent, so it may be sent elsewhere.
    if (reply.status().code() == absl::StatusCode::kUnavailable) return ReadFailed<T>(router, reply.status());
    return WriteOutcome(reply.status(), key);
  }
  if (IsRoute(*reply)) {
    const absl::StatusOr<RouteView> route = ParseRouteReply(*reply);
    const absl::Status status = route.ok() ? router->Follow(*route) : MalformedOutcome(route.status(), key);
    if (!status.ok()) return status;
    return std::nullopt;
  }
  absl::StatusOr<T> written = parse(*reply);
  if (written.ok()) return std::optional<T>(*std::move(written));
  if (written.status().code() == absl::StatusCode::kUnavailable) {
    *refused = written.status();
    return std::nullopt;
  }
  return IsErrorReply(*reply, kind) ? written.status() : MalformedOutcome(written.status(), key);
}

// Waits before a write is tried again that its server has refused. Returns `refused` if there is no time for that.
Task<absl::Status> PauseRefused(Session* session, KeyRouter* router, absl::Status refused, int64_t deadline_ns) {
  const int64_t at_ns = session->now_ns() + session->options().refused_pause_us * 1000;
  if (at_ns >= deadline_ns) co_return refused;
  // Nothing was written, for a temporary reason: the region is migrating, or the server's lease has lapsed, in which
  // case the region may soon have another owner.
  co_await session->loop()->SleepUntil(at_ns);
  co_await router->FindHolderAgain(refused);
  co_return absl::OkStatus();
}

absl::StatusOr<RangeSlice> ParseSlice(ConstBytes reply, MessageKind kind, std::string_view from, std::string_view to,
                                      size_t key_bytes_max) {
  ASSIGN_OR_RETURN(const RangeResult result, ParseRangeReply(reply, kind));
  const std::string_view next = result.next_key;
  if (!result.done && (next <= from || (!to.empty() && next >= to) || next.size() > key_bytes_max)) {
    return absl::DataLossError("a range's reply goes on at a key that is not in the rest of the range");
  }
  return RangeSlice{result.pairs, std::string(next)};
}

}  // namespace

Task<absl::StatusOr<uint16_t>> Upload(Session* session, WorkerConnection* worker, std::string_view value,
                                      int64_t deadline_ns) {
  const uint16_t upload = co_await session->connections()->TakeNumber(worker, deadline_ns);
  if (upload == 0) co_return absl::DeadlineExceededError("waited too long for this client's other large values");
  for (size_t at = 0; at < value.size(); at += kUploadPartBytesMax) {
    const std::string_view part = value.substr(at, kUploadPartBytesMax);
    const std::string head = MakeUploadRequest(upload, static_cast<uint32_t>(at), static_cast<uint32_t>(part.size()));
    const OutgoingCall call{.head = head, .body = part, .reply_bytes_max = kReplyBytesMin, .deadline_ns = deadline_ns};
    const absl::StatusOr<ConstBytes> reply = co_await session->connections()->Call(worker, call);
    absl::Status status = reply.ok() ? ParseBytesReply(*reply, MessageKind::kUpload).status() : reply.status();
    if (!status.ok()) {
      session->connections()->GiveNumber(worker, upload);
      co_return ReadOutcome(status);  // Nothing was written yet.
    }
  }
  co_return upload;
}

absl::Status CheckKey(std::string_view key, size_t key_bytes_max, std::string_view takers) {
  if (key.empty()) return absl::InvalidArgumentError("a key must have at least one byte");
  if (key.size() > key_bytes_max) {
    return absl::InvalidArgumentError(
        fmt::format("key {} is longer than {} bytes, the maximum for {}", ForMessage(key), key_bytes_max, takers));
  }
  return absl::OkStatus();
}

absl::Status ReadOutcome(absl::Status status) {
  if (status.code() != absl::StatusCode::kUnknown) return status;
  return absl::UnavailableError(std::string(status.message()));
}

namespace {

absl::Status CheckFunction(std::string_view name, size_t argument_bytes, size_t argument_bytes_max) {
  if (name.size() > kFunctionNameBytesMax) {
    return absl::InvalidArgumentError(fmt::format("{} is longer than the name of a function, of at most {} bytes",
                                                  ForMessage(name), kFunctionNameBytesMax));
  }
  if (argument_bytes <= argument_bytes_max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("the argument of {} bytes for function {} is larger than the maximum of {} bytes", argument_bytes,
                  ForMessage(name), argument_bytes_max));
}

}  // namespace

absl::Status CheckEvaluation(const FunctionCall& function) {
  if (function.name.empty()) return absl::InvalidArgumentError("a function has a name");
  return CheckFunction(function.name, function.argument.size(), kInlineValueBytesMax);
}

absl::Status CheckWrite(const KeyWrite& write) {
  if (write.function.has_value()) {
    return CheckFunction(*write.function, write.value.value_or("").size(), kValueBytesMax);
  }
  const auto check = [&write](std::string_view what, size_t bytes, size_t bytes_max) -> absl::Status {
    if (bytes <= bytes_max) return absl::OkStatus();
    return absl::InvalidArgumentError(
        fmt::format("the {} of {} bytes for key {} is larger than the maximum of {} bytes", what, bytes,
                    ForMessage(write.key), bytes_max));
  };
  if (write.condition.has_value()) {
    RETURN_IF_ERROR(check("expected value", write.condition->value.size(), kConditionValueBytesMax));
  }
  return check("value", write.value.value_or("").size(), kValueBytesMax);
}

bool MayHaveMoved(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kUnknown;
}

namespace {

// Tries a get once at the region that the router is at. If `copy` is not 0, it is the number for a copy of a large
// value. Returns Aborted if the value was replaced while it was fetched. For *facts and *token see GetByCall.
Task<Attempt<Value>> GetOnce(Session* session, KeyRouter* router, std::string_view key, uint16_t copy,
                             CallContext context, PairFacts* facts, std::optional<SnapshotId> snapshot,
                             LeafToken* token) {
  WorkerConnection* const worker = router->worker();
  const Holder holder = router->holder();
  const bool wants_leaf = token != nullptr && !session->connections()->reads_denied();
  const MessageKind kind = snapshot.has_value() ? MessageKind::kGetSnapshot : MessageKind::kGet;
  std::string request;
  if (snapshot.has_value()) {
    request = MakeGetSnapshotRequest(router->root(), *snapshot, key, copy);
  } else {
    request = MakeKeyRequest(kind, router->root(), {}, key, copy, wants_leaf);
  }
  const size_t room = sizeof(GetReply) + kInlineValueBytesMax + sizeof(Expiry) + (wants_leaf ? sizeof(NodeState) : 0);
  const Attempt<ConstBytes> reply = co_await CallOnce(session, router, request, {}, room, context);
  if (!reply.ok()) co_return ReadFailed<Value>(router, reply.status());
  if (!reply->has_value()) co_return std::nullopt;
  const absl::StatusOr<GetResult> get = ParseGetReply(**reply, kind);
  if (!get.ok()) co_return get.status();
  const bool valid =
      get->leaf.has_value() && get->leaf->self.region() == holder.region && get->leaf->head_version % 2 == 0;
  if (token != nullptr) *token = valid ? LeafToken{holder, *get->leaf, get->fixed.crc} : LeafToken();
  if (get->fixed.found == 0) co_return Value();
  if (facts != nullptr) *facts = {get->expiry, get->fixed.stamp};
  if ((get->fixed.follows & kFollowsValue) != 0) {
    if (Crc64(get->value, Crc64(key)) != get->fixed.crc)
      co_return absl::DataLossError(fmt::format("the server's value of {} has a wrong CRC", ForMessage(key)));
    co_return Value(std::string(get->value));
  }
  // A value of a snapshot is in no extent. The server copies it, if it is asked again.
  if (snapshot.has_value() && get->fixed.copied == 0) co_return absl::AbortedError("");
  // Too large for the reply: fetch it in separate messages (thesis, 6.6.2). The extent begins with the key; a copy has
  // only the value.
  const GetReply where = get->fixed;
  const size_t key_bytes = where.copied == 0 ? key.size() : 0;
  std::string found(key_bytes + where.value_bytes, 0);
  const MutableBytes to(reinterpret_cast<std::byte*>(found.data()), found.size());
  const absl::StatusOr<bool> there =
      co_await FetchBytes(session, worker, where.extent, where.copied, to, context.deadline_ns);
  if (!there.ok()) co_return ReadFailed<Value>(router, there.status());
  if (!*there) co_return absl::AbortedError("");
  const bool same = Crc64(found, key_bytes == 0 ? Crc64(key) : 0) == where.crc || Mutated(Mutant::kNoFetchCrc);
  const bool whole = same && found.starts_with(key.substr(0, key_bytes));
  if (!whole) co_return absl::AbortedError("");
  co_return Value(found.substr(key_bytes));
}

}  // namespace

Task<absl::StatusOr<bool>> FetchBytes(Session* session, WorkerConnection* worker, Pointer from, uint16_t copy,
                                      MutableBytes to, int64_t deadline_ns) {
  for (size_t done = 0; done < to.size();) {
    const size_t piece = std::min(to.size() - done, (kMessageBytesMax - sizeof(ReplyHeader)) / kWordBytes * kWordBytes);
    const Pointer at(from.region(), from.offset() + done);
    const std::string fetch = MakeFetchRequest(at, static_cast<uint32_t>(piece), copy);
    const OutgoingCall call{.head = fetch, .reply_bytes_max = kMessageBytesMax, .deadline_ns = deadline_ns};
    if (copy == 0 && session->connections()->reads_denied()) co_return false;
    const absl::StatusOr<ConstBytes> answer = co_await session->connections()->Call(worker, call);
    if (!answer.ok()) co_return answer.status();
    const absl::StatusOr<ConstBytes> bytes = ParseBytesReply(*answer, MessageKind::kFetch);
    if (copy == 0) session->connections()->NoteRead(bytes.status());
    if (absl::IsOutOfRange(bytes.status())) co_return false;
    if (copy == 0 && absl::IsPermissionDenied(bytes.status())) co_return false;
    if (!bytes.ok()) co_return bytes.status();
    if (bytes->size() != piece) co_return absl::DataLossError("a fetch returned a wrong number of bytes");
    std::memcpy(to.data() + done, bytes->data(), piece);
    done += piece;
  }
  co_return true;
}

namespace {

// Calls `once` with 0, and while that returns Aborted, with the number under which the server is to copy what is large.
template <typename T, typename Once>
Task<Attempt<T>> WithCopy(Session* session, KeyRouter* router, std::string_view key, CallContext context, Once once) {
  Attempt<T> result = co_await once(uint16_t{0});
  while (KeptChanging(result.status())) {
    ++session->metrics()->extent_retries;
    WorkerConnection* const worker = router->worker();
    const uint16_t copy = co_await session->connections()->TakeNumber(worker, context.deadline_ns);
    if (copy != 0) {
      result = co_await once(copy);
      session->connections()->GiveNumber(worker, copy);
    }
    if (session->closed()) co_return ClientLoop::Closed();
    if (session->NowNs() >= context.deadline_ns && KeptChanging(result.status())) {
      co_return absl::DeadlineExceededError(
          fmt::format("key {} kept changing while it was being read", ForMessage(key)));
    }
  }
  co_return result;
}

// Tries an evaluation once at the region that the router is at. Returns Aborted if the result is too large for the
// reply, and there is no copy of it.
Task<Attempt<std::string>> EvaluateOnce(Session* session, KeyRouter* router, std::string_view key,
                                        const FunctionCall& function, uint16_t copy, CallContext context) {
  WorkerConnection* const worker = router->worker();
  const auto argument_bytes = static_cast<uint32_t>(function.argument.size());
  const std::string request =
      MakeFunctionRequest(MessageKind::kEvaluate, router->root(), {key, function.name, argument_bytes, 0, copy});
  const Attempt<ConstBytes> reply =
      co_await CallOnce(session, router, request, function.argument, sizeof(FunctionReply) + kInlineValueBytesMax,
                        context, Feedback::kNothing);
  if (!reply.ok()) co_return ReadFailed<std::string>(router, reply.status());
  if (!reply->has_value()) co_return std::nullopt;
  const absl::StatusOr<Parsed<FunctionReply>> parsed = ParseFunctionReply(**reply, MessageKind::kEvaluate);
  if (!parsed.ok()) co_return parsed.status();
  if (parsed->fixed.inlined != 0) co_return std::string(parsed->value);
  if (parsed->fixed.copied == 0) co_return absl::AbortedError("");
  std::string result(parsed->fixed.result_bytes, 0);
  const MutableBytes to(reinterpret_cast<std::byte*>(result.data()), result.size());
  const absl::StatusOr<bool> there = co_await FetchBytes(session, worker, {}, copy, to, context.deadline_ns);
  if (!there.ok()) co_return ReadFailed<std::string>(router, there.status());
  if (!*there) co_return absl::AbortedError("");
  co_return result;
}

}  // namespace

Task<Attempt<Value>> GetByCall(Session* session, KeyRouter* router, std::string_view key, CallContext context,
                               PairFacts* facts, std::optional<SnapshotId> snapshot, LeafToken* token) {
  co_return co_await WithCopy<Value>(session, router, key, context, [=](uint16_t copy) {
    return GetOnce(session, router, key, copy, context, facts, snapshot, token);
  });
}

Task<Attempt<SnapshotAnswer>> SnapshotHere(Session* session, KeyRouter* router, SnapshotCall request,
                                           CallContext context) {
  const std::string head =
      MakeSnapshotRequest(router->root(), request.step, request.id, request.from, request.to, request.kept_ms);
  const size_t room = std::max(ReplyRoom(session), sizeof(SnapshotReply) + KeyBytesMax(session->node_bytes()));
  const Attempt<ConstBytes> reply = co_await CallOnce(session, router, head, {}, room, context, Feedback::kNothing);
  if (!reply.ok()) co_return ReadFailed<SnapshotAnswer>(router, reply.status());
  if (!reply->has_value()) co_return std::nullopt;
  const absl::StatusOr<Parsed<SnapshotReply>> parsed = ParseSnapshotReply(**reply);
  if (!parsed.ok()) co_return parsed.status();
  const std::string_view end = parsed->key;
  if (!end.empty() && (end <= request.from || end.size() > KeyBytesMax(session->node_bytes()))) {
    co_return absl::DataLossError("a region's reply about a snapshot ends before the key that was asked for");
  }
  co_return SnapshotAnswer{parsed->fixed.state, std::string(end)};
}

Task<Attempt<std::string>> EvaluateByCall(Session* session, KeyRouter* router, std::string_view key,
                                          const FunctionCall& function, CallContext context) {
  co_return co_await WithCopy<std::string>(session, router, key, context,
                                           [session, router, key, &function, context](uint16_t copy) {
                                             return EvaluateOnce(session, router, key, function, copy, context);
                                           });
}

Task<ServerTime::Life> LifeAt(Session* session, WorkerConnection* worker, Expiry expiry, CallContext context) {
  const ServerTime::Life known = worker->time.At(context.started_ns, expiry);
  if (known != ServerTime::Life::kUndecided) co_return known;
  const std::string request = MakeTextRequest(MessageKind::kTime);
  const OutgoingCall call{.head = request, .reply_bytes_max = kReplyBytesMin, .deadline_ns = context.deadline_ns};
  const int64_t sent_ns = session->NowNs();
  const absl::StatusOr<ConstBytes> reply = co_await session->connections()->Call(worker, call);
  const absl::StatusOr<TimeReply> time = reply.ok() ? ParseTimeReply(*reply) : reply.status();
  if (!time.ok()) co_return ServerTime::Life::kUndecided;
  worker->time.Set(time->time_ns, sent_ns, session->NowNs());
  co_return worker->time.At(context.started_ns, expiry);
}

namespace {

Task<Attempt<SearchResult>> SearchByCall(Session* session, KeyRouter* router, std::string_view key,
                                         CallContext context) {
  const std::string request = MakeKeyRequest(MessageKind::kSearch, router->root(), {}, key);
  const size_t room = std::max(ReplyRoom(session), sizeof(SearchReply) + sizeof(PairLife));
  const Attempt<ConstBytes> reply = co_await CallOnce(session, router, request, {}, room, context);
  if (!reply.ok()) co_return ReadFailed<SearchResult>(router, reply.status());
  if (!reply->has_value()) co_return std::nullopt;
  const absl::StatusOr<SearchResult> search = ParseSearchReply(**reply);
  if (!search.ok()) co_return search.status();
  co_return *search;
}

}  // namespace

Task<Attempt<bool>> ContainsByCall(Session* session, KeyRouter* router, std::string_view key, CallContext context) {
  const Attempt<SearchResult> search = co_await SearchByCall(session, router, key, context);
  if (!search.ok()) co_return search.status();
  if (!search->has_value()) co_return std::nullopt;
  co_return (*search)->found;
}

Task<Attempt<TimeLeft>> TimeLeftByCall(Session* session, KeyRouter* router, std::string_view key, CallContext context) {
  const Attempt<SearchResult> search = co_await SearchByCall(session, router, key, context);
  if (!search.ok()) co_return search.status();
  if (!search->has_value()) co_return std::nullopt;
  const PairLife life = (*search)->life;
  if (!(*search)->found) co_return TimeLeft();
  if (life.expiry == kNeverExpires) co_return TimeLeft(INT64_MAX);
  if (life.expiry > kExpiryMax) co_return absl::DataLossError("a search's reply has an impossible expiry");
  // The server has searched a moment before it told the time.
  if (life.expiry <= life.time_ns) co_return TimeLeft();
  co_return TimeLeft(static_cast<int64_t>(life.expiry - life.time_ns));
}

namespace {

MessageKind KindOf(const KeyWrite& write) {
  if (write.condition.has_value()) return MessageKind::kWriteIf;
  if (write.function.has_value()) return MessageKind::kApply;
  return write.value.has_value() ? MessageKind::kPut : MessageKind::kDelete;
}

// Returns the request without the value, which follows unless it was uploaded.
std::string MakeWriteRequest(Pointer root, Pointer hint, const KeyWrite& write, uint16_t upload) {
  if (!write.value.has_value() && !write.condition.has_value()) {
    return MakeKeyRequest(MessageKind::kDelete, root, hint, write.key);
  }
  const std::string_view value = write.value.value_or("");
  const auto value_bytes = static_cast<uint32_t>(value.size());
  if (write.function.has_value()) {
    return MakeFunctionRequest(MessageKind::kApply, root,
                               {write.key, *write.function, value_bytes, upload, 0, write.id, write.again});
  }
  const uint64_t crc = write.value.has_value() ? Crc64(value, Crc64(write.key)) : 0;
  if (!write.condition.has_value()) {
    return MakePutRequest(root, hint, crc, write.key, value_bytes, upload, write.expires);
  }
  ConditionalWrite conditional{write.key, *write.condition, std::nullopt, crc, write.expires, upload};
  if (write.value.has_value()) conditional.value_bytes = value_bytes;
  return MakeWriteIfRequest(root, hint, conditional);
}

// Returns the result in the reply to a write.
template <typename Result>
absl::StatusOr<Result> ParseWritten(ConstBytes bytes, MessageKind kind) {
  if constexpr (std::is_same_v<Result, bool>) {
    ASSIGN_OR_RETURN(const WriteReply written, ParseWriteReply(bytes, kind));
    return written.existed != 0;
  } else if constexpr (std::is_same_v<Result, Applied>) {
    ASSIGN_OR_RETURN(const Parsed<FunctionReply> reply, ParseFunctionReply(bytes, kind));
    const FunctionReply& fixed = reply.fixed;
    if (fixed.inlined == 0) return absl::DataLossError("a function's reply lacks its result");
    return Applied{
        {(fixed.flags & kValueChanged) != 0, (fixed.flags & kKeyExisted) != 0, fixed.stamp, std::string(reply.value)},
        (fixed.flags & kUntimely) != 0};
  } else {
    ASSIGN_OR_RETURN(const WriteIfReply written, ParseWriteIfReply(bytes));
    return WriteIfResult{written.applied != 0, written.existed != 0, written.stamp};
  }
}

}  // namespace

template <typename Result>
Task<Attempt<Result>> WriteHere(Session* session, KeyRouter* router, KeyWrite write, Pointer hint,
                                CallContext context) {
  if (session->closed()) co_return ClientLoop::Closed();
  WorkerConnection* const worker = router->worker();
  const MessageKind kind = KindOf(write);
  uint16_t upload = 0;
  std::string_view body = write.value.value_or("");
  const size_t condition_bytes =
      write.condition.has_value() ? sizeof(WriteIfRequest) + write.condition->value.size() : sizeof(PutRequest);
  const size_t others_bytes = condition_bytes + write.function.value_or("").size();
  if (others_bytes + write.key.size() + body.size() > kMessageBytesMax) {
    const absl::StatusOr<uint16_t> uploaded = co_await Upload(session, worker, body, context.deadline_ns);
    if (!uploaded.ok()) co_return ReadFailed<Result>(router, uploaded.status());
    upload = *uploaded;
    body = {};
  }
  const std::string request = MakeWriteRequest(router->root(), hint, write, upload);
  // All writes to a table, and all functions, are calls, so there is nothing to learn.
  const bool only_calls = router->in_table() || write.function.has_value();
  const Feedback::Learn learn = only_calls ? Feedback::kNothing : hint.null() ? Feedback::kTime : Feedback::kRest;
  const OutgoingCall call{
      .head = request, .body = body, .reply_bytes_max = ReplyRoom(session), .deadline_ns = context.deadline_ns};
  const absl::StatusOr<ConstBytes> reply =
      co_await session->connections()->Call(worker, call, {router->selector(), learn});
  const auto parse = [kind](ConstBytes bytes) { return ParseWritten<Result>(bytes, kind); };
  absl::Status refused;  // The reply must be read before this suspends.
  Attempt<Result> result = TakeAnswer<Result>(router, write.key, kind, reply, parse, &refused);
  if (!refused.ok()) refused = co_await PauseRefused(session, router, refused, context.deadline_ns);
  if (!refused.ok()) result = refused;
  if (upload != 0) session->connections()->GiveNumber(worker, upload);
  co_return result;
}

template Task<Attempt<bool>> WriteHere(Session*, KeyRouter*, KeyWrite, Pointer, CallContext);
template Task<Attempt<WriteIfResult>> WriteHere(Session*, KeyRouter*, KeyWrite, Pointer, CallContext);
template Task<Attempt<Applied>> WriteHere(Session*, KeyRouter*, KeyWrite, Pointer, CallContext);

Task<Attempt<RangeSlice>> CountHere(Session* session, KeyRouter* router, std::string_view from, std::string_view to,
                                    CallContext context) {
  const std::string request = MakeRangeRequest(MessageKind::kCount, router->root(), from, to);
  const Attempt<ConstBytes> reply =
      co_await CallOnce(session, router, request, {}, ReplyRoom(session), context, Feedback::kNothing);
  if (!reply.ok()) co_return ReadFailed<RangeSlice>(router, reply.status());
  if (!reply->has_value()) co_return std::nullopt;
  absl::StatusOr<RangeSlice> slice =
      ParseSlice(**reply, MessageKind::kCount, from, to, KeyBytesMax(session->node_bytes()));
  if (!slice.ok()) co_return slice.status();
  co_return *std::move(slice);
}

Task<Attempt<RangeSlice>> DeleteRangeHere(Session* session, KeyRouter* router, std::string_view from,
                                          std::string_view to, CallContext context) {
  const auto kind = MessageKind::kDeleteRange;
  const std::string request = MakeRangeRequest(kind, router->root(), from, to);
  const OutgoingCall call{.head = request, .reply_bytes_max = ReplyRoom(session), .deadline_ns = context.deadline_ns};
  const absl::StatusOr<ConstBytes> reply = co_await session->connections()->Call(router->worker(), call);
  const auto parse = [&](ConstBytes bytes) {
    return ParseSlice(bytes, kind, from, to, KeyBytesMax(session->node_bytes()));
  };
  absl::Status refused;
  Attempt<RangeSlice> result = TakeAnswer<RangeSlice>(router, from, kind, reply, parse, &refused);
  if (!refused.ok()) refused = co_await PauseRefused(session, router, refused, context.deadline_ns);
  if (!refused.ok()) result = refused;
  co_return result;
}

bool IsMaybeApplied(const absl::Status& status) {
  return absl::IsUnknown(status) || (absl::IsCancelled(status) && absl::StartsWith(status.message(), kMaybeApplied));
}

}  // namespace cell
