// ByteQueue holds bytes between a socket and the code that parses or makes them. They are appended at the end and taken
// from the front.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

#include "cell/base/bytes.h"
#include "cell/base/check.h"

namespace cell {

class ByteQueue {
 public:
  const std::byte* data() const { return bytes_.get() + begin_; }
  size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }

  // Returns room for `bytes` bytes at the end. Invalidates earlier results of data().
  std::byte* Grow(size_t bytes) {
    if (capacity_ - end_ < bytes) MakeRoom(bytes);
    return bytes_.get() + end_;
  }
  // Appends the first `bytes` bytes of that room, which the caller has filled.
  void Commit(size_t bytes) {
    CELL_CHECK_LE(bytes, capacity_ - end_);
    end_ += bytes;
  }
  void Append(ConstBytes bytes) {
    if (bytes.empty()) return;
    std::memcpy(Grow(bytes.size()), bytes.data(), bytes.size());
    Commit(bytes.size());
  }
  // Takes bytes from the front. They stay in place until the next Grow.
  void Consume(size_t bytes) {
    CELL_CHECK_LE(bytes, size());
    begin_ += bytes;
    if (begin_ == end_) begin_ = end_ = 0;
  }
  // Releases memory that an empty queue does not need after a burst.
  void Shrink(size_t capacity_max) {
    if (!empty() || capacity_ <= capacity_max) return;
    bytes_.reset();
    capacity_ = 0;
  }

 private:
  static constexpr size_t kCapacityMin = 4096;

  void MakeRoom(size_t bytes) {
    const size_t held = size();
    if (capacity_ - held < bytes || held > capacity_ / 2) {
      const size_t capacity = RoundUp(std::max(2 * held, held + bytes), kCapacityMin);
      std::unique_ptr<std::byte[]> larger(new std::byte[capacity]);
      if (held > 0) std::memcpy(larger.get(), data(), held);
      bytes_ = std::move(larger);
      capacity_ = capacity;
    } else {
      std::memmove(bytes_.get(), data(), held);
    }
    begin_ = 0;
    end_ = held;
  }

  std::unique_ptr<std::byte[]> bytes_;
  size_t capacity_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace cell
