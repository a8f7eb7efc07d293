// Has the searches of a Meganode: for one key, for a batch, for a writer, for the route to another meganode, and for
// pairs that have expired. They change nothing.
#include <algorithm>
#include <array>

#include "cell/base/crc64.h"
#include "cell/base/status_macros.h"
#include "cell/tree/meganode.h"
#include "fmt/format.h"

namespace cell {
namespace {

absl::Status GaveUp(std::string_view key) {
  return absl::UnavailableError(
      fmt::format("the search for key {} found no valid node in {} visits: the tree is damaged (run cellctl check)",
                  ForMessage(key), Walk::kVisitsMax));
}

}  // namespace

absl::Status Meganode::NotHere(Walk::Step step, std::string_view key) const {
  if (step == Walk::Step::kGaveUp) return GaveUp(key);
  return absl::OutOfRangeError(fmt::format("key {} is not in the range of region {}", ForMessage(key), region()));
}

Meganode::Route Meganode::RouteOf(std::string_view key) const {
  const NodeView root = Root();
  if (root.BelowLow(key)) return {Route::Kind::kRestart, {}, {}, {}};
  if (root.PastHigh(key)) return {Route::Kind::kRight, root.right(), {}, {}};
  if (root.tier() == 0) return {Route::Kind::kHere, root_, {}, {}};
  const absl::StatusOr<NodeView> bottom = LeafOf(key);
  const int slot = bottom.ok() ? bottom->ChildSlot(key) : -1;
  if (slot < 0) return {Route::Kind::kRestart, {}, {}, {}};
  Route route{Route::Kind::kChild, bottom->inner_slot(slot).child(), bottom->key(slot), {}};
  if (slot + 1 < bottom->count()) {
    route.high = bottom->key(slot + 1);
  } else if (bottom->has_high()) {
    route.high = bottom->high_key();
  }
  return route;
}

absl::StatusOr<NodeView> Meganode::LeafOf(std::string_view key) const {
  Walk walk(key, root_, 0, tier());
  for (;;) {
    const NodeView node = Node(walk.wants());
    Prefetch(node.bytes(), node.node_bytes());  // Cache misses of the node overlap, instead of following each other.
    const Walk::Step step = walk.Visit(node);
    if (step == Walk::Step::kArrived) return node;
    if (step != Walk::Step::kRead) return NotHere(step, key);
  }
}

absl::StatusOr<NodeView> Meganode::VerifiedLeafOf(std::string_view key) const {
  ASSIGN_OR_RETURN(const NodeView leaf, LeafOf(key));
  return VerifiedNode(Pointer(region(), static_cast<uint64_t>(leaf.bytes() - memory_->base())));
}

absl::StatusOr<NodeView> Meganode::VerifiedNode(Pointer pointer) const {
  const NodeView node = Node(pointer);
  NodeView verified;
  if (NodeView::Parse({node.bytes(), node.node_bytes()}, pointer, &verified) == NodeFault::kNone) return verified;
  return DamagedNode(region(), pointer);
}

absl::StatusOr<std::string_view> Meganode::VerifiedValueOf(std::string_view key, const LeafPair& pair) const {
  bool right = false;
  if (pair.is_inline) {
    right = pair.Matches(Crc64(pair.value, Crc64(key)));
  } else if (ExtentInBounds(pair.outside.extent, pair.pair_bytes())) {
    const ConstBytes extent(Extent(pair.outside.extent), pair.pair_bytes());
    right = pair.Matches(Crc64(extent)) && AsText(extent.subspan(0, pair.key_bytes)) == key;
  }
  if (!right) return DamagedPair(region(), key);
  return ValueOf(pair);
}

absl::StatusOr<Meganode::Location> Meganode::Find(std::string_view key) const {
  ASSIGN_OR_RETURN(const NodeView leaf, LeafOf(key));
  Location location{leaf.self(), std::nullopt};
  if (!leaf.holds_pairs()) return NotHere(Walk::Step::kElsewhere, key);
  if (const std::optional<int> slot = leaf.Find(key)) location.pair = leaf.pair(*slot);
  if (location.pair.has_value() && Expired(location.pair->expiry)) location.pair.reset();
  return location;
}

void Meganode::FindBatch(absl::Span<Lookup> lookups) {
  // Header, heads, and some slots of inner nodes: what is read first.
  constexpr size_t kPrefetchedBytes = 320;
  for (size_t begin = 0; begin < lookups.size(); begin += kBatchMax) {
    const absl::Span<Lookup> batch = lookups.subspan(begin, kBatchMax);
    std::array<Walk, kBatchMax> walks;
    std::array<uint8_t, kBatchMax> active;
    size_t left = batch.size();
    for (size_t i = 0; i < left; ++i) {
      walks[i] = Walk(batch[i].key, batch[i].tree->root_);
      active[i] = static_cast<uint8_t>(i);
    }
    while (left > 0) {
      for (size_t i = 0; i < left;) {
        Lookup& lookup = batch[active[i]];
        Walk& walk = walks[active[i]];
        const NodeView node = lookup.tree->Node(walk.wants());
        const Walk::Step step = walk.Visit(node);
        if (step == Walk::Step::kRead) {
          const std::byte* next = lookup.tree->memory_->at(walk.wants().offset());
          Prefetch(next, node.level() == 1 ? node.node_bytes() : kPrefetchedBytes);
          ++i;
          continue;
        }
        if (step == Walk::Step::kArrived) {
          lookup.status = absl::OkStatus();
          lookup.location = {node.self(), std::nullopt};
          if (const std::optional<int> slot = node.Find(lookup.key)) {
            const LeafPair found = node.pair(*slot);
            if (!lookup.tree->Expired(found.expiry)) lookup.location.pair = found;
            if (found.is_inline) {
              // It came with the leaf.
            } else if (lookup.prefetches == Prefetches::kPair) {
              Prefetch(lookup.tree->Extent(found.outside.extent), std::min<size_t>(found.pair_bytes(), 512));
            } else if (lookup.prefetches == Prefetches::kFree) {
              lookup.tree->extents_.PrefetchFree(found.outside.extent.offset(), found.pair_bytes());
            }
          }
        } else {
          lookup.status = lookup.tree->NotHere(step, lookup.key);
        }
        active[i] = active[--left];
      }
    }
    for (const Lookup& lookup : batch) {
      const std::optional<LeafPair>& pair = lookup.location.pair;
      if (lookup.prefetches != Prefetches::kFree || !pair.has_value() || pair->is_inline) continue;
      lookup.tree->extents_.PrefetchNeighbours(pair->outside.extent.offset());
    }
  }
}

absl::StatusOr<Meganode::Descent> Meganode::Descend(std::string_view key, uint8_t level) const {
  Walk walk(key, root_, level, tier());
  Descent descent;
  for (;;) {
    const NodeView node = Node(walk.wants());
    const Walk::Step step = walk.Visit(node);
    if (step != Walk::Step::kRead && step != Walk::Step::kArrived) return NotHere(step, key);
    if (step == Walk::Step::kArrived) {
      descent.node = node.self();
      return descent;
    }
    if (walk.moved_right()) {
      const NodeView right = Node(walk.wants());
      descent.unfinished.push_back(
          {static_cast<uint8_t>(node.level() + 1), std::string(right.low_key()), right.self()});
    }
  }
}

bool Meganode::HintIsRight(Pointer hint, std::string_view key) const {
  const uint64_t begin = header().nodes_offset;
  if (hint.region() != header().region || hint.offset() < begin ||
      hint.offset() >= begin + header().nodes_end * header().node_bytes ||
      (hint.offset() - begin) % header().node_bytes != 0) {
    return false;
  }
  const NodeView node = Node(hint);
  // A node that was set aside and never written looks like an empty leaf for all keys.
  if (node.self() != hint) return false;
  return !node.gone() && node.InBounds() && node.holds_pairs() && node.Covers(key);
}

absl::StatusOr<PairStore::Expiries> Meganode::ExpiriesAt(const Place& place) const {
  Expiries found;
  if (!Covers(place.key)) return found;  // This was split, and the right part is swept by itself.
  ASSIGN_OR_RETURN(const NodeView leaf, VerifiedLeafOf(place.key));
  const uint64_t now = ClusterTime();
  for (int i = 0; i < leaf.count(); ++i) {
    if (!leaf.leaf_slot(i).expires()) continue;
    const Expiry expiry = leaf.pair(i).expiry;
    if (HasExpired(expiry, now)) {
      found.expired.push_back(leaf.key(i));
    } else {
      found.first_left = std::min(found.first_left, expiry);
    }
  }
  if (leaf.has_high() && Covers(leaf.high_key())) found.next = Place{leaf.high_key()};
  return found;
}

}  // namespace cell
