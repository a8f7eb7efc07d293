#include "cell/client/tree/scan_leaves.h"

#include "cell/base/crc64.h"
#include "cell/base/mutant.h"
#include "cell/client/call/calls.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr int kLeafAttemptsMax = 8;
// A leg ends after this many leaves, however few entries they had, because its data is trusted, or not, as a whole.
constexpr int kLeavesMax = 1024;

}  // namespace

bool ScanLeaves::Full(const Filling& filling) {
  return filling.batch->size() >= filling.wanted || filling.batch->full() || filling.leaves >= kLeavesMax;
}

Task<absl::StatusOr<ScanLeaves::Leg>> ScanLeaves::Fill(KeyRouter* router, ScanPosition* position, bool from_here,
                                                       size_t wanted, uint64_t left, CallContext context,
                                                       ScanBatch* batch) {
  WorkerConnection* const worker = router->worker();
  Filling filling{router, position, wanted, left, batch, {}, context};
  filling_ = &filling;
  kept_ = leaf_ready_ || walk_goes_on_ || !ahead_.next().null();
  bool asked = false;  // For the worker's time.
  SearchReads reads(worker->selector(OperationKind::kScan));
  for (int attempt = 0; !filling.ended && !Full(filling) && session_->now_ns() < context.deadline_ns;) {
    if (!leaf_ready_) {
      if (!walk_goes_on_) walk_ = Walk(position->at(), router->root());
      walk_goes_on_ = false;
      ahead_.Clear();
      LeafNeighbours* const neighbours = attempt == 0 && !one_leaf_ ? this : nullptr;
      const absl::StatusOr<Walk::Step> step = co_await session_->tree()->WalkToLeaf(
          worker, &walk_, router->may_use_cache(), &walked_, context.deadline_ns, &reads, neighbours);
      if (!step.ok()) {
        one_leaf_ = true;
        co_return step.status();
      }
      if (*step != Walk::Step::kArrived) {
        if (position->down() && from_here && walk_.below()) {
          filling.leg.end = Leg::End::kMeganode;
          break;
        }
        absl::Status status = router->Follow(walk_, *step, walked_.cached);
        if (!status.ok()) co_return status;
        co_return filling.leg;
      }
      if (walked_.leaf.locked() && !Mutated(Mutant::kLocksUnseen)) {
        co_return absl::AbortedError("a transaction perhaps writes a key of the leaf, and the server knows which");
      }
      leaf_ready_ = from_here = true;
      kept_ = false;
    }
    TakeLeaves(&filling, attempt > 0 || one_leaf_);
    const absl::Status status = co_await ReadPlanned(worker, batch, context.deadline_ns, &reads);
    if (!status.ok() && status.code() != absl::StatusCode::kOutOfRange) {
      GiveBack(&filling, 0);
      one_leaf_ = true;
      co_return status;
    }
    const size_t wrong = status.ok() ? FirstWrong(batch) : 0;
    if (wrong < taken_.size()) {  // An extent was replaced since the leaf was read. Read the leaf again.
      ++session_->metrics()->extent_retries;
      GiveBack(&filling, wrong);
      attempt = wrong == 0 ? attempt + 1 : 1;
      if (attempt == kLeafAttemptsMax) {
        co_return absl::AbortedError(fmt::format("the leaf of key {} changed {} times while it was being read",
                                                 ForMessage(position->at()), kLeafAttemptsMax));
      }
      continue;
    }
    attempt = 0;
    one_leaf_ = false;
    if (open_.has_value()) {
      Forget();
      if (kept_) continue;  // It may have expired, or been replaced, since its leaf was read.
      ServerTime::Life life = ServerTime::Life::kUndecided;
      if (!asked) life = co_await LifeAt(session_, worker, *open_, context);
      asked = true;
      if (life == ServerTime::Life::kUndecided) {
        co_return absl::AbortedError(
            fmt::format("it is not known whether the pair of key {} has expired", ForMessage(position->at())));
      }
      continue;
    }
    if (!filling.ended && !leaf_ready_ && !ahead_.next().null()) VisitAhead(*position);
  }
  reads.End();
  if (!damaged_.ok()) Forget();
  if (!damaged_.ok() && batch->empty()) co_return damaged_;
  co_return filling.leg;
}

