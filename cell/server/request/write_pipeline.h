// WritePipeline takes puts, deletes, either with a condition, applications of functions, deletes of a range, and steps
// of transactions from their arrival to their answer.
//
//   hold      a write waits while its region cannot take it: its writes are frozen, it is still for a snapshot, its
//   disk
//             is late, or it is full and being split, or compacted (which shows when it is tried); writes to one region
//             keep their order
//   lease     without a lease nothing is written, because another worker may hold the region by now; the lease is
//             checked when the write is tried, also after it has waited
//   locks     a write to a key that a transaction holds is led back here, to be tried again by its client
//   decide    whether a conditional write's condition holds, or what a function makes of the value, as of the writes
//             before it (key_state.h); what a function makes is then put like any other value
//   log       with `sync` a write is logged first, and continues when its record is on disk
//   apply     the write is applied to the region's store, which logs it by itself with `async`; a slice of a range is
//             applied leaf by leaf, or at once if it is all that the region has
//   answer    the client gets its reply
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cell/base/mutant.h"
#include "cell/base/task.h"
#include "cell/io/fabric/fabric.h"
#include "cell/server/region/region_claim.h"
#include "cell/server/request/compactor.h"
#include "cell/server/request/evictor.h"
#include "cell/server/request/held_writes.h"
#include "cell/server/request/key_state.h"
#include "cell/server/request/keyed_request.h"
#include "cell/server/request/permissions.h"
#include "cell/server/request/replies.h"
#include "cell/server/request/room_maker.h"
#include "cell/server/request/served_regions.h"
#include "cell/server/request/transaction_requests.h"
#include "cell/server/request/uploads.h"
#include "cell/server/sched/scheduler.h"
#include "cell/tree/meganode_clear.h"

namespace cell {

// Returns the target of a request about a key, or of a decision.
inline Target TargetOf(const ServedRegions& served, const KeyedRequest& request) {
  return request.kind == MessageKind::kDecide ? served.FindAny(request.root.region())
                                              : served.Find(request.root, request.key);
}

class WritePipeline {
 public:
  struct Options {
    std::string server;       // Name of the server, for errors.
    int64_t held_max_ns = 0;  // How long a write waits until its region can take it.
  };

  // Objects that it uses.
  struct Parts {
    ServedRegions* served;
    HeldWrites* held;
    RoomMaker* room;  // Null if regions are never split.
    Evictor* evictor;
    Compactor* compactor;
    Uploads* uploads;
    Replies* replies;
    Permissions* permissions;
  };

  // All arguments must outlive this.
  WritePipeline(const Clock* clock, Scheduler* scheduler, Regions* regions, const Parts& parts, Options options)
      : clock_(clock),
        scheduler_(scheduler),
        regions_(regions),
        served_(parts.served),
        held_(parts.held),
        room_(parts.room),
        evictor_(parts.evictor),
        compactor_(parts.compactor),
        uploads_(parts.uploads),
        replies_(parts.replies),
        permissions_(parts.permissions),
        transactions_(clock, regions),
        options_(std::move(options)) {}

  // Begins to serve a write with this target.
  void Serve(const IncomingCall& call, const KeyedRequest& request, const Target& target);
  // Retries waiting writes in their order. Those that have waited too long fail. Returns how many were answered.
  size_t RetryHeld();
  // Returns when the first waiting write will have waited too long, or INT64_MAX if none waits.
  int64_t NextHeldNs() const { return held_->size() == 0 ? INT64_MAX : held_->oldest_ns() + options_.held_max_ns; }
  // Applies and answers writes whose records are on disk by now, or never will be. Returns how many.
  size_t ApplyDurable();
  // Answers the logged writes of a region that another worker has by now: their outcome is unknown.
  void Lose(HeldRegion* region);
  // Forgets a peer's writes, which must not be answered any more. Logged writes are still applied.
  void Disconnected(ConnectionId peer);

  // Returns whether pairs of this region that have expired may be deleted now, or evicted. One that is being filled
  // must stay what its source is.
  bool MayDeleteExpired(const HeldRegion& region) const {
    return served_->leased() && region.state() == RegionState::kServing && Open(region) &&
           (region.log == nullptr || region.log->status().ok());
  }
  // Deletes pairs that have expired, all in one leaf, slot or bucket, or logs that. Leaves those whose key has a write
  // that is logged and not applied; returns false if there are any. REQUIRES: MayDeleteExpired().
  absl::StatusOr<bool> DeleteExpired(std::vector<std::string> keys, HeldRegion* region);

