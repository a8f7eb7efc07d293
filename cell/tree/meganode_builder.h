// MeganodeBuilder fills an empty meganode with pairs, or routes, that come in key order.
//
// Leaves are packed from left to right. Each is written only when its fences are known, so that nothing is written
// twice. Extents are stored one after the other. Which pairs are inline is the meganode's setting. The result is a
// regular meganode that holds exactly what was added.
//
// Concurrent readers find each leaf whole or not at all. Not thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cell/tree/meganode.h"

namespace cell {

class MeganodeBuilder {
 public:
  // `fill` is the fraction of each leaf that is used, where possible. `tree` is empty and must outlive this.
  MeganodeBuilder(Meganode* tree, double fill);

  // Adds a pair, also one that has expired, with its stamp, or with the next one if that is 0. Above tier 0 `value` is
  // the child's pointer, 8 bytes. Keys must come in
  // order and be in the meganode's range. Returns ResourceExhausted if the meganode is full; it must not be used then.
  // Returns InvalidArgument if a size, the order or the range is wrong.
  absl::Status Add(std::string_view key, std::string_view value, Expiry expiry = kNeverExpires, uint64_t stamp = 0);
  // Completes the meganode. REQUIRES: all pairs were added.
  absl::Status Finish();

 private:
  struct Entry {
    std::string key;
    std::string value;  // If the pair is inline.
    LeafPair pair;      // Its value is set by Emit.
  };

  // Takes in the entry behind the first count_. Publishes a leaf before if there is one that it does not fit into.
  absl::Status TakeNext();
  // Publishes the first cut_ entries as a leaf, and takes in the following ones again, up to the first `count`.
  absl::Status EmitCut(size_t count);
  // Returns whether a leaf of the first count_ entries that ends at `high` takes at most `bytes`.
  bool Fits(const std::optional<std::string_view>& high, size_t bytes);
  // Publishes the first `count` entries as the next leaf, which ends at `high`.
  absl::Status Emit(size_t count, const std::optional<std::string>& high, bool last);

  Meganode* const tree_;
  const MeganodeRange range_;
  const size_t target_bytes_;   // Target size of a leaf.
  std::string low_;             // Low key of the next leaf.
  std::vector<Entry> entries_;  // Those that are taken in, and behind them others whose memory is used again.
  size_t count_ = 0;            // How many are taken in.
  size_t cut_ = 0;              // This many of these are known to fit...
  std::string cut_high_;        // ...into a leaf that ends here.
  size_t prefix_bytes_ = 0,
         heap_bytes_ = 0;  // heap_bytes_: what the entries take there, without a prefix of prefix_bytes_.
  Pointer next_leaf_;
  std::string last_key_;
  bool begun_ = false;
};

}  // namespace cell
