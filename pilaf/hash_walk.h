// HashWalk: all pairs of a table, some slots or buckets at a time, while it is written in between. A pair that is there
// throughout is visited at least once: one that is moved from what is still to be visited to what was is visited where
// it was moved to. After the last step there is nothing that it could miss. One walk of a table at a time; to be
// destroyed before it.
#pragma once

#include <string>
#include <vector>

#include "pilaf/hash_table.h"

namespace cell {

class HashWalk {
 public:
  explicit HashWalk(HashTable* table) : table_(table) {
    CELL_CHECK(!table->on_move_);
    table->on_move_ = [this](std::string_view key, uint32_t from, uint32_t to) {
      if (from >= next_ && to < next_) moved_.emplace_back(key);
    };
  }
  ~HashWalk() { table_->on_move_ = nullptr; }
  HashWalk(const HashWalk&) = delete;
  HashWalk& operator=(const HashWalk&) = delete;

  // Of so many more. True: that was all.
  bool Step(uint32_t units, const HashTable::Visit& visit) {
    for (const std::string& key : moved_) {
      if (const std::optional<std::string_view> value = table_->Find(key, HashKey(key))) visit(key, *value);
    }
    moved_.clear();
    for (; units > 0 && next_ < table_->place_.units; --units) table_->VisitUnit(next_++, visit);
    return next_ == table_->place_.units;
  }

 private:
  HashTable* const table_;
  uint32_t next_ = 0;
  std::vector<std::string> moved_;  // To where the walk will not come.
};

}  // namespace cell
