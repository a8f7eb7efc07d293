#include "cell/server/region/region_allocator.h"

#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/server/region/commit_table_change.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr uint64_t kPreparedPerStep = uint64_t{256} << 10;

}  // namespace

Task<absl::Status> RegionAllocator::PrepareMemory(uint32_t regions) {
  if (const absl::Status room = regions_->CheckRoom(regions); !room.ok()) co_return room;
  for (uint32_t made = 0; made < regions;) {
    const absl::StatusOr<bool> ready = regions_->Prepare(kPreparedPerStep);
    if (!ready.ok()) co_return ready.status();
    made += *ready;
    co_await scheduler_->Yield();
    if (scheduler_->stopping()) co_return absl::CancelledError("this server is shutting down");
  }
  co_return absl::OkStatus();
}

Task<absl::StatusOr<RegionClaim>> RegionAllocator::Allocate(RegionContent content, uint32_t split_parent) {
  const absl::Status room = regions_->CheckRoomBeside(membership_->state().table, self_);
  if (!room.ok()) co_return room;
  absl::StatusOr<uint32_t> id = absl::CancelledError("this server is shutting down");
  {
    const Mutex::Guard guard = co_await adding_.Lock(scheduler_);
    if (scheduler_->stopping()) co_return id.status();
    id = co_await Add(split_parent);
  }
  if (!id.ok()) co_return id.status();
  const absl::StatusOr<HeldRegion*> made = regions_->Create(*id, content, RegionState::kFilling);
  absl::Status status = made.status();
  RegionClaim claim;
  if (status.ok()) {
    claim = RegionClaim(*made, ClaimPurpose::kFill);
    status = co_await logs_->Create(*id);
  }
  if (!status.ok()) {
    // A log that already existed must not be removed by this worker.
    co_await Discard(*id, /*remove_log=*/!absl::IsAlreadyExists(status));
    co_return status;
  }
  co_return claim;
}

bool RegionAllocator::IsNew(const RegionTable& table, uint32_t region) const {
  const RegionTable::Entry* entry = table.Find(region);
  return entry != nullptr && entry->owner == self_ && entry->epoch == 1;
}

Task<absl::StatusOr<uint32_t>> RegionAllocator::Add(uint32_t split_parent) {
  uint32_t id = 0;
  const HeldRegion* left = regions_->Find(split_parent);
  const uint64_t left_epoch = left == nullptr ? 0 : left->epoch();
  // Memberships run changes on threads of their own, so a change reads no state of the worker that may change.
  const size_t regions_max = regions_->regions_max();
  Membership::TableChange add = [this, &id, split_parent, left_epoch, regions_max](RegionTable* table) -> absl::Status {
    if (id != 0 && IsNew(*table, id)) return absl::OkStatus();  // It was made before.
    if (split_parent != 0) RETURN_IF_ERROR(table->CheckEpoch(split_parent, left_epoch));
    const size_t count = Mutated(Mutant::kChangeReadsRegions) ? regions_->size() : table->CountOf(self_);
    if (count >= regions_max) {
      return absl::ResourceExhaustedError(
          "this worker has no room for another region, counting those it is recovering (--regions-max)");
    }
    ASSIGN_OR_RETURN(id, table->Add(self_, split_parent));
    return absl::OkStatus();
  };
  const absl::Status status = co_await CommitTableChange(membership_, scheduler_, std::move(add));
  if (!status.ok()) co_return status;
  co_return id;
}

Task<bool> RegionAllocator::Discard(uint32_t region, bool remove_log) {
  Membership::TableChange remove = [this, region](RegionTable* table) -> absl::Status {
    if (table->Find(region) == nullptr) return absl::OkStatus();
    // It goes with its split parent, which has another owner by now.
    if (!IsNew(*table, region)) return absl::AbortedError("it was taken over");
    return table->Remove(region);
  };
  const absl::Status status = co_await CommitTableChange(membership_, scheduler_, std::move(remove));
  if (scheduler_->stopping()) co_return false;
  if (regions_->Find(region) != nullptr) regions_->Drop(region);
  if (!status.ok()) spdlog::info("cannot remove region {} from the table: {}", region, std::string(status.message()));
  if (status.ok() && remove_log) co_await logs_->RemoveLog(region);
  co_return status.ok();
}

}  // namespace cell
