#include "cell/server/change/transaction_resolver.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "cell/cluster/membership_await.h"
#include "cell/server/change/peers.h"
#include "cell/server/region/regions.h"
#include "cell/server/sched/scheduler.h"

namespace cell {
namespace {

constexpr size_t kAtOnce = 64;

// Describes a transaction of a region, for the server that decides on it.
Outcome OutcomeOf(const RegionTransaction& transaction) {
  return {transaction.id, transaction.stamp, transaction.fingerprint, transaction.user};
}

}  // namespace

TransactionResolver::TransactionResolver(const WorkerContext& context, ServedRegions* served, WritePipeline* writes,
                                         const TransactionResolverOptions& options)
    : self_(context.self),
      clock_(context.clock),
      membership_(context.membership),
      scheduler_(context.scheduler),
      regions_(context.regions),
      peers_(context.peers),
      served_(served),
      writes_(writes),
      options_(options) {}

void TransactionResolver::Step() {
  const int64_t now_ns = clock_->NowNs();
  if (scheduler_->stopping() || now_ns < look_at_ns_) return;
  look_at_ns_ = now_ns + options_.look_every_ns;
  ReleaseUnconfirmed(now_ns);
  if (busy_) return;
  bool any = false;
  regions_->ForEach([&any](const HeldRegion* region) { any |= !region->settled(); });
  if (!any) return;
  busy_ = true;
  scheduler_->Spawn(Run());
}

HeldRegion* TransactionResolver::Find(uint32_t region) const {
  HeldRegion* const held = served_->FindReadable(region);
  if (held == nullptr || !served_->leased()) return nullptr;
  return held->log == nullptr || held->log->status().ok() ? held : nullptr;
}

void TransactionResolver::ReleaseUnconfirmed(int64_t now_ns) {
  served_->CheckLease();
  regions_->ForEach([&](HeldRegion* held) {
    if (held->transactions.empty() || Find(held->region()) == nullptr) return;
    std::vector<RequestId> unconfirmed;
    for (const auto& [owner, transaction] : held->transactions.all()) {
      const bool waits = !transaction->logged && !transaction->committed && !transaction->aborting;
      if (waits && now_ns - transaction->since_ns >= options_.patience_ns) unconfirmed.push_back(transaction->id);
    }
    for (const RequestId& id : unconfirmed) writes_->transactions()->Release(id, held);
  });
}

Task<bool> TransactionResolver::Run() {
  struct Due {
    uint32_t region;
    Outcome of;
    uint32_t primary;  // 0: it was committed here, and others have to be told.
  };
  std::vector<Due> due;
  away_.clear();
  const int64_t now_ns = clock_->NowNs();
  std::map<std::pair<uint32_t, KeyLocks::Owner>, int64_t> open_since_ns;
  regions_->ForEach([&](HeldRegion* held) {
    if (Find(held->region()) == nullptr) return;
    for (const auto& [owner, transaction] : held->transactions.all()) {
      const bool waits = transaction->logged && !transaction->committed && !transaction->aborting;
      if (!waits || now_ns - transaction->since_ns < options_.patience_ns) continue;
      due.push_back({held->region(), OutcomeOf(*transaction), transaction->primary});
    }
    if (held->outcomes.open() == 0) return;
    held->outcomes.ForEach([&](const Outcome& outcome) {
      if (!outcome.open) return;
      const auto key = std::pair(held->region(), OwnerOf(outcome.id));
      const auto known = open_since_ns_.find(key);
      const int64_t since_ns = known == open_since_ns_.end() ? now_ns : known->second;
      open_since_ns.emplace(key, since_ns);
      if (now_ns - since_ns >= options_.patience_ns) due.push_back({held->region(), outcome, 0});
    });
  });
  open_since_ns_ = std::move(open_since_ns);
  // Many at once, because some of those that are asked may not answer.
  for (size_t begin = 0; begin < due.size() && !scheduler_->stopping(); begin += kAtOnce) {
    std::vector<Task<bool>> tasks;
    for (size_t i = begin; i < std::min(due.size(), begin + kAtOnce); ++i) {
      Due& one = due[i];
      tasks.push_back(one.primary != 0 ? Resolve(one.region, std::move(one.of), one.primary)
                                       : Tell(one.region, std::move(one.of)));
    }
    for (Task<bool>& task : tasks) task.Start();
    for (Task<bool>& task : tasks) (void)co_await task.Join();
  }
  busy_ = false;
  co_return true;
}

Task<bool> TransactionResolver::Resolve(uint32_t region, Outcome of, uint32_t primary) {
  const std::optional<TransactAnswer> answer = co_await Ask(primary, of, Decision::kAsk, 0);
  if (!answer.has_value() || answer->outcome == TransactOutcome::kPrepared) co_return false;
  ++resolved_;
  if (primary == region) co_return true;
  const bool commits = answer->outcome == TransactOutcome::kCommitted;
  (void)AskHere(region, of, commits ? Decision::kCommit : Decision::kAbort, answer->stamp);
  co_return true;
}

Task<bool> TransactionResolver::Tell(uint32_t region, Outcome outcome) {
  std::vector<Task<std::optional<TransactAnswer>>> tasks;
  for (size_t at = 0; at + sizeof(uint32_t) <= outcome.result.size(); at += sizeof(uint32_t)) {
    uint32_t other;
    std::memcpy(&other, outcome.result.data() + at, sizeof(other));
    tasks.push_back(Ask(other, outcome, Decision::kCommit, outcome.stamp));
  }
  for (auto& task : tasks) task.Start();
  bool all = true;
  for (auto& task : tasks) all &= (co_await task.Join()).has_value();
  if (!all) co_return false;
  ++resolved_;
  (void)AskHere(region, outcome, Decision::kFinish, outcome.stamp);
  co_return true;
}

std::optional<TransactAnswer> TransactionResolver::AskHere(uint32_t region, const Outcome& of, Decision decision,
                                                           uint64_t stamp) {
  served_->CheckLease();
  HeldRegion* const held = Find(region);
  if (held == nullptr) return std::nullopt;
  absl::StatusOr<std::optional<TransactAnswer>> answer = writes_->DecideAlone(of, decision, stamp, held);
  return answer.ok() ? *std::move(answer) : std::nullopt;
}

Task<std::optional<TransactAnswer>> TransactionResolver::Ask(uint32_t region, Outcome of, Decision decision,
                                                             uint64_t stamp) {
  absl::StatusOr<WorkerId> owner = membership_->state().OwnerOf(region);
  if (!owner.ok()) {
    // This worker may not know the newest table yet.
    const bool fresh = (co_await RefreshAwaiter(membership_)).ok();
    if (fresh && membership_->state().table.Find(region) == nullptr) {
      co_return TransactAnswer{TransactOutcome::kAborted};
    }
    co_return std::nullopt;
  }
  if (*owner == self_) co_return AskHere(region, of, decision, stamp);
  if (away_.contains(*owner)) co_return std::nullopt;
  const WorkerId asked = *owner;
  std::string request = MakeDecideRequest(RootOf(region), of.id, decision, stamp);
  const absl::StatusOr<std::string> reply =
      co_await peers_->Call(*std::move(owner), std::move(request), options_.patience_ns);
  if (!reply.ok()) away_.insert(asked);
  if (!reply.ok() || IsRoute(AsBytes(*reply))) co_return std::nullopt;
  const absl::StatusOr<Parsed<TransactReply>> parsed = ParseTransactReply(AsBytes(*reply), MessageKind::kDecide);
  if (!parsed.ok()) co_return std::nullopt;
  co_return TransactAnswer{parsed->fixed.outcome, parsed->fixed.stamp};
}

}  // namespace cell
