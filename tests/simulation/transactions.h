// What the transactions of a simulation have seen, and whether that is strictly serializable.
//
// Transactions have some keys of their own, which nobody else writes: in groups beside some of the other keys, so that
// they share leaves and regions with these, and if the plan says so, some in the table. Besides, they read and write
// other keys, whose histories have that.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cell/client/transaction.h"
#include "tests/simulation/world.h"

namespace cell {

class TransactionHistory {
 public:
  static constexpr int kGroups = 4, kInGroup = 3, kKeys = kGroups * kInGroup;
  static constexpr int kInTable = 6;  // Their numbers follow those of the others.

  struct Read {
    int key;
    int64_t number;  // Of the value; 0: absent.
  };
  struct Write {
    int key;
    int64_t number;  // 0: a delete.
  };
  struct Record {
    enum class Outcome { kInFlight, kCommitted, kAborted, kUnknown };
    int64_t begin_ns = 0, end_ns = INT64_MAX;
    Outcome outcome = Outcome::kInFlight;
    uint64_t stamp = 0;
    std::vector<Read> reads = {};
    std::vector<Write> writes = {};
    TransactionId id = {};
    const Transaction* committing = nullptr;  // Set while its commit is in flight.
    size_t user = 0;
  };

  // The world must outlive it.
  explicit TransactionHistory(World* world) : world_(world) {}

  // Returns the name of a key, and the range of a group's keys.
  std::string Name(int key) const {
    return InTable(key) ? "t" + std::to_string(key) : Prefix(key / kInGroup) + std::to_string(key % kInGroup);
  }
  static bool InTable(int key) { return key >= kKeys; }
  // Returns whether transactions read and write the table, too.
  bool with_table() const { return world_->plan.transactions_in_table && world_->table_keys > 0; }
  // Returns how many keys there are, those of the table included.
  int keys() const { return with_table() ? kKeys + kInTable : kKeys; }
  std::string Prefix(int group) const;
  // Returns the number of the key with this name, if it is one of them.
  std::optional<int> Find(std::string_view name) const;

  // Begins a record of a user's transaction. It stays where it is.
  Record* Begin(size_t user) {
    return &records_.emplace_back(Record{world_->now_ns(), INT64_MAX, {}, 0, {}, {}, {}, nullptr, user});
  }
  // Adds a record of a snapshot that a user has taken since `begin_ns`, for what it will read of it. It stays where it
  // is.
  Record* AddSnapshot(size_t user, int64_t begin_ns) {
    const Record taken{begin_ns, world_->now_ns(), Record::Outcome::kCommitted, 0, {}, {}, {}, nullptr, user};
    return &records_.emplace_back(taken);
  }
  // Returns the value that a transaction puts, and its number.
  std::string NextValue(int key, int64_t* number);
  // Returns the number of a value that was read. One that was never put there is a violation.
  int64_t NumberOf(int key, const std::optional<std::string>& value);
  void End(Record* record, const absl::StatusOr<Committed>& committed);
  // Ends what a user that has died had in flight.
  void Die(size_t user);

  // Asks for the outcomes that are unknown, reads all keys, and checks everything.
  void Check(Client* client);

 private:
  World* const world_;
  std::list<Record> records_;
  std::vector<int> key_of_ = {0};  // By number.
};

}  // namespace cell
