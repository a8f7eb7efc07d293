// RequestService's searches and gets: those that came together are made together, so that their cache misses overlap.
#include "cell/base/crc64.h"
#include "cell/server/request/request_service.h"

namespace cell {

void RequestService::GiveValue(const IncomingCall& call, MutableBytes to, std::string_view value, GetReply* reply) {
  if (value.size() <= kInlineValueBytesMax && sizeof(GetReply) + value.size() <= to.size()) {
    reply->inlined = 1;
    reply->header.bytes += static_cast<uint32_t>(value.size());
    std::memcpy(to.data() + sizeof(GetReply), value.data(), value.size());
    return;
  }
  reply->copied = Load<KeyRequest>(call.request.data()).copy;
  if (reply->copied == 0) return;
  reply->extent = {};
  copies_.Keep(call.peer, reply->copied, value);
}

// Finds the leaf of a write, unless its client has. It is a hint and no more: a write before this one may split it.
template <typename Request>
void RequestService::LookUpLeaf(const absl::StatusOr<Parsed<Request>>& request, size_t call) {
  if (!request.ok() || !request->fixed.hint.null()) return;  // What is wrong with it, its turn will tell.
  const Found found = Find(request->fixed.root, request->key);
  if (found.store == nullptr || found.region->tree == nullptr) return;
  lookups_.push_back({found.region->tree, request->key, absl::OkStatus(), {}});
  lookup_calls_.push_back(call);
}

// All searches and gets among the calls, together; and the leaves of the writes, with them.
void RequestService::ServeLookups(absl::Span<const IncomingCall> calls) {
  lookups_.clear();
  lookup_calls_.clear();
  hash_lookups_.clear();
  bool gets = false;
  for (size_t i = 0; i < calls.size(); ++i) {
    const IncomingCall& call = calls[i];
    const absl::StatusOr<MessageHeader> header = ParseHeader(call.request);
    if (!header.ok()) continue;
    if (options_.batching && header->kind == MessageKind::kPut) LookUpLeaf(ParsePutRequest(call.request), i);
    if (options_.batching && header->kind == MessageKind::kDelete) LookUpLeaf(ParseKeyRequest(call.request), i);
    if (header->kind != MessageKind::kSearch && header->kind != MessageKind::kGet) continue;
    const absl::StatusOr<Parsed<KeyRequest>> request = ParseKeyRequest(call.request);
    if (!request.ok()) {
      AnswerError(call, header->kind, request.status());
      continue;
    }
    const Found found = Find(request->fixed.root, request->key);
    if (found.store == nullptr) {
      ++routed_;
      const MutableBytes to = fabric_->BeginReply(call);
      End(call, to, WriteRoute(to, found));
      continue;
    }
    if (found.region->hash != nullptr) {
      const KeyHash hash = HashKey(request->key);
      if (options_.batching) found.region->hash->PrefetchUnits(hash);
      hash_lookups_.push_back({found.region->hash, request->key, hash, i});
      continue;
    }
    gets |= header->kind == MessageKind::kGet;
    lookups_.push_back({found.region->tree, request->key, absl::OkStatus(), {}});
    lookup_calls_.push_back(i);
  }
  if (options_.batching) {
    Meganode::FindBatch(absl::MakeSpan(lookups_), gets);
  } else {
    for (Meganode::Lookup& lookup : lookups_) Meganode::FindBatch({&lookup, 1}, false);
  }
  for (size_t i = 0; i < lookups_.size(); ++i) {
    const IncomingCall& call = calls[lookup_calls_[i]];
    const MessageKind kind = Load<MessageHeader>(call.request.data()).kind;
    if (kind == MessageKind::kPut || kind == MessageKind::kDelete) {
      if (lookups_[i].status.ok()) hints_[lookup_calls_[i]] = lookups_[i].place.leaf;
      continue;
    }
    ++served_[static_cast<size_t>(kind)];
    AnswerLookup(call, kind, lookups_[i]);
  }
  for (const HashLookup& lookup : hash_lookups_) {
    if (options_.batching) lookup.table->PrefetchPair(lookup.hash);
  }
  for (const HashLookup& lookup : hash_lookups_) {
    const IncomingCall& call = calls[lookup.call];
    const MessageKind kind = Load<MessageHeader>(call.request.data()).kind;
    ++served_[static_cast<size_t>(kind)];
    AnswerHashLookup(call, kind, lookup);
  }
}

void RequestService::AnswerHashLookup(const IncomingCall& call, MessageKind kind, const HashLookup& lookup) {
  const HashTable& table = *lookup.table;
  const std::string_view key = lookup.key;
  if (const absl::Status status = table.CheckKey(key); !status.ok()) return AnswerError(call, kind, status);
  const std::optional<HashTable::Located> pair = table.Locate(key, lookup.hash);
  const MutableBytes to = fabric_->BeginReply(call);
  if (kind == MessageKind::kSearch) {
    auto reply = ReplyOf<SearchReply>(kind);
    reply.found = pair.has_value();
    Store(to.data(), reply);
    return End(call, to, sizeof(reply));
  }
  auto reply = ReplyOf<GetReply>(kind);
  if (pair.has_value()) {
    reply.found = 1;
    reply.crc = pair->crc.has_value() ? *pair->crc : Crc64(pair->value, Crc64(key));
    reply.value_bytes = static_cast<uint32_t>(pair->value.size());
    if (pair->crc.has_value()) reply.extent = table.ExtentOf(key, pair->value);
    GiveValue(call, to, pair->value, &reply);
  }
  Store(to.data(), reply);
  End(call, to, reply.header.bytes);
}

void RequestService::AnswerLookup(const IncomingCall& call, MessageKind kind, const Meganode::Lookup& lookup) {
  absl::Status status = lookup.status;
  if (status.ok()) status = lookup.tree->CheckKey(lookup.key);
  if (!status.ok()) return AnswerError(call, kind, status);
  const MutableBytes to = fabric_->BeginReply(call);
  if (kind == MessageKind::kSearch) {
    auto reply = ReplyOf<SearchReply>(kind);
    reply.leaf = lookup.place.leaf;
    reply.found = lookup.place.slot.has_value();
    Store(to.data(), reply);
    return End(call, to, sizeof(reply));
  }
  auto reply = ReplyOf<GetReply>(kind);
  if (lookup.place.slot.has_value()) {
    const LeafSlot& slot = *lookup.place.slot;
    reply.found = 1;
    reply.extent = slot.extent;
    reply.crc = slot.crc;
    reply.value_bytes = static_cast<uint32_t>(slot.extent_bytes - lookup.key.size());
    GiveValue(call, to, AsText({lookup.tree->Extent(slot.extent) + lookup.key.size(), reply.value_bytes}), &reply);
  }
  Store(to.data(), reply);
  End(call, to, reply.header.bytes);
}

}  // namespace cell
