// RequestService: what a worker does with the calls that its fabric hands it.
//
// Searches and gets that arrive together are walked together, so that their cache misses overlap (Meganode::FindBatch).
// Everything is answered before Serve returns. One thread: the worker's.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cell/base/mutant.h"
#include "cell/cluster/membership.h"
#include "cell/io/fabric/fabric.h"
#include "cell/layout/wire.h"
#include "cell/server/region/regions.h"
#include "cell/server/request/migration_handler.h"
#include "cell/server/request/uploads.h"
#include "cell/server/request/value_copies.h"
#include "nlohmann/json_fwd.hpp"

namespace cell {

class RequestService : public Service {
 public:
  struct Options {
    std::string name;      // Of the server, for its status.
    bool batching = true;  // Off: each search by itself, to measure what batching gains.
    int64_t held_max_ns = 1'000'000'000;  // That a write waits for its region to have room, or to have moved.
    Uploads::Limits uploads = {};
  };

  // All must outlive this. `migrations` is null where no region ever moves.
  RequestService(Fabric* fabric, Regions* regions, MigrationHandler* migrations, Options options);

  void Serve(absl::Span<const IncomingCall> calls) override;
  void Disconnected(ConnectionId peer) override;

  // Whose lease writes need.
  void set_membership(const Membership* membership) { membership_ = membership; }

  // The worker's state and statistics, with at most `regions_max` of its regions, from the `first` on.
  std::string StatusJson(size_t first, size_t regions_max) const;

  // A request between servers, of this worker to itself.
  std::string AnswerPeer(ConstBytes request);
  // Asked when a write finds its region full: true if that is being mended, and the write is to wait.
  void set_on_full(std::function<bool(HeldRegion*)> on_full) { on_full_ = std::move(on_full); }
  // Writes to the region that wait.
  size_t held(uint32_t region) const;
  // Tries writes that wait again, in their order; those that have waited too long fail. Returns how many were answered.
  // The worker calls it with each Poll, after all that may have made room; nobody else does, since it composes replies,
  // and another may be half composed.
  size_t RetryHeld();
  bool retry_due() const { return !held_.empty(); }
  // Looks for what has expired.
  void Step() {
    if (!Mutated(Mutant::kUploadsOfTheDead)) uploads_.Expire(fabric_->NowNs());
  }
  const Uploads& uploads() const { return uploads_; }
  // Applies and answers what is on disk by now. How many writes.
  size_t ApplyDurable();
  // A region that is another worker's by now: of its writes it is not known what becomes.
  void Lose(HeldRegion* region);

  // What the steward adds to the status.
  void set_more_status(std::function<void(nlohmann::json*)> more_status) { more_status_ = std::move(more_status); }
  // Called before a check, so that what is being freed is freed.
  void set_before_check(std::function<void()> before_check) { before_check_ = std::move(before_check); }

 private:
  // What clients told of themselves (kReport), summed up.
  static constexpr std::array kClientCounters = {"operations",  "server_path",    "client_path",
                                                 "retries",     "lookups",        "lookup_reads",
                                                 "lookup_torn", "lookup_extents", "lookup_moved"};
  using ClientTotals = std::array<uint64_t, kClientCounters.size()>;
  // A write that waits for its region to have room, or to have moved.
  struct Held {
    IncomingCall call;
    std::string request;
    MessageKind kind;
    uint32_t region;
    int64_t since_ns;
    bool given_up = false;  // Its client has.
  };
  // Beyond, writes fail at once.
  static constexpr size_t kHeldMax = 4096;

  static constexpr size_t kCopyBytesMax = size_t{256} << 20;

  // The region that a request on `key` names, or the answer that leads on.
  struct Found {
    HeldRegion* region = nullptr;
    PairStore* store = nullptr;  // Where the key's place is. Null: `route` leads on.
    RouteKind kind = RouteKind::kNotHeld;
    Meganode::Route route;
  };
  Found Find(Pointer root, std::string_view key) const;
  static size_t WriteRoute(MutableBytes to, const Found& found);
  void ServeLookups(absl::Span<const IncomingCall> calls);
  template <typename Request>
  void LookUpLeaf(const absl::StatusOr<Parsed<Request>>& request, size_t call);
  void ServeOne(const IncomingCall& call, Pointer hint);

