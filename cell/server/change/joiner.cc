#include "cell/server/change/joiner.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "cell/base/mutant.h"
#include "cell/base/sync_points.h"
#include "cell/cluster/membership.h"
#include "cell/log/region_log.h"
#include "cell/server/change/region_join.h"
#include "cell/server/region/commit_table_change.h"
#include "cell/server/region/log_flusher.h"
#include "cell/server/region/regions.h"
#include "cell/server/report/status_report.h"
#include "cell/server/sched/scheduler.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr size_t kHurriedSteps = 16;
constexpr int kLeavesPerTurn = 8;
constexpr double kMigratedFillMax = 0.125;
constexpr size_t kNotBeforeMax = 1'000;
constexpr int64_t kMutantPauseNs = 50'000;

absl::Status Lost() { return absl::AbortedError("the region is no longer served here"); }
absl::Status Stopping() { return absl::CancelledError("this server is shutting down"); }
absl::Status Busy(uint32_t region) {
  return absl::AbortedError(fmt::format("region {} is being split, moved, joined or recovered", region));
}
absl::Status TooFull(uint32_t left, uint32_t right) {
  return absl::ResourceExhaustedError(fmt::format(
      "regions {} and {} together are too full to be joined: they would fill half of one or more", left, right));
}

absl::Status Unheard(uint32_t region) {
  return absl::UnavailableError(fmt::format("other regions have to hear of transactions of region {}", region));
}

}  // namespace

Joiner::Joiner(const WorkerContext& context, Migrator* migrator, RoutePublisher* routes, const HeldWrites* held,
               JoinerOptions options)
    : self_(context.self),
      clock_(context.clock),
      membership_(context.membership),
      scheduler_(context.scheduler),
      regions_(context.regions),
      logs_(context.logs),
      sync_points_(context.sync_points),
      migrator_(migrator),
      routes_(routes),
      held_(held),
      options_(options) {
  context.status->Add([this](nlohmann::json* status) {
    (*status)["joiner"] = {{"joins", counters_.joins},
                           {"part_joins", counters_.part_joins},
                           {"failed", counters_.failed},
                           {"roots_removed", counters_.roots_removed},
                           {"migrations", counters_.migrations},
                           {"longest_frozen_us", static_cast<double>(counters_.longest_frozen_ns) / 1e3}};
  });
}

void Joiner::Reach(bool of_table, std::string_view step) const {
  if (sync_points_->on_reach) sync_points_->Reach(fmt::format("{}: {}", of_table ? "table join" : "join", step));
}

HeldRegion* Joiner::LeftOf(const HeldRegion& region) const {
  const Pointer root = region.tree->root();
  HeldRegion* left = nullptr;
  regions_->ForEach([&](HeldRegion* held) {
    if (held->tree != nullptr && held->tree->tier() == region.tree->tier() && held->tree->range().right == root) {
      left = held;
    }
  });
  return left;
}

HeldRegion* Joiner::RightOf(const HeldRegion& region) const {
  const Pointer right = region.tree->range().right;
  HeldRegion* const held = right.null() ? nullptr : regions_->Find(right.region());
  return held != nullptr && held->tree != nullptr ? held : nullptr;
}

bool Joiner::IsShrunk(const HeldRegion& region) const {
  const auto left = static_cast<double>(region.store->keys());
  const uint64_t deleted = region.tree != nullptr ? region.tree->deleted() : region.hash->deleted();
  return left == 0 || static_cast<double>(deleted) > options_.deleted_per_left * left;
}

bool Joiner::MayGo(const HeldRegion& region) {
  const bool can_log = region.log == nullptr || region.log->status().ok();
  const bool free = region.claimable() || region.claim_yields();
  return free && can_log && region.state() == RegionState::kServing;
}

bool Joiner::MayJoin(const HeldRegion& region) { return region.claimable() && MayGo(region); }

Joiner::Pair Joiner::PairOf(uint32_t left, uint32_t right) const {
  const auto first_epoch = [this](uint32_t region) -> uint64_t {
    const RegionTable::Entry* entry = membership_->state().table.Find(region);
    return entry == nullptr ? 0 : entry->first_epoch;
  };
  return {left, first_epoch(left), right, first_epoch(right)};
}

