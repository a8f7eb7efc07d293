#include "cell/server/request/snapshot_requests.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/server/request/get_reply.h"
#include "cell/server/request/scan_writer.h"
#include "cell/server/request/sound_leaves.h"
#include "cell/tree/scan_position.h"
#include "fmt/format.h"

namespace cell {
namespace {

using Piece = Snapshots::Piece;

constexpr int64_t kStepsPerStill = 200;  // How often Step looks at regions in the time for which one may be still.
// After so many leaves, or so many pairs, a scan continues in another call, so that other requests are served.
constexpr int kLeavesPerScan = 64;
constexpr int kPairsPerScan = 4096;

absl::Status TooOld(std::string_view key, uint32_t region) {
  return absl::FailedPreconditionError(
      fmt::format("SnapshotTooOld: region {} does not have the snapshot of key {} any more: its time is over, too much "
                  "has changed since, the region has moved, or it was forgotten",
                  region, ForMessage(key)));
}

// Goes through what was kept of a snapshot, in the direction of a scan.
class KeptInOrder {
 public:
  KeptInOrder(const KeptPairs& kept, const ScanPosition& from)
      : down_(from.down()),
        at_(down_ ? kept.changed.upper_bound(from.at()) : kept.changed.lower_bound(from.at())),
        end_(down_ ? kept.changed.begin() : kept.changed.end()) {}

  // Returns whether there is one more among the keys of the leaf, or in those that the scan has passed.
  bool HasIn(const NodeView& leaf) const {
    return at_ != end_ && (down_ ? !leaf.BelowLow(key()) : !leaf.PastHigh(key()));
  }
  const std::string& key() const { return down_ ? std::prev(at_)->first : at_->first; }
  const PairBefore* pair() const { return (down_ ? std::prev(at_)->second : at_->second).get(); }
  void Next() { std::advance(at_, down_ ? -1 : 1); }

 private:
  const bool down_;
  decltype(KeptPairs::changed)::const_iterator at_;
  const decltype(KeptPairs::changed)::const_iterator end_;
};

// Adds what the snapshot has of the scan's keys, from the position on. Returns DataLoss as ServeScan does.
absl::StatusOr<size_t> AddEntries(const Meganode& tree, const KeptPairs& snapshot, ScanTarget* target) {
  auto& [position, writer] = *target;
  KeptInOrder kept(snapshot, position);
  std::string key;
  int pairs = 0;
  ASSIGN_OR_RETURN(NodeView leaf, SoundLeaf(tree, position.at()));
  for (int leaves = 0;; ++leaves) {
    for (int slot = position.First(leaf);;) {
      const bool stored = ScanPosition::In(leaf, slot);
      const bool has_kept = kept.HasIn(leaf);
      if (!stored && !has_kept) break;
      if (stored) leaf.CopyKey(slot, &key);
      const bool is_kept = has_kept && (!stored || (position.down() ? kept.key() >= key : kept.key() <= key));
      const bool both = is_kept && stored && kept.key() == key;
      const std::string& next = is_kept ? kept.key() : key;
      if (position.Past(next)) return writer.Done();
      absl::StatusOr<bool> added = ++pairs <= kPairsPerScan;
      if (*added && is_kept) {
        const PairBefore* const pair = kept.pair();
        if (pair != nullptr && !HasExpired(pair->expiry, snapshot.time)) {
          if (pair->damaged) {
            added = DamagedPair(tree.region(), next);
          } else {
            added = writer.AddValue(next, pair->value, pair->expiry);
          }
        }
      } else if (*added) {
        const LeafPair pair = leaf.pair(slot);
        if (!HasExpired(pair.expiry, snapshot.time)) added = writer.AddPair(tree, next, pair);
      }
      if (!added.ok() || !*added) {
        position.MoveTo(next);
        if (!added.ok()) return added.status();
        return writer.GoOn(position.at(), {});
      }
      if (!is_kept || both) slot += position.step();
      if (is_kept) kept.Next();
    }
    if (position.EndsWith(leaf)) return writer.Done();
    position.Pass(leaf);
    if (!tree.Covers(position.at())) return writer.GoOn(position.at(), position.down() ? Pointer() : leaf.right());
    if (leaves == kLeavesPerScan || writer.full()) return writer.GoOn(position.at(), {});
    if (position.down()) {
      ASSIGN_OR_RETURN(leaf, SoundLeaf(tree, position.at()));
    } else {
      ASSIGN_OR_RETURN(leaf, SoundRight(tree, leaf));
    }
  }
}

// Returns where the keys end that a snapshot has in a region. "": with the tree.
std::string EndOf(const Parsed<SnapshotRequest>& request, const HeldRegion& region) {
  const std::optional<std::string> high = region.tree->range().high;
  return std::string(high.has_value() && (request.value.empty() || request.value > *high) ? *high : request.value);
}

// Returns the keys that a scan of the snapshot may see, if its client may see `seen`, or all if that is null.
KeySpan SpanOf(const Piece& snapshot, const KeySpan* seen) {
  KeySpan span{snapshot.from, std::nullopt};
  if (!snapshot.to.empty()) span.to = snapshot.to;
  if (seen == nullptr) return span;
  span.from = std::max(span.from, seen->from);
  if (seen->to.has_value() && (!span.to.has_value() || *seen->to < *span.to)) span.to = seen->to;
  return span;
}

}  // namespace

absl::StatusOr<size_t> SnapshotRequests::Take(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<SnapshotRequest> request, ParseSnapshotRequest(call.request));
  RETURN_IF_ERROR(parts_.permissions->CheckCount(call, request.fixed.root, request.key, request.value));
  const Target target = parts_.served->Find(request.fixed.root, request.key);
  if (target.store == nullptr) return WriteRoute(to, target, request.key);
  HeldRegion* const region = target.region;
  if (region->tree == nullptr) return NoMeganode(*region);
  if (to.size() < sizeof(SnapshotReply) + region->tree->key_bytes_max()) {
    return absl::InvalidArgumentError("a request about a snapshot must leave room for a key");
  }
  const absl::StatusOr<SnapshotState> state = Take({request.fixed.id, UserOf(call)}, request, region);
  region->FollowChanges();
  if (!state.ok()) return state.status();
  return WriteSnapshotReply(to, *state, region->tree->range().high.value_or(""));
}

