// Get, Contains, Put, Delete as coroutines.
#include <algorithm>

#include "cell/base/crc64.h"
#include "cell/base/status_macros.h"
#include "cell/client/session.h"
#include "fmt/format.h"

namespace cell {
namespace {

// How often an operation goes back to the leaf because what the leaf said had changed meanwhile.
constexpr int kAttemptsMax = 64;

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

// The server to ask for `key`, once the key is seen to be good.
absl::StatusOr<ServerConnection*> Ready(Session* session, std::string_view key) {
  RETURN_IF_ERROR(CheckKey(key, KeyBytesMax(session->node_bytes())));
  return session->Connect(session->root().region());
}

using Value = std::optional<std::string>;

// ---- One-sided.

// A client-side search of the meganode: on success *leaf is the key's leaf, in `buffer`.
Task<absl::Status> Search(Session* session, ServerConnection* server, std::string_view key, CallContext context,
                          NodeBuffer* buffer, NodeView* leaf) {
  Walk walk(key, session->root());
  int reads = 0;
  absl::Status status =
      co_await session->WalkToLeaf(server, &walk, buffer, leaf, context.deadline_ns, &server->searches, &reads);
  if (status.ok()) server->searches.ObserveReads(reads);
  co_return status;
}

Task<absl::StatusOr<Value>> GetByReads(Session* session, ServerConnection* server, std::string_view key,
                                       CallContext context) {
  NodeBuffer buffer(session);
  NodeView leaf;
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    absl::Status status = co_await Search(session, server, key, context, &buffer, &leaf);
    if (!status.ok()) co_return status;
    const std::optional<int> found = leaf.Find(key);
    if (!found.has_value()) co_return Value();
    const LeafSlot slot = leaf.leaf_slot(*found);
    const auto bytes = static_cast<uint32_t>(RoundUp(slot.extent_bytes, kWordBytes));
    if (slot.extent_bytes < key.size() || slot.extent_bytes > key.size() + kValueBytesMax) {
      co_return absl::DataLossError(fmt::format("the leaf gives {} an impossible size", ForMessage(key)));
    }
    // The leaf's buffer serves for a small extent: the slot was copied.
    std::unique_ptr<std::byte[]> large;
    std::byte* to = buffer.data();
    if (bytes > NodeBuffer::size()) to = (large = std::make_unique<std::byte[]>(bytes)).get();
    const ReadPart part{slot.extent, to, bytes};
    ++session->metrics()->extent_reads;
    status = co_await session->Read(server, {&part, 1});
    if (!status.ok()) co_return status;
    const std::string_view extent = AsText(ConstBytes(to, slot.extent_bytes));
    if (Crc64(extent) == slot.crc && extent.substr(0, key.size()) == key) {
      co_return Value(std::string(extent.substr(key.size())));
    }
    ++session->metrics()->extent_retries;  // Replaced since the leaf was read: the leaf says where it is now.
    if (session->now_ns() > context.deadline_ns) co_return absl::DeadlineExceededError("get took too long");
  }
  co_return KeepsChanging(key);
}

// ---- By the server.

Task<absl::StatusOr<Value>> GetByCall(Session* session, ServerConnection* server, std::string_view key,
                                      CallContext context) {
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    const int64_t asked_ns = session->now_ns();
    const std::string request = MakeKeyRequest(MessageKind::kGet, session->root(), {}, key);
    const absl::StatusOr<ConstBytes> reply =
        co_await session->Call(server, request, {}, sizeof(GetReply) + kInlineValueBytesMax, context.deadline_ns);
    if (!reply.ok()) co_return reply.status();
    server->searches.ObserveServer(session->now_ns() - asked_ns);
    const absl::StatusOr<Parsed<GetReply>> get = ParseGetReply(*reply);
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
    while (extent.size() < bytes) {
      const size_t piece = std::min(bytes - extent.size(), (kMessageBytesMax - sizeof(ReplyHeader)) / 8 * 8);
      const std::string fetch =
          MakeFetchRequest(Pointer(where.extent.region(), where.extent.offset() + extent.size()), piece);
      const absl::StatusOr<ConstBytes> answer =
          co_await session->Call(server, fetch, {}, kMessageBytesMax, context.deadline_ns);
      if (!answer.ok()) co_return answer.status();
      const absl::StatusOr<ConstBytes> piece_bytes = ParseBytesReply(*answer, MessageKind::kFetch);
      if (!piece_bytes.ok()) co_return piece_bytes.status();
      if (piece_bytes->size() != piece) co_return absl::DataLossError("a fetch returned another size than asked for");
      extent.append(AsText(*piece_bytes));
    }
    if (Crc64(extent) == where.crc && extent.compare(0, key.size(), key) == 0) {
      co_return Value(extent.substr(key.size()));
    }
    ++session->metrics()->extent_retries;
  }
  co_return KeepsChanging(key);
}

