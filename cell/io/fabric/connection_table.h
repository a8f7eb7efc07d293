// ConnectionTable holds a fabric's connections by their ids. A removed connection leaves nothing behind, and its id
// stays invalid for a long time: its slot is reused after all other free slots, and with another id.
//
// Not thread-safe.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "cell/base/check.h"
#include "cell/io/fabric/fabric.h"

namespace cell {

template <typename T>
class ConnectionTable {
 public:
  static constexpr int kSlotBits = 18;

  // Adds the connection that make(id) returns.
  template <typename Make>
  ConnectionId Add(const Make& make) {
    uint32_t slot = static_cast<uint32_t>(slots_.size());
    // Keep some slots free, so that the id that was freed last is not the next one again.
    if (free_.size() > kFreeKept) {
      slot = free_.front();
      free_.pop_front();
      slots_[slot].generation = (slots_[slot].generation + 1) & ((1u << (32 - kSlotBits)) - 1);
    } else {
      CELL_CHECK(slot < 1u << kSlotBits);
      slots_.emplace_back();
    }
    const ConnectionId id = slots_[slot].generation << kSlotBits | slot;
    slots_[slot].is = make(id);
    return id;
  }
  // Returns null if there is no such connection (any more).
  T* Find(ConnectionId id) const {
    const uint32_t slot = id & ((1u << kSlotBits) - 1);
    if (slot >= slots_.size() || slots_[slot].generation != id >> kSlotBits) return nullptr;
    return slots_[slot].is.get();
  }
  void Remove(ConnectionId id) {
    if (Find(id) == nullptr) return;
    const uint32_t slot = id & ((1u << kSlotBits) - 1);
    // Destroyed only after it cannot be found any more.
    const std::unique_ptr<T> gone = std::move(slots_[slot].is);
    free_.push_back(slot);
  }
  size_t size() const { return slots_.size() - free_.size(); }

  // Allows for (T* one : table). Connections may be added and removed meanwhile; those that are added may be skipped.
  class Iterator {
   public:
    Iterator(const ConnectionTable* table, size_t at) : table_(table), at_(at) { Skip(); }
    T* operator*() const { return table_->slots_[at_].is.get(); }
    Iterator& operator++() {
      ++at_;
      Skip();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ < other.at_; }

   private:
    void Skip() {
      while (at_ < table_->slots_.size() && table_->slots_[at_].is == nullptr) ++at_;
    }

    const ConnectionTable* table_;
    size_t at_;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, slots_.size()}; }

 private:
  static constexpr size_t kFreeKept = 64;

  struct Slot {
    std::unique_ptr<T> is;
    uint32_t generation = 0;
  };
  std::vector<Slot> slots_;
  std::deque<uint32_t> free_;
};

}  // namespace cell
