// BlockBuffer is memory that starts at a block's border and has whole blocks, as required for files that are written
// and read past the page cache. Its content is undefined at first.
#pragma once

#include <cstdlib>
#include <memory>

#include "cell/base/bytes.h"
#include "cell/base/check.h"

namespace cell {

inline constexpr size_t kBlockBytes = 4096;

class BlockBuffer {
 public:
  BlockBuffer() = default;
  // Allocates at least this many bytes.
  explicit BlockBuffer(size_t bytes)
      : size_(RoundUp(bytes, kBlockBytes)), data_(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, size_))) {
    CELL_CHECK(data_ != nullptr || size_ == 0);
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  size_t size_ = 0;
  std::unique_ptr<std::byte[], Free> data_;
};

}  // namespace cell