Task<absl::StatusOr<bool>> ContainsByCall(Session* session, ServerConnection* server, std::string_view key,
                                          CallContext context) {
  const int64_t asked_ns = session->now_ns();
  const std::string request = MakeKeyRequest(MessageKind::kSearch, session->root(), {}, key);
  const absl::StatusOr<ConstBytes> reply =
      co_await session->Call(server, request, {}, kReplyBytesMin, context.deadline_ns);
  if (!reply.ok()) co_return reply.status();
  server->searches.ObserveServer(session->now_ns() - asked_ns);
  const absl::StatusOr<SearchReply> search = ParseSearchReply(*reply);
  if (!search.ok()) co_return search.status();
  co_return search->found != 0;
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

// The leaf that a write goes to, as a hint for the server: found by reads, or null.
Task<absl::StatusOr<Pointer>> FindHint(Session* session, ServerConnection* server, std::string_view key,
                                       CallContext context) {
  if (session->ChoosePath(&server->searches, context) == Path::kServer) co_return Pointer();
  NodeBuffer buffer(session);
  NodeView leaf;
  const absl::Status status = co_await Search(session, server, key, context, &buffer, &leaf);
  if (!status.ok()) co_return ReadOutcome(status);
  co_return leaf.self();
}

Task<absl::StatusOr<bool>> PutOnce(Session* session, std::string_view key, std::string_view value,
                                   CallContext context) {
  if (value.size() > kValueBytesMax) {
    co_return absl::InvalidArgumentError(
        fmt::format("value of {} bytes for key {} is larger than {}", value.size(), ForMessage(key), kValueBytesMax));
  }
  const absl::StatusOr<ServerConnection*> server = Ready(session, key);
  if (!server.ok()) co_return server.status();
  const absl::StatusOr<Pointer> hint = co_await FindHint(session, *server, key, context);
  if (!hint.ok()) co_return hint.status();
  const uint64_t crc = Crc64(value, Crc64(key));
  uint16_t upload = 0;
  if (sizeof(PutRequest) + key.size() + value.size() > kMessageBytesMax) {
    const absl::StatusOr<uint16_t> uploaded = co_await Upload(session, *server, value, context.deadline_ns);
    if (!uploaded.ok()) co_return uploaded.status();
    upload = *uploaded;
  }
  const int64_t asked_ns = session->now_ns();
  const std::string request =
      MakePutRequest(session->root(), *hint, crc, key, static_cast<uint32_t>(value.size()), upload);
  const absl::StatusOr<ConstBytes> reply = co_await session->Call(
      *server, request, upload == 0 ? value : std::string_view(), kReplyBytesMin, context.deadline_ns);
  absl::StatusOr<WriteReply> written = absl::UnknownError("");
  if (reply.ok()) written = ParseWriteReply(*reply, MessageKind::kPut);
  if (upload != 0) session->GiveUpload(*server, upload);
  if (!reply.ok()) co_return WriteOutcome(reply.status(), key);
  if (!written.ok()) co_return written.status();
  if (hint->null()) (*server)->searches.ObserveServer(session->now_ns() - asked_ns);
  co_return written->existed != 0;
}

Task<absl::StatusOr<bool>> DeleteOnce(Session* session, std::string_view key, CallContext context) {
  const absl::StatusOr<ServerConnection*> server = Ready(session, key);
  if (!server.ok()) co_return server.status();
  const absl::StatusOr<Pointer> hint = co_await FindHint(session, *server, key, context);
  if (!hint.ok()) co_return hint.status();
  const int64_t asked_ns = session->now_ns();
  const std::string request = MakeKeyRequest(MessageKind::kDelete, session->root(), *hint, key);
  const absl::StatusOr<ConstBytes> reply =
      co_await session->Call(*server, request, {}, kReplyBytesMin, context.deadline_ns);
  if (!reply.ok()) co_return WriteOutcome(reply.status(), key);
  const absl::StatusOr<WriteReply> written = ParseWriteReply(*reply, MessageKind::kDelete);
  if (!written.ok()) co_return written.status();
  if (hint->null()) (*server)->searches.ObserveServer(session->now_ns() - asked_ns);
  co_return written->existed != 0;
}

}  // namespace

