#include "cell/server/region/log_collector.h"

#include "cell/base/status_macros.h"
#include "cell/cluster/membership_await.h"
#include "spdlog/spdlog.h"

namespace cell {

void LogCollector::Step() {
  if (!logs_->on() || logs_->found_anothers() || looking_ || scheduler_->stopping()) return;
  const int64_t now_ns = clock_->NowNs();
  if (look_at_ns_ == 0) look_at_ns_ = now_ns + options_.look_every_ns;
  if (now_ns < look_at_ns_) return;
  look_at_ns_ = now_ns + options_.look_every_ns;
  if (regions_->Find(membership_->state().table.root) == nullptr) {
    seen_.clear();
    return;
  }
  looking_ = true;
  scheduler_->Spawn(Look());
}

Task<bool> LogCollector::Look() {
  std::map<uint32_t, uint32_t> kept;  // Their last epochs.
  const RegionTable before = membership_->state().table;
  const RunInPool::Work list = [this, &kept, &before]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<uint32_t> regions, logs_->store()->Regions());
    for (const uint32_t region : regions) {
      if (before.Find(region) != nullptr) continue;
      const absl::StatusOr<uint32_t> last_epoch = logs_->store()->LastEpoch(region);
      if (absl::IsDataLoss(last_epoch.status())) continue;  // It stays, and the others go.
      RETURN_IF_ERROR(last_epoch.status());
      kept[region] = *last_epoch;
    }
    return absl::OkStatus();
  };
  absl::Status status = co_await logs_->RunOnDisk(list);
  if (status.ok()) status = co_await RefreshAwaiter(membership_);
  std::map<uint32_t, uint32_t> nobodys;
  const RegionTable table = membership_->state().table;
  for (const auto& [region, last_epoch] : kept) {
    // If this table is an older copy that was put back, it may not know the region yet.
    const bool known = table.ids.Given(region) && last_epoch <= table.ids.removed_epoch;
    if (status.ok() && known && table.IsGone(region, last_epoch)) nobodys[region] = last_epoch;
  }
  for (const auto& [region, last_epoch] : nobodys) {
    const auto seen = seen_.find(region);
    if (seen == seen_.end() || seen->second != last_epoch || regions_->Find(region) != nullptr ||
        scheduler_->stopping())
      continue;
    const bool removed = co_await logs_->RemoveLog(region, last_epoch);
    removed_ += removed;
    if (removed) spdlog::info("the log of region {}, which no longer exists, was removed", region);
  }
  seen_ = std::move(nobodys);
  looking_ = false;
  co_return true;
}

}  // namespace cell
