#include "cell/server/request/write_pipeline.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/region/expiry_sweep.h"
#include "cell/server/request/range_request.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr size_t kFreedPerTurn = 16;

// Returns whether a range has all that a region has, and that can be deleted at once.
bool ClearsAll(const KeyedRequest& request, const HeldRegion& region) {
  if (!region.claimable() || !MeganodeClear::Pays(*region.tree)) return false;
  const MeganodeRange range = region.tree->range();
  return request.key <= range.low &&
         (request.value.empty() || (range.high.has_value() && request.value >= *range.high));
}

}  // namespace

void WritePipeline::Serve(const IncomingCall& call, const KeyedRequest& request, const Target& target) {
  HeldRegion* const region = target.region;
  // Wait behind other writes to the region, in order.
  const bool waits = region != nullptr && (!Open(*region) || held_->size(region->region()) > 0);
  if (waits && Hold(call, request.kind)) return;
  absl::StatusOr<Outcome> outcome = Try(call, request, target);
  const bool full = region != nullptr && absl::IsResourceExhausted(outcome.status());
  if (full && WillHaveRoom(region, request) && Hold(call, request.kind)) return;
  if (!outcome.ok()) outcome = Refusal(outcome.status(), region, request);
  Answer(call, request, target, outcome);
}

bool WritePipeline::Hold(const IncomingCall& call, MessageKind kind) {
  while (!held_->HasRoom(call.request.size())) {
    const std::optional<HeldWrites::Displaced> other = held_->Displace(call);
    if (!other.has_value()) return false;
    if (other->upload != 0) uploads_->Forget(other->call.peer, other->upload);
    replies_->Error(other->call, other->kind,
                    absl::UnavailableError("this client has more writes than any other that wait for their regions, "
                                           "and another client's took the place of this one; nothing was written"));
  }
  held_->Add(call, kind, clock_->NowNs());
  return true;
}

size_t WritePipeline::RetryHeld() {
  if (held_->size() == 0) return 0;
  if (!Mutated(Mutant::kHeldUnleased)) served_->CheckLease();
  return held_->RetryEach([this](const HeldWrite& held) { return Retry(held); });
}

bool WritePipeline::Retry(const HeldWrite& held) {
  if (held.withdrawn) {
    replies_->Error(held.call, held.request.kind, absl::CancelledError("the client has begun another upload"));
    return true;
  }
  const Target target = served_->Find(held.request.root, held.request.key);
  HeldRegion* const region = target.region;
  const int64_t waited_ns = clock_->NowNs() - held.since_ns;
  const bool may_wait = region != nullptr && waited_ns < options_.held_max_ns;
  if (may_wait && !Open(*region)) return false;
  absl::StatusOr<Outcome> outcome = Try(held.call, held.request, target);
  if (may_wait && absl::IsResourceExhausted(outcome.status()) && WillHaveRoom(region, held.request)) return false;
  if (!outcome.ok()) outcome = Refusal(outcome.status(), region, held.request);
  held_->NoteWaited(waited_ns);
  Answer(held.call, held.request, target, outcome);
  return true;
}

bool WritePipeline::WillHaveRoom(HeldRegion* region, const KeyedRequest& request) {
  // Writes that are logged and not yet applied reserve room, some of which becomes free when they replace values.
  if (!region->pending.empty()) return true;
  if (region->sweeping || ExpirySweep::Pays(*region->store)) return true;
  // With as many regions as there may be, no split can be waited for, except for one in progress.
  const bool last = regions_->size() >= regions_->regions_max() && !region->ClaimedFor(ClaimPurpose::kSplit);
  // For a value that is much larger than what is stored, pairs would go until one free piece is large enough, and that
  // is most of them.
  const bool scattered = evictor_->on() && IsMuchLarger(*region, request);
  if (last && scattered && Compacts(region, request)) return true;
  if (last && Evict(region, request)) return true;
  if (room_ != nullptr && room_->MakeRoom(region)) return true;
  if (!last && scattered && Compacts(region, request)) return true;
  if (!last && Evict(region, request)) return true;
  return Compacts(region, request);  // A pass over the region takes longer than all of these.
}

