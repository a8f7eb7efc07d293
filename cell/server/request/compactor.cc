#include "cell/server/request/compactor.h"

#include <algorithm>

#include "cell/base/clock.h"
#include "cell/base/mutant.h"
#include "cell/server/region/regions.h"
#include "cell/server/report/status_report.h"
#include "cell/server/sched/scheduler.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr size_t kNotesMax = 1'000;
constexpr double kGainMin = 0.9;  // A pass in the background that leaves more of the fragmentation was in vain.

}  // namespace

Compactor::Compactor(const WorkerContext& context, const Options& options)
    : clock_(context.clock), scheduler_(context.scheduler), regions_(context.regions), options_(options) {
  context.status->Add([this](nlohmann::json* status) {
    (*status)["compactor"] = {{"passes", counters_.passes},
                              {"in_vain", counters_.in_vain},
                              {"moved", counters_.moved},
                              {"moved_bytes", counters_.moved_bytes}};
  });
}

bool Compactor::MayCompact(const HeldRegion& region) {
  const bool has_extents = region.tree == nullptr || region.tree->tier() == 0;
  if (Mutated(Mutant::kCompactsFrozen) && region.state() == RegionState::kFrozen) return has_extents;
  const bool free = region.claimable() || region.claim_yields();
  return has_extents && free && region.state() == RegionState::kServing;
}

void Compactor::Step() {
  const int64_t now_ns = clock_->NowNs();
  if (busy_ || scheduler_->stopping() || now_ns < look_at_ns_) return;
  look_at_ns_ = now_ns + options_.idle_pause_ns;
  if (notes_.size() > kNotesMax) notes_.clear();
  if (NextInBackground() != 0) Begin();
}

void Compactor::Begin() {
  busy_ = true;
  scheduler_->Spawn(Run());
}

bool Compactor::MakeRoom(HeldRegion* region, uint64_t bytes) {
  if (scheduler_->stopping() || !MayCompact(*region)) return false;
  if (!ExtentCompaction::MayMakeRoom(*region->store, bytes)) return false;
  Note& note = notes_[region->region()];
  const bool refused = bytes >= note.refused && clock_->NowNs() < note.refused_until_ns;
  if (refused && region->store->extents().bytes_used + bytes > note.refused_used) return false;
  note.wanted = std::max(note.wanted, bytes);
  if (!busy_) Begin();
  return true;
}

uint32_t Compactor::NextWanted() const {
  const auto it = std::find_if(notes_.begin(), notes_.end(), [](const auto& note) { return note.second.wanted > 0; });
  return it != notes_.end() ? it->first : 0;
}

uint32_t Compactor::NextInBackground() const {
  const int64_t now_ns = clock_->NowNs();
  uint32_t found = 0;
  uint64_t most = 0;
  regions_->ForEach([&](const HeldRegion* region) {
    if (!MayCompact(*region) || !ExtentCompaction::Pays(*region->store)) return;
    const auto it = notes_.find(region->region());
    if (it != notes_.end() && now_ns < it->second.not_before_ns) return;
    const ExtentAllocator::Usage usage = region->store->extents();
    const uint64_t scattered = usage.bytes_total - usage.bytes_used - usage.largest_free_bytes;
    if (scattered <= most) return;
    most = scattered;
    found = region->region();
  });
  return found;
}

Task<bool> Compactor::Run() {
  uint32_t region = NextWanted();
  if (region == 0) region = NextInBackground();
  while (region != 0 && !scheduler_->stopping()) {
    co_await Compact(region);
    region = NextWanted();
  }
  busy_ = false;
  co_return true;
}

bool Compactor::Lacks(const HeldRegion& region) const {
  const auto it = notes_.find(region.region());
  return it != notes_.end() && it->second.wanted > 0 && ExtentCompaction::MayMakeRoom(*region.store, it->second.wanted);
}

Task<bool> Compactor::Compact(uint32_t region) {
  const HeldRegion* held = regions_->Find(region);
  const double before = held != nullptr ? held->store->extents().fragmentation() : 0;
  bool ended = co_await Pass(region, ExtentCompaction::Aim::kHalf);
  held = regions_->Find(region);
  if (ended && held != nullptr && Lacks(*held)) {
    ended = co_await Pass(region, ExtentCompaction::Aim::kLeast);
    held = regions_->Find(region);
  }
  Note& note = notes_[region];
  if (ended && held != nullptr && Lacks(*held)) {
    ++counters_.in_vain;
    note.refused = note.wanted;
    note.refused_used = held->store->extents().bytes_used;
    note.refused_until_ns = clock_->NowNs() + options_.again_after_ns;
  }
  note.wanted = 0;  // A put that still waits says so again.
  const bool in_vain = ended && held != nullptr && held->store->extents().fragmentation() > kGainMin * before;
  note.not_before_ns = clock_->NowNs() + (in_vain ? options_.in_vain_pause_ns : options_.again_after_ns);
  co_return ended;
}

Task<bool> Compactor::Pass(uint32_t region, ExtentCompaction::Aim aim) {
  HeldRegion* held = regions_->Find(region);
  if (held == nullptr || !MayCompact(*held)) co_return false;
  const uint64_t wanted = notes_[region].wanted;
  ExtentCompaction pass(held->store.get(), wanted, aim);
  absl::Status status;
  while (!pass.ended()) {
    const uint64_t moved = pass.moved(), moved_bytes = pass.moved_bytes();
    const uint64_t enough = moved_bytes + options_.bytes_per_turn;
    for (int i = 0; i < kStepsPerTurn && status.ok() && !pass.ended() && pass.moved_bytes() < enough; ++i) {
      status = pass.Step(held->store.get(), enough - pass.moved_bytes());
    }
    counters_.moved += pass.moved() - moved;
    counters_.moved_bytes += pass.moved_bytes() - moved_bytes;
    if (!status.ok() || pass.ended()) break;
    if (Lacks(*held)) {
      co_await scheduler_->Yield();
    } else {
      notes_[region].wanted = 0;
      co_await scheduler_->Sleep(options_.turn_pause_ns);
    }
    held = regions_->Find(region);
    if (held == nullptr || scheduler_->stopping() || !MayCompact(*held)) break;
    if (!Lacks(*held) && NextWanted() != 0) break;  // The put of another region waits.
  }
  if (held != nullptr) ExtentCompaction::End(held->store.get());
  counters_.passes += pass.ended();
  spdlog::debug("compaction of region {}, for {} bytes: {} extents of {} bytes were moved{}", region, wanted,
                pass.moved(), pass.moved_bytes(), pass.ended() ? "" : ", and it was given up");
  co_return pass.ended() || !status.ok();
}

}  // namespace cell
