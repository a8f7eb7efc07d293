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
  static constexpr int kPlaceBits = 18;

  // Adds the connection that make(id) returns.
  template <typename Make>
  ConnectionId Add(const Make& make) {
    uint32_t place = static_cast<uint32_t>(places_.size());
    // Keep some slots free, so that the id that was freed last is not the next one again.
    if (free_.size() > kFreeKept) {
      place = free_.front();
      free_.pop_front();
      places_[place].generation = (places_[place].generation + 1) & ((1u << (32 - kPlaceBits)) - 1);
    } else {
      CELL_CHECK(place < 1u << kPlaceBits);
      places_.emplace_back();
    }
    const ConnectionId id = places_[place].generation << kPlaceBits | place;
    places_[place].is = make(id);
    return id;
  }
  // Returns null if there is no such connection (any more).
  T* Find(ConnectionId id) const {
    const uint32_t place = id & ((1u << kPlaceBits) - 1);
    if (place >= places_.size() || places_[place].generation != id >> kPlaceBits) return nullptr;
    return places_[place].is.get();
  }
  void Remove(ConnectionId id) {
    if (Find(id) == nullptr) return;
    const uint32_t place = id & ((1u << kPlaceBits) - 1);
    // Destroyed only after it cannot be found any more.
    const std::unique_ptr<T> gone = std::move(places_[place].is);
    free_.push_back(place);
  }
  size_t size() const { return places_.size() - free_.size(); }

  // Allows for (T* one : table). Connections may be added and removed meanwhile; those that are added may be skipped.
  class Iterator {
   public:
    Iterator(const ConnectionTable* table, size_t at) : table_(table), at_(at) { Skip(); }
    T* operator*() const { return table_->places_[at_].is.get(); }
    Iterator& operator++() {
      ++at_;
      Skip();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ < other.at_; }

   private:
    void Skip() {
      while (at_ < table_->places_.size() && table_->places_[at_].is == nullptr) ++at_;
    }

    const ConnectionTable* table_;
    size_t at_;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, places_.size()}; }

 private:
  static constexpr size_t kFreeKept = 64;

  struct Place {
    std::unique_ptr<T> is;
    uint32_t generation = 0;
  };
  std::vector<Place> places_;
  std::deque<uint32_t> free_;
};

}  // namespace cell
