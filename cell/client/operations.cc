// Get, Contains, Put, Delete as coroutines.
#include <algorithm>

#include "cell/base/crc64.h"
#include "cell/client/way.h"
#include "fmt/format.h"

namespace cell {
namespace {

// How often an operation goes back to the leaf because what the leaf said had changed meanwhile.
constexpr int kAttemptsMax = 64;
constexpr int64_t kRefusedPauseNs = 5'000'000;
// Of one MultiGet.
constexpr size_t kGetsAtOnce = 256;

absl::Status CheckKey(std::string_view key, size_t key_bytes_max) {
  if (key.empty()) return absl::InvalidArgumentError("a key has at least one byte");
  if (key.size() > key_bytes_max) {
    return absl::InvalidArgumentError(fmt::format(
        "key {} is longer than {} bytes, the most that this cluster's nodes take", ForMessage(key), key_bytes_max));
  }
  return absl::OkStatus();
}

absl::Status KeepsChanging(std::string_view key) {
  return absl::UnavailableError(fmt::format("{} changed {} times while it was read", ForMessage(key), kAttemptsMax));
}

// The status of a write whose answer did not come.
absl::Status WriteOutcome(const absl::Status& status, std::string_view key) {
  if (status.code() != absl::StatusCode::kUnknown && status.code() != absl::StatusCode::kDeadlineExceeded)
    return status;
  return absl::UnknownError(fmt::format("MaybeApplied: the write of {} was sent and no answer came ({})",
                                        ForMessage(key), std::string(status.message())));
}

// A connection lost during a read is no more than that.
absl::Status ReadOutcome(absl::Status status) {
  if (status.code() != absl::StatusCode::kUnknown) return status;
  return absl::UnavailableError(std::string(status.message()));
}

// What a short answer needs room for, if it is a route.
size_t ReplyRoom(Session* session) {
  return std::max(kReplyBytesMin, RouteReplyBytes(KeyBytesMax(session->node_bytes())));
}

// Whether a status means that the worker asked is not there (any more): the region table may know a better one.
bool LostServer(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kUnknown;
}

using Value = std::optional<std::string>;

// What a step on the way gave: the result, or that the way goes on elsewhere (it has been told).
template <typename T>
using Maybe = absl::StatusOr<std::optional<T>>;

// ---- One-sided.

// A client-side search of the meganode that the way is at. True: to->leaf is the key's leaf. False: the way goes on
// elsewhere.
Task<absl::StatusOr<bool>> Search(Session* session, Way* way, std::string_view key, CallContext context,
                                  WalkedLeaf* to) {
  ServerConnection* const server = way->server();
  Walk walk(key, way->root());
  int reads = 0;
  const absl::StatusOr<Walk::Step> step = co_await session->WalkToLeaf(server, &walk, way->may_use_cache(), to,
                                                                       context.deadline_ns, &server->searches, &reads);
  if (!step.ok()) {
    if (!LostServer(step.status())) co_return step.status();
    if (absl::Status status = way->Lose(); !status.ok()) co_return status;
    co_return false;
  }
  server->searches.ObserveReads(reads);
  if (*step == Walk::Step::kArrived) co_return true;
  if (absl::Status status = way->Follow(walk, *step); !status.ok()) co_return status;
  co_return false;
}

Task<Maybe<Value>> GetByReads(Session* session, Way* way, std::string_view key, CallContext context) {
  WalkedLeaf walked(session);
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    const absl::StatusOr<bool> here = co_await Search(session, way, key, context, &walked);
    if (!here.ok()) co_return here.status();
    if (!*here) co_return std::nullopt;
    const std::optional<int> found = walked.leaf.Find(key);
    if (!found.has_value()) {
      if (session->Leased()) co_return Value();
      (void)way->Lose();
      co_return std::nullopt;
    }
    const LeafSlot slot = walked.leaf.leaf_slot(*found);
    const auto bytes = static_cast<uint32_t>(RoundUp(slot.extent_bytes, kWordBytes));
    if (slot.extent_bytes < key.size() || slot.extent_bytes > key.size() + kValueBytesMax) {
      co_return absl::DataLossError(fmt::format("the leaf gives {} an impossible size", ForMessage(key)));
    }
    // The leaf's buffer serves for a small extent: the slot was copied.
    std::unique_ptr<std::byte[]> large;
    std::byte* to = walked.buffer.data();
    if (bytes > NodeBuffer::size()) to = (large = std::make_unique<std::byte[]>(bytes)).get();
    const ReadPart part{slot.extent, to, bytes};
    ++session->metrics()->extent_reads;
    const absl::Status status = co_await session->Read(way->server(), {&part, 1});
    if (status.ok()) {
      const std::string_view extent = AsText(ConstBytes(to, slot.extent_bytes));
      if (Crc64(extent) == slot.crc && extent.substr(0, key.size()) == key) {
        if (!session->Leased()) {
          (void)way->Lose();
          co_return std::nullopt;
        }
        co_return Value(std::string(extent.substr(key.size())));
      }
    } else if (LostServer(status)) {
      (void)way->Lose();
      co_return std::nullopt;
    } else if (status.code() != absl::StatusCode::kOutOfRange) {
      co_return status;
    }
    ++session->metrics()->extent_retries;  // Replaced since the leaf was read: the leaf says where it is now.
    if (session->now_ns() > context.deadline_ns) co_return absl::DeadlineExceededError("get took too long");
  }
  co_return KeepsChanging(key);
}

// ---- By the server.

// Sends a request that names the way's meganode. Nothing: the way goes on elsewhere. The reply is valid until the
// caller suspends.
Task<Maybe<ConstBytes>> Ask(Session* session, Way* way, std::string_view head, std::string_view body,
                            size_t reply_bytes_max, CallContext context) {
  const int64_t asked_ns = session->now_ns();
  ServerConnection* const server = way->server();
  const absl::StatusOr<ConstBytes> reply =
      co_await session->Call(server, head, body, reply_bytes_max, context.deadline_ns);
  if (!reply.ok()) co_return reply.status();
  server->searches.ObserveServer(session->now_ns() - asked_ns);
  if (!IsRoute(*reply)) co_return *reply;
  const absl::StatusOr<RouteView> route = ParseRouteReply(*reply);
  if (!route.ok()) co_return route.status();
  if (absl::Status status = way->Follow(*route); !status.ok()) co_return status;
  co_return std::nullopt;
}

// Of a read: a lost server is looked for again.
template <typename T>
Maybe<T> ReadFailed(Way* way, const absl::Status& status) {
  if (!LostServer(status)) return status;
  (void)way->Lose();
  return std::nullopt;
}

Task<Maybe<Value>> GetByCall(Session* session, Way* way, std::string_view key, CallContext context) {
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    const std::string request = MakeKeyRequest(MessageKind::kGet, way->root(), {}, key);
    const Maybe<ConstBytes> reply =
        co_await Ask(session, way, request, {}, sizeof(GetReply) + kInlineValueBytesMax, context);
    if (!reply.ok()) co_return ReadFailed<Value>(way, reply.status());
    if (!reply->has_value()) co_return std::nullopt;
    const absl::StatusOr<Parsed<GetReply>> get = ParseGetReply(**reply);
    if (!get.ok()) co_return get.status();
    if (get->fixed.found == 0) co_return Value();
    if (get->fixed.inlined != 0) {
      if (Crc64(get->value, Crc64(key)) != get->fixed.crc)
        co_return absl::DataLossError(fmt::format("the server's value of {} has a wrong CRC", ForMessage(key)));
      co_return Value(std::string(get->value));
    }
    // Too large for the reply: in messages of its own (the thesis, 6.6.2).
    const GetReply where = get->fixed;
    const size_t bytes = key.size() + where.value_bytes;
    std::string extent;
    extent.reserve(bytes);
    bool there = true;
    while (there && extent.size() < bytes) {
      const size_t piece = std::min(bytes - extent.size(), (kMessageBytesMax - sizeof(ReplyHeader)) / 8 * 8);
      const std::string fetch =
          MakeFetchRequest(Pointer(where.extent.region(), where.extent.offset() + extent.size()), piece);
      const absl::StatusOr<ConstBytes> answer =
          co_await session->Call(way->server(), fetch, {}, kMessageBytesMax, context.deadline_ns);
      if (!answer.ok()) co_return ReadFailed<Value>(way, answer.status());
      const absl::StatusOr<ConstBytes> piece_bytes = ParseBytesReply(*answer, MessageKind::kFetch);
      if (piece_bytes.status().code() == absl::StatusCode::kOutOfRange) {
        there = false;  // The region has moved since.
        continue;
      }
      if (!piece_bytes.ok()) co_return piece_bytes.status();
      if (piece_bytes->size() != piece) co_return absl::DataLossError("a fetch returned another size than asked for");
      extent.append(AsText(*piece_bytes));
    }
    if (there && Crc64(extent) == where.crc && extent.compare(0, key.size(), key) == 0) {
      co_return Value(extent.substr(key.size()));
    }
    ++session->metrics()->extent_retries;
  }
  co_return KeepsChanging(key);
}

