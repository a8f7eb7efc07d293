// RegionLog writes a region's log for its owner.
//
// Append puts a record into memory. A flush passes all records that are there to the store and syncs them. Records that
// come meanwhile go with the next flush (group commit). Thread-safety: only the worker's thread may call it.
// Flush::Write alone may run on another thread while records are appended.
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

// Returns the value of the first record of a region's files.
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

// Returns the value of the record that says that the meganode's right neighbour is the one in this region now, or was
// at this epoch.
inline std::string EncodeCut(uint32_t right, uint64_t epoch) {
  const CutValue value{RootOf(right), static_cast<uint32_t>(epoch), 0};
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Returns the value of the record that bounds the stamps.
inline std::string EncodeStampBound(uint64_t bound) {
  return std::string(reinterpret_cast<const char*>(&bound), sizeof(bound));
}

// Returns the value of the record that says that region `joined`, whose range and epoch these were, belongs to its left
// neighbour.
inline std::string EncodeJoin(uint32_t joined, uint64_t epoch, const MeganodeRange& range) {
  JoinValue value{};
  value.epoch = static_cast<uint32_t>(epoch);
  value.right = range.right;
  value.region = joined;
  value.has_high = range.high.has_value();
  value.high_key_bytes = static_cast<uint32_t>(range.high.value_or("").size());
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value)) + range.high.value_or("");
}

class RegionLog {
 public:
  // `writer` writes a new segment whose first record has number `sequence`. If the segment was `begun`, it already has
  // all records before `sequence`, on disk and with a marker at their end (LogReplay::RestFor).
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

  // Appends a record and returns its sequence. Once the log has failed, records are dropped.
  uint64_t Append(RecordKind kind, std::string_view key, std::string_view value) {
    ++appended_;
    if (!status_.ok()) return appended_;
    const size_t before = buffer_.size();
    AppendRecord(NextContext(), kind, key, value, {}, &buffer_);
    bytes_ += buffer_.size() - before;
    return appended_;
  }
  // Appends the record of a put.
  uint64_t AppendPut(const LoggedPair& pair) {
    ++appended_;
    if (!status_.ok()) return appended_;
    const size_t before = buffer_.size();
    cell::AppendPut(NextContext(), pair, &buffer_);
    bytes_ += buffer_.size() - before;
    return appended_;
  }
  uint64_t Append(RecordKind kind, std::string_view key, Pointer pointer) {
    return Append(kind, key, std::string_view(reinterpret_cast<const char*>(&pointer), sizeof(pointer)));
  }

  // Return the sequence of the last record, and that of the last record on disk.
  uint64_t appended() const { return appended_; }
  uint64_t durable() const { return durable_; }
  bool dirty() const { return durable_ < appended_ && status_.ok(); }
  // Returns whether anything but the last marker is not on disk yet.
  bool unwritten() const { return dirty() && (marked_ != appended_ || durable_ + 1 < appended_); }
  // Returns whether everything is on disk, but no record says so about the last one. If that one is damaged later,
  // replay could not tell it from one that was never written whole.
  bool unmarked() const { return status_.ok() && durable_ == appended_ && marked_ != appended_; }
  // Appends the record that says so. REQUIRES: unmarked().
  void Mark() {
    Append(RecordKind::kMarker, "", std::string_view());
    marked_ = appended_;
  }
  // Return the bytes that were ever appended, and those that wait for the next flush.
  uint64_t bytes() const { return bytes_; }
  size_t waiting_bytes() const { return buffer_.size(); }
  // Returns why the log has failed. After that nothing is acknowledged, and no sync is tried again. Aborted means that
  // the region has another owner.
  const absl::Status& status() const { return status_; }
  void Fail(absl::Status status) { status_ = std::move(status); }

  // Writes what was appended: call BeginFlush, Write, EndFlush. Only one flush at a time.
  class Flush {
   public:
    absl::Status Write() const {
      if (absl::Status status = writer_->Append(bytes_); !status.ok()) return status;
      return writer_->Sync();
    }
    size_t bytes() const { return bytes_.size(); }

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
    if (rolling_) {  // Later records belong to another segment.
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
  // Returns whether later records will be in a segment that is being opened.
  bool rolling() const { return rolling_; }
  // Returns whether a flush could write anything now.
  bool can_flush() const { return !flushing_ && (!rolling_ || roll_bytes_ > 0); }

  // Makes later records part of another segment and returns the sequence of its first record. The caller opens that
  // segment once everything before it is on disk. Records wait until EndRoll.
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
  // Returns the context of record appended_.
  RecordContext NextContext() const {
    const auto unsynced = static_cast<uint32_t>(std::min<uint64_t>(appended_ - 1 - durable_, UINT32_MAX));
    return {region_, epoch_, appended_, unsynced};
  }

  const uint32_t region_;
  const uint32_t epoch_;
  uint64_t appended_;
  uint64_t durable_;
  uint64_t marked_;  // Sequence of the last marker.
  uint64_t bytes_ = 0;
  bool flushing_ = false;
  bool rolling_ = false;
  uint64_t roll_at_ = 0;   // First record of the next segment...
  size_t roll_bytes_ = 0;  // ...and the number of bytes of buffer_ before it.
  absl::Status status_;
  std::unique_ptr<LogWriter> writer_;
  std::string buffer_;
  std::string spare_;  // Empty, but has its memory already.
};

}  // namespace cell
