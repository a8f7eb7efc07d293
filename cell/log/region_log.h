// RegionLog: a region's log as its owner writes it.
//
// Appending puts a record into memory; a flush carries all that is there to the store and syncs it, and what comes
// meanwhile goes with the next one (group commit). Thread-safety: the worker's thread, but for Flush::Write, which may
// run elsewhere while records are appended.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "cell/layout/log_record.h"
#include "cell/layout/region.h"
#include "cell/log/log_store.h"

namespace cell {

// What a file of a region begins with.
inline std::string BeginValue(uint32_t region) {
  const SegmentBegin begin{kLogMagic, kLogFormat, region};
  return std::string(reinterpret_cast<const char*>(&begin), sizeof(begin));
}
inline std::string EncodeRange(const MeganodeRange& range) {
  RangeValue value{};
  value.right = range.right;
  value.tier = range.tier;
  value.has_high = range.high.has_value();
  value.high_key_bytes = static_cast<uint32_t>(range.high.value_or("").size());
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value)) + range.high.value_or("");
}

class RegionLog {
 public:
  // `writer` is of a new segment, whose first record is that of `sequence`; or, if it was `begun`, of one that has all
  // records before that, on disk, and a marker at their end (LogReplay::RestFor).
  RegionLog(uint32_t region, uint32_t epoch, uint64_t sequence, std::unique_ptr<LogWriter> writer, bool begun = false)
      : region_(region),
        epoch_(epoch),
        appended_(sequence - 1),
        durable_(sequence - 1),
        marked_(begun ? sequence - 1 : 0),
        writer_(std::move(writer)) {
    if (!begun) Append(RecordKind::kBegin, "", BeginValue(region));
  }

  uint32_t region() const { return region_; }
  uint32_t epoch() const { return epoch_; }

  // The record's sequence. Once the log has failed, nothing is kept any more.
  uint64_t Append(RecordKind kind, std::string_view key, std::string_view value, std::string_view more = {}) {
    ++appended_;
    if (!status_.ok()) return appended_;
    const auto unsynced = static_cast<uint32_t>(std::min<uint64_t>(appended_ - 1 - durable_, UINT32_MAX));
    const size_t before = buffer_.size();
    AppendRecord({region_, epoch_, appended_, unsynced}, kind, key, value, more, &buffer_);
    bytes_ += buffer_.size() - before;
    return appended_;
  }
  uint64_t Append(RecordKind kind, std::string_view key, Pointer pointer) {
    return Append(kind, key, std::string_view(reinterpret_cast<const char*>(&pointer), sizeof(pointer)));
  }

  // The last record's sequence, and that of the last one that is on disk.
  uint64_t appended() const { return appended_; }
  uint64_t durable() const { return durable_; }
  bool dirty() const { return durable_ < appended_ && status_.ok(); }
  // Whether there is more that is not on disk than the last marker.
  bool unwritten() const { return dirty() && (marked_ != appended_ || durable_ + 1 < appended_); }
  // Whether all is on disk, and no record says so of the last one: if that is damaged later, replay could not tell it
  // from one that was never written whole.
  bool unmarked() const { return status_.ok() && durable_ == appended_ && marked_ != appended_; }
  // Appends the record that says so. REQUIRES: unmarked().
  void Mark() {
    Append(RecordKind::kMarker, "", std::string_view());
    marked_ = appended_;
  }
  // Bytes that were appended ever, and those that wait for the next flush.
  uint64_t bytes() const { return bytes_; }
  size_t waiting_bytes() const { return buffer_.size(); }
  // Why it has failed. Nothing is acknowledged any more, and no sync is tried again. Aborted: the region is another's.
  const absl::Status& status() const { return status_; }
  void Fail(absl::Status status) { status_ = std::move(status); }

  // One at a time: BeginFlush, Write, EndFlush.
  class Flush {
   public:
    absl::Status Write() const {
      if (absl::Status status = writer_->Append(bytes_); !status.ok()) return status;
      return writer_->Sync();
    }

   private:
    friend class RegionLog;
    LogWriter* writer_;
    std::string bytes_;
    uint64_t sequence_;
  };
  Flush BeginFlush() {
    Flush flush;
    flush.writer_ = writer_.get();
    flush.bytes_.swap(spare_);
    flush.bytes_.swap(buffer_);
    flush.sequence_ = appended_;
    if (rolling_) {  // What follows is another segment's.
      flush.sequence_ = roll_at_ - 1;
      buffer_ = flush.bytes_.substr(roll_bytes_);
      flush.bytes_.resize(roll_bytes_);
      roll_bytes_ = 0;
    }
    flushing_ = true;
    return flush;
  }
  void EndFlush(Flush flush, const absl::Status& status) {
    flushing_ = false;
    if (status.ok()) durable_ = flush.sequence_;
    if (!status.ok() && status_.ok()) status_ = status;
    spare_.swap(flush.bytes_);
    spare_.clear();
  }
  bool flushing() const { return flushing_; }
  // Whether there is anything that a flush could write now.
  bool can_flush() const { return !flushing_ && (!rolling_ || roll_bytes_ > 0); }

  // From the next record on, another segment. Its first record's sequence is returned; once all before it is on disk
  // the segment is to be opened, and until EndRoll what comes meanwhile waits.
  uint64_t BeginRoll() {
    rolling_ = true;
    roll_at_ = appended_ + 1;
    roll_bytes_ = buffer_.size();
    Append(RecordKind::kBegin, "", BeginValue(region_));
    return roll_at_;
  }
  void EndRoll(std::unique_ptr<LogWriter> writer) {
    rolling_ = false;
    writer_ = std::move(writer);
  }

 private:
  const uint32_t region_;
  const uint32_t epoch_;
  uint64_t appended_;
  uint64_t durable_;
  uint64_t marked_;  // The last marker's sequence.
  uint64_t bytes_ = 0;
  bool flushing_ = false;
  bool rolling_ = false;
  uint64_t roll_at_ = 0;   // The next segment's first record...
  size_t roll_bytes_ = 0;  // ...and so much of buffer_ comes before it.
  absl::Status status_;
  std::unique_ptr<LogWriter> writer_;
  std::string buffer_;
  std::string spare_;  // An empty one that has its memory already.
};

}  // namespace cell
