// Regions holds the regions of a worker. Not thread-safe: only the worker's thread may use it, which is checked.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/base/thread_checker.h"
#include "cell/cluster/region_table.h"
#include "cell/io/fabric/fabric.h"
#include "cell/region/region_memory.h"
#include "cell/server/region/region_claim.h"

namespace cell {

class Regions {
 public:
  Regions(Fabric* fabric, const RegionShape& shape, size_t regions_max, PairSettings pairs = {})
      : fabric_(fabric), shape_(shape), regions_max_(regions_max), pairs_(std::move(pairs)) {}

  // Allows another thread to be the worker's from now on. REQUIRES: the current one has finished its work.
  void HandOver() { thread_.HandOver(); }

  // Signals that a region is not held any more, or not arriving any more.
  Event* departed() { return &departed_; }
  // Signals that a claim on some region was released, or that some region is not held any more. Unlike
  // HeldRegion::changed it outlives the regions, so a waiter for it can be interrupted when the worker ends.
  Event* unclaimed() { return &unclaimed_; }

  // Holds the pairs that the snapshots of all regions keep.
  SnapshotMemory* snapshots() { return &snapshots_; }
  const SnapshotMemory& snapshots() const { return snapshots_; }

  const RegionShape& shape() const { return shape_; }
  size_t regions_max() const { return regions_max_; }
  const PairSettings& pairs() const { return pairs_; }
  // Returns cluster time (expiry.h); 0 without a clock.
  uint64_t ClusterTime() const {
    return pairs_.cluster_time ? static_cast<uint64_t>(std::max<int64_t>(pairs_.cluster_time(), 0)) : 0;
  }
  // Returns the number of regions that are held or arriving.
  size_t size() const {
    thread_.Check();
    return regions_.size() + arriving_.size();
  }
  // Returns all regions by their ids.
  std::vector<HeldRegion*> all() const {
    thread_.Check();
    return sorted_;
  }
  // Visits all regions in the same order. `visit` must not drop any.
  template <typename Visit>
  void ForEach(Visit visit) const {
    thread_.Check();
    for (HeldRegion* region : sorted_) visit(region);
  }

  // Returns the bytes that nodes and extents use.
  uint64_t bytes_used() const {
    thread_.Check();
    uint64_t bytes = 0;
    for (const auto& [id, region] : regions_) bytes += region->store->bytes_used();
    return bytes;
  }

  // Returns null if the region is not held.
  HeldRegion* Find(uint32_t region) const {
    thread_.Check();
    const auto it = regions_.find(region);
    return it == regions_.end() ? nullptr : it->second.get();
  }

  // Creates an empty region in `state`, with its first epoch. Returns AlreadyExists if it is held or arriving, and
  // ResourceExhausted if the worker holds as many regions as it may, or if there is no memory.
  absl::StatusOr<HeldRegion*> Create(uint32_t region, const RegionContent& content,
                                     RegionState state = RegionState::kServing, uint64_t epoch = 1) {
    RETURN_IF_ERROR(IsNew(region));
    RETURN_IF_ERROR(HasRoom());
    ASSIGN_OR_RETURN(RegionMemory * memory, fabric_->CreateRegion(region, shape_.region_bytes()));
    auto written = std::make_unique<WrittenPages>(shape_.region_bytes());
    memory->set_written(written.get());
    if (absl::Status formatted = FormatRegion(memory, region, shape_, content); !formatted.ok()) {
      memory->set_written(nullptr);
      fabric_->DropRegion(region);
      return formatted;
    }
    return Hold(region, memory, std::move(written), epoch, state);
  }
  void Drop(uint32_t region) {
    HeldRegion* const held = Find(region);
    CELL_CHECK_NE(held, nullptr);
    if (held->readable()) held->store->Invalidate();  // For the same reason as in NotArrived.
    held->memory->set_written(nullptr);
    std::erase(sorted_, held);
    regions_.erase(region);
    fabric_->DropRegion(region);
    departed_.Notify();
    unclaimed_.Notify();
  }

  // Checks that a copy in `memory` is a region of this worker's shape.
  absl::Status CheckHeader(const RegionMemory& memory, uint32_t region) const {
    if (HashTable::IsIn(memory)) return HashTable::CheckHeader(memory, region, shape_);
    return Meganode::CheckHeader(memory.header(), region, shape_);
  }

  // Returns for how many more regions there is prepared memory.
  size_t free() const { return fabric_->free_regions(); }
  // Returns OK if memory for `count` more regions may be prepared, and ResourceExhausted if this worker may not hold
  // that many.
  absl::Status CheckRoom(uint64_t count) const {
    if (size() + free() + count <= regions_max_) return absl::OkStatus();
    return absl::ResourceExhaustedError(fmt::format(
        "this worker holds {} regions and has memory ready for {} more, and {} is its limit (--regions-max)", size(),
        free(), regions_max_));
  }
  // Prepares `slice` bytes of memory for one more region. Returns true if all of it is there. Returns ResourceExhausted
  // if this worker may not hold one more, or if there is no memory.
  absl::StatusOr<bool> Prepare(uint64_t slice) {
    RETURN_IF_ERROR(CheckRoom(1));
    return fabric_->PrepareRegion(shape_.region_bytes(), slice);
  }

