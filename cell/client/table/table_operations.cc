#include "cell/client/table/table_operations.h"

#include <memory>

#include "absl/container/inlined_vector.h"
#include "cell/base/mutant.h"
#include "cell/client/call/operate.h"
#include "fmt/format.h"
#include "pilaf/bucket.h"
#include "pilaf/lookup.h"

namespace cell {
namespace {

// Holds the images that a lookup has read last. Small reads share a buffer of the session's pool.
class Images {
 public:
  explicit Images(NodePool* pool) : small_(pool) {}

  // Returns room for these reads; valid until the next call.
  absl::Span<const ReadPart> PartsOf(uint32_t region, absl::Span<const Lookup::Read> reads) {
    size_t bytes = 0;
    for (const Lookup::Read& read : reads) bytes += read.bytes;
    std::byte* at = small_.data();
    if (bytes > NodeBuffer::size()) {
      large_ = std::make_unique<std::byte[]>(bytes);
      at = large_.get();
    }
    parts_.clear();
    images_.clear();
    for (const Lookup::Read& read : reads) {
      parts_.push_back({Pointer(region, read.offset), at, read.bytes});
      images_.emplace_back(at, read.bytes);
      at += read.bytes;
    }
    return parts_;
  }
  absl::Span<const ConstBytes> images() const { return images_; }

 private:
  NodeBuffer small_;
  std::unique_ptr<std::byte[]> large_;
  absl::InlinedVector<ReadPart, 4> parts_;
  absl::InlinedVector<ConstBytes, 4> images_;
};

Task<Attempt<Value>> LookUp(Session* session, KeyRouter* router, std::string_view key, bool serializable,
                            CallContext context) {
  ClientMetrics* const metrics = session->metrics();
  WorkerConnection* const worker = router->worker();
  const uint32_t region = router->root().region();
  const HashParts* const parts = router->parts();
  if (parts == nullptr) {  // The table has just been dropped.
    (void)router->Restart();
    co_return std::nullopt;
  }
  if (parts->bucket_bytes != 0 && !ValidBucketBytes(parts->bucket_bytes)) {
    co_return absl::FailedPreconditionError(
        fmt::format("the region table is damaged: it gives a table buckets of {} bytes", parts->bucket_bytes));
  }
  const HashGeometry geometry = GeometryOf(region, session->view()->cluster().shape, parts->bucket_bytes);
  LookupOptions options;
  options.serializable = serializable && !Mutated(Mutant::kNoSecondLook);
  const std::unique_ptr<Lookup> lookup = NewLookup(key, HashKey(key), geometry, options);
  Images images(session->tree()->pool());
  Lookup::Step step = Lookup::Step::kRead;
  SearchReads reads(worker->selector(OperationKind::kLookup));
  absl::Status status;
  while (step == Lookup::Step::kRead && status.ok()) {
    status = co_await session->connections()->Read(worker, images.PartsOf(region, lookup->wants()), context.deadline_ns,
                                                   &reads);
    if (!status.ok()) break;
    step = lookup->Visit(images.images());
    if (session->now_ns() >= context.deadline_ns) status = absl::DeadlineExceededError("the get took too long");
  }
  const Lookup::Counters& counters = lookup->counters();
  ++metrics->lookups;
  metrics->lookup_reads += static_cast<uint64_t>(counters.reads);
  metrics->lookup_torn += static_cast<uint64_t>(counters.torn);
  metrics->lookup_extents += static_cast<uint64_t>(counters.torn_extents);
  metrics->lookup_moved += static_cast<uint64_t>(counters.moved);
  // If the key is written as fast as it is read, its server can read it between two writes.
  const bool gave_up = status.ok() && step == Lookup::Step::kGaveUp;
  const bool held = status.ok() && step == Lookup::Step::kHeld;
  if (gave_up || held || AsksServer(status, context)) co_return co_await GetByCall(session, router, key, context);
  bool found = step == Lookup::Step::kFound;
  if (status.ok() && found && lookup->expiry() != kNeverExpires) {
    const ServerTime::Life life = co_await LifeAt(session, worker, lookup->expiry(), context);
    if (life == ServerTime::Life::kUndecided) co_return co_await GetByCall(session, router, key, context);
    if (life == ServerTime::Life::kExpired) {
      found = false;
      step = Lookup::Step::kAbsent;
    }
  }
  if (status.ok() && (found || step == Lookup::Step::kAbsent) && session->view()->Leased(router->holder())) {
    reads.End();
    co_return found ? Value(std::string(lookup->value())) : Value();
  }
  if (!status.ok() && !MayHaveMoved(status) && status.code() != absl::StatusCode::kOutOfRange) co_return status;
  (void)router->Restart();
  co_return std::nullopt;
}

// Converts the result of a lookup for Contains.
Attempt<bool> Has(const Attempt<Value>& value) {
  if (!value.ok()) return value.status();
  if (!value->has_value()) return std::nullopt;
  return (*value)->has_value();
}

Task<Attempt<bool>> LookForKey(Session* session, KeyRouter* router, std::string_view key, bool serializable,
                               CallContext context) {
  const Attempt<Value> value = co_await LookUp(session, router, key, serializable, context);
  co_return Has(value);
}

}  // namespace

Task<absl::StatusOr<Value>> GetFromTable(Session* session, const std::string* table, std::string_view key,
                                         bool serializable, CallOptions options) {
  return RunRead<Value>(session, table, OperationKind::kLookup, key, options,
                        [session, key, serializable](KeyRouter* router, const CallContext& context) {
                          return session->ChoosePath(router->selector(), context) == Path::kServer
                                     ? GetByCall(session, router, key, context)
                                     : LookUp(session, router, key, serializable, context);
                        });
}

Task<absl::StatusOr<bool>> ContainsInTable(Session* session, const std::string* table, std::string_view key,
                                           bool serializable, CallOptions options) {
  return RunRead<bool>(session, table, OperationKind::kLookup, key, options,
                       [session, key, serializable](KeyRouter* router, const CallContext& context) {
                         return session->ChoosePath(router->selector(), context) == Path::kServer
                                    ? ContainsByCall(session, router, key, context)
                                    : LookForKey(session, router, key, serializable, context);
                       });
}

template <typename Result>
Task<absl::StatusOr<Result>> WriteToTable(Session* session, const std::string* table, KeyWrite write,
                                          CallOptions options) {
  return RunWrite<Result>(session, table, write, options,
                          [session, write](KeyRouter* router, const CallContext& context) {
                            return WriteHere<Result>(session, router, write, {}, context);
                          });
}
template Task<absl::StatusOr<bool>> WriteToTable(Session*, const std::string*, KeyWrite, CallOptions);
template Task<absl::StatusOr<WriteIfResult>> WriteToTable(Session*, const std::string*, KeyWrite, CallOptions);

Task<absl::StatusOr<TimeLeft>> TimeLeftInTable(Session* session, const std::string* table, std::string_view key,
                                               CallOptions options) {
  return RunRead<TimeLeft>(session, table, OperationKind::kLookup, key, options,
                           [session, key](KeyRouter* router, const CallContext& context) {
                             return TimeLeftByCall(session, router, key, context);
                           });
}

}  // namespace cell
