#include "tests/simulation/users.h"

#include <algorithm>

#include "cell/base/check.h"
#include "cell/base/random.h"
#include "cell/client/functions.h"
#include "cell/layout/wire.h"

namespace cell {
namespace {

using Kind = KeyOperation::Kind;

constexpr int64_t kGoingNs = 10'000;
constexpr std::array kWords = {"put", "delete", "get", "contains"};

template <size_t N>
size_t Weighted(const std::array<int, N>& weights, Random* random) {
  int all = 0;
  for (const int weight : weights) all += weight;
  int at = static_cast<int>(random->Below(static_cast<uint64_t>(all)));
  size_t i = 0;
  while (at >= weights[i]) at -= weights[i++];
  return i;
}

bool IsWrite(Kind kind) { return kind == Kind::kPut || kind == Kind::kDelete; }

}  // namespace

Users::Users(World* world, TransactionHistory* transactions)
    : world_(world),
      transactions_(transactions),
      unknown_(static_cast<size_t>(world->plan.keys)),
      stamps_(unknown_.size()) {}

void Users::Open() {
  for (const ClientPlan& client : world_->plan.clients) {
    users_.push_back(std::make_unique<User>(User{users_.size(), &client, {}, nullptr, {}}));
  }
  for (const auto& user : users_) {
    if (user->plan->comes_ns != 0) continue;
    // Faults may occur while the table is created. A recovery can then take as long as a client tries to connect.
    for (int tries = 1; !Come(user.get()); ++tries) CELL_CHECK_LT(tries, 10);
  }
  const int64_t begin_ns = world_->now_ns();
  for (const auto& user : users_) {
    User* const late = user.get();
    if (late->plan->comes_ns == 0) Begin(late);
    if (late->plan->comes_ns > 0) {
      world_->At(begin_ns + user->plan->comes_ns, [this, late] {
        if (!stop_ && Come(late)) Begin(late);
      });
    }
    if (late->plan->idle_at_ns != INT64_MAX)
      world_->At(begin_ns + late->plan->idle_at_ns, [this, late] { Idle(late); });
    if (late->plan->goes_ns == INT64_MAX) continue;
    world_->At(begin_ns + user->plan->goes_ns, [this, late] {
      if (late->of.client == nullptr || stop_) return;
      late->plan->dies ? Die(late) : late->plan->closes ? CloseBusy(late) : Go(late);
    });
  }
}

bool Users::Come(User* user) {
  const SimulationPlan& plan = world_->plan;
  ClientOptions options;
  options.cache_level_min = plan.cache_level_min;
  options.timeout_us = kTimeoutNs / 1000;
  // Nothing scheduled happens while it connects, so a client that comes late connects with its first operation.
  options.connect = user->plan->comes_ns == 0;
  options.reconnect_us = 20;
  options.refused_pause_us = 5;
  options.report = false;
  options.seed = user->plan->seed;
  std::optional<Identity> self;
  if (user->plain()) self = {Role::kClient, SimulationPlan::NameOf(user->plan->user)};
  absl::StatusOr<SimCluster::DrivenClient> come = world_->cluster.TryNewDrivenClient(options, self);
  if (!come.ok()) {
    world_->journal.Trace("client {} finds nobody: {}", user->index, std::string(come.status().message()));
    return false;
  }
  user->of = *std::move(come);
  ++world_->report.clients;
  if (world_->table_keys == 0) return true;
  absl::StatusOr<Table> table = user->of.client->OpenTable("t");
  if (table.ok()) user->table = std::make_unique<Table>(*std::move(table));
  if (!table.ok()) Destroy(user);
  return table.ok();
}

void Users::Begin(User* user) {
  world_->journal.Trace("client {} begins", user->index);
  Random seeds(user->plan->seed + 1);
  for (int task = 0; task < user->plan->tasks; ++task) user->tasks.push_back(Use(user, seeds.Next()));
  user->tasks_left = user->plan->tasks;
  tasks_left_ += user->plan->tasks;
  for (Task<bool>& task : user->tasks) task.Start();
  user->of.Drive();
}

// Finishes a client's operations, and then destroys it.
void Users::Go(User* user) {
  user->goes = true;
  if (user->of.client == nullptr) return;  // All are gone.
  if (user->tasks_left > 0) {
    world_->At(world_->now_ns() + kGoingNs, [this, user] { Go(user); });
    return;
  }
  world_->journal.Trace("client {} goes", user->index);
  Destroy(user);
}

// Destroys a client in the middle of its operations: they end then, and nothing of them is left.
void Users::CloseBusy(User* user) {
  world_->journal.Trace("client {} is destroyed with {} tasks", user->index, user->tasks_left);
  user->goes = user->closed = true;
  user->of.fabric->Drive(nullptr);
  world_->report.torn += user->of.client->metrics().torn;
  user->of.client.reset();
  if (user->tasks_left > 0) {
    world_->journal.Violate("client {} was destroyed, but {} of its tasks have not ended", user->index,
                            user->tasks_left);
    new auto(std::move(user->tasks));  // They wait forever.
  }
  user->tasks.clear();
  user->table.reset();
  user->of = {};
}

void Users::Idle(User* user) {
  if (user->of.client == nullptr || user->goes || stop_) return;
  world_->journal.Trace("client {} is idle", user->index);
  user->idle_until_ns = world_->now_ns() + user->plan->idle_ns;
  world_->At(user->idle_until_ns, [user] {
    if (user->of.client != nullptr) user->of.Drive();
  });
}

Task<bool> Users::AwaitIdleEnd(User* user) {
  Client* const client = user->of.client.get();
  if (++user->idle_tasks == user->tasks_left) {
    world_->At(world_->now_ns(), [this, user] {  // Not in the middle of its turn.
      const bool idle = user->idle_tasks > 0 && user->idle_tasks == user->tasks_left;
      if (idle && world_->now_ns() < user->idle_until_ns && user->of.client != nullptr) user->of.fabric->Drive(nullptr);
    });
  }
  const int64_t left_ns = user->idle_until_ns - world_->now_ns();
  co_await client->AsyncSleepUntil(client->NowNs() + left_ns);
  --user->idle_tasks;
  co_return true;
}

// Simulates a client whose process is killed: it stops at once, and servers lose its connections.
void Users::Die(User* user) {
  world_->journal.Trace("client {} dies with {} tasks", user->index, user->tasks_left);
  user->of.fabric->Crash();
  user->of.fabric->Drive(nullptr);
  for (auto& [order, write] : user->writes) {
    write.second.end_ns = KeyOperation::kNever;
    ++unknown_[write.first];
    ++world_->report.maybe;
    world_->history.Add(write.first, write.second);
  }
  user->writes.clear();
  transactions_->Die(user->index);
  tasks_left_ -= user->tasks_left;
  // Operations in flight refer to it forever.
  auto* const kept = new User(std::move(*user));
  graveyard_->push_back(kept);
  *user = User{kept->index, kept->plan, {}, nullptr, {}};
}

void Users::Destroy(User* user) {
  user->of.fabric->Drive(nullptr);
  world_->report.torn += user->of.client->metrics().torn;
  user->tasks.clear();
  user->table.reset();
  user->of = {};
}

void Users::Close(bool ended) {
  for (auto& user : users_) {
    if (user->of.client == nullptr) continue;
    if (ended) {
      Destroy(user.get());
    } else {  // Operations that have not ended refer to it forever.
      user->of.fabric->Drive(nullptr);
      graveyard_->push_back(user.release());
    }
  }
}

size_t Users::ChooseKey(Random* random) const {
  const auto keys = static_cast<uint64_t>(world_->plan.keys);
  if (random->Unit() < world_->plan.hot_share) {  // Spread over all of them.
    const auto hot_keys = static_cast<uint64_t>(world_->plan.hot_keys);
    return random->Below(hot_keys) * keys / hot_keys % keys;
  }
  return random->Below(keys);
}

std::string Users::Value(size_t key, int64_t number) const {
  const SimulationPlan& plan = world_->plan;
  const uint64_t draw = Mix64(static_cast<uint64_t>(number));
  std::string value = fmt::format("{} {} ", key, number);
  const auto head = value.size();
  if (static_cast<double>(draw >> 40) * 0x1.0p-24 >= plan.large_share) {
    return value.append(draw % static_cast<uint64_t>(plan.value_bytes_max + 1), static_cast<char>('a' + number % 26));
  }
  // Repeat the head, so that a piece of another value, or at another position, would be visible.
  const uint64_t least = kInlineValueBytesMax + 1;
  const auto most = static_cast<uint64_t>(plan.large_bytes_max);
  value.resize(least + Mix64(draw) % std::max<uint64_t>(1, most - std::min(most, least) + 1));
  for (size_t at = head; at < value.size(); at += at)
    value.replace(at, std::min(at, value.size() - at), value, 0, std::min(at, value.size() - at));
  return value;
}

int64_t Users::ExpiryOf(int64_t number) const {
  const SimulationPlan& plan = world_->plan;
  const uint64_t draw = Mix64(static_cast<uint64_t>(number) + world_->plan.seed);
  if (static_cast<double>(draw >> 40) * 0x1.0p-24 >= plan.expiry_share) return KeyOperation::kNever;
  return world_->now_ns() + 1 + static_cast<int64_t>(Mix64(draw) % static_cast<uint64_t>(plan.expiry_ns_max));
}

int64_t Users::NumberOf(size_t key, const std::optional<std::string>& value) {
  if (!value.has_value()) return 0;
  const size_t at = value->find(' ');
  const int64_t number = at == std::string::npos ? 0 : std::strtoll(value->c_str() + at, nullptr, 10);
  if (number <= 0 || number >= next_value_ || *value != Value(key, number)) {
    world_->journal.Violate("{} has the value '{:.40}' of {} bytes, which was never written", KeyName(key), *value,
                            value->size());
  }
  return number;
}

void Users::CheckError(const User& user, const std::string& what, const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      // From meganode to meganode in a circle.
      if (status.message().find("was not reached through") != std::string_view::npos) {
        world_->journal.Violate("{}: {}", what, status.ToString());
      }
      return;
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
      return;
    case absl::StatusCode::kPermissionDenied:
      if (user.plain()) return;  // CheckGranted knows whether that is right.
      world_->journal.Violate("{}: {}", what, status.ToString());
      return;
    case absl::StatusCode::kCancelled:
      if (user.closed) return;
      [[fallthrough]];
    default:
      world_->journal.Violate("{}: {}", what, status.ToString());
  }
}

