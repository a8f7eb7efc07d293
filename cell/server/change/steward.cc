#include "cell/server/change/steward.h"

#include <algorithm>

#include "cell/base/status_macros.h"
#include "cell/cluster/membership_await.h"
#include "cell/cluster/placement.h"
#include "cell/server/change/first_region.h"
#include "cell/server/region/commit_table_change.h"
#include "cell/tree/meganode_split.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr int64_t kLookEveryNs = 500'000;
constexpr int64_t kSplitPauseNs = 1'000'000'000;
constexpr int64_t kRetryPauseNs = 2'000'000;
constexpr int64_t kDrainPauseNs = 1'000'000;
constexpr int64_t kFailedGiftPauses = 20;  // As long as so many pauses of balance. What refused one may refuse the next.
constexpr int64_t kDrainPatienceNs = 5'000'000'000;
constexpr int kHopsMax = 1000;
constexpr size_t kHurry = 16;
constexpr size_t kWeighedAtOnce = 2;
constexpr uint64_t kPreparedPerTurn = uint64_t{256} << 10;

absl::Status Lost() { return absl::AbortedError("the region is another worker's by now"); }

}  // namespace

Steward::Steward(Fabric* fabric, Membership* membership, Regions* regions, RequestService* service, Peers* peers,
                 Mover* mover, LogKeeper* logs, RegionAllocator* allocator, TableKeeper* tables, Turns* turns,
                 const SyncPoints* sync_points, Options options)
    : fabric_(fabric),
      membership_(membership),
      regions_(regions),
      service_(service),
      peers_(peers),
      mover_(mover),
      logs_(logs),
      allocator_(allocator),
      tables_(tables),
      turns_(turns),
      sync_points_(sync_points),
      options_(std::move(options)),
      random_(options_.seed) {
  service_->set_more_status([this](nlohmann::json* json) {
    (*json)["connections_to_servers"] = peers_->connections();
    (*json)["draining"] = draining();
    (*json)["lease_lapsed"] = lapsed_;
    (*json)["mover"] = {{"given", mover_->counters().given},
                        {"taken", mover_->counters().taken},
                        {"failed", mover_->counters().failed},
                        {"pages", mover_->counters().pages},
                        {"longest_frozen_us", static_cast<double>(mover_->counters().longest_frozen_ns) / 1e3}};
    const LogKeeper::Counters& logs = logs_->counters();
    (*json)["logs"] = {{"durability", ToString(logs_->durability())},
                       {"flushes", logs.flushes},
                       {"longest_flush_us", static_cast<double>(logs.longest_flush_ns) / 1e3},
                       {"checkpoints", logs.checkpoints},
                       {"checkpoint_bytes", logs.checkpoint_bytes},
                       {"failed", logs.failed}};
    (*json)["steward"] = {{"splits", counters_.splits},
                          {"splits_failed", counters_.splits_failed},
                          {"routes_added", counters_.routes_added},
                          {"roots_made", counters_.roots_made},
                          {"longest_cut_us", static_cast<double>(counters_.longest_cut_ns) / 1e3}};
    const TableKeeper::Counters& tables = tables_->counters();
    (*json)["tables"] = {{"splits", tables.splits},
                         {"longest_copy_us", static_cast<double>(tables.longest_copy_ns) / 1e3},
                         {"longest_frozen_us", static_cast<double>(tables.longest_frozen_ns) / 1e3},
                         {"longest_untold_us", static_cast<double>(tables.longest_untold_ns) / 1e3}};
  });
  service_->writes()->set_on_full([this](HeldRegion* region) { return region->claimed() || BeginSplit(region); });
  service_->set_before_check([this] {
    for (MeganodeSplit* split : reclaiming_) (void)split->Reclaim(SIZE_MAX);
    tables_->CleanAll();
  });
}

