#include "cell/server/worker.h"

#include <algorithm>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/server/change/first_region.h"
#include "cell/server/region/commit_table_change.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

// Pause between polls of a membership that has to answer and wakes nobody, as in simulations.
constexpr int64_t kMembershipPauseNs = 100'000;

// How often held writes are retried while the worker does nothing. Whatever lets a write go follows from something that
// a Poll has done: a call that was served, an answer, a sync, a step of a coroutine. The exceptions are what the parts'
// Steps do because time has passed, such as giving up a migration whose other side is silent.
constexpr int64_t kRetryHeldNs = 200'000;

// How long Stop waits at most for what wakes nobody: what the parts' Steps do because time has passed, and simulated
// disks.
constexpr int64_t kStopPauseNs = 1'000'000;

nlohmann::json ToJson(const LogFlusher& logs, const Checkpointer& checkpointer) {
  const LogFlusher::Counters& counters = logs.counters();
  return {{"durability", ToString(logs.durability())},
          {"flushes", counters.flushes},
          {"flushed_bytes", counters.flushed_bytes},
          {"flushing_us", static_cast<double>(counters.flushing_ns) / 1e3},
          {"longest_flush_us", static_cast<double>(counters.longest_flush_ns) / 1e3},
          {"checkpoints", checkpointer.counters().checkpoints},
          {"checkpoint_bytes", checkpointer.counters().checkpoint_bytes},
          {"checkpoints_damaged", checkpointer.counters().damaged},
          {"failed", counters.failed}};
}

}  // namespace

Worker::Worker(std::unique_ptr<Fabric> fabric, std::unique_ptr<Membership> membership, Logs logs,
               const Options& options)
    : finish_patience_ns_(options.logs.finish_patience_ns),
      start_pause_ns_(options.start_pause_ns),
      sync_points_(options.sync_points),
      fabric_(std::move(fabric)),
      membership_(std::move(membership)),
      membership_wakes_(membership_->SetWake([fabric = fabric_.get()] { fabric->Wake(); })),
      store_(std::move(logs.store)),
      disk_(std::move(logs.disk)),
      replay_(std::move(logs.replay)),
      scheduler_(fabric_.get()),
      regions_(fabric_.get(), membership_->state().shape, options.regions_max, options.pairs),
      peers_(fabric_.get(), membership_.get()),
      logs_(fabric_.get(), &scheduler_, &regions_, {store_.get(), disk_.get(), replay_.get()}, options.logs),
      context_{options.self, options.seed, fabric_.get(), fabric_.get(), membership_.get(), &scheduler_,
               &regions_,    &logs_,       &peers_,       &status_,      &sync_points_},
      checkpointer_(context_, options.checkpoints),
      lease_(context_),
      served_(fabric_.get(), &regions_, membership_.get()),
      allocator_(context_),
      routes_(context_, &allocator_, &served_),
      splitter_(context_, &allocator_, &routes_, &held_, options.split),
      migrator_(context_, options.migrator),
      refresher_(context_, options.refresh_every_ns),
      service_(context_, &served_, &held_, {&migrator_, &splitter_, &refresher_}, options.service),
      tables_(context_, &allocator_, &splitter_, &migrator_),
      rebalancer_(context_, &migrator_, options.balance),
      joiner_(context_, &migrator_, &routes_, &held_, options.join),
      recoverer_(context_, service_.writes(), &routes_, options.recoverer),
      resolver_(context_, &served_, service_.writes(), options.transactions),
      collector_(context_, options.collector) {
  regions_.snapshots()->set_bytes_max(options.snapshot_bytes);
  fabric_->SetSelf(IdentityOf(Role::kServer, options.self.server));
  const auto make_room = [this] { return joiner_.MakeRoom() || rebalancer_.MakeRoom(); };
  splitter_.set_on_no_room(make_room);
  routes_.set_on_no_room(make_room);
  status_.Add([this](nlohmann::json* status) {
    (*status)["connections_to_servers"] = peers_.connections();
    (*status)["logs"] = ToJson(logs_, checkpointer_);
  });
}