bool WritePipeline::IsMuchLarger(const HeldRegion& region, const KeyedRequest& request) {
  constexpr uint64_t kMuchLarger = 8;
  const uint64_t stored_bytes = region.store->extents().bytes_used / std::max<uint64_t>(1, region.store->keys());
  return request.IsPut() && request.value_bytes > kMuchLarger * stored_bytes;
}

bool WritePipeline::Evict(HeldRegion* region, const KeyedRequest& request) {
  if (!evictor_->on() || !request.IsPut()) return false;
  if (region->tree != nullptr && !region->tree->Covers(request.key)) return false;
  // A value that takes much of a region would cost most of what it has.
  const RegionHeader& header = region->memory->header();
  const bool large = request.value_bytes > header.extents_bytes / 4;
  if (large && header.extents.bytes_used + request.value_bytes > header.extents_bytes) return false;
  if (!Open(*region)) return true;  // The put waits for that first.
  if (!MayDeleteExpired(*region)) return false;
  bool any = false;
  for (Evictor::Victims& victims : evictor_->Choose(*region, request.key, PairBytes(request))) {
    HeldRegion* const its = regions_->Find(victims.region);
    if (its != region && !MayDeleteExpired(*its)) continue;
    const absl::StatusOr<size_t> deleted = DeleteUnlessPending(std::move(victims.keys), its);
    if (!deleted.ok()) continue;
    evicted_ += *deleted;
    any |= its == region && *deleted > 0;
  }
  return any;
}

absl::Status WritePipeline::Refusal(const absl::Status& status, HeldRegion* region, const KeyedRequest& request) {
  const bool full = absl::IsResourceExhausted(status) && region != nullptr;
  if (!full) return status;
  if (region->ClaimedFor(ClaimPurpose::kRouteBlocked) || !WillHaveRoom(region, request)) {
    if (!evictor_->on()) return status;
    return absl::ResourceExhaustedError(
        fmt::format("{}; and no pair was found that may be evicted for it", std::string(status.message())));
  }
  return absl::UnavailableError(fmt::format(
      "region {} is full and has not been split yet, or its disk is slow; nothing was written", region->region()));
}

absl::StatusOr<WritePipeline::Outcome> WritePipeline::Try(const IncomingCall& call, const KeyedRequest& request,
                                                          const Target& target) {
  if (!served_->leased()) {
    return absl::UnavailableError(
        fmt::format("{} cannot renew its session and acknowledges no writes; nothing was written", options_.server));
  }
  HeldRegion* const region = target.region;
  if (region != nullptr && !Open(*region)) {
    return absl::UnavailableError(fmt::format("region {} waited too long for {}; nothing was written", region->region(),
                                              region->late(*clock_) ? "the disk of its log" : "its migration"));
  }
  if (region != nullptr && region->log != nullptr && !region->log->status().ok()) {
    return absl::UnavailableError(
        fmt::format("the log of region {} has failed, and the region accepts no writes; nothing was written: {}",
                    region->region(), std::string(region->log->status().message())));
  }
  if (target.store == nullptr) return Outcome{Stage::kRouted};
  if (request.IsPut()) evictor_->Touch(request.key);
  if (request.kind == MessageKind::kDeleteRange) return DeleteSlice(call, request, region);
  std::string_view value = request.value;
  if (request.upload != 0) {
    ASSIGN_OR_RETURN(value, uploads_->Find(call.peer, request.upload, request.value_bytes));
  }
  ASSIGN_OR_RETURN(const Expiry expiry, ExpiryOf(request.expires, regions_->ClusterTime()));
  std::optional<bool> existed;  // As the condition was decided: the pair may expire before the write takes effect.
  if (request.condition.has_value()) {
    ASSIGN_OR_RETURN(const KeyState state, StateOf(request.key, *region));
    ASSIGN_OR_RETURN(const bool holds, Holds(*request.condition, state));
    if (!holds) return Refuse(call, request, state, region);
    existed = state.exists;
  }
  if (region->log_first) return Log(call, request, value, expiry, existed, region);
  Outcome outcome{Stage::kDone};
  if (request.IsPut()) {
    ASSIGN_OR_RETURN(outcome.existed, target.store->Put(request.key, value, request.crc, request.hint, expiry));
    if (region->tree != nullptr) outcome.stamp = region->tree->header().last_stamp;
  } else {
    ASSIGN_OR_RETURN(outcome.existed, target.store->Delete(request.key, request.hint));
  }
  outcome.existed = existed.value_or(outcome.existed);
  return outcome;
}

