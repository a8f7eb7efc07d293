// Defines the lifecycle of a region that a worker holds, and the claims on it.
//
//   from      to        when
//   (new)     kFilling  a split begins it, or it is created for a new table or a new root of the tree
//   (new)     kServing  it is the first region of its cluster
//   (new)     kFrozen   it comes from another worker, or from its log: its own log cannot be written yet
//   kFilling  kServing  it has become part of the tree, or of a table
//   kServing  kFrozen   a split is about to cut it, a migration copies its last pages, or its left neighbour takes it
//   in kFrozen   kServing  the cut is on disk; the migration or the join is cancelled; its own log can be written
//   kFrozen   (gone)    its left neighbour has what it had
//   kFrozen   kSealed   a migration has copied all of it
//   kSealed   kServing  the migration's target did not take it, and the worker has taken it back
//   kSealed   (gone)    the target has it
//   any       kLost     another worker has taken it over, or may have; or its log has failed, and will be replayed
//   kLost     (gone)    nothing claims it any more
#pragma once

#include <cstdint>
#include <string_view>

namespace cell {

enum class RegionState : uint8_t {
  kFilling,  // Not yet part of the tree, or of a table. Read and written by what fills it, but not for clients.
  kServing,  // Read and written.
  kFrozen,   // Read but not written: writes wait.
  kSealed,   // Neither read nor written: another worker has it, or is about to.
  kLost,     // Neither, permanently.
};

// Returns whether a region may change from one state to another.
constexpr bool CanChange(RegionState from, RegionState to) {
  switch (to) {
    case RegionState::kFilling:
      return false;
    case RegionState::kServing:
      return from == RegionState::kFilling || from == RegionState::kFrozen || from == RegionState::kSealed;
    case RegionState::kFrozen:
      return from == RegionState::kServing;
    case RegionState::kSealed:
      return from == RegionState::kFrozen;
    case RegionState::kLost:
      return from != RegionState::kLost;
  }
  return false;
}

// Says why a region is claimed. Only the holder of the claim may split, migrate, checkpoint or drop a claimed region.
enum class ClaimPurpose : uint8_t {
  kFill,          // It is new, and being filled.
  kSplit,         // A part of it is moved to a new region.
  kMigrate,       // It is migrating to another worker, or has just come from one.
  kCheckpoint,    // It is being written to a checkpoint.
  kRecover,       // It is being recovered from its log.
  kRoute,         // The tier above does not lead to it yet.
  kRouteBlocked,  // The same, and it waits to try again: that tier has no room. This may last, and so the claim yields
                  // to one that may give room (RegionClaim::TakeOver).
  kJoin,          // It takes in its right neighbour, or is taken in by its left one.
  kClear,         // All its pairs are deleted at once, and what they used is being freed.
};

}  // namespace cell
