// LogReplay: what a region holds, by its checkpoint and log: of a meganode, as a row of pairs in key order; of a part
// of a Pilaf table, in any order.
//
// The log from the checkpoint on is read whole and verified, and of each key the last record counts; the checkpoint is
// merged with these as it is read. So a recovery is one pass in key order, and what it makes is packed: it fits where
// the region fitted, whatever order the writes came in.
//
// Where the log ends. Its last record may be torn, or lack altogether, and so may all that were written after the last
// sync, in any order: a crash does that, and they were promised to nobody. They are cut off, and counted; zeros alone
// are what a block is filled up with (files.h). But a record that is damaged although one after it says that it was on
// disk is a loss: recovery stops and names file and offset. A log that was idle, or was closed, ends with a marker,
// which says that of the last record. A whole record of a kind, or a file of a format, that this release does not know
// is no torn end either: recovery stops and names it.
//
// Blocks; any one thread. `store` must outlive it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cell/io/file/block_buffer.h"
#include "cell/layout/log_record.h"
#include "cell/layout/region.h"
#include "cell/log/log_store.h"

namespace cell {

class LogReplay {
 public:
  // A pair, or above tier 0 a route, whose value is a Pointer. Valid until the call returns.
  using Visit = std::function<absl::Status(std::string_view key, std::string_view value)>;

  explicit LogReplay(LogStore* store, uint32_t region) : store_(store), region_(region) {}

  // Reads the log. NotFound: there is none. DataLoss: it is damaged; the message says where, and what to do.
  // FailedPrecondition: another release wrote it, in a format that this one does not read.
  absl::Status Open();
  // Calls `visit` with what is in the range, in key order, each key once. Its error ends it. Of a part of a table: in
  // no order, keys twice with the last value last, and without regard to the range.
  absl::Status ForEach(const Visit& visit) const;

  // After Open. What the meganode covers, or the part of a table...
  const MeganodeRange& range() const { return range_; }
  const std::optional<HashRangeValue>& hash_range() const { return hash_range_; }
  // ...the sequence of the next record...
  uint64_t next_sequence() const { return next_sequence_; }
  // ...the regions that were cut off it since the checkpoint; of a table, each with the first place that it got...
  const std::map<uint32_t, uint32_t>& cuts() const { return cuts_; }
  // ...what its next owner's segment begins with...
  struct Rest {
    uint64_t sequence;       // The segment's.
    std::string bytes;       // Its first records...
    uint64_t next_sequence;  // ...and that of the one after them.
  };
  // All that nobody is known to have brought to disk is in it once more. A segment whose sync has failed may be read as
  // it was meant to be until its machine loses power, and a second sync of it may succeed without having done anything
  // (Linux reports an error once, and takes the pages for clean then).
  Rest RestFor(uint32_t epoch) const;
  // ...and how much there was: in the log, and behind its end.
  uint64_t records() const { return records_; }
  uint64_t log_bytes() const { return log_bytes_; }
  uint64_t torn_bytes() const { return torn_bytes_; }

 private:
  absl::Status ForEachUnordered(const Visit& visit) const;
  absl::Status ReadCheckpoint(const std::function<absl::Status(const LogRecord&, uint64_t offset)>& visit) const;
  // False: the record is none of a range.
  bool SetRange(const LogRecord& record);
  absl::Status ReadSegment(const LogPart& part, uint64_t limit, bool last);
  absl::Status FindEnd(const LogPart& part, std::string_view rest, uint64_t offset, uint64_t expected);
  absl::Status Apply(const LogRecord& record, const LogPart& part, uint64_t offset);
  void SortChanges();
  bool InRange(std::string_view key) const {
    return key >= range_.low && (!range_.high.has_value() || key < *range_.high);
  }

  LogStore* const store_;
  const uint32_t region_;
  std::optional<LogPart> checkpoint_;
  bool has_range_ = false;
  MeganodeRange range_;
  std::optional<HashRangeValue> hash_range_;
  uint64_t next_sequence_ = 1;
  uint64_t synced_ = 0;         // The last record that was known to be on disk.
  std::string_view last_part_;  // The last segment's records.
  std::map<uint32_t, uint32_t> cuts_;
  uint64_t records_ = 0, log_bytes_ = 0, torn_bytes_ = 0;
  // A record of a key. `head`: the key's first bytes behind what all keys begin with, so that few comparisons have to
  // look at the record itself, which is far away.
  struct Change {
    uint64_t head;
    const char* record;
  };
  std::vector<BlockBuffer> segments_;  // What the changes point into.
  size_t common_bytes_ = 0;            // That all their keys begin with.
  std::vector<Change> changes_;        // After Open: in key order, of each key the last.
};

}  // namespace cell
