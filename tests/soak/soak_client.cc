// A client process of the soak (soak.py): operations of all kinds on the tree and two Pilaf tables, whatever becomes of
// the servers, and a log of what they did (operation_log.h). With --settled, when nothing goes wrong any more: a write
// of every key and reads of it by both paths, all of which must succeed.
//
// Exit status: 0: it did what it was asked for, whatever its operations came to; 1: it could not, and says why.
#include <atomic>
#include <chrono>
#include <thread>

#include "CLI/CLI.hpp"
#include "cell/base/status_macros.h"
#include "cell/client/client.h"
#include "tests/simulation/history.h"
#include "tests/soak/operation_log.h"

namespace cell {
namespace {

using Kind = KeyOperation::Kind;

struct Flags {
  std::string cluster, log, fabric = "auto", secret_file, profile = "mixed";
  std::vector<std::string> tables;
  uint64_t process = 0;  // Of the run: makes its values its own.
  size_t keys = 300;
  size_t value_bytes_max = kValueBytesMaxOfSoak;
  int tasks = 8;
  double seconds = 10;
  double operations_per_second = 500;
  int64_t timeout_ms = 5000;
  bool leave = false;     // Ends in the middle of its operations, without a word to anyone.
  bool settled = false;  // Each key once, as long as it takes.
  uint64_t seed = 1;
};

// Of put, delete, get, contains, several gets at once, scan.
struct Profile {
  std::string_view name;
  std::array<int, 6> weights;
  double hot_share;  // Of the operations, on a sixteenth of the keys.
};
constexpr std::array kProfiles = {
    Profile{"mixed", {30, 10, 40, 8, 6, 6}, 0.3},
    Profile{"hot", {35, 5, 50, 5, 3, 2}, 0.9},
    Profile{"deletes", {30, 35, 20, 5, 2, 8}, 0.2},
    Profile{"reads", {0, 0, 70, 10, 10, 10}, 0.5},
    Profile{"scans", {15, 5, 10, 0, 0, 70}, 0.2},
};

// An operation may take this much longer than its timeout, beside the time that this process got no processor.
constexpr int64_t kLateNs = 2'000'000'000;
constexpr int64_t kTickNs = 5'000'000;
constexpr size_t kScannedMax = 80;
constexpr int kScanErrorsMax = 5;
constexpr int64_t kPatientUs = 60'000'000;

// How long this process was kept from running, ever: stopped, or without a core. By a thread of its own, so that a
// client that hangs is not taken for one that was not let run.
class Ticker {
 public:
  Ticker() : thread_([this] { Run(); }) {}
  ~Ticker() {
    stop_ = true;
    thread_.join();
  }
  int64_t kept_ns() const { return kept_ns_; }

 private:
  static int64_t Now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  void Run() {
    for (int64_t last = Now(); !stop_;) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(kTickNs));
      const int64_t now = Now();
      kept_ns_ += now - last - kTickNs;
      last = now;
    }
  }

  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> kept_ns_ = 0;
  std::thread thread_;
};

class SoakClient {
 public:
  SoakClient(const Flags& flags, const Profile& profile, Client* client, std::vector<Table> tables)
      : flags_(flags), profile_(profile), client_(client), log_(flags.log), banned_(flags.keys) {
    for (Table& table : tables) tables_.push_back(std::make_unique<Table>(std::move(table)));
  }

  void Run() {
    end_ns_ = client_->NowNs() + static_cast<int64_t>(flags_.seconds * 1e9);
    std::vector<Task<bool>> tasks;
    for (int i = 0; i < flags_.tasks; ++i) {
      const auto number = static_cast<uint64_t>(i);
      tasks.push_back(flags_.settled ? UseAll(number) : Use(Mix64(flags_.seed) + number));
    }
    for (Task<bool>& task : tasks) task.Start();
    for (const Task<bool>& task : tasks) {
      while (!task.done()) {
        client_->Poll(client_->NowNs() + 1'000'000);
        if (flags_.leave && client_->NowNs() >= end_ns_) ::_exit(0);
      }
    }
  }
  uint64_t operations() const { return operations_; }
  uint64_t failed() const { return failed_; }