bool Joiner::Fit(const HeldRegion* left, const HeldRegion* right) const {
  if (left == nullptr || right == nullptr || !MayJoin(*left) || !MayGo(*right)) return false;
  const auto it = not_before_ns_.find(PairOf(left->region(), right->region()));
  if (it != not_before_ns_.end() && clock_->NowNs() < it->second) return false;
  return RegionJoin::Fits(*left, *right);
}

void Joiner::Step() {
  const int64_t now_ns = clock_->NowNs();
  if (!options_.enabled || busy_ || scheduler_->stopping() || now_ns < look_at_ns_) return;
  look_at_ns_ = now_ns + options_.every_ns;
  if (not_before_ns_.size() > kNotBeforeMax) not_before_ns_.clear();
  if (not_migrated_before_ns_.size() > kNotBeforeMax) not_migrated_before_ns_.clear();
  for (HeldRegion* region : regions_->all()) {
    if (region->tree == nullptr || !MayGo(*region)) continue;
    if (region->tree->unmerged() && !merging_) {
      merging_ = true;
      scheduler_->Spawn(MergeLeaves());
    }
    if (OnlyChildOf(*region) != 0) {
      busy_ = true;
      scheduler_->Spawn(LowerRootAlone());
      return;
    }
    if (!IsShrunk(*region)) continue;
    HeldRegion* left = LeftOf(*region);
    HeldRegion* right = region;
    if (!Fit(left, right)) {
      left = region;
      right = RightOf(*region);
    }
    if (Fit(left, right)) {
      busy_ = true;
      scheduler_->Spawn(JoinAlone(ClaimBoth(left, right)));
      return;
    }
    const uint32_t right_id = region->tree->range().right.region();
    if (right == nullptr && region->claimable() && BeginMigration(region, right_id)) return;
  }
  BeginForParts();
}

void Joiner::BeginForParts() {
  // Parts that are on one worker first: each migration moves load.
  for (const bool migrates : {false, true}) {
    for (const auto& [name, table] : membership_->state().table.tables) {
      if (table.parts.size() <= table.parts_min) continue;
      for (auto part = std::next(table.parts.begin()); part != table.parts.end(); ++part) {
        HeldRegion* const lower = PartOf(std::prev(part)->second);
        HeldRegion* const upper = PartOf(part->second);
        if (!migrates && lower != nullptr && upper != nullptr && (IsShrunk(*lower) || IsShrunk(*upper)) &&
            Fit(lower, upper)) {
          busy_ = true;
          scheduler_->Spawn(JoinAlone(ClaimBoth(lower, upper)));
          return;
        }
        if (migrates && lower != nullptr && upper == nullptr && MayJoin(*lower) && IsShrunk(*lower) &&
            BeginMigration(lower, part->second)) {
          return;
        }
      }
    }
  }
}

HeldRegion* Joiner::PartOf(uint32_t region) const {
  HeldRegion* const held = regions_->Find(region);
  return held != nullptr && held->hash != nullptr ? held : nullptr;
}

Task<bool> Joiner::MergeLeaves() {
  std::set<uint32_t> ids;
  regions_->ForEach([&](HeldRegion* held) {
    if (held->tree != nullptr && MayGo(*held) && held->tree->unmerged()) ids.insert(held->region());
  });
  for (const uint32_t id : ids) {
    std::optional<std::string> at;
    for (bool first = true; first || at.has_value(); first = false) {
      HeldRegion* const region = regions_->Find(id);
      if (scheduler_->stopping() || region == nullptr || region->tree == nullptr) break;
      if (!MayGo(*region)) {
        if (!first) region->tree->set_unmerged();
        break;
      }
      if (first) at = region->tree->range().low;
      at = region->tree->MergeFrom(*at, kLeavesPerTurn);
      co_await scheduler_->Yield();
    }
  }
  merging_ = false;
  co_return true;
}

bool Joiner::MakeRoom() {
  look_at_ns_ = 0;
  Step();
  return busy_;
}

