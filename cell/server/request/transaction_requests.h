// TransactionRequests decides the steps of transactions in a region: it checks parts, prepares them, and commits or
// aborts what was prepared (docs/transactions.md).
//
// A step changes what the worker knows of the region, and its log. It says when it may be answered: now, or when a
// record is on disk. A commit is applied then, too.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/layout/transaction.h"
#include "cell/server/region/regions.h"
#include "cell/server/request/keyed_request.h"

namespace cell {

class TransactionRequests {
 public:
  struct Counters {
    uint64_t prepared = 0, committed = 0, aborted = 0, untimely = 0;
  };

  // Both must outlive this.
  TransactionRequests(const Clock* clock, const Regions* regions) : clock_(clock), regions_(regions) {}

  struct Step {
    TransactAnswer answer;
    uint64_t after_sequence = 0;  // It may be answered when the log is on disk up to this record. 0: now.
    std::shared_ptr<RegionTransaction> commits = nullptr;  // To be applied then, by Apply.
    std::shared_ptr<RegionTransaction> aborts = nullptr;   // To be given up then, by GiveUp.
    std::optional<PairStore::Prepared> put = {};           // To be committed then, as the pair of `key`.
    std::string key = {};
    std::optional<std::string> elsewhere = {};  // Nothing was done: this key belongs to another region.
  };
  // Serves a kTransact of this user at a region of pairs, or a part of a table, that takes writes. Returns
  // InvalidArgument if the part is not valid; ResourceExhausted if there is no room for what it writes; Unavailable if
  // there are no stamps, or too many transactions are known. Nothing was done then.
  absl::StatusOr<Step> Transact(uint32_t user, const KeyedRequest& request, HeldRegion* region);
  struct Decided {
    uint32_t user;
    bool by_server;  // A server has checked the stamp already, when the primary took it.
    RequestId id;
    Decision decision;
    uint64_t stamp;
    Expiry expires = kNeverExpires;
  };
  // Serves a kDecide at a region in any state in which it can be read. It may be another one than the one that was
  // meant, with the same id: then there is no such transaction. Returns InvalidArgument for a stamp that cannot be,
  // PermissionDenied if the transaction is another user's, and Unavailable if too many transactions are known.
  absl::StatusOr<Step> Decide(const Decided& decided, HeldRegion* region);
  // Applies what is committed, with all of its writes before anybody else reads any of them, and releases its keys.
  void Apply(const RegionTransaction& transaction, HeldRegion* region);
  // Gives up what was aborted: releases its keys, and the room for its writes.
  static void GiveUp(const RegionTransaction& transaction, HeldRegion* region);
  // Holds what the log of a recovered region says is prepared. Returns the errors of PairStore::Prepare.
  static absl::Status Restore(const std::vector<std::string>& prepared, int64_t now_ns, HeldRegion* region);
  // Releases the keys of a transaction that only reads here.
  void Release(const RequestId& id, HeldRegion* region);

  const Counters& counters() const { return counters_; }

 private:
  // Returns why the part cannot be what a client would send, or OK.
  absl::Status CheckOperations(const std::vector<PartOperation>& operations, const HeldRegion& region) const;
  // Returns whether the locks of others allow this part.
  static bool MayHold(const std::vector<PartOperation>& operations, const KeyLocks::Owner& owner,
                      const KeyLocks& locks);
  // Returns whether everything that the part has read is still so: as of the writes that are logged, or if `stored`, as
  // of those that are applied. Sets *expires to when the first of the pairs expires that it has read.
  static absl::StatusOr<bool> ReadsHold(const std::vector<PartOperation>& operations, bool stored,
                                        const HeldRegion& region, Expiry* expires);
  // Adds to *visited how many pairs and leaves were looked at.
  static absl::StatusOr<bool> RangeHolds(const PartOperation& range, const HeldRegion& region, uint64_t* visited,
                                         Expiry* expires);
  // Prepares the puts of the part. After an error, none is prepared.
  static absl::Status PreparePuts(RegionTransaction* transaction, HeldRegion* region);
  static void Hold(RegionTransaction* transaction, HeldRegion* region);
  static void Unhold(const RegionTransaction& transaction, HeldRegion* region);
  static void LetGo(const RegionTransaction& transaction, HeldRegion* region);
  // Logs what was decided, and remembers it.
  static uint64_t LogDecision(const RegionTransaction& transaction, bool commit, uint64_t stamp, HeldRegion* region);
  Step Commit(RegionTransaction* transaction, uint64_t stamp, HeldRegion* region);
  // Commits a transaction that is all in this region, and writes one pair. Its record is that of a put with its
  // outcome.
  absl::StatusOr<Step> CommitPut(uint32_t user, const KeyedRequest& request, const PartOperation& put,
                                 HeldRegion* region);
  Step Abort(RegionTransaction* transaction, HeldRegion* region);
  // Answers with what is known of a transaction that is not prepared here.
  absl::StatusOr<Step> Known(uint32_t user, const RequestId& id, Decision decision, HeldRegion* region);
  bool Untimely(const RequestId& id, const HeldRegion& region) const;

  const Clock* const clock_;
  const Regions* const regions_;
  Counters counters_;
};

}  // namespace cell