 private:
  // Key number i is in the tree or in a table, in turns.
  Table* TableOf(size_t key) const {
    const size_t which = key % (tables_.size() + 1);
    return which == 0 ? nullptr : tables_[which - 1].get();
  }
  size_t ChooseKey(Random* random) const {
    const size_t hot = flags_.keys / 16 + 1;
    return random->Below(random->Unit() < profile_.hot_share ? hot : flags_.keys);
  }

  Task<bool> Use(uint64_t seed) {
    Random random(seed);
    const auto pause_ns = static_cast<uint64_t>(2e9 * flags_.tasks / flags_.operations_per_second);
    while (client_->NowNs() < end_ns_) {
      const int64_t begin_ns = client_->NowNs();
      CallOptions call;
      call.path = std::array{Path::kServer, Path::kClient, Path::kHybrid}[random.Below(3)];
      // Some have hardly any time, others more than a takeover takes.
      const int64_t timeout_us = flags_.timeout_ms * 1000;
      call.timeout_us = random.Below(4) == 0 ? 1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(timeout_us)))
                                             : timeout_us;
      int all = 0;
      for (const int weight : profile_.weights) all += weight;
      int at = static_cast<int>(random.Below(static_cast<uint64_t>(all)));
      size_t what = 0;
      while (at >= profile_.weights[what]) at -= profile_.weights[what++];
      if (what == 5) {
        co_await ScanOnce(call, &random);
      } else if (what == 4) {
        co_await MultiGet(call, &random);
      } else {
        const size_t key = ChooseKey(&random);
        if (what < 2 && !banned_[key]) {
          co_await Write(key, static_cast<Kind>(what), call);
        } else {
          co_await Read(key, what == 3 ? Kind::kContains : Kind::kGet, call);
        }
      }
      co_await client_->AsyncSleepUntil(begin_ns + static_cast<int64_t>(random.Below(pause_ns + 1)));
    }
    co_return true;
  }

  struct Begun {
    int64_t at_ns, kept_ns;
  };
  Begun Begin() const { return {client_->NowNs(), ticker_.kept_ns()}; }
  // An operation is over; what its error may not be, and how late it may not be.
  void Ended(const char* what, const std::string& key, const Begun& begun, const CallOptions& call,
             const absl::Status& status) {
    ++operations_;
    const int64_t took_ns = client_->NowNs() - begun.at_ns - (ticker_.kept_ns() - begun.kept_ns);
    if (took_ns > *call.timeout_us * 1000 + kLateNs) {
      log_.Violation(fmt::format("{} {} by {} took {} ms with a timeout of {} ms: {}", what, key, ToString(*call.path),
                                 took_ns / 1'000'000, *call.timeout_us / 1000, status.ToString()));
    }
    if (status.ok()) return;
    ++failed_;
    last_error_ = status.ToString();
    switch (status.code()) {
      case absl::StatusCode::kUnavailable:
      case absl::StatusCode::kDeadlineExceeded:
      case absl::StatusCode::kResourceExhausted:
        return;
      default:
        if (!IsMaybeApplied(status)) log_.Violation(fmt::format("{} {}: {}", what, key, status.ToString()));
    }
  }

  Task<bool> Write(size_t key, Kind kind, CallOptions call) {
    Table* const table = TableOf(key);
    const std::string name = KeyName(key);
    const uint64_t operation = operations_begun_++;
    std::string value;
    if (kind == Kind::kPut) value = SoakValue(key, flags_.process << 32 | operation, flags_.value_bytes_max);
    const Begun begun = Begin();
    log_.Begin(operation, key, kind, kind == Kind::kPut ? ValueIdentity(value) : kAbsent, begun.at_ns);
    Task<absl::StatusOr<bool>> write =
        kind == Kind::kDelete ? (table != nullptr ? table->AsyncDelete(name, call) : client_->AsyncDelete(name, call))
        : table != nullptr    ? table->AsyncPut(name, value, call)
                              : client_->AsyncPut(name, value, call);
    const absl::StatusOr<bool> existed = co_await std::move(write);
    const int64_t end_ns = client_->NowNs();
    Ended(kind == Kind::kPut ? "put" : "delete", name, begun, call, existed.status());
    if (existed.ok()) {
      log_.End(operation, *existed, end_ns);
    } else if (IsMaybeApplied(existed.status())) {
      banned_[key] = true;  // Else its history would be too tangled to be decided.
    } else {
      log_.Fail(operation);
    }
    // The store may be full, which is no fault of it.
    co_return existed.ok() || absl::IsResourceExhausted(existed.status());
  }

  Task<bool> Read(size_t key, Kind kind, CallOptions call) {
    Table* const table = TableOf(key);
    const std::string name = KeyName(key);
    const Begun begun = Begin();
    if (kind == Kind::kContains) {
      Task<absl::StatusOr<bool>> contains =
          table != nullptr ? table->AsyncContains(name, call) : client_->AsyncContains(name, call);
      const absl::StatusOr<bool> found = co_await std::move(contains);
      const int64_t end_ns = client_->NowNs();
      Ended("contains", name, begun, call, found.status());
      if (found.ok()) log_.Read(key, kind, *found ? 1 : 0, begun.at_ns, end_ns);
      co_return found.ok();
    }
    Task<absl::StatusOr<std::optional<std::string>>> get =
        table != nullptr ? table->AsyncGet(name, call) : client_->AsyncGet(name, call);
    const absl::StatusOr<std::optional<std::string>> got = co_await std::move(get);
    const int64_t end_ns = client_->NowNs();
    Ended("get", name, begun, call, got.status());
    if (got.ok()) log_.Read(key, kind, got->has_value() ? ValueIdentity(**got) : kAbsent, begun.at_ns, end_ns);
    co_return got.ok();
  }

  Task<bool> MultiGet(CallOptions call, Random* random) {
    std::vector<size_t> keys;
    std::vector<std::string> names;
    for (uint64_t i = 1 + random->Below(8); i > 0; --i) {
      const size_t key = ChooseKey(random);
      if (TableOf(key) == nullptr) keys.push_back(key);
    }
    for (const size_t key : keys) names.push_back(KeyName(key));
    const std::vector<std::string_view> views(names.begin(), names.end());
    const Begun begun = Begin();
    const auto got = co_await client_->AsyncMultiGet(views, call);
    const int64_t end_ns = client_->NowNs();
    Ended("gets of several keys", "", begun, call, got.status());
    if (!got.ok()) co_return false;
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::optional<std::string>& value = (*got)[i];
      log_.Read(keys[i], Kind::kGet, value.has_value() ? ValueIdentity(*value) : kAbsent, begun.at_ns, end_ns);
    }
    co_return true;
  }

  // What a scan that came to its end says of each key of the range. After an error it goes on.
  Task<bool> ScanOnce(CallOptions call, Random* random) {
    const size_t count = 1 + random->Below(std::min(flags_.keys, kScannedMax));
    const size_t first = random->Below(flags_.keys - count + 1);
    ScanOptions options;
    options.from = KeyName(first);
    options.to = KeyName(first + count);
    options.batch = static_cast<uint32_t>(1 + random->Below(40));
    options.reverse = random->Below(2) == 0;
    options.keys_only = random->Below(4) == 0;
    options.read_ahead = random->Below(4) != 0;
    if (random->Below(4) == 0) options.limit = 1 + random->Below(20);
    options.call = call;
    const bool down = options.reverse, keys_only = options.keys_only;
    const uint64_t limit = options.limit;
    const int64_t begin_ns = client_->NowNs();
    Scan scan = client_->NewScan(options);
    std::map<size_t, int64_t> seen;
    std::string last;
    for (int errors = 0;;) {
      const Begun begun = Begin();
      const auto batch = co_await scan.AsyncNextBatch();
      Ended("scan", options.from, begun, call, batch.status());
      if (!batch.ok()) {
        if (++errors > kScanErrorsMax) co_return false;
        continue;
      }
      if (batch->empty()) break;
      for (const Scan::Entry& entry : *batch) {
        const bool in_order = last.empty() || (down ? entry.key < last : entry.key > last);
        if (!in_order || entry.key < options.from || entry.key >= *options.to) {
          log_.Violation(fmt::format("a scan of [{}, {}) had {} after {}", options.from, *options.to, entry.key, last));
          co_return false;
        }
        last = entry.key;
        seen[std::stoul(last.substr(1))] = keys_only ? 1 : ValueIdentity(entry.value);
      }
    }
    const int64_t end_ns = client_->NowNs();
    if (seen.size() > limit) log_.Violation(fmt::format("a scan with limit {} had {} entries", limit, seen.size()));
    size_t low = first, high = first + count;  // What the scan has seen all of.
    if (seen.size() >= limit) (down ? low : high) = down ? seen.begin()->first : seen.rbegin()->first + 1;
    for (size_t key = low; key < high; ++key) {
      if (TableOf(key) != nullptr) continue;
      const auto it = seen.find(key);
      const int64_t value = it == seen.end() ? kAbsent : it->second;
      log_.Read(key, keys_only ? Kind::kContains : Kind::kGet, value, begin_ns, end_ns);
    }
    co_return true;
  }

  Task<bool> UseAll(size_t task) {
    for (size_t key = task; key < flags_.keys; key += static_cast<size_t>(flags_.tasks)) {
      CallOptions call;
      call.timeout_us = kPatientUs;
      call.path = Path::kServer;
      bool right = co_await Read(key, Kind::kGet, call);  // What the faults have left.
      right = right && co_await Write(key, key % 4 == 0 ? Kind::kDelete : Kind::kPut, call);
      right = right && co_await Read(key, Kind::kGet, call);
      call.path = Path::kClient;
      right = right && co_await Read(key, Kind::kGet, call);
      if (!right) {
        log_.Violation(fmt::format("{} cannot be read and written though nothing goes wrong any more: {}",
                                   KeyName(key), last_error_));
        co_return false;
      }
    }
    co_return true;
  }

  const Flags& flags_;
  const Profile& profile_;
  Client* const client_;
  OperationLog log_;
  const Ticker ticker_;
  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<bool> banned_;
  int64_t end_ns_ = 0;
  std::string last_error_;
  uint64_t operations_begun_ = 0, operations_ = 0, failed_ = 0;
};