absl::StatusOr<SnapshotState> SnapshotRequests::Take(const SnapshotOfUser& of, const Parsed<SnapshotRequest>& request,
                                                     HeldRegion* region) {
  const int64_t now_ns = clock_->NowNs();
  switch (request.fixed.step) {
    case SnapshotStep::kLook:
      return SnapshotState::kWaits;
    case SnapshotStep::kStill:
      return Still(of, request, region);
    case SnapshotStep::kGoOn: {
      // Without a lease, or while it moves, another server may have taken writes since it was still.
      const bool owned = parts_.served->leased() && region->state() == RegionState::kServing;
      const bool taken = region->snapshots.GoOn(of, request.key, EndOf(request, *region), owned, now_ns);
      return taken ? SnapshotState::kTaken : SnapshotState::kGone;
    }
    case SnapshotStep::kForget:
      break;
  }
  region->snapshots.Forget(of, now_ns);
  return SnapshotState::kGone;
}

absl::StatusOr<SnapshotState> SnapshotRequests::Still(const SnapshotOfUser& of, const Parsed<SnapshotRequest>& request,
                                                      HeldRegion* region) {
  const auto& [fixed, from, to] = request;
  if (!parts_.served->leased() || region->state() != RegionState::kServing) {
    return absl::UnavailableError(fmt::format("region {} takes no snapshots now", region->region()));
  }
  RETURN_IF_ERROR(region->store->CheckKey(from));
  if (!to.empty()) RETURN_IF_ERROR(region->store->CheckKey(to));
  Snapshots& snapshots = region->snapshots;
  RETURN_IF_ERROR(
      snapshots.Still(of, from, EndOf(request, *region), int64_t{fixed.kept_ms} * 1'000'000, clock_->NowNs()));
  if (region->writing() && !Mutated(Mutant::kSnapshotUnstill)) {
    if (region->log != nullptr) region->RequestFlush();
    return SnapshotState::kWaits;
  }
  snapshots.Reach(of, regions_->ClusterTime());
  return SnapshotState::kStill;
}

