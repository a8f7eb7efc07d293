#include "cell/server/request/expiry_sweeper.h"

#include <string>
#include <vector>

#include "cell/base/clock.h"
#include "cell/server/region/regions.h"
#include "cell/server/sched/scheduler.h"

namespace cell {

ExpirySweeper::ExpirySweeper(const WorkerContext& context, ServedRegions* served, WritePipeline* writes,
                             const Options& options)
    : clock_(context.clock),
      scheduler_(context.scheduler),
      regions_(context.regions),
      served_(served),
      writes_(writes),
      options_(options) {}

void ExpirySweeper::Step() {
  const int64_t now_ns = clock_->NowNs();
  if (busy_ || scheduler_->stopping() || now_ns < look_at_ns_) return;
  look_at_ns_ = now_ns + options_.idle_pause_ns;
  const uint32_t region = NextRegion();
  if (region == 0) return;
  busy_ = true;
  scheduler_->Spawn(Sweep(region));
}

uint32_t ExpirySweeper::NextRegion() const {
  served_->CheckLease();
  uint32_t found = 0;
  Expiry first = UINT64_MAX;
  regions_->ForEach([&](const HeldRegion* region) {
    if (!ExpirySweep::Pays(*region->store) || !writes_->MayDeleteExpired(*region)) return;
    if (found != 0 && region->store->first_expiry() >= first) return;
    found = region->region();
    first = region->store->first_expiry();
  });
  return found;
}

Task<bool> ExpirySweeper::Sweep(uint32_t region) {
  HeldRegion* held = regions_->Find(region);
  if (held != nullptr) {
    ExpirySweep sweep(held->store.get());
    while (SweepPlaces(region, &sweep)) co_await scheduler_->Sleep(options_.turn_pause_ns);
    held = regions_->Find(region);
    if (held != nullptr) {
      held->sweeping = false;
      if (!sweep.ended()) ExpirySweep::Repeat(held->store.get());
    }
  }
  busy_ = false;
  co_return true;
}

bool ExpirySweeper::SweepPlaces(uint32_t region, ExpirySweep* sweep) {
  HeldRegion* const held = regions_->Find(region);
  if (scheduler_->stopping() || held == nullptr || held->lost()) return false;
  held->sweeping = true;
  served_->CheckLease();
  if (!writes_->MayDeleteExpired(*held)) return false;
  bool all = true;
  for (int places = 0; places < kPlacesPerTurn && !sweep->ended(); ++places) {
    absl::StatusOr<std::vector<std::string>> keys = sweep->Next(held->store.get());
    if (!keys.ok()) return false;
    const absl::StatusOr<bool> deleted = writes_->DeleteExpired(*std::move(keys), held);
    if (!deleted.ok()) return false;
    all &= *deleted;
  }
  if (!all) ExpirySweep::Repeat(held->store.get());
  return !sweep->ended();
}

}  // namespace cell
