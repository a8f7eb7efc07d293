// HashSplit moves the upper part of a region's range of the hash space into an empty region, while both are written.
//
// Pairs are copied a few at a time, and concurrent writes go to both regions. Both are therefore equal when all pairs
// are copied. Finish then cuts the range in the header with one store, and from then on the new region takes the
// writes. The old region's slots and buckets still have the pairs. Readers find them there, which is right as long as
// the pairs have not changed. So before the new region changes a key, the key is removed from the old region. All other
// pairs are removed a few at a time afterwards. Nobody waits. See README.md.
//
// Must be destroyed before its regions. Not thread-safe: only the thread that writes both regions may call it.
#pragma once

#include <optional>

#include "pilaf/hash_cleaning.h"
#include "pilaf/hash_walk.h"

namespace cell {

class HashSplit {
 public:
  // Splits `from`. `to` is empty, and its range is the upper part of that of `from`.
  HashSplit(HashTable* from, HashTable* to);
  ~HashSplit();
  HashSplit(const HashSplit&) = delete;
  HashSplit& operator=(const HashSplit&) = delete;

  // Returns the first hash position of the upper half.
  static uint32_t ChoosePosition(const HashRange& range) { return range.first + (range.last - range.first) / 2 + 1; }

  // Copies the pairs of `units` more slots or buckets. Returns true when all are copied. Returns an error if `to`
  // cannot take them: destroy this then, and `from` is unchanged.
  absl::StatusOr<bool> Copy(uint32_t units);
  // Returns OK if `to` has taken all changes so far, and otherwise the error of the first one that it did not take. If
  // OK, and if nothing is written to `from` since, Finish only cuts.
  const absl::Status& mirrored() const { return mirrored_; }
  // Finishes the split. REQUIRES: Copy returned true.
  absl::Status Finish();
  // Cleans `units` more slots or buckets. Returns true when all are clean, and from then on. REQUIRES: Finish
  // succeeded.
  bool Clean(uint32_t units);
  // For tests: the new region changes keys that the old one still has.
  void set_clean_late(bool clean_late) { clean_late_ = clean_late; }

 private:
  bool Has(const KeyHash& hash) const { return range_.Has(hash); }
  void CopyPair(const HashPair& pair, const KeyHash& hash);

  HashTable* const from_;
  HashTable* const to_;
  const HashRange range_;  // Range of `to`.
  std::optional<HashWalk> walk_;
  bool copied_ = false;
  std::optional<HashCleaning> cleaning_;  // Set from Finish on, until all is clean.
  bool clean_late_ = false;
  absl::Status mirrored_;
};

}  // namespace cell
