#include "tests/simulation/simulation.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "cell/base/random.h"
#include "fmt/format.h"
#include "tests/sim_cluster.h"
#include "tests/simulation/history.h"

namespace cell {
namespace {

using Kind = KeyOperation::Kind;

constexpr int64_t kTimeoutNs = 3'000'000;
// After the faults everything must have ended within that. Sessions, leases and timeouts are some ten thousand times as
// short as a real cluster's, so this is not a tight bound, but 30 s would only let a failing seed take longer.
constexpr int64_t kSettleNs = 300'000'000;
constexpr int64_t kAsyncBoundNs = 40'000;
constexpr int64_t kSlowestDisk = 20;
constexpr int64_t kClientCutNs = 500'000;  // At least: beyond the lease on the region table.
constexpr size_t kTraceLines = 60;
constexpr size_t kViolationsMax = 5;
// A key with more writes whose outcome is not known is written no more: its history would take too long to decide.
constexpr int kUnknownMax = 4;
constexpr size_t kScannedMax = 200;

class Simulation {
 public:
  Simulation(const SimulationPlan& plan, Mutant mutant, const std::function<void(const std::string&)>& trace)
      : plan_(plan),
        tell_(trace),
        random_(Mix64(plan.seed) + 11),
        cluster_(plan.shape, SimOf(plan), ClusterOf(plan, mutant)),
        table_keys_(static_cast<size_t>(plan.table_share * plan.keys)),
        history_(static_cast<size_t>(plan.keys)),
        unknown_(static_cast<size_t>(plan.keys)),
        servers_(cluster_.servers()) {}

  SimulationReport Run() {
    Trace("plan: {}", plan_.ToString());
    if (table_keys_ > 0) {
      const absl::Status created = cluster_.CreateTable("t", plan_.bucket_bytes, 1 + plan_.seed % 3);
      CELL_CHECK(created.ok());
    }
    OpenClients();
    const int64_t end_ns = now() + plan_.duration_ns;
    if (!plan_.faults.empty()) PlanFault();
    RunUntil(end_ns, [] { return false; });
    Heal();
    const int64_t healed_ns = now();
    stop_ = true;
    const bool ended = RunUntil(healed_ns + kSettleNs, [this] { return tasks_left_ == 0 && Settled(); });
    report_.settled_ns = now() - healed_ns;
    Trace("settled after {} us: {}", report_.settled_ns / 1000, ended);
    if (!ended) {
      Violate("{} operations had not ended, or a region had no server, {} ms after the last fault: {}", tasks_left_,
              kSettleNs / 1'000'000, Unserved());
    }
    CloseClients(ended);
    if (ended) ReadAll();
    if (ended && report_.violations.empty()) CheckCluster();
    CheckHistories();
    for (size_t i = 0; i < servers_.size(); ++i) Collect(i);
    report_.simulated_ns = now();
    report_.trace_end.assign(lines_.begin(), lines_.end());
    return std::move(report_);
  }

 private:
  struct Server {
    int life = 0;                           // Grows with each start.
    std::optional<int64_t> disk_failed_ns;  // Since when its disk may have failed: it is to be started again.
    bool draining = false;
    bool there = false;  // Was ever started.
  };
  struct User {
    SimCluster::DrivenClient of;
    std::unique_ptr<Table> table;
    std::vector<Task<bool>> tasks;
  };
  static SimOptions SimOf(const SimulationPlan& plan) {
    SimOptions sim;
    sim.seed = plan.seed;
    sim.latency_ns = plan.latency_ns;
    sim.line_ns = plan.line_ns;
    sim.writer_step_ns = plan.writer_step_ns;
    sim.clients_run = true;
    return sim;
  }
  static TestClusterOptions ClusterOf(const SimulationPlan& plan, Mutant mutant) {
    TestClusterOptions options;
    options.servers = plan.servers + plan.joining;
    options.joining = plan.joining;
    options.silence_ns = 100'000;
    options.steward = plan.steward;
    options.membership_polls_max = plan.membership_polls_max;
    options.logs.durability = plan.durability;
    options.logs.bound_ns = kAsyncBoundNs;
    options.logs.checkpoint_bytes_min = plan.checkpoint_bytes_min;
    options.disk_ns = plan.disk_ns;
    options.clock_gain_ppm = plan.clock_gain_ppm;
    options.mutant = mutant;
    return options;
  }

