// HeldRegion is a region that a worker holds, with its store, its log, and its state.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/clock.h"
#include "cell/base/event.h"
#include "cell/io/fabric/fabric.h"
#include "cell/layout/outcome.h"
#include "cell/layout/wire.h"
#include "cell/layout/wire_transaction.h"
#include "cell/log/region_log.h"
#include "cell/region/outcomes.h"
#include "cell/region/region_memory.h"
#include "cell/region/snapshots.h"
#include "cell/server/region/region_lifecycle.h"
#include "cell/server/region/transactions.h"
#include "cell/tree/meganode.h"
#include "pilaf/hash_table.h"

namespace cell {

class LogFlusher;
class RegionClaim;

// The part of its slice that a request to delete a range has done so far, for the reply.
struct DeletedSlice {
  uint64_t pairs = 0;
  std::optional<std::string> next = {};  // Where the next slice begins. Nullopt: the range ends with this one.
  absl::Status status = {};              // Why a leaf could not be written.
};

// The decision of a worker about a write with a condition or a function. The write's reply is made from it.
struct Verdict {
  MessageKind kind;      // Of the request.
  bool existed = false;  // The key was there.
  // The write changes nothing: its condition did not hold, or its function makes no new value, or has failed.
  bool refused = false;
  bool changed = false;     // It changes something, or did when it came before.
  bool untimely = false;    // It may not be tried any more, or for too long.
  uint64_t stamp = 0;       // If refused, that of the pair that is there, or that was put before.
  absl::Status error = {};  // Why the function has failed.
  std::string result = {};  // The function's.
};

// The answer to a step of a transaction.
struct TransactAnswer {
  TransactOutcome outcome;
  uint64_t stamp = 0;
  std::string key = {};            // kBeyond: where the range goes on.
  Expiry expires = kNeverExpires;  // kPrepared: see TransactReply.
};

// A write whose record is in the log. It is applied and answered once that is on disk. A slice of a range is one for
// each leaf, of which only the last is answered.
struct PendingWrite {
  IncomingCall call;  // The bytes of its request are gone. Not to be answered if `reply_bytes_max` is 0.
  MessageKind kind;
  uint64_t sequence;  // Of its last record.
  std::string key;
  PairStore::Prepared prepared;  // Set for puts.
  Pointer hint;
  // Set for writes with a condition or a function. One that was refused waits for what it saw to be on disk.
  std::optional<Verdict> verdict = {};
  // Set for slices of a range.
  std::vector<std::string> keys = {};  // Those of one leaf, in order, instead of `key`.
  std::shared_ptr<DeletedSlice> slice = nullptr;
  bool clears = false;  // It deletes all pairs of the region, instead of `keys`.
  // Set for steps of transactions, and the one that is committed or aborted by this. One that commits a single put is
  // that put.
  std::optional<TransactAnswer> answer = {};
  std::shared_ptr<RegionTransaction> commits = nullptr;
  std::shared_ptr<RegionTransaction> aborts = nullptr;

