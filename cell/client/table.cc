// Tables: the client's side of Pilaf. A lookup's steps are pilaf/lookup.h's; here they are read.
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "cell/base/mutant.h"
#include "cell/client/operate.h"
#include "pilaf/lookup.h"

namespace cell {
namespace {

// What a lookup has read last. Small reads share a buffer of the session's pool.
class Images {
 public:
  explicit Images(Session* session) : small_(session) {}

  // Room for these reads; valid until the next call.
  absl::Span<const ReadPart> Place(uint32_t region, absl::Span<const Lookup::Read> reads) {
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

Task<Maybe<Value>> LookUp(Session* session, KeyRouter* router, std::string_view key, bool serializable,
                          CallContext context) {
  ClientMetrics* const metrics = session->metrics();
  ServerConnection* const server = router->server();
  const uint32_t region = router->root().region();
  const RegionTable::HashParts* const parts = router->parts();
  if (parts == nullptr) {  // It was dropped just now.
    (void)router->Lose();
    co_return std::nullopt;
  }
  const HashPlace place = PlaceOf(region, session->cluster().shape, parts->bucket_bytes);
  LookupOptions options;
  options.serializable = serializable && !Mutated(Mutant::kNoSecondLook);
  const std::unique_ptr<Lookup> lookup = NewLookup(key, HashKey(key), place, options);
  Images images(session);
  Lookup::Step step = Lookup::Step::kRead;
  int rounds = 0;
  absl::Status status;
  while (step == Lookup::Step::kRead && status.ok()) {
    const int64_t asked_ns = session->now_ns();
    status = co_await session->Read(server, images.Place(region, lookup->wants()), context.deadline_ns);
    if (!status.ok()) break;
    server->lookups.ObserveRead(session->now_ns() - asked_ns);
    ++rounds;
    step = lookup->Visit(images.images());
    if (session->now_ns() >= context.deadline_ns) status = absl::DeadlineExceededError("get took too long");
  }
  const Lookup::Counters& counters = lookup->counters();
  ++metrics->lookups;
  metrics->lookup_reads += static_cast<uint64_t>(counters.reads);
  metrics->lookup_torn += static_cast<uint64_t>(counters.torn);
  metrics->lookup_extents += static_cast<uint64_t>(counters.torn_extents);
  metrics->lookup_moved += static_cast<uint64_t>(counters.moved);
  // What is written as fast as it is read, its server reads between two writes.
  if (status.ok() && step == Lookup::Step::kGaveUp) co_return co_await GetByCall(session, router, key, context);
  const bool found = step == Lookup::Step::kFound;
  if (status.ok() && (found || step == Lookup::Step::kAbsent) && session->Leased(router->holder())) {
    server->lookups.ObserveReads(rounds);
    co_return found ? Value(std::string(lookup->value())) : Value();
  }
  if (!status.ok() && !LostServer(status) && status.code() != absl::StatusCode::kOutOfRange) co_return status;
  (void)router->Lose();
  co_return std::nullopt;
}

// A result of a lookup as Contains wants it.
Maybe<bool> Has(const Maybe<Value>& value) {
  if (!value.ok()) return value.status();
  if (!value->has_value()) return std::nullopt;
  return (*value)->has_value();
}

}  // namespace

absl::StatusOr<Table> Client::OpenTable(const std::string& name) {
  const absl::Status named = RegionTable::CheckTableName(name);
  if (!named.ok()) return named;
  Run(session_->Refresh(session_->Begin({}).deadline_ns));
  if (!session_->cluster().table.tables.contains(name)) {
    return absl::NotFoundError(fmt::format("there is no table {}: make it with cellctl hash create", name));
  }
  return Table(this, name);
}

std::vector<Client::TableInfo> Client::Tables() {
  Run(session_->Refresh(session_->Begin({}).deadline_ns));
  std::vector<TableInfo> tables;
  const RegionTable& table = session_->cluster().table;
  for (const auto& [name, hash_parts] : table.tables) {
    TableInfo& info = tables.emplace_back(TableInfo{name, hash_parts.bucket_bytes, {}});
    for (const auto& [first, region] : hash_parts.parts) {
      info.parts.push_back({first, region, table.Find(region)->owner.server});
    }
  }
  return tables;
}

Task<absl::StatusOr<Value>> Table::AsyncGet(std::string_view key, CallOptions options) {
  Session* const session = client_->session_.get();
  const CallContext context = session->Begin(options);
  const bool serializable = serializable_;
  absl::StatusOr<Value> value =
      co_await Operate<Value>(session, &name_, key, context, [session, key, context, serializable](KeyRouter* router) {
        return session->ChoosePath(router->selector(), context) == Path::kServer
                   ? GetByCall(session, router, key, context)
                   : LookUp(session, router, key, serializable, context);
      });
  if (!value.ok()) value = ReadOutcome(value.status());
  session->End(context, value.status());
  co_return value;
}

namespace {

Task<Maybe<bool>> LookForKey(Session* session, KeyRouter* router, std::string_view key, bool serializable,
                             CallContext context) {
  const Maybe<Value> value = co_await LookUp(session, router, key, serializable, context);
  co_return Has(value);
}

}  // namespace

Task<absl::StatusOr<bool>> Table::AsyncContains(std::string_view key, CallOptions options) {
  Session* const session = client_->session_.get();
  const CallContext context = session->Begin(options);
  const bool serializable = serializable_;
  absl::StatusOr<bool> found =
      co_await Operate<bool>(session, &name_, key, context, [session, key, context, serializable](KeyRouter* router) {
        return session->ChoosePath(router->selector(), context) == Path::kServer
                   ? ContainsByCall(session, router, key, context)
                   : LookForKey(session, router, key, serializable, context);
      });
  if (!found.ok()) found = ReadOutcome(found.status());
  session->End(context, found.status());
  co_return found;
}

Task<absl::StatusOr<bool>> Table::AsyncPut(std::string_view key, std::string_view value, CallOptions options) {
  Session* const session = client_->session_.get();
  const CallContext context = session->Begin(options);
  absl::StatusOr<bool> existed = false;
  if (const absl::Status status = CheckValue(key, value); !status.ok()) {
    existed = status;
  } else {
    existed = co_await Operate<bool>(session, &name_, key, context, [session, key, value, context](KeyRouter* router) {
      return WriteHere(session, router, key, value, {}, context);
    });
  }
  session->End(context, existed.status());
  co_return existed;
}

Task<absl::StatusOr<bool>> Table::AsyncDelete(std::string_view key, CallOptions options) {
  Session* const session = client_->session_.get();
  const CallContext context = session->Begin(options);
  absl::StatusOr<bool> existed =
      co_await Operate<bool>(session, &name_, key, context, [session, key, context](KeyRouter* router) {
        return WriteHere(session, router, key, std::nullopt, {}, context);
      });
  session->End(context, existed.status());
  co_return existed;
}

absl::StatusOr<std::optional<std::string>> Table::Get(std::string_view key, const CallOptions& options) {
  return client_->Run(AsyncGet(key, options));
}
absl::StatusOr<bool> Table::Contains(std::string_view key, const CallOptions& options) {
  return client_->Run(AsyncContains(key, options));
}
absl::StatusOr<bool> Table::Put(std::string_view key, std::string_view value, const CallOptions& options) {
  return client_->Run(AsyncPut(key, value, options));
}
absl::StatusOr<bool> Table::Delete(std::string_view key, const CallOptions& options) {
  return client_->Run(AsyncDelete(key, options));
}

}  // namespace cell
