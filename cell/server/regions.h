// Regions: those that a worker holds, each with its meganode. One thread: the worker's.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cell/base/status_macros.h"
#include "cell/io/fabric.h"
#include "cell/layout/wire.h"
#include "cell/log/region_log.h"
#include "cell/tree/meganode.h"

namespace cell {

// A write whose record is in the log, and which is applied and answered once that is on disk.
struct PendingWrite {
  IncomingCall call;  // Its request's bytes are gone.
  MessageKind kind;
  uint64_t sequence;
  std::string key;
  Meganode::Prepared prepared;  // Of a put.
  Pointer hint;
};

struct HeldRegion {
  enum class State {
    kServing,
    kFrozen,  // Read, and not written: the last of it is on its way to another worker, or to the log.
    kSealed,  // Not even read: it is another worker's, or nearly so.
  };

  HeldRegion(RegionMemory* memory, std::unique_ptr<WrittenPages> written, uint64_t epoch)
      : memory(memory), written(std::move(written)), meganode(memory), epoch(epoch) {}

  // What is written from now on goes to `to`, too: `first`, before it is applied, which whoever writes sees to.
  void SetLog(std::shared_ptr<RegionLog> to, bool first) {
    log = std::move(to);
    log_first = first;
    meganode.set_on_write([this](const Meganode::Write& write) {
      if (!logged_already) log->Append(write.kind, write.key, write.value);
    });
  }

  uint64_t bytes_used() const {
    return meganode.header().nodes_used * meganode.header().node_bytes + meganode.extents().bytes_used;
  }

  RegionMemory* const memory;
  const std::unique_ptr<WrittenPages> written;  // Since the region was made, but for what a move has taken note of.
  Meganode meganode;
  uint64_t epoch;  // At which this worker has it.
  State state = State::kServing;
  bool busy = false;   // Being split, moved or checkpointed.
  bool joined = true;  // Part of the tree; else being filled.
  bool lost = false;   // It is another worker's: to be dropped when it is not busy any more.

  std::shared_ptr<RegionLog> log;  // Null: none is kept.
  bool log_first = false;
  bool logged_already = false;  // While a write is applied whose record is in the log.
  std::deque<PendingWrite> pending;
  // The log keeper's own.
  int64_t dirty_since_ns = 0, flush_begun_ns = 0;
  bool flush_now = false;
  bool late = false;  // Writes have to wait for the disk.
  uint64_t log_bytes_at_checkpoint = 0;
};

class Regions {
 public:
  Regions(Fabric* fabric, const RegionShape& shape, size_t regions_max)
      : fabric_(fabric), shape_(shape), regions_max_(regions_max) {}

  const RegionShape& shape() const { return shape_; }
  size_t regions_max() const { return regions_max_; }
  // Held, and on their way here.
  size_t size() const { return regions_.size() + arriving_.size(); }
  // All, by their ids.
  std::vector<HeldRegion*> all() const { return sorted_; }
  // In that order, too; `visit` drops none.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (HeldRegion* region : sorted_) visit(region);
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
    return Hold(region, memory, std::move(written), 1);
  }
  void Drop(uint32_t region) {
    HeldRegion* const held = Find(region);
    CELL_CHECK(held != nullptr);
    if (held->state != HeldRegion::State::kSealed) held->meganode.GiveUp();  // As of NotArrived.
    held->memory->set_written(nullptr);
    std::erase(sorted_, held);
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
    arriving_.insert(region);
    return memory;
  }
  bool Arriving(uint32_t region) const { return arriving_.contains(region); }
  // `written`: what was copied. The memory holds a whole region.
  HeldRegion* Arrived(uint32_t region, RegionMemory* memory, std::unique_ptr<WrittenPages> written, uint64_t epoch) {
    arriving_.erase(region);
    memory->set_written(written.get());
    return Hold(region, memory, std::move(written), epoch);
  }
  // `written`: what was written to it. None of its nodes must be there when the region comes once more: readers that
  // have seen it before would take them for what it holds then.
  void NotArrived(uint32_t region, RegionMemory* memory, const WrittenPages& written) {
    arriving_.erase(region);
    memory->set_written(nullptr);
    for (uint64_t node = kRegionHeaderBytes; node < kRegionHeaderBytes + shape_.meganode_bytes;
         node += shape_.node_bytes) {
      if (written.Has(node)) memory->StoreWord(node, kVersionGone);
    }
    fabric_->DropRegion(region);
  }

 private:
  HeldRegion* Hold(uint32_t region, RegionMemory* memory, std::unique_ptr<WrittenPages> written, uint64_t epoch) {
    auto held = std::make_unique<HeldRegion>(memory, std::move(written), epoch);
    const auto at = std::find_if(sorted_.begin(), sorted_.end(),
                                 [region](const HeldRegion* other) { return other->meganode.region() > region; });
    sorted_.insert(at, held.get());
    return regions_.emplace(region, std::move(held)).first->second.get();
  }
  absl::Status HasRoom() const {
    if (size() < regions_max_) return absl::OkStatus();
    return absl::ResourceExhaustedError(fmt::format("this worker holds {} regions, its limit (--regions-max)", size()));
  }

  Fabric* const fabric_;
  const RegionShape shape_;
  const size_t regions_max_;
  absl::flat_hash_set<uint32_t> arriving_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<HeldRegion>> regions_;
  std::vector<HeldRegion*> sorted_;  // By their ids.
};

}  // namespace cell
