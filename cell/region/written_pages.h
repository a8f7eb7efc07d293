// WrittenPages records which pages of a region were written since a copy of it began (migrations, checkpoints).
//
// Thread-safety: as the region that it belongs to: one thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cell {

// Records which 4096-byte pages of a region were written, and so must be copied. The counts in the region's header are
// written without being recorded here, so whoever copies the pages marks the header's page first.
class WrittenPages {
 public:
  static constexpr uint64_t kPageBytes = 4096;

  explicit WrittenPages(uint64_t region_bytes) : words_((region_bytes / kPageBytes + 64) / 64) {}
  void Mark(uint64_t offset, uint64_t bytes) {
    for (uint64_t page = offset / kPageBytes; page <= (offset + bytes - 1) / kPageBytes; ++page) {
      words_[page / 64] |= uint64_t{1} << page % 64;
    }
  }
  bool Has(uint64_t offset) const {
    const uint64_t page = offset / kPageBytes;
    return (words_[page / 64] >> page % 64 & 1) != 0;
  }
  void Clear() { std::fill(words_.begin(), words_.end(), 0); }
  void Add(const WrittenPages& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  uint64_t count() const {
    uint64_t count = 0;
    for (const uint64_t word : words_) count += static_cast<uint64_t>(std::popcount(word));
    return count;
  }
  // Removes and returns the first run of at most `pages_max` written pages. Returns {0, 0} if there is none.
  std::pair<uint32_t, uint32_t> TakeRun(uint32_t pages_max) {
    uint32_t first = 0, pages = 0;
    for (size_t i = 0; i < words_.size() && pages < pages_max; ++i) {
      while (words_[i] != 0 && pages < pages_max) {
        const auto page = static_cast<uint32_t>(i * 64) + static_cast<uint32_t>(std::countr_zero(words_[i]));
        if (pages > 0 && page != first + pages) return {first, pages};
        if (pages == 0) first = page;
        ++pages;
        words_[i] &= words_[i] - 1;
      }
    }
    return {first, pages};
  }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace cell
