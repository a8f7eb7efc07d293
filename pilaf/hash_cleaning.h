// HashCleaning removes the pairs outside of a table's range, some slots or buckets at a time, while the table is
// written in between. Used after a range was cut, and after a join that was given up. Nobody is notified, and nothing
// is logged.
//
// A pair that is moved behind its back makes it go round once more. Only one of it or of HashWalk at a time. Must be
// destroyed before the table. Not thread-safe: only the thread that writes the table may call it.
#pragma once

#include <utility>

#include "cell/base/check.h"
#include "pilaf/hash_table.h"

namespace cell {

class HashCleaning {
 public:
  explicit HashCleaning(HashTable* table) : table_(table) {
    CELL_CHECK(!table->on_move_);
    table->on_move_ = [this](std::string_view key, uint32_t from, uint32_t to) {
      again_ |= from >= cleaned_ && to < cleaned_ && !table_->range().Has(HashKey(key));
    };
  }
  ~HashCleaning() { table_->on_move_ = nullptr; }
  HashCleaning(const HashCleaning&) = delete;
  HashCleaning& operator=(const HashCleaning&) = delete;

  // Cleans `units` more slots or buckets. Returns true when all are clean. An invalidated table stays as it is: a
  // bucket that was written would be whole again.
  bool Step(uint32_t units) {
    if (table_->hash_header().invalidated != 0) return true;
    for (; units > 0 && cleaned_ < table_->geometry().units; --units) table_->CleanUnit(cleaned_++);
    if (cleaned_ < table_->geometry().units) return false;
    if (!std::exchange(again_, false)) return true;
    cleaned_ = 0;  // Few pairs are left: those that were moved meanwhile.
    return false;
  }

 private:
  HashTable* const table_;
  uint32_t cleaned_ = 0;  // Units that this pass has cleaned.
  bool again_ = false;    // A pair was moved to a unit that the pass has already cleaned.
};

}  // namespace cell
