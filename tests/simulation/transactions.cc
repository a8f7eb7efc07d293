#include "tests/simulation/transactions.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "cell/base/random.h"
#include "tests/simulation/serializability.h"
#include "tests/simulation/users.h"

namespace cell {

using Record = TransactionHistory::Record;

std::string TransactionHistory::Prefix(int group) const {
  const size_t tree_keys = world_->history.keys() - world_->table_keys;
  const size_t key = world_->table_keys + tree_keys * (2 * static_cast<size_t>(group) + 1) / (2 * kGroups);
  return KeyName(key) + "t";
}

std::optional<int> TransactionHistory::Find(std::string_view name) const {
  if (name.size() == KeyName(0).size()) return std::nullopt;  // It is one of the other keys.
  for (int key = 0; key < kKeys; ++key) {
    if (Name(key) == name) return key;
  }
  return std::nullopt;
}

std::string TransactionHistory::NextValue(int key, int64_t* number) {
  *number = static_cast<int64_t>(key_of_.size());
  key_of_.push_back(key);
  return fmt::format("t {}", *number);
}

int64_t TransactionHistory::NumberOf(int key, const std::optional<std::string>& value) {
  if (!value.has_value()) return 0;
  const int64_t number = value->starts_with("t ") ? std::strtoll(value->c_str() + 2, nullptr, 10) : 0;
  const bool known = number > 0 && number < static_cast<int64_t>(key_of_.size());
  if (!known || key_of_[static_cast<size_t>(number)] != key) {
    world_->journal.Violate("{} has the value '{:.40}', which no transaction has put", Name(key), *value);
  }
  return number;
}

void TransactionHistory::End(Record* record, const absl::StatusOr<Committed>& committed) {
  record->committing = nullptr;
  record->outcome = Record::Outcome::kAborted;
  if (committed.ok()) {
    record->outcome = Record::Outcome::kCommitted;
    record->stamp = committed->stamp;
    record->end_ns = world_->now_ns();
  } else if (IsMaybeApplied(committed.status())) {
    record->outcome = Record::Outcome::kUnknown;
  }
}

void TransactionHistory::Die(size_t user) {
  for (Record& record : records_) {
    if (record.user != user || record.outcome != Record::Outcome::kInFlight) continue;
    record.outcome = record.committing == nullptr ? Record::Outcome::kAborted : Record::Outcome::kUnknown;
    if (record.committing != nullptr) record.id = record.committing->id();
    record.committing = nullptr;
  }
}

void TransactionHistory::Check(Client* client) {
  uint64_t unknown = 0;
  bool forgotten = false;
  for (Record& record : records_) {
    if (record.outcome != Record::Outcome::kUnknown) continue;
    ++unknown;
    record.outcome = Record::Outcome::kAborted;
    if (record.id.number == 0) continue;  // It had not been sent.
    const auto outcome = client->Outcome(record.id);
    const bool too_late = absl::IsFailedPrecondition(outcome.status());
    forgotten |= too_late;  // Each takeover takes ten seconds of stamps.
    if (!outcome.ok() && !too_late) {
      return world_->journal.Violate("at the end, the outcome of a transaction: {}", outcome.status().ToString());
    }
    if (!outcome.ok() || !outcome->has_value()) continue;
    record.outcome = Record::Outcome::kCommitted;
    record.stamp = (*outcome)->stamp;
  }
  std::optional<Table> table;
  if (with_table()) table.emplace(*client->OpenTable("t"));
  for (int key = 0; key < keys(); ++key) {
    Record* const record = Begin(SIZE_MAX);
    const auto value = InTable(key) ? table->Get(Name(key)) : client->Get(Name(key));
    if (!value.ok()) {
      return world_->journal.Violate("at the end, {}: {}", Name(key), value.status().ToString());
    }
    record->reads.push_back({key, NumberOf(key, *value)});
    End(record, Committed{});
  }
  std::map<int64_t, uint64_t> stamp_of;  // By the number of the value.
  for (const Record& record : records_) {
    if (record.outcome != Record::Outcome::kCommitted) continue;
    for (const Write& write : record.writes) {
      if (write.number != 0) stamp_of[write.number] = record.stamp;
    }
  }
  std::vector<TransactionRecord> history;
  uint64_t writing = 0, number = 0;
  for (const Record& record : records_) {
    if (record.outcome != Record::Outcome::kCommitted) continue;
    TransactionRecord one{record.begin_ns, record.end_ns, record.stamp, {}, {}, {}};
    one.name = fmt::format("T{} of client {} at {}", number++, record.user, record.begin_ns);
    for (const Read& read : record.reads) {
      const auto stamp = stamp_of.find(read.number);
      // What did not commit has no stamp, and no version has this one.
      one.reads.push_back({read.key, read.number == 0 ? 0 : stamp == stamp_of.end() ? UINT64_MAX : stamp->second});
    }
    for (const Write& write : record.writes) one.writes.push_back({write.key, write.number == 0});
    writing += !record.writes.empty();
    history.push_back(std::move(one));
  }
  world_->report.transactions += writing;
  world_->report.transactions_unknown += unknown;
  world_->journal.Trace("{} transactions committed, {} of them have written; {} outcomes had to be asked for",
                        history.size(), writing, unknown);
  world_->report.gave_up += forgotten;
  if (forgotten || world_->plan.MayLose()) return;  // Those of one region are lost like other writes.
  SerializabilityResult result = CheckSerializable(history);
  if (result.kind == SerializabilityResult::kNo) world_->journal.Violate("transactions: {}", result.why);
  world_->report.gave_up += result.kind == SerializabilityResult::kGaveUp;
  world_->report.transaction_history = std::move(history);
  world_->report.transaction_order = std::move(result.order);
}

// Reads some keys, perhaps a range, and writes some, perhaps others. The last draw decides whether one of the keys that
// others use takes part, too.
Task<bool> Users::UseTransaction(User* user, CallOptions call, Random* random) {
  TransactionHistory& history = *transactions_;
  const auto any_key = [&] { return static_cast<int>(random->Below(static_cast<uint64_t>(history.keys()))); };
  TransactionHistory::Record* const record = history.Begin(user->index);
  if (random->Below(5) == 0) {  // One get is a transaction, too.
    const int key = any_key();
    const std::string name = history.Name(key);
    absl::StatusOr<std::optional<std::string>> value;
    if (TransactionHistory::InTable(key)) {
      value = co_await user->table->AsyncGet(name, call);
    } else {
      const auto stamped = co_await user->of.client->AsyncGetWithStamp(name, call);
      if (!stamped.ok()) value = stamped.status();
      if (stamped.ok()) value = stamped->has_value() ? std::optional((*stamped)->value) : std::nullopt;
    }
    if (value.ok()) record->reads.push_back({key, history.NumberOf(key, *value)});
    if (!value.ok()) CheckError(*user, "a get of " + name, value.status());
    history.End(record, value.ok() ? absl::StatusOr<Committed>(Committed{}) : value.status());
    co_return true;
  }
  Transaction transaction = user->of.client->Begin();
  absl::Status status;
  std::map<int, int64_t> seen;
  bool changed = false;  // A key was read twice, and was not the same.
  const auto note_read = [&](int key, const std::optional<std::string>& value) {
    const int64_t number = history.NumberOf(key, value);
    const auto [it, first] = seen.emplace(key, number);
    if (first) record->reads.push_back({key, number});
    changed |= it->second != number;
  };
  const auto reads = static_cast<int>(random->Below(4));
  for (int i = 0; i < reads && status.ok(); ++i) {
    const int key = any_key();
    const std::string name = history.Name(key);
    absl::StatusOr<std::optional<std::string>> value;
    if (TransactionHistory::InTable(key)) {
      value = co_await transaction.AsyncGet(*user->table, name, call);
    } else {
      value = co_await transaction.AsyncGet(name, call);
    }
    status = value.status();
    if (status.ok()) note_read(key, *value);
  }
  if (status.ok() && random->Below(3) == 0) {
    const int group = static_cast<int>(random->Below(TransactionHistory::kGroups));
    ScanOptions options = PrefixScan(history.Prefix(group));
    options.call = call;
    options.reverse = random->Below(2) == 0;
    const auto pairs = co_await transaction.AsyncScan(options);
    status = pairs.status();
    for (int i = 0; i < TransactionHistory::kInGroup && status.ok(); ++i) {
      const int key = group * TransactionHistory::kInGroup + i;
      std::optional<std::string> value;
      for (const auto& [name, its] : *pairs) {
        if (name == history.Name(key)) value = its;
      }
      note_read(key, value);
    }
  }
  // One of the other keys.
  const size_t tree_keys = world_->history.keys() - world_->table_keys;
  const bool in_table = history.with_table() && random->Below(2) == 0;
  const size_t other = in_table ? random->Below(world_->table_keys) : world_->table_keys + random->Below(tree_keys);
  const std::string other_name = KeyName(other);
  const bool reads_other = random->Below(4) == 0, writes_other = random->Below(4) == 0 && MayWrite(other);
  int64_t other_read = 0;
  const int64_t read_ns = world_->now_ns();
  if (status.ok() && reads_other) {
    absl::StatusOr<std::optional<std::string>> value;
    if (in_table) {
      value = co_await transaction.AsyncGet(*user->table, other_name, call);
    } else {
      value = co_await transaction.AsyncGet(other_name, call);
    }
    status = value.status();
    if (status.ok()) other_read = NumberOf(other, *value);
  }
  const auto writes = static_cast<int>(random->Below(4));
  for (int i = 0; i < writes && status.ok(); ++i) {
    const int key = any_key();
    int64_t number = 0;
    const std::string value = random->Below(4) == 0 ? "" : history.NextValue(key, &number);
    const std::string name = history.Name(key);
    if (TransactionHistory::InTable(key)) {
      status = number == 0 ? transaction.Delete(*user->table, name) : transaction.Put(*user->table, name, value);
    } else {
      status = number == 0 ? transaction.Delete(name) : transaction.Put(name, value);
    }
    std::erase_if(record->writes, [key](const auto& write) { return write.key == key; });
    record->writes.push_back({key, number});
  }
  KeyOperation put{KeyOperation::Kind::kPut, world_->now_ns(), KeyOperation::kNever};
  const bool puts_other = status.ok() && writes_other;
  const uint64_t order = writes_ever_ + 1;
  if (puts_other) {
    put.value = next_value_++;
    const std::string value = Value(other, put.value);
    status = in_table ? transaction.Put(*user->table, other_name, value) : transaction.Put(other_name, value);
    ++writes_ever_;
    user->writes.emplace(order, std::pair(other, put));
  }
  if (!status.ok()) {
    if (!absl::IsAborted(status)) CheckError(*user, "a transaction's read", status);
    if (puts_other) user->writes.erase(order);
    history.End(record, status);
    co_return true;
  }
  record->committing = &transaction;
  const int64_t commit_ns = world_->now_ns();
  const absl::StatusOr<Committed> committed = co_await transaction.AsyncCommit(call);
  history.End(record, committed);
  record->id = transaction.id();
  if (committed.ok() && changed) world_->journal.Violate("a transaction has read two values of a key, and committed");
  if (record->outcome == TransactionHistory::Record::Outcome::kUnknown && !user->closed) {
    const auto outcome = co_await user->of.client->AsyncOutcome(record->id, call);
    if (outcome.ok() && outcome->has_value()) history.End(record, **outcome);
    if (outcome.ok() && !outcome->has_value()) record->outcome = TransactionHistory::Record::Outcome::kAborted;
  }
  std::string seen_text, writes_text;
  for (const auto& read : record->reads) seen_text += fmt::format(" {}={}", history.Name(read.key), read.number);
  for (const auto& write : record->writes) writes_text += fmt::format(" {}={}", history.Name(write.key), write.number);
  world_->journal.Trace(
      "client {} transaction since {} by {}, id {}.{}: read{}, writes{}: {}", user->index, record->begin_ns,
      cell::ToString(*call.path), record->id.slot, record->id.number, seen_text, writes_text,
      committed.ok() ? fmt::format("committed at {}", committed->stamp) : committed.status().ToString());
  const bool maybe = IsMaybeApplied(committed.status());
  ++world_->report.operations;
  world_->report.aborted += absl::IsAborted(committed.status());
  if (!committed.ok() && !maybe && !absl::IsAborted(committed.status())) {
    CheckError(*user, "a commit", committed.status());
  }
  // One that only reads may have happened when it read the key, which may have expired since.
  const int64_t seen_ns = record->writes.empty() && !puts_other ? read_ns : commit_ns;
  if (committed.ok() && reads_other && !world_->plan.Evicts(other_name, in_table, false)) {
    world_->history.Add(other, {KeyOperation::Kind::kGet, seen_ns, world_->now_ns(), other_read});
  }
  if (!puts_other) co_return true;
  user->writes.erase(order);
  if (!committed.ok() && !maybe) co_return true;
  put.end_ns = maybe ? KeyOperation::kNever : world_->now_ns();
  put.evictable = world_->plan.Evicts(other_name, in_table, false);
  if (maybe) ++unknown_[other];
  world_->history.Add(other, put);
  co_return true;
}

}  // namespace cell
