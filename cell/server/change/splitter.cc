#include "cell/server/change/splitter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cell/base/mutant.h"
#include "cell/base/sync_points.h"
#include "cell/cluster/membership_await.h"
#include "cell/server/region/log_flusher.h"
#include "cell/server/region/regions.h"
#include "cell/server/report/status_report.h"
#include "cell/server/sched/scheduler.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr int64_t kLookEveryNs = 500'000;
constexpr int64_t kFailedPauseNs = 1'000'000'000;
constexpr int64_t kNoRoomPauseNs = 100'000'000;  // There may be room elsewhere by then.
constexpr int64_t kRegionPauseNs = 500'000;
constexpr int64_t kRetryPauseNs = 2'000'000;
constexpr size_t kHurriedSteps = 16;

absl::Status Lost() { return absl::AbortedError("the region is no longer served here"); }
absl::Status Stopping() { return absl::CancelledError("this server is shutting down"); }

void NoteLongest(uint64_t* longest, int64_t ns) { *longest = std::max(*longest, static_cast<uint64_t>(ns)); }

nlohmann::json ToJson(const Splitter::Counters& counters) {
  const auto us = [](uint64_t ns) { return static_cast<double>(ns) / 1e3; };
  return {{"splits", counters.splits},
          {"failed", counters.failed},
          {"longest_copy_us", us(counters.longest_copy_ns)},
          {"longest_frozen_us", us(counters.longest_frozen_ns)},
          {"longest_cut_us", us(counters.longest_cut_ns)},
          {"longest_untold_us", us(counters.longest_untold_ns)}};
}

}  // namespace

Splitter::Splitter(const WorkerContext& context, RegionAllocator* allocator, RoutePublisher* routes,
                   const HeldWrites* held, SplitterOptions options)
    : clock_(context.clock),
      membership_(context.membership),
      scheduler_(context.scheduler),
      regions_(context.regions),
      logs_(context.logs),
      sync_points_(context.sync_points),
      allocator_(allocator),
      routes_(routes),
      held_(held),
      options_(options) {
  context.status->Add([this](nlohmann::json* status) {
    (*status)["splitter"] = {{"meganodes", ToJson(meganodes_)}, {"parts", ToJson(parts_)}};
  });
}

void Splitter::Reach(const HeldRegion& region, std::string_view step) const {
  if (!sync_points_->on_reach) return;
  sync_points_->Reach(fmt::format("{}: {}", region.tree != nullptr ? "split" : "table split", step));
}

void Splitter::Step() {
  const int64_t now_ns = clock_->NowNs();
  if (scheduler_->stopping() || now_ns < look_at_ns_) return;
  look_at_ns_ = now_ns + kLookEveryNs;
  for (HeldRegion* region : regions_->all()) {
    const bool can_log = region->log == nullptr || region->log->status().ok();
    // Attempts in vain, again and again, would keep a dropped table's part from being removed.
    if (membership_->state().table.IsGone(region->region(), region->epoch())) continue;
    if (region->claimable() && can_log && region->store->fill() >= options_.split_at) Begin(region);
  }
}

bool Splitter::Begin(HeldRegion* region) {
  const bool has_room = regions_->size() < regions_->regions_max();
  const bool pauses = region->no_split_before_ns > clock_->NowNs() && !(region->lacked_room && has_room);
  if (scheduler_->stopping() || pauses) return false;
  scheduler_->Spawn(SplitAlone(RegionClaim(region, ClaimPurpose::kSplit)));
  return true;
}

Task<bool> Splitter::SplitAlone(RegionClaim claim) { co_return (co_await SplitClaimed(std::move(claim))).ok(); }

Task<absl::Status> Splitter::Split(uint32_t id) {
  HeldRegion* const region = regions_->Find(id);
  if (region == nullptr) co_return absl::NotFoundError(fmt::format("region {} is not held by this worker", id));
  if (!region->claimable()) co_return absl::AbortedError(fmt::format("region {} is being split or migrated", id));
  if (scheduler_->stopping()) co_return Stopping();
  RegionClaim claim(region, ClaimPurpose::kSplit);
  co_return co_await SplitClaimed(std::move(claim));
}

Task<absl::Status> Splitter::SplitClaimed(RegionClaim claim) {
  HeldRegion* const region = claim.region();
  const uint32_t id = region->region();
  absl::StatusOr<RegionContent> upper = RegionSplit::ChooseUpperPart(*region);
  absl::Status status = upper.status();
  if (upper.ok()) status = co_await SplitOff(region, *std::move(upper));
  if (scheduler_->stopping()) co_return Stopping();
  region->awaits_region = absl::IsResourceExhausted(status) && on_no_room_();
  region->lacked_room = absl::IsResourceExhausted(status) && regions_->size() >= regions_->regions_max();
  if (status.ok()) {
    region->no_split_before_ns = INT64_MIN;
    region->split_error.clear();
  } else if (region->awaits_region) {
    region->no_split_before_ns = clock_->NowNs() + kRegionPauseNs;
  } else {
    ++CountersOf(*region).failed;
    region->no_split_before_ns = clock_->NowNs() + (region->lacked_room ? kNoRoomPauseNs : kFailedPauseNs);
    region->split_error = std::string(status.message());
    if (const auto more = repeats_.Due(fmt::format("split {}", id), clock_->NowNs())) {
      spdlog::warn("region {} is {:.0f} % full, but could not be split: {}{}", id, 100 * region->store->fill(),
                   std::string(status.message()), *more);
    }
  }
  claim.Release();
  co_return status;
}

