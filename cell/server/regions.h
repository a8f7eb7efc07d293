// Regions: those that a worker holds, each with its meganode. One thread: the worker's.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cell/base/status_macros.h"
#include "cell/io/fabric.h"
#include "cell/tree/meganode.h"

namespace cell {

struct HeldRegion {
  enum class State {
    kServing,
    kFrozen,  // Read, and not written: the last of it is being copied to another worker.
    kSealed,  // Not even read: it is the other worker's, or nearly so.
  };

  HeldRegion(RegionMemory* memory, std::unique_ptr<WrittenPages> written)
      : memory(memory), written(std::move(written)), meganode(memory) {}

  uint64_t bytes_used() const {
    return meganode.header().nodes_used * meganode.header().node_bytes + meganode.extents().bytes_used;
  }

  RegionMemory* const memory;
  const std::unique_ptr<WrittenPages> written;  // Since the region was made, but for what a move has taken note of.
  Meganode meganode;
  State state = State::kServing;
  bool busy = false;   // Being split or moved.
  bool joined = true;  // Part of the tree; else being filled.
};

class Regions {
 public:
  Regions(Fabric* fabric, const RegionShape& shape, size_t regions_max)
      : fabric_(fabric), shape_(shape), regions_max_(regions_max) {}

  const RegionShape& shape() const { return shape_; }
  size_t regions_max() const { return regions_max_; }
  // Held, and on their way here.
  size_t size() const { return regions_.size() + arriving_; }
  // All, by their ids.
  std::vector<HeldRegion*> all() const {
    std::vector<HeldRegion*> all;
    for (const auto& [id, region] : regions_) all.push_back(region.get());
    std::sort(all.begin(), all.end(),
              [](const auto* a, const auto* b) { return a->meganode.region() < b->meganode.region(); });
    return all;
  }

  // Of nodes and extents.
  uint64_t bytes_used() const {
    uint64_t bytes = 0;
    for (const auto& [id, region] : regions_) bytes += region->bytes_used();
    return bytes;
  }

  // Null: not held.
  HeldRegion* Find(uint32_t region) const {
    const auto it = regions_.find(region);
    return it == regions_.end() ? nullptr : it->second.get();
  }

  // An empty meganode in a new region. ResourceExhausted: the worker holds as many as it may, or memory is out.
  absl::StatusOr<HeldRegion*> Create(uint32_t region, const Meganode::Range& range) {
    RETURN_IF_ERROR(HasRoom());
    ASSIGN_OR_RETURN(RegionMemory * memory, fabric_->CreateRegion(region, shape_.region_bytes()));
    auto written = std::make_unique<WrittenPages>(shape_.region_bytes());
    memory->set_written(written.get());
    RETURN_IF_ERROR(Meganode::Format(memory, region, shape_, range));
    return regions_.emplace(region, std::make_unique<HeldRegion>(memory, std::move(written))).first->second.get();
  }
  void Drop(uint32_t region) {
    HeldRegion* const held = Find(region);
    CELL_CHECK(held != nullptr);
    held->memory->set_written(nullptr);
    regions_.erase(region);
    fabric_->DropRegion(region);
  }

  // Memory that is ready for regions to come.
  size_t free() const { return fabric_->free_regions(); }
  // Gets `slice` bytes of memory for one more ready; true: it is all there. ResourceExhausted: there would be more than
  // this worker may hold, or there is no memory.
  absl::StatusOr<bool> Prepare(uint64_t slice) {
    if (size() + free() >= regions_max_) {
      return absl::ResourceExhaustedError(
          fmt::format("this worker holds {} regions and has memory for {}: {} is its limit (--regions-max)", size(),
                      free(), regions_max_));
    }
    return fabric_->PrepareRegion(shape_.region_bytes(), slice);
  }

  // A region that comes from another worker: memory to copy it to, and then either is called.
  absl::StatusOr<RegionMemory*> Receive(uint32_t region) {
    RETURN_IF_ERROR(HasRoom());
    ASSIGN_OR_RETURN(RegionMemory * memory, fabric_->CreateRegion(region, shape_.region_bytes()));
    ++arriving_;
    return memory;
  }
  // `written`: what was copied. The memory holds a whole region.
  HeldRegion* Arrived(uint32_t region, RegionMemory* memory, std::unique_ptr<WrittenPages> written) {
    --arriving_;
    memory->set_written(written.get());
    return regions_.emplace(region, std::make_unique<HeldRegion>(memory, std::move(written))).first->second.get();
  }
  void NotArrived(uint32_t region) {
    --arriving_;
    fabric_->DropRegion(region);
  }

 private:
  absl::Status HasRoom() const {
    if (size() < regions_max_) return absl::OkStatus();
    return absl::ResourceExhaustedError(fmt::format("this worker holds {} regions, its limit (--regions-max)", size()));
  }

  Fabric* const fabric_;
  const RegionShape shape_;
  const size_t regions_max_;
  size_t arriving_ = 0;
  absl::flat_hash_map<uint32_t, std::unique_ptr<HeldRegion>> regions_;
};

}  // namespace cell
