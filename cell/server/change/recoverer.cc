#include "cell/server/change/recoverer.h"

#include <algorithm>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/cluster/membership_await.h"
#include "cell/cluster/placement.h"
#include "cell/server/region/region_rebuild.h"
#include "cell/server/request/transaction_requests.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr int64_t kRetryPauseNs = 5'000'000;
constexpr int64_t kRefreshEveryNs = 2'000'000'000;
// A status tells this many failed recoveries, and as much of each message, so that it fits into a reply.
constexpr size_t kFailuresTold = 16;
constexpr size_t kWhyBytes = 400;

// Regions and their epochs that were created for a new root of the tree or a new table, and are not used yet.
using Unused = std::map<uint32_t, uint64_t>;

template <typename Whose>
Unused FindUnused(const RegionTable& table, Whose whose) {
  Unused unused;
  for (const auto& [region, entry] : table.regions) {
    if (entry.split_parent == std::optional<uint32_t>(0) && whose(region, entry.owner)) unused[region] = entry.epoch;
  }
  return unused;
}

// Removes unused regions whose creators have died. A creator that is alive after all finds them gone.
Task<bool> RemoveUnused(Membership* membership, Unused unused) {
  Membership::TableChange remove = [unused](RegionTable* table) {
    absl::Status removed = absl::AbortedError("another server claimed it first");
    for (const auto& [region, epoch] : unused) {
      const RegionTable::Entry* entry = table->Find(region);
      if (entry == nullptr || entry->epoch != epoch || entry->split_parent != std::optional<uint32_t>(0)) continue;
      if (table->Remove(region).ok()) removed = absl::OkStatus();
    }
    return removed;
  };
  const absl::Status status = co_await ChangeAwaiter(membership, std::move(remove));
  for (const auto& [region, epoch] : unused) {
    if (status.ok()) spdlog::info("removed region {}: its creator died before the region was used", region);
  }
  co_return status.ok();
}

}  // namespace

void Recoverer::Step() {
  if (!logs_->on()) return;
  DropLost();
  const int64_t now_ns = clock_->NowNs();
  BeginRetaking(now_ns);
  if (look_at_ns_ == 0) {  // The worker has just started: these belong to its former process.
    Unused unused = FindUnused(membership_->state().table, [this](uint32_t region, const WorkerId& maker) {
      return maker == self_ && regions_->Find(region) == nullptr;
    });
    if (!unused.empty()) scheduler_->Spawn(RemoveUnused(membership_, std::move(unused)));
  }
  if (looking_ || scheduler_->stopping() || now_ns < look_at_ns_) return;
  look_at_ns_ = now_ns + options_.look_every_ns;
  looking_ = true;
  scheduler_->Spawn(Look());
}

void Recoverer::DropLost() {
  const bool new_session = membership_->session() != session_;
  const ClusterState& state = membership_->state();
  if (!new_session && state.revision == seen_revision_) return;
  session_ = membership_->session();
  bool all_dropped = true;
  for (HeldRegion* region : regions_->all()) {
    const RegionTable::Entry* entry = state.table.Find(region->region());
    // A table that is older than the one with which the region came here says nothing.
    // A sealed region serves nobody, and its migration ends by what the table says.
    const bool others = entry != nullptr && entry->epoch > region->epoch() && region->state() != RegionState::kSealed;
    if ((others || new_session) && !region->lost()) {
      Lose(region, "this worker no longer owns it: its session expired, or another worker has taken it over");
    }
    if (!region->lost()) continue;
    if (region->claimed()) {
      all_dropped = false;
    } else {
      regions_->Drop(region->region());
    }
  }
  if (all_dropped) seen_revision_ = state.revision;
}

bool Recoverer::LogFailed(const HeldRegion& region) {
  // A claim that yields may last forever. Its holder releases it once the region is lost.
  const bool free = !region.claimed() || region.claim_yields();
  return region.log != nullptr && !region.log->status().ok() && !region.log->flushing() && free &&
         region.state() == RegionState::kServing;
}