  bool refused() const { return verdict.has_value() && verdict->refused; }
  // Returns whether it changes anything. If not, it only waits for what it has seen to be on disk.
  bool changes() const {
    return !refused() && (!answer.has_value() || commits != nullptr || kind == MessageKind::kPut);
  }
  // Returns the kind of the request.
  MessageKind asked() const {
    if (verdict.has_value()) return verdict->kind;
    return answer.has_value() && kind == MessageKind::kPut ? MessageKind::kTransact : kind;
  }
  bool Changes(std::string_view a_key) const {
    if (!changes()) return false;
    if (commits != nullptr) {
      const PairStore::Prepared* put = nullptr;
      return commits->WriteOf(a_key, &put) != nullptr;
    }
    if (kind != MessageKind::kDeleteRange) return key == a_key;
    return clears || std::binary_search(keys.begin(), keys.end(), a_key);
  }
  // Returns whether it changes a key from `from` on and below `to`, unless that is empty.
  bool ChangesAny(std::string_view from, std::string_view to) const {
    const auto in_range = [&](std::string_view a_key) { return a_key >= from && (to.empty() || a_key < to); };
    if (!changes()) return false;
    if (commits != nullptr) {
      return std::any_of(commits->operations.begin(), commits->operations.end(),
                         [&](const PartOperation& one) { return one.writes() && in_range(one.key); });
    }
    if (kind != MessageKind::kDeleteRange) return in_range(key);
    return clears || std::any_of(keys.begin(), keys.end(), in_range);
  }
};

// Says what a region covers: the keys of a meganode, or a part of a table's hash space.
struct RegionContent {
  MeganodeRange range;
  std::optional<HashRange> hash_range = {};
  uint32_t bucket_bytes = 0;
};

// Formats `memory` as an empty region of this content.
inline absl::Status FormatRegion(RegionMemory* memory, uint32_t region, const RegionShape& shape,
                                 const RegionContent& content) {
  if (!content.hash_range.has_value()) return Meganode::Format(memory, region, shape, content.range);
  return HashTable::Format(memory, region, shape, *content.hash_range, content.bucket_bytes);
}

class HeldRegion {
 public:
  // Notifies `unclaimed`, which must outlive this like `kept`, when a claim on this is released.
  HeldRegion(RegionMemory* memory, const PairSettings& pairs, std::unique_ptr<WrittenPages> written, uint64_t epoch,
             RegionState state, Event* unclaimed, SnapshotMemory* kept)
      : memory(memory),
        written(std::move(written)),
        store(Open(memory, pairs)),
        tree(dynamic_cast<Meganode*>(store.get())),
        hash(dynamic_cast<HashTable*>(store.get())),
        snapshots(kept),
        epoch_(epoch),
        unclaimed_(unclaimed),
        state_(state) {
    if (tree != nullptr) tree->set_locks(&transactions.locks);
  }
  ~HeldRegion();

  // Opens what a region's memory has.
  static std::unique_ptr<PairStore> Open(RegionMemory* memory, const PairSettings& pairs) {
    if (HashTable::IsIn(*memory)) return HashTable::Open(memory, pairs.cluster_time);
    return std::make_unique<Meganode>(memory, pairs);
  }

  uint32_t region() const { return store->region(); }

  // Returns the epoch at which this worker has the region.
  uint64_t epoch() const { return epoch_; }
  // Sets the epoch at which this worker has taken the region back from a migration. It comes from the region table.
  void TakeBackAt(uint64_t epoch) { epoch_ = epoch; }

  RegionState state() const { return state_; }
  // REQUIRES: CanChange(state(), to).
  void ChangeState(RegionState to) {
    CELL_CHECK(CanChange(state_, to));
    state_ = to;
    changed.Notify();
  }
  // Makes a frozen region serve writes again. Does nothing if the region was lost meanwhile.
  void Unfreeze() {
    if (state_ == RegionState::kFrozen) ChangeState(RegionState::kServing);
  }
  bool lost() const { return state_ == RegionState::kLost; }
  bool readable() const { return state_ != RegionState::kSealed && state_ != RegionState::kLost; }
  bool writable() const { return state_ == RegionState::kFilling || state_ == RegionState::kServing; }

  // Returns whether a RegionClaim holds it.
  bool claimed() const { return claim_ != nullptr; }
  bool ClaimedFor(ClaimPurpose purpose) const;
  bool claimable() const { return !claimed() && !lost(); }
  // Returns whether RegionClaim::TakeOver may take the claim from its holder.
  bool claim_yields() const;

  // Logs later writes to `to`. With `first`, the writer logs writes before it applies them with Commit and
  // CommitDelete.
  void SetLog(std::shared_ptr<RegionLog> to, bool first) {
    log = std::move(to);
    log_first = first;
    log_bytes_at_checkpoint_ = 0;
    flush_.stamp_bound = flush_.stamp_bound_at = 0;
    store->set_on_write([this](const PairStore::Write& write) {
      if (write.kind == RecordKind::kPut) {
        log->AppendPut({write.key, write.value, write.expiry, write.stamp, outcome_of_put});
      } else {
        log->Append(write.kind, write.key, write.value);
      }
    });
    changed.Notify();
  }
  // REQUIRES: there is a log.
  void FailLog(absl::Status status) {
    log->Fail(std::move(status));
    changed.Notify();
  }

