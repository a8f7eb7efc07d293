#include "cell/client/tree/scan_leaves.h"

#include "cell/base/crc64.h"
#include "cell/base/mutant.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr int kLeafAttemptsMax = 8;
// A batch ends early once its extents are this large together.
constexpr size_t kBatchBytesMax = size_t{4} << 20;
// A leg ends after this many leaves, however few entries they had, because its data is trusted, or not, as a whole.
constexpr int kLeavesMax = 1024;

}  // namespace

Task<absl::StatusOr<ScanLeaves::Leg>> ScanLeaves::Fill(KeyRouter* router, ScanPosition* position, bool from_here,
                                                       size_t wanted, uint64_t left, CallContext context,
                                                       ScanBatch* batch) {
  WorkerConnection* const worker = router->worker();
  Leg leg{Leg::End::kBatch, {}};
  SearchReads reads(&worker->scans);
  int leaves = 0;
  for (int attempt = 0; batch->size() < wanted && batch->bytes() < kBatchBytesMax && leaves < kLeavesMax;) {
    if (session_->now_ns() >= context.deadline_ns) break;
    if (!leaf_ready_) {
      if (!walk_goes_on_) walk_ = Walk(position->at(), router->root());
      walk_goes_on_ = false;
      const absl::StatusOr<Walk::Step> step = co_await session_->tree()->WalkToLeaf(
          worker, &walk_, router->may_use_cache(), &walked_, context.deadline_ns, &reads);
      if (!step.ok()) co_return step.status();
      if (*step != Walk::Step::kArrived) {
        if (position->down() && from_here && walk_.below()) {
          leg.end = Leg::End::kMeganode;
          break;
        }
        absl::Status status = router->Follow(walk_, *step, walked_.cached);
        if (!status.ok()) co_return status;
        co_return leg;
      }
      leaf_ready_ = from_here = true;
    }
    const NodeView& leaf = walked_.leaf;
    const size_t entries_before = batch->size();
    const size_t bytes_before = batch->bytes();
    const absl::StatusOr<int> slot = TakeEntries(*position, wanted, batch);
    if (!slot.ok()) {
      batch->Cut(entries_before, bytes_before);
      co_return slot.status();
    }
    const bool whole_leaf = !ScanPosition::In(leaf, *slot);
    const bool goes_on = whole_leaf && left > batch->size() && !position->EndsWith(leaf);
    const Pointer beside = goes_on ? Beside(*position) : Pointer();

    parts_.clear();
    for (size_t i = 0; i < slots_.size() && !keys_only_; ++i) {
      parts_.push_back({slots_[i].extent, batch->At((*batch)[entries_before + i].at),
                        static_cast<uint32_t>(RoundUp(slots_[i].extent_bytes, kWordBytes))});
    }
    if (!beside.null()) parts_.push_back({beside, beside_.data(), session_->node_bytes()});
    absl::Status status;
    if (!parts_.empty()) {
      session_->metrics()->node_reads += !beside.null();
      session_->metrics()->extent_reads += parts_.size() - !beside.null();
      status = co_await session_->connections()->Read(worker, parts_, context.deadline_ns, &reads);
      if (!status.ok() && status.code() != absl::StatusCode::kOutOfRange) {
        batch->Cut(entries_before, bytes_before);
        leaf_ready_ = false;
        co_return status;
      }
    }
    if (!status.ok() || !ExtentsAreRight(batch, entries_before)) {
      ++session_->metrics()->extent_retries;  // One was replaced since the leaf was read. Read the leaf again.
      batch->Cut(entries_before, bytes_before);
      leaf_ready_ = false;
      if (++attempt == kLeafAttemptsMax) {
        co_return absl::AbortedError(fmt::format("the leaf of key {} changed {} times while it was being read",
                                                 ForMessage(position->at()), kLeafAttemptsMax));
      }
      continue;
    }
    if (!whole_leaf) {
      leaf.CopyKey(*slot, &key_);
      if (position->Past(key_)) leg.end = Leg::End::kRange;
      position->MoveTo(key_);  // If the batch is full, continue here, with the leaf as it was read.
      break;
    }
    leaf_ready_ = false;
    attempt = 0;
    ++leaves;
    if (position->EndsWith(leaf)) {
      leg.end = Leg::End::kRange;
      break;
    }
    const Pointer right = leaf.right();
    position->Pass(leaf);
    if (!position->down() && right.region() != router->root().region()) {
      leg = {Leg::End::kMeganode, right};
      break;
    }
    if (beside.null()) continue;
    walk_.GoBeside(beside, position->at());
    const Walk::Step step = Visit(beside);
    leaf_ready_ = step == Walk::Step::kArrived;
    walk_goes_on_ = step == Walk::Step::kRead;
  }
  reads.End();
  co_return leg;
}

absl::StatusOr<int> ScanLeaves::TakeEntries(const ScanPosition& position, size_t wanted, ScanBatch* batch) {
  const NodeView& leaf = walked_.leaf;
  slots_.clear();
  int slot = position.First(leaf);
  for (; ScanPosition::In(leaf, slot) && batch->size() < wanted && batch->bytes() < kBatchBytesMax;
       slot += position.step()) {
    leaf.CopyKey(slot, &key_);
    if (position.Past(key_)) break;
    const LeafSlot one = leaf.leaf_slot(slot);
    if (one.extent_bytes < key_.size() || one.extent_bytes > key_.size() + kValueBytesMax) {
      return absl::DataLossError(fmt::format("the leaf gives key {} an impossible size", ForMessage(key_)));
    }
    if (keys_only_) {
      batch->Add({batch->Copy(key_.data(), key_.size()), key_.size(), 0});
    } else {
      batch->Add({batch->Reserve(one.extent_bytes), key_.size(), one.extent_bytes - key_.size()});
      slots_.push_back(one);
    }
  }
  return slot;
}

// Returns null if the walk must start over from the meganode's root.
Pointer ScanLeaves::Beside(const ScanPosition& position) const {
  const NodeView& leaf = walked_.leaf;
  if (!position.down()) return leaf.right().region() == leaf.self().region() ? leaf.right() : Pointer();
  const NodeView& parent = walked_.parent;
  if (parent.bytes() == nullptr || !parent.Covers(leaf.low_key())) return {};
  const int left = parent.LowerBound(leaf.low_key()) - 1;
  return left < 0 ? Pointer() : parent.inner_slot(left).child();
}

bool ScanLeaves::ExtentsAreRight(ScanBatch* batch, size_t first) const {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (Crc64(ConstBytes(batch->At((*batch)[first + i].at), slots_[i].extent_bytes)) != slots_[i].crc) {
      return Mutated(Mutant::kNoExtentCrc);
    }
  }
  return true;
}

Walk::Step ScanLeaves::Visit(Pointer leaf) {
  walked_.buffer.Swap(&beside_);
  NodeView view;
  const NodeFault fault = NodeView::Parse(ConstBytes(walked_.buffer.data(), session_->node_bytes()), leaf, &view);
  if (fault != NodeFault::kNone) {
    if (fault == NodeFault::kTorn) ++session_->metrics()->torn;
    return walk_.Failed(fault);
  }
  walked_.leaf = view;
  return walk_.Visit(view);
}

}  // namespace cell
