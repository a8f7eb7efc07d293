// RegionJoin moves all that a region has to its left neighbour, step by step. Joiner drives it. The left neighbour of a
// part of a table is the part below it.
//
//   copy     some pairs at a time; nothing is written to the right region, and the left one takes writes
//   finish   the left region covers what the right one did, at once
//   undo     instead: what was copied is removed again, a bit at a time
//
// There is one implementation for meganodes (cell/tree/meganode_join.h) and one for parts of Pilaf tables
// (pilaf/hash_join.h). Not thread-safe: only the thread that writes both regions may use it.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "cell/server/region/held_region.h"

namespace cell {

class RegionJoin {
 public:
  // Returns whether two regions together are small enough to be joined. REQUIRES for this and for Begin: `right` is the
  // right neighbour of `left`.
  static bool Fits(const HeldRegion& left, const HeldRegion& right);
  // Returns whether a step of the copy leaves room for the writes that are prepared for the left region. REQUIRES for
  // Begin: it does.
  static bool LeavesRoom(const HeldRegion& left);
  // Begins to join two regions. A step of Copy copies about `copied` entries. Both must outlive the result.
  static std::unique_ptr<RegionJoin> Begin(HeldRegion* left, HeldRegion* right, size_t copied);
  virtual ~RegionJoin() = default;

  // Append the records that are before and after the copied pairs to the log of `left`. REQUIRES: it has a log.
  virtual void LogBegin() const = 0;
  virtual void LogEnd() const = 0;
  // Copies as much as fits into `steps` steps. Returns true when all is copied. After an error, call Undo.
  virtual absl::StatusOr<bool> Copy(size_t steps) = 0;
  // Finishes the join. For a part of a table it invalidates `right`; for a meganode the caller does so, before `left`
  // takes a write. REQUIRES: Copy returned true.
  virtual void Finish() = 0;
  // Removes some of what was copied. Returns true when nothing is left. Nothing may be written to `right` before that.
  // REQUIRES: Finish was not called, and `left` is not lost.
  virtual bool Undo() = 0;
};

}  // namespace cell
