// Takes snapshots, and reads each of them for a while. What is read of one counts as read while it was taken: the keys
// of transactions by one transaction, and others in their histories. No two reads of one may differ.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "cell/base/random.h"
#include "cell/client/snapshot.h"
#include "tests/simulation/users.h"

namespace cell {
namespace {

constexpr int kTakesMax = 3;
constexpr uint64_t kReadsMax = 16;
constexpr int kScanTries = 3;
constexpr uint64_t kScannedMax = 200;
constexpr int kDeadlinesOfABatch = 2;  // What is read ahead has a deadline of its own.
constexpr std::array<int64_t, 4> kPausesNs = {0, 5'000, 50'000, 300'000};

struct Names {
  std::string from = {};               // Inclusive; empty: the first key.
  std::optional<std::string> to = {};  // Exclusive; nullopt: to the end.

  bool Has(std::string_view name) const { return name >= from && (!to.has_value() || name < *to); }
  std::string Text() const { return fmt::format("[{}, {})", from, to.value_or("the end")); }
};

// What a scan has returned.
struct Scanned {
  std::map<std::string, std::string> pairs = {};
  std::string last = {};  // The key that came last.
  uint64_t count = 0;
  bool ended = false;

  // Returns whether the scan has passed a key of its range.
  bool Passed(const std::string& name, const ScanOptions& options) const {
    if (ended && count < options.limit) return true;
    return !last.empty() && (options.reverse ? name >= last : name <= last);
  }
};

// Returns what each snapshot has: everything, or some groups of the keys of transactions with what is between them.
Names ChooseRange(const TransactionHistory& transactions, Random* random) {
  if (random->Below(2) == 0) return {};
  const auto one = static_cast<int>(random->Below(TransactionHistory::kGroups));
  const auto other = static_cast<int>(random->Below(TransactionHistory::kGroups));
  return {transactions.Prefix(std::min(one, other)), transactions.Prefix(std::max(one, other)) + "~"};
}

// Returns a timeout for taking a snapshot: shorter or longer than regions are still.
int64_t ChooseTimeoutUs(int64_t still_ns, Random* random) {
  const int64_t still_us = still_ns / 1000;
  const std::array<int64_t, 4> timeouts_us = {still_us / 2, still_us * 3 / 4, still_us * 3, kTimeoutNs / 1000};
  return timeouts_us[random->Below(timeouts_us.size())];
}

}  // namespace

// One snapshot of a user.
class Users::SnapshotUse {
 public:
  SnapshotUse(Users* users, User* user, Random* random)
      : users_(users),
        user_(user),
        random_(random),
        world_(users->world_),
        transactions_(users->transactions_),
        range_(ChooseRange(*transactions_, random)) {}

  Task<bool> Run() {
    for (int takes = 0; takes < kTakesMax && !snapshot_.has_value() && !Ends(); ++takes) co_await Take();
    if (!snapshot_.has_value()) co_return false;
    for (uint64_t left = 1 + random_->Below(kReadsMax); left > 0 && !Ends(); --left) {
      if (random_->Below(2) == 0) {
        co_await Get();
      } else {
        co_await ScanSome();
      }
      co_await Pause();
    }
    if (!Ends() && random_->Below(4) == 0) co_await Forget();
    co_return true;
  }

 private:
  // Returns whether the user's client does nothing more, or does not exist any more.
  bool Ends() const { return users_->stop_ || user_->goes; }
  std::string Name() const { return fmt::format("the snapshot of {} since {}", range_.Text(), begin_ns_); }

  Task<bool> Take() {
    SnapshotOptions options;
    options.from = range_.from;
    options.to = range_.to;
    options.call.timeout_us = ChooseTimeoutUs(world_->plan.snapshot_still_ns, random_);
    begin_ns_ = world_->now_ns();
    Task<absl::StatusOr<Snapshot>> task = user_->of.client->AsyncTakeSnapshot(options);
    absl::StatusOr<Snapshot> taken = co_await std::move(task);
    end_ns_ = world_->now_ns();
    ++world_->report.operations;
    world_->journal.Trace("client {} takes {}: {}", user_->index, Name(), taken.status().ToString());
    users_->CheckTime(*user_, "taking a snapshot", begin_ns_, *options.call.timeout_us);
    if (!taken.ok()) {
      ++world_->report.failed;
      users_->CheckError(*user_, "taking " + Name(), taken.status());
      co_return false;
    }
    // A server that stood still may not know yet that others have its regions.
    if (world_->history.Stale(end_ns_)) co_return false;
    ++world_->report.snapshots;
    snapshot_ = *std::move(taken);
    if (world_->plan.transaction_share > 0) record_ = transactions_->AddSnapshot(user_->index, begin_ns_);
    co_return true;
  }

