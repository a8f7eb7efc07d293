#include "cell/client/call/transact.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/client/call/operate.h"
#include "cell/client/call/transact_steps.h"
#include "cell/layout/wire_transaction.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr int64_t kSlotPauseNs = 100'000;  // Before a free slot is looked for again.

// Asks which region has the key. Returns what requests to it name. `table` is null for the tree.
Task<absl::StatusOr<Pointer>> Find(Session* session, const std::string* table, std::string_view key,
                                   CallContext context) {
  return Operate<Pointer>(session, table, key, context,
                          [session, key](KeyRouter* router, const CallContext& its) -> Task<Attempt<Pointer>> {
                            const Attempt<bool> here = co_await ContainsByCall(session, router, key, its);
                            if (!here.ok()) co_return here.status();
                            // A region that says that a transaction holds the key has the key.
                            if (!here->has_value() && !router->locked()) co_return std::nullopt;
                            co_return router->root();
                          });
}

// Returns what requests to the region name that has the key, or had when its route was cached, or the region table was
// read. `fresh`: it has it now. `table` is empty for the tree.
Task<absl::StatusOr<Pointer>> Locate(Session* session, const std::string* table, std::string_view key,
                                     CallContext context, bool fresh) {
  if (!table->empty() && fresh) co_return co_await Find(session, table, key, context);
  if (!table->empty()) {
    co_return co_await Operate<Pointer>(
        session, table, key, context,
        [](KeyRouter* router, const CallContext&) -> Task<Attempt<Pointer>> { co_return router->root(); });
  }
  if (fresh) session->tree()->routes()->Drop(key);
  const Pointer known = session->tree()->routes()->Find(key);
  if (!known.null()) co_return known;
  absl::StatusOr<Pointer> found = co_await Find(session, nullptr, key, context);
  // No route leads to the tree's root, which may be one region, or have been split since.
  if (!fresh && found.ok() && *found == session->view()->root()) {
    session->tree()->routes()->Keep("", std::nullopt, *found);
  }
  co_return found;
}

// Runs the commit of one transaction.
class Committer {
 public:
  Committer(Session* session, TransactionSet* set, CallContext context)
      : session_(session), set_(set), context_(context) {}

  Task<absl::StatusOr<uint64_t>> Run() {
    for (;;) {
      absl::Status status = co_await Plan();
      if (!status.ok()) co_return ReadOutcome(status);
      absl::StatusOr<RequestId> id = co_await TakeId();
      if (!id.ok()) co_return id.status();
      absl::StatusOr<std::optional<uint64_t>> committed = co_await Try(*id);
      if (!finishing_) session_->slots()->Give(*id);
      if (!committed.ok()) co_return committed.status();
      if (committed->has_value()) co_return **committed;
      // Nothing was done. The plan was out of date, or a region could not serve it.
      if (session_->closed()) co_return ClientLoop::Closed();
      if (session_->NowNs() + pause_ns_ >= context_.deadline_ns) {
        co_return absl::DeadlineExceededError(fmt::format(
            "the transaction could not be committed in time; nothing was written: {}", std::string(why_.message())));
      }
      if (pause_ns_ > 0) {
        co_await session_->loop()->SleepUntil(session_->NowNs() + pause_ns_);
        co_await session_->view()->Refresh(context_.deadline_ns);
      }
    }
  }

 private:
  static inline const std::string kTree;

  // A part of the transaction: all that it does in one region.
  struct Part {
    uint32_t region = 0;
    Pointer root = {};       // What requests to it name.
    std::string table = {};  // Empty: the region is one of the tree.
    std::string key = {};    // Of its first operation.
    std::string bytes = {};
    bool writes = false;
    StepResult result = {};
  };

  // An operation whose region is not known yet.
  struct Operation {
    PartOperation operation;
    std::string value = {};             // Of a range: its end.
    const std::string* table = &kTree;  // The table of its key.
  };

  Task<absl::StatusOr<RequestId>> TakeId() {
    for (;;) {
      if (session_->closed()) co_return ClientLoop::Closed();
      const std::optional<RequestId> id = session_->TakeSlot();
      if (id.has_value()) co_return *id;
      if (session_->NowNs() >= context_.deadline_ns) {
        co_return absl::DeadlineExceededError("waited too long for other transactions of this client");
      }
      co_await session_->loop()->SleepUntil(session_->NowNs() + kSlotPauseNs);
    }
  }

