// Regions: those that a worker holds, each with its meganode. One thread: the worker's.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cell/base/status_macros.h"
#include "cell/io/fabric.h"
#include "cell/tree/meganode.h"

namespace cell {

struct HeldRegion {
  explicit HeldRegion(RegionMemory* memory) : memory(memory), meganode(memory) {}

  RegionMemory* memory;
  Meganode meganode;
  bool busy = false;   // Being split or moved.
  bool joined = true;  // Part of the tree; else being filled.
};

class Regions {
 public:
  Regions(Fabric* fabric, const RegionShape& shape, size_t regions_max)
      : fabric_(fabric), shape_(shape), regions_max_(regions_max) {}

  const RegionShape& shape() const { return shape_; }
  size_t regions_max() const { return regions_max_; }
  size_t size() const { return regions_.size(); }
  // All, by their ids.
  std::vector<HeldRegion*> all() const {
    std::vector<HeldRegion*> all;
    for (const auto& [id, region] : regions_) all.push_back(region.get());
    std::sort(all.begin(), all.end(),
              [](const auto* a, const auto* b) { return a->meganode.region() < b->meganode.region(); });
    return all;
  }

  // Null: not held.
  HeldRegion* Find(uint32_t region) const {
    const auto it = regions_.find(region);
    return it == regions_.end() ? nullptr : it->second.get();
  }

  // An empty meganode in a new region. ResourceExhausted: the worker holds as many as it may, or memory is out.
  absl::StatusOr<HeldRegion*> Create(uint32_t region, const Meganode::Range& range) {
    if (regions_.size() >= regions_max_) {
      return absl::ResourceExhaustedError(fmt::format("this worker holds {} regions, its limit", regions_.size()));
    }
    ASSIGN_OR_RETURN(RegionMemory * memory, fabric_->CreateRegion(region, shape_.region_bytes()));
    RETURN_IF_ERROR(Meganode::Format(memory, region, shape_, range));
    return regions_.emplace(region, std::make_unique<HeldRegion>(memory)).first->second.get();
  }
  void Drop(uint32_t region) {
    regions_.erase(region);
    fabric_->DropRegion(region);
  }

 private:
  Fabric* const fabric_;
  const RegionShape shape_;
  const size_t regions_max_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<HeldRegion>> regions_;
};

}  // namespace cell