absl::StatusOr<WritePipeline::Outcome> WritePipeline::Log(const IncomingCall& call, const KeyedRequest& request,
                                                          std::string_view value, Expiry expiry,
                                                          std::optional<bool> existed, HeldRegion* region) {
  PairStore::Prepared prepared;
  uint64_t sequence = 0;
  if (request.IsPut()) {
    ASSIGN_OR_RETURN(prepared, Prepare(request, value, expiry, *region));
    sequence = region->log->AppendPut({request.key, value, expiry, prepared.stamp});
  } else {
    RETURN_IF_ERROR(region->store->CheckKey(request.key));
    sequence = region->log->Append(RecordKind::kDelete, request.key, std::string_view());
  }
  const MessageKind kind = request.IsPut() ? MessageKind::kPut : MessageKind::kDelete;
  region->pending.push_back({call, kind, sequence, std::string(request.key), prepared, request.hint});
  region->pending.back().call.request = {};
  region->pending.back().conditional = existed.has_value();
  region->pending.back().existed = existed.value_or(false);
  ++pending_;
  // The value is in an extent and in the log.
  if (request.upload != 0) uploads_->Forget(call.peer, request.upload);
  return Outcome{Stage::kLogged};
}

WritePipeline::Outcome WritePipeline::Refuse(const IncomingCall& call, const KeyedRequest& request,
                                             const KeyState& state, HeldRegion* region) {
  if (state.after_sequence == 0 || Mutated(Mutant::kRefusedTooEarly)) {
    return {Stage::kDone, state.exists, nullptr, /*applied=*/false, state.stamp};
  }
  if (request.upload != 0) uploads_->Forget(call.peer, request.upload);
  PendingWrite write{call, request.kind, state.after_sequence, {}, {}, {}};
  write.call.request = {};
  write.conditional = write.refused = true;
  write.existed = state.exists;
  write.stamp = state.stamp;
  // In the order of what the writes wait for: those behind it were logged later.
  auto at = region->pending.end();
  while (at != region->pending.begin() && std::prev(at)->sequence > write.sequence) --at;
  region->pending.insert(at, std::move(write));
  ++pending_;
  return Outcome{Stage::kLogged};
}

