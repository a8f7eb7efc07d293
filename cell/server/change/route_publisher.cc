#include "cell/server/change/route_publisher.h"

#include <utility>

#include "cell/base/sync_points.h"
#include "cell/cluster/membership_await.h"
#include "cell/server/change/peers.h"
#include "cell/server/region/commit_table_change.h"
#include "cell/server/region/log_flusher.h"
#include "cell/server/report/status_report.h"
#include "cell/server/request/route_request.h"
#include "cell/server/sched/scheduler.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr int64_t kRetryPauseNs = 2'000'000;
constexpr int kHopsMax = 1000;
constexpr int kWithdrawTries = 20;

}  // namespace

RoutePublisher::RoutePublisher(const WorkerContext& context, RegionAllocator* allocator, ServedRegions* served)
    : self_(context.self),
      membership_(context.membership),
      scheduler_(context.scheduler),
      logs_(context.logs),
      peers_(context.peers),
      sync_points_(context.sync_points),
      allocator_(allocator),
      served_(served),
      random_(context.seed) {
  context.status->Add([this](nlohmann::json* status) {
    (*status)["routes"] = {
        {"added", counters_.added}, {"removed", counters_.removed}, {"roots_made", counters_.roots_made}};
  });
}

Task<bool> RoutePublisher::Publish(uint8_t tier, std::string key, RegionClaim claim) {
  const uint32_t region = claim.region()->region();
  while (!scheduler_->stopping()) {
    // Who has taken the claim over publishes the route if it must. So does the new owner of a lost region.
    if (claim.region() == nullptr || claim.region()->lost()) {
      claim.Release();
      co_return false;
    }
    claim.set_purpose(ClaimPurpose::kRoute);
    const absl::Status status = co_await TryPublish(tier, key, claim.region());
    if (status.ok()) {
      ++counters_.added;
      claim.Release();
      sync_points_->Reach("split: route added");
      co_return true;
    }
    spdlog::debug("the route to region {} has not been added yet: {}", region, std::string(status.message()));
    if (absl::IsResourceExhausted(status)) claim.set_purpose(ClaimPurpose::kRouteBlocked);
    co_await scheduler_->Sleep(kRetryPauseNs + static_cast<int64_t>(random_.Below(kRetryPauseNs)));
    if (scheduler_->stopping()) break;
    (void)co_await RefreshAwaiter(membership_);
  }
  co_return false;
}

Task<absl::Status> RoutePublisher::Withdraw(uint8_t tier, std::string key, const HeldRegion* child) {
  absl::Status status = absl::CancelledError("this server is shutting down");
  for (int tries = 0; tries < kWithdrawTries && !scheduler_->stopping(); ++tries) {
    const uint32_t root = membership_->state().table.root;
    const std::optional<absl::Status> removed = co_await TryRequest(MessageKind::kRemoveRoute, root, tier, key, child);
    status = removed.value_or(absl::AbortedError("the tree has no tier above"));
    counters_.removed += status.ok();
    if (status.ok() || absl::IsFailedPrecondition(status)) break;
    if (!removed.has_value() && (co_await RefreshAwaiter(membership_)).ok() &&
        membership_->state().table.root == root) {
      status = absl::OkStatus();  // The route has never been there, and only this worker adds it (RaiseRoot).
      break;
    }
    co_await scheduler_->Sleep(kRetryPauseNs + static_cast<int64_t>(random_.Below(kRetryPauseNs)));
    if (!scheduler_->stopping()) (void)co_await RefreshAwaiter(membership_);
  }
  co_return status;
}

Task<absl::Status> RoutePublisher::TryPublish(uint8_t tier, const std::string& key, const HeldRegion* child) {
  const uint32_t root = membership_->state().table.root;
  const uint32_t region = child->region();
  const uint64_t epoch = child->epoch();
  const std::optional<absl::Status> added = co_await TryRequest(MessageKind::kAddRoute, root, tier, key, child);
  if (added.has_value()) co_return *added;
  co_return co_await MakeRoot(root, tier, key, region, epoch);
}