void Recoverer::BeginRetaking(int64_t now_ns) {
  if (retaking_ || scheduler_->stopping() || now_ns < probe_at_ns_) return;
  probe_at_ns_ = now_ns + options_.probe_every_ns;
  std::vector<uint32_t> failed;
  for (const HeldRegion* region : regions_->all()) {
    const bool due = !MustWait(region->region(), region->epoch(), now_ns);
    if (LogFailed(*region) && due) failed.push_back(region->region());
  }
  if (failed.empty()) return;
  retaking_ = true;
  scheduler_->Spawn(Retake(std::move(failed)));
}

Task<bool> Recoverer::Retake(std::vector<uint32_t> regions) {
  for (const uint32_t region : regions) {
    const RegionTable table = membership_->state().table;
    const RunInPool::Work probe = [this, region, &table]() -> absl::Status {
      RETURN_IF_ERROR(logs_->store()->Probe(region));
      return CheckLog(region, table);
    };
    const absl::Status status = co_await logs_->RunOnDisk(probe);
    HeldRegion* const held = regions_->Find(region);
    if (absl::IsDataLoss(status) && held != nullptr) {
      failed_[region] = {held->epoch(), clock_->NowNs() + options_.retry_after_ns, std::string(status.message())};
      spdlog::error(
          "region {} stays in memory, where its pairs can be read, because it could not be recovered from its log: {}",
          region, std::string(status.message()));
    }
    if (!status.ok() || held == nullptr || !LogFailed(*held) || scheduler_->stopping()) continue;
    Lose(held, "its log had failed, and can be written again; the region will be recovered from it");
    ++counters_.retaken;
    seen_revision_ = 0;  // The next step drops it, and then it counts as missing.
  }
  retaking_ = false;
  co_return true;
}

absl::Status Recoverer::CheckLog(uint32_t region, const RegionTable& table) const {
  const RegionTable::Entry* const entry = table.Find(region);
  if (entry == nullptr) return absl::AbortedError("the region is gone");
  const LogReplay::GoneAt is_gone = [&table](uint32_t other, uint32_t at) { return table.IsGone(other, at); };
  LogReplay replay(logs_->store(), region, is_gone, entry->first_epoch);
  absl::Status status = replay.Open();
  if (absl::IsNotFound(status)) return absl::DataLossError(status.message());
  RETURN_IF_ERROR(status);
  return replay.ForEach([](const LogRecord&) { return absl::OkStatus(); });
}

bool Recoverer::MustWait(uint32_t region, uint64_t epoch, int64_t now_ns) const {
  const auto failed = failed_.find(region);
  return failed != failed_.end() && failed->second.epoch == epoch && now_ns < failed->second.retry_at_ns;
}

void Recoverer::AddFailuresTo(nlohmann::json* status) const {
  nlohmann::json failures = nlohmann::json::array();
  for (const auto& [region, failed] : failed_) {
    if (failures.size() == kFailuresTold) break;
    const RegionTable::Entry* const entry = membership_->state().table.Find(region);
    const bool current = entry != nullptr && entry->epoch == failed.epoch && !recovering_.contains(region);
    if (current) failures.push_back({{"region", region}, {"why", failed.why.substr(0, kWhyBytes)}});
  }
  (*status)["recovery_failures"] = std::move(failures);
}

void Recoverer::Lose(HeldRegion* region, std::string_view why) {
  spdlog::warn("region {} is no longer served here: {}", region->region(), why);
  ++counters_.lost;
  region->ChangeState(RegionState::kLost);
  region->store->Invalidate();
  if (region->log != nullptr) region->FailLog(absl::AbortedError("the region is no longer served here"));
  writes_->Lose(region);
}

bool Recoverer::IsFree(uint32_t region) const {
  if (regions_->Find(region) != nullptr || regions_->Arriving(region) || recovering_.contains(region)) return false;
  const std::vector<uint32_t> children = membership_->state().table.regions.SplitChildrenOf(region);
  return std::all_of(children.begin(), children.end(), [this](uint32_t child) { return IsFree(child); });
}

