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
constexpr int64_t kRefreshEveryNs = 50'000'000;  // So soon a worker hears that a table is gone.
constexpr int64_t kLookEveryNs = 500'000;
constexpr uint32_t kHurry = 16;
constexpr uint32_t kPartsMax = 4096;

absl::Status Lost() { return absl::AbortedError("the region is another worker's by now"); }
absl::Status Stopping() { return absl::CancelledError("this server ends"); }

}  // namespace

TableKeeper::TableKeeper(Fabric* fabric, Membership* membership, Regions* regions, RequestService* service,
                         Mover* mover, Peers* peers, LogKeeper* logs, RegionAllocator* allocator, Turns* turns,
                         const SyncPoints* sync_points, Options options)
    : fabric_(fabric),
      membership_(membership),
      regions_(regions),
      service_(service),
      mover_(mover),
      peers_(peers),
      logs_(logs),
      allocator_(allocator),
      turns_(turns),
      sync_points_(sync_points),
      options_(std::move(options)),
      random_(options_.seed) {}

uint32_t TableKeeper::UnitsPerTurn(const HashTable& table) const {
  const uint32_t slots = table.place().unit_bytes() / sizeof(HashSlot);
  return std::max<uint32_t>(1, options_.copied_per_turn / slots);
}

Task<absl::Status> TableKeeper::Create(std::string name, uint32_t bucket_bytes, uint32_t parts) {
  const absl::Status named = RegionTable::CheckTableName(name);
  if (!named.ok()) co_return named;
  if (bucket_bytes != 0 && !ValidBucketBytes(bucket_bytes)) {
    co_return absl::InvalidArgumentError(
        fmt::format("buckets of {} bytes: the size is a power of two from {} to {}, or 0 for slots", bucket_bytes,
                    kBucketBytesMin, kBucketBytesMax));
  }
  if (parts > kPartsMax) {
    co_return absl::InvalidArgumentError(fmt::format("{} parts: at most {} can be asked for", parts, kPartsMax));
  }
  (void)co_await RefreshAwaiter(membership_);
  if (membership_->state().table.tables.contains(name)) {
    co_return absl::AlreadyExistsError(fmt::format("there is a table {} already", name));
  }
  const absl::Status room = parts > 0 ? CheckRoom(parts) : absl::OkStatus();
  if (!room.ok()) co_return room;
  RegionContent content;
  content.hash_range.emplace();
  content.bucket_bytes = bucket_bytes;
  absl::StatusOr<RegionClaim> made = co_await allocator_->Allocate(std::move(content), 0);
  if (!made.ok()) co_return made.status();
  const uint32_t region = made->region()->region();
  Membership::TableChange create = [name, bucket_bytes, region](RegionTable* table) {
    const auto there = table->TableOf(region);
    if (there != table->tables.end() && there->first == name) return absl::OkStatus();
    return table->CreateTable(name, bucket_bytes, region);
  };
  const absl::Status status = co_await CommitTableChange(membership_, turns_, std::move(create));
  if (!status.ok()) {
    if (!turns_->stopping()) co_await allocator_->Discard(region);
    co_return status;
  }
  if (!made->region()->lost()) made->region()->ChangeState(RegionState::kServing);
  spdlog::info("table {} begins in region {}", name, region);
  sync_points_->Reach("table: made");
  const bool asked = parts > 0;
  if (!asked) {
    for (const ClusterState::Server& server : membership_->state().servers) {
      parts += static_cast<uint32_t>(server.workers.size());
    }
  }
  const absl::Status spread = co_await Spread(std::move(name), made->region(), std::min(parts, kPartsMax));
  made->Release();
  co_return asked ? spread : absl::OkStatus();
}

absl::Status TableKeeper::CheckRoom(uint32_t parts) {
  const ClusterState& state = membership_->state();
  const size_t here = regions_->regions_max() - std::min(regions_->size(), regions_->regions_max());
  size_t room = here;
  for (const WorkerId& taker : Takers(state, options_.self, &random_)) {
    room += state.FindWorker(taker)->regions_max - state.table.CountOf(taker);
  }
  const auto refuse = [parts](const std::string& why) {
    return absl::ResourceExhaustedError(
        fmt::format("a table of {} parts was asked for, and {} (--regions-max). Nothing was made", parts, why));
  };
  if (room < parts) return refuse(fmt::format("the cluster's workers have room for {} more regions", room));
  // One that is split off is here until another worker takes it.
  if (parts > 1 && here < 2) return refuse(fmt::format("{} has room for {} more", ToString(options_.self), here));
  return absl::OkStatus();
}

HeldRegion* TableKeeper::PartToGive(const std::string& name) const {
  const auto& tables = membership_->state().table.tables;
  const auto table = tables.find(name);
  if (table == tables.end()) return nullptr;
  for (const auto& [first, region] : table->second.parts) {
    HeldRegion* const held = regions_->Find(region);
    if (held != nullptr && held->claimable()) return held;
  }
  return nullptr;
}

