#include "cell/server/change/first_region.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cell/base/status_macros.h"
#include "cell/cluster/membership_await.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr int kLooksMax = 100;

// Returns the version of a table whose regions all ended with their servers, before this server began. Returns nullopt
// if any of them may still exist. For clusters without durability.
Task<absl::StatusOr<std::optional<uint64_t>>> FindAllLost(Membership* membership, WorkerId self) {
  std::optional<uint64_t> lost;
  if (self.worker != 0) co_return lost;  // The first worker of this process may hold some.
  if (membership->state().table.regions.empty()) co_return lost;
  for (int looks = 0; looks < kLooksMax; ++looks) {
    absl::Status status = co_await RefreshAwaiter(membership);
    if (!status.ok()) co_return status;
    const uint64_t version = membership->state().table.version;
    // The owner of a region in this table became a member before the table named it. So if an owner is not a member
    // when the members are read again, it has ended.
    status = co_await RefreshAwaiter(membership);
    if (!status.ok()) co_return status;
    const ClusterState& state = membership->state();
    if (state.table.version != version) continue;
    for (const auto& [region, entry] : state.table.regions) {
      if (entry.owner.server != self.server && !membership->IsGone(entry.owner)) co_return lost;
    }
    lost = version;
    co_return lost;
  }
  co_return lost;
}

// Returns an error for the user.
absl::Status RootLost(uint32_t region, const std::string& server) {
  return absl::FailedPreconditionError(
      fmt::format("region {}, the root of the tree, was lost when {} ended, and other servers still hold regions: stop "
                  "all servers, then start them again with an empty cluster",
                  region, server));
}

// Checks that the region table lists every region that has a log. A table that does not is older than the logs, or was
// lost. New regions would then have the ids and epochs of old ones, and their logs would be mixed.
Task<absl::Status> CheckTableKnowsLogs(Membership* membership, LogFlusher* logs) {
  std::vector<uint32_t> kept;
  const RunInPool::Work list = [logs, &kept]() -> absl::Status {
    ASSIGN_OR_RETURN(kept, logs->store()->Regions());
    return absl::OkStatus();
  };
  absl::Status status = co_await logs->RunOnDisk(list);
  if (!status.ok()) co_return status;
  const auto newest = std::max_element(kept.begin(), kept.end());
  if (newest == kept.end() || membership->state().table.ids.Given(*newest)) co_return absl::OkStatus();
  // A region enters the table before it has a log, so a table that is read now has all that were listed.
  status = co_await RefreshAwaiter(membership);
  if (!status.ok()) co_return status;
  if (membership->state().table.ids.Given(*newest)) co_return absl::OkStatus();
  const uint32_t next = membership->state().table.ids.next;
  co_return absl::FailedPreconditionError(fmt::format(
      "the region table {}, but a log of region {} exists: the table was lost, or replaced by an older copy. Restore "
      "the newest table, or delete the cluster with its logs (//tools:wipe). Nothing was changed",
      next == 1 ? "is empty" : fmt::format("lists regions 1 to {}", next - 1), *newest));
}

// Logs which regions were lost when this server last ended, without durability.
void ReportLost(const RegionTable& table, const Regions& regions, const WorkerId& self) {
  for (const auto& [region, entry] : table.regions) {
    if (entry.owner != self || regions.Find(region) != nullptr) continue;
    const auto of = table.TableOf(region);
    spdlog::error("region {}{} was held by this server when it ended; its contents are lost", region,
                  of == table.tables.end() ? "" : ", part of table " + of->first + ",");
  }
}

Task<absl::Status> MakeIfMissing(Membership* membership, Regions* regions, LogFlusher* logs, WorkerId self) {
  std::optional<uint64_t> all_lost;
  if (!logs->on()) {
    const absl::StatusOr<std::optional<uint64_t>> found = co_await FindAllLost(membership, self);
    if (!found.ok()) co_return found.status();
    all_lost = *found;
  } else {
    const absl::Status known = co_await CheckTableKnowsLogs(membership, logs);
    if (!known.ok()) co_return known;
  }
  // Find regions that would have become the first one, of servers that ended before the root was set. This is done here
  // because a change may run in another thread.
  std::set<uint32_t> abandoned;
  if (membership->state().table.root == 0 && !membership->state().table.regions.empty()) {
    const absl::Status status = co_await RefreshAwaiter(membership);
    if (!status.ok()) co_return status;
    for (const auto& [region, entry] : membership->state().table.regions) {
      const bool gone = entry.owner == self || membership->IsGone(entry.owner);
      if (entry.split_parent == std::optional<uint32_t>(0) && gone) abandoned.insert(region);
    }
  }
  uint32_t made = 0;
  uint64_t epoch = 0;
  size_t forgotten = 0;
  Membership::TableChange begin = [&](RegionTable* table) -> absl::Status {
    made = 0;
    forgotten = 0;
    if (all_lost == std::optional(table->version)) {
      forgotten = table->regions.size();
      table->Clear();
    }
    const RegionTable::Entry* root = table->Find(table->root);
    if (root != nullptr && root->owner == self && !logs->on()) return RootLost(table->root, self.server);
    if (root != nullptr) return absl::AlreadyExistsError("the tree already has a root");
    table->EraseIf([&](uint32_t region, const RegionTable::Entry&) { return abandoned.contains(region); });
    if (!table->regions.empty()) return absl::AlreadyExistsError("another server is creating the root");
    ASSIGN_OR_RETURN(made, table->Add(self, 0));
    epoch = table->Find(made)->epoch;
    return absl::OkStatus();
  };
  absl::Status status = co_await ChangeAwaiter(membership, std::move(begin));
  if (absl::IsAlreadyExists(status)) co_return absl::OkStatus();
  if (!status.ok()) co_return status;
  if (forgotten > 0) {
    spdlog::warn("the cluster's {} regions were lost when its servers ended; the cluster starts again empty",
                 forgotten);
  }
  status = regions->Create(made, RegionContent(), RegionState::kServing, epoch).status();
  if (status.ok()) status = co_await logs->Create(made);
  if (!status.ok()) co_return status;
  Membership::TableChange set_root = [made](RegionTable* table) -> absl::Status { return table->SetRoot(0, made); };
  status = co_await ChangeAwaiter(membership, std::move(set_root));
  if (!status.ok()) co_return status;
  spdlog::info("created region {}, the first of the cluster, with the root of the tree", made);
  co_return absl::OkStatus();
}

}  // namespace

Task<absl::Status> MakeFirstRegion(Membership* membership, Regions* regions, LogFlusher* logs, WorkerId self) {
  absl::Status status = co_await MakeIfMissing(membership, regions, logs, self);
  if (status.ok() && !logs->on()) ReportLost(membership->state().table, *regions, self);
  co_return status;
}

}  // namespace cell
