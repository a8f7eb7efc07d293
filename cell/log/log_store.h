// LogStore keeps the logs and checkpoints of regions for all servers of a cluster.
//
// It handles bytes; cell/layout/log_record.h defines their meaning. A log is a sequence of segments. Each is written by
// one owner at one epoch and named by the sequence of its first record. A checkpoint is named by the sequence from
// which the log is needed in addition to it.
//
// Fencing: after Fence(region, epoch) has returned, no Sync of a segment of a lower epoch succeeds. List and Read then
// see everything for which such a Sync succeeded before. So if an owner acknowledges only after Sync, its successor,
// which fences first and reads then, recovers everything that was acknowledged. No clocks are needed for it.
//
// Every call may block. Thread-safe; a LogWriter must be used by one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/bytes.h"

namespace cell {

class KeySource;

// Writes a segment or a checkpoint.
class LogWriter {
 public:
  virtual ~LogWriter() = default;
  virtual absl::Status Append(std::string_view bytes) = 0;
  // Brings everything to disk. Returns Aborted if the region has another owner now. After any error the writer must not
  // be used (files.h).
  virtual absl::Status Sync() = 0;
};

struct LogPart {
  enum class Kind { kSegment, kCheckpoint };
  Kind kind;
  uint64_t sequence;
  uint32_t epoch;
  std::string name;  // Also used in messages.
};

class LogStore {
 public:
  virtual ~LogStore() = default;

  // Returns the keys by which readers open what was read, or null if nothing is encrypted.
  virtual KeySource* keys() { return nullptr; }

  // Returns whether there is a part of a region's log.
  virtual absl::StatusOr<bool> Has(uint32_t region) = 0;
  // Returns the highest epoch at which anything was stored for a region, or 0 if nothing is.
  virtual absl::StatusOr<uint32_t> LastEpoch(uint32_t region) = 0;
  // Fences lower epochs. Removes the unfinished files of lower epochs, so that they can never become part of the log.
  virtual absl::Status Fence(uint32_t region, uint32_t epoch) = 0;
  // Opens a new segment that begins with `first`. It appears with these bytes, on disk, or not at all. REQUIRES: Fence
  // was called. Returns Aborted if there is a higher epoch, and AlreadyExists if this segment exists.
  virtual absl::StatusOr<std::unique_ptr<LogWriter>> Open(uint32_t region, uint32_t epoch, uint64_t sequence,
                                                          std::string_view first) = 0;
  absl::StatusOr<std::unique_ptr<LogWriter>> Open(uint32_t region, uint32_t epoch, uint64_t sequence) {
    return Open(region, epoch, sequence, {});
  }
  // Write a checkpoint. It appears only at CommitCheckpoint, complete. REQUIRES: it was synced before that.
  virtual absl::StatusOr<std::unique_ptr<LogWriter>> BeginCheckpoint(uint32_t region, uint32_t epoch,
                                                                     uint64_t sequence) = 0;
  virtual absl::Status CommitCheckpoint(uint32_t region, uint32_t epoch, uint64_t sequence) = 0;
  // Removes a checkpoint that was begun and will not be committed.
  virtual absl::Status DiscardCheckpoint(uint32_t region, uint32_t epoch, uint64_t sequence) = 0;

  // Records, outside of the log, that all of it up to record `sequence` is on disk. An owner does so when it ends. If
  // the log's end is lost later, this could not be told from records that were never written. Synced.
  virtual absl::Status NoteEnd(uint32_t region, uint32_t epoch, uint64_t sequence) = 0;
  // Returns the greatest sequence that NoteEnd has recorded at `first_epoch` or later epochs. Returns 0 if NoteEnd has
  // recorded nothing.
  virtual absl::StatusOr<uint64_t> NotedEnd(uint32_t region, uint64_t first_epoch) = 0;

  // Returns all parts by epoch and sequence. Returns NotFound if there is nothing.
  virtual absl::StatusOr<std::vector<LogPart>> List(uint32_t region) = 0;
  // Reads [offset, offset + to.size()) as far as the part goes, and returns the number of bytes. All three are
  // multiples of a block.
  virtual absl::StatusOr<size_t> Read(uint32_t region, const LogPart& part, uint64_t offset, MutableBytes to) = 0;
  virtual absl::StatusOr<uint64_t> Size(uint32_t region, const LogPart& part) = 0;

  // Removes what a recovery from the checkpoint of this epoch and sequence does not need, and unfinished files that
  // were begun before it.
  virtual absl::Status Trim(uint32_t region, uint32_t epoch, uint64_t sequence) = 0;
  // Returns the regions for which anything is stored.
  virtual absl::StatusOr<std::vector<uint32_t>> Regions() = 0;
  // Removes what was stored for a region up to an epoch, with all else of it if nothing was stored later.
  virtual absl::Status Remove(uint32_t region, uint32_t last_epoch) = 0;
  // Removes everything.
  virtual absl::Status RemoveAll() = 0;

  // Writes something that is not part of any log, syncs it and removes it, to find out whether a log could be written
  // now.
  virtual absl::Status Probe(uint32_t region) = 0;
};

}  // namespace cell