  // Asks LogFlusher to flush the log in its next step, without waiting for more records. The request holds until the
  // next flush begins. A caller that waits for a later flush asks again.
  void RequestFlush() { flush_.requested = true; }
  // Returns whether writes have to wait for the disk: too much waits for it, or the oldest record that is not on disk
  // is older by now than it may be.
  bool late(const Clock& clock) const {
    return flush_.much_waits || (log != nullptr && log->waiting_bytes() > flush_.waiting_bytes_max) ||
           (flush_.late_at_ns != INT64_MAX && clock.NowNs() > flush_.late_at_ns);
  }

  // Returns the last bound of stamps that is in the log, on disk or not. REQUIRES: there is a log.
  uint64_t stamp_bound() const {
    const RegionHeader& header = store->header();
    return std::max({header.stamp_bound, header.last_stamp, flush_.stamp_bound});
  }

  // Notes that a checkpoint of the region begins. REQUIRES: there is a log.
  void NoteCheckpoint() { log_bytes_at_checkpoint_ = log->bytes(); }
  // Notes that the checkpoint itself has appended `bytes` bytes: records that it had to copy from earlier segments.
  // They do not make another checkpoint due.
  void NoteLoggedAgain(uint64_t bytes) { log_bytes_at_checkpoint_ += bytes; }
  // Returns how many bytes were appended to the log since the last checkpoint began, by others than it, or since SetLog
  // if there was none.
  // REQUIRES: there is a log.
  uint64_t log_bytes_since_checkpoint() const { return log->bytes() - log_bytes_at_checkpoint_; }

  // Returns whether pairs are stored here, and not routes to other regions.
  bool has_pairs() const { return tree == nullptr || tree->tier() == 0; }
  bool Covers(std::string_view key) const {
    return tree != nullptr ? tree->Covers(key) : hash->range().Has(HashKey(key));
  }

  RegionContent content() const {
    if (tree != nullptr) return {tree->range()};
    return {{}, hash->range(), hash->geometry().bucket_bytes};
  }
  // The record that says which keys are here.
  struct RangeRecord {
    RecordKind kind;
    std::string key, value;
  };
  RangeRecord range_record() const {
    if (tree != nullptr) return {RecordKind::kRange, tree->range().low, EncodeRange(tree->range())};
    const HashRangeValue value{hash->range().first, hash->range().last, hash->geometry().bucket_bytes, 0};
    return {RecordKind::kHashRange, "", std::string(reinterpret_cast<const char*>(&value), sizeof(value))};
  }

  RegionMemory* const memory;
  const std::unique_ptr<WrittenPages> written;  // Pages written since the region was made, except those that a
                                                // migration has taken note of.
  const std::unique_ptr<PairStore> store;
  // Exactly one of `tree` and `hash` is non-null; both alias `store`.
  Meganode* const tree;
  HashTable* const hash;  // A part of a Pilaf table.
  // Only Splitter writes these four.
  int64_t no_split_before_ns = INT64_MIN;  // A split has just failed.
  bool lacked_room = false;                // The last split failed because there was no region for it.
  // The last split found no room for one more region, which a join or a migration will give.
  bool awaits_region = false;
  std::string split_error;  // Why the last split failed; empty if it did not.

  // The outcomes of requests that must not take effect a second time. Only WritePipeline and TakeOutcomes add any.
  Outcomes outcomes;
  std::string_view outcome_of_put;  // That of the put that is being made, encoded. Only WritePipeline sets it.
  // Works like MakeRoom of Outcomes. Stamps follow the clock, as far as they may, so that outcomes are forgotten in
  // time although nothing is put.
  absl::Status MakeRoomForOutcome(const RequestId& id, uint32_t user) {
    const absl::Status status = outcomes.MakeRoom(id, user, memory->header().last_stamp);
    if (status.ok()) return status;
    store->RaiseLastStamp(std::min(store->ClusterTime(), memory->header().stamp_bound));
    return outcomes.MakeRoom(id, user, memory->header().last_stamp);
  }
  // Adds those of a region that the pairs of this one were in, or will be, and logs them.
  void TakeOutcomes(const HeldRegion& from) {
    outcomes.Remember(from.outcomes);
    LogOutcomes();
  }
  // Appends all of them to the log, if there is one, and the parts that are prepared.
  void LogOutcomes() {
    if (log == nullptr) return;
    outcomes.Forget(memory->header().last_stamp);
    outcomes.ForEach([this](const Outcome& outcome) { log->Append(RecordKind::kOutcome, "", EncodeOutcome(outcome)); });
    for (const auto& [owner, transaction] : transactions.all()) {
      if (transaction->logged && !transaction->committed) LogPrepared(*transaction);
    }
  }
  // Appends its part to the log. Returns the record's number. REQUIRES: there is a log.
  uint64_t LogPrepared(const RegionTransaction& transaction) {
    return log->Append(RecordKind::kPrepared, "", EncodePrepared(transaction.prepared()));
  }

