// Users are the clients of a simulation and their operations. Everything that they see enters the histories of the
// keys. Answers that no cluster may give are violations.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/transactions.h"
#include "tests/simulation/world.h"

namespace cell {

class Users {
 public:
  // Both must outlive it.
  Users(World* world, TransactionHistory* transactions);

  // Opens the clients that exist from the beginning, and begins their operations. The others come as scheduled.
  void Open();
  // Makes each operation in progress the last of its task. No further client comes.
  void Stop() { stop_ = true; }
  // Returns how many tasks have not ended.
  int tasks_left() const { return tasks_left_; }
  // Destroys all clients. If not everything has `ended`, they are kept, because operations in flight refer to them.
  void Close(bool ended);

  size_t size() const { return users_.size(); }
  // Return null if the client has not come yet, or is gone.
  SimHost* host(size_t i) const { return users_[i]->of.host; }
  MemoryMembership* membership(size_t i) const { return users_[i]->of.membership; }

  // Returns the number of the value that was read; 0: absent. A value that nobody gave to this key is a violation.
  int64_t NumberOf(size_t key, const std::optional<std::string>& value);
  // Returns when the value of this number, which is put now, expires; kNever if it does not.
  int64_t ExpiryOf(int64_t number) const;

 private:
  // A key with more writes of unknown outcome is not written any more, because its history would take too long to
  // decide.
  static constexpr int kUnknownMax = 4;

  struct User {
    bool plain() const { return plan->user > 0; }  // It may do what its grants allow.

    size_t index;
    const ClientPlan* plan;
    SimCluster::DrivenClient of;
    std::unique_ptr<Table> table;
    std::vector<Task<bool>> tasks;
    int tasks_left = 0;
    bool goes = false;    // Its operations in flight are its last.
    bool closed = false;  // They may end with Cancelled.
    int64_t idle_until_ns = 0;
    int idle_tasks = 0;  // Those that wait until then.
    // Writes in flight, in the order of their begin. If the client dies, their outcome is unknown.
    std::map<uint64_t, std::pair<size_t, KeyOperation>> writes = {};
  };

  // Returns false if nobody answered.
  bool Come(User* user);
  void Begin(User* user);
  void Go(User* user);
  void Die(User* user);
  void CloseBusy(User* user);
  // Lets a client's program do nothing for a while, once its operations in flight have ended.
  void Idle(User* user);
  Task<bool> AwaitIdleEnd(User* user);
  void Destroy(User* user);

  size_t ChooseKey(Random* random) const;
  std::string Value(size_t key, int64_t number) const;
  void CheckError(const User& user, const std::string& what, const absl::Status& status);

  CallOptions ChooseCall(const User& user, Random* random) const;
  // Reports a violation if something took longer than its deadline allows.
  void CheckTime(const User& user, const std::string& what, int64_t begin_ns, int64_t timeout_us, int deadlines = 1);
  Task<bool> Use(User* user, uint64_t seed);
  // Puts the queue's next key, or takes its first one.
  Task<bool> UseQueue(User* user, CallOptions call, Random* random);
  Task<bool> UseKey(User* user, size_t key, KeyOperation::Kind kind, CallOptions call);
  // Executes the write of a key, with its condition if it has one. Sets the operation's outcome. If `swapped` is not
  // null, it is the value that must be there, and a function compares and replaces it.
  Task<absl::Status> Write(User* user, size_t key, std::optional<Condition> condition, const std::string* swapped,
                           KeyOperation* operation, CallOptions call);
  // Sets the outcome of a conditional write that was answered.
  absl::Status EndConditional(size_t key, const WriteIfResult& written, KeyOperation* operation);
  // Returns whether a function executes this get.
  bool Evaluates(size_t key, const KeyOperation& operation) const;
  // Returns whether a function executes this conditional put. If so, sets what the new value has of the old one.
  bool Swaps(size_t key, uint64_t order, KeyOperation* operation);
  // Reads a key, in some cases with its stamp, or by a function. Sets what was read.
  Task<absl::Status> Read(User* user, size_t key, KeyOperation* operation, CallOptions call);
  // Gives a write a condition, or not, and returns the condition.
  std::optional<Condition> ChooseCondition(size_t key, uint64_t order, KeyOperation* operation, std::string* expected);
  // Returns whether a pair that a conditional write has found, or that a write before it puts, may have expired between
  // the decision and its effect, until then, as it may with `sync` (docs/guarantees.md).
  bool MayExpireMeanwhile(size_t key, const KeyOperation& operation, int64_t until_ns) const;
  // Notes the stamp of a value. A value that has another one, or has that of another value of its key, is a violation.
  void NoteStamp(size_t key, int64_t number, uint64_t stamp);

  // transactions.cc: a transaction over some of its keys.
  Task<bool> UseTransaction(User* user, CallOptions call, Random* random);

  // snapshots.cc: a snapshot, and reads of it for a while.
  class SnapshotUse;
  Task<bool> UseSnapshot(User* user, Random* random);

  // scans.cc: a scan of some range, and what it says about each key there.
  struct ScanRange;
  Task<bool> ScanSome(User* user, CallOptions call, Random* random);
  Task<bool> ScanOnce(User* user, ScanRange* range);
  bool Take(absl::Span<const Scan::Entry> batch, int64_t begin_ns, ScanRange* range);
  void CheckScanned(const User& user, uint64_t since, const ScanRange& range,
                    const absl::StatusOr<absl::Span<const Scan::Entry>>& batch);

  // grants.cc: what a plain user may do.
  using Verdict = GrantHistory::Verdict;
  // Returns whether a user passes the test by the grants that servers have gone by since `since`.
  Verdict Granted(const User& user, uint64_t since, const GrantHistory::Test& test) const;
  // Reports a violation if what a user was allowed was refused for want of a grant, or if something else was done.
  // `verdict` says whether it was allowed.
  void CheckGranted(const User& user, const std::string& what, Verdict verdict, uint64_t since, Path path,
                    const absl::Status& status);
  // Returns the keys of the tree for which a user has a grant now, one of those for a prefix. Returns nullopt as often,
  // and if there is none.
  struct GrantedKeys {
    size_t first, end;  // Numbers.
    std::string from, to;
  };
  std::optional<GrantedKeys> ChooseGranted(const User& user, Random* random) const;

  // ranges.cc: a count, or a deletion, of some range.
  struct KeyRange;
  Task<bool> UseRange(User* user, CallOptions call, Random* random);
  // Notes that the keys before `end` are done, with so many pairs in all.
  void EndSlice(User* user, size_t end, uint64_t pairs, KeyRange* range);
  bool MayWrite(size_t key) const { return unknown_[key] < kUnknownMax; }

  // Never emptied.
  static inline auto* const graveyard_ = new std::vector<User*>;

  World* const world_;
  TransactionHistory* const transactions_;
  std::vector<std::unique_ptr<User>> users_;
  std::vector<int> unknown_;  // Per key: number of writes with an unknown outcome.
  struct KnownStamps {
    std::map<int64_t, uint64_t> of_number;
    std::map<uint64_t, int64_t> numbers;
    int64_t last = 0;  // The number of the value that was seen last; 0: none.
    std::vector<int64_t> expiries;
    std::map<int64_t, int64_t> expiry_of;  // By number.
  };
  std::vector<KnownStamps> stamps_;  // Per key.
  uint64_t writes_ever_ = 0;
  uint64_t queued_ever_ = 0;
  int64_t next_value_ = 1;
  int tasks_left_ = 0;
  bool stop_ = false;
};

}  // namespace cell
