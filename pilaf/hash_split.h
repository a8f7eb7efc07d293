// HashSplit: moves the upper part of a region's range of the hash space into an empty region, while both are written.
//
// Pairs are copied a few at a time, and what is written meanwhile is written to both; so when all are copied both are
// equal. Finish then cuts the range in the header, with one store, and from then on the new region takes the writes.
// The old one's slots and buckets still have the pairs, and readers find them there, which is right as long as they
// have not changed: so before the new region changes a key, it is cleaned out of the old one, and all else little by
// little afterwards. Nobody waits for anything. See README.md.
//
// To be destroyed before its regions. One thread: the one that writes both.
#pragma once

#include "pilaf/hash_walk.h"

namespace cell {

class HashSplit {
 public:
  // `to` is empty, and its range the upper part of `from`'s.
  HashSplit(HashTable* from, HashTable* to);
  ~HashSplit();
  HashSplit(const HashSplit&) = delete;
  HashSplit& operator=(const HashSplit&) = delete;

  // The first place of the upper half.
  static uint32_t ChoosePlace(const HashRange& range) { return range.first + (range.last - range.first) / 2 + 1; }

  // Copies what is in `units` more slots or buckets. True: all is copied. An error: `to` cannot take it; destroy this,
  // and `from` is as if nothing had been.
  absl::StatusOr<bool> Copy(uint32_t units);
  // Whether `to` has taken all so far. Once it has, and nothing is written to `from`, Finish has nothing to do but cut.
  const absl::Status& mirrored() const { return mirrored_; }
  // After Copy returned true.
  absl::Status Finish();
  // After Finish: cleans so many more. True: all are.
  bool Clean(uint32_t units);
  // For tests: the new region changes keys that the old one still has.
  void set_clean_late(bool clean_late) { clean_late_ = clean_late; }

 private:
  bool Has(const KeyHash& hash) const { return range_.Has(hash); }
  void Copy(std::string_view key, const KeyHash& hash, std::string_view value);

  HashTable* const from_;
  HashTable* const to_;
  const HashRange range_;  // Of `to`.
  std::optional<HashWalk> walk_;
  bool copied_ = false;
  bool finished_ = false;
  bool clean_late_ = false;
  uint32_t cleaned_ = 0;  // Units, of this pass.
  bool again_ = false;    // A pair was moved to where the pass has been.
  absl::Status mirrored_;
};

}  // namespace cell
