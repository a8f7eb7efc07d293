#include "cell/server/worker.h"

#include <algorithm>

#include "cell/base/status_macros.h"
#include "cell/server/change/first_region.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

// Pause between polls of a membership that has to answer and wakes nobody, as in simulations.
constexpr int64_t kMembershipPauseNs = 100'000;

nlohmann::json ToJson(const LogFlusher& logs, const Checkpointer& checkpointer) {
  const LogFlusher::Counters& counters = logs.counters();
  return {{"durability", ToString(logs.durability())},
          {"flushes", counters.flushes},
          {"longest_flush_us", static_cast<double>(counters.longest_flush_ns) / 1e3},
          {"checkpoints", checkpointer.counters().checkpoints},
          {"checkpoint_bytes", checkpointer.counters().checkpoint_bytes},
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
      regions_(fabric_.get(), membership_->state().shape, options.regions_max),
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
      migrator_(context_, options.silence_ns),
      service_(context_, &served_, &held_, {&migrator_, &splitter_}, options.service),
      tables_(context_, &allocator_, &splitter_, &migrator_),
      rebalancer_(context_, &migrator_, options.balance),
      recoverer_(context_, service_.writes(), &routes_, options.recoverer),
      collector_(context_, options.collector) {
  status_.Add([this](nlohmann::json* status) {
    (*status)["connections_to_servers"] = peers_.connections();
    (*status)["logs"] = ToJson(logs_, checkpointer_);
  });
}

absl::Status Worker::Start(const std::string& address) {
  RETURN_IF_ERROR(MakeFirst());
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

size_t Worker::Poll() {
  if (has_posted_.load(std::memory_order_acquire)) DoPosted();
  peers_.Step();
  size_t done = fabric_->Poll();
  done += membership_->Poll();
  done += logs_.Poll();
  done += service_.writes()->ApplyDurable();
  done += scheduler_.Step();
  done += service_.writes()->RetryHeld();
  service_.Step();
  recoverer_.Step();
  migrator_.Step();
  lease_.Step();
  splitter_.Step();
  rebalancer_.Step();
  tables_.Step();
  collector_.Step();
  logs_.Step();
  checkpointer_.Step();
  return done;
}

void Worker::Wait(int64_t until_ns) {
  if (!membership_wakes_ && membership_->pending())
    until_ns = std::min(until_ns, fabric_->NowNs() + kMembershipPauseNs);
  fabric_->Wait(held_.size() > 0 ? 0 : std::min({until_ns, scheduler_.NextNs(), logs_.NextNs()}));
}

absl::Status Worker::Stop() {
  scheduler_.Stop();
  const int64_t until_ns = fabric_->NowNs() + finish_patience_ns_;
  while (!scheduler_.idle() && fabric_->NowNs() < until_ns) {
    const bool busy = Poll() > 0;  // Even if it only checks whether what it waits for has come.
    fabric_->Wait(fabric_->NowNs() + (busy ? 1'000 : 1'000'000));
  }
  RETURN_IF_ERROR(logs_.Finish());
  service_.writes()->ApplyDurable();
  if (scheduler_.idle()) return absl::OkStatus();
  return absl::DeadlineExceededError("a disk or the membership does not answer; all acknowledged writes are on disk");
}

void Worker::DoPosted() {
  std::vector<std::function<void(Worker*)>> now;
  {
    const std::lock_guard lock(posted_mutex_);
    now.swap(posted_);
    has_posted_ = false;
  }
  for (const auto& work : now) work(this);
}

}  // namespace cell
