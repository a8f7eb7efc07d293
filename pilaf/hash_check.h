// HashCheck verifies every invariant of a part of a table, a slice at a time. It may be written between two slices.
//
//   units     CRCs of slots, buckets and extents; each key where a reader looks for it, once, and in the part's range
//   extents   in use, and large enough
//
// Three checks concern the part as a whole. They are made only if nothing was written from the first slice to the last,
// and if nothing is being freed gradually (whole()): the header's counts, the buckets' counts of keys that are
// elsewhere, and that each extent in use belongs to one key.
//
// Not thread-safe: used on the thread that writes the region.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "cell/region/extent_allocator.h"
#include "cell/region/extent_marks.h"
#include "pilaf/hash_table.h"

namespace cell {

class HashCheck {
 public:
  struct Slice {
    const HashTable& table;     // The same in each slice.
    int64_t bytes = INT64_MAX;  // The slice ends when about this many bytes were verified.
    bool settled = true;        // Nothing of the region is being freed gradually: the rest of what was split off.
    std::function<absl::flat_hash_set<uint64_t>()> reserved = [] { return absl::flat_hash_set<uint64_t>(); };
  };
  // Continues. Returns whether the check has ended. Returns DataLoss with what is wrong; the check has ended then, too.
  absl::StatusOr<bool> Step(const Slice& slice);

  // After the end: returns whether the part was compared as a whole.
  bool whole() const { return whole_; }

 private:
  absl::Status CheckUnit(const Slice& slice);
  absl::Status CompareCounts(const HashTable& table) const;

  uint32_t unit_ = 0;  // The next one.
  bool begun_ = false;
  bool counted_ = false;
  bool whole_ = true;
  uint64_t stores_ = 0;  // Of the region at the end of the last slice.
  int64_t left_ = 0;     // Bytes that this slice may still verify.
  uint64_t keys_ = 0, expiring_ = 0;
  uint64_t away_ = 0, said_away_ = 0;  // Keys that are not in the first of their buckets: found, and counted there.
  ExtentMarks pointed_;
  ExtentAllocator::WalkState extents_;
  absl::flat_hash_set<uint64_t> reserved_;
  uint64_t blocks_ = 0, unowned_ = 0;
};

}  // namespace cell
