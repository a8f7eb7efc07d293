#include "cell/server/steward.h"

#include <algorithm>

#include "cell/base/status_macros.h"
#include "cell/cluster/membership_await.h"
#include "cell/io/fabric_await.h"
#include "cell/tree/meganode_split.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr int64_t kLookEveryNs = 500'000;
constexpr int64_t kSplitPauseNs = 1'000'000'000;
constexpr int64_t kRetryPauseNs = 2'000'000;
constexpr int64_t kConnectTimeoutNs = 1'000'000'000;
constexpr int64_t kCallTimeoutNs = 2'000'000'000;
constexpr int kHopsMax = 1000;
constexpr size_t kHurry = 16;

}  // namespace

Steward::Steward(Fabric* fabric, Membership* membership, Regions* regions, RequestService* service, Options options)
    : fabric_(fabric),
      membership_(membership),
      regions_(regions),
      service_(service),
      options_(std::move(options)),
      random_(options_.seed) {
  service_->set_more_status([this](nlohmann::json* json) {
    (*json)["steward"] = {{"splits", counters_.splits},
                          {"splits_failed", counters_.splits_failed},
                          {"routes_added", counters_.routes_added},
                          {"roots_made", counters_.roots_made},
                          {"longest_cut_us", static_cast<double>(counters_.longest_cut_ns) / 1e3}};
  });
  service_->set_on_full([this](HeldRegion* region) { return region->busy || BeginSplit(region); });
  service_->set_before_check([this] {
    for (MeganodeSplit* split : reclaiming_) (void)split->Reclaim(SIZE_MAX);
  });
}

Steward::~Steward() { CELL_CHECK(tasks_.empty()); }

absl::Status Steward::Start() {
  std::optional<absl::Status> changed;
  uint32_t made = 0;
  membership_->Change(
      [this, &made](RegionTable* table) -> absl::Status {
        made = 0;
        if (table->root != 0) return absl::AlreadyExistsError("there is a root");
        ASSIGN_OR_RETURN(made, table->Add(options_.self));
        return table->SetRoot(0, made);
      },
      [&changed](const absl::Status& status) { changed = status; });
  while (!changed.has_value()) {
    if (membership_->Poll() == 0) fabric_->Wait(fabric_->NowNs() + 1'000'000);
  }
  if (!changed->ok() && changed->code() != absl::StatusCode::kAlreadyExists) return *changed;
  if (changed->ok()) {
    RETURN_IF_ERROR(regions_->Create(made, Meganode::Range()).status());
    spdlog::info("region {} is the first of the cluster, and holds its root", made);
  }
  for (const auto& [region, entry] : membership_->state().table.regions) {
    if (entry.owner == options_.self && regions_->Find(region) == nullptr) {
      spdlog::error("region {} was held by this server when it ended; what was in it is lost", region);
    }
  }
  return absl::OkStatus();
}

void Steward::Begin(Task<bool> task) {
  tasks_.push_back(std::move(task));
  tasks_.back().Start();
}

size_t Steward::Step() {
  for (const ConnectionId id : std::exchange(lost_, {})) fabric_->Disconnect(id);
  size_t done = membership_->Poll() + service_->RetryHeld();
  if (!turn_waiters_.empty()) {
    std::vector<std::coroutine_handle<>> now;
    now.swap(turn_waiters_);
    for (const std::coroutine_handle<> waiter : now) waiter.resume();
    done += now.size();
  }
  const int64_t now_ns = fabric_->NowNs();
  while (!sleepers_.empty() && (stopping_ || sleepers_.begin()->first <= now_ns)) {
    const std::coroutine_handle<> sleeper = sleepers_.begin()->second;
    sleepers_.erase(sleepers_.begin());
    sleeper.resume();
    ++done;
  }
  if (!stopping_ && now_ns >= look_at_ns_) {
    look_at_ns_ = now_ns + kLookEveryNs;
    LookForWork();
  }
  tasks_.remove_if([](const Task<bool>& task) { return task.done(); });
  return done;
}

int64_t Steward::NextNs() const {
  if (!turn_waiters_.empty() || membership_->pending() || service_->retry_due()) return 0;
  return sleepers_.empty() ? INT64_MAX : sleepers_.begin()->first;
}

void Steward::Stop() {
  stopping_ = true;
  while (!tasks_.empty()) {
    if (Step() + fabric_->Poll() == 0) fabric_->Wait(fabric_->NowNs() + 1'000'000);
  }
}

void Steward::LookForWork() {
  for (HeldRegion* region : regions_->all()) {
    if (!region->busy && region->meganode.fill() >= options_.split_at) BeginSplit(region);
  }
}

bool Steward::BeginSplit(HeldRegion* region) {
  const auto it = not_before_ns_.find(region->meganode.region());
  if (stopping_ || (it != not_before_ns_.end() && it->second > fabric_->NowNs())) return false;
  region->busy = true;
  Begin(Split(region));
  return true;
}

Task<bool> Steward::Split(HeldRegion* region) {
  Meganode* const from = &region->meganode;
  const uint32_t id = from->region();
  absl::Status status = absl::FailedPreconditionError("it has one leaf");
  const std::optional<std::string> key = MeganodeSplit::ChooseKey(*from);
  uint32_t made = 0;
  if (key.has_value()) {
    Meganode::Range range = from->range();
    range.low = *key;
    const absl::StatusOr<HeldRegion*> right = co_await NewRegion(std::move(range));
    status = right.status();
    if (status.ok() && !stopping_) {
      (*right)->busy = true;
      (*right)->joined = false;
      made = (*right)->meganode.region();
      MeganodeSplit split(from, &(*right)->meganode, *key);
      bool copied = false;
      while (!copied && status.ok() && !stopping_) {
        // Writes that wait for it gain more from its end than from their turn.
        const size_t hurry = service_->held(id) > 0 ? kHurry : 1;
        const absl::StatusOr<bool> more = split.Copy(hurry * options_.copied_per_turn);
        status = more.status();
        if (status.ok()) copied = *more;
        co_await NextTurn();
      }
      if (copied && !stopping_) {
        const int64_t begun_ns = fabric_->NowNs();
        status = split.Finish();
        counters_.longest_cut_ns =
            std::max(counters_.longest_cut_ns, static_cast<uint64_t>(fabric_->NowNs() - begun_ns));
        if (status.ok()) {
          (*right)->joined = true;
          service_->RetryHeld();
          Begin(AddRoute(static_cast<uint8_t>(from->tier() + 1), *key, (*right)->meganode.root()));
          reclaiming_.push_back(&split);
          while (!split.Reclaim(stopping_ ? SIZE_MAX : options_.freed_per_turn)) co_await NextTurn();
          std::erase(reclaiming_, &split);
          ++counters_.splits;
          spdlog::info("region {} was split: keys from {} on are in region {}", id, ForMessage(*key), made);
          (*right)->busy = false;
          made = 0;
        }
      }
    }
  }
  if (stopping_) co_return true;
  if (made != 0) co_await Abandon(made);
  if (!status.ok()) {
    ++counters_.splits_failed;
    not_before_ns_[id] = fabric_->NowNs() + kSplitPauseNs;
    spdlog::warn("region {} is {:.0f} % full and could not be split: {}", id, 100 * from->fill(),
                 std::string(status.message()));
  }
  region->busy = false;
  service_->RetryHeld();
  co_return status.ok();
}

Task<absl::StatusOr<HeldRegion*>> Steward::NewRegion(Meganode::Range range) {
  if (regions_->size() >= regions_->regions_max()) {
    co_return absl::ResourceExhaustedError(
        fmt::format("this worker holds {} regions, its limit (--regions-max)", regions_->size()));
  }
  uint32_t id = 0;
  absl::Status status = co_await ChangeAwaiter(membership_, [this, &id](RegionTable* table) -> absl::Status {
    ASSIGN_OR_RETURN(id, table->Add(options_.self));
    return absl::OkStatus();
  });
  if (!status.ok()) co_return status;
  absl::StatusOr<HeldRegion*> made = regions_->Create(id, range);
  if (!made.ok()) {
    status = made.status();
    co_await Abandon(id);
    co_return status;
  }
  co_return made;
}

// A region that never was part of the tree.
Task<bool> Steward::Abandon(uint32_t region) {
  if (regions_->Find(region) != nullptr) regions_->Drop(region);
  const absl::Status status =
      co_await ChangeAwaiter(membership_, [region](RegionTable* table) { return table->Remove(region); });
  if (!status.ok()) spdlog::warn("region {} stays in the table, unused: {}", region, std::string(status.message()));
  co_return status.ok();
}

Task<bool> Steward::AddRoute(uint8_t tier, std::string key, Pointer child) {
  while (!stopping_) {
    const absl::Status status = co_await TryAddRoute(tier, key, child);
    if (status.ok()) {
      ++counters_.routes_added;
      co_return true;
    }
    spdlog::debug("the route to {} is not known yet: {}", ToString(child), std::string(status.message()));
    co_await Sleep(kRetryPauseNs + static_cast<int64_t>(random_.Below(kRetryPauseNs)));
    if (stopping_) break;
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
  Meganode::Range range;  // Not as a braced argument: g++ 12 destroys such temporaries of a co_await twice.
  range.tier = tier;
  const absl::StatusOr<HeldRegion*> made = co_await NewRegion(std::move(range));
  if (!made.ok()) co_return made.status();
  Meganode* const tree = &(*made)->meganode;
  const uint32_t region = tree->region();
  absl::Status status = tree->InsertRoute("", RootOf(old_root)).status();
  if (status.ok()) status = tree->InsertRoute(key, child).status();
  if (status.ok()) {
    status = co_await ChangeAwaiter(
        membership_, [old_root, region](RegionTable* table) { return table->SetRoot(old_root, region); });
  }
  if (!status.ok()) {  // Another worker was faster.
    co_await Abandon(region);
    co_return status;
  }
  ++counters_.roots_made;
  spdlog::info("region {} holds the new root of the tree", region);
  co_return absl::OkStatus();
}

Task<absl::StatusOr<std::string>> Steward::AskOwner(uint32_t region, std::string request) {
  absl::StatusOr<WorkerId> owner = membership_->state().OwnerOf(region);
  if (!owner.ok()) co_return owner.status();
  if (*owner == options_.self) co_return service_->AnswerPeer(AsBytes(request));
  co_return co_await AskWorker(*std::move(owner), std::move(request));
}

Task<absl::StatusOr<std::string>> Steward::AskWorker(WorkerId worker, std::string request) {
  Link& link = links_[worker];
  if (!link.up) {
    const ClusterState::Worker* known = membership_->state().FindWorker(worker);
    if (known == nullptr) co_return absl::UnavailableError(fmt::format("{} is not in the cluster", ToString(worker)));
    const absl::StatusOr<ConnectionId> connection =
        co_await ConnectAwaiter(fabric_, known->address, fabric_->NowNs() + kConnectTimeoutNs);
    if (!connection.ok()) co_return connection.status();
    if (link.up) {
      lost_.push_back(*connection);  // Another task was faster.
    } else {
      link = {*connection, true};
    }
  }
  const ConnectionId used = link.connection;
  const absl::StatusOr<ConstBytes> reply =
      co_await CallAwaiter(fabric_, used, request, {}, kMessageBytesMax, fabric_->NowNs() + kCallTimeoutNs);
  if (reply.ok()) co_return std::string(AsText(*reply));
  if (link.up && link.connection == used) {
    link.up = false;
    lost_.push_back(used);
  }
  co_return reply.status();
}

}  // namespace cell