CallOptions Users::ChooseCall(const User& user, Random* random) const {
  const SimulationPlan& plan = world_->plan;
  CallOptions call;
  const size_t path = plan.one_path_each ? user.index % 3 : Weighted(plan.paths, random);
  call.path = std::array{Path::kServer, Path::kClient, Path::kHybrid}[path];
  if (user.plan->reads_only) call.path = Path::kClient;
  call.timeout_us = kTimeoutNs / 1000;
  if (plan.short_share > 0 && random->Unit() < plan.short_share) {
    call.timeout_us = std::array{5, 20, 100, 500}[random->Below(4)];
  }
  return call;
}

void Users::CheckTime(const User& user, const std::string& what, int64_t begin_ns, int64_t timeout_us, int deadlines) {
  const SimHost& host = *user.of.host;
  const int64_t took_ns = host.ToLocal(world_->now_ns()) - host.ToLocal(begin_ns);
  const int64_t late_ns = took_ns - deadlines * timeout_us * 1'000;
  world_->report.latest_ns = std::max(world_->report.latest_ns, late_ns);
  if (late_ns <= world_->plan.late_ns_max) return;
  world_->journal.Violate("{} took {} us, but has a timeout of {} us", what, took_ns / 1'000, timeout_us);
}

Task<bool> Users::Use(User* user, uint64_t seed) {
  const SimulationPlan& plan = world_->plan;
  Random random(seed);
  for (uint64_t i = 0; i < user->plan->operations_max && !stop_ && !user->goes; ++i) {
    while (world_->now_ns() < user->idle_until_ns && !stop_ && !user->goes) co_await AwaitIdleEnd(user);
    if (stop_ || user->goes) break;
    const CallOptions call = ChooseCall(*user, &random);
    if (plan.queue_share > 0 && world_->table_keys < world_->history.keys() && random.Unit() < plan.queue_share) {
      co_await UseQueue(user, call, &random);
      continue;
    }
    if (plan.snapshot_share > 0 && !user->plan->reads_only && random.Unit() < plan.snapshot_share) {
      co_await UseSnapshot(user, &random);
      continue;
    }
    if (plan.transaction_share > 0 && random.Unit() < plan.transaction_share) {
      co_await UseTransaction(user, call, &random);
      continue;
    }
    if (plan.range_share > 0 && world_->table_keys < world_->history.keys() && random.Unit() < plan.range_share) {
      co_await UseRange(user, call, &random);
      continue;
    }
    std::array<int, 5> weights = plan.weights;
    if (plan.tide_ns > 0 && world_->now_ns() / plan.tide_ns % 2 == 1) std::swap(weights[0], weights[1]);
    const size_t what = Weighted(weights, &random);
    if (what == 4) {
      if (world_->table_keys < world_->history.keys()) co_await ScanSome(user, call, &random);
      if (world_->table_keys == world_->history.keys()) {
        co_await user->of.client->AsyncSleepUntil(user->of.client->NowNs() + 1'000);
      }
      continue;
    }
    co_await UseKey(user, ChooseKey(&random), static_cast<Kind>(what), call);
  }
  --user->tasks_left;
  --tasks_left_;
  co_return true;
}

void Users::NoteStamp(size_t key, int64_t number, uint64_t stamp) {
  if (number == 0) return;
  KnownStamps& known = stamps_[key];
  const auto [of_number, is_new] = known.of_number.emplace(number, stamp);
  const auto [number_of, is_new_too] = known.numbers.emplace(stamp, number);
  if (of_number->second != stamp || number_of->second != number || stamp == 0) {
    world_->journal.Violate("{}: value {} has stamp {}, but value {} has stamp {}, too, or it had stamp {}",
                            KeyName(key), number, stamp, number_of->second, stamp, of_number->second);
  }
  known.last = number;
}

std::optional<Condition> Users::ChooseCondition(size_t key, uint64_t order, KeyOperation* operation,
                                                std::string* expected) {
  Random random(Mix64(order) ^ world_->plan.seed);
  if (random.Unit() >= world_->plan.condition_share) return std::nullopt;
  const KnownStamps& known = stamps_[key];
  const uint64_t what = random.Below(5);
  if (what >= 2 && known.last != 0) {
    operation->condition = KeyOperation::If::kValue;
    operation->expected = known.last;
    *expected = Value(key, known.last);
    const auto stamp = known.of_number.find(known.last);  // Pairs of tables have none.
    const bool small = expected->size() <= kConditionValueBytesMax;
    if (small && (what == 4 || stamp == known.of_number.end())) return Condition::ValueIs(*expected);
    if (stamp != known.of_number.end()) return Condition::StampIs(stamp->second);
  }
  operation->condition = what % 2 == 0 ? KeyOperation::If::kAbsent : KeyOperation::If::kPresent;
  return what % 2 == 0 ? Condition::Absent() : Condition::Present();
}

bool Users::MayExpireMeanwhile(size_t key, const KeyOperation& operation, int64_t until_ns) const {
  if (world_->plan.durability != Durability::kSync) return false;
  const auto& expiries = stamps_[key].expiries;
  return std::any_of(expiries.begin(), expiries.end(),
                     [&](int64_t expiry_ns) { return expiry_ns >= operation.begin_ns && expiry_ns <= until_ns; });
}

bool Users::Swaps(size_t key, uint64_t order, KeyOperation* operation) {
  if (operation->kind != Kind::kPut || operation->condition != KeyOperation::If::kValue) return false;
  if (Random(Mix64(order + 1) ^ world_->plan.seed).Unit() >= world_->plan.function_share) return false;
  const size_t both_bytes = Value(key, operation->expected).size() + Value(key, operation->value).size();
  if (both_bytes + sizeof(uint32_t) > kValueBytesMax) return false;  // They are one argument.
  // A function leaves the expiry as it is.
  const auto expiry = stamps_[key].expiry_of.find(operation->expected);
  if (expiry == stamps_[key].expiry_of.end()) return false;
  operation->expiry_ns = expiry->second;
  return true;
}

Task<absl::Status> Users::Write(User* user, size_t key, std::optional<Condition> condition, const std::string* swapped,
                                KeyOperation* operation, CallOptions call) {
  Client* const client = user->of.client.get();
  Table* const table = key < world_->table_keys ? user->table.get() : nullptr;
  const std::string name = KeyName(key);
  const bool deletes = operation->kind == Kind::kDelete;
  const bool expires = operation->expiry_ns != KeyOperation::kNever;
  const Expires expiry = expires ? Expires::AtNs(static_cast<uint64_t>(operation->expiry_ns)) : Expires::Never();
  const std::string value = deletes ? std::string() : Value(key, operation->value);
  if (!condition.has_value()) {
    Task<absl::StatusOr<bool>> write =
        deletes            ? (table != nullptr ? table->AsyncDelete(name, call) : client->AsyncDelete(name, call))
        : table != nullptr ? table->AsyncPut(name, value, expiry, call)
                           : client->AsyncPut(name, value, expiry, call);
    const absl::StatusOr<bool> existed = co_await std::move(write);
    if (existed.ok()) operation->existed = *existed;
    co_return existed.status();
  }
  if (swapped != nullptr) {
    const FunctionCall swap = functions::CompareAndSwap(*swapped, value);
    Task<absl::StatusOr<ApplyResult>> apply =
        table != nullptr ? table->AsyncApply(name, swap, call) : client->AsyncApply(name, swap, call);
    const absl::StatusOr<ApplyResult> applied = co_await std::move(apply);
    if (!applied.ok()) co_return applied.status();
    if (applied->result != std::string(1, applied->changed ? 1 : 0)) {
      world_->journal.Violate("{}: a function's result says something else than its reply", name);
    }
    co_return EndConditional(key, {applied->changed, applied->existed, applied->stamp}, operation);
  }
  Task<absl::StatusOr<WriteIfResult>> write =
      deletes            ? (table != nullptr ? table->AsyncDeleteIf(name, *condition, call)
                                             : client->AsyncDeleteIf(name, *condition, call))
      : table != nullptr ? table->AsyncPutIf(name, value, expiry, *condition, call)
                         : client->AsyncPutIf(name, value, expiry, *condition, call);
  const absl::StatusOr<WriteIfResult> written = co_await std::move(write);
  if (!written.ok()) co_return written.status();
  co_return EndConditional(key, *written, operation);
}

absl::Status Users::EndConditional(size_t key, const WriteIfResult& written, KeyOperation* operation) {
  operation->existed = written.existed;
  const bool may_expire = MayExpireMeanwhile(key, *operation, world_->now_ns());
  const bool puts = operation->kind == Kind::kPut;
  if (!written.applied) operation->kind = Kind::kRefused;
  if (may_expire && (!written.applied || operation->condition != KeyOperation::If::kAbsent)) {
    operation->condition = KeyOperation::If::kNothing;
    operation->existed = -1;
  }
  if (written.applied && puts && key >= world_->table_keys) NoteStamp(key, operation->value, written.stamp);
  return absl::OkStatus();
}

bool Users::Evaluates(size_t key, const KeyOperation& operation) const {
  Random random(Mix64(static_cast<uint64_t>(operation.begin_ns) + key) ^ world_->plan.seed);
  return random.Unit() < world_->plan.function_share;
}

Task<absl::Status> Users::Read(User* user, size_t key, KeyOperation* operation, CallOptions call) {
  Client* const client = user->of.client.get();
  Table* const table = key < world_->table_keys ? user->table.get() : nullptr;
  const std::string name = KeyName(key);
  if (Evaluates(key, *operation)) {
    // All bytes of the value pass this filter.
    const FunctionCall all = functions::Filter<uint8_t>(functions::Comparison::kGreaterEqual, 0);
    Task<absl::StatusOr<std::string>> evaluate =
        table != nullptr ? table->AsyncEvaluate(name, all, call) : client->AsyncEvaluate(name, all, call);
    const absl::StatusOr<std::string> got = co_await std::move(evaluate);
    if (!got.ok()) co_return got.status();
    operation->value = NumberOf(key, got->empty() ? std::nullopt : std::optional<std::string>(*got));
    co_return absl::OkStatus();
  }
  if (table == nullptr && world_->plan.condition_share > 0) {
    const absl::StatusOr<std::optional<StampedValue>> got = co_await client->AsyncGetWithStamp(name, call);
    if (!got.ok()) co_return got.status();
    operation->value = NumberOf(key, got->has_value() ? std::optional<std::string>((*got)->value) : std::nullopt);
    if (got->has_value()) NoteStamp(key, operation->value, (*got)->stamp);
    co_return absl::OkStatus();
  }
  Task<absl::StatusOr<std::optional<std::string>>> get =
      table != nullptr ? table->AsyncGet(name, call) : client->AsyncGet(name, call);
  const absl::StatusOr<std::optional<std::string>> got = co_await std::move(get);
  if (got.ok()) operation->value = NumberOf(key, *got);
  if (got.ok() && operation->value != 0) stamps_[key].last = operation->value;
  co_return got.status();
}

Task<bool> Users::UseKey(User* user, size_t key, Kind kind, CallOptions call) {
  const bool may_write = !user->plan->reads_only && MayWrite(key);
  if (!may_write && IsWrite(kind)) kind = Kind::kGet;
  Client* const client = user->of.client.get();
  Table* const table = key < world_->table_keys ? user->table.get() : nullptr;
  const std::string name = KeyName(key);
  KeyOperation operation{kind, world_->now_ns(), 0};
  absl::Status status;
  if (kind == Kind::kPut) operation.value = next_value_++;
  if (kind == Kind::kPut) operation.expiry_ns = ExpiryOf(operation.value);
  const uint64_t order = ++writes_ever_;
  std::string expected;
  std::optional<Condition> condition;
  if (IsWrite(kind)) condition = ChooseCondition(key, order, &operation, &expected);
  const bool swaps = Swaps(key, order, &operation);
  if (operation.expiry_ns != KeyOperation::kNever) stamps_[key].expiries.push_back(operation.expiry_ns);
  if (kind == Kind::kPut) stamps_[key].expiry_of[operation.value] = operation.expiry_ns;
  const bool expires = operation.expiry_ns != KeyOperation::kNever;
  operation.evictable = kind == Kind::kPut && world_->plan.Evicts(name, table != nullptr, expires);
  const uint64_t since = world_->grants.oldest();
  if (kind == Kind::kGet && Evaluates(key, operation)) call.path = Path::kServer;  // As all functions.
  if (IsWrite(kind)) {
    user->writes[order] = {key, operation};
    status = co_await Write(user, key, condition, swaps ? &expected : nullptr, &operation, call);
    user->writes.erase(order);
  } else if (kind == Kind::kGet) {
    status = co_await Read(user, key, &operation, call);
  } else {
    Task<absl::StatusOr<bool>> contains =
        table != nullptr ? table->AsyncContains(name, call) : client->AsyncContains(name, call);
    const absl::StatusOr<bool> found = co_await std::move(contains);
    status = found.status();
    if (found.ok()) operation.value = *found;
  }
  SimulationReport& report = world_->report;
  ++report.operations;
  operation.end_ns = world_->now_ns();
  world_->journal.Trace("client {} {} {} {} by {} since {}: {}", user->index, kWords[static_cast<size_t>(kind)], name,
                        operation.value, cell::ToString(*call.path), operation.begin_ns,
                        status.ok() ? fmt::format("{}", operation.existed) : std::string(status.message()));
  const std::string what =
      fmt::format("a {} of {} by {}", kWords[static_cast<size_t>(kind)], name, cell::ToString(*call.path));
  CheckTime(*user, what, operation.begin_ns, *call.timeout_us);
  const Verdict granted = Granted(*user, since, [&](const UserRights& rights) {
    const auto may = [&](Right right) {
      return table != nullptr ? rights.OfTable(right, "t") : rights.OfKey(right, name);
    };
    const bool reads = !IsWrite(kind) || operation.condition != KeyOperation::If::kNothing;
    return (!reads || may(Right::kRead)) && (!IsWrite(kind) || may(Right::kWrite));
  });
  CheckGranted(*user, what, granted, since, *call.path, status);
  if (!status.ok()) {
    if (IsWrite(kind) && IsMaybeApplied(status)) {  // It may also happen later, when the grants allow it.
      ++report.maybe;
      ++unknown_[key];
      operation.end_ns = KeyOperation::kNever;
      if (MayExpireMeanwhile(key, operation, INT64_MAX)) operation.condition = KeyOperation::If::kNothing;
    } else {
      ++report.failed;
      const bool late = expires && operation.end_ns >= operation.expiry_ns && absl::IsInvalidArgument(status);
      if (!late) CheckError(*user, name, status);
      co_return false;
    }
  }
  const bool tells_nothing = operation.kind == Kind::kRefused && operation.condition == KeyOperation::If::kNothing;
  if (!tells_nothing) world_->history.Add(key, operation);
  co_return true;
}

}  // namespace cell
