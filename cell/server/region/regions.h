// Regions: those that a worker holds, each with its meganode. One thread: the worker's, which is checked.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cell/base/status_macros.h"
#include "cell/base/thread_checker.h"
#include "cell/cluster/region_table.h"
#include "cell/io/fabric/fabric.h"
#include "cell/layout/wire.h"
#include "cell/log/region_log.h"
#include "cell/tree/meganode.h"
#include "pilaf/hash_table.h"

namespace cell {

// A write whose record is in the log, and which is applied and answered once that is on disk.
struct PendingWrite {
  IncomingCall call;  // Its request's bytes are gone.
  MessageKind kind;
  uint64_t sequence;
  std::string key;
  PairStore::Prepared prepared;  // Of a put.
  Pointer hint;
};

// What a region holds: a meganode, or a part of a table.
struct RegionContent {
  MeganodeRange range;
  std::optional<HashRange> hash_range = {};
  uint32_t bucket_bytes = 0;
};

// Makes `memory` an empty region of this content.
inline absl::Status FormatRegion(RegionMemory* memory, uint32_t region, const RegionShape& shape,
                                 const RegionContent& content) {
  if (!content.hash_range.has_value()) return Meganode::Format(memory, region, shape, content.range);
  return HashTable::Format(memory, region, shape, *content.hash_range, content.bucket_bytes);
}

struct HeldRegion {
  enum class State {
    kServing,
    kFrozen,  // Read, and not written: the last of it is on its way to another worker, or to the log.
    kSealed,  // Not even read: it is another worker's, or nearly so.
  };

  HeldRegion(RegionMemory* memory, std::unique_ptr<WrittenPages> written, uint64_t epoch)
      : memory(memory),
        written(std::move(written)),
        store(Open(memory)),
        tree(dynamic_cast<Meganode*>(store.get())),
        hash(dynamic_cast<HashTable*>(store.get())),
        epoch(epoch) {}

  uint32_t region() const { return store->region(); }

  // What is written from now on goes to `to`, too: `first`, before it is applied, which whoever writes sees to.
  void SetLog(std::shared_ptr<RegionLog> to, bool first) {
    log = std::move(to);
    log_first = first;
    store->set_on_write([this](const PairStore::Write& write) {
      if (!logged_already) log->Append(write.kind, write.key, write.value);
    });
  }

  RegionContent content() const {
    if (tree != nullptr) return {tree->range()};
    return {{}, hash->range(), hash->place().bucket_bytes};
  }
  // The record that says which keys are here.
  struct RangeRecord {
    RecordKind kind;
    std::string key, value;
  };
  RangeRecord range_record() const {
    if (tree != nullptr) return {RecordKind::kRange, tree->range().low, EncodeRange(tree->range())};
    const HashRangeValue value{hash->range().first, hash->range().last, hash->place().bucket_bytes, 0};
    return {RecordKind::kHashRange, "", std::string(reinterpret_cast<const char*>(&value), sizeof(value))};
  }

  RegionMemory* const memory;
  const std::unique_ptr<WrittenPages> written;  // Since the region was made, but for what a move has taken note of.
  const std::unique_ptr<PairStore> store;
  Meganode* const tree;   // That is it; null: a part of a Pilaf table, and then
  HashTable* const hash;  // it is that.
  uint64_t epoch;         // At which this worker has it.
  State state = State::kServing;
  bool busy = false;      // Being split, moved or checkpointed, or until its route is known.
  bool unrouted = false;  // Its route is not known, since the tier above has no room. That may last.
  int64_t no_split_before_ns = INT64_MIN;  // One failed a moment ago.
  bool joined = true;  // Part of the tree; else being filled.
  bool lost = false;   // It is another worker's: to be dropped when it is not busy any more.

  std::shared_ptr<RegionLog> log;  // Null: none is kept.
  bool log_first = false;
  bool logged_already = false;  // While a write is applied whose record is in the log.
  std::deque<PendingWrite> pending;
  // The log keeper's own.
  int64_t dirty_since_ns = 0, flush_begun_ns = 0, idle_since_ns = 0;
  bool flush_now = false;
  bool late = false;  // Writes have to wait for the disk.
  uint64_t log_bytes_at_checkpoint = 0;

