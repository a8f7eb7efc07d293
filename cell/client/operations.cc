// Get, Contains, Put, Delete as coroutines.
#include <algorithm>

#include "cell/base/crc64.h"
#include "cell/base/mutant.h"
#include "cell/client/operate.h"

namespace cell {
namespace {

// Of one MultiGet.
constexpr size_t kGetsAtOnce = 256;

// A client-side search of the meganode that the router is at. True: to->leaf is the key's leaf. False: the search goes
// on elsewhere. `extents`: how many reads will follow.
Task<absl::StatusOr<bool>> Search(Session* session, KeyRouter* router, std::string_view key, CallContext context,
                                  WalkedLeaf* to, int extents = 0) {
  ServerConnection* const server = router->server();
  Walk walk(key, router->root());
  int reads = 0;
  const absl::StatusOr<Walk::Step> step = co_await session->WalkToLeaf(server, &walk, router->may_use_cache(), to,
                                                                       context.deadline_ns, &server->searches, &reads);
  if (!step.ok()) {
    if (!LostServer(step.status())) co_return step.status();
    if (absl::Status status = router->Lose(); !status.ok()) co_return status;
    co_return false;
  }
  server->searches.ObserveReads(reads, extents);
  if (*step == Walk::Step::kArrived) co_return true;
  if (absl::Status status = router->Follow(walk, *step, to->cached); !status.ok()) co_return status;
  co_return false;
}

Task<Maybe<Value>> GetByReads(Session* session, KeyRouter* router, std::string_view key, CallContext context) {
  WalkedLeaf walked(session);
  for (int attempt = 0; attempt < kReadAttemptsMax; ++attempt) {
    const absl::StatusOr<bool> here = co_await Search(session, router, key, context, &walked, /*extents=*/1);
    if (KeptChanging(here.status())) break;
    if (!here.ok()) co_return here.status();
    if (!*here && Mutated(Mutant::kStaleCacheTrusted)) co_return Value();
    if (!*here) co_return std::nullopt;
    const std::optional<int> found = walked.leaf.Find(key);
    if (!found.has_value()) {
      if (session->Leased(router->holder())) co_return Value();
      (void)router->Lose();
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
    const absl::Status status = co_await session->Read(router->server(), {&part, 1}, context.deadline_ns);
    if (status.ok()) {
      const std::string_view extent = AsText(ConstBytes(to, slot.extent_bytes));
      if ((Crc64(extent) == slot.crc || Mutated(Mutant::kNoExtentCrc)) && extent.substr(0, key.size()) == key) {
        if (!session->Leased(router->holder())) {
          (void)router->Lose();
          co_return std::nullopt;
        }
        co_return Value(std::string(extent.substr(key.size())));
      }
    } else if (LostServer(status)) {
      (void)router->Lose();
      co_return std::nullopt;
    } else if (status.code() != absl::StatusCode::kOutOfRange) {
      co_return status;
    }
    ++session->metrics()->extent_retries;  // Replaced since the leaf was read: the leaf says where it is now.
    if (session->now_ns() >= context.deadline_ns) co_return absl::DeadlineExceededError("get took too long");
  }
  // What is written as fast as it is read, its server reads between two writes.
  co_return co_await GetByCall(session, router, key, context);
}

Task<Maybe<bool>> ContainsByReads(Session* session, KeyRouter* router, std::string_view key, CallContext context) {
  WalkedLeaf walked(session);
  const absl::StatusOr<bool> here = co_await Search(session, router, key, context, &walked);
  if (KeptChanging(here.status())) co_return co_await ContainsByCall(session, router, key, context);
  if (!here.ok()) co_return here.status();
  if (!*here) co_return std::nullopt;
  if (!session->Leased(router->holder())) {
    (void)router->Lose();
    co_return std::nullopt;
  }
  co_return walked.leaf.Find(key).has_value();
}

Task<Maybe<bool>> WriteOnTree(Session* session, KeyRouter* router, std::string_view key,
                              std::optional<std::string_view> value, CallContext context) {
  Pointer hint;  // The leaf, if this client finds it by reads.
  if (session->ChoosePath(router->selector(), context) == Path::kClient) {
    WalkedLeaf walked(session);
    const absl::StatusOr<bool> here = co_await Search(session, router, key, context, &walked);
    if (!here.ok() && !KeptChanging(here.status())) co_return ReadOutcome(here.status());
    if (here.ok() && !*here) co_return std::nullopt;
    if (here.ok()) hint = walked.leaf.self();  // Else the server finds it.
  }
  co_return co_await WriteHere(session, router, key, value, hint, context);
}

}  // namespace

Task<absl::StatusOr<Value>> Client::AsyncGet(std::string_view key, CallOptions options) {
  Session* session = session_.get();
  const CallContext context = session->Begin(options);
  absl::StatusOr<Value> value =
      co_await Operate<Value>(session, nullptr, key, context, [session, key, context](KeyRouter* router) {
        return session->ChoosePath(router->selector(), context) == Path::kServer
                   ? GetByCall(session, router, key, context)
                   : GetByReads(session, router, key, context);
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
  absl::StatusOr<bool> found =
      co_await Operate<bool>(session, nullptr, key, context, [session, key, context](KeyRouter* router) {
        return session->ChoosePath(router->selector(), context) == Path::kServer
                   ? ContainsByCall(session, router, key, context)
                   : ContainsByReads(session, router, key, context);
      });
  if (!found.ok()) found = ReadOutcome(found.status());
  session->End(context, found.status());
  co_return found;
}

Task<absl::StatusOr<bool>> Client::AsyncPut(std::string_view key, std::string_view value, CallOptions options) {
  Session* session = session_.get();
  const CallContext context = session->Begin(options);
  absl::StatusOr<bool> existed = false;
  if (const absl::Status status = CheckValue(key, value); !status.ok()) {
    existed = status;
  } else {
    existed = co_await Operate<bool>(session, nullptr, key, context, [session, key, value, context](KeyRouter* router) {
      return WriteOnTree(session, router, key, value, context);
    });
  }
  session->End(context, existed.status());
  co_return existed;
}

Task<absl::StatusOr<bool>> Client::AsyncDelete(std::string_view key, CallOptions options) {
  Session* session = session_.get();
  const CallContext context = session->Begin(options);
  absl::StatusOr<bool> existed = co_await Operate<bool>(
      session, nullptr, key, context,
      [session, key, context](KeyRouter* router) { return WriteOnTree(session, router, key, std::nullopt, context); });
  session->End(context, existed.status());
  co_return existed;
}

Task<absl::StatusOr<bool>> Client::AsyncRawRead(uint64_t random) {
  Session* session = session_.get();
  const CallContext context = session->Begin({});
  const absl::StatusOr<ServerConnection*> server =
      co_await session->Connect(session->root().region(), context.deadline_ns);
  if (!server.ok()) co_return server.status();
  NodeBuffer buffer(session);
  const uint64_t nodes = session->cluster().shape.meganode_bytes / session->node_bytes();
  const uint64_t node = random % nodes;
  const ReadPart part{Pointer(session->root().region(), kRegionHeaderBytes + node * session->node_bytes()),
                      buffer.data(), session->node_bytes()};
  ++session->metrics()->node_reads;
  const absl::Status status = co_await session->Read(*server, {&part, 1}, context.deadline_ns);
  session->End(context, status);
  if (!status.ok()) co_return ReadOutcome(status);
  co_return true;
}

Task<absl::StatusOr<bool>> Client::AsyncRawCall() {
  Session* session = session_.get();
  const CallContext context = session->Begin({});
  const absl::StatusOr<ServerConnection*> server =
      co_await session->Connect(session->root().region(), context.deadline_ns);
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