  // As long as no one can take this worker for dead.
  bool Leased() const {
    const int64_t until_ns = membership_ == nullptr ? INT64_MAX : membership_->LeaseUntilNs();
    return until_ns == INT64_MAX || fabric_->NowNs() <= until_ns;
  }
  // Whether a write of the key is logged, and not yet applied.
  static bool IsPending(const HeldRegion& region, std::string_view key);
  static bool Writable(const HeldRegion& region) { return region.state() != RegionState::kFrozen && !region.late; }
  void GiveUpHeld(ConnectionId peer, uint16_t upload);
  // Returns the region that a write names; null if it is not held here, or the request is too short.
  HeldRegion* RegionOf(const IncomingCall& call) const;
  // Whether a region that is full will have room soon.
  bool Mending(HeldRegion* region) const;
  // Returns the error that a write's client gets: Unavailable, and so worth another try, while its region may still have
  // room soon. ResourceExhausted only when no split is possible.
  absl::Status Refusal(const absl::Status& status, HeldRegion* region) const;
  void AnswerPending(const PendingWrite& write, absl::StatusOr<bool> existed);

  // Whether a write is to wait, before it is tried (null), or after it had this outcome. Keeps it then.
  bool Hold(const IncomingCall& call, MessageKind kind, const absl::Status* outcome);
  // The size of the reply; 0: it comes when the write is on disk.
  absl::StatusOr<size_t> Write(const IncomingCall& call, MessageKind kind, Pointer hint, MutableBytes to);
  // Logs a write that is to be applied when it is on disk.
  size_t Log(const IncomingCall& call, MessageKind kind, HeldRegion* region, std::string_view key,
             std::string_view value, const PairStore::Prepared& prepared, Pointer hint);
  void Answer(const IncomingCall& call, MessageKind kind, absl::StatusOr<size_t> bytes, MutableBytes to);
  absl::StatusOr<size_t> Put(const IncomingCall& call, Pointer hint, MutableBytes to);
  absl::StatusOr<PairStore::Prepared> Prepare(const Found& found, const Parsed<PutRequest>& request,
                                              std::string_view value) const;
  absl::StatusOr<size_t> Delete(const IncomingCall& call, Pointer hint, MutableBytes to);
  absl::StatusOr<size_t> Scan(const IncomingCall& call, MutableBytes to);
  // Puts a value of a get's reply behind it, or keeps a copy; else it stays where `reply->extent` says.
  void GiveValue(const IncomingCall& call, MutableBytes to, std::string_view value, GetReply* reply);
  absl::StatusOr<size_t> Fetch(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Upload(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> AddRoute(ConstBytes request, MutableBytes to);
  absl::StatusOr<size_t> Report(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Status(std::string_view text, MutableBytes to) const;
  absl::StatusOr<size_t> Check(std::string_view text, MutableBytes to);

  // A get or search of a table's key.
  struct HashLookup {
    const HashTable* table;
    std::string_view key;
    KeyHash hash;
    size_t call;
  };
  void AnswerHashLookup(const IncomingCall& call, MessageKind kind, const HashLookup& lookup);
  void AnswerLookup(const IncomingCall& call, MessageKind kind, const Meganode::Lookup& lookup);
  // Of a reply in `to`, which says what it took.
  void End(const IncomingCall& call, MutableBytes to, size_t bytes);
  void AnswerError(const IncomingCall& call, MessageKind kind, const absl::Status& status);

  Fabric* fabric_;
  const Options options_;
  const int64_t started_ns_;
  Regions* const regions_;
  MigrationHandler* const migrations_;
  std::function<void(nlohmann::json*)> more_status_;
  std::function<void()> before_check_;
  std::function<bool(HeldRegion*)> on_full_;
  const Membership* membership_ = nullptr;
  std::deque<Held> held_;
  size_t pending_ = 0;  // Writes, of all regions.
  bool leased_ = true;  // While a batch of calls is served.
  uint64_t held_ever_ = 0;
  int64_t held_longest_ns_ = 0;
  std::map<ConnectionId, std::string> reports_;  // JSON, checked.
  Uploads uploads_;
  ValueCopies copies_{kCopyBytesMax};
  ClientTotals departed_{};
  std::array<uint64_t, 32> served_{};  // By MessageKind.
  uint64_t routed_ = 0;                // Answered with a route.
  uint64_t refused_ = 0;               // Answered with an error.
  uint64_t batches_ = 0;

  // Of the lookups being served.
  std::vector<Meganode::Lookup> lookups_;
  std::vector<size_t> lookup_calls_;  // Whose they are.
  std::vector<HashLookup> hash_lookups_;
  std::vector<Pointer> hints_;  // Of each call, if it is a write: its leaf.
};

}  // namespace cell