absl::Status Steward::Start() {
  absl::Status status;
  const auto run = [this, &status]() -> Task<bool> {
    status = co_await MakeFirstRegion(membership_, regions_, logs_, options_.self);
    co_return true;
  };
  turns_->Begin(run());
  while (!turns_->idle()) {
    logs_->Step();
    if (membership_->Poll() + logs_->Poll() + turns_->Step() > 0) continue;
    fabric_->Wait(fabric_->NowNs() + options_.start_pause_ns);
  }
  if (status.ok() && !logs_->on()) ReportLost();
  return status;
}

void Steward::ReportLost() const {
  for (const auto& [region, entry] : membership_->state().table.regions) {
    if (entry.owner == options_.self && regions_->Find(region) == nullptr) {
      const auto table = membership_->state().table.TableOf(region);
      spdlog::error("region {}{} was held by this server when it ended; what was in it is lost", region,
                    table == membership_->state().table.tables.end() ? "" : ", part of table " + table->first + ",");
    }
  }
}

void Steward::Step() {
  const int64_t now_ns = fabric_->NowNs();
  if (turns_->stopping() || now_ns < look_at_ns_) return;
  look_at_ns_ = now_ns + kLookEveryNs;
  if ((now_ns > membership_->LeaseUntilNs()) != lapsed_) {
    lapsed_ = !lapsed_;
    if (lapsed_) {
      spdlog::error("{} cannot renew its session: it acknowledges no writes until it can", ToString(options_.self));
    } else {
      spdlog::info("{} has renewed its session", ToString(options_.self));
    }
  }
  for (HeldRegion* region : regions_->all()) {
    const bool can_log = region->log == nullptr || region->log->status().ok();
    if (region->claimable() && can_log && region->store->fill() >= options_.split_at) BeginSplit(region);
  }
  if (now_ns < balance_at_ns_) return;
  std::optional<Mutex::Guard> balancing = balancing_.TryLock();
  if (!balancing.has_value()) return;
  balance_at_ns_ = now_ns + options_.balance_every_ns;
  if (draining()) {
    turns_->Begin(Drain(*std::move(balancing)));
  } else if (options_.balance) {
    turns_->Begin(Balance(*std::move(balancing)));
  }
}

bool Steward::BeginSplit(HeldRegion* region) {
  if (turns_->stopping() || region->no_split_before_ns > fabric_->NowNs()) return false;
  turns_->Begin(SplitAlone(RegionClaim(region, ClaimPurpose::kSplit)));
  return true;
}

Task<bool> Steward::SplitAlone(RegionClaim claim) { co_return (co_await Split(std::move(claim))).ok(); }

Task<absl::Status> Steward::Split(RegionClaim claim) {
  HeldRegion* const region = claim.region();
  const uint32_t id = region->region();
  absl::Status status;
  if (region->tree != nullptr) {
    status = co_await TrySplit(region);
  } else {
    status = co_await tables_->Split(region);
  }
  if (turns_->stopping()) co_return absl::CancelledError("this server ends");
  if (!status.ok()) {
    ++counters_.splits_failed;
    region->no_split_before_ns = fabric_->NowNs() + kSplitPauseNs;
    if (const auto more = repeats_.Due(fmt::format("split {}", id), fabric_->NowNs())) {
      spdlog::warn("region {} is {:.0f} % full and could not be split: {}{}", id, 100 * region->store->fill(),
                   std::string(status.message()), *more);
    }
  }
  claim.Release();
  co_return status;
}

