// MeganodeBuilder: fills an empty meganode with pairs, or routes, that come in key order.
//
// Leaves are packed from left to right, each cut where its fences are known, so that nothing is written twice. Extents
// lie one after the other. What is made is a meganode like any other; what it holds is only what was added.
//
// Readers that come while it is built find each leaf whole or not at all. One thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cell/tree/meganode.h"

namespace cell {

class MeganodeBuilder {
 public:
  // `fill`: how much of each leaf may be used, of 1, as far as it is possible. `tree` is empty, and must outlive this.
  MeganodeBuilder(Meganode* tree, double fill);

  // Above tier 0 `value` is the child's pointer, 8 bytes. Keys come in order, in the meganode's range.
  // ResourceExhausted: it is full, and of no use then. InvalidArgument: a size, the order or the range is wrong.
  absl::Status Add(std::string_view key, std::string_view value);
  // After the last.
  absl::Status Finish();

 private:
  struct Entry {
    std::string key;
    LeafSlot slot;
  };

  absl::Status AddEntry(Entry entry);
  // Whether a leaf of all entries that ends at `high` is within `bytes`.
  bool Fits(const std::optional<std::string_view>& high, size_t bytes);
  // Publishes the first `count` entries as the next leaf, which ends at `high`.
  absl::Status Emit(size_t count, const std::optional<std::string>& high, bool last);

  Meganode* const tree_;
  const MeganodeRange range_;
  const size_t target_bytes_;  // Of a leaf.
  std::string low_;            // Of the next leaf.
  std::vector<Entry> entries_;
  size_t cut_ = 0;                             // So many of them are known to fit...
  std::string cut_high_;                       // ...in a leaf that ends here.
  size_t prefix_bytes_ = 0, tails_bytes_ = 0;  // tails_bytes_: of entries_, without a prefix of so many bytes.
  Pointer place_;
  std::string last_key_;
  bool begun_ = false;
};

}  // namespace cell
