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
  std::vector<uint32_t> kept;
  const RunInPool::Work list = [this, &kept]() -> absl::Status {
    ASSIGN_OR_RETURN(kept, logs_->store()->Regions());
    return absl::OkStatus();
  };
  absl::Status status = co_await logs_->RunOnDisk(list);
  if (status.ok()) status = co_await RefreshAwaiter(membership_);
  std::set<uint32_t> nobodys;
  const RegionTable table = membership_->state().table;
  for (const uint32_t region : kept) {
    if (status.ok() && region < table.next_region && table.Find(region) == nullptr) nobodys.insert(region);
  }
  for (const uint32_t region : nobodys) {
    if (!seen_.contains(region) || regions_->Find(region) != nullptr || scheduler_->stopping()) continue;
    const bool removed = co_await logs_->RemoveLog(region);
    removed_ += removed;
    if (removed) spdlog::info("the log of region {}, which no longer exists, was removed", region);
  }
  seen_ = std::move(nobodys);
  looking_ = false;
  co_return true;
}

}  // namespace cell
