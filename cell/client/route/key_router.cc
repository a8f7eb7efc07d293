#include "cell/client/route/key_router.h"

#include <algorithm>

#include "cell/base/mutant.h"
#include "fmt/format.h"
#include "pilaf/hash_layout.h"

namespace cell {
namespace {

constexpr int64_t kPauseNs = 20'000;
constexpr int kPauseDoublings = 8;   // Up to 5 ms.
constexpr int kLockedDoublings = 9;  // Up to 10 ms.

}  // namespace

const HashParts* KeyRouter::parts() const {
  const auto& tables = session_->view()->cluster().table.tables;
  const auto it = tables.find(*table_);
  return it == tables.end() ? nullptr : &it->second;
}

void KeyRouter::Begin() {
  cached_node_ = {};
  downs_ = 0;
  if (table_ != nullptr) {
    const HashParts* const table = parts();
    root_ = table == nullptr ? Pointer() : HashRootOf(table->RegionOf(HashKey(key_).position));
    holder_ = session_->view()->HolderOf(root_.region());
    must_refresh_ = table == nullptr && restarts_ == 0;  // Try once more with the newest table.
    return;
  }
  root_ = restarts_ == 0 ? session_->tree()->routes()->Find(key_) : Pointer();
  from_route_ = !root_.null();
  ++(from_route_ ? session_->metrics()->route_hits : session_->metrics()->route_misses);
  if (!from_route_) root_ = session_->view()->root();
  holder_ = session_->view()->HolderOf(root_.region());
}

absl::Status KeyRouter::GoTo(Pointer root) {
  if (++hops_ > kHopsMax) {
    return absl::UnavailableError(
        fmt::format("key {} was not reached through {} meganodes", ForMessage(key_), kHopsMax));
  }
  root_ = root;
  from_route_ = false;
  cached_node_ = {};
  holder_ = session_->view()->HolderOf(root_.region());
  return absl::OkStatus();
}

absl::Status KeyRouter::Follow(const RouteView& route) {
  if (route.kind == RouteKind::kLocked) {
    pause_ns_ = kPauseNs << std::min(locked_++, kLockedDoublings);
    return absl::OkStatus();
  }
  locked_ = 0;
  switch (route.kind) {
    case RouteKind::kChild:
      if (route.has_range) {
        session_->tree()->routes()->Keep(
            route.low_key, route.has_high ? std::optional<std::string_view>(route.high_key) : std::nullopt, route.next);
      }
      return GoTo(route.next);
    case RouteKind::kRight:
      return GoRight(route.next);
    case RouteKind::kRestart:
    case RouteKind::kNotHeld:
    case RouteKind::kTooLow:
    case RouteKind::kLocked:
      break;
  }
  return Restart();
}

absl::Status KeyRouter::Follow(const Walk& walk, Walk::Step step, bool cached) {
  if (step == Walk::Step::kRestart) return Restart();
  if (walk.moved_right()) return GoRight(walk.wants());
  // A search goes down once for each tier. Cached nodes of regions that are gone can lead round in a circle, because
  // later regions have their ids.
  if (++downs_ > kTiersMax) return Restart();
  absl::Status status = GoTo(walk.wants());
  if (cached) cached_node_ = walk.path(0);
  return status;
}

// Goes to the right neighbour. The step that led here was out of date, or it would have led to the neighbour. If it was
// cached, the neighbour may be far from the key, and uncached data leads to the key directly.
absl::Status KeyRouter::GoRight(Pointer next) {
  if (root_ == session_->view()->root()) session_->view()->RefreshSoon();
  const bool misled = from_route_ || !cached_node_.null();
  if (misled) session_->tree()->routes()->Drop(key_);
  session_->tree()->nodes()->Drop(cached_node_);
  if (!misled || ++misled_ > kMisledMax) return GoTo(next);
  Begin();
  return absl::OkStatus();
}

absl::Status KeyRouter::Restart() {
  locked_ = 0;
  session_->tree()->routes()->Drop(key_);
  session_->tree()->nodes()->Drop(cached_node_);
  if (worker() != nullptr && worker()->up) session_->connections()->ForgetRegion(*worker(), root_.region());
  ++session_->metrics()->restarts;
  ++restarts_;
  must_refresh_ = true;
  holder_ = {};
  return absl::OkStatus();
}

Task<bool> KeyRouter::FindHolderAgain(absl::Status refused) {
  refused_ = std::move(refused);
  co_await session_->view()->Refresh(context_.deadline_ns);
  holder_ = session_->view()->HolderOf(root_.region());
  co_return holder_.worker != nullptr;
}

Task<absl::Status> KeyRouter::FindConnection() {
  for (;;) {
    if (session_->closed()) co_return ClientLoop::Closed();
    if (must_refresh_) {
      // It may take a moment until the table shows a migration.
      if (restarts_ > 1) {
        const int64_t until_ns = session_->now_ns() + (kPauseNs << std::min(restarts_, kPauseDoublings));
        const int64_t deadline_ns = Mutated(Mutant::kSleepsPastDeadline) ? INT64_MAX : context_.deadline_ns;
        co_await session_->loop()->SleepUntil(std::min(deadline_ns, until_ns));
      }
      co_await session_->view()->Refresh(context_.deadline_ns);
      const absl::Status failure = session_->view()->failure();
      if (absl::IsFailedPrecondition(failure)) co_return failure;
      restarts_ += restarts_ == 0;
      must_refresh_ = false;
      hops_ = 0;  // The deadline limits how often it starts over.
      Begin();
    }
    if (worker() != nullptr && worker()->up) co_return absl::OkStatus();
    if (table_ != nullptr && root_.null()) {
      co_return absl::NotFoundError(fmt::format("there is no table {}", ForMessage(*table_)));
    }
    const uint32_t region = root_.region();
    const absl::StatusOr<WorkerConnection*> worker = co_await session_->view()->Connect(region, context_.deadline_ns);
    if (worker.ok()) {
      holder_ = session_->view()->HolderOf(region);
      if (holder_.worker != nullptr) co_return absl::OkStatus();
      continue;  // The region has a new holder since.
    }
    // Waiting does not help a user who may not connect.
    if (!absl::IsPermissionDenied(worker.status()) && session_->view()->WillBeServed(region)) {
      if (session_->NowNs() >= context_.deadline_ns) co_return worker.status();
      (void)Restart();
      continue;
    }
    // Try once more with the newest table: the region may have moved.
    const RegionTable::Entry* entry = session_->view()->cluster().table.Find(region);
    const uint64_t epoch = entry != nullptr ? entry->epoch : 0;
    // A region that is not in the table is newer than the table (one of several ZooKeepers may lag), or has joined its
    // left neighbour, which will cover its keys in a moment.
    if (session_->NowNs() >= context_.deadline_ns || (entry != nullptr && unreachable_ == std::pair(region, epoch))) {
      co_return worker.status();
    }
    if (entry != nullptr) unreachable_ = {region, epoch};
    (void)Restart();
  }
}

}  // namespace cell