  // Decides what is known here of a transaction whose client has gone, as Decide of TransactionRequests does. Returns
  // what is on disk of it, or nullopt if it is not known yet: ask again.
  absl::StatusOr<std::optional<TransactAnswer>> DecideAlone(const Outcome& of, Decision decision, uint64_t stamp,
                                                            HeldRegion* region);
  TransactionRequests* transactions() { return &transactions_; }
  const TransactionRequests& transactions() const { return transactions_; }

  const HeldWrites& held() const { return *held_; }
  // Returns how often all pairs of a region were deleted at once.
  uint64_t cleared() const { return cleared_; }
  // Returns how many pairs were deleted because they had expired.
  uint64_t expired() const { return expired_; }
  // Returns how many were deleted because there was no room.
  uint64_t evicted() const { return evicted_; }

 private:
  enum class Stage { kLogged, kDone, kRouted, kLocked };
  struct Served {
    Stage stage;
    bool existed = false;                           // kDone: the key was there before.
    std::shared_ptr<DeletedSlice> slice = nullptr;  // kDone, for a range.
    uint64_t stamp = 0;                             // kDone, with a verdict: that of the pair that is there.
    std::optional<Verdict> verdict = {};            // kDone, of a write with a condition or a function.
    std::optional<TransactAnswer> answer = {};      // kDone, of a step of a transaction.
    std::optional<std::string> elsewhere = {};      // kRouted, of a transaction: the key that another region has.
  };

  // A region that was cleared, and has nodes and extents left to be freed.
  struct Cleared {
    Cleared(RegionClaim its, Meganode* tree) : claim(std::move(its)), clear(tree) {}
    RegionClaim claim;
    MeganodeClear clear;
  };