Task<Maybe<bool>> ContainsByCall(Session* session, Way* way, std::string_view key, CallContext context) {
  const std::string request = MakeKeyRequest(MessageKind::kSearch, way->root(), {}, key);
  const size_t room = ReplyRoom(session);
  const Maybe<ConstBytes> reply = co_await Ask(session, way, request, {}, room, context);
  if (!reply.ok()) co_return ReadFailed<bool>(way, reply.status());
  if (!reply->has_value()) co_return std::nullopt;
  const absl::StatusOr<SearchReply> search = ParseSearchReply(**reply);
  if (!search.ok()) co_return search.status();
  co_return search->found != 0;
}

Task<Maybe<bool>> ContainsByReads(Session* session, Way* way, std::string_view key, CallContext context) {
  WalkedLeaf walked(session);
  const absl::StatusOr<bool> here = co_await Search(session, way, key, context, &walked);
  if (!here.ok()) co_return here.status();
  if (!*here) co_return std::nullopt;
  if (!session->Leased()) {
    (void)way->Lose();
    co_return std::nullopt;
  }
  co_return walked.leaf.Find(key).has_value();
}

// A large value goes ahead in pieces; returns the upload's number.
Task<absl::StatusOr<uint16_t>> Upload(Session* session, ServerConnection* server, std::string_view value,
                                      int64_t deadline_ns) {
  const uint16_t upload = co_await session->TakeUpload(server);
  for (size_t at = 0; at < value.size(); at += kUploadPartBytesMax) {
    const std::string_view part = value.substr(at, kUploadPartBytesMax);
    const std::string head = MakeUploadRequest(upload, static_cast<uint32_t>(at), static_cast<uint32_t>(part.size()));
    const absl::StatusOr<ConstBytes> reply = co_await session->Call(server, head, part, kReplyBytesMin, deadline_ns);
    absl::Status status = reply.ok() ? ParseBytesReply(*reply, MessageKind::kUpload).status() : reply.status();
    if (!status.ok()) {
      session->GiveUpload(server, upload);
      co_return ReadOutcome(status);  // Nothing was written yet.
    }
  }
  co_return upload;
}

