#include "cell/client/session/table_view.h"

#include <algorithm>
#include <string>
#include <utility>

#include "fmt/format.h"

namespace cell {
namespace {

constexpr int64_t kRefreshingPauseNs = 20'000;
constexpr int64_t kRefreshPauseNs = 10'000'000;
// How often the lease is renewed while the client reads, and how often at most a server is asked for that. What a
// server knows may be a quarter of a lease old (TableRefresher).
constexpr int64_t kRenewalsALease = 3;
constexpr int64_t kQuestionsALease = 6;
// Owners of regions that are gone, and where these were, are forgotten once there are this many more of them than twice
// the regions. A shared memory fabric has a descriptor and a mapping for each.
constexpr size_t kOwnersSlack = 64;

}  // namespace

TableView::TableView(ClientLoop* loop, Connections* connections, ClientMetrics* metrics,
                     std::unique_ptr<Membership> membership, uint64_t seed)
    : loop_(loop),
      connections_(connections),
      metrics_(metrics),
      membership_(std::move(membership)),
      membership_wakes_(membership_->SetWake([fabric = loop->fabric()] { fabric->Wake(); })),
      asker_(loop, connections, metrics, seed),
      revision_(cluster().revision),
      seen_ns_(loop->NowNs()) {}

bool TableView::WillBeServed(uint32_t region) const {
  if (cluster().durability == Durability::kNone) return false;
  const RegionTable::Entry* const entry = cluster().table.Find(region);
  if (entry == nullptr) return cluster().servers.size() > 1;
  return entry->recovering ||
         std::any_of(cluster().servers.begin(), cluster().servers.end(),
                     [entry](const ClusterState::Server& server) { return server.name != entry->owner.server; });
}

std::vector<WorkerConnection*> TableView::AllWorkers() {
  std::vector<WorkerConnection*> all;
  for (const ClusterState::Server& server : cluster().servers) {
    for (uint32_t i = 0; i < server.workers.size(); ++i) {
      const std::string& address = server.workers[i].address;
      if (!address.empty()) all.push_back(connections_->To({server.name, i}, address));
    }
  }
  return all;
}

const TableView::Owner* TableView::LookUpOwner(uint32_t region) {
  const auto before = owners_.find(region);
  const RegionTable::Entry* const entry = cluster().table.Find(region);
  const ClusterState::Worker* const worker =
      entry == nullptr || entry->recovering ? nullptr : cluster().FindWorker(entry->owner);
  if (worker == nullptr) {
    if (before != owners_.end()) before->second.known = false, before->second.revision = revision_;
    return nullptr;
  }
  WorkerConnection* const connection = connections_->To(entry->owner, worker->address);
  // Where it was at an earlier epoch is of no use any more, and if it has come back, that memory may belong to a
  // process that has ended.
  if (before != owners_.end() && before->second.epoch != entry->epoch && before->second.worker->up) {
    connections_->ForgetRegion(*before->second.worker, region);
  }
  if (owners_.size() > 2 * cluster().table.regions.size() + kOwnersSlack) {
    absl::erase_if(owners_, [this](const auto& one) {
      const bool gone = cluster().table.Find(one.first) == nullptr;
      if (gone && one.second.worker->up) connections_->ForgetRegion(*one.second.worker, one.first);
      return gone;
    });
  }
  Owner& owner = owners_[region];
  owner = {connection, entry->epoch, revision_, true};
  return &owner;
}

bool TableView::StillHolds(const Holder& holder) {
  if (holder.revision == revision_ || Mutated(Mutant::kTableLeaseUnchecked)) return true;
  const Owner* const owner = OwnerOf(holder.region);
  return owner != nullptr && owner->worker == holder.worker && owner->epoch == holder.epoch;
}

Task<bool> TableView::Refresh(int64_t deadline_ns) {
  const uint64_t wanted = refreshes_ + 1 + refreshing_;  // A refresh that is under way may have read too early.
  while (refreshes_ < wanted && !loop_->closed() && loop_->NowNs() < deadline_ns) {
    BeginRefresh();
    if (refreshes_ >= wanted) break;
    if (membership_wakes_) {
      co_await loop_->WaitFor(&refreshes_, deadline_ns);
    } else {  // A simulated membership answers in no time; searches that refresh again and again must let time pass.
      co_await loop_->SleepUntil(std::min(deadline_ns, loop_->NowNs() + kRefreshingPauseNs));
    }
  }
  co_return refreshes_ >= wanted;
}

void TableView::BeginRefresh() {
  if (refreshing_) return;
  refreshing_ = true;
  ++metrics_->table_readings;
  refreshed_ns_ = loop_->NowNs();
  reads_at_refresh_ = reads();
  membership_->Refresh([this](const absl::Status& status) {
    refreshing_ = false;
    ++refreshes_;
    if (status.ok()) table_ns_ = seen_ns_ = std::max(table_ns_, refreshed_ns_);
  });
}

size_t TableView::Poll() {
  const uint64_t before = refreshes_;
  const size_t done = membership_->Poll();
  revision_ = cluster().revision;
  // Not in the membership's callback: what is resumed may ask for the next refresh, which the membership would answer
  // in the same Poll, and so on without an end.
  if (refreshes_ != before) loop_->Wake(&refreshes_);
  return done;
}

void TableView::RefreshIfDue() {
  const int64_t now_ns = loop_->now_ns();
  const int64_t lease_ns = cluster().table_lease_ns;
  const bool read = refresh_soon_ || now_ns - seen_ns_ > kOldAfterNs / 10;
  const bool renew = reads() != reads_at_refresh_ && now_ns - table_ns_ > lease_ns / kRenewalsALease;
  if (refreshing_) return;
  if (read && now_ns - refreshed_ns_ >= kRefreshPauseNs) {
    refresh_soon_ = false;
    BeginRefresh();
  } else if (renew && !asking_ && now_ns - asked_ns_ > lease_ns / kQuestionsALease) {
    asked_ns_ = now_ns;
    loop_->Keep(std::make_unique<Question>(this));
  }
}

Task<bool> TableView::AskServer() {
  asking_ = true;
  reads_at_refresh_ = reads();
  const int64_t deadline_ns = loop_->NowNs() + cluster().table_lease_ns / kQuestionsALease;
  const absl::StatusOr<TableAsker::Answer> answer = co_await asker_.Ask(&cluster(), deadline_ns);
  asking_ = false;
  if (loop_->closed()) co_return false;
  const bool newest = answer.ok() && answer->version == cluster().table.version;
  if (newest) table_ns_ = seen_ns_ = std::max(table_ns_, answer->as_of_ns);
  if (!newest || loop_->NowNs() - table_ns_ > cluster().table_lease_ns / 2) RefreshSoon();
  co_return newest;
}

Task<absl::StatusOr<WorkerConnection*>> TableView::Connect(uint32_t region, int64_t deadline_ns) {
  if (loop_->closed()) co_return ClientLoop::Closed();
  const absl::StatusOr<WorkerId> owner = cluster().OwnerOf(region);
  if (!owner.ok()) {
    if (region == 0) co_return absl::UnavailableError("the cluster has no root yet: no server has started");
    co_return absl::UnavailableError(std::string(owner.status().message()));
  }
  const Owner* const known = OwnerOf(region);
  if (known == nullptr) {
    co_return absl::UnavailableError(fmt::format("region {} is being recovered by {}", region, owner->server));
  }
  WorkerConnection* const worker = known->worker;
  if (!worker->up) {
    const absl::Status status = co_await connections_->Connect(worker, deadline_ns);
    if (absl::IsCancelled(status)) co_return status;
    if (!status.ok()) {
      const bool denied = absl::IsPermissionDenied(status);
      co_return absl::Status(
          denied ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable,
          fmt::format("region {} on {}: {}", region, worker->worker_id.server, std::string(status.message())));
    }
  }
  co_return worker;
}

}  // namespace cell
