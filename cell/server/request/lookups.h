// Lookups answers searches and gets. Those that came together are searched together, so that their cache misses overlap
// (Meganode::FindBatch). It also finds the leaves of the writes that came with them.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "cell/server/request/evictor.h"
#include "cell/server/request/get_reply.h"
#include "cell/server/request/keyed_request.h"
#include "cell/server/request/replies.h"
#include "cell/server/request/served_regions.h"
#include "cell/server/request/value_copies.h"
#include "pilaf/hash_table.h"

namespace cell {

// One of the requests that came together.
struct BatchedRequest {
  const IncomingCall* call = nullptr;
  MessageKind kind{};
  absl::Status status;  // An error if the request is not valid.
  KeyedRequest keyed;   // For valid lookups and writes: the request and its target.
  bool gone = false;    // Its region is part of no table any more: it has no target.
  Target target;
};

class Lookups {
 public:
  // All arguments must outlive this. Without `batching` each search runs by itself, to measure the gain of batching.
  // Tells `evictor` what is used.
  Lookups(Replies* replies, ValueCopies* copies, Evictor* evictor, bool batching)
      : replies_(replies), copies_(copies), evictor_(evictor), batching_(batching) {}

  // Answers all searches and gets among the requests. Gives each write without a hint one: its leaf. It is only a hint,
  // because an earlier write may split that leaf.
  void Serve(absl::Span<BatchedRequest> requests);

 private:
  struct HashLookup {
    BatchedRequest* request;
    KeyHash hash;
  };

  void Begin(BatchedRequest* request);
  void End(BatchedRequest* request, const Meganode::Lookup& lookup);
  void End(const HashLookup& lookup);
  // Send a reply with what depends on the pair's expiry.
  void EndSearch(const IncomingCall& call, MutableBytes to, const PairStore& store, Expiry expiry, SearchReply* reply);
  // Sends the value if it fits. Otherwise a copy is kept, or it stays in the extent that `reply.extent` names.
  void EndGet(const BatchedRequest& request, MutableBytes to, const FoundPair& pair, const GetReply& reply);

  Replies* const replies_;
  ValueCopies* const copies_;
  Evictor* const evictor_;
  const bool batching_;
  // Scratch space of Serve.
  std::vector<Meganode::Lookup> walks_;
  std::vector<BatchedRequest*> walkers_;  // The requests that these searches belong to.
  std::vector<HashLookup> hash_lookups_;
};

}  // namespace cell
