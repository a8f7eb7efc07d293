// Worker: one thread's part of a server. One fabric endpoint, the regions that it holds, the service that answers
// requests on them, the steward that looks after them, and the mover that gives and takes them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cell/server/change/recoverer.h"
#include "cell/server/change/steward.h"
#include "cell/server/region/log_collector.h"
#include "cell/server/region/log_keeper.h"

namespace cell {

class Worker {
 public:
  struct Options {
    RequestService::Options service;
    StewardOptions steward;
    size_t regions_max = 16;
    int64_t silence_ns = 1'000'000'000;  // Of another worker in a move, after which it is given up.
    SyncPoints sync_points;
    LogKeeperOptions logs;
    RecovererOptions recoverer;
    LogCollectorOptions collector;
  };
  // Where its regions' logs are, and who writes them; null without durability.
  struct Logs {
    std::shared_ptr<LogStore> store;
    std::unique_ptr<Background> disk;    // Flushes and checkpoints.
    std::unique_ptr<Background> replay;  // Recoveries, which take long: no flush is to wait for them.
  };

  Worker(std::unique_ptr<Fabric> fabric, std::unique_ptr<Membership> membership, const Options& options)
      : Worker(std::move(fabric), std::move(membership), {}, options) {}
  Worker(std::unique_ptr<Fabric> fabric, std::unique_ptr<Membership> membership, Logs logs, const Options& options)
      : finish_patience_ns_(options.logs.finish_patience_ns),
        sync_points_(options.sync_points),
        fabric_(std::move(fabric)),
        membership_(std::move(membership)),
        store_(std::move(logs.store)),
        disk_(std::move(logs.disk)),
        replay_(std::move(logs.replay)),
        turns_(fabric_.get()),
        regions_(fabric_.get(), membership_->state().shape, options.regions_max),
        peers_(fabric_.get(), membership_.get()),
        logs_(fabric_.get(), &turns_, &regions_, store_.get(), disk_.get(), replay_.get(), options.logs),
        mover_(fabric_.get(), membership_.get(), &regions_, &peers_, &logs_, &turns_, &sync_points_,
               options.steward.self, options.silence_ns),
        service_(fabric_.get(), &regions_, membership_.get(), &mover_, options.service),
        allocator_(membership_.get(), &regions_, &logs_, &turns_, options.steward.self),
        tables_(
            fabric_.get(), membership_.get(), &regions_, &service_, &mover_, &peers_, &logs_, &allocator_, &turns_,
            &sync_points_,
            {options.steward.self, static_cast<uint32_t>(4 * options.steward.copied_per_turn), options.steward.seed}),
        steward_(fabric_.get(), membership_.get(), &regions_, &service_, &peers_, &mover_, &logs_, &allocator_,
                 &tables_, &turns_, &sync_points_, options.steward),
        recoverer_(fabric_.get(), membership_.get(), &regions_, &service_, &steward_, &logs_, &turns_, &sync_points_,
                   options.recoverer),
        collector_(fabric_.get(), membership_.get(), &regions_, &logs_, &turns_, options.collector) {}

  // Serves at `address` from now on, whenever Poll is called. Another thread may do that.
  absl::Status Start(const std::string& address) {
    RETURN_IF_ERROR(steward_.Start());
    RETURN_IF_ERROR(fabric_->Listen(address, &service_));
    HandOver();
    return absl::OkStatus();
  }
  // From now on another thread may call what one thread alone may. The present one must have ended its work.
  void HandOver() { regions_.HandOver(); }

  // From any thread: `work` is done on the worker's, by its next Poll.
  void Post(std::function<void(Worker*)> work) {
    const std::lock_guard lock(posted_mutex_);
    posted_.push_back(std::move(work));
    has_posted_.store(true, std::memory_order_release);
  }

  // Does what can be done now. The number of things done.
  size_t Poll() {
    if (has_posted_.load(std::memory_order_acquire)) DoPosted();
    peers_.Step();
    size_t done = fabric_->Poll();
    done += membership_->Poll();
    done += logs_.Poll();
    done += service_.writes()->ApplyDurable();
    done += turns_.Step();
    done += service_.writes()->RetryHeld();
    service_.Step();
    recoverer_.Step();
    mover_.Step();
    steward_.Step();
    tables_.Step();
    collector_.Step();
    logs_.Step();
    return done;
  }
  void Wait(int64_t until_ns) {
    if (membership_->pending()) until_ns = std::min(until_ns, fabric_->NowNs() + kMembershipPauseNs);
    fabric_->Wait(service_.writes()->held() > 0 ? 0 : std::min({until_ns, turns_.NextNs(), logs_.NextNs()}));
  }
  // Ends what is going on, as far as it can be ended; all that was acknowledged is on disk then. Then only the
  // destructor. DeadlineExceeded: a disk, or the membership, has not answered for as long as `LogKeeperOptions::
  // finish_patience_ns`, and what waits for it refers to this worker: it cannot be destroyed, and the process is to end.
  absl::Status Stop() {
    turns_.Stop();
    const int64_t until_ns = fabric_->NowNs() + finish_patience_ns_;
    while (!turns_.idle() && fabric_->NowNs() < until_ns) {
      const bool busy = Poll() > 0;  // Be it only with looking whether what it waits for has come.
      fabric_->Wait(fabric_->NowNs() + (busy ? 1'000 : 1'000'000));
    }
    RETURN_IF_ERROR(logs_.Finish());
    service_.writes()->ApplyDurable();
    if (turns_.idle()) return absl::OkStatus();
    return absl::DeadlineExceededError(
        "a disk or the membership does not answer; all that was acknowledged is on disk");
  }

  Fabric* fabric() { return fabric_.get(); }
  const Membership* membership() const { return membership_.get(); }
  Regions* regions() { return &regions_; }
  RequestService* service() { return &service_; }
  Steward* steward() { return &steward_; }
  TableKeeper* tables() { return &tables_; }
  Mover* mover() { return &mover_; }
  LogKeeper* logs() { return &logs_; }
  Recoverer* recoverer() { return &recoverer_; }
  const LogCollector* collector() const { return &collector_; }
  Turns* turns() { return &turns_; }
  SyncPoints* sync_points() { return &sync_points_; }

 private:
  // Between looks at a membership that is to answer. Its answer may take long, and wakes nobody.
  static constexpr int64_t kMembershipPauseNs = 100'000;

  void DoPosted() {
    std::vector<std::function<void(Worker*)>> now;
    {
      const std::lock_guard lock(posted_mutex_);
      now.swap(posted_);
      has_posted_ = false;
    }
    for (const auto& work : now) work(this);
  }

  std::mutex posted_mutex_;
  std::vector<std::function<void(Worker*)>> posted_;
  std::atomic<bool> has_posted_ = false;

  const int64_t finish_patience_ns_;
  SyncPoints sync_points_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Membership> membership_;
  std::shared_ptr<LogStore> store_;
  std::unique_ptr<Background> disk_;
  std::unique_ptr<Background> replay_;
  Turns turns_;
  Regions regions_;
  Peers peers_;
  LogKeeper logs_;
  Mover mover_;
  RequestService service_;
  RegionAllocator allocator_;
  TableKeeper tables_;
  Steward steward_;
  Recoverer recoverer_;
  LogCollector collector_;
};

}  // namespace cell