uint32_t Joiner::OnlyChildOf(const HeldRegion& region) const {
  const Meganode& tree = *region.tree;
  if (region.region() != membership_->state().table.root || tree.tier() == 0 || region.store->keys() != 1) return 0;
  // Else it was split, and the new root that leads to both halves is being made.
  if (tree.range().high.has_value()) return 0;
  const Meganode::Route route = tree.RouteOf("");
  return route.kind == Meganode::Route::Kind::kChild ? route.next.region() : 0;
}

Task<bool> Joiner::LowerRootAlone() {
  const absl::Status status = co_await LowerRoot();
  busy_ = false;
  if (!status.ok()) {
    look_at_ns_ = clock_->NowNs() + options_.failed_pause_ns;
    spdlog::debug("the root of the tree could not be removed: {}", std::string(status.message()));
  }
  co_return status.ok();
}

Task<absl::Status> Joiner::LowerRoot() {
  const uint32_t id = membership_->state().table.root;
  HeldRegion* const root = regions_->Find(id);
  if (root == nullptr || root->tree == nullptr)
    co_return absl::NotFoundError(fmt::format("region {} is not held by this worker", id));
  if (!MayJoin(*root)) co_return Busy(id);
  const uint32_t child = OnlyChildOf(*root);
  if (child == 0) {
    co_return absl::FailedPreconditionError(fmt::format("region {} leads to more than one region, or to none", id));
  }
  if (scheduler_->stopping()) co_return Stopping();
  const RegionClaim claim(root, ClaimPurpose::kJoin);
  const uint64_t epoch = root->epoch();
  root->ChangeState(RegionState::kFrozen);  // It takes no route any more. A new one leads to a new root.
  Reach(/*of_table=*/false, "root frozen");
  absl::Status status;
  if (logs_->on()) status = co_await logs_->Settled(id);
  if (status.ok() && scheduler_->stopping()) co_return Stopping();
  if (status.ok() && root->lost()) status = Lost();
  if (status.ok()) {
    Membership::TableChange change = [id, epoch, child](RegionTable* table) {
      return table->LowerRoot(id, epoch, child);
    };
    status = co_await CommitTableChange(membership_, scheduler_, std::move(change));
  }
  if (scheduler_->stopping()) co_return Stopping();
  if (!status.ok()) {
    root->Unfreeze();
    co_return status;
  }
  regions_->Drop(id);
  ++counters_.roots_removed;
  spdlog::info("region {} led to region {} alone, which is the root of the tree now", id, child);
  Reach(/*of_table=*/false, "root removed");
  co_await logs_->RemoveLog(id, epoch);
  co_return absl::OkStatus();
}

bool Joiner::BeginMigration(HeldRegion* region, uint32_t right) {
  const std::set<std::string>& draining = membership_->state().table.draining;
  if (right == 0 || region->store->fill() > kMigratedFillMax || draining.contains(self_.server)) return false;
  const ClusterState& state = membership_->state();
  absl::StatusOr<WorkerId> owner = state.OwnerOf(right);
  if (!owner.ok() || *owner == self_ || membership_->IsGone(*owner) || draining.contains(owner->server)) return false;
  const ClusterState::Worker* const worker = state.FindWorker(*owner);
  if (worker == nullptr || state.table.CountOf(*owner) >= worker->regions_max) return false;
  const Pair pair = PairOf(region->region(), right);
  const auto it = not_migrated_before_ns_.find(pair);
  if (it != not_migrated_before_ns_.end() && clock_->NowNs() < it->second) return false;
  busy_ = true;
  scheduler_->Spawn(Migrate(region->region(), *std::move(owner), pair));
  return true;
}

Task<bool> Joiner::Migrate(uint32_t region, WorkerId to, Pair pair) {
  const std::string name = ToString(to);
  const absl::Status status = co_await migrator_->Migrate(region, std::move(to));
  busy_ = false;
  counters_.migrations += status.ok();
  not_migrated_before_ns_[pair] =
      clock_->NowNs() + (status.ok() ? options_.migrate_again_after_ns : options_.failed_pause_ns);
  if (status.ok()) {
    spdlog::info("region {} is small, and was moved to {}, which has its right neighbour", region, name);
  } else {
    spdlog::debug("region {} could not be moved to {}: {}", region, name, std::string(status.message()));
  }
  co_return status.ok();
}