void ScanLeaves::TakeLeaves(Filling* filling, bool one_leaf) {
  ScanPosition* const position = filling->position;
  ScanBatch* const batch = filling->batch;
  taken_.clear();
  outside_.clear();
  open_.reset();
  damaged_ = absl::OkStatus();
  Pointer beside;
  while (leaf_ready_ && !Full(*filling)) {
    const NodeView& leaf = walked_.leaf;
    taken_.push_back({position->at(), batch->size(), batch->bytes(), outside_.size()});
    if (!leaf.InOrder()) {
      damaged_ = DamagedNode(leaf.self().region(), leaf.self());
      filling->ended = true;
      return;
    }
    const int slot = TakeEntries(*position, *filling);
    if (ScanPosition::In(leaf, slot)) {
      leaf.CopyKey(slot, &key_);
      filling->ended = position->Past(key_);
      if (filling->ended) filling->leg.end = Leg::End::kRange;
      if (!damaged_.ok()) filling->ended = true;
      position->MoveTo(key_);  // If the batch is full, continue here, with the leaf as it was read.
      return;
    }
    leaf_ready_ = false;
    ++filling->leaves;
    entries_per_leaf_ = std::max(1, leaf.count());
    if (position->EndsWith(leaf)) {
      filling->ended = true;
      filling->leg.end = Leg::End::kRange;
      return;
    }
    const Pointer right = leaf.right();
    beside = Beside(*position);
    position->Pass(leaf);
    if (!position->down() && right.region() != filling->router->root().region()) {
      filling->ended = true;
      filling->leg = {Leg::End::kMeganode, right};
      return;
    }
    const bool leads_there = ahead_.next() == beside || (Mutated(Mutant::kLeafAheadUnchecked) && !ahead_.next().null());
    if (beside.null() || !leads_there || filling->left <= batch->size()) break;
    VisitAhead(*position);
    if (!leaf_ready_) return;  // The walk goes on from there.
  }
  if (leaf_ready_ || beside.null() || filling->left <= batch->size()) return;
  ahead_.Clear();
  ahead_.Plan(beside);
  kept_ = false;
  if (!one_leaf) ahead_.PlanBehind(beside, walked_.parent, *position, LeavesBehind(*filling));
}

size_t ScanLeaves::LeavesBehind(const Filling& filling) const {
  const size_t entries = filling.wanted - std::min(filling.wanted, filling.batch->size());
  const size_t leaves = (entries + static_cast<size_t>(entries_per_leaf_) - 1) / static_cast<size_t>(entries_per_leaf_);
  return std::max<size_t>(leaves, 1) - 1;
}

absl::Span<const ReadPart> ScanLeaves::ReadsWith(const ReadPart& leaf, const NodeView& parent) {
  ahead_.Clear();
  ahead_.PlanBehind(leaf.from, parent, *filling_->position, LeavesBehind(*filling_));
  parts_ = {leaf};
  ahead_.AddReads(&parts_);
  return parts_;
}

Task<absl::Status> ScanLeaves::ReadPlanned(WorkerConnection* worker, ScanBatch* batch, int64_t deadline_ns,
                                           SearchReads* reads) {
  parts_.clear();
  for (const OutsidePair& pair : outside_) {
    parts_.push_back({pair.where.extent, batch->At((*batch)[pair.entry].at),
                      static_cast<uint32_t>(RoundUp(pair.bytes, kWordBytes))});
  }
  session_->metrics()->node_reads += ahead_.AddReads(&parts_);
  session_->metrics()->extent_reads += outside_.size();
  if (parts_.empty()) co_return absl::OkStatus();
  co_return co_await session_->connections()->Read(worker, parts_, deadline_ns, reads);
}

