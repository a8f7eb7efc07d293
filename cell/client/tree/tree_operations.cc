#include "cell/client/tree/tree_operations.h"

#include <memory>
#include <optional>
#include <string>

#include "cell/base/crc64.h"
#include "cell/base/mutant.h"
#include "cell/client/call/operate.h"
#include "fmt/format.h"

namespace cell {
namespace {

// Searches the meganode that the router is at by reads. Returns true if to->leaf is the key's leaf, and false if the
// search continues elsewhere. If `pair` is not null, sets *pair to the key's pair in that leaf, or to nullopt; its
// value is in the leaf's buffer.
Task<absl::StatusOr<bool>> Search(Session* session, KeyRouter* router, std::string_view key, CallContext context,
                                  WalkedLeaf* to, std::optional<LeafPair>* pair = nullptr) {
  WorkerConnection* const worker = router->worker();
  Walk walk(key, router->root());
  SearchReads reads(worker->selector(context.kind));
  const absl::StatusOr<Walk::Step> step =
      co_await session->tree()->WalkToLeaf(worker, &walk, router->may_use_cache(), to, context.deadline_ns, &reads);
  if (!step.ok()) {
    if (!MayHaveMoved(step.status())) co_return step.status();
    if (absl::Status status = router->Restart(); !status.ok()) co_return status;
    co_return false;
  }
  const bool arrived = *step == Walk::Step::kArrived;
  // A transaction perhaps writes the key. The server knows.
  if (arrived && to->leaf.locked() && !Mutated(Mutant::kLocksUnseen)) co_return absl::AbortedError("");
  if (pair != nullptr) {
    pair->reset();
    const std::optional<int> found = arrived ? to->leaf.Find(key) : std::nullopt;
    if (found.has_value()) *pair = to->leaf.pair(*found);
  }
  const bool outside = pair != nullptr && pair->has_value() && !(*pair)->is_inline;
  reads.End(outside ? 1 : 0);
  if (arrived) co_return true;
  if (absl::Status status = router->Follow(walk, *step, to->cached); !status.ok()) co_return status;
  co_return false;
}

// Sets *facts, if that is not null, to those of the found pair. `token`: see GetFromTree.
Task<Attempt<Value>> GetByReads(Session* session, KeyRouter* router, std::string_view key, CallContext context,
                                PairFacts* facts = nullptr, LeafToken* token = nullptr) {
  WalkedLeaf walked(session->tree()->pool());
  std::optional<LeafPair> pair;
  for (int attempt = 0; attempt < kReadAttemptsMax; ++attempt) {
    const absl::StatusOr<bool> here = co_await Search(session, router, key, context, &walked, &pair);
    if (AsksServer(here.status(), context)) break;
    if (!here.ok()) co_return here.status();
    if (!*here && Mutated(Mutant::kStaleCacheTrusted)) co_return Value();
    if (!*here) co_return std::nullopt;
    const bool expires = pair.has_value() && pair->expiry != kNeverExpires;
    if (expires) {
      const ServerTime::Life life = co_await LifeAt(session, router->worker(), pair->expiry, context);
      if (life == ServerTime::Life::kUndecided) break;
      if (life == ServerTime::Life::kExpired) pair.reset();
    }
    const NodeState leaf = walked.leaf.state();
    const auto note = [&](uint64_t pair_crc) {
      if (token != nullptr && !expires) *token = {router->holder(), leaf, pair_crc};
    };
    if (facts != nullptr && pair.has_value()) *facts = {pair->expiry, pair->stamp};
    if (!pair.has_value() || pair->is_inline) {
      if (session->view()->Leased(router->holder())) {
        if (!pair.has_value()) {
          note(0);
          co_return Value();
        }
        const uint64_t crc = Crc64(pair->value, Crc64(key));
        if (!pair->Matches(crc)) co_return DamagedPair(walked.leaf.self().region(), key);
        note(crc);
        co_return Value(std::string(pair->value));
      }
      (void)router->Restart();
      co_return std::nullopt;
    }
    const auto bytes = static_cast<uint32_t>(RoundUp(pair->pair_bytes(), kWordBytes));
    // The leaf's buffer is used for a small extent, because what the leaf says of it was copied.
    std::unique_ptr<std::byte[]> large;
    std::byte* to = walked.buffer.data();
    if (bytes > NodeBuffer::size()) to = (large = std::make_unique<std::byte[]>(bytes)).get();
    const ReadPart part{pair->outside.extent, to, bytes};
    ++session->metrics()->extent_reads;
    const absl::Status status = co_await session->connections()->ReadExtent(router->worker(), {&part, 1},
                                                                            context.deadline_ns, router->selector());
    if (status.ok()) {
      const std::string_view extent = AsText(ConstBytes(to, pair->pair_bytes()));
      if ((Crc64(extent) == pair->outside.crc || Mutated(Mutant::kNoExtentCrc)) &&
          extent.substr(0, key.size()) == key) {
        if (!session->view()->Leased(router->holder())) {
          (void)router->Restart();
          co_return std::nullopt;
        }
        note(pair->outside.crc);
        co_return Value(std::string(extent.substr(key.size())));
      }
    } else if (MayHaveMoved(status)) {
      (void)router->Restart();
      co_return std::nullopt;
    } else if (AsksServer(status, context)) {
      break;
    } else if (status.code() != absl::StatusCode::kOutOfRange) {
      co_return status;
    }
    ++session->metrics()->extent_retries;  // The extent was replaced since the leaf was read. The leaf has its new
                                           // position.
    if (session->now_ns() >= context.deadline_ns) co_return absl::DeadlineExceededError("the get took too long");
  }
  // Its server can read it between two writes if it is written as fast as it is read, knows whether it has expired, and
  // whether this client may have it.
  co_return co_await GetByCall(session, router, key, context, facts, {}, token);
}

Task<Attempt<std::optional<StampedValue>>> GetStampedHere(Session* session, KeyRouter* router, std::string_view key,
                                                          CallContext context) {
  PairFacts facts;
  Attempt<Value> value;
  if (session->ChoosePath(router->selector(), context) == Path::kServer) {
    value = co_await GetByCall(session, router, key, context, &facts);
  } else {
    value = co_await GetByReads(session, router, key, context, &facts);
  }
  if (!value.ok()) co_return value.status();
  if (!value->has_value()) co_return std::nullopt;
  std::optional<StampedValue> stamped;
  if ((*value)->has_value()) stamped = StampedValue{***std::move(value), facts.stamp};
  co_return stamped;
}

Task<Attempt<bool>> ContainsByReads(Session* session, KeyRouter* router, std::string_view key, CallContext context) {
  WalkedLeaf walked(session->tree()->pool());
  const absl::StatusOr<bool> here = co_await Search(session, router, key, context, &walked);
  if (AsksServer(here.status(), context)) co_return co_await ContainsByCall(session, router, key, context);
  if (!here.ok()) co_return here.status();
  if (!*here) co_return std::nullopt;
  if (!session->view()->Leased(router->holder())) {
    (void)router->Restart();
    co_return std::nullopt;
  }
  const std::optional<int> found = walked.leaf.Find(key);
  const Expiry expiry = found.has_value() ? walked.leaf.pair(*found).expiry : kNeverExpires;
  if (expiry == kNeverExpires) co_return found.has_value();
  const ServerTime::Life life = co_await LifeAt(session, router->worker(), expiry, context);
  if (life == ServerTime::Life::kUndecided) co_return co_await ContainsByCall(session, router, key, context);
  co_return life == ServerTime::Life::kAlive;
}

template <typename Result>
Task<Attempt<Result>> WriteHereByPath(Session* session, KeyRouter* router, KeyWrite write, CallContext context) {
  Pointer hint;  // The leaf, if this client finds it by reads.
  // A write that waits for its log takes the same time with and without a hint, as far as can be seen.
  const bool waits = session->view()->cluster().durability == Durability::kSync;
  if (waits && context.path == Path::kHybrid) context.path = Path::kServer;
  if (session->ChoosePath(router->selector(), context) == Path::kClient) {
    WalkedLeaf walked(session->tree()->pool());
    const absl::StatusOr<bool> here = co_await Search(session, router, write.key, context, &walked);
    if (!here.ok() && !AsksServer(here.status(), context)) co_return ReadOutcome(here.status());
    if (here.ok() && !*here) co_return std::nullopt;
    if (here.ok()) hint = walked.leaf.self();  // Otherwise the server finds it.
  }
  co_return co_await WriteHere<Result>(session, router, write, hint, context);
}

}  // namespace

Task<absl::StatusOr<Value>> GetFromTree(Session* session, std::string_view key, CallOptions options, LeafToken* token) {
  return RunRead<Value>(session, nullptr, OperationKind::kGet, key, options,
                        [session, key, token](KeyRouter* router, const CallContext& context) {
                          if (token != nullptr) *token = LeafToken();  // An earlier attempt may have set it.
                          return session->ChoosePath(router->selector(), context) == Path::kServer
                                     ? GetByCall(session, router, key, context, nullptr, {}, token)
                                     : GetByReads(session, router, key, context, nullptr, token);
                        });
}

Task<absl::StatusOr<bool>> ContainsInTree(Session* session, std::string_view key, CallOptions options) {
  return RunRead<bool>(session, nullptr, OperationKind::kContains, key, options,
                       [session, key](KeyRouter* router, const CallContext& context) {
                         return session->ChoosePath(router->selector(), context) == Path::kServer
                                    ? ContainsByCall(session, router, key, context)
                                    : ContainsByReads(session, router, key, context);
                       });
}

Task<absl::StatusOr<std::optional<StampedValue>>> GetStampedFromTree(Session* session, std::string_view key,
                                                                     CallOptions options) {
  return RunRead<std::optional<StampedValue>>(session, nullptr, OperationKind::kGet, key, options,
                                              [session, key](KeyRouter* router, const CallContext& context) {
                                                return GetStampedHere(session, router, key, context);
                                              });
}

template <typename Result>
Task<absl::StatusOr<Result>> WriteToTree(Session* session, KeyWrite write, CallOptions options) {
  return RunWrite<Result>(session, nullptr, write, options,
                          [session, write](KeyRouter* router, const CallContext& context) {
                            return WriteHereByPath<Result>(session, router, write, context);
                          });
}
template Task<absl::StatusOr<bool>> WriteToTree(Session*, KeyWrite, CallOptions);
template Task<absl::StatusOr<WriteIfResult>> WriteToTree(Session*, KeyWrite, CallOptions);

Task<absl::StatusOr<TimeLeft>> TimeLeftInTree(Session* session, std::string_view key, CallOptions options) {
  return RunRead<TimeLeft>(session, nullptr, OperationKind::kContains, key, options,
                           [session, key](KeyRouter* router, const CallContext& context) {
                             return TimeLeftByCall(session, router, key, context);
                           });
}

}  // namespace cell
