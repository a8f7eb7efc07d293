// PairStore gives a region's writing thread access to the region's pairs by key. It is a meganode (meganode.h) or a
// part of a Pilaf table (pilaf/hash_table.h).
//
// Thread-safety: one thread calls it. Others may read what it writes at any time.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cell/base/bytes.h"
#include "cell/layout/expiry.h"
#include "cell/layout/limits.h"
#include "cell/layout/log_record.h"
#include "cell/layout/region.h"
#include "cell/region/extent_allocator.h"
#include "cell/region/region_memory.h"
#include "fmt/format.h"

namespace cell {

class PairStore {
 public:
  virtual ~PairStore() = default;

  uint32_t region() const { return header().region; }
  const RegionHeader& header() const { return memory_->header(); }
  ExtentAllocator::Usage extents() const { return extents_.usage(); }
  // Returns whether the allocator of extents was found to be damaged in memory. Only pairs that need no extent can be
  // put then.
  bool extents_damaged() const { return extents_.damaged(); }
  uint64_t keys() const { return header().keys; }
  uint64_t data_bytes() const { return header().data_bytes; }

  // Returns the fraction of the region in use: of the units that keys take, or of extents, whichever is larger.
  double fill() const {
    const RegionHeader& h = header();
    return std::max(unit_fill(), static_cast<double>(h.extents.bytes_used) /
                                     static_cast<double>(std::max<uint64_t>(1, h.extents_bytes)));
  }
  // Returns the fraction in use of the part before the extents: nodes, slots or buckets.
  virtual double unit_fill() const = 0;
  uint64_t bytes_used() const {
    return static_cast<uint64_t>(unit_fill() * static_cast<double>(header().extents_offset - kRegionHeaderBytes)) +
           header().extents.bytes_used;
  }

  // Sets the clock of stamps and expiries. It tells nanoseconds since one moment for all servers that may own the
  // region. Stamps grow whatever it says; without a clock they count from the last one, and nothing expires.
  void set_cluster_time(std::function<int64_t()> clock) { cluster_time_ = std::move(clock); }
  uint64_t ClusterTime() const {
    return cluster_time_ ? static_cast<uint64_t>(std::max<int64_t>(cluster_time_(), 0)) : 0;
  }
  // Returns whether a pair with this expiry has expired by now.
  bool Expired(Expiry expiry) const { return expiry != kNeverExpires && HasExpired(expiry, ClusterTime()); }
  // Returns whether a pair with the expiry `old` had expired when a put with the expiry `put` took effect. That was
  // before the put's own expiry, though the clock may have passed it since.
  bool ExpiredBefore(Expiry old, Expiry put) const {
    if (old == kNeverExpires) return false;
    return HasExpired(old, put == kNeverExpires ? ClusterTime() : std::min(ClusterTime(), put - 1));
  }
  // Returns how many pairs have an expiry.
  uint64_t expiring() const { return header().expiring; }
  // Returns a moment before which no pair expires that is stored. It may be too early by far, until ExpirySweep has
  // looked at all pairs.
  Expiry first_expiry() const { return first_expiry_; }

  // Returns a stamp for a pair of a meganode, or for a transaction: above all that this region has given, and not below
  // the clock's time if it can help it. This is hybrid logical time (Kulkarni et al., OPODIS 2014). It does not follow
  // a clock that would use up the stamps which are left below the bound.
  uint64_t NextStamp() {
    uint64_t& last = memory_->header().last_stamp;
    const uint64_t time = ClusterTime();
    last = std::max(last + 1, time + kStampsLeft <= memory_->header().stamp_bound ? time : 0);
    return last;
  }
  // A region with a log gives no stamp above its bound, which is on disk, so that no later owner gives one again. Puts
  // return Unavailable when none is left. NextStampBound returns the bound that the log should have next, or nullopt if
  // `bound`, the last one in the log, will do. REQUIRES for set_stamp_bound: it is on disk.
  std::optional<uint64_t> NextStampBound(uint64_t bound) const {
    const uint64_t time = std::max(header().last_stamp, ClusterTime());
    if (time + kStampsAhead / 2 <= bound || bound == kLastStampMax) return std::nullopt;
    return std::min(time + kStampsAhead, kLastStampMax);
  }
  // Returns Unavailable if no stamp is left.
  absl::Status CheckStamps() const {
    if (header().last_stamp < header().stamp_bound) return absl::OkStatus();
    return absl::UnavailableError(
        fmt::format("region {} has no stamps left until more are on disk; nothing was written", region()));
  }
  // Returns whether there will soon be no stamps left.
  bool WantsStamps() const { return header().last_stamp + kStampsLeft > header().stamp_bound; }
  void set_stamp_bound(uint64_t bound) { memory_->header().stamp_bound = bound; }
  // Makes the next stamps later than this one.
  void RaiseLastStamp(uint64_t stamp) {
    uint64_t& last = memory_->header().last_stamp;
    last = std::max(last, stamp);
  }

