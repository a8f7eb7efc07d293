// LogReplay reads a region's content from its checkpoint and log. A meganode comes as pairs in key order, a part of a
// Pilaf table as pairs in any order.
//
// The log from the checkpoint on is read completely and verified; the last record of each key counts. The checkpoint is
// merged with these while it is read. A recovery is therefore one pass in key order, and its result is packed: it fits
// into the old region's size, whatever order the writes came in.
//
// A log has the stamps of pairs, and bounds, above which no put was given one. So the next owner can give later stamps
// than any that were given before, though the log may lack the last puts, and those of keys that were deleted since.
//
// Replay must find where the log ends. Records after the last sync may be torn or missing in any order, including the
// last one. A crash causes that, and none of them was acknowledged. They are cut off and counted. Trailing zeros only
// fill a block (files.h). But if a later record says that a damaged record was on disk, data was lost: recovery stops
// and names file and offset. A log that was idle, or was closed, ends with a marker, which says this about the last
// record. A whole record of an unknown kind, or a file of an unknown format, is not a torn end either: recovery stops
// and names it.
//
// Blocks. Any thread may use it, but only one. `store` must outlive it.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cell/base/clock.h"
#include "cell/io/file/block_buffer.h"
#include "cell/layout/log_record.h"
#include "cell/layout/region.h"
#include "cell/log/log_store.h"
#include "cell/log/record_reader.h"
#include "cell/region/outcomes.h"

namespace cell {

class LogReplay {
 public:
  // Receives the record of a pair, or above tier 0 of a route. It is valid until the call returns.
  using Visit = std::function<absl::Status(const LogRecord& record)>;

  // Returns whether the region that has had this epoch is gone from the region table. What is not gone was not joined,
  // whatever the log says.
  using GoneAt = std::function<bool(uint32_t region, uint32_t epoch)>;

  // `is_gone` answers for the table that names the log's reader as the owner of `region`. Without it, nothing is gone.
  // Ignores what was written before `first_epoch`: that was for an earlier region with this id.
  // times() is measured by `clock`. Without a clock all times are 0.
  explicit LogReplay(LogStore* store, uint32_t region, GoneAt is_gone = nullptr, uint64_t first_epoch = 1,
                     const Clock* clock = nullptr)
      : store_(store), region_(region), is_gone_(std::move(is_gone)), first_epoch_(first_epoch), clock_(clock) {}

  // Reads the log. Returns NotFound if there is none. Returns DataLoss if it is damaged; the message says where, and
  // what to do. Returns FailedPrecondition if another release wrote it in a format that this one does not read.
  absl::Status Open();
  // Calls `visit` with each key in the range once, in key order. Stops at an error of `visit` and returns it. For a
  // part of a table there is no order, keys may come twice with the last value last, and the range is ignored.
  absl::Status ForEach(const Visit& visit) const;

  // Returns the range of the meganode, or of the part of a table. This and the accessors below require Open.
  const MeganodeRange& range() const { return range_; }
  const std::optional<HashRangeValue>& hash_range() const { return hash_range_; }
  // Returns a stamp that is not below any that was given before. 0: there is no bound in the log, whose format is
  // older, or which is that of a part of a table.
  uint64_t last_stamp() const { return last_stamp_; }
  // Returns the outcomes of requests that must not take effect again.
  const Outcomes& outcomes() const { return outcomes_; }
  // Returns the parts of transactions that were prepared, and of which nothing was decided: each as its record has it
  // (transaction.h).
  std::vector<std::string> prepared() const;
  // Returns the sequence of the next record.
  uint64_t next_sequence() const { return next_sequence_; }
  // Returns the regions that were split off since the checkpoint, and those with which a join was begun, except those
  // that are gone. For a table, each comes with its first hash position.
  const std::map<uint32_t, uint32_t>& cuts() const { return cuts_; }
  // Returns the regions that were joined since the checkpoint, and their last epochs. Nobody needs their logs.
  const std::map<uint32_t, uint32_t>& joined() const { return joined_; }
  // Holds the beginning of the next owner's segment.
  struct Rest {
    uint64_t sequence;       // Sequence of the segment.
    std::string bytes;       // Its first records.
    uint64_t next_sequence;  // Sequence of the record after these.
  };
  // Returns that beginning. If `stamp_bound` is not 0, it bounds the stamps of the next owner. It repeats all records
  // that are not known to be on disk. A segment whose sync has failed may be read back intact until its machine loses
  // power, and a second sync of it may succeed without having done anything (Linux reports an error once, and then
  // considers the pages clean).
  Rest RestFor(uint32_t epoch, uint64_t stamp_bound = 0) const;
  // Says where the time went since the construction, up to the last ForEach.
  struct Times {
    int64_t read_ns = 0;   // Reading files.
    int64_t check_ns = 0;  // Finding, checking and decrypting the checkpoint's records.
  };
  const Times& times() const { return times_; }
  // Return how many records there were in the log, and how many bytes were behind its end.
  uint64_t records() const { return records_; }
  uint64_t torn_bytes() const { return torn_bytes_; }