Joiner::Neighbours Joiner::ClaimBoth(HeldRegion* left, HeldRegion* right) {
  const bool has_route = !right->claim_yields();
  return {RegionClaim(left, ClaimPurpose::kJoin),
          has_route ? RegionClaim(right, ClaimPurpose::kJoin) : RegionClaim::TakeOver(right, ClaimPurpose::kJoin),
          has_route};
}

Task<bool> Joiner::JoinAlone(Neighbours neighbours) {
  const uint32_t left = neighbours.left.region()->region(), right = neighbours.right.region()->region();
  const Pair pair = PairOf(left, right);
  const absl::Status status = co_await JoinClaimed(std::move(neighbours));
  busy_ = false;
  if (!status.ok()) {
    not_before_ns_[pair] = clock_->NowNs() + options_.failed_pause_ns;
    spdlog::debug("region {} could not take in region {}: {}", left, right, std::string(status.message()));
  }
  look_at_ns_ = 0;  // Perhaps one more.
  co_return status.ok();
}

Task<absl::Status> Joiner::Join(uint32_t id) {
  HeldRegion* const right = regions_->Find(id);
  if (right == nullptr) co_return absl::NotFoundError(fmt::format("region {} is not held by this worker", id));
  if (right->tree != nullptr ? right->tree->range().low.empty() : right->hash->range().first == 0) {
    co_return absl::FailedPreconditionError(
        fmt::format("region {} is the leftmost, and has no left neighbour to join", id));
  }
  HeldRegion* const left = right->tree != nullptr ? LeftOf(*right) : PartOf(LowerPartOf(*right));
  if (left == nullptr) {
    co_return absl::FailedPreconditionError(fmt::format(
        "the left neighbour of region {} is on another worker: move one of the two to the other's worker first", id));
  }
  if (!MayGo(*right)) co_return Busy(id);
  if (!MayJoin(*left)) co_return Busy(left->region());
  if (scheduler_->stopping()) co_return Stopping();
  Neighbours neighbours = ClaimBoth(left, right);
  co_return co_await JoinClaimed(std::move(neighbours));
}

uint32_t Joiner::LowerPartOf(const HeldRegion& region) const {
  const RegionTable& table = membership_->state().table;
  const auto its = table.TableOf(region.region());
  const uint32_t first = region.hash->range().first;
  return its == table.tables.end() || first == 0 ? 0 : its->second.RegionOf(first - 1);
}

Task<absl::Status> Joiner::JoinClaimed(Neighbours neighbours) {
  Neighbours held = std::move(neighbours);
  HeldRegion* const left = held.left.region();
  HeldRegion* const right = held.right.region();
  const uint32_t left_id = left->region(), right_id = right->region();
  const uint64_t right_epoch = right->epoch();
  const bool of_table = right->hash != nullptr;
  const auto tier = static_cast<uint8_t>(of_table ? 0 : right->tree->tier() + 1);
  std::string key = of_table ? "" : right->tree->range().low;
  std::string copied_key = key;  // g++ 12 destroys temporaries of a co_await twice.
  absl::Status status;
  if (!RegionJoin::Fits(*left, *right)) {
    status = TooFull(left_id, right_id);
  } else if (!of_table) {
    status = co_await routes_->Withdraw(tier, std::move(copied_key), right);
    held.has_route = absl::IsFailedPrecondition(status);
    if (status.ok() && (left->lost() || right->lost())) status = Lost();
    if (status.ok()) Reach(of_table, "route removed");
  }
  if (status.ok()) status = co_await CopyAndCommit(left, right);
  if (scheduler_->stopping()) co_return Stopping();
  if (status.ok()) {
    ++(of_table ? counters_.part_joins : counters_.joins);
    co_await logs_->RemoveLog(right_id, right_epoch);
    Reach(of_table, "cleaned");
    co_return status;
  }
  ++counters_.failed;
  if (!of_table && !held.has_route && !right->lost()) {
    scheduler_->Spawn(routes_->Publish(tier, std::move(key), std::move(held.right)));
  }
  co_return status;
}