absl::Status Run(const Flags& flags) {
  const auto profile = std::find_if(kProfiles.begin(), kProfiles.end(),
                                    [&](const Profile& one) { return one.name == flags.profile; });
  if (profile == kProfiles.end()) return absl::InvalidArgumentError("no such --profile");
  ClientOptions options;
  options.cluster = flags.cluster;
  options.fabric = flags.fabric;
  options.secret_file = flags.secret_file;
  options.seed = flags.seed;
  options.timeout_us = flags.settled ? kPatientUs : flags.timeout_ms * 1000;
  absl::StatusOr<std::unique_ptr<Client>> client = absl::UnavailableError("");
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(flags.settled ? 60 : 10);
  while (absl::IsUnavailable(client.status()) && std::chrono::steady_clock::now() < until) {
    client = Client::Open(options);
    if (!client.ok()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  RETURN_IF_ERROR(client.status());
  std::vector<Table> tables;
  for (const std::string& name : flags.tables) {
    ASSIGN_OR_RETURN(Table table, (*client)->OpenTable(name));
    tables.push_back(std::move(table));
  }
  SoakClient soak(flags, *profile, client->get(), std::move(tables));
  soak.Run();
  fmt::print("{} operations, {} failed\n", soak.operations(), soak.failed());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"A client of the soak (tests/soak/soak.py)."};
  app.add_option("--cluster", flags.cluster)->required();
  app.add_option("--log", flags.log)->required();
  app.add_option("--process", flags.process)->required();
  app.add_option("--fabric", flags.fabric);
  app.add_option("--secret-file", flags.secret_file);
  app.add_option("--profile", flags.profile);
  app.add_option("--tables", flags.tables);
  app.add_option("--keys", flags.keys);
  app.add_option("--value-bytes-max", flags.value_bytes_max);
  app.add_option("--tasks", flags.tasks);
  app.add_option("--seconds", flags.seconds);
  app.add_option("--rate", flags.operations_per_second);
  app.add_option("--timeout-ms", flags.timeout_ms);
  app.add_flag("--leave", flags.leave);
  app.add_flag("--settled", flags.settled);
  app.add_option("--seed", flags.seed);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(flags);
  if (!status.ok()) fmt::print(stderr, "soak_client: {}\n", status.ToString());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }
