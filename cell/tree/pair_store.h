// PairStore: what a region holds, by key, as the region's writing thread works on it: a meganode (meganode.h), or a
// part of a Pilaf table (pilaf/hash_table.h).
//
// Thread-safety: one thread calls it; others may read what it writes at any time.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/layout/log_record.h"
#include "cell/layout/region.h"
#include "cell/tree/extent_allocator.h"

namespace cell {

class PairStore {
 public:
  virtual ~PairStore() = default;

  uint32_t region() const { return header().region; }
  const RegionHeader& header() const { return memory_->header(); }
  ExtentAllocator::Usage extents() const { return extents_.usage(); }
  uint64_t keys() const { return header().keys; }
  uint64_t data_bytes() const { return header().data_bytes; }

  // How full it is, of 1: by what keys take or by extents, whichever is more.
  double fill() const {
    const RegionHeader& h = header();
    return std::max(unit_fill(), static_cast<double>(h.extents.bytes_used) /
                                     static_cast<double>(std::max<uint64_t>(1, h.extents_bytes)));
  }
  // Of the part before the extents: nodes, slots, buckets.
  virtual double unit_fill() const = 0;
  uint64_t bytes_used() const {
    return static_cast<uint64_t>(unit_fill() * static_cast<double>(header().extents_offset - kRegionHeaderBytes)) +
           header().extents.bytes_used;
  }

  // Whether a key of this size can be stored.
  virtual absl::Status CheckKey(std::string_view key) const = 0;

  // Inserts or replaces. `crc` is Crc64 of key and value, computed by the client. `hint`: see Meganode. True: the key
  // was there before. InvalidArgument: a size or the CRC is wrong. OutOfRange: the key is another region's.
  // ResourceExhausted: there is no room. An error has changed nothing.
  virtual absl::StatusOr<bool> Put(std::string_view key, std::string_view value, uint64_t crc, Pointer hint = {}) = 0;
  // True: the key was there.
  virtual absl::StatusOr<bool> Delete(std::string_view key, Pointer hint = {}) = 0;

  // Put in two steps, for writes that must be on disk before anyone sees them. Prepare checks all that Put checks and
  // takes what Commit will need, so that Commit cannot fail; nobody sees anything of it yet. `ahead`: the writes that
  // will be applied before, and are not yet.
  struct Ahead {
    size_t writes = 0;   // How many there may be.
    bool of_key = true;  // Whether one may be of the same key. If not, a key that is there is replaced without more room.
  };
  struct Prepared {
    uint64_t extent = 0;  // Offset; 0: the pair is in `record`.
    uint32_t bytes = 0;
    uint64_t crc = 0;
    uint32_t unit = 0;   // Pilaf: the slot or bucket that is kept for it.
    std::string record;  // Pilaf: as it goes into a bucket.
  };
  virtual absl::StatusOr<Prepared> Prepare(std::string_view key, std::string_view value, uint64_t crc,
                                           const Ahead& ahead) = 0;
  virtual bool Commit(const Prepared& prepared, std::string_view key, Pointer hint = {}) = 0;
  virtual void Discard(const Prepared& prepared) = 0;
  // Delete, of a write that is on disk. Like Commit it does not call on_write: the log has the record.
  virtual absl::StatusOr<bool> CommitDelete(std::string_view key, Pointer hint = {}) = 0;

  // Makes every node or slot of the region unreadable, because the region is served elsewhere from now on.
  virtual void Invalidate() = 0;
  // Undoes Invalidate. REQUIRES: nothing was changed since.
  virtual void Restore() = 0;

  const std::byte* Extent(Pointer extent) const { return memory_->at(extent.offset()); }
  // Whether [pointer, pointer + bytes) lies in the extents area, at an extent's alignment.
  bool ExtentInBounds(Pointer extent, uint64_t bytes) const {
    const uint64_t begin = header().extents_offset;
    const uint64_t end = begin + header().extents_bytes;
    return extent.region() == region() && extent.offset() >= begin && extent.offset() <= end &&
           bytes <= end - extent.offset() && extent.offset() % kWordBytes == 0;
  }

  // Called after each change of a pair or a route that is not committed, with what a log must say of it (log_record.h).
  struct Write {
    RecordKind kind;
    std::string_view key;
    std::string_view value;  // Of a route: its pointer.
  };
  void set_on_write(std::function<void(const Write&)> on_write) { on_write_ = std::move(on_write); }
  // Called after each change of a pair or a route, with its key.
  void set_on_change(std::function<void(std::string_view key)> on_change) { on_change_ = std::move(on_change); }

 protected:
  explicit PairStore(RegionMemory* memory) : memory_(memory), extents_(memory) {}

  void Wrote(RecordKind kind, std::string_view key, std::string_view value) {
    if (on_write_) [[unlikely]]
      on_write_({kind, key, value});
  }
  void Changed(std::string_view key) {
    if (on_change_) [[unlikely]]
      on_change_(key);
  }
  void WroteAndChanged(RecordKind kind, std::string_view key, std::string_view value) {
    Wrote(kind, key, value);
    Changed(key);
  }

  RegionMemory* const memory_;
  ExtentAllocator extents_;
  std::function<void(std::string_view key)> on_change_;
  std::function<void(const Write&)> on_write_;
};

}  // namespace cell