Task<bool> TableKeeper::GivePart(const std::string* name, size_t share, TakersInTurn* takers) {
  while (!takers->in_turn.empty() && !turns_->stopping()) {
    const HeldRegion* const part = PartToGive(*name);
    if (part == nullptr) co_return false;
    Taker& taker = takers->in_turn.front();
    if (taker.given >= share) co_return false;  // So have the others: they take in turns.
    const absl::Status status = co_await mover_->Give(part->region(), taker.worker);
    if (status.ok()) {
      ++taker.given;
      takers->in_turn.push_back(std::move(taker));
      takers->in_turn.pop_front();
      co_return true;
    }
    takers->refused = std::string(status.message());
    spdlog::info("a part of table {} was not given to {}: {}", *name, ToString(taker.worker), takers->refused);
    takers->in_turn.pop_front();
  }
  co_return false;
}

Task<absl::Status> TableKeeper::Spread(std::string name, HeldRegion* rest, uint32_t parts) {
  TakersInTurn takers;
  for (WorkerId& worker : Takers(membership_->state(), options_.self, &random_)) {
    takers.in_turn.push_back({std::move(worker)});
  }
  const size_t share = std::max<size_t>(1, parts / (takers.in_turn.size() + 1));
  absl::Status status;
  uint32_t made = 1;
  for (; made < parts; ++made) {
    if (turns_->stopping()) {
      status = Stopping();
      break;
    }
    // Others take more than their share if there is no room here for the next one.
    if (regions_->size() >= regions_->regions_max()) co_await GivePart(&name, SIZE_MAX, &takers);
    const HashRange range = rest->hash->range();
    const uint64_t places = uint64_t{range.last} - range.first + 1;
    const auto its = static_cast<uint32_t>(places / (parts - made + 1));
    status = co_await Split(rest, range.last - std::max(its, 1u) + 1);
    if (!status.ok()) break;
    co_await GivePart(&name, share, &takers);
  }
  if (status.ok()) co_return status;
  const std::string why = fmt::format("{}{}{}", std::string(status.message()), takers.refused.empty() ? "" : "; ",
                                      takers.refused);
  spdlog::warn("table {} has {} of {} parts: {}", name, made, parts, why);
  co_return absl::ResourceExhaustedError(
      fmt::format("table {} was made with {} of {} parts, and can be used: {}", name, made, parts, why));
}

Task<absl::Status> TableKeeper::Drop(std::string name) {
  std::map<uint32_t, RegionTable::Entry> before;
  Membership::TableChange drop = [name, &before](RegionTable* table) {
    before = table->regions;
    const absl::Status status = table->DropTable(name);
    for (const auto& [region, entry] : table->regions) before.erase(region);
    return status;
  };
  const absl::Status status = co_await ChangeAwaiter(membership_, std::move(drop));
  if (!status.ok()) co_return status;
  spdlog::info("table {} is dropped", name);
  // The owners see to theirs, if there are any.
  for (const auto& [region, entry] : before) {
    if (entry.owner == options_.self) {
      while (regions_->Find(region) != nullptr && !turns_->stopping()) co_await regions_->departed()->Wait(turns_);
    } else if (membership_->IsGone(entry.owner)) {
      co_await allocator_->RemoveLog(region);
    } else {
      co_await AwaitDropped(entry.owner, region);
    }
  }
  co_return absl::OkStatus();
}