bool IsMaybeApplied(const absl::Status& status) { return status.code() == absl::StatusCode::kUnknown; }

Task<absl::StatusOr<Value>> Client::AsyncGet(std::string_view key, CallOptions options) {
  Session* session = session_.get();
  const CallContext context = session->Begin(options);
  absl::StatusOr<Value> value = Value();
  const absl::StatusOr<ServerConnection*> server = Ready(session, key);
  if (!server.ok()) {
    value = server.status();
  } else if (session->ChoosePath(&(*server)->searches, context) == Path::kServer) {
    value = co_await GetByCall(session, *server, key, context);
  } else {
    value = co_await GetByReads(session, *server, key, context);
  }
  if (!value.ok()) value = ReadOutcome(value.status());
  session->End(context, value.status());
  co_return value;
}

Task<absl::StatusOr<bool>> Client::AsyncContains(std::string_view key, CallOptions options) {
  Session* session = session_.get();
  const CallContext context = session->Begin(options);
  absl::StatusOr<bool> found = false;
  const absl::StatusOr<ServerConnection*> server = Ready(session, key);
  if (!server.ok()) {
    found = server.status();
  } else if (session->ChoosePath(&(*server)->searches, context) == Path::kServer) {
    found = co_await ContainsByCall(session, *server, key, context);
  } else {
    NodeBuffer buffer(session);
    NodeView leaf;
    const absl::Status status = co_await Search(session, *server, key, context, &buffer, &leaf);
    if (status.ok()) {
      found = leaf.Find(key).has_value();
    } else {
      found = status;
    }
  }
  if (!found.ok()) found = ReadOutcome(found.status());
  session->End(context, found.status());
  co_return found;
}

Task<absl::StatusOr<bool>> Client::AsyncPut(std::string_view key, std::string_view value, CallOptions options) {
  const CallContext context = session_->Begin(options);
  absl::StatusOr<bool> existed = co_await PutOnce(session_.get(), key, value, context);
  session_->End(context, existed.status());
  co_return existed;
}

Task<absl::StatusOr<bool>> Client::AsyncDelete(std::string_view key, CallOptions options) {
  const CallContext context = session_->Begin(options);
  absl::StatusOr<bool> existed = co_await DeleteOnce(session_.get(), key, context);
  session_->End(context, existed.status());
  co_return existed;
}

Task<absl::StatusOr<bool>> Client::AsyncRawRead(uint64_t random) {
  Session* session = session_.get();
  const CallContext context = session->Begin({});
  const absl::StatusOr<ServerConnection*> server = session->Connect(session->root().region());
  if (!server.ok()) co_return server.status();
  NodeBuffer buffer(session);
  const uint64_t nodes = session->shape().meganode_bytes / session->node_bytes();
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
  const absl::StatusOr<ServerConnection*> server = session->Connect(session->root().region());
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