  // Lets others write meanwhile.
  Task<bool> Pause() {
    const int64_t pause_ns = kPausesNs[random_->Below(kPausesNs.size())];
    if (pause_ns > 0 && !Ends()) {
      Client* const client = user_->of.client.get();
      co_await client->AsyncSleepUntil(client->NowNs() + pause_ns);
    }
    while (world_->now_ns() < user_->idle_until_ns && !Ends()) co_await users_->AwaitIdleEnd(user_);
    co_return true;
  }

  std::string AnyKey() {
    const bool of_transactions = record_ != nullptr && random_->Below(2) == 0;
    if (of_transactions) return transactions_->Name(static_cast<int>(random_->Below(TransactionHistory::kKeys)));
    return KeyName(world_->table_keys + random_->Below(world_->history.keys() - world_->table_keys));
  }

  Task<bool> Get() {
    const std::string name = AnyKey();
    CallOptions call;
    call.timeout_us = random_->Below(8) == 0 ? 20 : kTimeoutNs / 1000;
    const int64_t begin_ns = world_->now_ns();
    const auto value = co_await snapshot_->AsyncGet(name, call);
    world_->journal.Trace("client {} gets {} of {}: {}", user_->index, name, Name(), value.status().ToString());
    const std::string what = fmt::format("a get of {} of {}", name, Name());
    users_->CheckTime(*user_, what, begin_ns, *call.timeout_us);
    ++world_->report.operations;
    if (!range_.Has(name)) {
      if (!absl::IsOutOfRange(value.status()) && !user_->closed) {
        world_->journal.Violate("{}, which does not have it: {}", what, value.status().ToString());
      }
      co_return true;
    }
    CheckRead(what, value.status());
    if (value.ok()) Note(name, *value);
    co_return value.ok();
  }

  // Chooses a group of the keys of transactions, some of the other keys, or everything.
  ScanOptions ChooseScan() {
    ScanOptions options;
    const uint64_t what = random_->Below(5);
    if (what < 2)
      options = PrefixScan(transactions_->Prefix(static_cast<int>(random_->Below(TransactionHistory::kGroups))));
    if (what == 2 || what == 3) {
      const uint64_t keys = world_->history.keys() - world_->table_keys;
      const uint64_t count = 1 + random_->Below(std::min(keys, kScannedMax));
      const uint64_t first = world_->table_keys + random_->Below(keys - count + 1);
      options.from = KeyName(first);
      options.to = KeyName(first + count);
    }
    options.batch = static_cast<uint32_t>(1 + random_->Below(random_->Below(2) == 0 ? 5 : 200));
    options.reverse = random_->Below(2) == 0;
    options.read_ahead = random_->Below(4) != 0;
    options.keys_only = random_->Below(4) == 0;
    if (random_->Below(4) == 0) options.limit = random_->Below(20);
    options.call.timeout_us = kTimeoutNs / 1000;
    return options;
  }

  Task<bool> ScanSome() {
    const ScanOptions options = ChooseScan();
    Scanned scanned;
    Scan scan = snapshot_->NewScan(options);
    for (int tries = kScanTries; tries > 0 && !scanned.ended && !Ends();) {
      const int64_t begin_ns = world_->now_ns();
      const auto batch = co_await scan.AsyncNextBatch();
      const std::string what = fmt::format("a scan of {} of {}", Names{options.from, options.to}.Text(), Name());
      users_->CheckTime(*user_, what, begin_ns, *options.call.timeout_us, kDeadlinesOfABatch);
      CheckRead(what, batch.status());
      tries -= !batch.ok();
      if (!batch.ok()) continue;
      scanned.ended = batch->empty();
      if (!AddBatch(*batch, options, &scanned)) co_return false;
      if (random_->Below(8) == 0) co_await Pause();
    }
    ++world_->report.operations;
    world_->journal.Trace("client {} scans {} of {}: {} keys{}{}", user_->index, Names{options.from, options.to}.Text(),
                          Name(), scanned.count, options.reverse ? ", downward" : "",
                          scanned.ended ? "" : ", not to the end");
    NoteScanned(options, &scanned);
    co_return true;
  }