Task<absl::Status> Steward::TrySplit(HeldRegion* region) {
  const std::optional<std::string> key = MeganodeSplit::ChooseKey(*region->tree);
  if (!key.has_value()) co_return absl::FailedPreconditionError("it has one leaf");
  RegionContent content{region->tree->range()};
  content.range.low = *key;
  absl::StatusOr<RegionClaim> right = co_await allocator_->Allocate(std::move(content), region->region());
  if (!right.ok()) co_return right.status();
  const uint32_t made = right->region()->region();
  sync_points_->Reach("split: region made");
  absl::Status status = co_await MoveRightPart(region, &*right, *key);
  if (status.ok()) {
    spdlog::info("region {} was split: keys from {} on are in region {}", region->region(), ForMessage(*key), made);
  } else if (!turns_->stopping() && (region->log == nullptr || region->log->status().ok())) {
    co_await allocator_->Discard(made);
  } else if (!turns_->stopping()) {
    regions_->Drop(made);  // The cut may be on disk: whoever recovers the left knows from its log.
  }
  co_return status;
}

Task<absl::Status> Steward::MoveRightPart(HeldRegion* region, RegionClaim* right_claim, std::string key) {
  Meganode* const from = region->tree;
  HeldRegion* const right = right_claim->region();
  MeganodeSplit split(from, right->tree, key);
  for (bool copied = false; !copied;) {
    if (turns_->stopping()) co_return absl::CancelledError("this server ends");
    if (region->lost() || right->lost()) co_return Lost();
    // Writes that wait for it gain more from its end than from their turn.
    const size_t hurry = service_->writes()->held(from->region()) > 0 ? kHurry : 1;
    const absl::StatusOr<bool> all = split.Copy(hurry * options_.copied_per_turn);
    if (!all.ok()) co_return all.status();
    copied = *all;
    co_await turns_->Next();
  }
  if (turns_->stopping()) co_return absl::CancelledError("this server ends");
  sync_points_->Reach("split: copied");
  absl::Status status = co_await Cut(region, right, &split);
  if (!status.ok()) co_return status;
  right->ChangeState(RegionState::kServing);
  co_await Join(region, right->region());
  sync_points_->Reach("split: cut");
  // `right` stays claimed until its route is known: until then its left neighbour alone leads to it.
  turns_->Begin(MakeKnown(static_cast<uint8_t>(from->tier() + 1), key, std::move(*right_claim)));
  reclaiming_.push_back(&split);
  while (!split.Reclaim(turns_->stopping() ? SIZE_MAX : options_.freed_per_turn)) co_await turns_->Next();
  std::erase(reclaiming_, &split);
  sync_points_->Reach("split: freed");
  ++counters_.splits;
  co_return absl::OkStatus();
}

// The new region's log is on disk before the cut is, and the cut before the new region takes a write: so whoever
// replays both finds a region whole, or cut with a right part that is.
Task<absl::Status> Steward::Cut(HeldRegion* region, HeldRegion* right, MeganodeSplit* split) {
  const uint32_t left_id = region->region();
  const uint32_t right_id = right->region();
  if (region->lost() || right->lost()) co_return Lost();
  if (logs_->on()) {
    region->ChangeState(RegionState::kFrozen);
    absl::Status status = co_await logs_->Settled(left_id);
    if (status.ok()) status = co_await logs_->Flushed(right_id);
    if (status.ok()) status = split->mirrored();
    if (status.ok()) {
      region->log->Append(RecordKind::kCut, split->key(), right->tree->root());
      sync_points_->Reach("split: cut logged");
      status = co_await logs_->Flushed(left_id);
    }
    region->Unfreeze();
    if (!status.ok()) co_return status;
  }
  if (region->lost() || right->lost()) co_return Lost();
  const int64_t begun_ns = fabric_->NowNs();
  const absl::Status status = split->Finish();
  counters_.longest_cut_ns = std::max(counters_.longest_cut_ns, static_cast<uint64_t>(fabric_->NowNs() - begun_ns));
  co_return status;
}

// Until the table knows that the new region is part of the tree, and does not share its left neighbour's fate any more.
Task<bool> Steward::Join(const HeldRegion* left, uint32_t region) {
  while (!left->lost() && !turns_->stopping()) {
    Membership::TableChange joined = [region](RegionTable* table) {
      table->Joined(region);
      return absl::OkStatus();
    };
    const absl::Status status = co_await ChangeAwaiter(membership_, std::move(joined));
    if (status.ok()) co_return true;
    co_await turns_->Sleep(kRetryPauseNs);
  }
  co_return false;
}