  int64_t now() { return cluster_.network()->now_ns(); }
  template <typename... Args>
  void Trace(fmt::format_string<Args...> format, Args&&... args) {
    const std::string line = fmt::format("{:>12} {}", now(), fmt::format(format, std::forward<Args>(args)...));
    for (const char c : line) report_.trace_hash = Mix64(report_.trace_hash + static_cast<uint8_t>(c) + 1);
    if (tell_) tell_(line);
    lines_.push_back(line);
    if (lines_.size() > kTraceLines) lines_.pop_front();
  }
  template <typename... Args>
  void Violate(fmt::format_string<Args...> format, Args&&... args) {
    const std::string what = fmt::format(format, std::forward<Args>(args)...);
    Trace("VIOLATION {}", what);
    if (report_.violations.size() < kViolationsMax) report_.violations.push_back(what);
  }
  int64_t Around(int64_t mean_ns) {
    return 1 + static_cast<int64_t>(random_.Below(static_cast<uint64_t>(2 * mean_ns)));
  }

  // ---- Time. What is planned is done between the network's steps: from outside of all servers.

  void At(int64_t at_ns, std::function<void()> run) { planned_.emplace(at_ns, std::move(run)); }
  bool RunUntil(int64_t until_ns, const std::function<bool()>& ended) {
    while (now() < until_ns && report_.violations.empty()) {
      if (ended()) return true;
      const int64_t next_ns = cluster_.network()->NextNs();
      if (!planned_.empty() && planned_.begin()->first <= std::max(next_ns, now())) {
        const auto planned = planned_.extract(planned_.begin());
        planned.mapped()();
        continue;
      }
      cluster_.network()->Step();
    }
    return ended();
  }

  // ---- Users.

  void OpenClients() {
    for (int i = 0; i < plan_.clients; ++i) {
      ClientOptions options;
      options.cache_level_min = plan_.cache_level_min;
      options.timeout_us = kTimeoutNs / 1000;
      options.reconnect_us = 20;
      options.report = false;
      options.seed = random_.Next();
      User& user = *users_.emplace_back(std::make_unique<User>());
      user.of = cluster_.NewDrivenClient(options);
      if (table_keys_ > 0) user.table = std::make_unique<Table>(*user.of.client->OpenTable("t"));
    }
    for (size_t i = 0; i < users_.size(); ++i) {
      for (int task = 0; task < plan_.tasks_each; ++task) {
        users_[i]->tasks.push_back(Use(users_[i].get(), i, random_.Next()));
      }
    }
    tasks_left_ = plan_.clients * plan_.tasks_each;
    for (const auto& user : users_) {
      for (Task<bool>& task : user->tasks) task.Start();
      user->of.Drive();
    }
  }
  void CloseClients(bool ended) {
    for (auto& user : users_) {
      user->of.fabric->Drive(nullptr);
      report_.torn += user->of.client->metrics().torn;
      if (!ended) {  // What is not ended refers to it for ever.
        (void)user.release();
        continue;
      }
      user->tasks.clear();
    }
    if (ended) users_.clear();
  }

  size_t ChooseKey(Random* random) {
    const auto keys = static_cast<uint64_t>(plan_.keys);
    if (random->Unit() < plan_.hot_share) {  // Spread over all of them.
      const uint64_t hot = random->Below(static_cast<uint64_t>(plan_.hot_keys));
      return hot * keys / static_cast<uint64_t>(plan_.hot_keys) % keys;
    }
    return random->Below(keys);
  }
  template <size_t N>
  static size_t Weighted(const std::array<int, N>& weights, Random* random) {
    int all = 0;
    for (const int weight : weights) all += weight;
    int at = static_cast<int>(random->Below(static_cast<uint64_t>(all)));
    size_t i = 0;
    while (at >= weights[i]) at -= weights[i++];
    return i;
  }
  std::string Value(size_t key, int64_t number) const {
    const auto bytes = Mix64(static_cast<uint64_t>(number)) % static_cast<uint64_t>(plan_.value_bytes_max + 1);
    return fmt::format("{} {} ", key, number) + std::string(bytes, static_cast<char>('a' + number % 26));
  }
  // The number of a value; 0: absent. What is no value of this key is a violation.
  int64_t NumberOf(size_t key, const std::optional<std::string>& value) {
    if (!value.has_value()) return 0;
    const size_t at = value->find(' ');
    const int64_t number = at == std::string::npos ? 0 : std::strtoll(value->c_str() + at, nullptr, 10);
    if (number <= 0 || number >= next_value_ || *value != Value(key, number)) {
      Violate("{} has the value '{:.40}', which nobody gave it", KeyName(key), *value);
    }
    return number;
  }

