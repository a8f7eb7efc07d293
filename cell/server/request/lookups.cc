#include "cell/server/request/lookups.h"

#include "cell/base/crc64.h"
#include "cell/base/mutant.h"

namespace cell {

void Lookups::Serve(absl::Span<BatchedRequest> requests) {
  walks_.clear();
  walkers_.clear();
  hash_lookups_.clear();
  for (BatchedRequest& request : requests) {
    if (request.status.ok()) Begin(&request);
  }
  if (batching_) {
    Meganode::FindBatch(absl::MakeSpan(walks_));
  } else {
    for (Meganode::Lookup& walk : walks_) Meganode::FindBatch({&walk, 1});
  }
  for (size_t i = 0; i < walks_.size(); ++i) End(walkers_[i], walks_[i]);
  for (const HashLookup& lookup : hash_lookups_) {
    if (batching_) lookup.request->target.region->hash->PrefetchPair(lookup.hash);
  }
  for (const HashLookup& lookup : hash_lookups_) End(lookup);
}

void Lookups::Begin(BatchedRequest* request) {
  const KeyedRequest& keyed = request->keyed;
  Target& target = request->target;
  if (IsLookup(request->kind)) RespectLocks(keyed.key, /*writes=*/false, &target);
  if (request->kind == MessageKind::kDeleteRange || request->kind == MessageKind::kDecide) {
    return;  // A hint would not help it.
  } else if (IsWrite(request->kind)) {
    if (!batching_ || !keyed.hint.null() || target.store == nullptr || target.region->tree == nullptr) return;
  } else if (!IsLookup(request->kind)) {
    return;
  } else if (target.store == nullptr) {
    return replies_->Route(*request->call, target, keyed.key);
  } else if (target.region->hash != nullptr) {
    const KeyHash hash = HashKey(keyed.key);
    if (batching_) target.region->hash->PrefetchUnits(hash);
    hash_lookups_.push_back({request, hash});
    return;
  }
  using Prefetches = Meganode::Prefetches;
  const Prefetches prefetches = IsWrite(request->kind)                            ? Prefetches::kFree
                                : batching_ && request->kind == MessageKind::kGet ? Prefetches::kPair
                                                                                  : Prefetches::kNothing;
  walks_.push_back({target.region->tree, keyed.key, absl::OkStatus(), {}, prefetches});
  walkers_.push_back(request);
}

void Lookups::End(BatchedRequest* request, const Meganode::Lookup& lookup) {
  absl::Status status = lookup.status;
  if (IsWrite(request->kind)) {
    if (status.ok()) request->keyed.hint = lookup.location.leaf;
    return;
  }
  const IncomingCall& call = *request->call;
  if (status.ok()) status = lookup.tree->CheckKey(lookup.key);
  if (!status.ok()) return replies_->Error(call, request->kind, status);
  const std::optional<LeafPair>& pair = lookup.location.pair;
  if (pair.has_value()) evictor_->Touch(lookup.key);
  uint64_t crc = 0;
  if (request->kind == MessageKind::kGet && pair.has_value()) {
    crc = pair->is_inline ? Crc64(pair->value, Crc64(lookup.key)) : pair->outside.crc;
    const bool inside = pair->is_inline || lookup.tree->ExtentInBounds(pair->outside.extent, pair->pair_bytes());
    if (!inside || !pair->Matches(crc))
      return replies_->Error(call, request->kind, DamagedPair(lookup.tree->region(), lookup.key));
  }
  const MutableBytes to = replies_->Begin(call);
  if (request->kind == MessageKind::kSearch) {
    auto reply = ReplyOf<SearchReply>(MessageKind::kSearch);
    reply.leaf = lookup.location.leaf;
    reply.found = pair.has_value();
    return EndSearch(call, to, *lookup.tree, pair.has_value() ? pair->expiry : kNeverExpires, &reply);
  }
  auto reply = ReplyOf<GetReply>(MessageKind::kGet);
  FoundPair found;
  if (pair.has_value()) {
    found = {lookup.tree->ValueOf(*pair), pair->expiry};
    reply.found = 1;
    reply.extent = pair->outside.extent;  // Null if the pair is inline.
    reply.crc = crc;
    reply.stamp = pair->stamp;
    reply.value_bytes = pair->value_bytes;
  }
  if (request->keyed.wants_leaf && found.expiry == kNeverExpires) {
    const NodeView leaf = lookup.tree->Node(lookup.location.leaf);
    const bool locked = leaf.locked() && !Mutated(Mutant::kTokenOfLockedLeaf);
    if (!locked && !leaf.gone()) found.leaf = leaf.state();
  }
  EndGet(*request, to, found, reply);
}

void Lookups::End(const HashLookup& lookup) {
  const BatchedRequest& request = *lookup.request;
  const IncomingCall& call = *request.call;
  const HashTable& table = *request.target.region->hash;
  const std::string_view key = request.keyed.key;
  if (const absl::Status status = table.CheckKey(key); !status.ok()) {
    return replies_->Error(call, request.kind, status);
  }
  const std::optional<HashTable::Located> pair = table.Locate(key, lookup.hash);
  if (pair.has_value()) evictor_->Touch(key);
  const MutableBytes to = replies_->Begin(call);
  if (request.kind == MessageKind::kSearch) {
    auto reply = ReplyOf<SearchReply>(MessageKind::kSearch);
    reply.found = pair.has_value();
    return EndSearch(call, to, table, pair.has_value() ? pair->expiry : kNeverExpires, &reply);
  }
  auto reply = ReplyOf<GetReply>(MessageKind::kGet);
  FoundPair found;
  if (pair.has_value()) {
    found = {pair->value, pair->expiry};
    reply.found = 1;
    reply.crc = pair->crc.has_value() ? *pair->crc : Crc64(found.value, Crc64(key));
    reply.value_bytes = static_cast<uint32_t>(found.value.size());
    if (pair->crc.has_value()) reply.extent = table.ExtentOf(key, found.value);
  }
  EndGet(request, to, found, reply);
}

void Lookups::EndSearch(const IncomingCall& call, MutableBytes to, const PairStore& store, Expiry expiry,
                        SearchReply* reply) {
  if (expiry != kNeverExpires && to.size() >= sizeof(SearchReply) + sizeof(PairLife)) {
    Store(to.data() + sizeof(SearchReply), PairLife{expiry, store.ClusterTime()});
    reply->header.bytes += sizeof(PairLife);
  }
  Store(to.data(), *reply);
  replies_->End(call, MessageKind::kSearch, to, reply->header.bytes);
}

void Lookups::EndGet(const BatchedRequest& request, MutableBytes to, const FoundPair& pair, const GetReply& reply) {
  const size_t bytes = EndGetReply(reply, pair, request.call->peer, request.keyed.copy, copies_, to);
  replies_->End(*request.call, MessageKind::kGet, to, bytes);
}

}  // namespace cell