// One try of a write at the meganode that the way is at: a put, or without `value` a delete.
Task<Maybe<bool>> WriteHere(Session* session, Way* way, std::string_view key, std::optional<std::string_view> value,
                            CallContext context) {
  ServerConnection* const server = way->server();
  Pointer hint;  // The leaf, if this client finds it by reads.
  if (session->ChoosePath(&server->searches, context) == Path::kClient) {
    WalkedLeaf walked(session);
    const absl::StatusOr<bool> here = co_await Search(session, way, key, context, &walked);
    if (!here.ok()) co_return ReadOutcome(here.status());
    if (!*here) co_return std::nullopt;
    hint = walked.leaf.self();
  }
  const MessageKind kind = value.has_value() ? MessageKind::kPut : MessageKind::kDelete;
  uint16_t upload = 0;
  std::string request;
  std::string_view body;
  if (value.has_value()) {
    if (sizeof(PutRequest) + key.size() + value->size() > kMessageBytesMax) {
      const absl::StatusOr<uint16_t> uploaded = co_await Upload(session, server, *value, context.deadline_ns);
      if (!uploaded.ok()) co_return ReadFailed<bool>(way, uploaded.status());
      upload = *uploaded;
    } else {
      body = *value;
    }
    request =
        MakePutRequest(way->root(), hint, Crc64(*value, Crc64(key)), key, static_cast<uint32_t>(value->size()), upload);
  } else {
    request = MakeKeyRequest(kind, way->root(), hint, key);
  }
  const int64_t asked_ns = session->now_ns();
  const size_t room = ReplyRoom(session);
  const absl::StatusOr<ConstBytes> reply = co_await session->Call(server, request, body, room, context.deadline_ns);
  // What follows reads the reply before it suspends.
  Maybe<bool> result = std::nullopt;
  if (!reply.ok()) {
    // Unavailable: it was never sent, and may be sent elsewhere.
    result = reply.status().code() == absl::StatusCode::kUnavailable ? ReadFailed<bool>(way, reply.status())
                                                                     : WriteOutcome(reply.status(), key);
  } else if (IsRoute(*reply)) {
    const absl::StatusOr<RouteView> route = ParseRouteReply(*reply);
    const absl::Status status = route.ok() ? way->Follow(*route) : route.status();
    if (!status.ok()) result = status;
  } else {
    if (hint.null()) server->searches.ObserveServer(session->now_ns() - asked_ns);
    const absl::StatusOr<WriteReply> written = ParseWriteReply(*reply, kind);
    if (written.ok()) {
      result = written->existed != 0;
    } else if (written.status().code() == absl::StatusCode::kUnavailable &&
               session->now_ns() + kRefusedPauseNs < context.deadline_ns) {
      // Nothing was written, because of something that passes: its lease has lapsed, or the region is moving.
      co_await session->SleepUntil(session->now_ns() + kRefusedPauseNs);
    } else {
      result = written.status();
    }
  }
  if (upload != 0) session->GiveUpload(server, upload);
  co_return result;
}