absl::Status Worker::Start(const std::string& address) {
  RETURN_IF_ERROR(MakeFirst());
  service_.FollowGrants();  // Before the first request comes.
  RETURN_IF_ERROR(fabric_->Listen(address, &service_));
  HandOver();
  return absl::OkStatus();
}

absl::Status Worker::MakeFirst() {
  absl::Status status;
  const auto run = [this, &status]() -> Task<bool> {
    status = co_await MakeFirstRegion(membership_.get(), &regions_, &logs_, context_.self);
    co_return true;
  };
  scheduler_.Spawn(run());
  while (!scheduler_.idle()) {
    logs_.Step();
    if (membership_->Poll() + logs_.Poll() + scheduler_.Step() > 0) continue;
    fabric_->Wait(fabric_->NowNs() + start_pause_ns_);
  }
  return status;
}

Task<absl::Status> Worker::SetEviction(std::string table, std::string prefix, std::optional<Eviction> eviction) {
  Membership::TableChange change = [of = std::move(table), prefix = std::move(prefix), eviction](RegionTable* its) {
    return its->SetEviction(of, prefix, eviction);
  };
  co_return co_await ChangeTable(std::move(change));
}

Task<absl::Status> Worker::ChangeTable(Membership::TableChange change) {
  co_return co_await CommitTableChange(membership_.get(), &scheduler_, std::move(change));
}

size_t Worker::Poll() {
  size_t done = has_posted_.load(std::memory_order_acquire) ? DoPosted() : 0;
  peers_.Step();
  done += fabric_->Poll();
  done += membership_->Poll();
  done += logs_.Poll();
  done += service_.writes()->ApplyDurable();
  done += scheduler_.Step();
  done += RetryHeld(done);
  done += service_.ServeWaiting();
  refresher_.Step();
  service_.Step();
  recoverer_.Step();
  resolver_.Step();
  migrator_.Step();
  lease_.Step();
  splitter_.Step();
  rebalancer_.Step();
  joiner_.Step();
  tables_.Step();
  collector_.Step();
  logs_.Step();
  checkpointer_.Step();
  return done;
}

size_t Worker::RetryHeld(size_t done) {
  const uint64_t served = std::exchange(batches_seen_, service_.batches());  // Simulated fabrics serve outside of Poll.
  const bool changed = done > 0 || service_.batches() != served;
  // The last Poll may have let a write go after its retry, by Steps that followed from what it had done.
  const bool may_go = std::exchange(changed_, changed) || changed;
  if (held_.size() == 0) return 0;
  const int64_t now_ns = fabric_->NowNs();
  if (!may_go && now_ns < std::min(retry_held_ns_, service_.writes()->NextHeldNs())) return 0;
  retry_held_ns_ = now_ns + kRetryHeldNs;
  return service_.writes()->RetryHeld();
}

void Worker::Wait(int64_t until_ns) {
  if (!membership_wakes_ && membership_->pending())
    until_ns = std::min(until_ns, fabric_->NowNs() + kMembershipPauseNs);
  if (held_.size() > 0) until_ns = std::min({until_ns, retry_held_ns_, service_.writes()->NextHeldNs()});
  fabric_->Wait(std::min({until_ns, scheduler_.NextNs(), logs_.NextNs(), refresher_.NextNs()}));
}

absl::Status Worker::Stop() {
  scheduler_.Stop();
  const int64_t until_ns = fabric_->NowNs() + finish_patience_ns_;
  while (!scheduler_.idle() && fabric_->NowNs() < until_ns) {
    if (Poll() == 0) Wait(std::min(until_ns, fabric_->NowNs() + kStopPauseNs));
  }
  RETURN_IF_ERROR(logs_.Finish());
  service_.writes()->ApplyDurable();
  if (scheduler_.idle()) return absl::OkStatus();
  return absl::DeadlineExceededError("a disk or the membership does not answer; all acknowledged writes are on disk");
}

size_t Worker::DoPosted() {
  std::vector<std::function<void(Worker*)>> now;
  {
    const std::lock_guard lock(posted_mutex_);
    now.swap(posted_);
    has_posted_ = false;
  }
  for (const auto& work : now) work(this);
  return now.size();
}

}  // namespace cell