  // Cuts the ranges where regions are known to end, and describes each piece.
  std::vector<Operation> Ranges() const {
    std::vector<Operation> pieces;
    for (const TransactionSet::Range& range : set_->ranges) {
      std::string from = range.from;
      auto pair = range.pairs.begin();
      for (bool last = false; !last;) {
        const auto border = borders_.upper_bound(from);
        last = border == borders_.end() || (!range.to.empty() && *border >= range.to);
        Operation piece{{PartOperationKind::kReadRange, {}, {}, 0}, last ? range.to : *border};
        for (; pair != range.pairs.end() && (last || pair->first < *border); ++pair) {
          piece.operation.digest = AddToDigest(piece.operation.digest, pair->second);
        }
        piece_keys_.push_back(std::make_unique<std::string>(from));
        piece.operation.key = *piece_keys_.back();
        if (!last) from = *border;
        pieces.push_back(std::move(piece));
      }
    }
    return pieces;
  }

  // Makes the parts of all regions.
  Task<absl::Status> Plan() {
    piece_keys_.clear();
    std::vector<Operation> operations = Ranges();
    for (const auto& [place, read] : set_->reads) {
      const auto kind = read.exists ? PartOperationKind::kReadPair : PartOperationKind::kReadNothing;
      operations.push_back({{kind, place.second, {}, read.digest}, {}, &place.first});
    }
    for (const auto& [place, write] : set_->writes) {
      const auto& [table, key] = place;
      PartOperation operation{PartOperationKind::kDelete, key};
      if (write.value.has_value()) {
        operation = {PartOperationKind::kPut, key, *write.value, PairDigest(key, *write.value), write.expires};
      }
      operations.push_back({operation, {}, &table});
    }
    // Cached routes of the tree may lead to an id that is a table's part by now.
    std::map<std::pair<uint32_t, std::string_view>, Part> by_region;
    for (Operation& one : operations) {
      const absl::StatusOr<Pointer> root = co_await Locate(session_, one.table, one.operation.key, context_, fresh_);
      if (!root.ok()) co_return root.status();
      Part& part = by_region[{root->region(), *one.table}];
      part.region = root->region();
      part.root = *root;
      part.table = *one.table;
      if (part.key.empty()) part.key = one.operation.key;
      if (one.operation.kind == PartOperationKind::kReadRange) one.operation.value = one.value;
      part.writes |= one.operation.writes();
      AppendOperation(one.operation, &part.bytes);
    }
    parts_.clear();
    for (auto& [region, part] : by_region) parts_.push_back(std::move(part));
    // The first one that writes is the primary: one of the tree if there is one, because tables can be dropped.
    std::stable_sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) {
      return std::pair(!a.writes, !a.table.empty()) < std::pair(!b.writes, !b.table.empty());
    });
    co_return absl::OkStatus();
  }

  Task<StepResult> Send(const Part& part, RequestId id, TransactStep step, std::string_view others) {
    using Kind = StepResult::Kind;
    const absl::StatusOr<WorkerConnection*> worker =
        co_await session_->view()->Connect(part.region, context_.deadline_ns);
    if (!worker.ok()) {
      const bool lasts = absl::IsPermissionDenied(worker.status()) || absl::IsFailedPrecondition(worker.status());
      co_return StepResult{lasts ? Kind::kFailed : Kind::kRefused, {}, 0, {}, worker.status()};
    }
    TransactionPart message{id, step, part.key, static_cast<uint32_t>(part.bytes.size()), Primary(), others};
    std::string_view body = part.bytes;
    if (sizeof(TransactRequest) + part.key.size() + others.size() + body.size() > kMessageBytesMax) {
      const absl::StatusOr<uint16_t> upload = co_await Upload(session_, *worker, body, context_.deadline_ns);
      if (!upload.ok()) {
        const bool passes = absl::IsUnavailable(upload.status()) || absl::IsUnknown(upload.status());
        co_return StepResult{passes ? Kind::kRefused : Kind::kFailed, {}, 0, {}, upload.status()};
      }
      message.upload = *upload;
      body = {};
    }
    const std::string request = MakeTransactRequest(part.root, message);
    const size_t room = std::max(kReplyBytesMin, RouteReplyBytes(KeyBytesMax(session_->node_bytes())));
    const OutgoingCall call{
        .head = request, .body = body, .reply_bytes_max = room, .deadline_ns = context_.deadline_ns};
    StepResult result = ResultOf(co_await session_->connections()->Call(*worker, call), MessageKind::kTransact);
    if (message.upload != 0) session_->connections()->GiveNumber(*worker, message.upload);
    co_return result;
  }

  uint32_t Primary() const { return parts_.front().writes ? parts_.front().region : 0; }

  // Takes what the answers of regions that have not done their step say, for the next try. Returns an error if there is
  // no use in one.
  absl::Status Learn(const Part& part) {
    const StepResult& result = part.result;
    switch (result.kind) {
      case StepResult::Kind::kFailed:
        return result.status;
      case StepResult::Kind::kRefused:
        why_ = result.status;
        pause_ns_ = std::max(pause_ns_, session_->options().refused_pause_us * (1'000 << std::min(refused_++, 4)));
        ForgetRoutes(part);
        break;
      case StepResult::Kind::kElsewhere:
        why_ = result.status;
        pause_ns_ = std::max(pause_ns_, elsewhere_++ > 1 ? TransactPauseNs(*session_) : 0);
        ForgetRoutes(part);
        fresh_ = true;
        break;
      case StepResult::Kind::kLost:
        why_ = result.status;
        break;
      case StepResult::Kind::kAnswered:
        if (result.outcome == TransactOutcome::kUntimely) {
          floor_ = std::max(floor_, result.stamp);
          if (untimely_++ > 0) pause_ns_ = std::max(pause_ns_, TransactPauseNs(*session_));
          why_ = absl::UnavailableError("a server's clock is ahead or behind");
        } else if (result.outcome == TransactOutcome::kBeyond) {
          if (result.key.empty() || !borders_.insert(result.key).second)
            pause_ns_ = std::max(pause_ns_, TransactPauseNs(*session_));
          why_ = absl::UnavailableError("a region was split");
        } else if (result.outcome == TransactOutcome::kAborted) {
          return absl::AbortedError(
              "what the transaction has read has changed, or another one holds a key; nothing was written");
        }
        break;
    }
    return absl::OkStatus();
  }
  void ForgetRoutes(const Part& part) {
    if (!part.table.empty()) return;  // The region table has those.
    const absl::StatusOr<std::vector<PartOperation>> operations = ParseOperations(part.bytes);
    if (!operations.ok()) return;
    for (const PartOperation& operation : *operations) session_->tree()->routes()->Drop(operation.key);
  }

  // Tries to commit once. Returns nullopt if nothing was done, and another try may succeed.
  Task<absl::StatusOr<std::optional<uint64_t>>> Try(RequestId id) {
    pause_ns_ = 0;
    finishing_ = false;
    const uint64_t until = UntilOf(parts_.front());
    id.until = std::max(until, floor_ == 0 ? 0 : floor_ + kRequestTriedNs);
    set_->id = {id.client, id.number, id.until, id.slot, parts_.front().key, parts_.front().table};
    if (parts_.size() == 1) co_return co_await CommitAlone(id);

    std::string others;
    std::vector<uint32_t> written;
    for (size_t i = 1; i < parts_.size() && parts_[i].writes; ++i) {
      others.append(reinterpret_cast<const char*>(&parts_[i].region), sizeof(parts_[i].region));
      written.push_back(parts_[i].region);
    }
    if (written.size() >= kTransactionRegionsMax) {
      co_return absl::InvalidArgumentError(fmt::format("the transaction writes to {} regions, and the limit is {}",
                                                       written.size() + 1, kTransactionRegionsMax));
    }
    bool all = co_await PrepareAll(id, others);
    const bool prepared = all;
    if (all) all = co_await ConfirmReads(id);
    if (!all) {
      co_await AbortAll(id);
      absl::Status status;
      for (const Part& part : parts_) status.Update(Learn(part));
      if (!status.ok()) co_return status;
      if (prepared) co_return absl::AbortedError("a region could not say that what was read is unchanged");
      co_return std::nullopt;
    }
    uint64_t stamp = 0;
    for (const Part& part : parts_) stamp = std::max(stamp, part.result.stamp);
    if (Primary() == 0) co_return stamp;
    Expiry expires = kNeverExpires;
    for (const Part& part : parts_) {
      const Expiry its = part.result.expires;
      if (its != kNeverExpires && (expires == kNeverExpires || its < expires)) expires = its;
    }

    StepResult decided =
        co_await DecideAt(session_, Primary(), id, Decision::kCommit, stamp, context_.deadline_ns, expires);
    if (decided.again && decided.kind == StepResult::Kind::kAnswered && decided.outcome == TransactOutcome::kAborted) {
      // It may have been committed by the earlier try, and forgotten since.
      decided = co_await DecideAt(session_, Primary(), id, Decision::kRecall, 0, context_.deadline_ns);
      if (decided.kind != StepResult::Kind::kAnswered) decided.kind = StepResult::Kind::kLost;
    }
    if (decided.kind == StepResult::Kind::kAnswered && decided.outcome == TransactOutcome::kCommitted) {
      finishing_ = true;
      FinishTransaction(session_, id, Primary(), std::move(written), stamp);
      co_return stamp;
    }
    if (decided.kind == StepResult::Kind::kLost && Mutated(Mutant::kAbortUnknown)) co_await AbortAll(id);
    if (decided.kind == StepResult::Kind::kLost) co_return MaybeCommitted(decided.status);
    if (decided.kind == StepResult::Kind::kRefused && session_->closed()) co_return MaybeCommitted(decided.status);
    co_await AbortAll(id);
    if (decided.kind == StepResult::Kind::kFailed) co_return decided.status;
    co_return absl::AbortedError(
        "the transaction took too long, or a pair that it has read has expired; nothing was written");
  }

  // A slot whose transaction may be committed, and not finished, must not be used again.
  absl::Status MaybeCommitted(const absl::Status& why) {
    finishing_ = true;
    session_->slots()->Retire({set_->id.client, set_->id.number, set_->id.until, set_->id.slot});
    return absl::UnknownError(fmt::format(
        "MaybeApplied: the commit was sent, but no answer arrived; all of it may be applied, or nothing ({})",
        std::string(why.message())));
  }

  uint64_t UntilOf(const Part& part) {
    const Holder holder = session_->view()->HolderOf(part.region);
    return holder.worker == nullptr ? 0 : holder.worker->stamp.Until(session_->NowNs());
  }

  Task<absl::StatusOr<std::optional<uint64_t>>> CommitAlone(RequestId id) {
    Part& part = parts_.front();
    for (absl::Status lost;;) {
      part.result = co_await Send(part, id, TransactStep::kCommit, {});
      const StepResult& result = part.result;
      const bool answered = result.kind == StepResult::Kind::kAnswered;
      if (answered && result.outcome == TransactOutcome::kCommitted) {
        Note(part);
        co_return part.writes ? result.stamp : 0;
      }
      if (!part.writes && result.kind == StepResult::Kind::kLost) {
        why_ = result.status;
        pause_ns_ = TransactPauseNs(*session_);
        co_return std::nullopt;
      }
      if (lost.ok() && result.kind != StepResult::Kind::kLost) {
        const absl::Status status = Learn(part);
        if (!status.ok()) co_return status;
        co_return std::nullopt;
      }
      // An answer was lost. The same request is sent again: it takes effect once. If the region has been split, or the
      // request is not timely any more, only its outcome can be asked for.
      if (result.kind == StepResult::Kind::kLost) lost = result.status;
      const bool gone =
          session_->view()->failure().ok() && session_->view()->cluster().table.Find(part.region) == nullptr;
      if (result.kind == StepResult::Kind::kElsewhere || result.kind == StepResult::Kind::kFailed || answered || gone) {
        CallOptions options;
        options.timeout_us = std::max<int64_t>(0, context_.deadline_ns - session_->NowNs()) / 1000;
        const absl::StatusOr<std::optional<uint64_t>> outcome = co_await OutcomeOf(session_, set_->id, options);
        if (!outcome.ok()) co_return MaybeCommitted(lost);
        if (outcome->has_value()) co_return **outcome;
        co_return absl::AbortedError("the transaction was aborted, because its answer was lost; nothing was written");
      }
      if (session_->closed() || session_->NowNs() + TransactPauseNs(*session_) >= context_.deadline_ns)
        co_return MaybeCommitted(lost);
      co_await session_->loop()->SleepUntil(session_->NowNs() + TransactPauseNs(*session_));
      co_await session_->view()->Refresh(context_.deadline_ns);
    }
  }

  void Note(const Part& part) {
    if (!part.writes) return;  // The stamp may be old.
    const Holder holder = session_->view()->HolderOf(part.region);
    if (holder.worker == nullptr) return;
    // Stamps of a region that is seldom written may be older than what is known of the worker.
    const uint64_t until = holder.worker->stamp.Until(session_->NowNs());
    if (part.result.stamp + kRequestTriedNs >= until) {
      holder.worker->stamp.Note(part.result.stamp, session_->NowNs());
    }
  }

  // Returns whether all parts are prepared.
  Task<bool> PrepareAll(RequestId id, const std::string& others) {
    std::vector<Task<StepResult>> steps;
    steps.reserve(parts_.size());
    for (const Part& part : parts_) {
      const bool is_primary = part.region == Primary();
      steps.push_back(Send(part, id, TransactStep::kPrepare, is_primary ? std::string_view(others) : ""));
    }
    for (Task<StepResult>& step : steps) step.Start();
    bool all = true;
    for (size_t i = 0; i < parts_.size(); ++i) {
      parts_[i].result = co_await steps[i].Join();
      const StepResult& result = parts_[i].result;
      all &= result.kind == StepResult::Kind::kAnswered && result.outcome == TransactOutcome::kPrepared;
    }
    if (all) Note(parts_.front());
    co_return all;
  }

  // Asks the regions that are only read whether everything is still held. All regions had their parts prepared at one
  // moment then.
  Task<bool> ConfirmReads(RequestId id) {
    std::vector<Task<StepResult>> steps;
    for (const Part& part : parts_) {
      if (part.writes || Mutated(Mutant::kReadsUnheld)) continue;
      steps.push_back(DecideAt(session_, part.region, id, Decision::kCommit, 0, context_.deadline_ns));
    }
    for (Task<StepResult>& step : steps) step.Start();
    bool all = true;
    for (Task<StepResult>& step : steps) {
      const StepResult result = co_await step.Join();
      all &= result.kind == StepResult::Kind::kAnswered && result.outcome == TransactOutcome::kCommitted;
    }
    co_return all;
  }

  // Aborts all parts that may be prepared.
  Task<bool> AbortAll(RequestId id) {
    std::vector<Task<StepResult>> steps;
    const int64_t deadline_ns = std::min(context_.deadline_ns, session_->NowNs() + kTransactTryNs);
    for (const Part& part : parts_) {
      const bool prepared =
          part.result.kind == StepResult::Kind::kAnswered && part.result.outcome == TransactOutcome::kPrepared;
      if (!prepared && part.result.kind != StepResult::Kind::kLost) continue;
      steps.push_back(DecideAt(session_, part.region, id, Decision::kAbort, 0, deadline_ns));
    }
    for (Task<StepResult>& step : steps) step.Start();
    for (Task<StepResult>& step : steps) (void)co_await step.Join();
    co_return true;
  }

  Session* const session_;
  TransactionSet* const set_;
  const CallContext context_;
  std::set<std::string, std::less<>> borders_;  // Where regions end, as far as ranges have come to such an end.
  mutable std::vector<std::unique_ptr<std::string>> piece_keys_;
  std::vector<Part> parts_;
  absl::Status why_;
  int64_t pause_ns_ = 0;
  int elsewhere_ = 0;
  int refused_ = 0;
  int untimely_ = 0;
  bool fresh_ = false;  // Known routes have led to a region that does not have the key.
  uint64_t floor_ = 0;  // A stamp from which on a request is timely in every region that has said it was not.
  bool finishing_ = false;
};

// A task of its own, so that commits without calls do not allocate a Committer.
Task<absl::StatusOr<uint64_t>> CommitByCalls(Session* session, TransactionSet* set, CallContext context) {
  Committer committer(session, set, context);
  co_return co_await committer.Run();
}

using Tokens = absl::InlinedVector<LeafToken, 4>;

// Collects the tokens of the leaves that must be unchanged. Returns false if the commit needs calls.
bool FindTokens(const TransactionSet& set, Tokens* tokens) {
  if (!set.writes.empty() || !set.ranges.empty()) return false;
  if (set.reads.size() <= 1) return true;  // One read of a key is a moment of its own.
  for (const auto& [place, read] : set.reads) {
    if (read.token.holder.worker == nullptr) return false;
    tokens->push_back(read.token);
  }
  return true;
}

absl::Status TooManyOperations(size_t operations) {
  return absl::InvalidArgumentError(
      fmt::format("the transaction has {} operations, and the limit is {}", operations, kTransactionOperationsMax / 2));
}

}  // namespace

