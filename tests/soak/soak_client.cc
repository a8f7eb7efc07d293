// A client process of the soak (soak.py). It executes operations of all kinds on the tree and two Pilaf tables,
// whatever happens to the servers, and logs them (operation_log.h).
//
// With --settled, when the faults are over, it writes every key and reads it on both paths, all of which must succeed.
// With --life the client is repeatedly destroyed with operations in flight, and another one continues. With --dump-from
// and --dump-to it scans the tree once, and everything that it sees counts as read between those two moments: it is the
// content of a restored backup that was made then.
//
// The exit status is 0 if it did what was requested, whatever the results of its operations were. It is 1 if it could
// not, and the reason is printed.
#include <algorithm>
#include <array>
#include <map>

#include "cell/base/status_macros.h"
#include "tests/simulation/history.h"
#include "tests/soak/operation_log.h"
#include "tests/soak/soak_process.h"

namespace cell {
namespace {

using Kind = KeyOperation::Kind;

struct Flags : SoakFlags {
  std::string profile = "mixed";
  std::vector<std::string> tables;
  size_t keys = 300;
  size_t value_bytes_max = kValueBytesMaxOfSoak;
  int64_t dump_from_ns = 0, dump_to_ns = 0;
};

// Weights of put, delete, get, contains, several gets at once, scan.
struct Profile {
  std::string_view name;
  std::array<int, 6> weights;
  double hot_share;  // Fraction of the operations that use a sixteenth of the keys.
};
constexpr std::array kProfiles = {
    Profile{"mixed", {30, 10, 40, 8, 6, 6}, 0.3},   Profile{"hot", {35, 5, 50, 5, 3, 2}, 0.9},
    Profile{"deletes", {30, 35, 20, 5, 2, 8}, 0.2}, Profile{"reads", {0, 0, 70, 10, 10, 10}, 0.5},
    Profile{"scans", {15, 5, 10, 0, 0, 70}, 0.2},
};

constexpr size_t kScannedMax = 80;
constexpr int kScanErrorsMax = 5;

class SoakClient : public SoakProcess {
 public:
  SoakClient(const Flags& flags, const Profile& profile)
      : SoakProcess(flags), flags_(flags), profile_(profile), log_(flags.log), banned_(flags.keys) {}