  Task<bool> Use(User* user, size_t index, uint64_t seed) {
    Random random(seed);
    while (!stop_) {
      CallOptions call;
      const bool reader = index < static_cast<size_t>(plan_.readers);
      const size_t path = plan_.one_path_each ? index % 3 : Weighted(plan_.paths, &random);
      call.path = reader ? Path::kClient : std::array{Path::kServer, Path::kClient, Path::kHybrid}[path];
      const size_t what = Weighted(plan_.weights, &random);
      if (what == 4) {
        if (table_keys_ < history_.keys()) co_await ScanOnce(user, index, call, &random);
        if (table_keys_ == history_.keys()) co_await user->of.client->AsyncSleepUntil(user->of.client->NowNs() + 1'000);
        continue;
      }
      const size_t key = ChooseKey(&random);
      auto kind = static_cast<Kind>(what);
      const bool may_write = !reader && unknown_[key] < kUnknownMax;
      if (!may_write && (kind == Kind::kPut || kind == Kind::kDelete)) kind = Kind::kGet;
      co_await UseKey(user, index, key, kind, call);
    }
    --tasks_left_;
    co_return true;
  }

  Task<bool> UseKey(User* user, size_t index, size_t key, Kind kind, CallOptions call) {
    Client* const client = user->of.client.get();
    Table* const table = key < table_keys_ ? user->table.get() : nullptr;
    const std::string name = KeyName(key);
    KeyOperation operation{kind, now(), 0};
    absl::Status status;
    const std::string value = kind == Kind::kPut ? Value(key, operation.value = next_value_++) : std::string();
    if (kind == Kind::kPut || kind == Kind::kDelete) {
      Task<absl::StatusOr<bool>> write =
          kind == Kind::kDelete ? (table != nullptr ? table->AsyncDelete(name, call) : client->AsyncDelete(name, call))
          : table != nullptr    ? table->AsyncPut(name, value, call)
                                : client->AsyncPut(name, value, call);
      const absl::StatusOr<bool> existed = co_await std::move(write);
      status = existed.status();
      if (existed.ok()) operation.existed = *existed;
    } else if (kind == Kind::kGet) {
      Task<absl::StatusOr<std::optional<std::string>>> get =
          table != nullptr ? table->AsyncGet(name, call) : client->AsyncGet(name, call);
      const absl::StatusOr<std::optional<std::string>> got = co_await std::move(get);
      status = got.status();
      if (got.ok()) operation.value = NumberOf(key, *got);
    } else {
      Task<absl::StatusOr<bool>> contains =
          table != nullptr ? table->AsyncContains(name, call) : client->AsyncContains(name, call);
      const absl::StatusOr<bool> found = co_await std::move(contains);
      status = found.status();
      if (found.ok()) operation.value = *found;
    }
    ++report_.operations;
    operation.end_ns = now();
    static constexpr std::array kWords = {"put", "delete", "get", "contains"};
    Trace("client {} {} {} {} by {} since {}: {}", index, kWords[static_cast<size_t>(kind)], name, operation.value,
          cell::ToString(*call.path), operation.begin_ns,
          status.ok() ? fmt::format("{}", operation.existed) : std::string(status.message()));
    if (!status.ok()) {
      const bool write = kind == Kind::kPut || kind == Kind::kDelete;
      if (write && IsMaybeApplied(status)) {
        ++report_.maybe;
        ++unknown_[key];
        operation.end_ns = KeyOperation::kNever;
      } else {
        ++report_.failed;
        CheckError(name, status);
        co_return false;
      }
    }
    history_.Add(key, operation);
    co_return true;
  }
  void CheckError(const std::string& what, const absl::Status& status) {
    switch (status.code()) {
      case absl::StatusCode::kUnavailable:
      case absl::StatusCode::kDeadlineExceeded:
      case absl::StatusCode::kResourceExhausted:
        return;
      default:
        Violate("{}: {}", what, status.ToString());
    }
  }

  Task<bool> ScanOnce(User* user, size_t index, CallOptions call, Random* random) {
    const size_t keys = history_.keys() - table_keys_;
    const size_t count = 1 + random->Below(std::min(keys, kScannedMax));
    const size_t first = table_keys_ + random->Below(keys - count + 1);
    ScanOptions options;
    options.from = KeyName(first);
    options.to = KeyName(first + count);
    options.batch = static_cast<uint32_t>(1 + random->Below(40));
    options.reverse = random->Below(2) == 0;
    options.read_ahead = random->Below(4) != 0;
    options.call = call;
    const bool down = options.reverse;
    const int64_t begin_ns = now();
    Scan scan = user->of.client->NewScan(options);
    std::map<size_t, int64_t> seen;
    std::string last;
    for (;;) {
      const auto batch = co_await scan.AsyncNextBatch();
      if (!batch.ok()) {
        Trace("client {} scan of {} from {}: {}", index, count, KeyName(first), std::string(batch.status().message()));
        ++report_.failed;
        CheckError("scan", batch.status());
        co_return false;
      }
      if (batch->empty()) break;
      for (const Scan::Entry& entry : *batch) {
        const bool in_order = last.empty() || (down ? entry.key < last : entry.key > last);
        if (!in_order || entry.key < options.from || entry.key >= *options.to) {
          Violate("a scan of [{}, {}) had {} after {}", options.from, *options.to, entry.key, last);
          co_return false;
        }
        last = entry.key;
        const size_t key = std::stoul(last.substr(1));
        seen[key] = NumberOf(key, std::string(entry.value));
      }
    }
    Trace("client {} scan of {} from {} since {}: {} keys", index, count, KeyName(first), begin_ns, seen.size());
    ++report_.scans;
    for (size_t key = first; key < first + count; ++key) {
      const auto it = seen.find(key);
      history_.Add(key, {Kind::kGet, begin_ns, now(), it == seen.end() ? 0 : it->second});
    }
    co_return true;
  }

  // ---- Faults.

  void PlanFault() {
    At(now() + Around(plan_.between_faults_ns), [this] {
      if (healed_) return;
      const Fault fault = plan_.faults[random_.Below(plan_.faults.size())];
      if (Inject(fault)) ++report_.faults[static_cast<size_t>(fault)];
      PlanFault();
    });
  }
  std::optional<size_t> AnyServer(bool alive = true) {
    std::vector<size_t> found;
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (alive == !cluster_.Dead(i)) found.push_back(i);
    }
    if (found.empty()) return std::nullopt;
    return found[random_.Below(found.size())];
  }
  // What is undone for the server `i` later, if it is still the same process then.
  void Later(size_t i, int64_t at_ns, std::function<void()> undo) {
    At(at_ns, [this, i, life = servers_[i].life, undo = std::move(undo)] {
      if (!healed_ && servers_[i].life == life && !cluster_.Dead(i)) undo();
    });
  }
  SimHost* AnyHost() {
    const size_t at = random_.Below(servers_.size() + users_.size());
    return at < servers_.size() ? cluster_.host(at) : users_[at - servers_.size()]->of.host;
  }
  void MayLose(int64_t until_ns) { history_.MayLose(now(), until_ns); }
  void Restart(size_t i) {
    Collect(i);
    Trace("server {} starts", i);
    cluster_.Restart(i);
    ++servers_[i].life;
    if (servers_[i].disk_failed_ns.has_value()) history_.MayLose(*servers_[i].disk_failed_ns, now());
    servers_[i].disk_failed_ns.reset();
  }
  void Kill(size_t i, bool machine) {
    MayLose(now() + 5'000);  // Answers on their way still arrive.
    cluster_.Kill(i, machine);
  }

  bool Inject(Fault fault) {
    const int64_t until_ns = now() + Around(plan_.fault_ns);
    const std::optional<size_t> victim = AnyServer(/*alive=*/fault != Fault::kJoin);
    if (!victim.has_value()) return false;
    const size_t i = *victim;
    Trace("fault: {} on server {} for {} ns", ToString(fault), i, until_ns - now());
    SimNetwork* const network = cluster_.network();
    switch (fault) {
      case Fault::kKill:
      case Fault::kPowerLoss:
        Kill(i, fault == Fault::kPowerLoss);
        At(until_ns, [this, i] {
          if (!healed_ && cluster_.Dead(i)) Restart(i);
        });
        return true;
      case Fault::kStop:
        MayLose(until_ns + kTimeoutNs);
        cluster_.Stop(i);
        Later(i, until_ns, [this, i] { cluster_.Continue(i); });
        return true;
      case Fault::kPartition:
      case Fault::kOneWay: {
        SimHost* const one = AnyHost();
        SimHost* const other = AnyHost();
        if (one == other) return false;
        const bool both = fault == Fault::kPartition;
        const auto set = [network, one, other, both](bool cut) {
          network->SetCut(one, other, cut);
          if (both) network->SetCut(other, one, cut);
        };
        set(true);
        cuts_.emplace_back(one, other);
        At(until_ns, [set] { set(false); });
        return true;
      }
      case Fault::kSlowHost:
        MayLose(until_ns + kTimeoutNs);
        cluster_.SlowHost(i, static_cast<double>(2 + random_.Below(50)));
        Later(i, until_ns, [this, i] { cluster_.SlowHost(i, 1); });
        return true;
      case Fault::kSlowDisk:
        cluster_.SlowDisk(i, plan_.disk_ns * static_cast<int64_t>(2 + random_.Below(kSlowestDisk - 1)));
        Later(i, until_ns, [this, i] { cluster_.SlowDisk(i, plan_.disk_ns); });
        return true;
      case Fault::kDelay:
        network->SetDelays(random_.Unit() / 2, static_cast<int64_t>(100 + random_.Below(50'000)));
        At(until_ns, [network] { network->SetDelays(0, 0); });
        return true;
      case Fault::kBreak: {
        SimHost* const one = AnyHost();
        network->Break(one, AnyHost());
        return true;
      }
      case Fault::kDiskError:
        if (!servers_[i].disk_failed_ns.has_value()) servers_[i].disk_failed_ns = now();
        cluster_.files(i)->FailAt(random_.Below(20), random_.Below(2) == 0 ? absl::UnavailableError("EIO")
                                                                           : absl::ResourceExhaustedError("ENOSPC"));
        Later(i, until_ns, [this, i] {
          Kill(i, false);
          Restart(i);
        });
        return true;
      case Fault::kExpire:
        MayLose(now() + kTimeoutNs);
        cluster_.ExpireSession(i);
        return true;
      case Fault::kCoordinator: {
        MayLose(until_ns + kTimeoutNs);
        cluster_.CutCoordinator(i, true);
        Later(i, until_ns, [this, i] { cluster_.CutCoordinator(i, false); });
        return true;
      }
      case Fault::kClientCut: {
        MemoryMembership* const membership = users_[random_.Below(users_.size())]->of.membership;
        membership->set_unreachable(true);
        At(until_ns + kClientCutNs, [this, membership] {
          if (!healed_) membership->set_unreachable(false);
        });
        return true;
      }
      case Fault::kJoin:
        if (servers_[i].life > 0 || i < static_cast<size_t>(plan_.servers)) return false;  // It has been there.
        Restart(i);
        return true;
      case Fault::kDrain:
        cluster_.SetDraining(i, true);
        servers_[i].draining = true;
        Later(i, until_ns, [this, i] {
          cluster_.SetDraining(i, false);
          servers_[i].draining = false;
        });
        return true;
      case Fault::kCheckpoint: {
        const auto checkpoint = [](Worker* worker) -> Task<bool> {
          LogKeeper::Made made;
          co_return (co_await worker->logs()->CheckpointAll(&made)).ok();
        };
        cluster_.worker(i)->turns()->Begin(checkpoint(cluster_.worker(i)));
        return true;
      }
    }
    return false;
  }

  void Heal() {
    healed_ = true;
    Trace("the faults are over");
    SimNetwork* const network = cluster_.network();
    network->SetDelays(0, 0);
    for (const auto& [one, other] : cuts_) {
      network->SetCut(one, other, false);
      network->SetCut(other, one, false);
    }
    for (const auto& user : users_) user->of.membership->set_unreachable(false);
    for (size_t i = 0; i < servers_.size(); ++i) {
      const bool joins_yet = i >= static_cast<size_t>(plan_.servers) && servers_[i].life == 0;
      if (joins_yet) continue;
      cluster_.SlowHost(i, 1);
      if (cluster_.Dead(i)) {
        Restart(i);
        if (servers_[i].draining) cluster_.SetDraining(i, false);
        continue;
      }
      cluster_.Continue(i);
      cluster_.CutCoordinator(i, false);
      cluster_.SlowDisk(i, plan_.disk_ns);
      if (servers_[i].disk_failed_ns.has_value()) {
        Kill(i, false);
        Restart(i);
      }
      if (servers_[i].draining) cluster_.SetDraining(i, false);
    }
  }

  // ---- The end.

  std::string Unserved() {
    std::string text;
    for (const auto& [region, entry] : cluster_.table().regions) {
      const auto owner = static_cast<size_t>(std::stoi(entry.owner.server.substr(7)));
      const HeldRegion* const held = cluster_.Dead(owner) ? nullptr : cluster_.worker(owner)->regions()->Find(region);
      // Its owner may be about to find that it has lost it, and recover it.
      if (entry.recovering || (!entry.made_for.has_value() && (held == nullptr || held->lost))) {
        text += fmt::format(" region {} of {} at epoch {}{}", region, entry.owner.server, entry.epoch,
                            entry.recovering ? " recovering" : "");
      }
    }
    return text;
  }
  bool Settled() {
    if (now() < settle_look_ns_) return false;
    settle_look_ns_ = now() + 20'000;
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (!cluster_.Dead(i) && cluster_.worker(i)->recoverer()->recovering() > 0) return false;
      if (!cluster_.Dead(i) && cluster_.Expired(i)) return false;
    }
    return Unserved().empty();
  }
  // By each path, with a client that knows nothing.
  void ReadAll() {
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (!cluster_.Dead(i)) cluster_.worker(i)->steward()->set_balance(false);
    }
    ClientOptions options;
    options.report = false;
    options.reconnect_us = 20;
    options.timeout_us = 50'000;
    const auto client = cluster_.NewClient(options);
    std::optional<Table> table;
    if (table_keys_ > 0) table.emplace(*client->OpenTable("t"));
    for (size_t key = 0; key < history_.keys() && report_.violations.empty(); ++key) {
      if (history_.of(key).empty()) continue;
      for (const Path path : {Path::kServer, Path::kClient}) {
        CallOptions call;
        call.path = path;
        const int64_t begin_ns = now();
        const auto value = key < table_keys_ ? table->Get(KeyName(key), call) : client->Get(KeyName(key), call);
        if (!value.ok()) {
          Violate("at the end, {} by {}: {}", KeyName(key), cell::ToString(path), value.status().ToString());
          return;
        }
        history_.Add(key, {Kind::kGet, begin_ns, now(), NumberOf(key, *value)});
      }
    }
  }
  void CheckCluster() {
    const TestReport report = cluster_.Check();
    for (const std::string& error : report.errors) Violate("at the end: {}", error);
    if (report.half_splits > 0) Violate("at the end: {} meganodes have no route", report.half_splits);
    if (report.unfinished > 0) Violate("at the end: {} nodes have no separator", report.unfinished);
    Trace("{} keys in the tree, {} in tables", report.keys, report.hash_keys);
  }

  void CheckHistories() {
    // What is lost was acknowledged within one bound, and then nothing more until the disk had it: so that long ago,
    // too.
    const int64_t slack_ns = 2 * kAsyncBoundNs + 3 * kSlowestDisk * plan_.disk_ns;
    const History::Verdict verdict = history_.Check(plan_.MayLose(), slack_ns, kViolationsMax);
    for (const std::string& violation : verdict.violations) Violate("{}", violation);
    report_.checked = verdict.checked;
    report_.gave_up = verdict.gave_up;
  }

  void Collect(size_t i) {
    if (cluster_.worker(i) == nullptr) return;
    Worker* const worker = cluster_.worker(i);
    report_.splits += worker->steward()->counters().splits;
    report_.moves += worker->mover()->counters().taken;
    report_.recovered += worker->recoverer()->counters().recovered;
    report_.table_splits += worker->tables()->counters().splits;
    report_.checkpoints += worker->logs()->counters().checkpoints;
  }

  const SimulationPlan plan_;
  const std::function<void(const std::string&)>& tell_;
  Random random_;
  SimCluster cluster_;
  const size_t table_keys_;  // The first of all keys.
  History history_;
  std::vector<int> unknown_;
  std::vector<Server> servers_;
  std::vector<std::unique_ptr<User>> users_;
  std::multimap<int64_t, std::function<void()>> planned_;
  std::vector<std::pair<SimHost*, SimHost*>> cuts_;
  int64_t next_value_ = 1;
  int tasks_left_ = 0;
  bool stop_ = false, healed_ = false;
  int64_t settle_look_ns_ = 0;
  std::deque<std::string> lines_;
  SimulationReport report_;
};

}  // namespace

SimulationReport Simulate(const SimulationPlan& plan, Mutant mutant,
                          const std::function<void(const std::string&)>& trace) {
  return Simulation(plan, mutant, trace).Run();
}

}  // namespace cell
