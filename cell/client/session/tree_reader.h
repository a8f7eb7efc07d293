// TreeReader walks from the root of a meganode to a leaf by one-sided reads for a client, and caches inner nodes and
// routes. Internal to cell/client. Not thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "cell/base/task.h"
#include "cell/client/client.h"
#include "cell/client/session/client_loop.h"
#include "cell/client/session/connections.h"
#include "cell/client/session/node_buffer.h"
#include "cell/client/session/node_cache.h"
#include "cell/client/session/route_cache.h"
#include "cell/tree/walk.h"

namespace cell {

// Adds reads to that of a leaf, which are done when the leaf's is.
class LeafNeighbours {
 public:
  // Returns all reads of the round that reads a leaf: `leaf`, and others. `parent` names the leaf, or did when it was
  // read.
  virtual absl::Span<const ReadPart> ReadsWith(const ReadPart& leaf, const NodeView& parent) = 0;

 protected:
  ~LeafNeighbours() = default;
};

class TreeReader {
 public:
  // All arguments must outlive this.
  TreeReader(ClientLoop* loop, Connections* connections, ClientMetrics* metrics, uint32_t node_bytes,
             const ClientOptions& options);
  ~TreeReader() { pool_->Release(); }
  TreeReader(const TreeReader&) = delete;
  TreeReader& operator=(const TreeReader&) = delete;

  // Walks to the leaf of walk->key() by one-sided reads, beginning at walk->wants(). On kArrived the leaf is in *to;
  // kElsewhere and kRestart are as in Walk. Returns Aborted if nodes kept changing while they were read. Each read is a
  // round of *search. `neighbours` may add reads to that of a leaf of pairs below to->parent.
  Task<absl::StatusOr<Walk::Step>> WalkToLeaf(WorkerConnection* worker, Walk* walk, bool use_cache, WalkedLeaf* to,
                                              int64_t deadline_ns, SearchReads* search,
                                              LeafNeighbours* neighbours = nullptr);

  NodeCache* nodes() { return &nodes_; }
  RouteCache* routes() { return &routes_; }
  NodePool* pool() { return pool_; }

 private:
  // Stores the route that slot `slot` of a leaf of an upper tier holds.
  void KeepRoute(const NodeView& leaf, int slot);

  ClientLoop* const loop_;
  Connections* const connections_;
  ClientMetrics* const metrics_;
  const uint32_t node_bytes_;
  NodeCache nodes_;
  RouteCache routes_;
  NodePool* const pool_ = new NodePool;
};

}  // namespace cell
