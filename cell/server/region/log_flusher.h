// LogFlusher: a worker's logs. It writes what was appended to them to the store, in groups.
//
//   none    no region has a log
//   async   a change is applied, appended and acknowledged at once; a flush begins within half of the bound. While a
//           region's oldest record that is not on disk is older than the bound, its writes wait. So a crash can lose
//           only what was acknowledged within one bound, however slow the disk is
//   sync    a write is appended, and applied and acknowledged when it is on disk (WritePipeline). Flushes follow one
//           another; what arrives during one is written by the next
//
// A log that has been idle, and one that is closed (Finish), ends with a marker: the last record is on disk. So
// recovery tells a record that was damaged later from one that was never written whole.
//
// Work that blocks runs in a ThreadPool. A log that has failed stays failed: its region can be read but not written
// until the disk answers again and the region is claimed at the next epoch (Recoverer). An open that finds no
// descriptor is no failure of the log and is tried again.
//
// Not thread-safe: the worker's thread alone.
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
  // How long all of a log has been on disk before it is marked. It costs one more sync.
  int64_t mark_after_ns = 100'000'000;
  // How long Finish waits for a disk that ends nothing.
  int64_t finish_patience_ns = 10'000'000'000;
  int64_t descriptor_pause_ns = 10'000'000;  // Until an open that found no descriptor is tried again.
};

class LogFlusher {
 public:
  // Where logs are, and who works on them. All are null without durability.
  struct Storage {
    LogStore* store = nullptr;
    ThreadPool* disk = nullptr;    // Flushes and checkpoints.
    ThreadPool* replay = nullptr;  // Recoveries, which take long: no flush is to wait for them.
  };

  // All must outlive this.
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

  // co_await RunOnDisk(work): what may block, elsewhere (RunInPool). DoReplay: the same, of what takes long.
  RunInPool RunOnDisk(const RunInPool::Work& work) { return RunInPool(disk_, work); }
  RunInPool RunReplay(const RunInPool::Work& work) { return RunInPool(replay_, work); }

  // A log for a region that was just made, with its range: on disk. Without durability nothing is done. AlreadyExists:
  // there is a log of such a region, and it stays as it is.
  Task<absl::Status> Create(uint32_t region);
  // Whether a log was found under the number of a region that was just made: then the region table is older than the
  // logs, and what it does not name may be needed.
  bool found_anothers() const { return found_anothers_; }
  // The log of a region that came from another worker, or back, at `epoch`.
  Task<absl::Status> Continue(uint32_t region, uint64_t epoch);
  // Until all that was appended to the region's log is on disk. An error: it will never be.
  Task<absl::Status> Flushed(uint32_t region);
  // Until what the region's log has is applied, too. The region is frozen.
  Task<absl::Status> Settled(uint32_t region);
  // Opens the region's log at a sequence number. An open that finds no free descriptor is tried again until there is
  // one.
  Task<absl::Status> Open(uint32_t region, uint64_t epoch, uint64_t sequence, std::unique_ptr<LogWriter>* writer);

  // Reports work that the pools have finished. Returns how many pieces.
  size_t Poll() { return on() ? disk_->Poll() + replay_->Poll() : 0; }
  // Begins what is due.
  void Step();
  // When Step has something to do by itself; INT64_MAX: never.
  int64_t NextNs() const { return next_ns_; }
  // Carries out all that was appended, and waits for it. DeadlineExceeded: the disk has ended nothing for as long as
  // the options' patience, and still has work, which refers to this. The message says what may not be on disk.
  absl::Status Finish();

  struct Counters {
    uint64_t flushes = 0, markers = 0, failed = 0;
    uint64_t longest_flush_ns = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  // Notes for each log that ends where it ends (LogStore::NoteEnd). As Finish.
  absl::Status NoteEnds();
  absl::Status Unfinished() const;
  void Look(HeldRegion* region, int64_t now_ns);
  void MarkIfIdle(HeldRegion* region, int64_t now_ns);
  void BeginFlush(HeldRegion* region);

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
