// Has what WritePipeline does with deletes of ranges: slice by slice, or all that a region has at once.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cell/base/status_macros.h"
#include "cell/server/request/range_request.h"
#include "cell/server/request/write_pipeline.h"

namespace cell {
namespace {

constexpr size_t kFreedPerTurn = 16;

// Returns whether a range has all that a region has, and that can be deleted at once.
bool ClearsAll(const KeyedRequest& request, const HeldRegion& region) {
  if (!region.claimable() || !MeganodeClear::Pays(*region.tree)) return false;
  if (!region.transactions.empty() || !region.snapshots.empty()) return false;
  const MeganodeRange range = region.tree->range();
  return request.key <= range.low &&
         (request.value.empty() || (range.high.has_value() && request.value >= *range.high));
}

}  // namespace

absl::StatusOr<WritePipeline::Served> WritePipeline::DeleteSlice(const IncomingCall& call, const KeyedRequest& request,
                                                                 HeldRegion* region) {
  if (region->tree == nullptr) return NoMeganode(*region);
  Meganode& tree = *region->tree;
  RETURN_IF_ERROR(CheckRangeRoom(tree, call.reply_bytes_max));
  if (ClearsAll(request, *region)) return Clear(call, request, region);
  const auto slice = std::make_shared<DeletedSlice>();
  bool logged = false;
  slice->next = request.key;
  const KeyLocks& locks = region->transactions.locks;
  const auto may_write = [&](std::string_view from, const LeafKeys& leaf) {
    return locks.MayWriteRange(from, leaf.next.has_value() ? *leaf.next : request.value);
  };
  for (int leaves = 0; leaves < kLeavesPerDelete && slice->next.has_value() && tree.Covers(*slice->next); ++leaves) {
    absl::StatusOr<LeafKeys> leaf = KeysOfLeaf(tree, *slice->next, request.value);
    absl::StatusOr<uint64_t> deleted = 0;
    if (leaf.ok() && !locks.empty() && !may_write(*slice->next, *leaf)) {
      if (leaves == 0) return Served{Stage::kLocked};
      break;
    }
    if (!leaf.ok()) {
      deleted = leaf.status();
    } else if (!region->log_first) {
      deleted = tree.DeleteAll(leaf->keys);
    } else if (!leaf->keys.empty()) {
      LogKeys(std::move(leaf->keys), slice, region);
      logged = true;
    }
    if (!deleted.ok() && leaves == 0) return deleted.status();
    if (!deleted.ok()) break;  // The next slice begins with this leaf, and returns the error.
    slice->pairs += *deleted;
    slice->next = std::move(leaf->next);
  }
  if (!logged) return Served{Stage::kDone, false, slice};
  region->pending.back().call = call;
  region->pending.back().call.request = {};
  return Served{Stage::kLogged};
}

void WritePipeline::LogKeys(std::vector<std::string> keys, const std::shared_ptr<DeletedSlice>& slice,
                            HeldRegion* region) {
  uint64_t sequence = 0;
  for (const std::string& key : keys) sequence = region->log->Append(RecordKind::kDelete, key, std::string_view());
  PendingWrite write{IncomingCall{}, MessageKind::kDeleteRange, sequence, {}, {}, {}};
  write.keys = std::move(keys);
  write.slice = slice;
  region->pending.push_back(std::move(write));
  ++pending_;
}

WritePipeline::Served WritePipeline::Clear(const IncomingCall& call, const KeyedRequest& request, HeldRegion* region) {
  RegionClaim claim(region, ClaimPurpose::kClear);
  const auto slice = std::make_shared<DeletedSlice>();
  const MeganodeRange range = region->tree->range();
  if (range.high.has_value() && request.value != *range.high) slice->next = range.high;
  uint64_t sequence = 0;
  if (region->log != nullptr) sequence = region->log->Append(RecordKind::kClear, "", "");
  if (!region->log_first) {
    slice->pairs = ClearNow(region, std::move(claim));
    return Served{Stage::kDone, false, slice};
  }
  PendingWrite write{call, MessageKind::kDeleteRange, sequence, {}, {}, {}};
  write.call.request = {};
  write.slice = slice;
  write.clears = true;
  region->pending.push_back(std::move(write));
  ++pending_;
  clears_.insert_or_assign(region->region(), std::move(claim));
  return Served{Stage::kLogged};
}

uint64_t WritePipeline::ClearNow(HeldRegion* region, RegionClaim claim) {
  ++cleared_;
  if (freeing_.empty()) scheduler_->Spawn(FreeGradually());
  return freeing_.emplace_back(std::move(claim), region->tree).clear.pairs();
}

bool WritePipeline::Free(Cleared* cleared) {
  const HeldRegion* const region = cleared->claim.region();
  return region == nullptr || region->lost() || cleared->clear.Free(kFreedPerTurn);
}

Task<bool> WritePipeline::FreeGradually() {
  while (!freeing_.empty() && !scheduler_->stopping()) {
    if (Free(&freeing_.front())) freeing_.pop_front();
    co_await scheduler_->Yield();
  }
  co_return true;
}

}  // namespace cell
