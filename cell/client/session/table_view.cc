#include "cell/client/session/table_view.h"

#include <algorithm>
#include <string>
#include <utility>

#include "fmt/format.h"

namespace cell {
namespace {

constexpr int64_t kRefreshingPauseNs = 20'000;
constexpr int64_t kRefreshPauseNs = 10'000'000;
// How often the lease is renewed while the client reads. What a server knows may be a quarter of a lease old
// (TableRefresher).
constexpr int64_t kRenewalsALease = 3;
// How often a server is asked that does not know the newest table yet.
constexpr int64_t kRepeatsALease = 100;
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
      fetcher_(loop, connections, metrics),
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
  // The region table of a cluster that was deleted never changes, so it is not read more often.
  if (absl::IsFailedPrecondition(failure_) && loop_->NowNs() - refreshed_ns_ < kAskedAgainNs) {
    ++refreshes_;
    return;
  }
  refreshing_ = true;
  refreshed_ns_ = loop_->NowNs();
  reads_at_refresh_ = reads();
  if (membership_->learns()) {
    loop_->Keep(std::make_unique<Question>(RefreshByServer()));
  } else {
    BeginReading();
  }
}

void TableView::EndRefresh(absl::Status status) {
  failure_ = std::move(status);
  refreshing_ = false;
  ++refreshes_;
}

void TableView::BeginReading() {
  if (reading_) return;
  reading_ = true;
  ++metrics_->table_readings;
  membership_->Refresh([this, begun_ns = loop_->NowNs()](const absl::Status& status) {
    reading_ = false;
    if (refreshing_ && refreshed_ns_ <= begun_ns) EndRefresh(status);
    if (status.ok()) table_ns_ = seen_ns_ = std::max(table_ns_, begun_ns);
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
  if (now_ns - looked_ns_ > kQuietNs) {
    looked_ns_ = now_ns;
    connections_->CloseGone(cluster(), kQuietNs);
    if (connections_->AnyIsQuiet(kQuietNs)) RefreshSoon();
  }
  const bool read = refresh_soon_ || now_ns - seen_ns_ > kOldAfterNs / 10;
  const bool renew = reads() != reads_at_refresh_ && now_ns - table_ns_ > lease_ns / kRenewalsALease;
  if (refreshing_) return;
  if (read && now_ns - refreshed_ns_ >= kRefreshPauseNs) {
    refresh_soon_ = false;
    BeginRefresh();
  } else if (renew && !asking_ && now_ns - asked_ns_ > lease_ns / kQuestionsALease) {
    asked_ns_ = now_ns;
    loop_->Keep(std::make_unique<Question>(AskServer()));
  }
}

Task<bool> TableView::RefreshByServer() {
  const uint64_t ended = refreshes_;
  for (;;) {
    const int64_t until_ns = QuestionEndsNs();
    const bool followed = co_await FollowServer(refreshed_ns_, until_ns);
    if (loop_->closed() || refreshes_ != ended) co_return false;
    if (followed) {
      EndRefresh(absl::OkStatus());
      loop_->Wake(&refreshes_);
      co_return true;
    }
    BeginReading();
    co_await loop_->SleepUntil(until_ns);
    if (loop_->closed() || refreshes_ != ended) co_return false;
  }
}

Task<bool> TableView::AskServer() {
  asking_ = true;
  reads_at_refresh_ = reads();
  const bool newest = co_await FollowServer(INT64_MIN, QuestionEndsNs());
  asking_ = false;
  if (loop_->closed()) co_return false;
  if (!newest || loop_->NowNs() - table_ns_ > cluster().table_lease_ns / 2) {
    asker_.PassOver();  // It is behind, or knows only what is old.
    RefreshSoon();
  }
  co_return newest;
}

Task<bool> TableView::FollowServer(int64_t since_ns, int64_t deadline_ns) {
  for (;;) {
    const bool any_age = since_ns == INT64_MIN;
    const uint64_t age_ns = any_age ? UINT64_MAX : static_cast<uint64_t>(loop_->NowNs() - since_ns);
    const absl::StatusOr<TableAsker::Answer> answer = co_await asker_.Ask(&cluster(), age_ns, deadline_ns);
    if (loop_->closed() || !answer.ok()) co_return false;
    const bool caught_up = co_await CatchUp(&*answer, deadline_ns);
    if (loop_->closed()) co_return false;
    const bool newest = caught_up && answer->version == cluster().table.version;
    if (newest) table_ns_ = seen_ns_ = std::max(table_ns_, answer->as_of_ns);
    if (any_age || (newest && answer->as_of_ns >= since_ns)) co_return newest;
    const int64_t again_ns = loop_->NowNs() + cluster().table_lease_ns / kRepeatsALease;
    if (again_ns >= deadline_ns) {
      asker_.PassOver();
      co_return false;
    }
    co_await loop_->SleepUntil(again_ns);
    if (loop_->closed()) co_return false;
  }
}

Task<bool> TableView::CatchUp(const TableAsker::Answer* answer, int64_t deadline_ns) {
  const bool behind = answer->version > cluster().table.version || answer->servers_version > cluster().servers_version;
  if (!behind || !membership_->learns()) co_return true;
  const TableFetcher::Versions versions{answer->version, answer->servers_version};
  absl::StatusOr<std::shared_ptr<const ClusterState>> fetched =
      co_await fetcher_.Fetch(answer->worker, cluster(), versions, deadline_ns);
  if (!fetched.ok()) {
    if (!absl::IsAborted(fetched.status())) asker_.PassOver();
    co_return false;
  }
  membership_->Learn(*std::move(fetched));
  revision_ = cluster().revision;
  co_return true;
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
