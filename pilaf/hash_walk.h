// HashWalk visits all pairs of a table, some slots or buckets at a time, while the table is written in between. It
// visits each pair that is stored throughout at least once. A pair that is moved from a unit not yet visited to a
// visited one is visited at its new position. When the last step is done, nothing was missed. Only one walk of a table
// at a time. Must be destroyed before the table.
#pragma once

#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"
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

  // Visits `units` more slots or buckets. Returns true if the walk is complete. Returns DataLoss if a pair was damaged
  // in memory: the walk ends there.
  absl::StatusOr<bool> Step(uint32_t units, const HashTable::Visit& visit) {
    for (const std::string& key : moved_) {
      ASSIGN_OR_RETURN(const std::optional<HashPair> pair, table_->FindVerified(key, HashKey(key)));
      if (pair.has_value()) visit(*pair);
    }
    moved_.clear();
    for (; units > 0 && next_ < table_->geometry_.units; --units) {
      RETURN_IF_ERROR(table_->VisitUnit(next_++, visit));
    }
    return next_ == table_->geometry_.units;
  }

 private:
  HashTable* const table_;
  uint32_t next_ = 0;
  std::vector<std::string> moved_;  // Keys that were moved to units that the walk has passed.
};

}  // namespace cell
