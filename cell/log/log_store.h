// LogStore: where regions' logs and checkpoints are kept, for all servers of a cluster.
//
// It deals in bytes; what is in them says cell/layout/log_record.h. A log is a row of segments, each written by one
// owner at one epoch, and named by the sequence of its first record. A checkpoint is named by the sequence from where
// on the log is needed besides it.
//
// Fencing. After Fence(region, epoch) has returned, no Sync of a segment of a lower epoch succeeds; and what such a
// Sync has succeeded for before, List and Read see afterwards. So an owner that acknowledges only after Sync
// acknowledges nothing that its successor, who fences first and reads then, does not recover; no clocks are needed for
// it.
//
// Every call may block. Any thread; one LogWriter is one thread's at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/bytes.h"

namespace cell {

// A segment or a checkpoint that is being written.
class LogWriter {
 public:
  virtual ~LogWriter() = default;
  virtual absl::Status Append(std::string_view bytes) = 0;
  // Aborted: the region is another owner's by now. After any error the writer is of no use any more (files.h).
  virtual absl::Status Sync() = 0;
};

struct LogPart {
  enum class Kind { kSegment, kCheckpoint };
  Kind kind;
  uint64_t sequence;
  uint32_t epoch;
  std::string name;  // For messages, too.
};

class LogStore {
 public:
  virtual ~LogStore() = default;

  // Whether anything is kept of a region.
  virtual absl::StatusOr<bool> Has(uint32_t region) = 0;
  // Removes what was begun at lower epochs and never finished: nothing of it is in the log any more, however late.
  virtual absl::Status Fence(uint32_t region, uint32_t epoch) = 0;
  // A new segment, after fencing. Aborted: there is a higher epoch. AlreadyExists: there is this very segment. `first`:
  // what it begins with; it is there with that, on disk, or not at all.
  virtual absl::StatusOr<std::unique_ptr<LogWriter>> Open(uint32_t region, uint32_t epoch, uint64_t sequence,
                                                          std::string_view first) = 0;
  absl::StatusOr<std::unique_ptr<LogWriter>> Open(uint32_t region, uint32_t epoch, uint64_t sequence) {
    return Open(region, epoch, sequence, {});
  }
  // A new checkpoint, and its end: only then it is there, whole. It is synced before.
  virtual absl::StatusOr<std::unique_ptr<LogWriter>> BeginCheckpoint(uint32_t region, uint32_t epoch,
                                                                     uint64_t sequence) = 0;
  virtual absl::Status CommitCheckpoint(uint32_t region, uint32_t epoch, uint64_t sequence) = 0;
  // Removes what there is of a checkpoint that was begun and will not be committed.
  virtual absl::Status DiscardCheckpoint(uint32_t region, uint32_t epoch, uint64_t sequence) = 0;

  // Notes, outside of the log, that all of it up to record `sequence` is on disk, as an owner does that ends: if the
  // log's end is lost later, that could not be told from records which never were written. Synced.
  virtual absl::Status NoteEnd(uint32_t region, uint32_t epoch, uint64_t sequence) = 0;
  // Returns the greatest sequence that was noted; 0: none was.
  virtual absl::StatusOr<uint64_t> NotedEnd(uint32_t region) = 0;

  // What there is, by epoch and sequence. NotFound: nothing.
  virtual absl::StatusOr<std::vector<LogPart>> List(uint32_t region) = 0;
  // Of [offset, offset + to.size()), what there is; how much that is. All three are of whole blocks.
  virtual absl::StatusOr<size_t> Read(uint32_t region, const LogPart& part, uint64_t offset, MutableBytes to) = 0;
  virtual absl::StatusOr<uint64_t> Size(uint32_t region, const LogPart& part) = 0;

  // Removes what a recovery from the checkpoint of this epoch and sequence does not need, and what was begun before it
  // and never finished.
  virtual absl::Status Trim(uint32_t region, uint32_t epoch, uint64_t sequence) = 0;
  // Returns the regions of which anything is kept.
  virtual absl::StatusOr<std::vector<uint32_t>> Regions() = 0;
  // Removes all of a region; of all regions.
  virtual absl::Status Remove(uint32_t region) = 0;
  virtual absl::Status RemoveAll() = 0;

  // Writes something that is no part of any log, syncs it and removes it: whether a log would be taken now.
  virtual absl::Status Probe(uint32_t region) = 0;
};

}  // namespace cell
