#include "cell/io/memory/region_pool.h"

#include <algorithm>
#include <array>

#include "cell/base/status_macros.h"

namespace cell {
namespace {

constexpr uint64_t kPageBytes = 4096;

// Overwrites a whole region. Readers may still believe what they read there, so nothing may look valid: not zeros,
// which say that a slot was never written, but ones, by which a node is invalidated (kVersionGone), and no CRC is
// right.
void Overwrite(RegionMemory* memory) {
  std::array<std::byte, kPageBytes> ones;
  ones.fill(std::byte{0xff});
  for (uint64_t at = 0; at < memory->bytes(); at += kPageBytes) {
    memory->Store(at, ones.data(), std::min(kPageBytes, memory->bytes() - at));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RegionPool::Region>> RegionPool::New(uint64_t bytes) const {
  auto made = std::make_unique<Region>();
  ASSIGN_OR_RETURN(made->shm, ShmMemory::Create("cell-region", bytes, ShmMemory::Sharing::kReadOnly, use_huge_pages_));
  made->bytes = bytes;
  made->memory = RegionMemory(made->shm.base(), bytes);
  return made;
}

absl::StatusOr<RegionMemory*> RegionPool::Make(uint32_t region, uint64_t bytes, bool staged) {
  RETURN_IF_ERROR(CheckRegion(region, bytes));
  std::unique_ptr<Region> made;
  const int64_t now_ns = clock_->NowNs();
  {
    const std::lock_guard lock(mutex_);
    const auto same = [region](const auto& one) { return one->id == region; };
    if (std::any_of(regions_.begin(), regions_.end(), same)) {
      return absl::AlreadyExistsError(fmt::format("region {} is already held", region));
    }
    const auto reusable = std::find_if(dropped_.begin(), dropped_.end(), [&](const auto& one) {
      const bool was_here = std::any_of(one->former.begin(), one->former.end(), [&](const auto& its) {
        return its.id == region && now_ns - its.dropped_ns < kFormerNs;
      });
      return one->bytes == bytes && !(staged && was_here);
    });
    if (reusable != dropped_.end()) {
      made = std::move(*reusable);
      dropped_.erase(reusable);
    }
  }
  if (made == nullptr) {
    ASSIGN_OR_RETURN(made, New(bytes));
    if (on_memory_) RETURN_IF_ERROR(on_memory_(made->shm));
  }
  made->id = region;
  made->staged = staged;
  made->memory.set_zero_freed(zero_freed_);
  RegionMemory* const memory = &made->memory;
  const std::lock_guard lock(mutex_);
  regions_.push_back(std::move(made));
  return memory;
}

void RegionPool::Publish(uint32_t region) {
  const std::lock_guard lock(mutex_);
  for (const auto& one : regions_) {
    if (one->id == region) one->staged = false;
  }
}

void RegionPool::Drop(uint32_t region) {
  std::unique_ptr<Region> dropped;
  {
    const std::lock_guard lock(mutex_);
    const auto it =
        std::find_if(regions_.begin(), regions_.end(), [region](const auto& one) { return one->id == region; });
    if (it == regions_.end()) return;
    dropped = std::move(*it);
    regions_.erase(it);
  }
  const int64_t now_ns = clock_->NowNs();
  std::erase_if(dropped->former,
                [&](const auto& one) { return one.id == region || now_ns - one.dropped_ns >= kFormerNs; });
  dropped->former.push_back({region, now_ns});
  if (zero_freed_) Overwrite(&dropped->memory);  // Without the lock: it takes long, and others look for regions.
  const std::lock_guard lock(mutex_);
  dropped_.push_back(std::move(dropped));
}

absl::StatusOr<bool> RegionPool::Prepare(uint64_t bytes, uint64_t slice) {
  if (preparing_ == nullptr || preparing_->bytes != bytes) {
    ASSIGN_OR_RETURN(preparing_, New(bytes));
    prepared_bytes_ = 0;
  }
  const uint64_t end = std::min(bytes, prepared_bytes_ + slice);
  for (; prepared_bytes_ < end; prepared_bytes_ += kPageBytes) {
    // Causes the kernel's page fault.
    *const_cast<volatile std::byte*>(preparing_->shm.base() + prepared_bytes_) = std::byte{};
  }
  if (end < bytes) return false;
  if (on_memory_) RETURN_IF_ERROR(on_memory_(preparing_->shm));
  const std::lock_guard lock(mutex_);
  dropped_.push_back(std::move(preparing_));
  return true;
}

absl::Status RegionPool::SetOnMemory(OnMemory on_memory) {
  on_memory_ = std::move(on_memory);
  if (!on_memory_) return absl::OkStatus();
  for (const auto* regions : {&regions_, &dropped_}) {
    for (const auto& region : *regions) RETURN_IF_ERROR(on_memory_(region->shm));
  }
  return absl::OkStatus();
}

size_t RegionPool::free_regions() const {
  const std::lock_guard lock(mutex_);
  return dropped_.size();
}

bool RegionPool::huge_pages() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(regions_.begin(), regions_.end(), [](const auto& region) { return region->shm.huge(); });
}

std::optional<RegionPool::Found> RegionPool::Find(uint32_t region) const {
  const std::lock_guard lock(mutex_);
  for (const auto& one : regions_) {
    if (one->id == region && !one->staged) return Found{&one->shm, one->bytes};
  }
  return std::nullopt;
}

void RegionPool::SetReaders(Readers readers) {
  const std::lock_guard lock(mutex_);
  everybody_reads_ = readers.everybody;
  readers_ = std::move(readers);
}

bool RegionPool::MayRead(const Identity& peer) const {
  if (everybody_reads_) return true;
  const std::lock_guard lock(mutex_);
  return readers_.Has(peer);
}

}  // namespace cell