// ---- All the way: from meganode to meganode until one has the key's place.

template <typename T, typename Here>
Task<absl::StatusOr<T>> Operate(Session* session, std::string_view key, CallContext context, Here here) {
  absl::Status status = CheckKey(key, KeyBytesMax(session->node_bytes()));
  if (!status.ok()) co_return status;
  // What is read by a table that is too old would have to be read again.
  if (context.path == Path::kClient && context.started_ns > session->LeaseUntilNs()) {
    co_await session->Refresh(context.deadline_ns);
    if (session->fabric()->NowNs() >= context.deadline_ns) {
      co_return absl::UnavailableError("the region table could not be asked for in time");
    }
  }
  Way way(session, key, context);
  for (;;) {
    if (way.server() == nullptr) {
      status = co_await way.Find();
      if (!status.ok()) co_return status;
    }
    Maybe<T> result = co_await here(&way);
    if (!result.ok()) co_return result.status();
    if (result->has_value()) co_return **std::move(result);
    if (session->now_ns() > context.deadline_ns) {
      co_return absl::DeadlineExceededError(fmt::format("no way to {} in time", ForMessage(key)));
    }
  }
}

}  // namespace

bool IsMaybeApplied(const absl::Status& status) { return status.code() == absl::StatusCode::kUnknown; }

Task<absl::StatusOr<Value>> Client::AsyncGet(std::string_view key, CallOptions options) {
  Session* session = session_.get();
  const CallContext context = session->Begin(options);
  absl::StatusOr<Value> value = co_await Operate<Value>(session, key, context, [session, key, context](Way* way) {
    return session->ChoosePath(&way->server()->searches, context) == Path::kServer
               ? GetByCall(session, way, key, context)
               : GetByReads(session, way, key, context);
  });
  if (!value.ok()) value = ReadOutcome(value.status());
  session->End(context, value.status());
  co_return value;
}