absl::StatusOr<WritePipeline::Outcome> WritePipeline::DeleteSlice(const IncomingCall& call, const KeyedRequest& request,
                                                                  HeldRegion* region) {
  if (region->tree == nullptr) return NoMeganode(*region);
  Meganode& tree = *region->tree;
  RETURN_IF_ERROR(CheckRangeRoom(tree, call.reply_bytes_max));
  if (ClearsAll(request, *region)) return Clear(call, request, region);
  const auto slice = std::make_shared<DeletedSlice>();
  bool logged = false;
  slice->next = request.key;
  for (int leaves = 0; leaves < kLeavesPerDelete && slice->next.has_value() && tree.Covers(*slice->next); ++leaves) {
    absl::StatusOr<LeafKeys> leaf = KeysOfLeaf(tree, *slice->next, request.value);
    absl::StatusOr<uint64_t> deleted = 0;
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
  if (!logged) return Outcome{Stage::kDone, false, slice};
  region->pending.back().call = call;
  region->pending.back().call.request = {};
  return Outcome{Stage::kLogged};
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

WritePipeline::Outcome WritePipeline::Clear(const IncomingCall& call, const KeyedRequest& request, HeldRegion* region) {
  RegionClaim claim(region, ClaimPurpose::kClear);
  const auto slice = std::make_shared<DeletedSlice>();
  const MeganodeRange range = region->tree->range();
  if (range.high.has_value() && request.value != *range.high) slice->next = range.high;
  uint64_t sequence = 0;
  if (region->log != nullptr) sequence = region->log->Append(RecordKind::kClear, "", "");
  if (!region->log_first) {
    slice->pairs = ClearNow(region, std::move(claim));
    return Outcome{Stage::kDone, false, slice};
  }
  PendingWrite write{call, MessageKind::kDeleteRange, sequence, {}, {}, {}};
  write.call.request = {};
  write.slice = slice;
  write.clears = true;
  region->pending.push_back(std::move(write));
  ++pending_;
  clears_.insert_or_assign(region->region(), std::move(claim));
  return Outcome{Stage::kLogged};
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

bool WritePipeline::IsPending(const HeldRegion& region, std::string_view key) {
  return std::any_of(region.pending.begin(), region.pending.end(),
                     [key](const PendingWrite& write) { return write.Changes(key); });
}

absl::StatusOr<bool> WritePipeline::DeleteExpired(std::vector<std::string> keys, HeldRegion* region) {
  const size_t found = keys.size();
  ASSIGN_OR_RETURN(const size_t deleted, DeleteUnlessPending(std::move(keys), region));
  expired_ += deleted;
  return deleted == found;
}

absl::StatusOr<size_t> WritePipeline::DeleteUnlessPending(std::vector<std::string> keys, HeldRegion* region) {
  if (region->log_first && !Mutated(Mutant::kExpiredBeforePut)) {
    keys.erase(std::remove_if(keys.begin(), keys.end(), [&](const auto& key) { return IsPending(*region, key); }),
               keys.end());
  }
  const size_t left = keys.size();
  if (left == 0) return 0;
  if (region->log_first) {
    LogKeys(std::move(keys), std::make_shared<DeletedSlice>(), region);
  } else {
    RETURN_IF_ERROR(region->store->DeleteAll(keys).status());
  }
  return left;
}

absl::StatusOr<PairStore::Prepared> WritePipeline::Prepare(const KeyedRequest& request, std::string_view value,
                                                           Expiry expiry, const HeldRegion& region) const {
  PairStore::Ahead ahead{region.pending.size(), /*of_key=*/true};
  absl::StatusOr<PairStore::Prepared> prepared = region.store->Prepare(request.key, value, request.crc, ahead, expiry);
  if (!absl::IsResourceExhausted(prepared.status()) || IsPending(region, request.key)) return prepared;
  ahead.of_key = false;  // So that a full region accepts a write that replaces a value, as it does without a log.
  return region.store->Prepare(request.key, value, request.crc, ahead, expiry);
}

size_t WritePipeline::ApplyDurable() {
  if (pending_ == 0) return 0;
  const size_t before = pending_;
  regions_->ForEach([this](HeldRegion* region) {
    const size_t pending_before = region->pending.size();
    while (!region->pending.empty()) {
      const PendingWrite& write = region->pending.front();
      const absl::Status& failed = region->log->status();
      absl::StatusOr<bool> existed = false;
      if (write.sequence <= region->log->durable()) {
        existed = Apply(write, region);
      } else if (!failed.ok()) {
        if (write.kind == MessageKind::kPut) region->store->Discard(write.prepared);
        if (write.clears) clears_.erase(region->region());
        // It may be on disk nevertheless.
        existed = absl::UnknownError(fmt::format(
            "the log has failed, and the write may or may not have been applied: {}", std::string(failed.message())));
        if (write.refused || Mutated(Mutant::kFailedPlainly)) {
          existed = absl::UnavailableError(std::string(failed.message()));
        }
      } else {
        break;
      }
      AnswerPending(write, existed);
      region->pending.pop_front();
      --pending_;
    }
    if (region->pending.size() != pending_before) region->changed.Notify();
  });
  return before - pending_;
}

absl::StatusOr<bool> WritePipeline::Apply(const PendingWrite& write, HeldRegion* region) {
  if (write.refused) return false;
  if (write.kind == MessageKind::kPut) return region->store->Commit(write.prepared, write.key, write.hint);
  if (write.kind == MessageKind::kDelete) return region->store->CommitDelete(write.key, write.hint);
  if (write.clears) {
    write.slice->pairs = ClearNow(region, std::move(clears_.extract(region->region()).mapped()));
    return true;
  }
  const absl::StatusOr<uint64_t> deleted = region->store->CommitDeleteAll(write.keys);
  if (deleted.ok()) write.slice->pairs += *deleted;
  write.slice->status.Update(deleted.status());
  // Its records are on disk, and other leaves may have been written.
  if (write.slice->status.ok()) return true;
  return absl::UnknownError(
      fmt::format("the slice may have been applied in part: {}", std::string(write.slice->status.message())));
}

void WritePipeline::Lose(HeldRegion* region) {
  for (const PendingWrite& write : region->pending) {
    const std::string taken = "another server has taken the region over";
    AnswerPending(write, write.refused ? absl::UnavailableError(taken)
                                       : absl::UnknownError(
                                             fmt::format("{}, and the write may or may not have been applied", taken)));
  }
  pending_ -= region->pending.size();
  region->pending.clear();
  clears_.erase(region->region());
}

void WritePipeline::Disconnected(ConnectionId peer) {
  held_->Remove(peer);
  regions_->ForEach([peer](HeldRegion* region) {
    for (PendingWrite& write : region->pending) {
      if (write.call.peer == peer) write.call.reply_bytes_max = 0;  // It must not be answered.
    }
  });
}

void WritePipeline::Answer(const IncomingCall& call, const KeyedRequest& request, const Target& target,
                           const absl::StatusOr<Outcome>& outcome) {
  if (outcome.ok() && outcome->stage == Stage::kLogged) return;
  // Its client sends the value again if it retries.
  if (request.upload != 0) uploads_->Forget(call.peer, request.upload);
  if (!outcome.ok()) {
    replies_->Error(call, request.kind, outcome.status());
  } else if (outcome->stage == Stage::kRouted) {
    replies_->Route(call, target, request.key);
  } else if (request.kind == MessageKind::kDeleteRange) {
    AnswerSlice(call, *outcome->slice);
  } else if (request.condition.has_value()) {
    AnswerCondition(call, {{}, outcome->stamp, outcome->applied, outcome->existed, {}});
  } else {
    AnswerExisted(call, request.kind, outcome->existed);
  }
}

void WritePipeline::AnswerPending(const PendingWrite& write, const absl::StatusOr<bool>& existed) {
  if (write.call.reply_bytes_max == 0) return;  // Its client is gone, or another leaf of the slice is answered.
  if (existed.ok() && write.kind == MessageKind::kDeleteRange) return AnswerSlice(write.call, *write.slice);
  if (!write.conditional) return AnswerExisted(write.call, write.kind, existed);
  if (!existed.ok()) return replies_->Error(write.call, MessageKind::kWriteIf, existed.status());
  const uint64_t stamp = write.refused ? write.stamp : write.prepared.stamp;
  AnswerCondition(write.call, {{}, stamp, !write.refused, write.existed, {}});
}

void WritePipeline::AnswerSlice(const IncomingCall& call, const DeletedSlice& slice) {
  const MutableBytes to = replies_->Begin(call);
  const std::string_view next = slice.next.has_value() ? std::string_view(*slice.next) : std::string_view();
  const size_t bytes = WriteRangeReply(to, MessageKind::kDeleteRange, {slice.pairs, !slice.next.has_value(), next});
  replies_->End(call, MessageKind::kDeleteRange, to, bytes);
}

void WritePipeline::AnswerCondition(const IncomingCall& call, const WriteIfReply& outcome) {
  WriteIfReply reply = outcome;
  reply.header = ReplyOf<WriteIfReply>(MessageKind::kWriteIf).header;
  const MutableBytes to = replies_->Begin(call);
  Store(to.data(), reply);
  replies_->End(call, MessageKind::kWriteIf, to, sizeof(reply));
}

void WritePipeline::AnswerExisted(const IncomingCall& call, MessageKind kind, const absl::StatusOr<bool>& existed) {
  if (!existed.ok()) return replies_->Error(call, kind, existed.status());
  auto reply = ReplyOf<WriteReply>(kind);
  reply.existed = *existed;
  const MutableBytes to = replies_->Begin(call);
  Store(to.data(), reply);
  replies_->End(call, kind, to, sizeof(reply));
}

}  // namespace cell
