// Flushes a worker's logs to the store, in groups.
//
//   none    no region has a log
//   async   a change is applied, appended and acknowledged at once; a flush begins within half of the bound. While a
//           region's oldest record that is not on disk is older than the bound, its writes wait. So everything that a
//           crash can lose was acknowledged within one bound, however slow the disk is
//   sync    a write is appended first, and applied and acknowledged when it is on disk (WritePipeline). Flushes follow
//           each other; records that come during one go with the next. Clients whose writes a flush has acknowledged
//           send the next ones a moment later. So the next flush waits for these a little, as part of what the last one
//           took. Otherwise it would take the first of them alone, and the others would wait for it
//
// A log that has been idle, or was closed (Finish), ends with a marker, which says that the last record is on disk.
// Recovery therefore distinguishes a record that was damaged later from one that was never written whole.
//
// Each flush of a meganode's log takes a bound of its stamps along if the last one will not do for long (log_record.h).
//
// Blocking work runs on a thread pool. A log that has failed stays failed: its region can be read, but not written,
// until the disk answers again and the region is claimed at the next epoch (Recoverer). An open that finds no
// descriptor is not a failure of the log, and is tried again.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <memory>
#include <string>

#include "cell/base/mutant.h"
#include "cell/cluster/membership.h"
#include "cell/io/exec/thread_pool.h"
#include "cell/log/log_store.h"
#include "cell/server/region/regions.h"
#include "cell/server/sched/scheduler.h"

namespace cell {

struct LogFlusherOptions {
  Durability durability = Durability::kNone;
  int64_t bound_ns = 10'000'000;
  // How much of an unflushed log is kept in memory before writes wait.
  size_t waiting_bytes_max = size_t{16} << 20;
  // How long a log has been completely on disk before it is marked. The marker costs one more sync.
  int64_t mark_after_ns = 100'000'000;
  // How long Finish waits for a disk that completes nothing.
  int64_t finish_patience_ns = 10'000'000'000;
  int64_t descriptor_pause_ns = 10'000'000;  // Pause before an open that found no descriptor is tried again.
  // With sync, how long a flush waits at most until as many records are there as before the end of the last flush: in
  // percent of what that one took, and in total.
  int64_t gather_percent = 25;
  int64_t gather_max_ns = 1'000'000;
};

class LogFlusher {
 public:
  // The store of the logs, and the thread pools that work on them. All are null without durability.
  struct Storage {
    LogStore* store = nullptr;
    ThreadPool* disk = nullptr;    // Flushes and checkpoints.
    ThreadPool* replay = nullptr;  // Recoveries, which take long; no flush may wait for them.
  };

  // All arguments must outlive this.
  LogFlusher(Fabric* fabric, Scheduler* scheduler, Regions* regions, const Storage& storage, LogFlusherOptions options)
      : fabric_(fabric),
        scheduler_(scheduler),
        regions_(regions),
        store_(storage.store),
        disk_(storage.disk),
        replay_(storage.replay),
        options_(options) {}

  Durability durability() const { return options_.durability; }
  bool on() const { return options_.durability != Durability::kNone; }
  bool log_first() const { return options_.durability == Durability::kSync && !Mutated(Mutant::kAppliedBeforeLog); }
  LogStore* store() { return store_; }

  // Runs a blocking function on the disk pool: co_await RunOnDisk(work). RunReplay does the same with long work, on the
  // replay pool.
  RunInPool RunOnDisk(const RunInPool::Work& work) { return RunInPool(disk_, work); }
  RunInPool RunReplay(const RunInPool::Work& work) { return RunInPool(replay_, work); }

  // Makes a log for a region that was just created, with its range, and brings it to disk. Does nothing without
  // durability. Removes what earlier regions with this id have left. Returns AlreadyExists if the region has a log
  // already, which stays unchanged.
  Task<absl::Status> Create(uint32_t region);
  // Returns whether a region that was just created already had a log. The region table is then older than the logs, and
  // regions that it does not list may still be needed.
  bool found_anothers() const { return found_anothers_; }
  // Continues the log of a region that came from another worker, or back, at `epoch`.
  Task<absl::Status> Continue(uint32_t region, uint64_t epoch);
  // Waits until everything that was appended to the region's log is on disk, and a bound of its stamps that will do for
  // some time. Returns an error if it never will be.
  Task<absl::Status> Flushed(uint32_t region);
  // Waits until everything in the region's log is applied, too, and no transaction has a part there. Returns
  // Unavailable if transactions do not end in 100 ms: their other regions may be away, or frozen like this one.
  // REQUIRES: the region is frozen.
  Task<absl::Status> Settled(uint32_t region);
  // Opens the region's log at a sequence number. An open that finds no free descriptor is tried again until there is
  // one.
  Task<absl::Status> Open(uint32_t region, uint64_t epoch, uint64_t sequence, std::unique_ptr<LogWriter>* writer);

  // Removes the log of a region that does not exist any more and has been owned until `last_epoch`. Leaves that of a
  // later region with this id alone. Does nothing without durability. Returns false, and logs the reason, if that
  // failed.
  Task<bool> RemoveLog(uint32_t region, uint64_t last_epoch);

  // Reports work that the pools have finished. Returns how many pieces.
  size_t Poll() { return on() ? disk_->Poll() + replay_->Poll() : 0; }
  // Begins what is due.
  void Step();
  // Returns when Step has something to do, or INT64_MAX if there is nothing.
  int64_t NextNs() const { return next_ns_; }
  // Flushes everything that was appended, and waits for it. Returns DeadlineExceeded if the disk has completed nothing
  // for the options' patience. The disk then still has work that refers to this. The message says what may not be on
  // disk.
  absl::Status Finish();

  struct Counters {
    uint64_t flushes = 0, markers = 0, failed = 0;
    uint64_t flushed_bytes = 0;
    uint64_t flushing_ns = 0;  // The sum of all flushes. Those of several regions overlap.
    uint64_t longest_flush_ns = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  // Records the end of each log that has ended (LogStore::NoteEnd). Returns the same errors as Finish.
  absl::Status NoteEnds();
  absl::Status Unfinished() const;
  void Look(HeldRegion* region, int64_t now_ns);
  void MarkIfIdle(HeldRegion* region, int64_t now_ns);
  // Appends a bound of the stamps unless the last one will do.
  void BoundStamps(HeldRegion* region);
  void BeginFlush(HeldRegion* region);
  // Notes that the last bound of the stamps is on disk, if it is.
  static void NoteStampBound(HeldRegion* region);
  // Notes that a flush has ended, before which `records` were not on disk.
  void NoteFlush(HeldRegion* region, uint64_t records, int64_t took_ns);
  // Returns when the next flush begins at the latest. REQUIRES: the log is dirty, and dirty_since_ns is known.
  int64_t DueNs(const HeldRegion& region) const;

  Fabric* const fabric_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  LogStore* const store_;
  ThreadPool* const disk_;
  ThreadPool* const replay_;
  const LogFlusherOptions options_;
  int64_t next_ns_ = INT64_MAX;
  bool finishing_ = false;
  bool found_anothers_ = false;
  Counters counters_;
};

}  // namespace cell
