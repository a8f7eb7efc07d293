#include "cell/server/region_maker.h"

#include "cell/base/status_macros.h"
#include "cell/cluster/membership_await.h"
#include "spdlog/spdlog.h"

namespace cell {

Task<absl::StatusOr<HeldRegion*>> RegionMaker::Make(RegionContent content, uint32_t made_for) {
  if (regions_->size() >= regions_->regions_max()) {
    co_return absl::ResourceExhaustedError(
        fmt::format("this worker holds {} regions, its limit (--regions-max)", regions_->size()));
  }
  uint32_t id = 0;
  const HeldRegion* left = regions_->Find(made_for);
  const uint64_t left_epoch = left == nullptr ? 0 : left->epoch;
  Membership::TableChange add = [this, &id, made_for, left_epoch](RegionTable* table) -> absl::Status {
    const RegionTable::Entry* entry = table->Find(made_for);
    if (made_for != 0 && (entry == nullptr || entry->epoch != left_epoch)) {
      return absl::AbortedError("the region is another worker's by now");
    }
    ASSIGN_OR_RETURN(id, table->Add(self_, made_for));
    return absl::OkStatus();
  };
  absl::Status status = co_await ChangeAwaiter(membership_, std::move(add));
  if (!status.ok()) co_return status;
  const absl::StatusOr<HeldRegion*> made = regions_->Create(id, content);
  status = made.status();
  if (status.ok()) {
    (*made)->busy = true;
    (*made)->joined = false;
    status = co_await logs_->Create(id);
  }
  if (!status.ok()) {
    co_await Abandon(id);
    co_return status;
  }
  co_return *made;
}

Task<bool> RegionMaker::Abandon(uint32_t region) {
  if (regions_->Find(region) != nullptr) regions_->Drop(region);
  const absl::Status status =
      co_await ChangeAwaiter(membership_, [region](RegionTable* table) { return table->Remove(region); });
  if (!status.ok()) spdlog::warn("region {} stays in the table, unused: {}", region, std::string(status.message()));
  if (status.ok()) co_await RemoveLog(region);
  co_return status.ok();
}

Task<bool> RegionMaker::RemoveLog(uint32_t region) {
  if (!logs_->on()) co_return true;
  const Offload::Work remove = [this, region] { return logs_->store()->Remove(region); };
  const absl::Status removed = co_await logs_->Do(remove);
  if (!removed.ok()) spdlog::warn("the log of region {} stays: {}", region, std::string(removed.message()));
  co_return removed.ok();
}

}  // namespace cell