Task<absl::StatusOr<std::vector<Value>>> Client::AsyncMultiGet(absl::Span<const std::string_view> keys,
                                                               CallOptions options) {
  std::vector<Task<absl::StatusOr<Value>>> gets;
  std::vector<Value> values;
  absl::Status status;
  gets.reserve(keys.size());
  values.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    for (; gets.size() < std::min(keys.size(), i + kGetsAtOnce); gets.back().Start()) {
      gets.push_back(AsyncGet(keys[gets.size()], options));
    }
    absl::StatusOr<Value> value = co_await gets[i].Join();  // All that were started must end.
    if (value.ok()) {
      values.push_back(*std::move(value));
    } else if (status.ok()) {
      status = value.status();
    }
  }
  if (!status.ok()) co_return status;
  co_return values;
}

Task<absl::StatusOr<bool>> Client::AsyncContains(std::string_view key, CallOptions options) {
  Session* session = session_.get();
  const CallContext context = session->Begin(options);
  absl::StatusOr<bool> found = co_await Operate<bool>(session, key, context, [session, key, context](Way* way) {
    return session->ChoosePath(&way->server()->searches, context) == Path::kServer
               ? ContainsByCall(session, way, key, context)
               : ContainsByReads(session, way, key, context);
  });
  if (!found.ok()) found = ReadOutcome(found.status());
  session->End(context, found.status());
  co_return found;
}

Task<absl::StatusOr<bool>> Client::AsyncPut(std::string_view key, std::string_view value, CallOptions options) {
  Session* session = session_.get();
  const CallContext context = session->Begin(options);
  absl::StatusOr<bool> existed = false;
  if (value.size() > kValueBytesMax) {
    existed = absl::InvalidArgumentError(
        fmt::format("value of {} bytes for key {} is larger than {}", value.size(), ForMessage(key), kValueBytesMax));
  } else {
    existed = co_await Operate<bool>(session, key, context, [session, key, value, context](Way* way) {
      return WriteHere(session, way, key, value, context);
    });
  }
  session->End(context, existed.status());
  co_return existed;
}

Task<absl::StatusOr<bool>> Client::AsyncDelete(std::string_view key, CallOptions options) {
  Session* session = session_.get();
  const CallContext context = session->Begin(options);
  absl::StatusOr<bool> existed = co_await Operate<bool>(session, key, context, [session, key, context](Way* way) {
    return WriteHere(session, way, key, std::nullopt, context);
  });
  session->End(context, existed.status());
  co_return existed;
}

Task<absl::StatusOr<bool>> Client::AsyncRawRead(uint64_t random) {
  Session* session = session_.get();
  const CallContext context = session->Begin({});
  const absl::StatusOr<ServerConnection*> server = co_await session->Connect(session->root().region());
  if (!server.ok()) co_return server.status();
  NodeBuffer buffer(session);
  const uint64_t nodes = session->cluster().shape.meganode_bytes / session->node_bytes();
  const uint64_t node = random % nodes;
  const ReadPart part{Pointer(session->root().region(), kRegionHeaderBytes + node * session->node_bytes()),
                      buffer.data(), session->node_bytes()};
  ++session->metrics()->node_reads;
  const absl::Status status = co_await session->Read(*server, {&part, 1});
  session->End(context, status);
  if (!status.ok()) co_return ReadOutcome(status);
  co_return true;
}

Task<absl::StatusOr<bool>> Client::AsyncRawCall() {
  Session* session = session_.get();
  const CallContext context = session->Begin({});
  const absl::StatusOr<ServerConnection*> server = co_await session->Connect(session->root().region());
  if (!server.ok()) co_return server.status();
  // The cheapest request there is: an empty upload.
  const std::string request = MakeUploadRequest(1, 0, 0);
  const absl::StatusOr<ConstBytes> reply =
      co_await session->Call(*server, request, {}, kReplyBytesMin, context.deadline_ns);
  session->End(context, reply.status());
  if (!reply.ok()) co_return ReadOutcome(reply.status());
  co_return true;
}

}  // namespace cell