Task<bool> Steward::MakeKnown(uint8_t tier, std::string key, RegionClaim claim) {
  const uint32_t region = claim.region()->region();
  claim.set_purpose(ClaimPurpose::kRoute);
  while (!turns_->stopping()) {
    const absl::Status status = co_await TryAddRoute(tier, key, RootOf(region));
    if (status.ok()) {
      ++counters_.routes_added;
      claim.Release();
      sync_points_->Reach("split: route added");
      co_return true;
    }
    spdlog::debug("the route to region {} is not known yet: {}", region, std::string(status.message()));
    if (claim.region() == nullptr || claim.region()->lost()) {  // Whoever has it now sees to it.
      claim.Release();
      co_return false;
    }
    claim.set_purpose(absl::IsResourceExhausted(status) ? ClaimPurpose::kRouteBlocked : ClaimPurpose::kRoute);
    co_await turns_->Sleep(kRetryPauseNs + static_cast<int64_t>(random_.Below(kRetryPauseNs)));
    if (turns_->stopping()) break;
    (void)co_await RefreshAwaiter(membership_);
  }
  co_return false;
}

// From the root of the tree down, or along, to the meganode of `tier` that covers `key`.
Task<absl::Status> Steward::TryAddRoute(uint8_t tier, const std::string& key, Pointer child) {
  const uint32_t root = membership_->state().table.root;
  Pointer at = RootOf(root);
  for (int hops = 0; hops < kHopsMax; ++hops) {
    const absl::StatusOr<std::string> reply = co_await AskOwner(at.region(), MakeAddRouteRequest(at, tier, key, child));
    if (!reply.ok()) co_return reply.status();
    if (!IsRoute(AsBytes(*reply))) co_return ParseWriteReply(AsBytes(*reply), MessageKind::kAddRoute).status();
    const absl::StatusOr<RouteView> route = ParseRouteReply(AsBytes(*reply));
    if (!route.ok()) co_return route.status();
    switch (route->kind) {
      case RouteKind::kChild:
      case RouteKind::kRight:
        at = route->next;
        break;
      case RouteKind::kTooLow:
        co_return co_await MakeRoot(root, tier, key, child);
      case RouteKind::kLost:
      case RouteKind::kNotHeld:
        co_return absl::AbortedError(fmt::format("the way was lost at {}", ToString(at)));
    }
  }
  co_return absl::AbortedError("too many meganodes on the way");
}

// A meganode of routes above `old_root`, which is the first of its tier.
Task<absl::Status> Steward::MakeRoot(uint32_t old_root, uint8_t tier, const std::string& key, Pointer child) {
  if (tier >= kTiersMax) co_return absl::ResourceExhaustedError("the tree has as many tiers as it can have");
  RegionContent content;  // Not as a braced argument: g++ 12 destroys such temporaries of a co_await twice.
  content.range.tier = tier;
  absl::StatusOr<RegionClaim> made = co_await allocator_->Allocate(std::move(content), 0);
  if (!made.ok()) co_return made.status();
  Meganode* const tree = made->region()->tree;
  const uint32_t region = tree->region();
  absl::Status status = tree->InsertRoute("", RootOf(old_root)).status();
  if (status.ok()) status = tree->InsertRoute(key, child).status();
  if (status.ok()) status = co_await logs_->Flushed(region);
  if (status.ok()) {
    Membership::TableChange set_root = [old_root, region](RegionTable* table) {
      return table->root == region ? absl::OkStatus() : table->SetRoot(old_root, region);
    };
    status = co_await CommitTableChange(membership_, turns_, std::move(set_root));
  }
  if (!status.ok()) {  // Another worker was faster.
    if (!turns_->stopping()) co_await allocator_->Discard(region);
    co_return status;
  }
  if (!made->region()->lost()) made->region()->ChangeState(RegionState::kServing);
  made->Release();
  ++counters_.roots_made;
  sync_points_->Reach("split: root made");
  spdlog::info("region {} holds the new root of the tree", region);
  co_return absl::OkStatus();
}