Task<absl::Status> Joiner::CopyAndCommit(HeldRegion* left, HeldRegion* right) {
  const uint32_t left_id = left->region(), right_id = right->region();
  const bool of_table = right->hash != nullptr;
  const int64_t frozen_ns = clock_->NowNs();
  // The left region may have taken part in the same transaction, and would not know who else has to hear of it.
  if (right->outcomes.open() > 0) co_return Unheard(right_id);
  right->ChangeState(RegionState::kFrozen);
  absl::Status status = co_await logs_->Settled(right_id);
  if (status.ok() && right->outcomes.open() > 0) status = Unheard(right_id);
  if (status.ok() && (left->lost() || right->lost())) status = Lost();
  if (status.ok() && !(RegionJoin::Fits(*left, *right) && RegionJoin::LeavesRoom(*left))) {
    status = TooFull(left_id, right_id);
  }
  std::unique_ptr<RegionJoin> join;
  if (status.ok()) {
    join = RegionJoin::Begin(left, right, options_.copied);
    status = co_await Copy(left, right, join.get());
  }
  if (status.ok()) {
    Membership::TableChange change = [left_id, left_epoch = left->epoch(), right_id,
                                      right_epoch = right->epoch()](RegionTable* table) {
      return table->Join(left_id, left_epoch, right_id, right_epoch);
    };
    status = co_await CommitTableChange(membership_, scheduler_, std::move(change));
    if (status.ok()) Reach(of_table, "committed");
  }
  if (!status.ok()) {
    if (Mutated(Mutant::kJoinLeftovers) && of_table) {
      right->Unfreeze();
      co_await scheduler_->Sleep(kMutantPauseNs);
    }
    // A reader of the left region must not find what was copied after the right one has changed.
    while (join != nullptr && !left->lost() && !scheduler_->stopping() && !join->Undo()) co_await scheduler_->Yield();
    join.reset();
    // The right region may be gone from the region table: the worker ends before it has heard.
    if (scheduler_->stopping()) co_return Stopping();
    Reach(of_table, "undone");
    right->Unfreeze();
    co_return status;
  }
  // Without interruption: nothing writes to the left one before the right one is invalid.
  if (!left->lost()) {  // Else it is recovered from its log, with what was copied.
    join->Finish();
    left->snapshots.TakeIn(right->snapshots, clock_->NowNs());
    left->FollowChanges();
  }
  join.reset();
  if (Mutated(Mutant::kJoinedStays) || Mutated(Mutant::kJoinedPartStays)) co_await scheduler_->Sleep(kMutantPauseNs);
  regions_->Drop(right_id);
  counters_.longest_frozen_ns =
      std::max(counters_.longest_frozen_ns, static_cast<uint64_t>(clock_->NowNs() - frozen_ns));
  Reach(of_table, "joined");
  spdlog::info("region {} has taken in region {}, its right neighbour", left_id, right_id);
  co_return absl::OkStatus();
}

Task<absl::Status> Joiner::Copy(HeldRegion* left, HeldRegion* right, RegionJoin* join) {
  const bool of_table = right->hash != nullptr;
  if (left->log != nullptr) join->LogBegin();
  for (bool copied = false; !copied;) {
    if (scheduler_->stopping()) co_return Stopping();
    if (left->lost() || right->lost()) co_return Lost();
    const absl::StatusOr<bool> all = join->Copy(held_->size(right->region()) > 0 ? kHurriedSteps : 1);
    if (!all.ok()) co_return all.status();
    copied = *all;
    co_await scheduler_->Yield();
  }
  Reach(of_table, "copied");
  left->TakeOutcomes(*right);  // The right region is frozen, so it gets no more of them.
  if (left->log != nullptr && !Mutated(Mutant::kJoinUnlogged)) {
    join->LogEnd();
    const absl::Status flushed = co_await logs_->Flushed(left->region());
    if (!flushed.ok()) co_return flushed;
  }
  if (scheduler_->stopping()) co_return Stopping();
  if (left->lost() || right->lost()) co_return Lost();
  Reach(of_table, "logged");
  co_return absl::OkStatus();
}

}  // namespace cell