  // Returns OK if one more region may come in addition to those that `table` assigns to `self` and that are not here
  // yet: they are being recovered and need their slots. Returns ResourceExhausted otherwise.
  absl::Status CheckRoomBeside(const RegionTable& table, const WorkerId& self) const {
    const auto missing = std::count_if(table.regions.begin(), table.regions.end(), [&](const auto& one) {
      return one.second.owner == self && Find(one.first) == nullptr && !Arriving(one.first);
    });
    return HasRoom(static_cast<size_t>(missing));
  }
  // Reserves a slot for a region that may come here. It counts as arriving from now on, and no other region can arrive
  // under its id. Receive or Unexpect must follow. Returns AlreadyExists if it is held or arriving already, and
  // ResourceExhausted if there is no room.
  absl::Status Expect(uint32_t region) {
    RETURN_IF_ERROR(IsNew(region));
    RETURN_IF_ERROR(HasRoom());
    arriving_.insert(region);
    return absl::OkStatus();
  }
  void Unexpect(uint32_t region) {
    arriving_.erase(region);
    departed_.Notify();
  }
  // Returns memory for a copy of a region that comes from another worker. Arrived or NotArrived must follow. After an
  // error the region is still expected. REQUIRES: it is expected.
  absl::StatusOr<RegionMemory*> Receive(uint32_t region) {
    CELL_CHECK(Arriving(region));
    return fabric_->CreateRegion(region, shape_.region_bytes());
  }
  // Combines Expect and Receive for a region that comes from a log. Clients see nothing of it until it has arrived.
  absl::StatusOr<RegionMemory*> ReceiveStaged(uint32_t region) {
    RETURN_IF_ERROR(Expect(region));
    const absl::StatusOr<RegionMemory*> memory = fabric_->CreateStagedRegion(region, shape_.region_bytes());
    if (!memory.ok()) Unexpect(region);
    return memory;
  }
  // Zeroes `bytes` bytes from `from` on, up to the extents at most. Returns the end of the zeroed bytes.
  uint64_t Zero(RegionMemory* memory, uint64_t from, uint64_t bytes) const {
    static constexpr std::array<std::byte, 4096> kZeros{};
    const uint64_t end = std::min(from + bytes, shape_.extents_offset());
    for (; from < end; from += kZeros.size()) memory->Store(from, kZeros.data(), kZeros.size());
    return end;
  }
  bool Arriving(uint32_t region) const {
    thread_.Check();
    return arriving_.contains(region);
  }
  // Takes a region that has arrived: the memory holds a whole region, which begins in `state`. `written` lists the
  // pages that were copied.
  HeldRegion* Arrived(uint32_t region, RegionMemory* memory, std::unique_ptr<WrittenPages> written, uint64_t epoch,
                      RegionState state) {
    Unexpect(region);
    fabric_->PublishRegion(region);
    memory->set_written(written.get());
    return Hold(region, memory, std::move(written), epoch, state);
  }
  // Gives up a region that did not arrive. `written` lists the pages that were written to its memory. Invalidates all
  // of its nodes, slots and buckets: when the region comes again, readers that knew it before would take them for
  // valid.
  void NotArrived(uint32_t region, RegionMemory* memory, const WrittenPages& written) {
    Unexpect(region);
    memory->set_written(nullptr);
    // The first word of each slot, and so of each bucket and node, which are larger.
    for (uint64_t at = kRegionHeaderBytes; at < kRegionHeaderBytes + shape_.meganode_bytes; at += sizeof(HashSlot)) {
      if (written.Has(at)) memory->StoreWord(at, kVersionGone);
    }
    memory->header().magic = kRegionMagic;  // Marks the memory as not being zeros.
    fabric_->DropRegion(region);
  }

 private:
  HeldRegion* Hold(uint32_t region, RegionMemory* memory, std::unique_ptr<WrittenPages> written, uint64_t epoch,
                   RegionState state) {
    auto held =
        std::make_unique<HeldRegion>(memory, pairs_, std::move(written), epoch, state, &unclaimed_, &snapshots_);
    const auto at = std::find_if(sorted_.begin(), sorted_.end(),
                                 [region](const HeldRegion* other) { return other->region() > region; });
    sorted_.insert(at, held.get());
    return regions_.emplace(region, std::move(held)).first->second.get();
  }
  absl::Status IsNew(uint32_t region) const {
    if (Find(region) == nullptr && !Arriving(region)) return absl::OkStatus();
    return absl::AlreadyExistsError(fmt::format("this worker already holds region {}, or is receiving it", region));
  }
  absl::Status HasRoom(size_t missing = 0) const {
    if (size() + missing < regions_max_) return absl::OkStatus();
    return absl::ResourceExhaustedError(fmt::format("this worker holds {} regions{}, its limit (--regions-max)",
                                                    size() + missing,
                                                    missing == 0 ? "" : ", including those it is recovering"));
  }

  ThreadChecker thread_;
  Event departed_;
  Event unclaimed_;
  Fabric* const fabric_;
  const RegionShape shape_;
  const size_t regions_max_;
  const PairSettings pairs_;
  SnapshotMemory snapshots_;  // Outlives the regions.
  absl::flat_hash_set<uint32_t> arriving_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<HeldRegion>> regions_;
  std::vector<HeldRegion*> sorted_;  // Sorted by id.
};

}  // namespace cell
