#include "cell/server/region/region_allocator.h"

#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/cluster/membership_await.h"
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
  absl::Status room = regions_->CheckRoomBeside(membership_->state().table, self_);
  if (!room.ok() && regions_->size() < regions_->regions_max()) {
    (void)co_await RefreshAwaiter(membership_);  // What was taken for missing may have just migrated away.
    room = regions_->CheckRoomBeside(membership_->state().table, self_);
  }
  if (!room.ok()) co_return room;
  absl::StatusOr<NewRegion> added = absl::CancelledError("this server is shutting down");
  {
    const Mutex::Guard guard = co_await adding_.Lock(scheduler_);
    if (scheduler_->stopping()) co_return added.status();
    added = co_await Add(split_parent);
  }
  if (!added.ok()) co_return added.status();
  const uint32_t id = added->id;
  const absl::StatusOr<HeldRegion*> made = regions_->Create(id, content, RegionState::kFilling, added->epoch);
  absl::Status status = made.status();
  RegionClaim claim;
  if (status.ok()) {
    claim = RegionClaim(*made, ClaimPurpose::kFill);
    status = co_await logs_->Create(id);
  }
  if (!status.ok()) {
    // A log that already existed must not be removed by this worker.
    co_await Discard(*added, /*remove_log=*/!absl::IsAlreadyExists(status));
    co_return status;
  }
  co_return claim;
}

bool RegionAllocator::IsNew(const RegionTable& table, NewRegion region) const {
  const RegionTable::Entry* entry = table.Find(region.id);
  return entry != nullptr && entry->owner == self_ && entry->epoch == region.epoch;
}

Task<absl::StatusOr<RegionAllocator::NewRegion>> RegionAllocator::Add(uint32_t split_parent) {
  NewRegion made;
  const HeldRegion* left = regions_->Find(split_parent);
  const uint64_t left_epoch = left == nullptr ? 0 : left->epoch();
  // Memberships run changes on threads of their own, so a change reads no state of the worker that may change.
  const size_t regions_max = regions_->regions_max();
  Membership::TableChange add = [this, &made, split_parent, left_epoch,
                                 regions_max](RegionTable* table) -> absl::Status {
    if (made.id != 0 && IsNew(*table, made)) return absl::OkStatus();  // It was made before.
    if (split_parent != 0) RETURN_IF_ERROR(table->CheckEpoch(split_parent, left_epoch));
    const size_t count = Mutated(Mutant::kChangeReadsRegions) ? regions_->size() : table->CountOf(self_);
    if (count >= regions_max) {
      return absl::ResourceExhaustedError(
          "this worker has no room for another region, counting those it is recovering (--regions-max)");
    }
    ASSIGN_OR_RETURN(made.id, table->Add(self_, split_parent));
    made.epoch = table->Find(made.id)->epoch;
    return absl::OkStatus();
  };
  const absl::Status status = co_await CommitTableChange(membership_, scheduler_, std::move(add));
  if (!status.ok()) co_return status;
  co_return made;
}

Task<bool> RegionAllocator::Discard(NewRegion region, bool remove_log) {
  Membership::TableChange remove = [this, region](RegionTable* table) -> absl::Status {
    if (table->IsGone(region.id, region.epoch)) return absl::OkStatus();
    // It goes with its split parent, which has another owner by now.
    if (!IsNew(*table, region)) return absl::AbortedError("it was taken over");
    return table->Remove(region.id);
  };
  const absl::Status status = co_await CommitTableChange(membership_, scheduler_, std::move(remove));
  if (scheduler_->stopping()) co_return false;
  const HeldRegion* const held = regions_->Find(region.id);
  if (held != nullptr && held->epoch() == region.epoch) regions_->Drop(region.id);  // Else it is an earlier one.
  if (!status.ok())
    spdlog::info("cannot remove region {} from the table: {}", region.id, std::string(status.message()));
  if (status.ok() && remove_log) co_await logs_->RemoveLog(region.id, region.epoch);
  co_return status.ok();
}

}  // namespace cell