 private:
  static std::unique_ptr<PairStore> Open(RegionMemory* memory) {
    if (HashTable::IsIn(*memory)) return HashTable::Open(memory);
    return std::make_unique<Meganode>(memory);
  }
};

class Regions {
 public:
  Regions(Fabric* fabric, const RegionShape& shape, size_t regions_max)
      : fabric_(fabric), shape_(shape), regions_max_(regions_max) {}

  const RegionShape& shape() const { return shape_; }
  size_t regions_max() const { return regions_max_; }
  // Held, and on their way here.
  size_t size() const {
    thread_.Check();
    return regions_.size() + arriving_.size();
  }
  // All, by their ids.
  std::vector<HeldRegion*> all() const {
    thread_.Check();
    return sorted_;
  }
  // In that order, too; `visit` drops none.
  template <typename Visit>
  void ForEach(Visit visit) const {
    thread_.Check();
    for (HeldRegion* region : sorted_) visit(region);
  }

  // Of nodes and extents.
  uint64_t bytes_used() const {
    thread_.Check();
    uint64_t bytes = 0;
    for (const auto& [id, region] : regions_) bytes += region->store->bytes_used();
    return bytes;
  }

  // Null: not held.
  HeldRegion* Find(uint32_t region) const {
    thread_.Check();
    const auto it = regions_.find(region);
    return it == regions_.end() ? nullptr : it->second.get();
  }

  // Makes a region, empty. AlreadyExists: it is here, or on its way. ResourceExhausted: the worker holds as many as it
  // may, or memory is out.
  absl::StatusOr<HeldRegion*> Create(uint32_t region, const RegionContent& content) {
    RETURN_IF_ERROR(IsNew(region));
    RETURN_IF_ERROR(HasRoom());
    ASSIGN_OR_RETURN(RegionMemory * memory, fabric_->CreateRegion(region, shape_.region_bytes()));
    auto written = std::make_unique<WrittenPages>(shape_.region_bytes());
    memory->set_written(written.get());
    RETURN_IF_ERROR(FormatRegion(memory, region, shape_, content));
    return Hold(region, memory, std::move(written), 1);
  }
  void Drop(uint32_t region) {
    HeldRegion* const held = Find(region);
    CELL_CHECK(held != nullptr);
    if (held->state != HeldRegion::State::kSealed) held->store->GiveUp();  // As of NotArrived.
    held->memory->set_written(nullptr);
    std::erase(sorted_, held);
    regions_.erase(region);
    fabric_->DropRegion(region);
  }

  // Whether what was copied to `memory` is a region of this worker's shape.
  absl::Status CheckHeader(const RegionMemory& memory, uint32_t region) const {
    if (HashTable::IsIn(memory)) return HashTable::CheckHeader(memory, region, shape_);
    return Meganode::CheckHeader(memory.header(), region, shape_);
  }

  // Memory that is ready for regions to come.
  size_t free() const { return fabric_->free_regions(); }
  // Whether there may be memory for `count` more regions ready. ResourceExhausted: that is more than this worker may hold.
  absl::Status CheckRoom(uint64_t count) const {
    if (size() + free() + count <= regions_max_) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        fmt::format("this worker holds {} regions and has memory for {} more: {} is its limit (--regions-max)", size(),
                    free(), regions_max_));
  }
  // Gets `slice` bytes of memory for one more ready; true: it is all there. ResourceExhausted: there would be more than
  // this worker may hold, or there is no memory.
  absl::StatusOr<bool> Prepare(uint64_t slice) {
    RETURN_IF_ERROR(CheckRoom(1));
    return fabric_->PrepareRegion(shape_.region_bytes(), slice);
  }