Task<absl::Status> Steward::AllocateNow(uint32_t count) {
  if (const absl::Status room = regions_->CheckRoom(count); !room.ok()) co_return room;
  for (uint32_t made = 0; made < count;) {
    const absl::StatusOr<bool> ready = regions_->Prepare(kPreparedPerTurn);
    if (!ready.ok()) co_return ready.status();
    made += *ready;
    co_await turns_->Next();
    if (turns_->stopping()) co_return absl::CancelledError("this server ends");
  }
  co_return absl::OkStatus();
}

Task<absl::Status> Steward::SplitNow(uint32_t id) {
  HeldRegion* const region = regions_->Find(id);
  if (region == nullptr) co_return absl::NotFoundError(fmt::format("region {} is not here", id));
  if (!region->claimable()) {
    co_return absl::AbortedError(fmt::format("region {} is being split or moved", id));
  }
  if (turns_->stopping()) co_return absl::CancelledError("this server ends");
  RegionClaim claim(region, ClaimPurpose::kSplit);
  co_return co_await Split(std::move(claim));
}

Task<absl::Status> Steward::SetDraining(bool draining) {
  (void)co_await RefreshAwaiter(membership_);
  const ClusterState& state = membership_->state();
  size_t room = 0;
  for (const ClusterState::Server& server : state.servers) {
    if (server.name == options_.self.server || state.table.draining.contains(server.name)) continue;
    for (uint32_t i = 0; i < server.workers.size(); ++i) {
      room += server.workers[i].regions_max -
              std::min<size_t>(server.workers[i].regions_max, state.table.CountOf({server.name, i}));
    }
  }
  if (draining && room < regions_->size()) {
    co_return absl::FailedPreconditionError(fmt::format("{} holds {} regions, and the other servers have room for {}",
                                                        options_.self.server, regions_->size(), room));
  }
  Membership::TableChange change = [draining, server = options_.self.server](RegionTable* table) {
    if (draining) {
      table->draining.insert(server);
    } else {
      table->draining.erase(server);
    }
    return absl::OkStatus();
  };
  balance_at_ns_ = 0;
  drain_status_ = absl::OkStatus();
  co_return co_await ChangeAwaiter(membership_, std::move(change));
}

Task<absl::Status> Steward::RebalanceNow(uint64_t* moved) {
  const Mutex::Guard balancing = co_await balancing_.Lock(turns_);
  absl::Status status;
  while (status.ok() && !turns_->stopping()) {
    const std::optional<Gift> gift = co_await FindGift(SIZE_MAX);
    if (!gift.has_value()) break;
    status = co_await mover_->Give(gift->region, gift->to);
    *moved += status.ok();
  }
  co_return status;
}

Task<std::optional<Steward::Gift>> Steward::FindGift(size_t asked_max) {
  (void)co_await RefreshAwaiter(membership_);
  std::vector<WorkerId> takers = Takers(membership_->state(), options_.self, &random_);
  if (takers.size() > asked_max) takers.resize(asked_max);
  std::optional<WorkerId> lightest;
  uint64_t its = UINT64_MAX;
  for (const WorkerId& taker : takers) {
    std::string request = MakeTextRequest(MessageKind::kWeigh);
    const absl::StatusOr<std::string> reply = co_await peers_->Call(taker, std::move(request));
    if (!reply.ok()) continue;  // Whoever is not there takes nothing.
    const absl::StatusOr<WeighReply> weight = ParseWeighReply(AsBytes(*reply));
    if (!weight.ok() || weight->bytes_used >= its) continue;
    its = weight->bytes_used;
    lightest = taker;
  }
  if (!lightest.has_value() || turns_->stopping()) co_return std::nullopt;
  // Not meganodes of routes, which hold little and are on everybody's way.
  std::vector<uint32_t> movable;
  std::vector<uint64_t> weights;
  for (const HeldRegion* region : regions_->all()) {
    if (!region->claimable() || (region->tree != nullptr && region->tree->tier() != 0)) continue;
    movable.push_back(region->region());
    weights.push_back(region->store->bytes_used());
  }
  const std::optional<size_t> chosen = ChooseGift(regions_->bytes_used(), its, weights);
  if (!chosen.has_value()) co_return std::nullopt;
  co_return Gift{movable[*chosen], *lightest};
}

Task<bool> Steward::Balance(Mutex::Guard balancing) {
  const Mutex::Guard guard = std::move(balancing);
  const std::optional<Gift> gift = co_await FindGift(kWeighedAtOnce);
  if (gift.has_value()) {
    const absl::Status status = co_await mover_->Give(gift->region, gift->to);
    if (status.ok()) {
      balance_at_ns_ = 0;  // Perhaps one more.
    } else {
      balance_at_ns_ = fabric_->NowNs() + kFailedGiftPauses * options_.balance_every_ns;
      ReportRefused(gift->region, gift->to, status);
    }
  }
  co_return true;
}

void Steward::ReportRefused(uint32_t region, const WorkerId& to, const absl::Status& why) {
  if (const auto more = repeats_.Due("give " + ToString(to), fabric_->NowNs())) {
    spdlog::info("region {} was not given to {}: {}{}", region, ToString(to), std::string(why.message()), *more);
  }
}

Task<bool> Steward::Drain(Mutex::Guard balancing) {
  const Mutex::Guard guard = std::move(balancing);
  (void)co_await RefreshAwaiter(membership_);
  for (const HeldRegion* held : regions_->all()) {
    const uint32_t region = held->region();
    const std::optional<WorkerId> to = ChooseTaker(membership_->state(), options_.self, &random_);
    if (!to.has_value()) {
      NoteDrained(absl::ResourceExhaustedError(fmt::format("no other server has room for region {}", region)));
      if (const auto more = repeats_.Due("drain", fabric_->NowNs())) {
        spdlog::warn("no other server has room for region {}{}", region, *more);
      }
      break;
    }
    if (turns_->stopping()) break;
    const absl::Status status = co_await mover_->Give(region, *to);
    if (!status.ok()) ReportRefused(region, *to, status);
    NoteDrained(status);
    (void)co_await RefreshAwaiter(membership_);
    break;  // The list may have changed; on with the next Step.
  }
  balance_at_ns_ = regions_->size() > 0 ? fabric_->NowNs() + kDrainPauseNs : balance_at_ns_;
  co_return true;
}

void Steward::NoteDrained(const absl::Status& status) {
  if (drain_status_.ok() && !status.ok()) {
    drain_failing_since_ns_ = fabric_->NowNs();
    spdlog::warn("a region cannot be given away: {}", std::string(status.message()));
  }
  drain_status_ = status;
}

absl::Status Steward::DrainStuck() const {
  if (drain_status_.ok() || fabric_->NowNs() - drain_failing_since_ns_ < kDrainPatienceNs) return absl::OkStatus();
  return drain_status_;
}

Task<absl::StatusOr<std::string>> Steward::AskOwner(uint32_t region, std::string request) {
  absl::StatusOr<WorkerId> owner = membership_->state().OwnerOf(region);
  if (!owner.ok()) co_return owner.status();
  if (*owner == options_.self) co_return service_->AnswerPeer(AsBytes(request));
  co_return co_await peers_->Call(*std::move(owner), std::move(request));
}

}  // namespace cell