absl::StatusOr<size_t> SnapshotRequests::Get(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<GetSnapshotRequest> request, ParseGetSnapshotRequest(call.request));
  const std::string_view key = request.key;
  KeyedRequest keyed;
  keyed.kind = MessageKind::kGet;
  keyed.root = request.fixed.get.root;
  keyed.key = key;
  bool gone = false;
  RETURN_IF_ERROR(parts_.permissions->CheckKeyed(call, keyed, &gone));
  if (gone) return WriteRoute(to, {}, key);
  const Target target = parts_.served->Find(keyed.root, key);
  if (target.store == nullptr) return WriteRoute(to, target, key);
  if (target.region->tree == nullptr) return NoMeganode(*target.region);
  RETURN_IF_ERROR(target.store->CheckKey(key));
  const Meganode& tree = *target.region->tree;
  const Piece* const piece = target.region->snapshots.Find({request.fixed.id, UserOf(call)}, key);
  if (piece == nullptr) return TooOld(key, tree.region());
  const KeptPairs& snapshot = *piece->kept;

  auto reply = ReplyOf<GetReply>(MessageKind::kGetSnapshot);
  FoundPair found;
  const auto kept = snapshot.changed.find(key);
  if (kept != snapshot.changed.end()) {
    const PairBefore* const pair = kept->second.get();
    if (pair != nullptr && !HasExpired(pair->expiry, snapshot.time)) {
      if (pair->damaged) return DamagedPair(tree.region(), key);
      reply.found = 1;
      reply.stamp = pair->stamp;
      found = {pair->value, pair->expiry};
    }
  } else {
    ASSIGN_OR_RETURN(const NodeView leaf, tree.VerifiedLeafOf(key));
    const std::optional<int> slot = leaf.Find(key);
    if (slot.has_value() && !HasExpired(leaf.pair(*slot).expiry, snapshot.time)) {
      const LeafPair pair = leaf.pair(*slot);
      ASSIGN_OR_RETURN(found.value, tree.VerifiedValueOf(key, pair));
      reply.found = 1;
      reply.stamp = pair.stamp;
      found.expiry = pair.expiry;
    }
  }
  if (reply.found != 0) {
    reply.crc = Crc64(found.value, Crc64(key));
    reply.value_bytes = static_cast<uint32_t>(found.value.size());
  }
  return EndGetReply(reply, found, call.peer, request.fixed.get.copy, parts_.copies, to);
}

absl::StatusOr<size_t> SnapshotRequests::Scan(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const ParsedScanSnapshot request, ParseScanSnapshotRequest(call.request));
  const auto& [fixed, from, end] = request.scan;
  const KeySpan* seen;
  RETURN_IF_ERROR(parts_.permissions->CheckScan(call, fixed.root, from, &seen));
  const Target target = parts_.served->Find(fixed.root, from);
  if (target.store == nullptr) return WriteRoute(to, target, from);
  if (target.region->tree == nullptr) return NoMeganode(*target.region);
  const Meganode& tree = *target.region->tree;
  const Piece* const piece = target.region->snapshots.Find({request.id, UserOf(call)}, from);
  if (piece == nullptr) return TooOld(from, tree.region());
  const KeySpan span = SpanOf(*piece, seen);
  ASSIGN_OR_RETURN(ScanTarget scan, ScanTarget::Of(MessageKind::kScanSnapshot, tree, request.scan, &span, to));
  absl::StatusOr<size_t> bytes = AddEntries(tree, *piece->kept, &scan);
  // The reply has the entries before the damage. The next call begins at the damage and returns the error.
  if (absl::IsDataLoss(bytes.status()) && !scan.writer.empty()) return scan.writer.GoOn(scan.position.at(), {});
  return bytes;
}

void SnapshotRequests::Step() {
  SnapshotMemory* const memory = regions_->snapshots();
  if (memory->idle()) return;
  const int64_t now_ns = clock_->NowNs();
  if (now_ns < step_at_ns_) return;
  step_at_ns_ = now_ns + memory->limits().still_ns / kStepsPerStill;
  memory->Step();
  regions_->ForEach([now_ns](HeldRegion* region) {
    if (region->snapshots.empty()) return;
    region->snapshots.Step(now_ns);
    region->FollowChanges();
  });
}

}  // namespace cell