// Returns regions that this worker should have and does not: its own, and its share of those whose owners are gone.
std::vector<uint32_t> Recoverer::Wanted() {
  const ClusterState& state = membership_->state();
  const int64_t now_ns = clock_->NowNs();
  std::map<WorkerId, bool> gone;
  std::vector<WorkerId> alive;
  for (const ClusterState::Server& server : state.servers) {
    for (uint32_t i = 0; i < server.workers.size(); ++i) {
      const WorkerId worker{server.name, i};
      if (worker == self_ || !membership_->IsGone(worker)) alive.push_back(worker);
    }
  }
  for (const auto& [region, entry] : state.table.regions) {
    if (std::find(alive.begin(), alive.end(), entry.owner) == alive.end()) gone[entry.owner] = true;
  }
  std::erase_if(gone_since_ns_, [&](const auto& one) { return !gone.contains(one.first); });
  std::vector<uint32_t> wanted, orphans, coming;
  for (const auto& [region, entry] : state.table.regions) {
    if (gone.contains(entry.owner)) gone_since_ns_.emplace(entry.owner, now_ns);
    if (entry.split_parent.has_value()) continue;
    if (MustWait(region, entry.epoch, now_ns)) continue;
    if (entry.owner == self_) {
      if (IsFree(region)) wanted.push_back(region);
    } else if (gone.contains(entry.owner)) {
      const bool late = now_ns - gone_since_ns_.at(entry.owner) >= options_.takeover_after_ns;
      (late ? orphans : coming).push_back(region);
    }
  }
  // A region that is migrating is not free until that has failed.
  for (const uint32_t region : ShareOut(state, orphans, alive, self_)) {
    if (IsFree(region)) wanted.push_back(region);
  }
  coming_ = ShareOut(state, coming, alive, self_).size();
  return wanted;
}

Task<bool> Recoverer::PrepareMemory() {
  while (regions_->free() < coming_ && !scheduler_->stopping()) {
    const absl::StatusOr<bool> ready = regions_->Prepare(kPreparedPerStep);
    if (!ready.ok()) break;  // The recovery says what is wrong.
    co_await scheduler_->Yield();
  }
  preparing_ = false;
  co_return true;
}

Task<bool> Recoverer::Look() {
  // Watches notify soon, but not reliably.
  if (!membership_->watches() || clock_->NowNs() >= refresh_at_ns_) {
    refresh_at_ns_ = clock_->NowNs() + kRefreshEveryNs;
    (void)co_await RefreshAwaiter(membership_);
  }
  std::vector<uint32_t> wanted = Wanted();
  if (regions_->free() < coming_ && !preparing_) {
    preparing_ = true;
    scheduler_->Spawn(PrepareMemory());
  }
  if (!wanted.empty()) {  // Use the newest table: a region may have just moved.
    (void)co_await RefreshAwaiter(membership_);
    wanted = Wanted();
  }
  if (!wanted.empty() && !scheduler_->stopping()) {
    if (wanted.size() > claims_at_once_) wanted.resize(claims_at_once_);
    const absl::Status status = co_await Claim(std::move(wanted));
    if (absl::IsOutOfRange(status)) claims_at_once_ = std::max<size_t>(claims_at_once_ / 2, 1);
    if (!status.ok()) spdlog::info("could not claim regions: {}", std::string(status.message()));
  }
  const int64_t now_ns = clock_->NowNs();
  Unused unused = FindUnused(membership_->state().table, [this, now_ns](uint32_t, const WorkerId& maker) {
    const auto gone = gone_since_ns_.find(maker);
    return gone != gone_since_ns_.end() && now_ns - gone->second >= options_.takeover_after_ns;
  });
  if (!unused.empty() && !scheduler_->stopping()) co_await RemoveUnused(membership_, std::move(unused));
  looking_ = false;
  co_return true;
}