  // Only TransactionRequests changes them.
  Transactions transactions;
  // Until then no part is prepared here: the region is to change, and the parts that it has did not end in time. What
  // they wait for is decided meanwhile (TransactionResolver).
  int64_t no_parts_before_ns = INT64_MIN;
  // Says that a change of the region was given up because of its parts.
  void EndParts(int64_t now_ns) { no_parts_before_ns = now_ns + 2'000'000'000; }
  // Returns whether no transaction needs the region to be what it is: none has a part here that others decide on, and
  // none was decided here of which others have to hear.
  bool settled() const { return transactions.empty() && outcomes.open() == 0; }

  // Only SnapshotRequests, Splitter and Joiner change them. After each change that makes them empty, or no longer
  // empty, call FollowChanges.
  Snapshots snapshots;
  // Keeps what pairs were before they change as long as there are snapshots.
  void FollowChanges() {
    if (tree == nullptr) return;
    if (snapshots.empty()) return tree->set_before_change(nullptr);
    tree->set_before_change([this](std::string_view key, const Meganode::PairAbout& pair) {
      if (!pair.ok()) return snapshots.Damaged(key);
      snapshots.Keep(key, [&]() -> PairKept {
        if (!pair->has_value()) return nullptr;
        const absl::StatusOr<std::string_view> value = tree->VerifiedValueOf(key, **pair);
        return std::make_shared<PairBefore>(
            PairBefore{std::string(value.value_or("")), (*pair)->expiry, (*pair)->stamp, !value.ok()});
      });
    });
  }
  // Returns whether a write is under way that the region has taken: logged and not applied, or prepared.
  bool writing() const {
    return transactions.writing() > 0 ||
           std::any_of(pending.begin(), pending.end(), [](const PendingWrite& write) { return write.changes(); });
  }

  bool sweeping = false;  // Pairs that have expired are being deleted. Only ExpirySweeper writes it.

  // Signals that the region's state or claim has changed, that more of its log is on disk or never will be, or that
  // logged writes were applied. Ends with the region.
  Event changed;

  // Only SetLog writes these two.
  std::shared_ptr<RegionLog> log;  // Null: the region has no log.
  bool log_first = false;
  std::deque<PendingWrite> pending;  // Only WritePipeline changes it.

 private:
  friend class LogFlusher;
  friend class RegionClaim;

  // Holds the state of the region's flushes. Only LogFlusher writes it, except that RequestFlush sets `requested`.
  struct FlushState {
    int64_t dirty_since_ns = 0;  // No record that is not on disk is older. 0: all records are on disk.
    int64_t flush_begun_ns = 0;  // The time at which the last flush began. 0: its end was noticed.
    int64_t idle_since_ns = 0;   // All records have been on disk since then, without a marker. 0: not so.
    bool requested = false;
    bool much_waits = false;  // Too many bytes waited for the disk at the last step.
    size_t waiting_bytes_max = SIZE_MAX;
    int64_t late_at_ns = INT64_MAX;  // The time after which the oldest of them has waited too long.
    // Until this time, the next flush waits for as many records as were not on disk before the last one ended.
    int64_t gather_until_ns = 0;
    uint64_t gather_records = 0;
    uint64_t stamp_bound = 0;     // The last bound of stamps that was appended.
    uint64_t stamp_bound_at = 0;  // Sequence of the record with that bound; 0 if the bound is on disk or there is none.
  };

  uint64_t epoch_;  // Only TakeBackAt changes it.
  Event* const unclaimed_;
  RegionState state_;  // Only ChangeState changes it.
  FlushState flush_;
  uint64_t log_bytes_at_checkpoint_ = 0;  // Only SetLog and the two Note... change it.
  RegionClaim* claim_ = nullptr;          // Only RegionClaim changes it.
};

}  // namespace cell