bool TransactionSet::NoteRead(const PlaceView& place, const std::optional<std::string>& value, const LeafToken& token) {
  Read read{value.has_value(), 0, token};
  const bool known = token.holder.worker != nullptr;
  if (value.has_value()) read.digest = known ? token.pair_crc : PairDigest(place.second, *value);
  const auto [it, first] = reads.try_emplace(Place(place), read);
  return first || (it->second.exists == read.exists && it->second.digest == read.digest);
}

void TransactionSet::NoteWrite(const PlaceView& place, Write write) {
  const auto size = [&](const Write& of) { return OperationBytes(place.second.size(), of.value.value_or("").size()); };
  const auto [it, is_new] = writes.try_emplace(Place(place));
  if (!is_new) write_bytes -= size(it->second);
  write_bytes += size(write);
  it->second = std::move(write);
}

absl::Status CheckRoomFor(const TransactionSet& set, const TransactionSet::PlaceView& place, std::string_view value) {
  const auto size = [&](size_t value_bytes) { return OperationBytes(place.second.size(), value_bytes); };
  const auto before = set.writes.find(place);  // The last write of a key counts.
  const size_t operations = set.reads.size() + set.ranges.size() + set.writes.size();
  if (before == set.writes.end() && operations >= kTransactionOperationsMax / 2)
    return TooManyOperations(operations + 1);
  size_t bytes = set.write_bytes + size(value.size());
  if (before != set.writes.end()) bytes -= size(before->second.value.value_or("").size());
  if (bytes <= kTransactionBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("the transaction would write {} bytes, and the limit is {}", bytes, kTransactionBytesMax));
}

