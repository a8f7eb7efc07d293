// Joiner joins a worker's regions that deletes have left small with their neighbours, while the worker serves them:
// meganodes, and parts of Pilaf tables, whose left neighbour is the part below. It also merges leaves that deletes have
// left small while that was not possible, because a region was being split. The thesis (4.2) never does, so that keys
// that are put in order and deleted would use up all regions.
//
// A region takes in its right neighbour, which goes. The order of the steps makes it safe to die at any of them:
//
//   a meganode's route is removed from the tier above, and from that one's log      nobody waits: its left neighbour
//                                                                                   leads to it
//   its pairs are copied to the left one, some at a time                            writes to the right one wait, from
//   with logs: what was copied is in the left one's log, and the join's record is   here...
//   the region table removes the right one
//   the left one covers the right one's keys, and the right one is dropped          ...to here
//   its log is removed                                                              nobody waits
//
// The change of the region table decides. A recovery of the left one before it finds the right one in the table, and
// disregards what was copied; a recovery after it finds all of it in the left one's log (cell/log/log_replay.h). No
// one-sided reader is led astray, because the right one is not written from the copy on, and the left one takes no
// write to its keys before it is invalidated (cell/tree/meganode_join.h, pilaf/hash_join.h). If a join of parts fails,
// what was copied is removed before the right one is written again.
//
// The leftmost meganode of a tier stays. A meganode whose route is the first of its node stays for now, too
// (Meganode::RemoveRoute): it takes its own right neighbours in. A root of the tree that leads to one meganode goes,
// and that one becomes the root.
//
// Joined are meganodes from which more was deleted than is left, if both together fill less than half of one,
// or if it is empty and its left neighbour is not nearly full (MeganodeJoin::Fits). Splits leave both halves fuller, so
// none is split and joined in turns. A small meganode whose right neighbour is elsewhere migrates there first.
//
// The same holds for parts of a table, except that an empty one has no other limit, and that a table keeps as many
// parts as it was created with (HashParts::parts_min).
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>

#include "absl/status/status.h"
#include "cell/base/clock.h"
#include "cell/base/task.h"
#include "cell/server/change/migrator.h"
#include "cell/server/change/route_publisher.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/request/held_writes.h"

namespace cell {

struct JoinerOptions {
  bool enabled = true;  // Join regions automatically.
  // A region is joined only if more than this many entries were deleted from it for each that is left. So one that an
  // operator has split stays split. An empty one is always joined.
  double deleted_per_left = 1;
  int64_t every_ns = 100'000'000;
  int64_t migrate_again_after_ns = 60'000'000'000;  // A migration to the same neighbour that did not lead to a join.
  int64_t failed_pause_ns = 1'000'000'000;          // After a join, a migration or the removal of the root has failed.
  size_t copied = 64;                               // Entries in one step of the worker's loop.
};

class Joiner {
 public:
  // All arguments must outlive this. A join runs faster if `held` has writes to the region that goes.
  Joiner(const WorkerContext& context, Migrator* migrator, RoutePublisher* routes, const HeldWrites* held,
         JoinerOptions options);

  // Begins a join, or the migration that must come before it, if one is due.
  void Step();

  // Begins a join now if one is possible, because a split has found no room for one more region. Returns whether a
  // join, a migration before one, or the removal of the root is in progress.
  bool MakeRoom();

  // Joins a region with its left neighbour, whatever its fill. Returns NotFound if it is not held here, Aborted if
  // one of the two is being changed, ResourceExhausted if both do not fit well into one, and FailedPrecondition if it
  // cannot be joined, with the reason. After any error both are as before.
  Task<absl::Status> Join(uint32_t region);
  // Removes the root of the tree, if it leads to one meganode. Returns FailedPrecondition if it does not, NotFound if
  // it is not held here, and Aborted if it is being changed. After any error it is as before.
  Task<absl::Status> LowerRoot();

  struct Counters {
    uint64_t joins = 0;       // Of meganodes.
    uint64_t part_joins = 0;  // Of parts of tables.
    uint64_t failed = 0;      // Of both.
    uint64_t roots_removed = 0;
    uint64_t migrations = 0;         // To the worker of a neighbour.
    uint64_t longest_frozen_ns = 0;  // While writes to the region that went waited.
  };
  const Counters& counters() const { return counters_; }

 private:
  // Returns the meganode whose right neighbour `region` is, or null if that is not held here.
  HeldRegion* LeftOf(const HeldRegion& region) const;
  // Returns the right neighbour of a meganode, or null if that is not held here, or if there is none.
  HeldRegion* RightOf(const HeldRegion& region) const;
  // Merges the small leaves of regions that have some beside each other.
  Task<bool> MergeLeaves();
  // Begins a join of two parts of a table, or the migration that must come before it, if one is due.
  void BeginForParts();
  // Returns a part of a table, or null if it is not held here.
  HeldRegion* PartOf(uint32_t region) const;
  // Returns the region of the next lower part of the same table, by the region table. Returns 0 for the lowest part.
  uint32_t LowerPartOf(const HeldRegion& region) const;
  // Returns whether deletes have left the region small.
  bool IsShrunk(const HeldRegion& region) const;
  static bool MayJoin(const HeldRegion& region);
  // The same for one that its left neighbour takes in: it may be waiting for its route, too.
  static bool MayGo(const HeldRegion& region);
  bool Fit(const HeldRegion* left, const HeldRegion* right) const;
  // Returns the only meganode that `region` leads to, if that is the root of the tree. Else returns 0.
  uint32_t OnlyChildOf(const HeldRegion& region) const;
  Task<bool> LowerRootAlone();
  struct Neighbours {
    RegionClaim left, right;
    bool has_route;  // The tier above leads to the right one. True for parts of tables.
  };
  // REQUIRES: MayJoin(*left) and MayGo(*right).
  static Neighbours ClaimBoth(HeldRegion* left, HeldRegion* right);
  Task<bool> JoinAlone(Neighbours neighbours);
  Task<absl::Status> JoinClaimed(Neighbours neighbours);
  // Freezes the right one, copies it, and makes the change. After an error the right one serves again.
  Task<absl::Status> CopyAndCommit(HeldRegion* left, HeldRegion* right);
  Task<absl::Status> Copy(HeldRegion* left, HeldRegion* right, class RegionJoin* join);
  // Begins to migrate a small region to the worker of its right neighbour, if that is elsewhere. Returns whether it
  // did.
  bool BeginMigration(HeldRegion* region, uint32_t right);
  // A region and its right neighbour, each with its id and first epoch, because ids are used again.
  using Pair = std::array<uint64_t, 4>;
  Pair PairOf(uint32_t left, uint32_t right) const;
  Task<bool> Migrate(uint32_t region, WorkerId to, Pair pair);
  // Reaches a sync point: "join: STEP", or "table join: STEP".
  void Reach(bool of_table, std::string_view step) const;

  const WorkerId self_;
  const Clock* const clock_;
  Membership* const membership_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  LogFlusher* const logs_;
  const SyncPoints* const sync_points_;
  Migrator* const migrator_;
  RoutePublisher* const routes_;
  const HeldWrites* const held_;
  const JoinerOptions options_;
  int64_t look_at_ns_ = 0;
  bool busy_ = false;                               // With a join, with a migration before one, or with the root.
  bool merging_ = false;                            // MergeLeaves runs.
  std::map<Pair, int64_t> not_before_ns_;           // For neighbours that could not be joined.
  std::map<Pair, int64_t> not_migrated_before_ns_;  // For regions and their right neighbours, to which they were moved.
  Counters counters_;
};

}  // namespace cell