  // Shows readers of memory that a transaction holds a key from now on, or no longer: they must ask while it does.
  virtual void ShowHeld(std::string_view key, bool held) = 0;
  // Sets how many writes that were prepared need room for an unknown time, beside those of Ahead.
  virtual void set_writes_kept(size_t /*writes*/) {}

  // Names a leaf of a meganode by its low key, or some slots or a bucket of a table by the number of the first.
  struct Place {
    std::string key;
    uint32_t unit = 0;
  };
  // The expiries of the pairs in one place.
  struct Expiries {
    std::vector<std::string> expired;  // Keys whose pairs have expired, in order.
    Expiry first_left = UINT64_MAX;    // When the first of the others expires that have an expiry.
    std::optional<Place> next;         // nullopt: there are no more.
  };
  // Returns the first place, for ExpiriesAt.
  virtual Place FirstPlace() const = 0;
  // Looks for pairs with an expiry. If the place belongs to another region by now, nothing is there. Returns DataLoss
  // if it was damaged in memory.
  virtual absl::StatusOr<Expiries> ExpiriesAt(const Place& place) const = 0;

  // Returns OK if a key of this size can be stored.
  virtual absl::Status CheckKey(std::string_view key) const = 0;

  // Inserts or replaces a pair. `crc` is the Crc64 of key and value, computed by the client. For `hint` see Meganode.
  // Returns true if the key was there before. Returns InvalidArgument if a size or the CRC is wrong, OutOfRange if the
  // key belongs to another region, and ResourceExhausted if there is no room. An error has changed nothing.
  //
  // A Commit after the pair's expiry deletes the key. Put, Commit and the deletes treat a pair that has expired as one
  // that is not there, in what they return.
  virtual absl::StatusOr<bool> Put(std::string_view key, std::string_view value, uint64_t crc, Pointer hint = {},
                                   Expiry expiry = kNeverExpires) = 0;
  // Deletes a key. Returns true if it was there.
  virtual absl::StatusOr<bool> Delete(std::string_view key, Pointer hint = {}) = 0;

  // Prepare and Commit split Put into two steps, for writes that must be on disk before anyone sees them. Prepare makes
  // all the checks of Put and reserves what Commit will need, so that Commit cannot fail; readers see nothing of it
  // yet. It gives the pair its stamp, so puts are committed in the order in which they were prepared. `ahead` describes
  // the writes that will be applied earlier but are not applied yet.
  struct Ahead {
    size_t writes = 0;   // Upper bound of their number.
    bool of_key = true;  // Whether one of them may have the same key. If not, a stored pair is replaced by one that
                         // takes no more room without any room in reserve.
    bool again = false;  // The region's former owner had prepared it, so what set_writes_kept keeps for it is enough.
  };
  struct Prepared {
    uint64_t extent = 0;  // Offset; 0: the pair is in `record`.
    uint32_t bytes = 0;
    uint64_t crc = 0;
    uint32_t unit = 0;  // Pilaf: the slot or bucket that is reserved for it.
    Expiry expiry = kNeverExpires;
    uint64_t stamp = 0;     // Meganode: the pair's stamp.
    std::string record;     // Pilaf: the bytes that go into a bucket. Meganode: the value of an inline pair.
    uint32_t value_at = 0;  // Where the value is in `record`, if there is no extent.
  };
  virtual absl::StatusOr<Prepared> Prepare(std::string_view key, std::string_view value, uint64_t crc,
                                           const Ahead& ahead, Expiry expiry = kNeverExpires) = 0;
  virtual bool Commit(const Prepared& prepared, std::string_view key, Pointer hint = {}) = 0;
  // Returns the value of a pair that is prepared, and not committed yet. It is in `prepared`, or in an extent.
  std::string_view PreparedValue(const Prepared& prepared, std::string_view key) const {
    const size_t value_bytes = prepared.bytes - key.size();
    if (prepared.extent != 0) return AsText({memory_->at(prepared.extent) + key.size(), value_bytes});
    return std::string_view(prepared.record).substr(prepared.value_at, value_bytes);
  }
  virtual void Discard(const Prepared& prepared) = 0;
  // Applies a Delete that is on disk. Like Commit it does not call on_write, because the log has the record already.
  virtual absl::StatusOr<bool> CommitDelete(std::string_view key, Pointer hint = {}) = 0;

  // Deletes those of the keys that are stored, and returns how many were. `keys` are in order. CommitDeleteAll does not
  // call on_write, like CommitDelete. After an error, the keys before the one that it names may have been deleted.
  virtual absl::StatusOr<uint64_t> DeleteAll(absl::Span<const std::string> keys) = 0;
  virtual absl::StatusOr<uint64_t> CommitDeleteAll(absl::Span<const std::string> keys) = 0;

  // Invalidate marks the whole region, whose content was copied elsewhere: readers find nothing here any more.
  // Restore undoes that. REQUIRES for Restore: nothing was changed since.
  virtual void Invalidate() = 0;
  virtual void Restore() = 0;