Task<absl::Status> Recoverer::Claim(std::vector<uint32_t> regions) {
  // Keep the table that shows this. While logs are looked up a newer one may come in which another worker has them.
  const RegionTable before = membership_->state().table;
  std::map<uint32_t, absl::Status> without;  // Why regions are not claimed.
  const RunInPool::Work look = [this, &regions, &without]() -> absl::Status {
    for (const uint32_t region : regions) {
      const absl::StatusOr<bool> has = logs_->store()->Has(region);
      if (!has.ok() && !absl::IsDataLoss(has.status())) return has.status();
      if (!has.ok()) without[region] = has.status();  // It stops this region, and no other.
      if (has.ok() && !*has) {
        without[region] = absl::NotFoundError("its log was not found (all servers must use the same --log-store)");
      }
    }
    return absl::OkStatus();
  };
  absl::Status status = co_await logs_->RunOnDisk(look);
  if (!status.ok()) co_return status;
  for (const auto& [region, why] : without) {
    std::erase(regions, region);
    const RegionTable::Entry* entry = before.Find(region);
    if (entry != nullptr) {
      failed_[region] = {entry->epoch, clock_->NowNs() + options_.retry_after_ns, std::string(why.message())};
    }
    spdlog::error("region {} cannot be recovered: {}", region, std::string(why.message()));
  }
  if (regions.empty()) co_return absl::OkStatus();
  sync_points_->Reach("takeover: before the claim");
  std::vector<Claimed> claimed;
  Membership::TableChange claim = [&before, &regions, &claimed, this](RegionTable* table) -> absl::Status {
    claimed.clear();
    for (const uint32_t region : regions) {
      const RegionTable::Entry* entry = before.Find(region);
      if (entry == nullptr || !table->Claim(region, entry->epoch, self_).ok()) continue;
      claimed.push_back({region, entry->epoch + 1, 0, {}});
      for (const uint32_t child : table->regions.SplitChildrenOf(region)) {
        const uint64_t epoch = table->Find(child)->epoch;
        if (table->Claim(child, epoch, self_).ok()) claimed.back().children.emplace_back(child, epoch + 1);
      }
    }
    return claimed.empty() ? absl::AbortedError("another server claimed it first") : absl::OkStatus();
  };
  status = co_await ChangeAwaiter(membership_, std::move(claim));
  sync_points_->Reach("takeover: claimed");
  if (!status.ok()) co_return status;  // If the answer was lost, the next look finds that they belong to this worker.
  for (Claimed& one : claimed) {
    one.at_ns = clock_->NowNs();
    recovering_[one.region] = one.epoch;
    for (const auto& [child, epoch] : one.children) recovering_[child] = epoch;
    scheduler_->Spawn(Recover(std::move(one)));
  }
  co_return absl::OkStatus();
}

Task<bool> Recoverer::Recover(Claimed claimed) {
  const uint32_t region = claimed.region;
  const absl::Status status = co_await RecoverOne(region, claimed.epoch, claimed.at_ns);
  const bool served = status.ok() && !scheduler_->stopping();
  if (!status.ok() && !scheduler_->stopping()) co_await HandleFailure(region, claimed.epoch, status);
  EndRecovering(region, claimed.epoch);
  for (const auto& [child, epoch] : claimed.children) {
    if (served && membership_->state().table.Find(child) != nullptr) {
      scheduler_->Spawn(Recover({child, epoch, claimed.at_ns, {}}));
      continue;
    }
    EndRecovering(child, epoch);
    if (!served) continue;
    spdlog::info("region {} was not part of the tree yet: its keys are still in its left neighbour", child);
    co_await logs_->RemoveLog(child, epoch);
  }
  co_return status.ok();
}

// If the region was claimed again meanwhile, that recovery continues.
void Recoverer::EndRecovering(uint32_t region, uint64_t epoch) {
  const auto it = recovering_.find(region);
  if (it != recovering_.end() && it->second == epoch) recovering_.erase(it);
}