absl::Status CheckSize(const TransactionSet& set) {
  const size_t operations = set.reads.size() + set.writes.size() + set.ranges.size();
  if (operations > kTransactionOperationsMax / 2) return TooManyOperations(operations);
  size_t bytes = 0;
  for (const auto& [place, read] : set.reads) bytes += OperationBytes(place.second.size(), 0);
  bytes += set.write_bytes;
  for (const TransactionSet::Range& range : set.ranges) bytes += OperationBytes(range.from.size(), range.to.size());
  if (bytes <= kTransactionBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("the transaction has {} bytes, and the limit is {}", bytes, kTransactionBytesMax));
}

Task<absl::StatusOr<uint64_t>> CommitTransaction(Session* session, TransactionSet* set, CallOptions options) {
  if (session->closed()) co_return ClientLoop::Closed();
  if (const absl::Status status = CheckSize(*set); !status.ok()) co_return status;
  const CallContext context = session->Begin(options, OperationKind::kWrite);
  absl::StatusOr<uint64_t> stamp = 0;
  Tokens tokens;
  bool unchanged = FindTokens(*set, &tokens);
  if (unchanged) unchanged = co_await LeavesUnchanged(session, tokens, context.deadline_ns);
  if (!unchanged) stamp = co_await CommitByCalls(session, set, context);
  session->End(context, stamp.status());
  co_return stamp;
}