Task<bool> TableKeeper::AwaitDropped(WorkerId owner, uint32_t region) {
  const uint64_t extents_offset = PlaceOf(region, regions_->shape(), 0).extents_offset;
  while (!turns_->stopping()) {
    std::string request = MakeFetchRequest(Pointer(region, extents_offset), kWordBytes);
    WorkerId to = owner;
    const absl::StatusOr<std::string> reply = co_await peers_->Call(std::move(to), std::move(request));
    if (!reply.ok() || !ParseBytesReply(AsBytes(*reply), MessageKind::kFetch).ok()) break;
    co_await turns_->Sleep(kRetryPauseNs);
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
  const int64_t now_ns = fabric_->NowNs();
  if (turns_->stopping() || now_ns < look_at_ns_) return;
  look_at_ns_ = now_ns + kLookEveryNs;
  if (!refreshing_ && now_ns >= refresh_at_ns_) {
    refresh_at_ns_ = now_ns + kRefreshEveryNs;
    bool any = false;
    regions_->ForEach([&any](const HeldRegion* region) { any |= region->hash != nullptr; });
    refreshing_ = any;
    if (any) turns_->Begin(Refresh());
  }
  for (HeldRegion* region : regions_->all()) {
    // What it says is not older than what this worker knew when the region came here, or joined.
    if (region->hash == nullptr || region->state() == RegionState::kFilling || region->claimed() || region->lost() ||
        !region->pending.empty() ||
        table.Find(region->region()) != nullptr) {
      continue;
    }
    const uint32_t id = region->region();
    spdlog::info("region {} was part of a table that is gone", id);
    regions_->Drop(id);
    turns_->Begin(allocator_->RemoveLog(id));
  }
}

Task<absl::Status> TableKeeper::Split(HeldRegion* region) {
  return Split(region, HashSplit::ChoosePlace(region->hash->range()));
}

Task<absl::Status> TableKeeper::Split(HeldRegion* region, uint32_t place) {
  const HashRange range = region->hash->range();
  if (range.first == range.last) co_return absl::FailedPreconditionError("its part of the hash space is one place");
  RegionContent content = region->content();
  content.hash_range->first = place;
  const absl::StatusOr<RegionClaim> upper_claim = co_await allocator_->Allocate(std::move(content), region->region());
  if (!upper_claim.ok()) co_return upper_claim.status();
  HeldRegion* const upper = upper_claim->region();
  const uint32_t made = upper->region();
  sync_points_->Reach("table split: region made");
  absl::Status status = co_await MoveUpperPart(region, upper);
  if (status.ok()) {
    spdlog::info("region {} was split: from place {:#010x} on keys are in region {}", region->region(),
                 upper->hash->range().first, made);
  } else if (!turns_->stopping() && (region->log == nullptr || region->log->status().ok())) {
    co_await allocator_->Discard(made);
  } else if (!turns_->stopping()) {
    regions_->Drop(made);  // The cut may be on disk: whoever recovers the lower part knows from its log.
  }
  co_return status;
}

Task<absl::Status> TableKeeper::MoveUpperPart(HeldRegion* region, HeldRegion* upper) {
  const int64_t begun_ns = fabric_->NowNs();
  HashSplit split(region->hash, upper->hash);
  const uint32_t units = UnitsPerTurn(*region->hash);
  for (bool copied = false; !copied;) {
    if (turns_->stopping()) co_return Stopping();
    if (region->lost() || upper->lost()) co_return Lost();
    // Writes that wait for it gain more from its end than from their turn.
    const absl::StatusOr<bool> all = split.Copy((service_->writes()->held(region->region()) > 0 ? kHurry : 1) * units);
    if (!all.ok()) co_return all.status();
    copied = *all;
    co_await turns_->Next();
  }
  counters_.longest_copy_ns = std::max(counters_.longest_copy_ns, static_cast<uint64_t>(fabric_->NowNs() - begun_ns));
  if (turns_->stopping()) co_return Stopping();
  sync_points_->Reach("table split: copied");
  const absl::Status status = co_await Cut(region, upper, &split);
  if (!status.ok()) co_return status;
  cleaning_.push_back(&split);
  sync_points_->Reach("table split: cut");
  co_await Join(region, upper);
  sync_points_->Reach("table split: joined");
  while (!split.Clean(turns_->stopping() ? UINT32_MAX : units)) co_await turns_->Next();
  std::erase(cleaning_, &split);
  sync_points_->Reach("table split: cleaned");
  ++counters_.splits;
  co_return absl::OkStatus();
}

// As of a meganode: the new region's log is on disk before the cut is, and the cut before the new region takes a write.
Task<absl::Status> TableKeeper::Cut(HeldRegion* region, HeldRegion* upper, HashSplit* split) {
  const uint32_t lower_id = region->region();
  const uint32_t upper_id = upper->region();
  if (region->lost() || upper->lost()) co_return Lost();
  if (logs_->on()) {
    const int64_t frozen_ns = fabric_->NowNs();
    region->ChangeState(RegionState::kFrozen);
    absl::Status status = co_await logs_->Settled(lower_id);
    if (status.ok()) status = co_await logs_->Flushed(upper_id);
    if (status.ok()) status = split->mirrored();
    if (status.ok()) {
      const HashCutValue cut{upper->hash->range().first, upper_id};
      region->log->Append(RecordKind::kHashCut, "", std::string_view(reinterpret_cast<const char*>(&cut), sizeof(cut)));
      sync_points_->Reach("table split: cut logged");
      status = co_await logs_->Flushed(lower_id);
    }
    region->Unfreeze();
    counters_.longest_frozen_ns =
        std::max(counters_.longest_frozen_ns, static_cast<uint64_t>(fabric_->NowNs() - frozen_ns));
    if (!status.ok()) co_return status;
  }
  if (region->lost() || upper->lost()) co_return Lost();
  co_return split->Finish();
}

// Until the table has the new part, or the whole is gone.
Task<bool> TableKeeper::Join(HeldRegion* region, HeldRegion* upper) {
  const int64_t cut_ns = fabric_->NowNs();
  while (!region->lost() && !turns_->stopping()) {
    Membership::TableChange split = [lower = region->region(), upper = upper->region(),
                                     first = upper->hash->range().first](RegionTable* table) {
      return table->SplitPart(lower, first, upper);
    };
    const absl::Status status = co_await ChangeAwaiter(membership_, std::move(split));
    if (status.ok() || absl::IsNotFound(status)) break;
    co_await turns_->Sleep(kRetryPauseNs);
  }
  if (upper->state() == RegionState::kFilling) upper->ChangeState(RegionState::kServing);
  counters_.longest_untold_ns = std::max(counters_.longest_untold_ns, static_cast<uint64_t>(fabric_->NowNs() - cut_ns));
  co_return true;
}

void TableKeeper::CleanAll() {
  for (HashSplit* split : cleaning_) {
    while (!split->Clean(UINT32_MAX)) {
    }
  }
}

}  // namespace cell