  // Says which extents are moved to other places, and how far this has come (ExtentCompaction).
  struct ExtentMoves {
    ExtentAllocator::Window window;  // Extents are moved out of it.
    uint64_t bytes_max = 0;          // In one call: after the extent that reaches this, the call ends.
    // The next leaf begins here, or the next slot or bucket is this one.
    std::string next_key;
    uint32_t next_unit = 0;
    bool ended = false;    // All were visited.
    uint64_t extents = 0;  // Moved so far.
    uint64_t bytes = 0;    // Of their keys and values.
  };
  // Moves the extents in the window of the next leaf, or of some slots or buckets. Readers find each pair all the time:
  // a copy is complete before something points at it, and the old extent is freed after nothing does, as when a pair is
  // replaced by an equal one. Calls neither on_write nor on_change, because all pairs stay what they are. Returns
  // DataLoss if a leaf was damaged in memory: the pass cannot go on then. REQUIRES: not moves->ended, and the allocator
  // searches outside of the window (ExtentAllocator::BeginSearch).
  virtual absl::Status MoveExtents(ExtentMoves* moves) = 0;
  // For ExtentCompaction.
  ExtentAllocator* extent_allocator() { return &extents_; }
  const ExtentAllocator& extent_allocator() const { return extents_; }

  const std::byte* Extent(Pointer extent) const { return memory_->at(extent.offset()); }
  // Returns whether [extent, extent + bytes) is in the extents area and aligned like an extent.
  bool ExtentInBounds(Pointer extent, uint64_t bytes) const {
    const uint64_t begin = header().extents_offset;
    const uint64_t end = begin + header().extents_bytes;
    return extent.region() == region() && extent.offset() >= begin && extent.offset() <= end &&
           bytes <= end - extent.offset() && extent.offset() % kWordBytes == 0;
  }

  // Describes a change of a pair or a route for the log (log_record.h). on_write is called after each change, except
  // committed ones.
  struct Write {
    RecordKind kind;
    std::string_view key;
    std::string_view value;  // For a route: its pointer.
    Expiry expiry = kNeverExpires;
    uint64_t stamp = 0;  // 0: it has none.
  };
  void set_on_write(std::function<void(const Write&)> on_write) { on_write_ = std::move(on_write); }
  // Sets a function that is called with the key after each change of a pair or a route.
  void set_on_change(std::function<void(std::string_view key)> on_change) { on_change_ = std::move(on_change); }

 protected:
  explicit PairStore(RegionMemory* memory, std::function<int64_t()> cluster_time = nullptr)
      : memory_(memory),
        extents_(memory),
        cluster_time_(std::move(cluster_time)),
        first_expiry_(memory->header().expiring > 0 ? 0 : UINT64_MAX) {}
  // Copies an extent to a place outside of the window. Returns its offset. Returns nullopt if there is no place, or if
  // the extent was damaged in memory: then it stays where it is.
  template <typename IsSound>
  std::optional<uint64_t> CopyOutside(uint64_t offset, uint64_t bytes, IsSound is_sound, ExtentMoves* moves) {
    const std::optional<uint64_t> to = extents_.AllocateOutside(bytes);
    if (!to.has_value()) return std::nullopt;
    if (!is_sound()) {
      extents_.Free(*to);
      return std::nullopt;
    }
    extents_.Copy(offset, *to, bytes);
    ++moves->extents;
    moves->bytes += bytes;
    return to;
  }

  absl::Status DamagedExtents() const {
    return absl::DataLossError(fmt::format(
        "region {}: its free space was damaged in its server's memory: it takes no larger pairs", region()));
  }
  // Counts a pair that is stored from now on, or no longer.
  void AddExpiry(Expiry expiry) {
    if (expiry == kNeverExpires) return;
    ++memory_->header().expiring;
    NoteExpiry(expiry);
  }
  void RemoveExpiry(bool expires) { memory_->header().expiring -= expires; }
  // Notes that a sweep may have missed a pair, or has yet to find it.
  void NoteExpiry(Expiry expiry) {
    if (expiry != kNeverExpires) first_expiry_ = std::min(first_expiry_, expiry);
  }
  void Wrote(const Write& write) {
    if (on_write_) [[unlikely]]
      on_write_(write);
  }
  void Changed(std::string_view key) {
    if (on_change_) [[unlikely]]
      on_change_(key);
  }
  void WroteAndChanged(const Write& write) {
    Wrote(write);
    Changed(write.key);
  }

  RegionMemory* const memory_;
  ExtentAllocator extents_;
  std::function<void(std::string_view key)> on_change_;
  std::function<void(const Write&)> on_write_;

 private:
  friend class ExpirySweep;

  static constexpr uint64_t kStampsAhead = 10'000'000'000;  // As nanoseconds: how far a bound is ahead of the clock.
  static constexpr uint64_t kStampsLeft = kStampsAhead / 4;

  std::function<int64_t()> cluster_time_;
  Expiry first_expiry_;
};

}  // namespace cell