  // Returns false if the batch was wrong.
  bool AddBatch(absl::Span<const Scan::Entry> batch, const ScanOptions& options, Scanned* scanned) {
    for (const Scan::Entry& entry : batch) {
      const std::string name(entry.key);
      const std::string& last = scanned->last;
      const bool in_order = last.empty() || (options.reverse ? name < last : name > last);
      if (!in_order || !Names{options.from, options.to}.Has(name) || !range_.Has(name) ||
          scanned->count >= options.limit) {
        world_->journal.Violate("a scan of {} of {} with limit {} had {} after {}",
                                Names{options.from, options.to}.Text(), Name(), options.limit, name, last);
        return false;
      }
      scanned->pairs[name] = std::string(entry.value);
      scanned->last = name;
      ++scanned->count;
    }
    return true;
  }

  // Notes what a scan says of each key that it has passed.
  void NoteScanned(const ScanOptions& options, Scanned* scanned) {
    const Names wanted{options.from, options.to};
    const auto note = [&](const std::string& name) {
      if (!wanted.Has(name) || !range_.Has(name) || !scanned->Passed(name, options)) return;
      const auto pair = scanned->pairs.extract(name);
      if (options.keys_only) return NoteThere(name, !pair.empty());
      Note(name, pair.empty() ? std::nullopt : std::optional<std::string>(pair.mapped()));
    };
    for (size_t key = world_->table_keys; key < world_->history.keys(); ++key) note(KeyName(key));
    for (int key = 0; key < TransactionHistory::kKeys && record_ != nullptr; ++key) note(transactions_->Name(key));
    if (scanned->pairs.empty()) return;
    world_->journal.Violate("a scan of {} of {} had {}, which nobody has put", wanted.Text(), Name(),
                            scanned->pairs.begin()->first);
  }

  // Says whether the read of a snapshot may have ended like this.
  void CheckRead(const std::string& what, const absl::Status& status) {
    world_->report.snapshot_reads += status.ok();
    world_->report.snapshots_too_old += IsSnapshotTooOld(status);
    if (status.ok()) return;
    ++world_->report.failed;
    world_->journal.Trace("client {}: {}: {}", user_->index, what, std::string(status.message()));
    if (!IsSnapshotTooOld(status)) users_->CheckError(*user_, what, status);
  }

  void Note(const std::string& name, const std::optional<std::string>& value) {
    const std::optional<int> key = transactions_->Find(name);
    const size_t other = key.has_value() ? 0 : std::stoul(name.substr(1));
    const int64_t number = key.has_value() ? transactions_->NumberOf(*key, value) : users_->NumberOf(other, value);
    NoteThere(name, value.has_value());
    const auto [it, first] = seen_.emplace(name, number);
    if (it->second != number) {
      world_->journal.Violate("{} of {} was {}, and is {}", name, Name(), it->second, number);
    }
    if (first && key.has_value()) record_->reads.push_back({*key, number});
    if (first && !key.has_value()) {
      world_->history.Add(other, {KeyOperation::Kind::kGet, begin_ns_, end_ns_, number});
    }
  }

  void NoteThere(const std::string& name, bool there) {
    const auto it = there_.emplace(name, there).first;
    if (it->second == there) return;
    world_->journal.Violate("{} of {} was {}, and is {}", name, Name(), it->second ? "there" : "absent",
                            there ? "there" : "absent");
  }

  // Lets servers forget the snapshot. If all of them have, nobody can read it any more.
  Task<bool> Forget() {
    const bool forgotten = co_await snapshot_->AsyncForget();
    world_->journal.Trace("client {} forgets {}: {}", user_->index, Name(), forgotten);
    if (!forgotten || Ends()) co_return false;
    const std::string name = AnyKey();
    CallOptions call;
    call.timeout_us = kTimeoutNs / 1000;
    const auto value = co_await snapshot_->AsyncGet(name, call);
    if (value.ok()) world_->journal.Violate("{} of {} was read after it was forgotten", name, Name());
    co_return true;
  }

  Users* const users_;
  User* const user_;
  Random* const random_;
  World* const world_;
  TransactionHistory* const transactions_;
  const Names range_;
  int64_t begin_ns_ = 0, end_ns_ = 0;  // Of the call that took it.
  std::optional<Snapshot> snapshot_;
  TransactionHistory::Record* record_ = nullptr;  // What it has of the keys of transactions. Null: there are none.
  std::map<std::string, int64_t> seen_;           // Numbers of the values that were read, by key...
  std::map<std::string, bool> there_;             // ...and whether there was one, which scans of keys say, too.
};

Task<bool> Users::UseSnapshot(User* user, Random* random) {
  SnapshotUse use(this, user, random);
  co_return co_await use.Run();
}

}  // namespace cell
