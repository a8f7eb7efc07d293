// RegionMemory is the memory of one region (layout/region.h), as its writing thread sees it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "cell/base/shared_words.h"
#include "cell/layout/limits.h"
#include "cell/layout/region.h"
#include "cell/region/written_pages.h"

namespace cell {

// Gives the writing thread access to a region. All stores that readers may race with go through this class.
class RegionMemory {
 public:
  RegionMemory() = default;
  RegionMemory(std::byte* base, uint64_t bytes) : base_(base), bytes_(bytes) {}

  const std::byte* at(uint64_t offset) const { return base_ + offset; }
  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  RegionHeader& header() const { return *reinterpret_cast<RegionHeader*>(base_); }

  void StoreWord(uint64_t offset, uint64_t value, std::memory_order order = std::memory_order_release) {
    if (written_ != nullptr) written_->Mark(offset, kWordBytes);
    ++stores_;
    cell::StoreWord(base_ + offset, value, order);
  }

  // Stores private bytes (a multiple of 8), one cache line at a time.
  void Store(uint64_t offset, const std::byte* from, size_t bytes) {
    constexpr size_t kLineBytes = 64;
    if (written_ != nullptr) written_->Mark(offset, bytes);
    ++stores_;
    for (size_t done = 0; done < bytes;) {
      const size_t step = std::min(kLineBytes - (offset + done) % kLineBytes, bytes - done);
      CopyToShared(from + done, base_ + offset + done, step);
      done += step;
      AfterStep();
    }
  }

  // Sets whether what is freed is overwritten with zeros: extents, nodes, and what deletes leave in nodes.
  void set_zero_freed(bool zero_freed) { zero_freed_ = zero_freed; }
  bool zero_freed() const { return zero_freed_; }
  // Stores zeros. Both are multiples of 8.
  void Zero(uint64_t offset, uint64_t bytes) {
    static constexpr std::array<std::byte, 4096> kZeros{};
    for (uint64_t done = 0; done < bytes; done += kZeros.size()) {
      Store(offset + done, kZeros.data(), std::min<uint64_t>(kZeros.size(), bytes - done));
    }
  }

  // Returns a number that grows with each store. Where it has not, nodes and extents are as they were.
  uint64_t stores() const { return stores_; }

  void AfterStep() {
    if (after_step_) [[unlikely]]
      after_step_();
  }

  // Sets where later stores are recorded. Null: nowhere.
  void set_written(WrittenPages* written) { written_ = written; }

  // Sets a function that is called between the steps of every store to nodes and extents. A simulated fabric lets
  // one-sided reads proceed there.
  void set_after_step(std::function<void()> after_step) { after_step_ = std::move(after_step); }

 private:
  std::byte* base_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t stores_ = 0;
  bool zero_freed_ = false;
  WrittenPages* written_ = nullptr;
  std::function<void()> after_step_;
};

}  // namespace cell