 private:
  int64_t NowNs() const { return clock_ == nullptr ? 0 : clock_->NowNs(); }
  absl::StatusOr<size_t> Read(const LogPart& part, uint64_t offset, MutableBytes to) const;
  RecordReader Reader(const LogPart& part) const;
  absl::Status ForEachUnordered(const Visit& visit) const;
  absl::Status ReadCheckpoint(const std::function<absl::Status(const LogRecord&, uint64_t offset)>& visit) const;
  // Checks the end record of the checkpoint, its `records`-th.
  absl::Status CheckEnd(const LogRecord& record, uint64_t records, uint64_t offset) const;
  // Returns false if the record is not that of a range.
  bool SetRange(const LogRecord& record);
  void Remember(std::string_view outcome, uint64_t stamp);
  void AddChange(std::string_view key, const char* record);
  // Applies what was decided of a part that was prepared.
  void Decide(const LogRecord& decision);
  void RaiseLastStamp(const LogRecord& bound) { last_stamp_ = std::max(last_stamp_, bound.ValueAs<uint64_t>()); }
  absl::Status ReadSegment(const LogPart& part, uint64_t limit, bool last);
  absl::Status FindEnd(const LogPart& part, std::string_view rest, uint64_t offset, uint64_t expected);
  absl::Status Apply(const LogRecord& record, const LogPart& part, uint64_t offset);
  bool IsGone(uint32_t region, uint32_t epoch) const;
  // Drops the changes that a later cut cuts off.
  void DropCutOff();
  // A cut of the meganode or the part, or a clear, which cuts at the lowest key. What was there from its key or hash
  // position on is not there any more; a join or puts may bring keys back later.
  struct Cut {
    size_t changes;             // Number of changes before it.
    std::string_view key = {};  // Of a meganode.
    uint32_t position = 0;      // Of a part of a table.
  };
  void LowerCut(const Cut& cut);
  // Returns whether one of the cuts that LowerCut was given cuts the key off.
  bool CutOff(std::string_view key) const;
  void SortChanges();
  bool InRange(std::string_view key) const {
    return key >= range_.low && (!range_.high.has_value() || key < *range_.high);
  }

  LogStore* const store_;
  const uint32_t region_;
  const GoneAt is_gone_;
  const uint64_t first_epoch_;
  const Clock* const clock_;
  mutable Times times_;
  std::optional<LogPart> checkpoint_;
  bool has_range_ = false;
  MeganodeRange range_;
  std::optional<HashRangeValue> hash_range_;
  uint64_t last_stamp_ = 0;
  Outcomes outcomes_;
  uint64_t next_sequence_ = 1;
  uint64_t synced_ = 0;         // The last record that is known to be on disk.
  std::string_view last_part_;  // The last segment's records.
  std::map<uint32_t, uint32_t> cuts_;
  std::map<uint32_t, uint32_t> joined_;
  std::vector<Cut> cut_at_;
  std::optional<Cut> lowest_cut_;  // Of all since the checkpoint.
  uint64_t records_ = 0, log_bytes_ = 0, torn_bytes_ = 0;
  // Refers to a record of a key. `head` is the beginning of the key behind the prefix that all keys share, so that few
  // comparisons have to read the record itself, which is a cache miss.
  struct Change {
    uint64_t head;
    const char* record;
  };
  std::map<std::tuple<uint64_t, uint16_t, uint64_t>, std::string> prepared_;  // By client, slot and number.
  std::deque<std::string> committed_;  // Records of writes of transactions. The changes point into them, too.
  std::vector<BlockBuffer> segments_;  // Holds the memory that the changes point into.
  size_t common_bytes_ = 0;            // Length of the prefix that all their keys share.
  std::vector<Change> changes_;        // After Open: in key order, the last change of each key.
};

}  // namespace cell
