// RegionPool holds the memory of a process's regions, to which fabrics give peers access. Several fabrics may share
// one.
//
// Thread-safety: the server's thread creates, prepares and drops; any thread may call Find and MayRead. Memory stays
// mapped while the pool lives, so that the result of Find can be read whatever happens to the region.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/base/clock.h"
#include "cell/io/exec/system_clock.h"
#include "cell/io/memory/readers.h"
#include "cell/io/memory/shm_memory.h"
#include "cell/layout/identity.h"
#include "cell/region/region_memory.h"

namespace cell {

class RegionPool {
 public:
  // `clock` must outlive this.
  explicit RegionPool(bool huge_pages, const Clock* clock = SystemClock::Get())
      : use_huge_pages_(huge_pages), clock_(clock) {}

  // Sets whether what is freed of regions that are made from now on is overwritten, and regions when they are dropped.
  // Dropping takes about 0.1 s for each GB then.
  void set_zero_freed(bool zero_freed) { zero_freed_ = zero_freed; }

  // Work like Fabric::CreateRegion, CreateStagedRegion, PublishRegion, DropRegion and PrepareRegion.
  absl::StatusOr<RegionMemory*> Create(uint32_t region, uint64_t bytes) { return Make(region, bytes, false); }
  absl::StatusOr<RegionMemory*> CreateStaged(uint32_t region, uint64_t bytes) { return Make(region, bytes, true); }
  void Publish(uint32_t region);
  void Drop(uint32_t region);
  absl::StatusOr<bool> Prepare(uint64_t bytes, uint64_t slice);
  size_t free_regions() const;
  // Returns whether the regions made so far are in huge pages.
  bool huge_pages() const;

  struct Found {
    const ShmMemory* shm;
    uint64_t bytes;  // Size of the region; its memory may be larger.
    bool Holds(uint64_t offset, uint64_t length) const { return offset <= bytes && length <= bytes - offset; }
  };
  // Returns a region's memory, or nullopt if it is staged or not in the pool.
  std::optional<Found> Find(uint32_t region) const;

  // Sets who may be given access to regions. At first everybody may.
  void SetReaders(Readers readers);
  bool MayRead(const Identity& peer) const;

  // Sets a function that is called with new memory before a region is made in it, and at once with all existing memory.
  // An error refuses the memory. For fabrics that must register memory.
  using OnMemory = std::function<absl::Status(const ShmMemory&)>;
  absl::Status SetOnMemory(OnMemory on_memory);

 private:
  struct Region {
    uint32_t id = 0;
    bool staged = false;
    struct Former {
      uint32_t id;
      int64_t dropped_ns;
    };
    std::vector<Former> former = {};  // Regions that were here until a moment ago.
    uint64_t bytes = 0;
    ShmMemory shm;
    RegionMemory memory;
  };

  absl::StatusOr<std::unique_ptr<Region>> New(uint64_t bytes) const;
  absl::StatusOr<RegionMemory*> Make(uint32_t region, uint64_t bytes, bool staged);

  // A client that knows where a region was believes what it reads there until its lease on the region table ends
  // (docs/protocols.md). So for so long a staged region gets no memory where it was before.
  static constexpr int64_t kFormerNs = 30'000'000'000;

  const bool use_huge_pages_;
  bool zero_freed_ = false;
  const Clock* const clock_;
  mutable std::mutex mutex_;  // Guards regions_, dropped_ and readers_.
  std::vector<std::unique_ptr<Region>> regions_;
  std::vector<std::unique_ptr<Region>> dropped_;  // Their memory is free.
  Readers readers_;
  std::atomic<bool> everybody_reads_ = true;  // readers_.everybody, without the lock.
  OnMemory on_memory_;
  std::unique_ptr<Region> preparing_;  // Becomes free once all its pages are there.
  uint64_t prepared_bytes_ = 0;        // The part of `preparing_` whose pages are there.
};

}  // namespace cell
