// Lookups: answers searches and gets. Those that came together are walked together, so that their cache misses overlap
// (Meganode::FindBatch), and the leaves of the writes that came with them.
//
// One thread: the worker's.
#pragma once

#include <vector>

#include "absl/types/span.h"
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
  absl::Status status;  // What is wrong with it.
  KeyedRequest keyed;   // Of a lookup or write that is right; and where it goes.
  Target target;
};

class Lookups {
 public:
  // All must outlive this. `batching`: without it each search is walked by itself, to measure what batching gains.
  Lookups(Replies* replies, ValueCopies* copies, bool batching)
      : replies_(replies), copies_(copies), batching_(batching) {}

  // Answers all searches and gets among the requests. Gives each write that has no hint one: its leaf. It is no more
  // than a hint, since another write before it may split that leaf.
  void Serve(absl::Span<BatchedRequest> requests);

 private:
  struct HashLookup {
    BatchedRequest* request;
    KeyHash hash;
  };

  void Begin(BatchedRequest* request);
  void End(BatchedRequest* request, const Meganode::Lookup& lookup);
  void End(const HashLookup& lookup);
  // Writes the reply in `to`, with the value if it fits. Else a copy is kept, or it stays where `reply->extent` says.
  void EndGet(const BatchedRequest& request, MutableBytes to, std::string_view value, GetReply* reply);

  Replies* const replies_;
  ValueCopies* const copies_;
  const bool batching_;
  // Scratch space of Serve.
  bool gets_ = false;
  std::vector<Meganode::Lookup> walks_;
  std::vector<BatchedRequest*> walkers_;  // Whose they are.
  std::vector<HashLookup> hash_lookups_;
};

}  // namespace cell
