// A client process of the soak (soak.py) that runs transactions over keys of the tree which no soak_client uses, and
// logs them (transaction_log.h). With --plain it gets, puts and deletes single keys of these instead.
//
// With --settled, when the faults are over, it gets every key, and then runs a transaction that reads and writes all of
// them: no key may be held by a transaction that has ended.
//
// The exit status is 0 if it did what was requested, whatever the results of its operations were. It is 1 if it could
// not, and the reason is printed.
#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>

#include "cell/base/status_macros.h"
#include "cell/client/transaction.h"
#include "tests/soak/soak_process.h"
#include "tests/soak/transaction_log.h"

namespace cell {
namespace {

struct Flags : SoakFlags {
  size_t keys = 64;
  size_t value_bytes_max = 48 << 10;  // A transaction may write eight of them.
  bool plain = false;
};

constexpr size_t kKeysMax = 8;  // In a transaction.
constexpr size_t kScannedMax = 10;
constexpr size_t kSettledBytesMax = 4 << 10;
constexpr int kOutcomeTriesMax = 20;
constexpr int64_t kPauseNs = 20'000'000;  // Before a settled transaction that was aborted begins again.

class SoakTransactions : public SoakProcess {
 public:
  explicit SoakTransactions(const Flags& flags) : SoakProcess(flags), flags_(flags), log_(flags.log) {}

  uint64_t aborted() const { return aborted_; }

 private:
  // What a transaction does.
  struct Wishes {
    std::vector<size_t> reads = {};
    std::vector<LoggedPair> writes = {};                 // Keys, and the identities of what is put; 0: deletes.
    std::vector<std::string> values = {};                // For each write.
    std::optional<std::pair<size_t, size_t>> scan = {};  // The first key, and how many.
    bool reverse = false;
  };
  // A transaction of which nobody has told whether it has committed.
  struct Unknown {
    uint64_t number;
    TransactionId id;
    int tries = 0;
  };

  void Violate(const std::string& text) override { log_.Violation(text); }
  std::vector<Task<bool>> Tasks() override {
    std::vector<Task<bool>> tasks;
    if (flags_.settled) tasks.push_back(UseAll());
    while (!flags_.settled && tasks.size() < static_cast<size_t>(flags_.tasks)) tasks.push_back(Use(NextSeed()));
    return tasks;
  }

  Task<bool> Use(uint64_t seed) {
    Random random(seed);
    while (!closing() && NowNs() < end_ns()) {
      const int64_t begin_ns = NowNs();
      const CallOptions call = DrawCall(&random);
      if (!unknown_.empty()) {
        co_await AskForOutcome(call);
      } else if (flags_.plain) {
        co_await UseOneKey(call, &random);
      } else {
        const Wishes wishes = Draw(&random);
        (void)co_await Transact(wishes, call);
      }
      if (!closing()) co_await Pace(begin_ns, &random);
    }
    co_return true;
  }

  std::string Name(size_t key) const { return TransactionKeyName(key, flags_.keys); }
  static int64_t IdentityOf(const std::optional<std::string>& value) {
    return value.has_value() ? ValueIdentity(*value) : kAbsent;
  }

  void AddWrite(size_t key, bool deletes, size_t bytes_max, Wishes* wishes) {
    wishes->values.push_back(deletes ? "" : TransactionValue(key, flags_.process << 32 | values_++, bytes_max));
    wishes->writes.push_back({key, deletes ? kAbsent : ValueIdentity(wishes->values.back())});
  }

