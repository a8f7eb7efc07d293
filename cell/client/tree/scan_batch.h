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
  // A batch ends early once it is this large, whatever path it takes, so that it does not fill the client's memory.
  static constexpr size_t kBytesMax = size_t{4} << 20;

  // An entry's position in the arena: its value follows its key.
  struct EntryRef {
    size_t at;
    size_t key_bytes;
    size_t value_bytes;
    uint64_t expiry;
  };

  void Clear() {
    refs_.clear();
    bytes_ = 0;
  }
  bool empty() const { return refs_.empty(); }
  size_t size() const { return refs_.size(); }
  size_t bytes() const { return bytes_; }
  bool full() const { return bytes_ >= kBytesMax; }
  EntryRef& operator[](size_t i) { return refs_[i]; }

  // Reserves `bytes`, aligned to 8, and returns their offset. Offsets stay valid when the arena grows; addresses do
  // not.
  size_t Reserve(size_t bytes) {
    const size_t at = bytes_;
    bytes_ += RoundUp(bytes, kWordBytes);
    if (arena_.size() * kWordBytes < bytes_) arena_.resize(std::max(bytes_ / kWordBytes, 2 * arena_.size()));
    return at;
  }
  std::string_view KeyOf(const EntryRef& ref) { return {reinterpret_cast<const char*>(At(ref.at)), ref.key_bytes}; }
  std::byte* At(size_t at) { return reinterpret_cast<std::byte*>(arena_.data()) + at; }
  size_t Copy(const void* from, size_t bytes) {
    const size_t at = Reserve(bytes);
    std::memcpy(At(at), from, bytes);
    return at;
  }
  void Add(const EntryRef& ref) { refs_.push_back(ref); }
  // Truncates the batch to an earlier size() and bytes().
  void Cut(size_t entries, size_t bytes) {
    refs_.resize(entries);
    bytes_ = bytes;
  }

  // Returns all entries. They are valid until the batch changes.
  absl::Span<const Scan::Entry> Entries() {
    entries_.clear();
    for (const EntryRef& ref : refs_) {
      const std::string_view entry(reinterpret_cast<const char*>(At(ref.at)), ref.key_bytes + ref.value_bytes);
      entries_.push_back({entry.substr(0, ref.key_bytes), entry.substr(ref.key_bytes), ref.expiry});
    }
    return entries_;
  }

 private:
  std::vector<uint64_t> arena_;  // Made of words, so that one-sided reads into it are aligned.
  size_t bytes_ = 0;
  std::vector<EntryRef> refs_;
  std::vector<Scan::Entry> entries_;
};

}  // namespace cell