  // Returns whether the region's state, its snapshots and its disk allow writes.
  bool Open(const HeldRegion& region) const {
    return region.state() != RegionState::kFrozen && !IsStill(region) && !region.late(*clock_);
  }
  static bool IsStill(const HeldRegion& region) {
    return region.snapshots.still() && !Mutated(Mutant::kSnapshotWritten);
  }
  // Returns whether a request would hold keys in a region that is still. Regions that wait for its end would never be
  // still at the same time as this one, so it does not wait, but has to begin again.
  static bool IsPrepareWhileStill(const KeyedRequest& request, const HeldRegion& region) {
    return request.kind == MessageKind::kTransact && request.step == TransactStep::kPrepare && IsStill(region);
  }
  // Returns whether a logged write of the key is not applied yet.
  static bool IsPending(const HeldRegion& region, std::string_view key);
  // Returns whether a full region will soon have room for a write. May evict pairs for it.
  bool WillHaveRoom(HeldRegion* region, const KeyedRequest& request);
  static uint64_t PairBytes(const KeyedRequest& put) { return put.key.size() + uint64_t{put.value_bytes}; }
  // Returns whether a put's value is much larger than the region's pairs on average.
  static bool IsMuchLarger(const HeldRegion& region, const KeyedRequest& request);
  // Returns whether a compaction will perhaps make the room that a put lacks.
  bool Compacts(HeldRegion* region, const KeyedRequest& request) {
    return request.IsPut() && compactor_->MakeRoom(region, PairBytes(request));
  }
  // Evicts pairs for a put. Returns whether there were any in this region.
  bool Evict(HeldRegion* region, const KeyedRequest& request);
  // Deletes those of the keys, all in one leaf, that have no write that is logged and not applied, or logs that.
  // Returns how many. REQUIRES: MayDeleteExpired().
  absl::StatusOr<size_t> DeleteUnlessPending(std::vector<std::string> keys, HeldRegion* region);
  // Holds a write. Returns false if there is no room for it. What holds too much makes room.
  bool Hold(const IncomingCall& call, MessageKind kind);
  // Retries a held write. Returns whether it is answered.
  bool Retry(const HeldWrite& held);
  // Sets the request's value to the one that was uploaded for it, or that its function makes.
  absl::StatusOr<Served> Try(const IncomingCall& call, const Target& target, KeyedRequest* request);
  // Decides a write with a condition or a function. Sets the request's value to what the function makes; it is valid
  // until the next call.
  absl::StatusOr<Verdict> Decide(const KeyState& state, KeyedRequest* request);
  // Serves a step of a transaction.
  absl::StatusOr<Served> Transact(const IncomingCall& call, const KeyedRequest& request, HeldRegion* region);
  // Takes the step now, or notes it as pending.
  Served Take(const IncomingCall& call, MessageKind kind, TransactionRequests::Step step, HeldRegion* region);
  // Logs a put or a delete.
  absl::StatusOr<Served> Log(const IncomingCall& call, const KeyedRequest& request, Expiry expiry,
                             std::optional<Verdict> verdict, std::optional<Outcome> outcome, HeldRegion* region);
  // Looks for what has become of a request that must take effect only once. Returns nullopt if it may be applied now.
  // Sets *after_sequence as KeyState does.
  absl::StatusOr<std::optional<Verdict>> LookBack(const IncomingCall& call, const KeyedRequest& request,
                                                  HeldRegion* region, uint64_t* after_sequence);
  // Remembers that such a request was refused, and returns what its answer has to wait for, as KeyState does.
  static uint64_t RememberRefused(const IncomingCall& call, const KeyedRequest& request, const Verdict& verdict,
                                  HeldRegion* region);
  // Remembers the outcome of such a request, if it is one.
  static void Remember(std::optional<Outcome> outcome, uint64_t stamp, uint64_t sequence, HeldRegion* region);
  // Answers a write that changes nothing: now, or when what it saw is on disk.
  Served Refuse(const IncomingCall& call, const KeyedRequest& request, uint64_t after_sequence, Verdict verdict,
                HeldRegion* region);
  // Adds a write in the order of what writes wait for: those behind it were logged later.
  void AddPending(PendingWrite write, HeldRegion* region);
  // Deletes the first slice of a range, or logs its keys.
  absl::StatusOr<Served> DeleteSlice(const IncomingCall& call, const KeyedRequest& request, HeldRegion* region);
  // Logs the deletion of one leaf's keys, which is not answered.
  void LogKeys(std::vector<std::string> keys, const std::shared_ptr<DeletedSlice>& slice, HeldRegion* region);
  // Deletes all that the region has, or logs that.
  Served Clear(const IncomingCall& call, const KeyedRequest& request, HeldRegion* region);
  // Deletes all pairs, returns how many, and frees what they used some at a time. The claim is held until then.
  uint64_t ClearNow(HeldRegion* region, RegionClaim claim);
  // Frees some of what a cleared region had. Returns true if nothing is left, or if the region was lost.
  static bool Free(Cleared* cleared);
  Task<bool> FreeGradually();
  // Applies a write that is on disk.
  absl::StatusOr<bool> Apply(const PendingWrite& write, HeldRegion* region);
  absl::StatusOr<PairStore::Prepared> Prepare(const KeyedRequest& request, Expiry expiry,
                                              const HeldRegion& region) const;
  // Returns the error for a write's client: Unavailable, so that it tries again, while its region may still get room.
  // ResourceExhausted only if no split is possible.
  absl::Status Refusal(const absl::Status& status, HeldRegion* region, const KeyedRequest& request);
  void Answer(const IncomingCall& call, const KeyedRequest& request, const Target& target,
              const absl::StatusOr<Served>& served);
  void AnswerExisted(const IncomingCall& call, MessageKind kind, const absl::StatusOr<bool>& existed);
  // `stamp`: that of the pair that is there now.
  void AnswerVerdict(const IncomingCall& call, const Verdict& verdict, uint64_t stamp);
  void AnswerTransact(const IncomingCall& call, MessageKind kind, const TransactAnswer& answer);
  void AnswerSlice(const IncomingCall& call, const DeletedSlice& slice);
  void AnswerPending(const PendingWrite& write, const absl::StatusOr<bool>& existed);

  const Clock* const clock_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  ServedRegions* const served_;
  HeldWrites* const held_;
  RoomMaker* const room_;
  Evictor* const evictor_;
  Compactor* const compactor_;
  Uploads* const uploads_;
  Replies* const replies_;
  Permissions* const permissions_;
  TransactionRequests transactions_;
  const Options options_;
  std::string made_;                        // The value that a function has made last.
  size_t pending_ = 0;                      // Writes of all regions that are logged and not applied.
  std::map<uint32_t, RegionClaim> clears_;  // Claims of the regions that are cleared by one of these.
  std::list<Cleared> freeing_;
  uint64_t cleared_ = 0;
  uint64_t expired_ = 0;
  uint64_t evicted_ = 0;
};

}  // namespace cell
