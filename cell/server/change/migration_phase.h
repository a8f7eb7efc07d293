// Defines the phases of a migration as its source sees them.
//
//   from       to         when
//   (new)      kOffered   the source has claimed the region, and offers it
//   kOffered   kCopying   the target asks for the written pages (Begin)
//   kCopying   kFrozen    the target asks for the last pages (Freeze)
//   kFrozen    kSealed    the target has all of them, and everything is on disk (Seal)
//   kSealed    kSettling  the target cancels or has gone silent: only the region table knows the owner
//   kSealed    kMigrated  the target has changed the region table (Done, or the table is seen)
//   kSettling  kMigrated  the region table says that another worker has the region
//   kSettling  kKept      the source has taken the region back in the region table
//   kOffered   kKept      the target refuses the offer, or does not answer it; the log has failed
//   kCopying   kKept      the target cancels or has gone silent; the log has failed
//   kFrozen    kKept      the same
//
// In kMigrated and kKept it has ended. The region is kServing until Freeze, kFrozen until Seal, and kSealed from then
// on, unless it is lost meanwhile (cell/server/region/region_lifecycle.h).
#pragma once

#include <cstdint>

namespace cell {

enum class MigrationPhase : uint8_t {
  kOffered,   // The target has not begun.
  kCopying,   // The target copies pages while the region is read and written.
  kFrozen,    // The target copies the last pages. Writes wait.
  kSealed,    // The target may change the region table.
  kSettling,  // The source asks the region table. The target's messages do not count any more.
  kMigrated,  // The target has the region.
  kKept,      // The source has the region as before.
};

// Returns whether a migration may change from one phase to another.
constexpr bool CanChange(MigrationPhase from, MigrationPhase to) {
  switch (to) {
    case MigrationPhase::kOffered:
      return false;
    case MigrationPhase::kCopying:
      return from == MigrationPhase::kOffered;
    case MigrationPhase::kFrozen:
      return from == MigrationPhase::kCopying;
    case MigrationPhase::kSealed:
      return from == MigrationPhase::kFrozen;
    case MigrationPhase::kSettling:
      return from == MigrationPhase::kSealed;
    case MigrationPhase::kMigrated:
      return from == MigrationPhase::kSealed || from == MigrationPhase::kSettling;
    case MigrationPhase::kKept:
      return from == MigrationPhase::kOffered || from == MigrationPhase::kCopying || from == MigrationPhase::kFrozen ||
             from == MigrationPhase::kSettling;
  }
  return false;
}

}  // namespace cell