// Goes from the root of the tree down, or right, to the meganode of `tier` that covers `key`.
Task<std::optional<absl::Status>> RoutePublisher::TryRequest(MessageKind kind, uint32_t root, uint8_t tier,
                                                             const std::string& key, const HeldRegion* child) {
  const uint64_t order = RouteOrder(child->epoch(), ++requests_);
  const Pointer leads_to = RootOf(child->region());
  Pointer at = RootOf(root);
  for (int hops = 0; hops < kHopsMax; ++hops) {
    const absl::StatusOr<std::string> reply =
        co_await CallOwner(at.region(), MakeRouteRequest(kind, at, tier, key, leads_to, order));
    if (!reply.ok()) co_return reply.status();
    if (!IsRoute(AsBytes(*reply))) co_return ParseWriteReply(AsBytes(*reply), kind).status();
    const absl::StatusOr<RouteView> route = ParseRouteReply(AsBytes(*reply));
    if (!route.ok()) co_return route.status();
    switch (route->kind) {
      case RouteKind::kChild:
      case RouteKind::kRight:
        at = route->next;
        break;
      case RouteKind::kTooLow:
        co_return std::nullopt;
      case RouteKind::kRestart:
      case RouteKind::kNotHeld:
      case RouteKind::kLocked:
        co_return absl::AbortedError(fmt::format("the search for the parent meganode failed at {}", ToString(at)));
    }
  }
  co_return absl::AbortedError("the search for the parent meganode passed through too many meganodes");
}

// Creates a meganode of routes above `old_root`, which is the first of its tier.
Task<absl::Status> RoutePublisher::MakeRoot(uint32_t old_root, uint8_t tier, const std::string& key, uint32_t child,
                                            uint64_t epoch) {
  if (tier >= kTiersMax) co_return absl::ResourceExhaustedError("the tree has the maximum number of tiers");
  RegionContent content;  // Not passed as a braced argument, because g++ 12 destroys such temporaries of a co_await
                          // twice.
  content.range.tier = tier;
  absl::StatusOr<RegionClaim> made = co_await allocator_->Allocate(std::move(content), 0);
  if (absl::IsResourceExhausted(made.status())) on_no_room_();
  if (!made.ok()) co_return made.status();
  Meganode* const tree = made->region()->tree;
  const auto added = RegionAllocator::NewRegion::Of(*made->region());
  const uint32_t region = added.id;
  absl::Status status = tree->InsertRoute("", RootOf(old_root)).status();
  if (status.ok()) status = tree->InsertRoute(key, RootOf(child)).status();
  if (status.ok()) status = co_await logs_->Flushed(region);
  if (status.ok()) {
    Membership::TableChange raise = [old_root, region, child, epoch](RegionTable* table) {
      return table->RaiseRoot(old_root, region, child, epoch);
    };
    status = co_await CommitTableChange(membership_, scheduler_, std::move(raise));
  }
  if (!status.ok()) {  // Another worker was faster.
    if (!scheduler_->stopping()) co_await allocator_->Discard(added);
    co_return status;
  }
  if (!made->region()->lost()) made->region()->ChangeState(RegionState::kServing);
  made->Release();
  ++counters_.roots_made;
  sync_points_->Reach("split: root made");
  spdlog::info("region {} holds the new root of the tree", region);
  co_return absl::OkStatus();
}

Task<absl::StatusOr<std::string>> RoutePublisher::CallOwner(uint32_t region, std::string request) {
  absl::StatusOr<WorkerId> owner = membership_->state().OwnerOf(region);
  if (!owner.ok()) co_return owner.status();
  if (*owner == self_) co_return AnswerRouteRequest(served_, AsBytes(request));
  co_return co_await peers_->Call(*std::move(owner), std::move(request));
}

}  // namespace cell