int ScanLeaves::TakeEntries(const ScanPosition& position, const Filling& filling) {
  const NodeView& leaf = walked_.leaf;
  ScanBatch* const batch = filling.batch;
  const ServerTime& time = filling.router->worker()->time;
  int slot = position.First(leaf);
  for (; ScanPosition::In(leaf, slot) && batch->size() < filling.wanted && !batch->full(); slot += position.step()) {
    leaf.CopyKey(slot, &key_);
    if (position.Past(key_)) break;
    const Expiry expiry = leaf.leaf_slot(slot).expires() ? leaf.pair(slot).expiry : kNeverExpires;
    if (expiry != kNeverExpires) {
      const ServerTime::Life life = kept_ ? ServerTime::Life::kUndecided : time.At(filling.context.started_ns, expiry);
      if (life == ServerTime::Life::kUndecided) open_ = expiry;
      if (life == ServerTime::Life::kUndecided) break;
      if (life == ServerTime::Life::kExpired) continue;
    }
    if (keys_only_) {
      batch->Add({batch->Copy(key_.data(), key_.size()), key_.size(), 0, expiry});
      continue;
    }
    const LeafPair pair = leaf.pair(slot);
    const size_t at = batch->Reserve(pair.pair_bytes());
    if (pair.is_inline) {
      std::memcpy(batch->At(at), key_.data(), key_.size());
      if (!pair.value.empty()) std::memcpy(batch->At(at) + key_.size(), pair.value.data(), pair.value.size());
      if (!pair.Matches(Crc64(ConstBytes(batch->At(at), pair.pair_bytes())))) {
        batch->Cut(batch->size(), at);
        damaged_ = DamagedPair(leaf.self().region(), key_);
        break;
      }
    } else {
      outside_.push_back({pair.outside, pair.pair_bytes(), batch->size()});
    }
    batch->Add({at, key_.size(), pair.value_bytes, expiry});
  }
  return slot;
}

// Returns null if the walk must start over from the meganode's root. An upward scan starts over if its parent does not
// name the next leaf. The new walk finds a parent that names many leaves, while a right link leads to one leaf only. If
// a cached parent is out of date, the new walk moves right and drops it from the cache.
Pointer ScanLeaves::Beside(const ScanPosition& position) const {
  const NodeView& leaf = walked_.leaf;
  const NodeView& parent = walked_.parent;
  if (!position.down()) {
    if (leaf.right().region() != leaf.self().region()) return {};
    if (parent.bytes() == nullptr) return leaf.right();
    if (!parent.Covers(leaf.high_key())) return {};
    const int slot = parent.ChildSlot(leaf.high_key());
    if (slot >= 0 && parent.inner_slot(slot).child() == leaf.right()) return leaf.right();
    return {};
  }
  if (parent.bytes() == nullptr || !parent.Covers(leaf.low_key())) return {};
  const int left = parent.LowerBound(leaf.low_key()) - 1;
  return left < 0 ? Pointer() : parent.inner_slot(left).child();
}

size_t ScanLeaves::FirstWrong(ScanBatch* batch) const {
  size_t leaf = 0;
  for (size_t i = 0; i < outside_.size(); ++i) {
    while (leaf + 1 < taken_.size() && taken_[leaf + 1].outside <= i) ++leaf;
    const ConstBytes pair(batch->At((*batch)[outside_[i].entry].at), outside_[i].bytes);
    if (Crc64(pair) != outside_[i].where.crc && !Mutated(Mutant::kNoExtentCrc)) return leaf;
  }
  return taken_.size();
}

void ScanLeaves::GiveBack(Filling* filling, size_t from) {
  Forget();
  filling->ended = false;
  filling->leg = {Leg::End::kBatch, {}};
  damaged_ = absl::OkStatus();
  open_.reset();
  if (from >= taken_.size()) return;
  filling->position->MoveTo(taken_[from].from);
  filling->batch->Cut(taken_[from].entries, taken_[from].bytes);
  outside_.resize(taken_[from].outside);
  taken_.resize(from);
}

void ScanLeaves::VisitAhead(const ScanPosition& position) {
  const Pointer leaf = ahead_.next();
  ahead_.Take(&walked_.buffer);
  walk_.GoBeside(leaf, position.at());
  NodeView view;
  const NodeFault fault = NodeView::Parse(ConstBytes(walked_.buffer.data(), session_->node_bytes()), leaf, &view);
  if (fault == NodeFault::kTorn) ++session_->metrics()->torn;
  if (fault == NodeFault::kNone) walked_.leaf = view;
  Walk::Step step = fault == NodeFault::kNone ? walk_.Visit(view) : walk_.Failed(fault);
  if (fault == NodeFault::kNone && Mutated(Mutant::kLeafAheadUnchecked)) step = Walk::Step::kArrived;
  // A locked leaf is read again, by a walk of its own.
  const bool locked = fault == NodeFault::kNone && view.locked() && !Mutated(Mutant::kLocksUnseen);
  leaf_ready_ = step == Walk::Step::kArrived && !locked;
  walk_goes_on_ = step == Walk::Step::kRead;
}

}  // namespace cell
