#include "cell/server/request/transaction_requests.h"

#include <algorithm>
#include <utility>

#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/server/region/prepare_again.h"
#include "cell/server/request/key_state.h"
#include "cell/server/request/part_operations.h"
#include "cell/server/request/served_regions.h"
#include "cell/server/request/sound_leaves.h"
#include "fmt/format.h"

namespace cell {
namespace {

using Step = TransactionRequests::Step;

Step Answer(TransactOutcome outcome, uint64_t stamp = 0) { return {{outcome, stamp}}; }

// Returns the earlier of the two.
Expiry Earlier(Expiry a, Expiry b) {
  if (a == kNeverExpires || b == kNeverExpires) return a == kNeverExpires ? b : a;
  return std::min(a, b);
}

// Returns the digest of the key's pair, if it has one: as of the writes that are logged, or if `stored`, as of those
// that are applied. Does not read a value that is in an extent, whose CRC is known. Sets *expires to the earlier of it
// and when the pair expires.
absl::StatusOr<std::optional<uint64_t>> DigestOf(std::string_view key, bool stored, const HeldRegion& region,
                                                 Expiry* expires) {
  const auto last = std::find_if(region.pending.rbegin(), region.pending.rend(),
                                 [key](const PendingWrite& write) { return write.Changes(key); });
  if (!stored && last != region.pending.rend()) {
    ASSIGN_OR_RETURN(const KeyState state, StateOf(key, region));
    if (state.exists) *expires = Earlier(*expires, state.expiry);
    return state.exists ? std::optional(PairDigest(key, state.value)) : std::nullopt;
  }
  if (region.hash != nullptr) {
    const std::optional<HashTable::Located> pair = region.hash->Locate(key, HashKey(key));
    if (!pair.has_value()) return std::optional<uint64_t>();
    *expires = Earlier(*expires, pair->expiry);
    return pair->crc.has_value() ? pair->crc : PairDigest(key, pair->value);
  }
  ASSIGN_OR_RETURN(const Meganode::Location location, region.tree->Find(key));
  if (!location.pair.has_value()) return std::optional<uint64_t>();
  *expires = Earlier(*expires, location.pair->expiry);
  return std::optional(location.pair->is_inline ? PairDigest(key, location.pair->value) : location.pair->outside.crc);
}

// Returns Unavailable if the ranges of one more part of this user would be more than a region holds. One user may have
// half of them.
absl::Status CheckRanges(uint32_t user, const std::vector<PartOperation>& operations, const HeldRegion& region) {
  const size_t ranges = RangesOf(operations), held = region.transactions.locks.ranges();
  if (ranges == 0 || held + ranges <= Transactions::kRangesMax / 2) return absl::OkStatus();
  size_t of_user = ranges;
  for (const auto& [owner, transaction] : region.transactions.all()) {
    if (transaction->user == user) of_user += RangesOf(transaction->operations);
  }
  const bool fits = held + ranges <= Transactions::kRangesMax;
  if (fits && of_user <= Transactions::kRangesMax / 2) return absl::OkStatus();
  return absl::UnavailableError(fmt::format(
      "transactions of {} hold too many ranges in this region; nothing was written", fits ? "this user" : "all users"));
}

uint32_t FingerprintOf(std::string_view part) { return static_cast<uint32_t>(Crc64(part)); }

}  // namespace

bool TransactionRequests::Untimely(const RequestId& id, const HeldRegion& region) const {
  const uint64_t last_stamp = region.memory->header().last_stamp;
  const uint64_t now = std::max(last_stamp, regions_->ClusterTime());
  // Stamps of a region that is seldom written are old: by the clock, a request is timely for as long as it should be.
  return id.until == 0 || id.until < now || id.until > now + kRequestAheadNsMax;
}

absl::StatusOr<Step> TransactionRequests::Transact(uint32_t user, const KeyedRequest& request, HeldRegion* region) {
  ASSIGN_OR_RETURN(std::vector<PartOperation> operations, ParseOperations(request.value));
  PairStore& store = *region->store;
  for (const PartOperation& operation : operations) {
    if (region->Covers(operation.key)) continue;
    Step step = Answer(TransactOutcome::kAborted);
    step.elsewhere = std::string(operation.key);
    return step;
  }
  RETURN_IF_ERROR(CheckOperations(operations, *region));
  const std::optional<std::string> high = region->tree != nullptr ? region->tree->range().high : std::nullopt;
  for (const PartOperation& operation : operations) {
    if (operation.kind != PartOperationKind::kReadRange || !high.has_value()) continue;
    if (!operation.value.empty() && operation.value <= *high) continue;
    return Step{{TransactOutcome::kBeyond, 0, *high}};
  }
  const RequestId& id = request.id;
  const bool writes = std::any_of(operations.begin(), operations.end(), [](const auto& one) { return one.writes(); });
  const uint64_t last_stamp = region->memory->header().last_stamp;
  if (request.primary == 0 && writes) {
    return absl::InvalidArgumentError("a transaction that writes has a primary");
  }
  if (request.step == TransactStep::kCommit && !request.others.empty()) {
    return absl::InvalidArgumentError("a part that is the whole transaction has no others");
  }
  if (request.primary != 0) {
    if (Untimely(id, *region)) {
      ++counters_.untimely;
      return Answer(TransactOutcome::kUntimely, std::max(last_stamp, regions_->ClusterTime()));
    }
    const uint32_t fingerprint = FingerprintOf(request.value);
    const RegionTransaction* const known = region->transactions.Find(id);
    const Outcome* const outcome = region->outcomes.Find(id);
    // The outcome of one that was aborted before its part came has no fingerprint.
    const bool is_other = (known != nullptr && known->fingerprint != fingerprint) ||
                          (outcome != nullptr && outcome->changed && outcome->fingerprint != fingerprint);
    if (is_other) return absl::InvalidArgumentError("another transaction has this id");
    if (known != nullptr || outcome != nullptr) return Known(user, id, Decision::kCommit, region);
    if (writes) {
      ASSIGN_OR_RETURN(const Outcome* const later, region->outcomes.Find(id, fingerprint));
      CELL_CHECK(later == nullptr);
      RETURN_IF_ERROR(region->MakeRoomForOutcome(id, user));
    }
  } else if (region->transactions.Find(id) != nullptr) {
    return absl::InvalidArgumentError("another transaction has this id");
  }
  const bool only_reads = !writes && request.step == TransactStep::kCommit;
  const bool may_be_put = request.step == TransactStep::kCommit && region->tree != nullptr;
  const PartOperation* const put = may_be_put ? OnlyPutOf(operations) : nullptr;
  if (!only_reads && put == nullptr) {
    RETURN_IF_ERROR(
        region->transactions.CheckRoom(user, RegionTransaction::BytesOf(request.value.size(), operations.size())));
  }
  if (request.step == TransactStep::kPrepare) RETURN_IF_ERROR(CheckRanges(user, operations, *region));
  Expiry expires = kNeverExpires;
  ASSIGN_OR_RETURN(const bool reads_hold, ReadsHold(operations, /*stored=*/only_reads, *region, &expires));
  if (!MayHold(operations, OwnerOf(id), region->transactions.locks) || !reads_hold) {
    ++counters_.aborted;
    return Answer(TransactOutcome::kAborted);
  }
  if (only_reads) return Answer(TransactOutcome::kCommitted, last_stamp);
  if (put != nullptr) return CommitPut(user, request, *put, region);

  PreparedPart part{id, 0, FingerprintOf(request.value), user, request.primary, request.others, request.value};
  // The puts of a log have the moment at which they expire.
  std::string dated;
  const bool expires_ever =
      std::any_of(operations.begin(), operations.end(), [](const auto& one) { return one.expires != kNeverExpires; });
  for (PartOperation& operation : operations) {
    if (!expires_ever) break;
    ASSIGN_OR_RETURN(operation.expires, ExpiryOf(operation.expires, regions_->ClusterTime()));
    AppendOperation(operation, &dated);
  }
  if (expires_ever) part.part = dated;
  const auto transaction = std::make_shared<RegionTransaction>(part, clock_->NowNs());
  transaction->expires = expires;
  if (writes) {
    RETURN_IF_ERROR(store.CheckStamps());
    RETURN_IF_ERROR(PreparePuts(transaction.get(), region));
    transaction->stamp = store.NextStamp();
    transaction->logged = true;
    if (region->log != nullptr) transaction->sequence = region->LogPrepared(*transaction);
  }
  region->transactions.Add(transaction);
  store.set_writes_kept(region->transactions.puts());
  if (request.step == TransactStep::kCommit) return Commit(transaction.get(), transaction->stamp, region);
  Hold(transaction.get(), region);
  ++counters_.prepared;
  Step step = Answer(TransactOutcome::kPrepared, writes ? transaction->stamp : last_stamp);
  step.answer.expires = expires;
  if (!Mutated(Mutant::kPrepareUnsynced)) step.after_sequence = transaction->sequence;
  return step;
}

absl::Status TransactionRequests::CheckOperations(const std::vector<PartOperation>& operations,
                                                  const HeldRegion& region) const {
  if (!EachKeyOnce(operations)) {
    return absl::InvalidArgumentError("a transaction reads a key twice, or writes it twice; nothing was written");
  }
  for (const PartOperation& operation : operations) {
    RETURN_IF_ERROR(region.store->CheckKey(operation.key));
    if (operation.kind == PartOperationKind::kReadRange && region.tree == nullptr) return NoMeganode(region);
    if (operation.kind == PartOperationKind::kReadRange && !operation.value.empty()) {
      // The end of a range may be just behind a key of the largest size.
      std::string_view to = operation.value;
      if (to.size() > 1 && to.ends_with('\0')) to.remove_suffix(1);
      RETURN_IF_ERROR(region.store->CheckKey(to));
    }
    if (operation.expires == kNeverExpires) continue;
    RETURN_IF_ERROR(ExpiryOf(operation.expires, regions_->ClusterTime()).status());
  }
  return absl::OkStatus();
}

bool TransactionRequests::MayHold(const std::vector<PartOperation>& operations, const KeyLocks::Owner& owner,
                                  const KeyLocks& locks) {
  if (locks.empty()) return true;
  std::vector<std::string_view> written;
  for (const PartOperation& operation : operations) {
    if (operation.writes()) written.push_back(operation.key);
  }
  std::sort(written.begin(), written.end());
  if (!locks.MayWriteAll(written, owner)) return false;
  return std::all_of(operations.begin(), operations.end(), [&](const PartOperation& operation) {
    if (operation.writes()) return true;
    if (operation.kind == PartOperationKind::kReadRange) {
      return locks.MayReadRange(operation.key, operation.value, owner);
    }
    return locks.MayRead(operation.key, owner);
  });
}

absl::StatusOr<bool> TransactionRequests::ReadsHold(const std::vector<PartOperation>& operations, bool stored,
                                                    const HeldRegion& region, Expiry* expires) {
  uint64_t visited = 0;
  const bool writes = std::any_of(operations.begin(), operations.end(), [](const auto& one) { return one.writes(); });
  const auto is_pending = [&](std::string_view key) {
    return std::any_of(region.pending.begin(), region.pending.end(),
                       [key](const PendingWrite& write) { return write.Changes(key); });
  };
  for (const PartOperation& operation : operations) {
    if (operation.writes()) continue;
    // Nothing that this logs would say that what it has read is on disk.
    if (!writes && !stored && is_pending(operation.key)) return false;
    if (operation.kind == PartOperationKind::kReadRange) {
      const bool changes = std::any_of(region.pending.begin(), region.pending.end(), [&](const PendingWrite& write) {
        return write.ChangesAny(operation.key, operation.value);
      });
      if (changes && !stored) return false;
      ASSIGN_OR_RETURN(const bool holds, RangeHolds(operation, region, &visited, expires));
      if (!holds) return false;
      continue;
    }
    ASSIGN_OR_RETURN(const std::optional<uint64_t> digest, DigestOf(operation.key, stored, region, expires));
    if (digest.has_value() != (operation.kind == PartOperationKind::kReadPair)) return false;
    if (digest.has_value() && *digest != operation.digest) return false;
  }
  return true;
}

absl::StatusOr<bool> TransactionRequests::RangeHolds(const PartOperation& range, const HeldRegion& region,
                                                     uint64_t* visited, Expiry* expires) {
  const Meganode& tree = *region.tree;
  const uint64_t now = tree.ClusterTime();
  uint64_t digest = 0;
  std::string key;
  ASSIGN_OR_RETURN(NodeView leaf, SoundLeaf(tree, range.key));
  for (;;) {
    for (int i = leaf.BelowLow(range.key) ? 0 : leaf.LowerBound(range.key); i < leaf.count(); ++i) {
      leaf.CopyKey(i, &key);
      if (!range.value.empty() && key >= range.value) return digest == range.digest;
      const LeafPair pair = leaf.pair(i);
      if (++*visited > kTransactionRangePairsMax) {
        return absl::InvalidArgumentError(
            fmt::format("a transaction has read more than {} pairs in ranges of region {}", kTransactionRangePairsMax,
                        region.region()));
      }
      if (HasExpired(pair.expiry, now)) continue;
      *expires = Earlier(*expires, pair.expiry);
      digest = AddToDigest(digest, pair.is_inline ? PairDigest(key, pair.value) : pair.outside.crc);
    }
    if (!leaf.has_high() || !tree.Covers(leaf.high_key())) return digest == range.digest;
    ++*visited;
    ASSIGN_OR_RETURN(leaf, SoundRight(tree, leaf));
  }
}

absl::Status TransactionRequests::PreparePuts(RegionTransaction* transaction, HeldRegion* region) {
  absl::Status status;
  for (const PartOperation& operation : transaction->operations) {
    if (operation.kind != PartOperationKind::kPut) continue;
    region->store->set_writes_kept(region->transactions.puts() + transaction->puts.size());
    const PairStore::Ahead ahead{region->pending.size(), /*of_key=*/true};
    absl::StatusOr<PairStore::Prepared> prepared =
        region->store->Prepare(operation.key, operation.value, operation.digest, ahead, operation.expires);
    status = prepared.status();
    if (!status.ok()) break;
    transaction->puts.push_back(*std::move(prepared));
  }
  if (status.ok()) return status;
  for (const PairStore::Prepared& put : transaction->puts) region->store->Discard(put);
  transaction->puts.clear();
  region->store->set_writes_kept(region->transactions.puts());
  return status;
}

void TransactionRequests::Hold(RegionTransaction* transaction, HeldRegion* region) {
  transaction->held = true;
  KeyLocks& locks = region->transactions.locks;
  const KeyLocks::Owner owner = transaction->owner();
  for (const PartOperation& operation : transaction->operations) {
    if (operation.writes()) {
      locks.Write(operation.key, owner);
    } else if (Mutated(Mutant::kReadsUnheld)) {
      continue;
    } else if (operation.kind == PartOperationKind::kReadRange) {
      locks.ReadRange(operation.key, operation.value, owner);
    } else {
      locks.Read(operation.key, owner);
    }
  }
  for (const PartOperation& operation : transaction->operations) {
    if (operation.writes()) region->store->ShowHeld(operation.key, true);
  }
}

void TransactionRequests::Unhold(const RegionTransaction& transaction, HeldRegion* region) {
  KeyLocks& locks = region->transactions.locks;
  for (const PartOperation& operation : transaction.operations) {
    if (operation.writes()) {
      locks.ReleaseWrite(operation.key, transaction.owner());
    } else {
      locks.ReleaseRead(operation.key, transaction.owner());
    }
  }
  locks.ReleaseRanges(transaction.owner());
  for (const PartOperation& operation : transaction.operations) {
    if (operation.writes()) region->store->ShowHeld(operation.key, false);
  }
}

void TransactionRequests::LetGo(const RegionTransaction& transaction, HeldRegion* region) {
  const std::shared_ptr<RegionTransaction> its = region->transactions.Remove(transaction.id);
  if (its->held) Unhold(*its, region);
  region->store->set_writes_kept(region->transactions.puts());
  region->changed.Notify();
}

uint64_t TransactionRequests::LogDecision(const RegionTransaction& transaction, bool commit, uint64_t stamp,
                                          HeldRegion* region) {
  Outcome outcome{transaction.id, stamp, transaction.fingerprint, transaction.user, false, commit};
  const bool is_primary = transaction.primary == region->region();
  if (is_primary && commit) {
    outcome.result = transaction.others;
    outcome.open = !transaction.others.empty();
  }
  if (region->log != nullptr) {
    // The segment with the part's record may be removed before one with the decision that is written now.
    if (region->log->rolling()) region->LogPrepared(transaction);
    outcome.sequence = region->log->Append(RecordKind::kDecided, "", EncodeOutcome(outcome));
  }
  const uint64_t sequence = outcome.sequence;
  region->outcomes.Remember(std::move(outcome));
  return sequence;
}

Step TransactionRequests::Commit(RegionTransaction* transaction, uint64_t stamp, HeldRegion* region) {
  ++counters_.committed;
  transaction->committed = true;
  transaction->stamp = stamp;
  transaction->sequence = LogDecision(*transaction, /*commit=*/true, stamp, region);
  Step step = Answer(TransactOutcome::kCommitted, stamp);
  step.commits = region->transactions.all().at(transaction->owner());
  // With `async`, what is one region's alone can be lost like any other write: all of it.
  const bool at_once = !transaction->held && !region->log_first;
  if (!at_once) step.after_sequence = transaction->sequence;
  return step;
}

absl::StatusOr<Step> TransactionRequests::CommitPut(uint32_t user, const KeyedRequest& request,
                                                    const PartOperation& put, HeldRegion* region) {
  Expiry expiry = kNeverExpires;
  if (put.expires != kNeverExpires) {
    ASSIGN_OR_RETURN(expiry, ExpiryOf(put.expires, regions_->ClusterTime()));
  }
  Outcome outcome{request.id, 0, FingerprintOf(request.value), user, false, /*changed=*/true};
  Step step = Answer(TransactOutcome::kCommitted);
  if (region->log_first) {
    const PairStore::Ahead ahead{region->pending.size(), /*of_key=*/true};
    ASSIGN_OR_RETURN(step.put, region->store->Prepare(put.key, put.value, put.digest, ahead, expiry));
    step.key = std::string(put.key);
    outcome.stamp = step.put->stamp;
    outcome.sequence = region->log->AppendPut({put.key, put.value, expiry, outcome.stamp, EncodeOutcome(outcome)});
    step.after_sequence = outcome.sequence;
  } else {
    const std::string encoded = EncodeOutcome(outcome);
    region->outcome_of_put = encoded;
    const absl::Status stored = region->store->Put(put.key, put.value, put.digest, request.hint, expiry).status();
    region->outcome_of_put = {};
    RETURN_IF_ERROR(stored);
    outcome.stamp = region->memory->header().last_stamp;
  }
  step.answer.stamp = outcome.stamp;
  region->outcomes.Remember(std::move(outcome));
  ++counters_.committed;
  return step;
}

Step TransactionRequests::Abort(RegionTransaction* transaction, HeldRegion* region) {
  ++counters_.aborted;
  Step step = Answer(TransactOutcome::kAborted);
  if (transaction->logged) step.after_sequence = LogDecision(*transaction, /*commit=*/false, 0, region);
  // If this is the primary, and a crash took the record, the transaction could still commit: nobody may have read or
  // written its keys then.
  if (transaction->primary == region->region() && step.after_sequence != 0) {
    transaction->aborting = true;
    // A checkpoint must not log the part again behind the decision: it would be prepared for a next owner.
    transaction->logged = false;
    transaction->sequence = step.after_sequence;
    step.aborts = region->transactions.all().at(transaction->owner());
  } else {
    GiveUp(*transaction, region);
  }
  return step;
}

void TransactionRequests::GiveUp(const RegionTransaction& transaction, HeldRegion* region) {
  for (const PairStore::Prepared& put : transaction.puts) region->store->Discard(put);
  LetGo(transaction, region);
}

absl::StatusOr<Step> TransactionRequests::Decide(const Decided& decided, HeldRegion* region) {
  const auto& [user, by_server, id, decision, stamp, expires] = decided;
  RegionTransaction* const transaction = region->transactions.Find(id);
  const bool ended = transaction == nullptr || transaction->committed || transaction->aborting;
  const Outcome* const outcome = region->outcomes.Find(id);
  const bool by_other = !by_server && ((transaction != nullptr && transaction->user != user) ||
                                       (outcome != nullptr && outcome->user != user));
  // Any client may learn what became of it.
  if (by_other && (!ended || decision == Decision::kFinish)) {
    return absl::PermissionDeniedError("the transaction is another user's");
  }
  if (ended || decision == Decision::kFinish) return Known(user, id, decision, region);
  if (decision == Decision::kAbort) return Abort(transaction, region);
  const bool is_primary = transaction->primary == region->region();
  if (decision == Decision::kAsk || decision == Decision::kRecall) {
    if (is_primary) return Abort(transaction, region);
    // The server that asks was told that this is the primary, and it is not: this transaction never commits here.
    return Answer(by_server ? TransactOutcome::kAborted : TransactOutcome::kPrepared, transaction->stamp);
  }
  const auto expired = [&](Expiry at) { return region->store->Expired(at); };
  if (!transaction->writes()) {
    // It is asked before the transaction is decided, so what has not expired by now had not when all keys were held.
    Step step = Answer(expired(transaction->expires) ? TransactOutcome::kAborted : TransactOutcome::kCommitted,
                       region->memory->header().last_stamp);
    Release(id, region);
    return step;
  }
  // Its outcome may be forgotten when it may not be tried any more. What it has read must be there when it commits.
  if (is_primary && (Untimely(id, *region) || expired(expires) || expired(transaction->expires))) {
    return Abort(transaction, region);
  }
  // The primary has decided, and the others must follow.
  if (by_server) return Commit(transaction, std::max(stamp, transaction->stamp), region);
  // A client cannot use up a region's stamps. Another region may have given more of them, by takeovers.
  const uint64_t last = std::min(regions_->ClusterTime() + kRequestAheadNsMax, kLastStampMax / 2);
  if (stamp < transaction->stamp || stamp > std::max(last, transaction->stamp)) {
    return absl::InvalidArgumentError(
        fmt::format("a transaction cannot commit with the stamp {}: its regions' stamps are too far apart, as they are "
                    "after many takeovers; nothing was written; try again in some minutes",
                    stamp));
  }
  return Commit(transaction, stamp, region);
}

absl::StatusOr<Step> TransactionRequests::Known(uint32_t user, const RequestId& id, Decision decision,
                                                HeldRegion* region) {
  const RegionTransaction* const transaction = region->transactions.Find(id);
  if (transaction != nullptr) {
    Step step = Answer(transaction->committed  ? TransactOutcome::kCommitted
                       : transaction->aborting ? TransactOutcome::kAborted
                                               : TransactOutcome::kPrepared,
                       transaction->stamp);
    step.answer.expires = transaction->expires;
    step.after_sequence = transaction->sequence;
    return step;
  }
  const Outcome* const outcome = region->outcomes.Find(id);
  if (outcome != nullptr) {
    Step step = Answer(outcome->changed ? TransactOutcome::kCommitted : TransactOutcome::kAborted, outcome->stamp);
    step.after_sequence = outcome->sequence;
    const bool changes = region->state() == RegionState::kFrozen && region->transactions.empty();
    if (decision == Decision::kFinish && outcome->open && !changes) {
      Outcome closed = *outcome;
      closed.open = false;
      if (region->log != nullptr) {
        closed.sequence = region->log->Append(RecordKind::kOutcome, "", EncodeOutcome(closed));
      }
      region->outcomes.Remember(std::move(closed));
      step.after_sequence = 0;
    }
    return step;
  }
  Step step = Answer(TransactOutcome::kAborted);
  // A request to prepare or commit it that comes later must find that it was aborted.
  const bool asks = decision == Decision::kAsk || decision == Decision::kRecall;
  // Decided by stamps, and not by the clock: the region's next owner has the stamps, too, and its clock may be slower.
  const uint64_t last_stamp = region->memory->header().last_stamp;
  const bool past = id.until == 0 || id.until < last_stamp;
  const bool ahead = id.until > std::max(last_stamp, regions_->ClusterTime()) + kRequestAheadNsMax;
  if (decision == Decision::kRecall && (past || ahead)) {
    return absl::FailedPreconditionError("what became of the transaction is not known any more");
  }
  // Only a region of pairs prepares anything.
  if (!asks || !region->has_pairs() || past || Mutated(Mutant::kNoTombstone)) return step;
  // The client has used the slot again, so it has given this transaction up. It is refused here from now on.
  const absl::Status later = region->outcomes.Find(id, 0).status();
  if (absl::IsFailedPrecondition(later) && decision != Decision::kRecall) return step;
  if (absl::IsFailedPrecondition(later)) {
    return absl::FailedPreconditionError(
        "what became of the transaction is not known any more: its client has made others since");
  }
  // A frozen region without parts may have sent its outcomes to its next owner already, which would not get this one.
  // While it still has parts, the answer has to be remembered: two regions that are frozen could wait for each other
  // otherwise.
  if (region->state() == RegionState::kFrozen && region->transactions.empty()) {
    return absl::UnavailableError(fmt::format("region {} is about to change", region->region()));
  }
  RETURN_IF_ERROR(region->MakeRoomForOutcome(id, user));
  Outcome aborted{id, 0, 0, user, false, /*changed=*/false};
  if (region->log != nullptr) {
    aborted.sequence = region->log->Append(RecordKind::kOutcome, "", EncodeOutcome(aborted));
  }
  step.after_sequence = aborted.sequence;
  region->outcomes.Remember(std::move(aborted));
  return step;
}

void TransactionRequests::Apply(const RegionTransaction& transaction, HeldRegion* region) {
  const std::shared_ptr<RegionTransaction> its = region->transactions.all().at(transaction.owner());
  const auto writes = std::count_if(its->operations.begin(), its->operations.end(),
                                    [](const PartOperation& one) { return one.writes(); });
  // A client that has read one of the new values by a one-sided read must not read an old one afterwards.
  if (!its->held && writes > 1 && !Mutated(Mutant::kCommitPiecemeal)) {
    for (const PartOperation& operation : its->operations) {
      if (operation.writes()) region->transactions.locks.Write(operation.key, its->owner());
    }
    for (const PartOperation& operation : its->operations) {
      if (operation.writes()) region->store->ShowHeld(operation.key, true);
    }
    its->held = true;
  }
  region->store->set_writes_kept(region->transactions.puts() - its->puts.size());
  auto put = its->puts.begin();
  for (const PartOperation& operation : its->operations) {
    if (operation.kind == PartOperationKind::kPut) {
      put->stamp = its->stamp;
      region->store->Commit(*put++, operation.key);
    } else if (operation.kind == PartOperationKind::kDelete) {
      (void)region->store->CommitDelete(operation.key);
    }
  }
  region->store->RaiseLastStamp(its->stamp);
  LetGo(*its, region);
}

absl::Status TransactionRequests::Restore(const std::vector<std::string>& prepared, int64_t now_ns,
                                          HeldRegion* region) {
  std::vector<std::shared_ptr<RegionTransaction>> transactions;
  std::vector<PutAgain> puts;
  for (const std::string& record : prepared) {
    ASSIGN_OR_RETURN(const PreparedPart part, ParsePrepared(record));
    const std::shared_ptr<RegionTransaction>& one =
        transactions.emplace_back(std::make_shared<RegionTransaction>(part, now_ns));
    for (const PartOperation& operation : one->operations) {
      if (operation.kind == PartOperationKind::kPut) puts.push_back({operation});
    }
  }
  std::vector<PutAgain*> order;
  order.reserve(puts.size());
  for (PutAgain& put : puts) order.push_back(&put);
  // The puts had room before. Many pairs may have to be moved until they have it again.
  if (region->hash != nullptr) region->hash->set_thorough(true);
  const absl::Status status = PrepareAgain(order, region->store.get());
  if (region->hash != nullptr) region->hash->set_thorough(false);
  RETURN_IF_ERROR(status);
  auto put = puts.begin();
  for (const std::shared_ptr<RegionTransaction>& transaction : transactions) {
    for (const PartOperation& operation : transaction->operations) {
      if (operation.kind == PartOperationKind::kPut) transaction->puts.push_back(std::move((put++)->prepared));
    }
    // Pairs that have expired since it was prepared are perhaps not there any more.
    const absl::StatusOr<bool> reads_hold =
        ReadsHold(transaction->operations, /*stored=*/true, *region, &transaction->expires);
    if (!reads_hold.ok() || !*reads_hold) transaction->expires = 1;
    transaction->logged = true;
    region->transactions.Add(transaction);
    Hold(transaction.get(), region);
  }
  region->store->set_writes_kept(region->transactions.puts());
  return absl::OkStatus();
}

void TransactionRequests::Release(const RequestId& id, HeldRegion* region) {
  const RegionTransaction* const transaction = region->transactions.Find(id);
  if (transaction != nullptr && !transaction->logged && !transaction->aborting) LetGo(*transaction, region);
}

}  // namespace cell