Task<bool> Recoverer::HandleFailure(uint32_t region, uint64_t epoch, absl::Status status) {
  ++counters_.failed;
  const std::string why(status.message());
  if (status.code() == absl::StatusCode::kAborted) {  // Another worker has it by now.
    spdlog::info("region {} was not recovered here: {}", region, why);
    co_return true;
  }
  if (status.code() == absl::StatusCode::kDataLoss) {
    failed_[region] = {epoch, INT64_MAX, why};
    spdlog::error("region {} cannot be recovered: {}", region, why);
    co_return false;
  }
  // Keep a region that was passed on and comes back soon: apparently no worker can recover it.
  const int64_t now_ns = clock_->NowNs();
  const auto before = failed_.find(region);
  const bool again = before != failed_.end() && before->second.passed_on &&
                     now_ns - options_.retry_after_ns < before->second.retry_at_ns;
  failed_[region] = {epoch, now_ns + options_.retry_after_ns, why};
  const std::optional<WorkerId> other = ChooseTarget(membership_->state(), self_, &random_);
  if (other.has_value() && !again) {
    spdlog::error("region {} could not be recovered here, and is passed on to {}: {}", region, ToString(*other), why);
    Membership::TableChange pass = [region, epoch, other](RegionTable* table) {
      return table->Claim(region, epoch, *other);
    };
    const absl::Status passed = co_await ChangeAwaiter(membership_, std::move(pass));
    if (passed.ok()) {
      failed_[region].passed_on = true;
      co_return true;
    }
  }
  spdlog::error("region {} could not be recovered; the next attempt is in {} s: {}", region,
                options_.retry_after_ns / 1'000'000'000, why);
  co_return false;
}

// Blocks; runs on the thread pool. Nobody else uses `memory` yet, except readers, which find it invalid.
absl::Status Recoverer::Replay(uint32_t region, uint64_t epoch, const RegionTable& table, RegionMemory* memory,
                               Replayed* replayed) const {
  LogStore* const store = logs_->store();
  int64_t step_ns = replayed->begun_ns = clock_->NowNs();
  const auto step_took = [this, &step_ns] {
    const int64_t now_ns = clock_->NowNs();
    return now_ns - std::exchange(step_ns, now_ns);
  };
  RETURN_IF_ERROR(store->Fence(region, static_cast<uint32_t>(epoch)));
  replayed->fence_ns = step_took();
  const RegionTable::Entry* const entry = table.Find(region);
  if (entry == nullptr) return absl::AbortedError("the region is gone");
  const LogReplay::GoneAt is_gone = [&table](uint32_t other, uint32_t at) { return table.IsGone(other, at); };
  LogReplay replay(store, region, is_gone, entry->first_epoch, clock_);
  RETURN_IF_ERROR(replay.Open());
  RETURN_IF_ERROR(RebuildRegion(replay, region, regions_->shape(), memory, &replayed->content, regions_->pairs()));
  replayed->rebuild_ns = step_took();
  replayed->times = replay.times();
  replayed->cuts = replay.cuts();
  replayed->joined = replay.joined();
  replayed->outcomes = replay.outcomes();
  replayed->prepared = replay.prepared();
  replayed->records = replay.records();
  replayed->torn_bytes = replay.torn_bytes();
  const bool stamps = replayed->content.hash_range.has_value() || replayed->content.range.tier == 0;
  const uint64_t stamp_bound = stamps ? HeldRegion::Open(memory, regions_->pairs())->NextStampBound(0).value() : 0;
  const LogReplay::Rest rest = replay.RestFor(static_cast<uint32_t>(epoch), stamp_bound);
  ASSIGN_OR_RETURN(replayed->writer, store->Open(region, static_cast<uint32_t>(epoch), rest.sequence, rest.bytes));
  if (stamps) memory->header().stamp_bound = stamp_bound;
  replayed->next_sequence = rest.next_sequence;
  replayed->segment_ns = step_took();
  return absl::OkStatus();
}

std::string Recoverer::Replayed::Timeline(int64_t claimed_ns, int64_t waited_ns, int64_t served_ns) const {
  const auto seconds = [](int64_t ns) { return static_cast<double>(ns) / 1e9; };
  return fmt::format(
      "queued {:.3f}, fence {:.3f}, read {:.3f}, check {:.3f}, build {:.3f}, segment {:.3f}, leases {:.3f}, "
      "table {:.3f}",
      seconds(begun_ns - claimed_ns), seconds(fence_ns), seconds(times.read_ns), seconds(times.check_ns),
      seconds(rebuild_ns - times.read_ns - times.check_ns), seconds(segment_ns),
      seconds(waited_ns - begun_ns - took_ns()), seconds(served_ns - waited_ns));
}

Task<absl::Status> Recoverer::RecoverOne(uint32_t region, uint64_t epoch, int64_t claimed_ns) {
  // A migration of the region that had begun can only fail now, and so can a recovery with an earlier claim.
  while (regions_->Find(region) != nullptr || regions_->Arriving(region)) {
    if (scheduler_->stopping()) co_return absl::CancelledError("this server is shutting down");
    const RegionTable::Entry* entry = membership_->state().table.Find(region);
    if (entry == nullptr || entry->epoch > epoch) co_return absl::AbortedError("it has been claimed again since");
    co_await regions_->departed()->Wait(scheduler_);
  }
  const absl::StatusOr<RegionMemory*> memory = regions_->ReceiveStaged(region);
  if (!memory.ok()) co_return memory.status();
  auto written = std::make_unique<WrittenPages>(regions_->shape().region_bytes());
  (*memory)->set_written(written.get());
  Replayed replayed;
  // A table from after the claim: no join of the region with its right neighbour is made any more.
  const RegionTable table = membership_->state().table;
  const RunInPool::Work work = [this, region, epoch, &table, memory = *memory, &replayed] {
    return Replay(region, epoch, table, memory, &replayed);
  };
  absl::Status status = co_await logs_->RunReplay(work);
  if (!status.ok()) {
    regions_->NotArrived(region, *memory, *written);
    co_return status;
  }
  sync_points_->Reach("takeover: replayed");
  while (clock_->NowNs() < claimed_ns + options_.lease_wait_ns && !scheduler_->stopping()) {
    co_await scheduler_->Sleep(claimed_ns + options_.lease_wait_ns - clock_->NowNs());
  }
  if (scheduler_->stopping()) {
    regions_->NotArrived(region, *memory, *written);
    co_return absl::CancelledError("this server is shutting down");
  }
  const int64_t waited_ns = clock_->NowNs();
  HeldRegion* const held = regions_->Arrived(region, *memory, std::move(written), epoch, RegionState::kFrozen);
  held->outcomes = std::move(replayed.outcomes);
  status = TransactionRequests::Restore(replayed.prepared, clock_->NowNs(), held);
  if (!status.ok()) {
    regions_->Drop(region);
    co_return status;
  }
  RegionClaim held_claim(held, ClaimPurpose::kRecover);
  held->SetLog(std::make_shared<RegionLog>(region, static_cast<uint32_t>(epoch), replayed.next_sequence,
                                           std::move(replayed.writer), /*begun=*/true),
               logs_->log_first());
  for (;;) {
    Membership::TableChange recovered = [region, epoch, &replayed](RegionTable* table) {
      return table->Recovered(region, epoch, replayed.cuts);
    };
    status = co_await ChangeAwaiter(membership_, std::move(recovered));
    const RegionTable::Entry* entry = membership_->state().table.Find(region);
    if (entry != nullptr && entry->epoch == epoch && !entry->recovering) status = absl::OkStatus();
    if (status.ok() || status.code() == absl::StatusCode::kAborted || held->lost() || scheduler_->stopping()) break;
    co_await scheduler_->Sleep(kRetryPauseNs);
  }
  if (held->lost() || !status.ok()) {
    seen_revision_ = 0;  // If it has another owner, the next step drops it.
    // An error of the membership says nothing about the log: this worker may still have to recover the region.
    co_return held->lost()
        ? absl::AbortedError(
              "this worker no longer owns the region: its session expired, or another worker has taken it over")
        : status;
  }
  held->ChangeState(RegionState::kServing);
  if (held->tree != nullptr &&
      !replayed.content.range.low.empty()) {  // The former owner may have died before its route was known, or on disk.
    scheduler_->Spawn(routes_->Publish(static_cast<uint8_t>(replayed.content.range.tier + 1),
                                       replayed.content.range.low, std::move(held_claim)));
  }
  for (const auto& [joined, last_epoch] : replayed.joined) co_await logs_->RemoveLog(joined, last_epoch);
  sync_points_->Reach("takeover: serves");
  ++counters_.recovered;
  const int64_t served_ns = clock_->NowNs();
  counters_.last_served_ns = served_ns - claimed_ns;
  spdlog::info("region {} is recovered: {} keys, {} log records; replayed in {:.3f} s, served after {:.3f} s: {}{}",
               region, held->store->keys(), replayed.records, static_cast<double>(replayed.took_ns()) / 1e9,
               static_cast<double>(counters_.last_served_ns) / 1e9, replayed.Timeline(claimed_ns, waited_ns, served_ns),
               replayed.torn_bytes == 0
                   ? ""
                   : fmt::format("; {} bytes of an incomplete record at the end of the log were discarded",
                                 replayed.torn_bytes));
  co_return absl::OkStatus();
}

}  // namespace cell
