// ScanBatch holds the entries that a scan returns together, and their memory. Internal to cell/client. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "cell/base/bytes.h"
#include "cell/base/shared_words.h"
#include "cell/client/client.h"

namespace cell {

class ScanBatch {
 public:
  // An entry's position in the arena: its value follows its key.
  struct Place {
    size_t at;
    size_t key_bytes;
    size_t value_bytes;
  };

  void Clear() {
    places_.clear();
    bytes_ = 0;
  }
  bool empty() const { return places_.empty(); }
  size_t size() const { return places_.size(); }
  size_t bytes() const { return bytes_; }
  Place& operator[](size_t i) { return places_[i]; }

  // Reserves `bytes`, aligned to 8, and returns their offset. Offsets stay valid when the arena grows; addresses do
  // not.
  size_t Reserve(size_t bytes) {
    const size_t at = bytes_;
    bytes_ += RoundUp(bytes, kWordBytes);
    if (arena_.size() * kWordBytes < bytes_) arena_.resize(std::max(bytes_ / kWordBytes, 2 * arena_.size()));
    return at;
  }
  std::string_view KeyOf(const Place& place) { return {reinterpret_cast<const char*>(At(place.at)), place.key_bytes}; }
  std::byte* At(size_t at) { return reinterpret_cast<std::byte*>(arena_.data()) + at; }
  size_t Copy(const void* from, size_t bytes) {
    const size_t at = Reserve(bytes);
    std::memcpy(At(at), from, bytes);
    return at;
  }
  void Add(const Place& place) { places_.push_back(place); }
  // Truncates the batch to an earlier size() and bytes().
  void Cut(size_t places, size_t bytes) {
    places_.resize(places);
    bytes_ = bytes;
  }

  // Returns all entries. They are valid until the batch changes.
  absl::Span<const Scan::Entry> Entries() {
    entries_.clear();
    for (const Place& place : places_) {
      const std::string_view entry(reinterpret_cast<const char*>(At(place.at)), place.key_bytes + place.value_bytes);
      entries_.push_back({entry.substr(0, place.key_bytes), entry.substr(place.key_bytes)});
    }
    return entries_;
  }

 private:
  std::vector<uint64_t> arena_;  // Made of words, so that one-sided reads into it are aligned.
  size_t bytes_ = 0;
  std::vector<Place> places_;
  std::vector<Scan::Entry> entries_;
};

}  // namespace cell