  // Whether one more may come, beside those that `table` gives to `self` and that are not here yet: they are being
  // recovered, and need their places. ResourceExhausted: it may not.
  absl::Status CheckRoomBeside(const RegionTable& table, const WorkerId& self) const {
    const auto missing = std::count_if(table.regions.begin(), table.regions.end(), [&](const auto& one) {
      return one.second.owner == self && Find(one.first) == nullptr && !Arriving(one.first);
    });
    return HasRoom(static_cast<size_t>(missing));
  }
  // Keeps room for a region that may come here: from now on it is arriving, and nothing else arrives under its id.
  // Receive follows, or Unexpect. AlreadyExists: it is here, or on its way. ResourceExhausted: there is no room.
  absl::Status Expect(uint32_t region) {
    RETURN_IF_ERROR(IsNew(region));
    RETURN_IF_ERROR(HasRoom());
    arriving_.insert(region);
    return absl::OkStatus();
  }
  void Unexpect(uint32_t region) { arriving_.erase(region); }
  // Memory to copy a region to that comes from another worker; Arrived or NotArrived follows. After an error it is
  // still expected. REQUIRES: it is expected.
  absl::StatusOr<RegionMemory*> Receive(uint32_t region) {
    CELL_CHECK(Arriving(region));
    return fabric_->CreateRegion(region, shape_.region_bytes());
  }
  // Both in one, of a region that comes from a log: no client sees what is not all there until it has arrived.
  absl::StatusOr<RegionMemory*> ReceiveStaged(uint32_t region) {
    RETURN_IF_ERROR(Expect(region));
    const absl::StatusOr<RegionMemory*> memory = fabric_->CreateStagedRegion(region, shape_.region_bytes());
    if (!memory.ok()) Unexpect(region);
    return memory;
  }
  // Puts zeros into so many bytes, but not into extents; where they end.
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
  // `written`: what was copied. The memory holds a whole region.
  HeldRegion* Arrived(uint32_t region, RegionMemory* memory, std::unique_ptr<WrittenPages> written, uint64_t epoch) {
    arriving_.erase(region);
    fabric_->PublishRegion(region);
    memory->set_written(written.get());
    return Hold(region, memory, std::move(written), epoch);
  }
  // `written`: what was written to it. None of its nodes, slots, buckets must be there when the region comes once more:
  // readers that have seen it before would take them for what it holds then.
  void NotArrived(uint32_t region, RegionMemory* memory, const WrittenPages& written) {
    arriving_.erase(region);
    memory->set_written(nullptr);
    // The first word of each slot, and so of each bucket and node, which are larger.
    for (uint64_t at = kRegionHeaderBytes; at < kRegionHeaderBytes + shape_.meganode_bytes; at += sizeof(HashSlot)) {
      if (written.Has(at)) memory->StoreWord(at, kVersionGone);
    }
    memory->header().magic = kRegionMagic;  // It is not zeros.
    fabric_->DropRegion(region);
  }

 private:
  HeldRegion* Hold(uint32_t region, RegionMemory* memory, std::unique_ptr<WrittenPages> written, uint64_t epoch) {
    auto held = std::make_unique<HeldRegion>(memory, std::move(written), epoch);
    const auto at = std::find_if(sorted_.begin(), sorted_.end(),
                                 [region](const HeldRegion* other) { return other->region() > region; });
    sorted_.insert(at, held.get());
    return regions_.emplace(region, std::move(held)).first->second.get();
  }
  absl::Status IsNew(uint32_t region) const {
    if (Find(region) == nullptr && !Arriving(region)) return absl::OkStatus();
    return absl::AlreadyExistsError(fmt::format("region {} is here already, or on its way", region));
  }
  absl::Status HasRoom(size_t missing = 0) const {
    if (size() + missing < regions_max_) return absl::OkStatus();
    return absl::ResourceExhaustedError(fmt::format("this worker holds {} regions{}, its limit (--regions-max)",
                                                    size() + missing,
                                                    missing == 0 ? "" : ", with those that it recovers"));
  }

  const ThreadChecker thread_;
  Fabric* const fabric_;
  const RegionShape shape_;
  const size_t regions_max_;
  absl::flat_hash_set<uint32_t> arriving_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<HeldRegion>> regions_;
  std::vector<HeldRegion*> sorted_;  // By their ids.
};

}  // namespace cell