  // Draws one to eight keys, and which of them are read and written: all read; all read and written; all read and one
  // written; some scanned and one written; all written blindly.
  Wishes Draw(Random* random) {
    std::vector<size_t> keys;
    for (const size_t count = 1 + random->Below(kKeysMax); keys.size() < count;) {
      const size_t key = random->Below(flags_.keys);
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
    const uint64_t kind = random->Below(100);
    Wishes wishes;
    if (kind < 75) wishes.reads = keys;
    if (kind >= 60 && kind < 80) {
      const size_t half = flags_.keys / 2 * random->Below(2);
      const size_t count = 1 + random->Below(kScannedMax);
      wishes.scan = {half + random->Below(flags_.keys / 2 - count + 1), count};
      wishes.reverse = random->Below(2) == 0;
    }
    size_t writes = keys.size();
    if (kind < 20) writes = 0;
    if (kind >= 45 && kind < 80) writes = 1;
    for (size_t i = 0; i < writes; ++i) {
      AddWrite(keys[i], random->Below(5) == 0, flags_.value_bytes_max, &wishes);
    }
    return wishes;
  }

  // Runs a transaction. Returns its status.
  Task<absl::Status> Transact(const Wishes& wishes, CallOptions call) {
    Transaction transaction = client()->Begin();
    const int64_t begin_ns = NowNs();
    std::vector<LoggedPair> reads;
    for (const size_t key : wishes.reads) {
      const std::string name = Name(key);
      const Begun begun = Begin();
      const auto value = co_await transaction.AsyncGet(name, call);
      EndedOrAborted("a transaction's get of", name, begun, call, value.status());
      if (!value.ok()) co_return value.status();
      reads.push_back({key, IdentityOf(*value)});
    }
    if (wishes.scan.has_value()) {
      const absl::Status status = co_await ScanIn(&transaction, wishes, call, &reads);
      if (!status.ok()) co_return status;
    }
    for (size_t i = 0; i < wishes.writes.size(); ++i) {
      const LoggedPair& write = wishes.writes[i];
      const std::string name = Name(write.key);
      const absl::Status status =
          write.value == kAbsent ? transaction.Delete(name) : transaction.Put(name, wishes.values[i]);
      if (!status.ok()) Violate(fmt::format("a transaction cannot note a write of {}: {}", name, status.ToString()));
    }
    const uint64_t number = begun_++;
    log_.Commit(number, begin_ns, reads, wishes.writes);
    const Begun begun = Begin();
    const absl::StatusOr<Committed> committed = co_await transaction.AsyncCommit(call);
    const int64_t end_ns = NowNs();
    EndedOrAborted("a commit", "", begun, call, committed.status());
    if (committed.ok()) {
      log_.End(number, committed->stamp, -1, end_ns);
    } else if (IsMaybeApplied(committed.status())) {
      unknown_.push_back({number, transaction.id()});
    } else {
      log_.Fail(number);
    }
    co_return committed.status();
  }

  // Reads a range in a transaction. Every key of the range counts as read.
  Task<absl::Status> ScanIn(Transaction* transaction, const Wishes& wishes, CallOptions call,
                            std::vector<LoggedPair>* reads) {
    const auto [first, count] = *wishes.scan;
    ScanOptions options;
    options.from = Name(first);
    options.to = Name(first + count - 1) + '\0';
    options.reverse = wishes.reverse;
    options.call = call;
    const std::string from = options.from;
    const Begun begun = Begin();
    Task<absl::StatusOr<Transaction::Pairs>> scan = transaction->AsyncScan(std::move(options));
    const absl::StatusOr<Transaction::Pairs> pairs = co_await std::move(scan);
    // Each batch of a scan has a timeout of its own.
    CallOptions longer = call;
    longer.timeout_us = *call.timeout_us * static_cast<int64_t>(count + 1);
    EndedOrAborted("a transaction's scan from", from, begun, longer, pairs.status());
    if (!pairs.ok()) co_return pairs.status();
    std::map<std::string, int64_t> found;
    for (const auto& [key, value] : *pairs) found[key] = ValueIdentity(value);
    if (found.size() != pairs->size()) Violate(fmt::format("a transaction's scan from {} had a key twice", from));
    for (size_t key = first; key < first + count; ++key) {
      const auto it = found.find(Name(key));
      reads->push_back({key, it == found.end() ? kAbsent : it->second});
      if (it != found.end()) found.erase(it);
    }
    if (!found.empty()) Violate(fmt::format("a transaction's scan from {} had {}", from, found.begin()->first));
    co_return absl::OkStatus();
  }

  void EndedOrAborted(const char* what, const std::string& key, const Begun& begun, const CallOptions& call,
                      const absl::Status& status) {
    aborted_ += absl::IsAborted(status);
    Ended(what, key, begun, call, absl::IsAborted(status) ? absl::OkStatus() : status);
  }

  // Asks what became of a transaction, perhaps one of a client that was destroyed.
  Task<bool> AskForOutcome(CallOptions call) {
    Unknown asked = std::move(unknown_.front());
    unknown_.pop_front();
    const Begun begun = Begin();
    Task<absl::StatusOr<std::optional<Committed>>> ask = client()->AsyncOutcome(asked.id, call);
    const absl::StatusOr<std::optional<Committed>> outcome = co_await std::move(ask);
    const int64_t end_ns = NowNs();
    const bool too_late = absl::IsFailedPrecondition(outcome.status());
    Ended("the outcome of a transaction with", asked.id.key, begun, call,
          too_late ? absl::OkStatus() : outcome.status());
    if (outcome.ok() && outcome->has_value()) {
      log_.End(asked.number, (*outcome)->stamp, -1, end_ns);
    } else if (outcome.ok()) {
      log_.Fail(asked.number);
    } else if (!too_late && ++asked.tries < kOutcomeTriesMax) {
      unknown_.push_back(std::move(asked));
    }
    co_return true;
  }

  Task<bool> UseOneKey(CallOptions call, Random* random) {
    const size_t key = random->Below(flags_.keys);
    const uint64_t kind = random->Below(100);
    if (kind < 50) co_return co_await GetWithStamp(key, call);
    if (kind < 60) co_return co_await Get(key, call);
    Wishes wishes;
    AddWrite(key, kind >= 90, flags_.value_bytes_max, &wishes);
    const bool written = co_await Write(wishes, call);
    // The store does not tell the stamp of a plain put otherwise.
    if (!closing()) co_await GetWithStamp(key, call);
    co_return written;
  }

  Task<bool> Write(const Wishes& wishes, CallOptions call) {
    const std::string name = Name(wishes.writes[0].key);
    const bool deletes = wishes.writes[0].value == kAbsent;
    const uint64_t number = begun_++;
    const Begun begun = Begin();
    log_.Commit(number, begun.at_ns, {}, wishes.writes);
    Task<absl::StatusOr<bool>> write =
        deletes ? client()->AsyncDelete(name, call) : client()->AsyncPut(name, wishes.values[0], call);
    const absl::StatusOr<bool> existed = co_await std::move(write);
    const int64_t end_ns = NowNs();
    Ended(deletes ? "delete" : "put", name, begun, call, existed.status());
    if (existed.ok()) {
      log_.End(number, 0, *existed ? 1 : 0, end_ns);
    } else if (!IsMaybeApplied(existed.status())) {
      log_.Fail(number);
    }
    co_return existed.ok();
  }

  Task<bool> Get(size_t key, CallOptions call) {
    const std::string name = Name(key);
    const Begun begun = Begin();
    const absl::StatusOr<std::optional<std::string>> value = co_await client()->AsyncGet(name, call);
    const int64_t end_ns = NowNs();
    Ended("get", name, begun, call, value.status());
    if (value.ok()) LogRead({key, IdentityOf(*value)}, begun.at_ns, end_ns);
    co_return value.ok();
  }

  Task<bool> GetWithStamp(size_t key, CallOptions call) {
    const std::string name = Name(key);
    const Begun begun = Begin();
    const absl::StatusOr<std::optional<StampedValue>> got = co_await client()->AsyncGetWithStamp(name, call);
    const int64_t end_ns = NowNs();
    Ended("get with stamp", name, begun, call, got.status());
    if (!got.ok()) co_return false;
    const LoggedPair pair{key, got->has_value() ? ValueIdentity((*got)->value) : kAbsent};
    if (got->has_value()) log_.Stamp(pair, (*got)->stamp);
    LogRead(pair, begun.at_ns, end_ns);
    co_return true;
  }

  void LogRead(const LoggedPair& pair, int64_t begin_ns, int64_t end_ns) {
    const uint64_t number = begun_++;
    log_.Commit(number, begin_ns, {pair}, {});
    log_.End(number, 0, -1, end_ns);
  }

  Task<bool> UseAll() {
    CallOptions call;
    call.timeout_us = kPatientUs;
    call.path = Path::kServer;
    bool right = true;
    for (size_t key = 0; key < flags_.keys && right; ++key) right = co_await GetWithStamp(key, call);
    const int64_t until_ns = NowNs() + kPatientUs * 1000;
    absl::Status status = absl::AbortedError("");
    for (bool full = false; right && absl::IsAborted(status) && NowNs() < until_ns;) {
      Wishes wishes;
      wishes.reads.resize(flags_.keys);
      std::iota(wishes.reads.begin(), wishes.reads.end(), size_t{0});
      for (size_t key = 0; key < flags_.keys; ++key) {
        AddWrite(key, full || key % 4 == 0, kSettledBytesMax, &wishes);
      }
      status = co_await Transact(wishes, call);
      if (absl::IsResourceExhausted(status) && !full) {
        full = true;  // The store may be full, which is not an error.
        status = absl::AbortedError("");
      }
      if (absl::IsAborted(status)) co_await client()->AsyncSleepUntil(client()->NowNs() + kPauseNs);
    }
    call.path = Path::kClient;
    for (size_t key = 0; key < flags_.keys && right && status.ok(); ++key) right = co_await Get(key, call);
    if (right && status.ok()) co_return true;
    Violate(
        fmt::format("not all keys of transactions can be read and written, although there are no more faults: {}; {}",
                    status.ToString(), last_error()));
    co_return false;
  }

  const Flags& flags_;
  TransactionLog log_;
  std::deque<Unknown> unknown_;
  uint64_t begun_ = 0, values_ = 0, aborted_ = 0;
};

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"Run transactions for the soak test (tests/soak/soak.py)."};
  flags.AddTo(&app);
  app.add_option("--keys", flags.keys);
  app.add_option("--value-bytes-max", flags.value_bytes_max);
  app.add_flag("--plain", flags.plain);
  CLI11_PARSE(app, argc, argv);
  SoakTransactions soak(flags);
  const absl::Status status = soak.Run();
  if (!status.ok()) fmt::print(stderr, "soak_transactions: {}\n", status.ToString());
  fmt::print("{} operations, {} aborted, {} failed\n", soak.operations(), soak.aborted(), soak.failed());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }
