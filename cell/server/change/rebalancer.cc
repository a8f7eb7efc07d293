#include "cell/server/change/rebalancer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cell/cluster/membership_await.h"
#include "cell/cluster/placement.h"
#include "cell/layout/wire.h"
#include "cell/server/change/peers.h"
#include "cell/server/region/regions.h"
#include "cell/server/report/status_report.h"
#include "cell/server/sched/scheduler.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr int64_t kLookEveryNs = 500'000;
constexpr int64_t kDrainPauseNs = 1'000'000;
constexpr int64_t kDrainPatienceNs = 5'000'000'000;
// After a migration that failed, the pause is this many times as long, because the next one may be refused for the same
// reason.
constexpr int64_t kFailedPauses = 20;
constexpr size_t kWeighedAtOnce = 2;
constexpr int64_t kNoRoomPauseMinNs = 2'000'000;  // Longer than a split that waits for room (Splitter).

}  // namespace

Rebalancer::Rebalancer(const WorkerContext& context, Migrator* migrator, RebalancerOptions options)
    : self_(context.self),
      clock_(context.clock),
      membership_(context.membership),
      scheduler_(context.scheduler),
      regions_(context.regions),
      peers_(context.peers),
      migrator_(migrator),
      options_(options),
      random_(context.seed) {
  context.status->Add([this](nlohmann::json* status) { (*status)["draining"] = draining(); });
}

bool Rebalancer::draining() const { return membership_->state().table.draining.contains(self_.server); }

void Rebalancer::Step() {
  const int64_t now_ns = clock_->NowNs();
  if (scheduler_->stopping() || now_ns < look_at_ns_) return;
  look_at_ns_ = now_ns + kLookEveryNs;
  if (now_ns < balance_at_ns_) return;
  std::optional<Mutex::Guard> balancing = balancing_.TryLock();
  if (!balancing.has_value()) return;
  balance_at_ns_ = now_ns + options_.every_ns;
  if (draining()) {
    scheduler_->Spawn(Drain(*std::move(balancing)));
  } else if (options_.enabled) {
    scheduler_->Spawn(Balance(*std::move(balancing)));
  }
}

Task<absl::Status> Rebalancer::SetDraining(bool draining) {
  (void)co_await RefreshAwaiter(membership_);
  size_t room = 0;
  for (const WorkerRoom& other : RoomOfWorkers(membership_->state())) {
    if (other.worker.server != self_.server) room += other.room;
  }
  if (draining && room < regions_->size()) {
    co_return absl::FailedPreconditionError(fmt::format(
        "{} holds {} regions, but the other servers have room for only {}", self_.server, regions_->size(), room));
  }
  Membership::TableChange change = [draining, server = self_.server](RegionTable* table) {
    if (draining) return table->Drain(server);
    table->draining.erase(server);
    return absl::OkStatus();
  };
  balance_at_ns_ = 0;
  drain_status_ = absl::OkStatus();
  co_return co_await ChangeAwaiter(membership_, std::move(change));
}

Task<absl::Status> Rebalancer::Rebalance(uint64_t* moved) {
  const Mutex::Guard balancing = co_await balancing_.Lock(scheduler_);
  absl::Status status;
  while (status.ok() && !scheduler_->stopping()) {
    const std::optional<Transfer> transfer = co_await ChooseTransfer(SIZE_MAX);
    if (!transfer.has_value()) break;
    status = co_await migrator_->Migrate(transfer->region, transfer->to);
    *moved += status.ok();
  }
  co_return status;
}

Task<std::optional<Rebalancer::Target>> Rebalancer::Lightest(std::vector<WorkerId> targets, size_t answers_max) {
  const std::vector<WorkerId> in_order = std::move(targets);
  std::optional<Target> lightest;
  size_t answers = 0;
  for (const WorkerId& worker : in_order) {
    if (answers >= answers_max || scheduler_->stopping()) break;
    const auto pause = pauses_until_ns_.find(worker);
    const bool skipped = pause != pauses_until_ns_.end() && clock_->NowNs() < pause->second;
    if (skipped || membership_->IsGone(worker)) continue;
    std::string request = MakeTextRequest(MessageKind::kWeigh);
    const absl::StatusOr<std::string> reply =
        co_await peers_->Call(worker, std::move(request), options_.weigh_timeout_ns);
    if (!reply.ok()) {  // A worker that is not there takes nothing.
      pauses_until_ns_[worker] = clock_->NowNs() + kFailedPauses * options_.every_ns;
      continue;
    }
    ++answers;
    const absl::StatusOr<WeighReply> weight = ParseWeighReply(AsBytes(*reply));
    if (!weight.ok() || (lightest.has_value() && weight->bytes_used >= lightest->bytes_used)) continue;
    lightest = Target{worker, weight->bytes_used};
  }
  co_return lightest;
}

Task<std::optional<Rebalancer::Transfer>> Rebalancer::ChooseTransfer(size_t asked_max) {
  (void)co_await RefreshAwaiter(membership_);
  NoteGoneRegions();
  std::vector<WorkerId> targets = MigrationTargets(membership_->state(), self_, &random_);
  const std::optional<Target> lightest = co_await Lightest(std::move(targets), asked_max);
  if (!lightest.has_value() || scheduler_->stopping()) co_return std::nullopt;
  const std::vector<const HeldRegion*> movable = Movable(/*with_routes=*/false);
  std::vector<uint64_t> weights;
  weights.reserve(movable.size());
  for (const HeldRegion* region : movable) weights.push_back(region->store->bytes_used());
  const std::optional<size_t> chosen = BestTransfer(regions_->bytes_used(), lightest->bytes_used, weights);
  if (!chosen.has_value()) co_return std::nullopt;
  co_return Transfer{movable[*chosen]->region(), lightest->worker};
}

std::vector<const HeldRegion*> Rebalancer::Movable(bool with_routes) const {
  std::vector<const HeldRegion*> movable;
  for (const HeldRegion* region : regions_->all()) {
    const bool of_routes = region->tree != nullptr && region->tree->tier() != 0;
    if (region->claimable() && (with_routes || !of_routes)) movable.push_back(region);
  }
  return movable;
}

bool Rebalancer::MakeRoom() {
  if (!options_.enabled || scheduler_->stopping()) return false;
  std::optional<Mutex::Guard> balancing = balancing_.TryLock();
  if (!balancing.has_value()) return true;
  if (clock_->NowNs() < room_soon_until_ns_) return true;
  if (clock_->NowNs() < no_room_until_ns_) return false;
  scheduler_->Spawn(MakeRoomAlone(*std::move(balancing)));
  return true;
}

void Rebalancer::NoteGoneRegions() {
  const RegionTable& table = membership_->state().table;
  if (table.version == seen_version_) return;
  seen_version_ = table.version;
  const bool gone = std::any_of(seen_.begin(), seen_.end(), [&table](const auto& region) {
    const RegionTable::Entry* entry = table.Find(region.first);
    return entry == nullptr || entry->first_epoch != region.second;
  });
  if (gone) gone_at_ns_ = clock_->NowNs();
  seen_.clear();
  seen_.reserve(table.regions.size());
  for (const auto& [id, entry] : table.regions) {
    // One that is still being made may be given up.
    if (!entry.split_parent.has_value()) seen_.emplace_back(id, entry.first_epoch);
  }
}

Task<bool> Rebalancer::MakeRoomAlone(Mutex::Guard balancing) {
  Mutex::Guard guard = std::move(balancing);
  (void)co_await RefreshAwaiter(membership_);
  if (scheduler_->stopping()) co_return false;
  std::vector<WorkerId> targets = RoomiestTargets(membership_->state(), self_, &random_);
  const std::optional<Target> to = co_await Lightest(std::move(targets), kWeighedAtOnce);
  if (scheduler_->stopping()) co_return false;
  if (!to.has_value()) {
    NoteGoneRegions();
    const bool soon = clock_->NowNs() - gone_at_ns_ < options_.joins_patience_ns;
    const int64_t pause_ns = std::max(options_.every_ns, kNoRoomPauseMinNs);
    (soon ? room_soon_until_ns_ : no_room_until_ns_) = clock_->NowNs() + pause_ns;
    co_return soon;
  }
  std::vector<const HeldRegion*> movable = Movable(/*with_routes=*/false);
  if (movable.empty()) movable = Movable(/*with_routes=*/true);
  const auto lightest = std::min_element(movable.begin(), movable.end(), [](const HeldRegion* a, const HeldRegion* b) {
    return a->store->bytes_used() < b->store->bytes_used();
  });
  if (lightest == movable.end()) co_return false;  // All are being changed. Whoever waits for room asks again.
  Transfer transfer{(*lightest)->region(), to->worker};
  co_return co_await MigrateAway(std::move(transfer), std::move(guard));
}

Task<bool> Rebalancer::Balance(Mutex::Guard balancing) {
  Mutex::Guard guard = std::move(balancing);
  std::optional<Transfer> transfer = co_await ChooseTransfer(kWeighedAtOnce);
  if (!transfer.has_value()) co_return true;
  co_return co_await MigrateAway(*std::move(transfer), std::move(guard));
}

Task<bool> Rebalancer::MigrateAway(Transfer transfer, Mutex::Guard balancing) {
  const Mutex::Guard guard = std::move(balancing);
  const Transfer its = std::move(transfer);
  const absl::Status status = co_await migrator_->Migrate(its.region, its.to);
  if (status.ok()) {
    balance_at_ns_ = 0;  // Perhaps one more.
  } else {
    balance_at_ns_ = clock_->NowNs() + kFailedPauses * options_.every_ns;
    if (!absl::IsAborted(status)) pauses_until_ns_[its.to] = balance_at_ns_;  // Else the region was busy.
    ReportRefused(its.region, its.to, status);
  }
  co_return status.ok();
}

void Rebalancer::ReportRefused(uint32_t region, const WorkerId& to, const absl::Status& why) {
  if (const auto more = repeats_.Due("migrate to " + ToString(to), clock_->NowNs())) {
    spdlog::info("region {} could not be migrated to {}: {}{}", region, ToString(to), std::string(why.message()),
                 *more);
  }
}

Task<bool> Rebalancer::Drain(Mutex::Guard balancing) {
  const Mutex::Guard guard = std::move(balancing);
  (void)co_await RefreshAwaiter(membership_);
  for (const HeldRegion* held : regions_->all()) {
    const uint32_t region = held->region();
    const std::optional<WorkerId> to = ChooseTarget(membership_->state(), self_, &random_);
    if (!to.has_value()) {
      NoteDrained(absl::ResourceExhaustedError(fmt::format("no other server has room for region {}", region)));
      if (const auto more = repeats_.Due("drain", clock_->NowNs())) {
        spdlog::warn("no other server has room for region {}{}", region, *more);
      }
      break;
    }
    if (scheduler_->stopping()) break;
    const absl::Status status = co_await migrator_->Migrate(region, *to);
    if (!status.ok()) ReportRefused(region, *to, status);
    NoteDrained(status);
    (void)co_await RefreshAwaiter(membership_);
    break;  // The list may have changed. Continue in the next Step.
  }
  balance_at_ns_ = regions_->size() > 0 ? clock_->NowNs() + kDrainPauseNs : balance_at_ns_;
  co_return true;
}

void Rebalancer::NoteDrained(const absl::Status& status) {
  if (drain_status_.ok() && !status.ok()) {
    drain_failing_since_ns_ = clock_->NowNs();
    spdlog::warn("a region cannot be migrated away: {}", std::string(status.message()));
  }
  drain_status_ = status;
}

absl::Status Rebalancer::DrainStuck() const {
  if (drain_status_.ok() || clock_->NowNs() - drain_failing_since_ns_ < kDrainPatienceNs) return absl::OkStatus();
  return drain_status_;
}

}  // namespace cell
