// Names mutants: protections that the simulation removes one at a time, to show that it would notice their absence
// (docs/testing.md).
//
// Production programs have none: there Mutated is false at compile time, and the code that it guards is not compiled
// in. Only builds with --config=mutants, and the parts of //tests/simulation:mutants_test, have them.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace cell {

enum class Mutant {
  kNone,
  // Available in any build: simulated clusters inject these from outside.
  kNoFence,          // A log is synced even if another worker has claimed the region.
  kSyncedTooEarly,   // A sync reports success without syncing.
  kNoLeaseWait,      // A recovered region is served at once, without waiting for the old lease to end.
  kNoServerLease,    // A server keeps serving however long ago its session was last renewed.
  kLeaseByFollower,  // A coordinator that has lost its leader renews a server's lease.
  // Available only in builds with mutants.
  kNoVersionCheck,  // A reader ignores a node's versions.
  kNoNodeCrc,       // A reader ignores a node's CRC.
  kNoExtentCrc,     // Keys and values that were read one-sided are not checked against their CRC.
  kLostSeparator,  // Nobody tells the parent of a node's split: neither the splitter nor a later writer that passes by.
  kRightLinkTooEarly,     // A meganode's split cuts the left part and links right before the right part is copied.
  kOldCopyStays,          // The nodes that a meganode's split has moved are not invalidated at their old location.
  kSealedTooLate,         // A region that was migrated away is served, and written to, until it is dropped.
  kEpochUnchecked,        // The region table changes a region's owner without comparing epochs.
  kTableLeaseUnchecked,   // A client trusts what it reads by a region table of any age.
  kStaleCacheTrusted,     // A search that a cached meganode cannot serve reports the key as absent.
  kCuckooFromFront,       // A chain of hash slots is moved from its front, so that a key is briefly nowhere.
  kNoSecondLook,          // A lookup reports "absent" without checking again for pairs that were moved meanwhile.
  kAppliedBeforeLog,      // With sync, a write can be read before it is on disk.
  kFenceCheckedTooEarly,  // A log flush looks for fences before its sync instead of after it.
  kNoDirectorySync,       // A new segment can be written before its name is on disk.
  kCheckpointUnsynced,    // A checkpoint gets its name before its content is on disk.
  kFailedPlainly,         // A write whose log failed is reported as not applied.
  kScanGivesEmpty,        // A scan returns large values that it could not fetch as empty ones.
  kScanEndsEarly,         // A scan by calls ends when a large value has changed.
  kScanSkipsUnleased,     // A scan does not repeat what it read without a lease.
  kNoFetchCrc,            // A value that came in pieces is not checked against its CRC.
  kUploadsOfTheDead,      // Uploads of disconnected clients still count towards the limit.
  kSleepsPastDeadline,    // A search for a region's owner sleeps past the deadline.
  kDescriptorsFailLogs,   // A log that cannot be opened for want of a descriptor counts as failed.
  kCancelledPlainly,      // A write whose client was destroyed is reported as not applied.
  kErrorIsRefusal,        // Any error of a region table change is reported as a refusal.
  kHeldUnleased,          // A write that waited is executed though the server's lease has lapsed meanwhile.
  kForeignFormatTorn,     // A log of an unknown format counts as never written whole.
  kLeafAheadUnchecked,    // A scan takes a leaf that it read ahead without regard to the leaf before it.
  kChangeReadsRegions,    // A region table change, which runs in another thread, reads the regions that a worker holds.
  kStampKept,             // A put that stores an equal value keeps the pair's stamp.
  kConditionOfStored,     // A condition does not see a write that is logged and not applied yet.
  kRefusedTooEarly,       // A condition that does not hold is answered before what it saw is on disk.
  kStampsAgain,           // A region's next owner does not look at the bounds of stamps in its log.
  kLocksUnseen,           // Readers of memory do not see that a transaction holds a key.
  kHeldUnshown,           // The owner of a table's part does not show readers which keys transactions hold.
  kHeldStillBelow,        // A held key of a part that was split off is still found in the part below.
  kPrepareUnsynced,       // A transaction counts as prepared before that is on disk.
  kNoTombstone,           // A transaction that was asked about, and not known, may still commit.
  kCommitPiecemeal,       // The writes of a transaction are seen one after the other.
  kReadsUnheld,           // What a transaction has read can change before it commits.
  kTokenUnchecked,        // A transaction that only reads commits though a leaf has changed.
  kTokenOfLockedLeaf,     // A get by its server says that a leaf is unchanged in which a transaction may write.
  kTokenUnleased,         // A transaction that only reads trusts memory of a region that may be elsewhere by now.
  kOpenForgotten,         // An outcome of which other regions have to hear is forgotten.
  kAbortUnknown,          // A client that does not know whether a transaction has committed aborts it elsewhere.
  kSnapshotUnstill,       // A region counts as still while writes are under way in it.
  kSnapshotWritten,       // A region takes writes while it is still.
  kSnapshotGoesOn,        // A region that went on by itself, after waiting too long, says that it was still.
  kSnapshotKeepsLast,     // A snapshot has what a pair was before its last change, instead of its first.
  kSnapshotUnsplit,       // The upper part of a split region does not get what was kept.
  kAppliedAgain,          // A function whose request comes a second time is applied a second time.
  kRefusedForgotten,      // A function that changes nothing when it comes again may be applied by an earlier request.
  kOutcomesUnread,        // A region's next owner does not read the outcomes of functions in its log.
  kOutcomesStay,          // A migration leaves the outcomes of functions behind.
  kOutcomesUnsplit,       // The upper part of a split region does not get them.
  kOutcomesTrimmed,       // A checkpoint lets the log's trim remove them.
  kLowKeyUnchecked,       // A walk follows a pointer to a node whose low key is above the wanted key.
  kMergedNodeStays,       // A node that was merged into its neighbour is not invalidated before it is used again.
  kReusedNodeVisible,     // A node that is used again can be seen before the node that leads to it is published.
  kJoinedStays,           // A region that was joined can be read while its left neighbour takes writes to its keys.
  kJoinedPartStays,       // The same for a part of a table: it is not invalidated before that.
  kJoinLeftovers,         // What a join of two parts that failed has copied stays, while the upper one is written.
  kJoinUnlogged,          // A region is joined before its left neighbour's log has what it had.
  kJoinAlwaysCounts,      // A recovery takes a region for joined although the region table still lists it.
  kJoinsWithoutCut,       // A recovery takes what an earlier attempt has copied for a part of the join.
  kClearedLate,           // A meganode is seen empty while some of its nodes can still be read.
  kExpiredByReads,        // A client that reads by itself takes every pair for one that has not expired.
  kExpiredBeforePut,      // A pair that has expired is deleted although a put of its key is logged and not yet applied.
  kEvictsAll,             // A pair is evicted that no rule allows to be evicted.
  kMovedFromLeaf,         // A leaf keeps pointing at an extent that was moved, and is freed.
  kRootUnchecked,        // A part of a table serves a request for a meganode, and a meganode one for a part of a table.
  kEpochsBeginAgain,     // A region begins at epoch 1 although earlier ones have had its id.
  kGoneById,             // A region counts as not gone if a later one has its id.
  kCompactsFrozen,       // Extents are moved while a region is frozen, and its last pages are read for a migration.
  kRightsKept,           // A connection keeps the rights that its user had when it was first looked up.
  kReadersKept,          // Who may read memory is decided when a worker starts, and never again.
  kScanPastGrant,        // A scan that begins where its user may scan goes on where the user may not.
  kRangeByBegin,         // A range may be counted or deleted by a user who may do so at its begin.
  kTablesOfOld,          // What table a region is part of is looked up once, by the first region table.
  kMadeBeforeEntered,    // An object of a log is made before the head has an entry for it.
  kSegmentsFencedFirst,  // A fence raises the epochs of a log's segments before the head's.
  kUnguardedAppend,      // An append to a log in objects does not depend on the object's epoch.
  kAppendRepeated,       // An append whose answer was lost is sent again, as if it had not been made.
  kTableAgeIgnored,      // A lease that a server confirms counts from the question, however old the server's table is.
  kTableAgeFromAnswer,   // A server takes the region table for as new as the answer that brought it, not the request.
  kOlderTableTaken,      // A client takes over whatever region table a server tells it, also an older one.
  kPartOfAnyVersion,     // A server answers with its newest part of the region table, whichever version was asked for.
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
    MutantName{Mutant::kLeafAheadUnchecked, "leaf-ahead-unchecked", false},
    MutantName{Mutant::kChangeReadsRegions, "change-reads-regions", false},
    MutantName{Mutant::kStampKept, "stamp-kept", false},
    MutantName{Mutant::kConditionOfStored, "condition-of-stored", false},
    MutantName{Mutant::kRefusedTooEarly, "refused-too-early", false},
    MutantName{Mutant::kStampsAgain, "stamps-again", false},
    MutantName{Mutant::kLocksUnseen, "locks-unseen", false},
    MutantName{Mutant::kHeldUnshown, "held-unshown", false},
    MutantName{Mutant::kHeldStillBelow, "held-still-below", false},
    MutantName{Mutant::kPrepareUnsynced, "prepare-unsynced", false},
    MutantName{Mutant::kNoTombstone, "no-tombstone", false},
    MutantName{Mutant::kCommitPiecemeal, "commit-piecemeal", false},
    MutantName{Mutant::kReadsUnheld, "reads-unheld", false},
    MutantName{Mutant::kTokenUnchecked, "token-unchecked", false},
    MutantName{Mutant::kTokenOfLockedLeaf, "token-of-locked-leaf", false},
    MutantName{Mutant::kTokenUnleased, "token-unleased", false},
    MutantName{Mutant::kOpenForgotten, "open-forgotten", false},
    MutantName{Mutant::kAbortUnknown, "abort-unknown", false},
    MutantName{Mutant::kSnapshotUnstill, "snapshot-unstill", false},
    MutantName{Mutant::kSnapshotWritten, "snapshot-written", false},
    MutantName{Mutant::kSnapshotGoesOn, "snapshot-goes-on", false},
    MutantName{Mutant::kSnapshotKeepsLast, "snapshot-keeps-last", false},
    MutantName{Mutant::kSnapshotUnsplit, "snapshot-unsplit", false},
    MutantName{Mutant::kAppliedAgain, "applied-again", false},
    MutantName{Mutant::kRefusedForgotten, "refused-forgotten", false},
    MutantName{Mutant::kOutcomesUnread, "outcomes-unread", false},
    MutantName{Mutant::kOutcomesStay, "outcomes-stay", false},
    MutantName{Mutant::kOutcomesUnsplit, "outcomes-unsplit", false},
    MutantName{Mutant::kOutcomesTrimmed, "outcomes-trimmed", false},
    MutantName{Mutant::kLowKeyUnchecked, "low-key-unchecked", false},
    MutantName{Mutant::kMergedNodeStays, "merged-node-stays", false},
    MutantName{Mutant::kReusedNodeVisible, "reused-node-visible", false},
    MutantName{Mutant::kJoinedStays, "joined-stays", false},
    MutantName{Mutant::kJoinedPartStays, "joined-part-stays", false},
    MutantName{Mutant::kJoinLeftovers, "join-leftovers", false},
    MutantName{Mutant::kJoinUnlogged, "join-unlogged", false},
    MutantName{Mutant::kJoinAlwaysCounts, "join-always-counts", false},
    MutantName{Mutant::kJoinsWithoutCut, "joins-without-cut", false},
    MutantName{Mutant::kClearedLate, "cleared-late", false},
    MutantName{Mutant::kExpiredByReads, "expired-by-reads", false},
    MutantName{Mutant::kExpiredBeforePut, "expired-before-put", false},
    MutantName{Mutant::kEvictsAll, "evicts-all", false},
    MutantName{Mutant::kMovedFromLeaf, "moved-from-leaf", false},
    MutantName{Mutant::kRootUnchecked, "root-unchecked", false},
    MutantName{Mutant::kEpochsBeginAgain, "epochs-begin-again", false},
    MutantName{Mutant::kGoneById, "gone-by-id", false},
    MutantName{Mutant::kCompactsFrozen, "compacts-frozen", false},
    MutantName{Mutant::kRightsKept, "rights-kept", false},
    MutantName{Mutant::kReadersKept, "readers-kept", false},
    MutantName{Mutant::kScanPastGrant, "scan-past-grant", false},
    MutantName{Mutant::kRangeByBegin, "range-by-begin", false},
    MutantName{Mutant::kTablesOfOld, "tables-of-old", false},
    MutantName{Mutant::kMadeBeforeEntered, "made-before-entered", false},
    MutantName{Mutant::kSegmentsFencedFirst, "segments-fenced-first", false},
    MutantName{Mutant::kUnguardedAppend, "unguarded-append", false},
    MutantName{Mutant::kAppendRepeated, "append-repeated", false},
    MutantName{Mutant::kTableAgeIgnored, "table-age-ignored", false},
    MutantName{Mutant::kTableAgeFromAnswer, "table-age-from-answer", false},
    MutantName{Mutant::kOlderTableTaken, "older-table-taken", false},
    MutantName{Mutant::kPartOfAnyVersion, "part-of-any-version", false},
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