Task<absl::Status> Splitter::SplitOff(HeldRegion* region, RegionContent content) {
  const Meganode::BordersKept borders(region->tree);  // The upper part begins at a border of leaves.
  absl::StatusOr<RegionClaim> upper = co_await allocator_->Allocate(std::move(content), region->region());
  if (!upper.ok()) co_return upper.status();
  const auto made = RegionAllocator::NewRegion::Of(*upper->region());
  Reach(*region, "region made");
  absl::Status status = co_await CopyAndCut(region, &*upper);
  if (status.ok() || scheduler_->stopping()) co_return status;
  if (region->log == nullptr || region->log->status().ok()) {
    co_await allocator_->Discard(made);
  } else {
    regions_->Drop(made.id);  // The cut may be on disk: a recovery of the lower region learns it from the log.
  }
  co_return status;
}

Task<absl::Status> Splitter::CopyAndCut(HeldRegion* lower, RegionClaim* claim) {
  HeldRegion* const upper = claim->region();
  Counters& counters = CountersOf(*lower);
  const std::unique_ptr<RegionSplit> split = RegionSplit::Begin(lower, upper, options_.pace);
  const int64_t begun_ns = clock_->NowNs();
  for (bool copied = false; !copied;) {
    if (scheduler_->stopping()) co_return Stopping();
    if (lower->lost() || upper->lost()) co_return Lost();
    // Waiting writes gain more from the end of the split than from a fair share of the worker.
    const absl::StatusOr<bool> all = split->Copy(held_->size(lower->region()) > 0 ? kHurriedSteps : 1);
    if (!all.ok()) co_return all.status();
    copied = *all;
    co_await scheduler_->Yield();
  }
  NoteLongest(&counters.longest_copy_ns, clock_->NowNs() - begun_ns);
  if (scheduler_->stopping()) co_return Stopping();
  Reach(*lower, "copied");
  absl::Status status = co_await Cut(lower, upper, split.get());
  if (!status.ok()) co_return status;
  const int64_t cut_ns = clock_->NowNs();
  upper->ChangeState(RegionState::kServing);
  Reach(*lower, "cut");
  co_await TellTable(lower, split.get());
  NoteLongest(&counters.longest_untold_ns, clock_->NowNs() - cut_ns);
  Reach(*lower, "joined");
  spdlog::info("region {} was split: {} are now in region {}", lower->region(), split->UpperPart(), upper->region());
  // The new region stays claimed until its route is known. Until then only its left neighbour leads to it.
  if (std::optional<RegionSplit::Route> route = split->route()) {
    scheduler_->Spawn(routes_->Publish(route->tier, std::move(route->key), std::move(*claim)));
  }
  while (!split->Clean()) {
    if (!scheduler_->stopping()) co_await scheduler_->Yield();
  }
  Reach(*lower, "cleaned");
  ++counters.splits;
  co_return absl::OkStatus();
}

// Makes the cut. The new region's log is on disk before the cut is, and the cut before the new region takes a write.
// Replay of both logs therefore finds a whole region, or a cut one with a whole upper part.
Task<absl::Status> Splitter::Cut(HeldRegion* lower, HeldRegion* upper, RegionSplit* split) {
  Counters& counters = CountersOf(*lower);
  if (lower->lost() || upper->lost()) co_return Lost();
  const int64_t frozen_ns = clock_->NowNs();
  lower->ChangeState(RegionState::kFrozen);
  absl::Status status = co_await logs_->Settled(lower->region());
  split->TakeStamps();
  // The lower region is frozen, so it gets no more of them.
  if (!Mutated(Mutant::kOutcomesUnsplit)) upper->TakeOutcomes(*lower);
  if (logs_->on()) {
    if (status.ok()) status = co_await logs_->Flushed(upper->region());
    if (status.ok()) status = split->mirrored();
    if (status.ok()) {
      split->LogCut();
      Reach(*lower, "cut logged");
      status = co_await logs_->Flushed(lower->region());
    }
  }
  lower->Unfreeze();
  NoteLongest(&counters.longest_frozen_ns, clock_->NowNs() - frozen_ns);
  if (!status.ok()) co_return status;
  if (lower->lost() || upper->lost()) co_return Lost();
  const int64_t begun_ns = clock_->NowNs();
  status = split->Cut();
  if (status.ok() && upper->tree != nullptr) {
    lower->snapshots.SplitTo(upper->tree->range().low, &upper->snapshots, clock_->NowNs());
    upper->FollowChanges();
    lower->FollowChanges();
  }
  NoteLongest(&counters.longest_cut_ns, clock_->NowNs() - begun_ns);
  co_return status;
}

Task<bool> Splitter::TellTable(const HeldRegion* lower, const RegionSplit* split) {
  while (!lower->lost() && !scheduler_->stopping()) {
    Membership::TableChange change = split->TableChange();
    const absl::Status status = co_await ChangeAwaiter(membership_, std::move(change));
    if (status.ok() || absl::IsNotFound(status)) co_return true;  // Not found: the table was dropped.
    co_await scheduler_->Sleep(kRetryPauseNs);
  }
  co_return false;
}

}  // namespace cell
