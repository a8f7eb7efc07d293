// ExtentMarks marks extents of a region by their offsets, in a bit for each place where one may begin. Memory is taken
// piece by piece, so that no call takes long. Pure.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cell {

class ExtentMarks {
 public:
  // Marks the extent at `offset`. Returns false if it is marked already. REQUIRES: the offset is in the region.
  bool Mark(uint64_t offset) {
    const uint64_t place = offset / kPlaceBytes;
    if (place / kPieceBits >= pieces_.size()) pieces_.resize(place / kPieceBits + 1);
    std::unique_ptr<Piece>& piece = pieces_[place / kPieceBits];
    if (piece == nullptr) piece = std::make_unique<Piece>();
    const auto bit = (*piece)[place % kPieceBits];
    if (bit) return false;
    piece->set(place % kPieceBits);
    ++size_;
    return true;
  }
  bool Has(uint64_t offset) const {
    const uint64_t place = offset / kPlaceBytes;
    const Piece* const piece = place / kPieceBits < pieces_.size() ? pieces_[place / kPieceBits].get() : nullptr;
    return piece != nullptr && piece->test(place % kPieceBits);
  }
  size_t size() const { return size_; }

 private:
  static constexpr uint64_t kPlaceBytes = 8;  // Extents are aligned like words.
  static constexpr uint64_t kPieceBits = 32768;
  using Piece = std::bitset<kPieceBits>;

  std::vector<std::unique_ptr<Piece>> pieces_;
  size_t size_ = 0;
};

}  // namespace cell
