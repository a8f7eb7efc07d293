#include "cell/server/request/write_pipeline.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "cell/base/crc64.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/functions/function_table.h"
#include "cell/region/expiry_sweep.h"
#include "fmt/format.h"

namespace cell {
namespace {

Outcome OutcomeOf(const IncomingCall& call, const KeyedRequest& request, const Verdict& verdict) {
  return {request.id, 0, request.fingerprint, UserOf(call), verdict.existed, verdict.changed, verdict.result, 0};
}

}  // namespace

void WritePipeline::Serve(const IncomingCall& call, const KeyedRequest& request, const Target& target) {
  HeldRegion* const region = target.region;
  // Wait behind other writes to the region, in order. A decision never waits: others wait for it.
  const bool waits = region != nullptr && request.kind != MessageKind::kDecide &&
                     !IsPrepareWhileStill(request, *region) && (!Open(*region) || held_->size(region->region()) > 0);
  if (waits && Hold(call, request.kind)) return;
  KeyedRequest tried = request;
  absl::StatusOr<Served> served = Try(call, target, &tried);
  const bool full = region != nullptr && absl::IsResourceExhausted(served.status());
  if (full && WillHaveRoom(region, tried) && Hold(call, request.kind)) return;
  if (!served.ok()) served = Refusal(served.status(), region, tried);
  Answer(call, request, target, served);
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
  const Target target = TargetOf(*served_, held.request);
  HeldRegion* const region = target.region;
  const int64_t waited_ns = clock_->NowNs() - held.since_ns;
  const bool may_wait = region != nullptr && waited_ns < options_.held_max_ns;
  if (may_wait && !Open(*region) && !IsPrepareWhileStill(held.request, *region)) return false;
  KeyedRequest tried = held.request;
  absl::StatusOr<Served> served = Try(held.call, target, &tried);
  if (may_wait && absl::IsResourceExhausted(served.status()) && WillHaveRoom(region, tried)) return false;
  if (!served.ok()) served = Refusal(served.status(), region, tried);
  held_->NoteWaited(waited_ns);
  Answer(held.call, held.request, target, served);
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
  if (Compacts(region, request)) return true;  // A pass over the region takes longer than all of these.
  return region->transactions.puts() > 0;      // So do transactions whose other regions have no server.
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

absl::StatusOr<WritePipeline::Served> WritePipeline::Try(const IncomingCall& call, const Target& target,
                                                         KeyedRequest* request) {
  if (!served_->leased()) {
    return absl::UnavailableError(
        fmt::format("{} cannot renew its session and acknowledges no writes; nothing was written", options_.server));
  }
  HeldRegion* const region = target.region;
  if (region != nullptr && IsPrepareWhileStill(*request, *region)) {
    Served served{Stage::kDone};
    served.answer = TransactAnswer{TransactOutcome::kAborted};
    return served;
  }
  if (region != nullptr && !Open(*region) && request->kind != MessageKind::kDecide) {
    const std::string_view what = region->late(*clock_)       ? "the disk of its log"
                                  : region->snapshots.still() ? "a snapshot"
                                                              : "its migration";
    return absl::UnavailableError(
        fmt::format("region {} waited too long for {}; nothing was written", region->region(), what));
  }
  if (region != nullptr && region->log != nullptr && !region->log->status().ok()) {
    return absl::UnavailableError(
        fmt::format("the log of region {} has failed, and the region accepts no writes; nothing was written: {}",
                    region->region(), std::string(region->log->status().message())));
  }
  if (target.store == nullptr) return Served{Stage::kRouted};
  const bool prepares = request->kind == MessageKind::kTransact && request->step == TransactStep::kPrepare;
  if (prepares && clock_->NowNs() < region->no_parts_before_ns) {
    return absl::UnavailableError(fmt::format(
        "region {} is about to change, and waits for the end of transactions; nothing was written", region->region()));
  }
  if (IsTransact(request->kind)) {
    if (request->upload != 0) {
      ASSIGN_OR_RETURN(request->value, uploads_->Find(call.peer, request->upload, request->value_bytes));
    }
    return Transact(call, *request, region);
  }
  const bool one_key = request->kind != MessageKind::kDeleteRange;
  if (one_key && !region->transactions.locks.MayWrite(request->key)) return Served{Stage::kLocked};
  if (request->IsPut()) evictor_->Touch(request->key);
  if (request->kind == MessageKind::kDeleteRange) return DeleteSlice(call, *request, region);
  if (request->upload != 0) {
    ASSIGN_OR_RETURN(request->value, uploads_->Find(call.peer, request->upload, request->value_bytes));
  }
  std::optional<Verdict> verdict;
  Expiry expiry = kNeverExpires;
  if (request->function == nullptr) {
    ASSIGN_OR_RETURN(expiry, ExpiryOf(request->expires, regions_->ClusterTime()));
  }
  const bool once = region->tree != nullptr && request->id.client != 0;
  if (once) {
    uint64_t after_sequence = 0;
    ASSIGN_OR_RETURN(verdict, LookBack(call, *request, region, &after_sequence));
    if (verdict.has_value()) return Refuse(call, *request, after_sequence, *std::move(verdict), region);
  }
  if (request->Decides()) {
    ASSIGN_OR_RETURN(const KeyState state, StateOf(request->key, *region));
    ASSIGN_OR_RETURN(verdict, Decide(state, request));
    uint64_t after_sequence = state.after_sequence;
    const bool may_come_again = once && request->again && !Mutated(Mutant::kRefusedForgotten);
    if (verdict->refused && may_come_again && verdict->error.ok()) {
      after_sequence = RememberRefused(call, *request, *verdict, region);
    }
    if (verdict->refused) return Refuse(call, *request, after_sequence, *std::move(verdict), region);
    if (request->function != nullptr) expiry = state.expiry;
  }
  std::optional<Outcome> outcome;
  if (once) outcome = OutcomeOf(call, *request, *verdict);
  if (region->log_first) return Log(call, *request, expiry, std::move(verdict), std::move(outcome), region);
  Served served{Stage::kDone};
  if (request->IsPut()) {
    const std::string encoded = outcome.has_value() ? EncodeOutcome(*outcome) : std::string();
    region->outcome_of_put = encoded;
    const absl::StatusOr<bool> existed =
        region->store->Put(request->key, request->value, request->crc, request->hint, expiry);
    region->outcome_of_put = {};
    if (!existed.ok()) return existed.status();
    served.existed = *existed;
    if (region->tree != nullptr) served.stamp = region->tree->header().last_stamp;
    Remember(std::move(outcome), served.stamp, /*sequence=*/0, region);
  } else {
    ASSIGN_OR_RETURN(served.existed, region->store->Delete(request->key, request->hint));
  }
  served.verdict = std::move(verdict);
  return served;
}

absl::StatusOr<WritePipeline::Served> WritePipeline::Transact(const IncomingCall& call, const KeyedRequest& request,
                                                              HeldRegion* region) {
  absl::StatusOr<TransactionRequests::Step> step;
  if (request.kind == MessageKind::kDecide) {
    const bool by_server = call.from->role == Role::kServer;
    if (request.decision == Decision::kAsk && !by_server) {
      return absl::PermissionDeniedError("only servers ask what was decided; a client recalls its transaction");
    }
    step = transactions_.Decide({UserOf(call), by_server, request.id, request.decision, request.stamp, request.expires},
                                region);
  } else {
    RETURN_IF_ERROR(permissions_->CheckPart(call, request.root, request.value));
    step = transactions_.Transact(UserOf(call), request, region);
  }
  RETURN_IF_ERROR(step.status());
  if (step->elsewhere.has_value()) {
    Served served{Stage::kRouted};
    served.elsewhere = std::move(step->elsewhere);
    return served;
  }
  // The value is in extents and in the log.
  Served served = Take(call, request.kind, *std::move(step), region);
  if (served.stage == Stage::kLogged && request.upload != 0) uploads_->Forget(call.peer, request.upload);
  return served;
}

WritePipeline::Served WritePipeline::Take(const IncomingCall& call, MessageKind kind, TransactionRequests::Step step,
                                          HeldRegion* region) {
  const bool waits = step.after_sequence != 0 && step.after_sequence > region->log->durable();
  if (!waits) {
    if (step.commits != nullptr) transactions_.Apply(*step.commits, region);
    if (step.aborts != nullptr) TransactionRequests::GiveUp(*step.aborts, region);
    Served served{Stage::kDone};
    served.answer = std::move(step.answer);
    return served;
  }
  region->RequestFlush();
  PendingWrite write{call, kind, step.after_sequence, {}, {}, {}};
  write.call.request = {};
  write.answer = std::move(step.answer);
  write.commits = std::move(step.commits);
  write.aborts = std::move(step.aborts);
  if (step.put.has_value()) {
    write.kind = MessageKind::kPut;
    write.key = std::move(step.key);
    write.prepared = *std::move(step.put);
  }
  AddPending(std::move(write), region);
  return Served{Stage::kLogged};
}

absl::StatusOr<std::optional<TransactAnswer>> WritePipeline::DecideAlone(const Outcome& of, Decision decision,
                                                                         uint64_t stamp, HeldRegion* region) {
  ASSIGN_OR_RETURN(TransactionRequests::Step step,
                   transactions_.Decide({of.user, true, of.id, decision, stamp}, region));
  const Served served = Take(IncomingCall{}, MessageKind::kDecide, std::move(step), region);
  return served.answer;
}

absl::StatusOr<std::optional<Verdict>> WritePipeline::LookBack(const IncomingCall& call, const KeyedRequest& request,
                                                               HeldRegion* region, uint64_t* after_sequence) {
  const uint64_t last_stamp = region->memory->header().last_stamp;
  const uint64_t now = std::max(last_stamp, regions_->ClusterTime());
  Verdict verdict{request.kind};
  verdict.refused = true;
  // 0: its client knows no stamp of this region yet.
  const uint64_t until = request.id.until;
  verdict.untimely = until == 0 || until < last_stamp || until > now + kRequestAheadNsMax;
  verdict.stamp = now;
  if (verdict.untimely) return verdict;
  ASSIGN_OR_RETURN(const Outcome* const outcome, region->outcomes.Find(request.id, request.fingerprint));
  if (outcome == nullptr || Mutated(Mutant::kAppliedAgain)) {
    RETURN_IF_ERROR(region->MakeRoomForOutcome(request.id, UserOf(call)));
    return std::optional<Verdict>();
  }
  verdict.existed = outcome->existed;
  verdict.changed = outcome->changed;
  verdict.stamp = outcome->stamp;
  verdict.result = outcome->result;
  if (region->log_first && outcome->sequence > region->log->durable()) *after_sequence = outcome->sequence;
  return verdict;
}

// An earlier try that comes late must not apply it.
uint64_t WritePipeline::RememberRefused(const IncomingCall& call, const KeyedRequest& request, const Verdict& verdict,
                                        HeldRegion* region) {
  Outcome outcome = OutcomeOf(call, request, verdict);
  outcome.stamp = verdict.stamp;
  uint64_t sequence = 0;
  if (region->log != nullptr) sequence = region->log->Append(RecordKind::kOutcome, "", EncodeOutcome(outcome));
  Remember(std::move(outcome), verdict.stamp, sequence, region);
  return region->log_first ? sequence : 0;
}

void WritePipeline::Remember(std::optional<Outcome> outcome, uint64_t stamp, uint64_t sequence, HeldRegion* region) {
  if (!outcome.has_value()) return;
  outcome->stamp = stamp;
  outcome->sequence = sequence;
  region->outcomes.Remember(*std::move(outcome));
}

absl::StatusOr<Verdict> WritePipeline::Decide(const KeyState& state, KeyedRequest* request) {
  Verdict verdict{request->kind, state.exists};
  verdict.stamp = state.stamp;
  if (request->condition.has_value()) {
    ASSIGN_OR_RETURN(const bool holds, Holds(*request->condition, state));
    verdict.refused = !holds;
    verdict.changed = holds;
    return verdict;
  }
  FunctionInput input;
  input.argument = request->value;
  if (state.exists) input.value = state.value;
  absl::StatusOr<FunctionOutput> output = Run(*request->function, input);
  verdict.refused = !output.ok() || !output->value.has_value();
  verdict.error = output.status();
  if (output.ok()) verdict.result = std::move(output->result);
  if (verdict.refused) return verdict;
  verdict.changed = true;
  made_ = *std::move(output->value);
  request->value = made_;
  request->value_bytes = static_cast<uint32_t>(made_.size());
  request->crc = Crc64(made_, Crc64(request->key));
  return verdict;
}

absl::StatusOr<WritePipeline::Served> WritePipeline::Log(const IncomingCall& call, const KeyedRequest& request,
                                                         Expiry expiry, std::optional<Verdict> verdict,
                                                         std::optional<Outcome> outcome, HeldRegion* region) {
  PairStore::Prepared prepared;
  uint64_t sequence = 0;
  if (request.IsPut()) {
    ASSIGN_OR_RETURN(prepared, Prepare(request, expiry, *region));
    const std::string encoded = outcome.has_value() ? EncodeOutcome(*outcome) : std::string();
    sequence = region->log->AppendPut({request.key, request.value, expiry, prepared.stamp, encoded});
    Remember(std::move(outcome), prepared.stamp, sequence, region);
  } else {
    RETURN_IF_ERROR(region->store->CheckKey(request.key));
    sequence = region->log->Append(RecordKind::kDelete, request.key, std::string_view());
  }
  const MessageKind kind = request.IsPut() ? MessageKind::kPut : MessageKind::kDelete;
  region->pending.push_back({call, kind, sequence, std::string(request.key), prepared, request.hint});
  region->pending.back().call.request = {};
  region->pending.back().verdict = std::move(verdict);
  ++pending_;
  // The value is in an extent and in the log.
  if (request.upload != 0) uploads_->Forget(call.peer, request.upload);
  return Served{Stage::kLogged};
}

WritePipeline::Served WritePipeline::Refuse(const IncomingCall& call, const KeyedRequest& request,
                                            uint64_t after_sequence, Verdict verdict, HeldRegion* region) {
  if (after_sequence == 0 || Mutated(Mutant::kRefusedTooEarly)) {
    return {Stage::kDone, verdict.existed, nullptr, verdict.stamp, std::move(verdict)};
  }
  if (request.upload != 0) uploads_->Forget(call.peer, request.upload);
  PendingWrite write{call, request.kind, after_sequence, {}, {}, {}, std::move(verdict)};
  write.call.request = {};
  AddPending(std::move(write), region);
  return Served{Stage::kLogged};
}

void WritePipeline::AddPending(PendingWrite write, HeldRegion* region) {
  auto at = region->pending.end();
  while (at != region->pending.begin() && std::prev(at)->sequence > write.sequence) --at;
  region->pending.insert(at, std::move(write));
  ++pending_;
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
    std::erase_if(keys, [&](const std::string& key) { return IsPending(*region, key); });
  }
  std::erase_if(keys, [&](const std::string& key) { return !region->transactions.locks.MayWrite(key); });
  const size_t left = keys.size();
  if (left == 0) return 0;
  if (region->log_first) {
    LogKeys(std::move(keys), std::make_shared<DeletedSlice>(), region);
  } else {
    RETURN_IF_ERROR(region->store->DeleteAll(keys).status());
  }
  return left;
}

absl::StatusOr<PairStore::Prepared> WritePipeline::Prepare(const KeyedRequest& request, Expiry expiry,
                                                           const HeldRegion& region) const {
  PairStore::Ahead ahead{region.pending.size(), /*of_key=*/true};
  absl::StatusOr<PairStore::Prepared> prepared =
      region.store->Prepare(request.key, request.value, request.crc, ahead, expiry);
  if (!absl::IsResourceExhausted(prepared.status()) || IsPending(region, request.key)) return prepared;
  ahead.of_key = false;  // So that a full region accepts a write that replaces a value, as it does without a log.
  return region.store->Prepare(request.key, request.value, request.crc, ahead, expiry);
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
        if (write.refused() || Mutated(Mutant::kFailedPlainly)) {
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
  if (write.refused()) return false;
  if (write.commits != nullptr) transactions_.Apply(*write.commits, region);
  if (write.aborts != nullptr) TransactionRequests::GiveUp(*write.aborts, region);
  if (write.kind == MessageKind::kPut) return region->store->Commit(write.prepared, write.key, write.hint);
  if (write.answer.has_value()) return true;
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
    AnswerPending(write, write.refused() ? absl::UnavailableError(taken)
                                         : absl::UnknownError(fmt::format(
                                               "{}, and the write may or may not have been applied", taken)));
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

}  // namespace cell
