// Mutants: protections that the simulation takes out one at a time, to show that it would notice (docs/testing.md).
//
// Programs that anybody runs have none: there Mutated is false at compile time, and what it guards is not compiled in.
// Only a build with --config=mutants, or what //tests/simulation:mutants_test is made of, has them.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace cell {

enum class Mutant {
  kNone,
  // In any build: simulated clusters put these in from outside.
  kNoFence,          // A log is synced whoever has the region by now.
  kSyncedTooEarly,   // A sync says that it is done, and is not.
  kNoLeaseWait,      // What is recovered is served at once.
  kNoServerLease,    // A server serves however long its session has not been renewed.
  kLeaseByFollower,  // A server's lease is renewed by a coordinator that has lost its leader.
  // In builds with mutants.
  kNoVersionCheck,        // A node is read without a look at its versions.
  kNoNodeCrc,             // Or at its CRC.
  kNoExtentCrc,           // Keys and values that were read one-sided are not compared with their CRC.
  kLostSeparator,         // The parent never hears of a node that was split, by whom it is split or by who passes.
  kRightLinkTooEarly,     // A meganode's split cuts, and points right, before all of the right part is copied.
  kOldCopyStays,          // What a meganode's split has moved is not invalidated where it was.
  kSealedTooLate,         // A region that was given away is served, and written to, until it is dropped.
  kEpochUnchecked,        // The region table changes owners whatever epoch they thought it was.
  kTableLeaseUnchecked,   // A client believes what it reads by a region table of any age.
  kStaleCacheTrusted,     // A search that a remembered meganode cannot serve says that the key is absent.
  kCuckooFromFront,       // A chain of hash slots is moved from its front: a key is nowhere for a moment.
  kNoSecondLook,          // A lookup says "absent" without looking again at what may have been moved.
  kAppliedBeforeLog,      // With sync, a write can be read before it is on disk.
  kFenceCheckedTooEarly,  // A log is synced after it looked for fences, instead of before.
  kNoDirectorySync,       // A new segment can be written before its name is on disk.
  kCheckpointUnsynced,    // A checkpoint gets its name before it is on disk.
  kFailedPlainly,         // A write whose log failed is said not to have happened.
  kScanGivesEmpty,        // A scan gives large values that it could not fetch as empty ones.
  kScanEndsEarly,         // A scan by calls ends when a large value has changed.
  kScanSkipsUnleased,     // A scan does not go back to what it read without a lease.
  kNoFetchCrc,            // A value that came in pieces is not compared with its CRC.
  kUploadsOfTheDead,      // The uploads of clients that have gone still count.
  kSleepsPastDeadline,    // A search for a region's owner pauses for as long as it likes.
  kDescriptorsFailLogs,   // A log that finds no descriptor to be opened with has failed.
  kCancelledPlainly,      // A write whose client was destroyed is said not to have happened.
  kErrorIsRefusal,        // Any error of a change to the region table says that the table would not have it.
  kHeldUnleased,          // A write that waited is carried out though the server's lease has lapsed meanwhile.
  kForeignFormatTorn,     // A log of a format that is not known counts as never written whole.
  kChangeReadsRegions,    // A change of the region table, which runs in another thread, reads what a worker holds.
};

struct MutantName {
  Mutant mutant;
  std::string_view name;
  bool in_any_build;
};
inline constexpr std::array kMutantNames = {
    MutantName{Mutant::kNoFence, "no-fence", true},
    MutantName{Mutant::kSyncedTooEarly, "synced-too-early", true},
    MutantName{Mutant::kNoLeaseWait, "no-lease-wait", true},
    MutantName{Mutant::kNoServerLease, "no-server-lease", true},
    MutantName{Mutant::kLeaseByFollower, "lease-by-follower", true},
    MutantName{Mutant::kNoVersionCheck, "no-version-check", false},
    MutantName{Mutant::kNoNodeCrc, "no-node-crc", false},
    MutantName{Mutant::kNoExtentCrc, "no-extent-crc", false},
    MutantName{Mutant::kLostSeparator, "lost-separator", false},
    MutantName{Mutant::kRightLinkTooEarly, "right-link-too-early", false},
    MutantName{Mutant::kOldCopyStays, "old-copy-stays", false},
    MutantName{Mutant::kSealedTooLate, "sealed-too-late", false},
    MutantName{Mutant::kEpochUnchecked, "epoch-unchecked", false},
    MutantName{Mutant::kTableLeaseUnchecked, "table-lease-unchecked", false},
    MutantName{Mutant::kStaleCacheTrusted, "stale-cache-trusted", false},
    MutantName{Mutant::kCuckooFromFront, "cuckoo-from-front", false},
    MutantName{Mutant::kNoSecondLook, "no-second-look", false},
    MutantName{Mutant::kAppliedBeforeLog, "applied-before-log", false},
    MutantName{Mutant::kFenceCheckedTooEarly, "fence-checked-too-early", false},
    MutantName{Mutant::kNoDirectorySync, "no-directory-sync", false},
    MutantName{Mutant::kCheckpointUnsynced, "checkpoint-unsynced", false},
    MutantName{Mutant::kFailedPlainly, "failed-plainly", false},
    MutantName{Mutant::kScanGivesEmpty, "scan-gives-empty", false},
    MutantName{Mutant::kScanEndsEarly, "scan-ends-early", false},
    MutantName{Mutant::kScanSkipsUnleased, "scan-skips-unleased", false},
    MutantName{Mutant::kNoFetchCrc, "no-fetch-crc", false},
    MutantName{Mutant::kUploadsOfTheDead, "uploads-of-the-dead", false},
    MutantName{Mutant::kSleepsPastDeadline, "sleeps-past-deadline", false},
    MutantName{Mutant::kDescriptorsFailLogs, "descriptors-fail-logs", false},
    MutantName{Mutant::kCancelledPlainly, "cancelled-plainly", false},
    MutantName{Mutant::kErrorIsRefusal, "error-is-refusal", false},
    MutantName{Mutant::kHeldUnleased, "held-unleased", false},
    MutantName{Mutant::kForeignFormatTorn, "foreign-format-torn", false},
    MutantName{Mutant::kChangeReadsRegions, "change-reads-regions", false},
};

#ifdef CELL_MUTANTS
inline constexpr bool kMutants = true;
inline Mutant mutant_at_work = Mutant::kNone;
inline bool Mutated(Mutant mutant) { return mutant_at_work == mutant; }
#else
inline constexpr bool kMutants = false;
constexpr bool Mutated(Mutant) { return false; }
#endif

}  // namespace cell