  // Logs every key of the soak in the tree as read, at a moment that is not known more exactly.
  absl::Status Dump() {
    RETURN_IF_ERROR(Open());
    std::vector<int64_t> values(flags_.keys, kAbsent);
    Scan scan = client()->NewScan(PrefixScan("k"));
    for (;;) {
      ASSIGN_OR_RETURN(const bool more, scan.Next());
      if (!more) break;
      const size_t key = std::stoul(std::string(scan.key().substr(1)));
      if (key >= flags_.keys || IsOfTable(key)) {
        log_.Violation(fmt::format("{} is in the backup, but was never put", scan.key()));
      } else {
        values[key] = ValueIdentity(scan.value());
      }
    }
    for (size_t key = 0; key < flags_.keys; ++key) {
      if (!IsOfTable(key)) log_.Read(key, Kind::kGet, values[key], flags_.dump_from_ns, flags_.dump_to_ns);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Opened() override {
    if (flags_.dump_to_ns != 0) return absl::OkStatus();
    for (const std::string& name : flags_.tables) {
      ASSIGN_OR_RETURN(Table table, client()->OpenTable(name));
      tables_.push_back(std::make_unique<Table>(std::move(table)));
    }
    return absl::OkStatus();
  }
  void Closed() override { tables_.clear(); }
  void Violate(const std::string& text) override { log_.Violation(text); }

  std::vector<Task<bool>> Tasks() override {
    std::vector<Task<bool>> tasks;
    for (int i = 0; i < flags_.tasks; ++i) {
      tasks.push_back(flags_.settled ? UseAll(static_cast<size_t>(i)) : Use(NextSeed()));
    }
    return tasks;
  }

  // Returns whether a key is in a table. Keys are in the tree and the tables in turn.
  bool IsOfTable(size_t key) const { return key % (flags_.tables.size() + 1) != 0; }
  Table* TableOf(size_t key) const {
    return IsOfTable(key) ? tables_[key % (flags_.tables.size() + 1) - 1].get() : nullptr;
  }
  size_t ChooseKey(Random* random) const {
    const size_t hot = flags_.keys / 16 + 1;
    return random->Below(random->Unit() < profile_.hot_share ? hot : flags_.keys);
  }

  Task<bool> Use(uint64_t seed) {
    Random random(seed);
    while (!closing() && NowNs() < end_ns()) {
      const int64_t begin_ns = NowNs();
      const CallOptions call = DrawCall(&random);
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
      if (!closing()) co_await Pace(begin_ns, &random);
    }
    co_return true;
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
        kind == Kind::kDelete ? (table != nullptr ? table->AsyncDelete(name, call) : client()->AsyncDelete(name, call))
        : table != nullptr    ? table->AsyncPut(name, value, call)
                              : client()->AsyncPut(name, value, call);
    const absl::StatusOr<bool> existed = co_await std::move(write);
    const int64_t end_ns = NowNs();
    Ended(kind == Kind::kPut ? "put" : "delete", name, begun, call, existed.status());
    if (existed.ok()) {
      log_.End(operation, *existed, end_ns);
    } else if (IsMaybeApplied(existed.status())) {
      banned_[key] = true;  // Otherwise its history would be too complex to be decided.
    } else {
      log_.Fail(operation);
    }
    // The store may be full, which is not an error.
    co_return existed.ok() || absl::IsResourceExhausted(existed.status());
  }

  Task<bool> Read(size_t key, Kind kind, CallOptions call) {
    Table* const table = TableOf(key);
    const std::string name = KeyName(key);
    const Begun begun = Begin();
    if (kind == Kind::kContains) {
      Task<absl::StatusOr<bool>> contains =
          table != nullptr ? table->AsyncContains(name, call) : client()->AsyncContains(name, call);
      const absl::StatusOr<bool> found = co_await std::move(contains);
      const int64_t end_ns = NowNs();
      Ended("contains", name, begun, call, found.status());
      if (found.ok()) log_.Read(key, kind, *found ? 1 : 0, begun.at_ns, end_ns);
      co_return found.ok();
    }
    Task<absl::StatusOr<std::optional<std::string>>> get =
        table != nullptr ? table->AsyncGet(name, call) : client()->AsyncGet(name, call);
    const absl::StatusOr<std::optional<std::string>> got = co_await std::move(get);
    const int64_t end_ns = NowNs();
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
    names.reserve(keys.size());
    for (const size_t key : keys) names.push_back(KeyName(key));
    const std::vector<std::string_view> views(names.begin(), names.end());
    const Begun begun = Begin();
    const auto got = co_await client()->AsyncMultiGet(views, call);
    const int64_t end_ns = NowNs();
    Ended("gets of several keys", "", begun, call, got.status());
    if (!got.ok()) co_return false;
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::optional<std::string>& value = (*got)[i];
      log_.Read(keys[i], Kind::kGet, value.has_value() ? ValueIdentity(*value) : kAbsent, begun.at_ns, end_ns);
    }
    co_return true;
  }

  // Logs what a scan that reached its end says about each key of the range. It continues after errors.
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
    const int64_t begin_ns = NowNs();
    Scan scan = client()->NewScan(options);
    std::map<size_t, int64_t> seen;
    std::string last;
    for (int errors = 0;;) {
      const Begun begun = Begin();
      const auto batch = co_await scan.AsyncNextBatch();
      Ended("scan", options.from, begun, call, batch.status());
      if (!batch.ok()) {
        if (closing() || ++errors > kScanErrorsMax) co_return false;
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
    const int64_t end_ns = NowNs();
    if (seen.size() > limit) log_.Violation(fmt::format("a scan with limit {} had {} entries", limit, seen.size()));
    size_t low = first, high = first + count;  // The range that the scan has covered completely.
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
      bool right = co_await Read(key, Kind::kGet, call);  // The value that the faults left.
      right = right && co_await Write(key, key % 4 == 0 ? Kind::kDelete : Kind::kPut, call);
      right = right && co_await Read(key, Kind::kGet, call);
      call.path = Path::kClient;
      right = right && co_await Read(key, Kind::kGet, call);
      if (!right) {
        log_.Violation(fmt::format("{} cannot be read and written, although there are no more faults: {}", KeyName(key),
                                   last_error()));
        co_return false;
      }
    }
    co_return true;
  }

  const Flags& flags_;
  const Profile& profile_;
  OperationLog log_;
  std::vector<bool> banned_;
  std::vector<std::unique_ptr<Table>> tables_;
  uint64_t operations_begun_ = 0;
};

absl::Status Run(const Flags& flags) {
  const auto profile =
      std::find_if(kProfiles.begin(), kProfiles.end(), [&](const Profile& one) { return one.name == flags.profile; });
  if (profile == kProfiles.end()) return absl::InvalidArgumentError("no such --profile");
  SoakClient soak(flags, *profile);
  RETURN_IF_ERROR(flags.dump_to_ns != 0 ? soak.Dump() : soak.Run());
  fmt::print("{} operations, {} failed\n", soak.operations(), soak.failed());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"Run a client of the soak test (tests/soak/soak.py)."};
  flags.AddTo(&app);
  app.add_option("--profile", flags.profile);
  app.add_option("--tables", flags.tables);
  app.add_option("--keys", flags.keys);
  app.add_option("--value-bytes-max", flags.value_bytes_max);
  app.add_option("--dump-from", flags.dump_from_ns);
  app.add_option("--dump-to", flags.dump_to_ns);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(flags);
  if (!status.ok()) fmt::print(stderr, "soak_client: {}\n", status.ToString());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }
