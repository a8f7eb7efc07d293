#include "cell/server/change/table_keeper.h"

#include <algorithm>

#include "cell/base/status_macros.h"
#include "cell/cluster/membership_await.h"
#include "cell/cluster/placement.h"
#include "cell/server/region/commit_table_change.h"
#include "pilaf/bucket.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr int64_t kRetryPauseNs = 2'000'000;
constexpr int64_t kRefreshEveryNs = 50'000'000;  // Limits how long a worker does not notice that a table is gone.
constexpr int64_t kLookEveryNs = 500'000;
constexpr uint32_t kPartsMax = 4096;

absl::Status Stopping() { return absl::CancelledError("this server is shutting down"); }

}  // namespace

TableKeeper::TableKeeper(const WorkerContext& context, RegionAllocator* allocator, Splitter* splitter,
                         Migrator* migrator)
    : self_(context.self),
      clock_(context.clock),
      membership_(context.membership),
      scheduler_(context.scheduler),
      regions_(context.regions),
      peers_(context.peers),
      logs_(context.logs),
      sync_points_(context.sync_points),
      allocator_(allocator),
      splitter_(splitter),
      migrator_(migrator),
      random_(context.seed) {}

Task<absl::Status> TableKeeper::Create(std::string name, uint32_t bucket_bytes, uint32_t parts) {
  const absl::Status named = RegionTable::CheckTableName(name);
  if (!named.ok()) co_return named;
  if (bucket_bytes != 0 && !ValidBucketBytes(bucket_bytes)) {
    co_return absl::InvalidArgumentError(
        fmt::format("invalid bucket size of {} bytes: it must be a power of two from {} to {}, or 0 for slots",
                    bucket_bytes, kBucketBytesMin, kBucketBytesMax));
  }
  if (parts > kPartsMax) {
    co_return absl::InvalidArgumentError(
        fmt::format("{} parts are too many: at most {} are allowed", parts, kPartsMax));
  }
  (void)co_await RefreshAwaiter(membership_);
  if (membership_->state().table.tables.contains(name)) {
    co_return absl::AlreadyExistsError(fmt::format("a table {} already exists", name));
  }
  const absl::Status room = parts > 0 ? CheckRoom(parts) : absl::OkStatus();
  if (!room.ok()) co_return room;
  const bool asked = parts > 0;
  if (!asked) {
    for (const ClusterState::Server& server : membership_->state().servers) {
      parts += static_cast<uint32_t>(server.workers.size());
    }
  }
  parts = std::min(parts, kPartsMax);
  RegionContent content;
  content.hash_range.emplace();
  content.bucket_bytes = bucket_bytes;
  absl::StatusOr<RegionClaim> made = co_await allocator_->Allocate(std::move(content), 0);
  if (!made.ok()) co_return made.status();
  const auto added = RegionAllocator::NewRegion::Of(*made->region());
  const uint32_t region = added.id;
  Membership::TableChange create = [name, bucket_bytes, region, parts](RegionTable* table) {
    const auto there = table->TableOf(region);
    if (there != table->tables.end() && there->first == name) return absl::OkStatus();
    return table->CreateTable(name, bucket_bytes, region, parts);
  };
  const absl::Status status = co_await CommitTableChange(membership_, scheduler_, std::move(create));
  if (!status.ok()) {
    if (!scheduler_->stopping()) co_await allocator_->Discard(added);
    co_return status;
  }
  if (!made->region()->lost()) made->region()->ChangeState(RegionState::kServing);
  spdlog::info("created table {} in region {}", name, region);
  sync_points_->Reach("table: made");
  const absl::Status spread = co_await Spread(std::move(name), made->region(), parts);
  made->Release();
  co_return asked ? spread : absl::OkStatus();
}

absl::Status TableKeeper::CheckRoom(uint32_t parts) {
  const size_t here = regions_->regions_max() - std::min(regions_->size(), regions_->regions_max());
  size_t room = here;
  for (const WorkerRoom& other : RoomOfWorkers(membership_->state())) {
    if (other.worker != self_) room += other.room;
  }
  const auto refuse = [parts](const std::string& why) {
    return absl::ResourceExhaustedError(
        fmt::format("cannot create a table of {} parts: {} (--regions-max). No table was created", parts, why));
  };
  if (room < parts) return refuse(fmt::format("the cluster's workers have room for only {} more regions", room));
  // A part that is split off stays here until another worker takes it.
  if (parts > 1 && here < 2) return refuse(fmt::format("{} has room for only {} more", ToString(self_), here));
  return absl::OkStatus();
}

HeldRegion* TableKeeper::PartToMigrate(const std::string& name) const {
  const auto& tables = membership_->state().table.tables;
  const auto table = tables.find(name);
  if (table == tables.end()) return nullptr;
  for (const auto& [first, region] : table->second.parts) {
    HeldRegion* const held = regions_->Find(region);
    if (held != nullptr && held->claimable()) return held;
  }
  return nullptr;
}

Task<bool> TableKeeper::MigratePart(const std::string* name, size_t share, TargetsInTurn* targets) {
  while (!targets->in_turn.empty() && !scheduler_->stopping()) {
    const HeldRegion* const part = PartToMigrate(*name);
    if (part == nullptr) co_return false;
    Target& target = targets->in_turn.front();
    if (target.migrated >= share) co_return false;  // So have the others, because they take turns.
    const absl::Status status = co_await migrator_->Migrate(part->region(), target.worker);
    if (status.ok()) {
      ++target.migrated;
      targets->in_turn.push_back(std::move(target));
      targets->in_turn.pop_front();
      co_return true;
    }
    targets->refused = std::string(status.message());
    spdlog::info("a part of table {} could not be migrated to {}: {}", *name, ToString(target.worker),
                 targets->refused);
    targets->in_turn.pop_front();
  }
  co_return false;
}

Task<absl::Status> TableKeeper::Spread(std::string name, HeldRegion* rest, uint32_t parts) {
  TargetsInTurn targets;
  for (WorkerId& worker : MigrationTargets(membership_->state(), self_, &random_)) {
    targets.in_turn.push_back({std::move(worker)});
  }
  const size_t share = std::max<size_t>(1, parts / (targets.in_turn.size() + 1));
  absl::Status status;
  uint32_t made = 1;
  for (; made < parts; ++made) {
    if (scheduler_->stopping()) {
      status = Stopping();
      break;
    }
    // Others take more than their share if there is no room here for the next part.
    if (regions_->size() >= regions_->regions_max()) co_await MigratePart(&name, SIZE_MAX, &targets);
    const HashRange range = rest->hash->range();
    const uint64_t positions = uint64_t{range.last} - range.first + 1;
    const auto its = static_cast<uint32_t>(positions / (parts - made + 1));
    RegionContent upper = rest->content();
    upper.hash_range->first = range.last - std::max(its, 1u) + 1;
    status = co_await splitter_->SplitOff(rest, std::move(upper));
    if (!status.ok()) break;
    co_await MigratePart(&name, share, &targets);
  }
  if (status.ok()) co_return status;
  const std::string why =
      fmt::format("{}{}{}", std::string(status.message()), targets.refused.empty() ? "" : "; ", targets.refused);
  spdlog::warn("table {} has {} of {} parts: {}", name, made, parts, why);
  co_return absl::ResourceExhaustedError(
      fmt::format("table {} was created with {} of {} parts, and can be used: {}", name, made, parts, why));
}

Task<absl::Status> TableKeeper::Drop(std::string name) {
  std::map<uint32_t, RegionTable::Entry> before;
  Membership::TableChange drop = [name, &before](RegionTable* table) {
    const RegionMap all = table->regions;
    absl::Status status = table->DropTable(name);
    before.clear();
    for (const auto& [region, entry] : all) {
      if (!table->regions.contains(region)) before.emplace(region, entry);
    }
    return status;
  };
  const absl::Status status = co_await ChangeAwaiter(membership_, std::move(drop));
  if (!status.ok()) co_return status;
  spdlog::info("dropped table {}", name);
  // The owners drop their parts, if there are any owners.
  for (const auto& [region, entry] : before) {
    if (entry.owner == self_) {
      while (regions_->Find(region) != nullptr && !scheduler_->stopping())
        co_await regions_->departed()->Wait(scheduler_);
    } else if (membership_->IsGone(entry.owner)) {
      co_await logs_->RemoveLog(region, entry.epoch);
    } else {
      co_await AwaitDropped(entry.owner, region);
    }
  }
  co_return absl::OkStatus();
}

Task<bool> TableKeeper::AwaitDropped(WorkerId owner, uint32_t region) {
  const uint64_t extents_offset = GeometryOf(region, regions_->shape(), 0).extents_offset;
  while (!scheduler_->stopping()) {
    std::string request = MakeFetchRequest(Pointer(region, extents_offset), kWordBytes);
    WorkerId to = owner;
    const absl::StatusOr<std::string> reply = co_await peers_->Call(std::move(to), std::move(request));
    if (!reply.ok() || !ParseBytesReply(AsBytes(*reply), MessageKind::kFetch).ok()) break;
    co_await scheduler_->Sleep(kRetryPauseNs);
  }
  co_return true;
}

Task<bool> TableKeeper::Refresh() {
  (void)co_await RefreshAwaiter(membership_);
  refreshing_ = false;
  co_return true;
}

void TableKeeper::Step() {
  const RegionTable& table = membership_->state().table;
  const int64_t now_ns = clock_->NowNs();
  if (scheduler_->stopping() || now_ns < look_at_ns_) return;
  look_at_ns_ = now_ns + kLookEveryNs;
  if (!refreshing_ && now_ns >= refresh_at_ns_) {
    refresh_at_ns_ = now_ns + kRefreshEveryNs;
    bool any = false;
    regions_->ForEach([&any](const HeldRegion* region) { any |= region->hash != nullptr; });
    refreshing_ = any;
    if (any) scheduler_->Spawn(Refresh());
  }
  for (HeldRegion* region : regions_->all()) {
    // The table is not older than what this worker knew when the region came here, or joined.
    if (region->hash == nullptr || region->state() == RegionState::kFilling || region->claimed() || region->lost() ||
        !region->pending.empty() || !table.IsGone(region->region(), region->epoch())) {
      continue;
    }
    const uint32_t id = region->region();
    const uint64_t epoch = region->epoch();
    spdlog::info("removed region {}: its table was dropped", id);
    regions_->Drop(id);
    scheduler_->Spawn(logs_->RemoveLog(id, epoch));
  }
}

}  // namespace cell