Task<absl::StatusOr<std::optional<uint64_t>>> OutcomeOf(Session* session, const TransactionId& id,
                                                        CallOptions options) {
  const CallContext context = session->Begin(options, OperationKind::kWrite);
  absl::StatusOr<std::optional<uint64_t>> outcome = absl::DeadlineExceededError("the outcome was not learned in time");
  const RequestId request{id.client, id.number, id.until, id.slot};
  for (bool first = true; first || session->NowNs() < context.deadline_ns; first = false) {
    const absl::StatusOr<Pointer> root = co_await Locate(session, &id.table, id.key, context, /*fresh=*/true);
    if (!root.ok()) outcome = root.status();
    if (!root.ok()) break;
    const int64_t try_ns = std::min(context.deadline_ns, session->NowNs() + kTransactTryNs);
    const StepResult result = co_await DecideAt(session, root->region(), request, Decision::kRecall, 0, try_ns);
    if (result.kind == StepResult::Kind::kFailed) outcome = result.status;
    if (session->closed()) outcome = ClientLoop::Closed();
    if (result.kind == StepResult::Kind::kFailed || session->closed()) break;
    if (result.kind == StepResult::Kind::kAnswered && result.outcome != TransactOutcome::kPrepared) {
      outcome = std::optional<uint64_t>();
      if (result.outcome == TransactOutcome::kCommitted) outcome = std::optional<uint64_t>(result.stamp);
      break;
    }
    outcome = absl::DeadlineExceededError(
        fmt::format("the outcome was not learned in time: {}", std::string(result.status.message())));
    co_await session->loop()->SleepUntil(session->NowNs() + TransactPauseNs(*session));
  }
  session->End(context, outcome.status());
  co_return outcome;
}

}  // namespace cell
