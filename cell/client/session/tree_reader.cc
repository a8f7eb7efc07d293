#include "cell/client/session/tree_reader.h"

#include <cstring>
#include <optional>
#include <string>

#include "fmt/format.h"

namespace cell {
namespace {

// Limit per walk: its nodes are written as fast as they are read.
constexpr int kTornReadsMax = 64;

}  // namespace

TreeReader::TreeReader(ClientLoop* loop, Connections* connections, ClientMetrics* metrics, uint32_t node_bytes,
                       const ClientOptions& options)
    : loop_(loop),
      connections_(connections),
      metrics_(metrics),
      node_bytes_(node_bytes),
      nodes_(options.cache_bytes, node_bytes, options.cache_level_min),
      routes_(options.route_ranges) {}

Task<absl::StatusOr<Walk::Step>> TreeReader::WalkToLeaf(WorkerConnection* worker, Walk* walk, bool use_cache,
                                                        WalkedLeaf* to, int64_t deadline_ns, SearchReads* search,
                                                        LeafNeighbours* neighbours) {
  to->parent = NodeView();
  for (int torn = 0;;) {
    Walk::Step step;
    const Pointer wanted = walk->wants();
    std::optional<NodeView> node = use_cache && walk->may_use_cache() ? nodes_.Find(wanted) : std::nullopt;
    to->cached = node.has_value();
    if (to->cached) {
      ++metrics_->cache_hits;
      step = walk->Visit(*node);
      if (to->keeps_parent && node->level() == 1) {
        std::memcpy(to->parent_buffer.data(), node->bytes(), node_bytes_);
        to->parent = NodeView::Trusted(to->parent_buffer.data(), node_bytes_);
      }
    } else {
      const ReadPart part{wanted, to->buffer.data(), node_bytes_};
      absl::Span<const ReadPart> reads(&part, 1);
      if (neighbours != nullptr && walk->tier() == 0 && walk->level() == 0 && to->parent.bytes() != nullptr) {
        reads = neighbours->ReadsWith(part, to->parent);
      }
      metrics_->node_reads += reads.size();
      if (absl::Status status = co_await connections_->Read(worker, reads, deadline_ns, search); !status.ok()) {
        if (status.code() != absl::StatusCode::kOutOfRange) co_return status;
        step = walk->Failed(NodeFault::kForeign);  // An outdated pointer to something that is not a node.
      } else {
        NodeView view;
        const NodeFault fault = NodeView::Parse(ConstBytes(to->buffer.data(), node_bytes_), wanted, &view);
        if (fault == NodeFault::kNone) {
          step = walk->Visit(view);
          const NodeCache::Kept kept = nodes_.Keep(view);
          if (kept == NodeCache::Kept::kMore) search->Cached();
          if (kept == NodeCache::Kept::kForAnother) ++metrics_->cache_evictions;
          node = view;
          if (to->keeps_parent && view.level() == 1) {
            to->buffer.Swap(&to->parent_buffer);
            to->parent = view;
          } else {
            to->leaf = view;
          }
        } else {
          if (fault == NodeFault::kTorn) ++metrics_->torn, ++torn;
          step = walk->Failed(fault);
        }
      }
    }
    if (step == Walk::Step::kArrived || step == Walk::Step::kRestart) co_return step;
    if (walk->moved_right()) {
      ++metrics_->moved_right;
      // Its right neighbour may have been joined, and the neighbour's id used again, for a region far to the left.
      if (to->cached) nodes_.Drop(wanted);
      const Pointer parent = walk->path(walk->level() + 1);
      if (!parent.null()) nodes_.Drop(parent);  // It was out of date.
    }
    if (step == Walk::Step::kElsewhere) {
      if (!walk->moved_right()) {  // The node just visited holds a route.
        // Cache all its routes if it was read just now, so that a client of a large cluster learns them quickly. A
        // cached node may be older than the known routes.
        for (int i = 0; i < node->count() && !to->cached; ++i) KeepRoute(*node, i);
      }
      co_return step;
    }
    if (step == Walk::Step::kGaveUp || torn > kTornReadsMax) {
      co_return absl::AbortedError(
          fmt::format("the leaf of key {} was not reached in {} reads", ForMessage(walk->key()), walk->visits()));
    }
    if (loop_->now_ns() >= deadline_ns) {
      co_return absl::DeadlineExceededError(
          fmt::format("the search for key {} took too long", ForMessage(walk->key())));
    }
  }
}

void TreeReader::KeepRoute(const NodeView& leaf, int slot) {
  std::optional<std::string> high;
  if (slot + 1 < leaf.count()) {
    high = leaf.key(slot + 1);
  } else if (leaf.has_high()) {
    high = leaf.high_key();
  }
  routes_.Keep(leaf.key(slot), high, leaf.inner_slot(slot).child());
}

}  // namespace cell
