// Compactor makes the free space for extents of a worker's regions one piece again where it has become scattered
// (ExtentCompaction): in the background, and for puts that find no room for this reason alone. Such a put waits for a
// pass or two over its region, and is refused if these have not made the room.
//
// A pass moves extents in memory only. Nothing is logged, and no lease is needed: a replay of the log packs the region
// in any case. A region that is claimed, for a split, a migration or a join, is left alone: those copy it, and the
// pages of a frozen region must stay what they are.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>
#include <map>

#include "cell/base/task.h"
#include "cell/region/extent_compaction.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/region/held_region.h"

namespace cell {

class Compactor {
 public:
  // Pauses are in nanoseconds.
  struct Options {
    int64_t idle_pause_ns = 1'000'000'000;   // Between two looks for regions that are worth a pass in the background.
    int64_t turn_pause_ns = 1'000'000;       // After each turn, if no put waits.
    uint64_t bytes_per_turn = 64 << 10;      // So many bytes are moved in a turn, and at most one pair more.
    int64_t again_after_ns = 1'000'000'000;  // Until the next pass in the background over the same region, and until
                                             // puts wait again for what passes did not make room for.
    int64_t in_vain_pause_ns = 60'000'000'000;  // After a pass in the background that has gained little.
  };
  static constexpr int kStepsPerTurn = 16;  // Of ExtentCompaction: leaves that have nothing to be moved.

  // Everything in `context` must outlive this.
  Compactor(const WorkerContext& context, const Options& options);

  // Begins a pass if it is time and some region is worth it.
  void Step();

  // Returns whether a region may soon have room for an extent of `bytes` bytes: its free space is only scattered, and a
  // pass is in progress or begins now. Returns false for a while after passes that were in vain, until as many bytes
  // have become free since.
  bool MakeRoom(HeldRegion* region, uint64_t bytes);

  struct Counters {
    uint64_t passes = 0;   // That have ended.
    uint64_t in_vain = 0;  // How often passes for a put did not make the room.
    uint64_t moved = 0;    // Extents.
    uint64_t moved_bytes = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  // State of a region that has been compacted, or for which a put waits.
  struct Note {
    uint64_t wanted = 0;                   // A put of this size waits.
    uint64_t refused = UINT64_MAX;         // Passes did not make room for this size...
    int64_t refused_until_ns = INT64_MIN;  // ...and before this time puts do not wait for another...
    uint64_t refused_used = 0;             // ...unless so much less of the extents is in use than then.
    int64_t not_before_ns = INT64_MIN;     // In the background.
  };

  static bool MayCompact(const HeldRegion& region);
  void Begin();
  // Returns a region for which a put waits. Returns 0 if no put waits.
  uint32_t NextWanted() const;
  // Returns the region with the most scattered free space. Returns 0 if no region is worth a pass in the background.
  uint32_t NextInBackground() const;
  Task<bool> Run();
  // Compacts a region, for a put or in the background.
  Task<bool> Compact(uint32_t region);
  // Returns whether a put still waits for room in the region, and lacks one piece.
  bool Lacks(const HeldRegion& region) const;
  // Runs a pass. Returns whether it has come to its end, or to a leaf that was damaged in memory.
  Task<bool> Pass(uint32_t region, ExtentCompaction::Aim aim);

  const Clock* const clock_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  const Options options_;
  std::map<uint32_t, Note> notes_;
  int64_t look_at_ns_ = INT64_MIN;
  bool busy_ = false;
  Counters counters_;
};

}  // namespace cell
